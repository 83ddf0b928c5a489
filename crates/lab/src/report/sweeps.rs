//! Charts of one figure over sizes: of the working set, and of a block.
//!
//! What must stay true: an INVALID figure is no point of a line; a knee is marked where the formula
//! finds it, not where it looks like one.

use super::chart::{Line, Lines};
use super::charts::{self, Chart, ChartRow};
use super::points::Point;
use crate::fio::value;
use crate::metrics::knee;
use crate::metrics::latency::to_f64;
use crate::record::{ArrayCondition, RateUnit};
use crate::units;
use crate::validity::Mark;

/// Both of them; one with nothing to show has no picture.
pub fn all(points: &[Point]) -> Vec<Chart> {
    vec![
        working_sets(
            points,
            "How large is the cache that answers with bytes?",
            RateUnit::BytesPerS,
        ),
        working_sets(points, "How large is the cache that answers I/Os?", RateUnit::Iops),
        block_sizes(points),
    ]
}

/// Points of a stage with their sizes in bytes, as lines of one load each: name, points, and what
/// the table says.
struct Swept<'a> {
    name: String,
    sizes: Vec<(u64, f64)>,
    points: Vec<(&'a Point, String)>,
}

fn swept<'a>(
    points: &'a [Point],
    (stage, word): (&str, &str),
    told: impl Fn(&Point) -> (f64, String),
) -> Vec<Swept<'a>> {
    let mut all: Vec<Swept<'_>> = Vec::new();
    for point in points.iter().filter(|it| it.stage == stage && it.mark() != Mark::Invalid) {
        let Some((load, size)) = point.workload.name.rsplit_once(word) else { continue };
        let Some(bytes) = value::bytes(size) else { continue };
        let target = point.rounds.first().map_or("", |round| round.target.as_str());
        let whose = match point.condition {
            ArrayCondition::Raw => target,
            _ => point.engine.as_str(),
        };
        let name = format!("{whose}, {load}");
        let at = all.iter().position(|it| it.name == name).unwrap_or_else(|| {
            all.push(Swept { name, sizes: Vec::new(), points: Vec::new() });
            all.len() - 1
        });
        let (height, said) = told(point);
        all[at].sizes.push((bytes, height));
        all[at].points.push((point, format!("{}: {said}", units::block(bytes))));
    }
    all.iter_mut().for_each(|it| it.sizes.sort_by_key(|(bytes, _)| *bytes));
    all
}

fn rows(all: &[Swept<'_>]) -> Vec<ChartRow> {
    let of = |it: &Swept<'_>| -> Vec<ChartRow> {
        let row = |(point, said): &(&Point, String)| ChartRow {
            case: it.name.clone(),
            ..charts::row(point, said.clone())
        };
        it.points.iter().map(row).collect()
    };
    all.iter().flat_map(of).collect()
}

fn lines(all: &[Swept<'_>], unit_bytes: f64) -> Vec<Line> {
    let line = |it: &Swept<'_>| Line {
        name: it.name.clone(),
        points: it.sizes.iter().map(|(bytes, rate)| (to_f64(*bytes) / unit_bytes, *rate)).collect(),
    };
    all.iter().map(line).collect()
}

fn working_sets(points: &[Point], question: &'static str, unit: RateUnit) -> Chart {
    let (scale, axis) = charts::axis(unit);
    let rate = |point: &Point| (point.rate() / scale, units::rate(point.rate(), unit));
    let own: Vec<Point> = points.iter().filter(|point| point.unit() == unit).cloned().collect();
    let all = swept(&own, ("working-set", "-ws"), rate);
    let mark = |it: &Swept<'_>| {
        let knee = knee::find(&it.sizes)?;
        let (fits, beyond) = (to_f64(knee.fits), to_f64(knee.beyond));
        let place = (fits * beyond).sqrt() / MIB;
        let size = |bytes: u64| units::bytes(to_f64(bytes));
        let said = format!(
            "knee of {}: {} still fit, {} do not",
            it.name,
            size(knee.fits),
            size(knee.beyond)
        );
        Some((place, said))
    };
    let reading = "The rate over the size of the working set (zipf 1.2 inside it). \
                   A dashed line stands where the rate falls for good: \
                   left of it a cache answers, and figures from there are about the cache.";
    let picture = Lines {
        lines: lines(&all, MIB),
        x: "working set, MiB".to_owned(),
        y: axis.to_owned(),
        is_log2: true,
        marks: all.iter().filter_map(mark).collect(),
    };
    charts::chart(&own, (question, reading), (picture.svg(question), rows(&all)), |it| {
        it.stage == "working-set"
    })
}

const MIB: f64 = 1_048_576.0;
const KIB: f64 = 1024.0;

fn block_sizes(points: &[Point]) -> Chart {
    let all = swept(points, ("block-sizes", "-bs"), |point| {
        let rate = point.rounds.iter().map(|it| it.bytes_per_s());
        let rate = crate::metrics::slow_member::median(rate);
        let ios = rate / to_f64(point.workload.block_bytes.max(1));
        let iops = units::rate(ios, crate::record::RateUnit::Iops);
        (rate / 1e6, format!("{}, {iops}", units::bytes_per_s(rate)))
    });
    let question = "Which block size brings what?";
    let reading = "Bytes a second over the size of a block, each median of its rounds; \
                   I/Os a second are in the table. Small blocks show what an I/O costs, \
                   large ones what the way carries.";
    let picture = Lines {
        lines: lines(&all, KIB),
        x: "block, KiB".to_owned(),
        y: "MB/s".to_owned(),
        is_log2: true,
        marks: Vec::new(),
    };
    charts::chart(points, (question, reading), (picture.svg(question), rows(&all)), |it| {
        it.stage == "block-sizes"
    })
}
