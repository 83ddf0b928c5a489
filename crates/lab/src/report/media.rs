//! Figures over sizes, of the working set and of a block; and what the drives themselves did over
//! time and over their width: cliffs, zones.
//!
//! What must stay true: an INVALID figure is drawn nowhere; where not all drives fit into a
//! picture, the slowest and the fastest are in it, and all are in its table; a knee is marked where
//! the same rule finds it that checks it.

use super::chart::{Line, Lines};
use super::charts::{self, Chart, ChartRow, Curves, SECONDS};
use super::points::Point;
use crate::fio::value;
use crate::metrics::cliff;
use crate::metrics::latency::to_f64;
use crate::metrics::slow_member::median;
use crate::order::one_of;
use crate::record::{ArrayCondition, RateUnit};
use crate::units;
use crate::validity::Mark;
use std::collections::BTreeMap;

/// Drives that fit into one picture.
const DRIVES_MAX: usize = 6;

pub fn all(points: &[Point]) -> Vec<Chart> {
    sweeps(points).into_iter().chain([zones(points), cliffs(points)]).collect()
}

/// Something drawn about one drive, in bytes a second, and what its table says.
struct Told<'a> {
    point: &'a Point,
    line: Line,
    said: String,
}

impl<'a> Told<'a> {
    /// A line of more than one place.
    fn of(point: &'a Point, name: String, points: Vec<(f64, f64)>, said: &str) -> Option<Told<'a>> {
        let said = said.to_owned();
        (points.len() > 1).then_some(Told { point, line: Line { name, points }, said })
    }
}

fn of_stage<'a>(points: &'a [Point], stage: &str) -> impl Iterator<Item = &'a Point> {
    points.iter().filter(move |point| point.stage == stage && point.mark() != Mark::Invalid)
}

fn row(point: &Point, said: String) -> ChartRow {
    ChartRow { engine: point.target().to_owned(), ..charts::row(&[point], said) }
}

/// The chart of `told` on the axes of `picture`: all if they fit; the slowest, the fastest and some
/// between them otherwise.
fn chart(name: &str, mut told: Vec<Told<'_>>, picture: Lines) -> Chart {
    let rows = told.iter().map(|it| row(it.point, it.said.clone())).collect();
    let more = told.len().saturating_sub(DRIVES_MAX);
    if more > 0 {
        let mean = |Told { line, .. }: &Told<'_>| {
            line.points.iter().map(|it| it.1).sum::<f64>() / line.points.len().max(1) as f64
        };
        told.sort_by(|one, other| mean(one).total_cmp(&mean(other)));
        let (last, steps) = (told.len() - 1, DRIVES_MAX - 1);
        let picked: Vec<usize> = (0..=steps).map(|step| last * step / steps).collect();
        let mut at = 0..;
        told.retain(|_| at.next().is_some_and(|at| picked.contains(&at)));
    }
    let mut lines: Vec<Line> = told.into_iter().map(|it| it.line).collect();
    lines.iter_mut().flat_map(|line| &mut line.points).for_each(|place| place.1 /= 1e6);
    let mut chart = Curves { lines, rows }.chart(name, picture);
    if more > 0 {
        let said = "more between the slowest and the fastest, which are in the table";
        chart.left_out.push(format!("{more} {said}"));
    }
    chart
}

fn axes(x: &str) -> Lines {
    Lines { x: x.to_owned(), y: "MB/s".to_owned(), ..Lines::default() }
}

fn zones(points: &[Point]) -> Chart {
    let mut curves: Vec<(&Point, Vec<(f64, f64)>)> = Vec::new();
    for point in of_stage(points, "zone") {
        let place = point.workload.name.rsplit('-').next().and_then(|it| it.parse::<u32>().ok());
        let Some(place) = place.map(f64::from) else { continue };
        let same = |(drive, _): &(&Point, _)| drive.target() == point.target();
        one_of(&mut curves, same, || (point, Vec::new())).1.push((place, point.rate()));
    }
    let told = curves.into_iter().filter_map(|(point, mut places)| {
        places.sort_by(|one, other| one.0.total_cmp(&other.0));
        let said = format!("% of the width: MB/s: {}", charts::shown(&places, "%", 1e6));
        Told::of(point, point.target().to_owned(), places, &said)
    });
    chart("zones", told.collect(), axes("% of the width"))
}

fn cliffs(points: &[Point]) -> Chart {
    let told = of_stage(points, "cliff").filter_map(|point| {
        let series = charts::rates_of(point.rounds.last()?, 1.0);
        let said = format!("MB/s: {}", charts::shown(&series, "s", 1e6));
        Told::of(point, point.target().to_owned(), series, &said)
    });
    let told: Vec<Told<'_>> = told.collect();
    let marks = told.iter().take(DRIVES_MAX).filter_map(|it| {
        let rates: Vec<f64> = it.line.points.iter().map(|(_, rate)| *rate).collect();
        let found = cliff::find(&rates, 1.0)?;
        let (from, to) = (units::bytes_per_s(found.before), units::bytes_per_s(found.after));
        let (name, after) = (&it.line.name, units::bytes(found.bytes_before));
        Some((it.line.points.get(found.at)?.0, format!("{name}: {from} to {to} after {after}")))
    });
    let marks = marks.collect();
    chart("cliffs", told, Lines { marks, ..axes(SECONDS) })
}

/// All of them; one with nothing to show has no picture.
fn sweeps(points: &[Point]) -> [Chart; 3] {
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
