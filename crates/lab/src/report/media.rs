//! Figures over sizes, of the working set and of a block.
//!
//! What must stay true: an INVALID figure is drawn nowhere; a knee is marked where the same rule
//! finds it that checks it.

use super::chart::Lines;
use super::charts::{self, Chart, ChartRow, Curves};
use super::points::Point;
use crate::fio::value;
use crate::metrics::cliff;
use crate::metrics::latency::to_f64;
use crate::metrics::slow_member::median;
use crate::record::{ArrayCondition, RateUnit};
use crate::units;
use crate::validity::Mark;
use std::collections::BTreeMap;

/// All of them; one with nothing to show has no picture.
pub fn all(points: &[Point]) -> [Chart; 3] {
    [
        working_sets(points, "cache-bytes", RateUnit::BytesPerS),
        working_sets(points, "cache-ios", RateUnit::Iops),
        block_sizes(points),
    ]
}

fn swept<'a>(points: &'a [Point], stage: &str, word: &str) -> Vec<(&'a Point, String, u64)> {
    let own = points.iter().filter(|it| it.stage == stage && it.mark() != Mark::Invalid);
    let sized = own.filter_map(|point| {
        let (load, size) = point.workload.name.rsplit_once(word)?;
        let whose = match point.condition {
            ArrayCondition::Raw => point.target(),
            _ => point.engine.as_str(),
        };
        Some((point, format!("{whose}, {load}"), value::bytes(size)?))
    });
    sized.collect()
}

fn told(point: &Point, line: &str, bytes: u64, said: &str) -> ChartRow {
    let case = line.to_owned();
    ChartRow { case, ..charts::row(&[point], format!("{}: {said}", units::block(bytes))) }
}

fn working_sets(points: &[Point], name: &str, unit: RateUnit) -> Chart {
    let (scale, axis) = charts::axis(unit);
    let mut curves = Curves::default();
    let mut sizes: BTreeMap<String, Vec<(u64, f64)>> = BTreeMap::new();
    let is_own = |point: &Point| point.unit() == unit;
    for (point, line, bytes) in swept(points, "working-set", "-ws") {
        if is_own(point) {
            curves.add(&line, (to_f64(bytes) / MIB, point.rate() / scale));
            curves.rows.push(told(point, &line, bytes, &units::rate(point.rate(), unit)));
            sizes.entry(line).or_default().push((bytes, point.rate() / scale));
        }
    }
    let mark = |(line, sizes): (&String, &mut Vec<(u64, f64)>)| {
        sizes.sort_by_key(|(bytes, _)| *bytes);
        let knee = cliff::knee(sizes)?;
        let (fits, beyond) = (to_f64(knee.fits), to_f64(knee.beyond));
        let (in_it, out) = (units::bytes(fits), units::bytes(beyond));
        let said = format!("knee of {line}: {in_it} still fit, {out} do not");
        Some(((fits * beyond).sqrt() / MIB, said))
    };
    let marks = sizes.iter_mut().filter_map(mark).collect();
    let (x, y) = ("working set, MiB".to_owned(), axis.to_owned());
    curves
        .chart(name, Lines { x, y, is_log2: true, marks, ..Lines::default() })
        .without(points, |it| it.stage == "working-set" && is_own(it))
}

const MIB: f64 = 1_048_576.0;
const KIB: f64 = 1024.0;

fn block_sizes(points: &[Point]) -> Chart {
    let mut curves = Curves::default();
    for (point, line, bytes) in swept(points, "block-sizes", "-bs") {
        let rate = median(point.rounds.iter().map(|it| it.bytes_per_s()));
        let ios = rate / to_f64(point.workload.block_bytes.max(1));
        let said = format!("{}, {}", units::bytes_per_s(rate), units::rate(ios, RateUnit::Iops));
        curves.add(&line, (to_f64(bytes) / KIB, rate / 1e6));
        curves.rows.push(told(point, &line, bytes, &said));
    }
    let (x, y) = ("block, KiB".to_owned(), "MB/s".to_owned());
    curves
        .chart("blocks", Lines { x, y, is_log2: true, ..Lines::default() })
        .without(points, |it| it.stage == "block-sizes")
}
