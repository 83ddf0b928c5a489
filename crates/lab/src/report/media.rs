//! What the drives themselves did over time and over their width: fills, zones, cliffs, and the
//! pace of each while all ran.
//!
//! What must stay true: an INVALID figure is drawn nowhere; where not all drives fit into a
//! picture, the slowest and the fastest are in it, and all are in its table.

use super::chart::{Bar, Bars, Line, Lines};
use super::charts::{self, Chart, ChartRow};
use super::points::Point;
use crate::metrics::cliff;
use crate::metrics::latency::to_f64;
use crate::record::Measurement;
use crate::units;
use crate::validity::Mark;

/// Drives that fit into one picture.
const DRIVES_MAX: usize = 6;

/// All of them; those with nothing to show have no picture.
pub fn all(points: &[Point]) -> Vec<Chart> {
    vec![first_writes(points), fills(points), zones(points), cliffs(points), pace(points)]
}

/// Something drawn about one drive.
struct Told<'a> {
    point: &'a Point,
    name: String,
    points: Vec<(f64, f64)>,
    said: String,
}

fn of_stage<'a>(points: &'a [Point], stage: &str) -> Vec<&'a Point> {
    let own = |point: &&Point| point.stage == stage && point.mark() != Mark::Invalid;
    points.iter().filter(own).collect()
}

fn target(point: &Point) -> &str {
    point.rounds.first().map_or("", |round| round.target.as_str())
}

/// Reads and writes of a round, added: seconds since the beginning -> bytes a second.
fn rate_series(round: &Measurement) -> Vec<(f64, f64)> {
    charts::sum(&round.read.series, &round.write.series, 1.0)
}

fn finished(
    (question, reading): (&'static str, &'static str),
    svg: String,
    told: &[Told<'_>],
    left_out: Vec<String>,
) -> Chart {
    let row = |it: &Told<'_>| ChartRow {
        engine: target(it.point).to_owned(),
        ..charts::row(it.point, it.said.clone())
    };
    let rows: Vec<ChartRow> = told.iter().map(row).collect();
    let worst = |worst: Mark, mark: Mark| if mark == Mark::Valid { worst } else { mark };
    let mark = rows.iter().map(|row| row.mark).fold(Mark::Valid, worst);
    Chart { question, svg, reading, mark, rows, left_out }
}

/// What is drawn of `told`: all if they fit; the slowest, the fastest and those between them
/// otherwise.
fn fitting<'a, 'b>(told: &'a [Told<'b>]) -> (Vec<&'a Told<'b>>, Vec<String>) {
    let mut shown: Vec<&Told<'_>> = told.iter().collect();
    if shown.len() <= DRIVES_MAX {
        return (shown, Vec::new());
    }
    let mean = |it: &Told<'_>| {
        let count = to_f64(u64::try_from(it.points.len().max(1)).unwrap_or(u64::MAX));
        it.points.iter().map(|(_, rate)| rate).sum::<f64>() / count
    };
    shown.sort_by(|one, other| mean(one).total_cmp(&mean(other)));
    let (last, steps) = (shown.len() - 1, DRIVES_MAX - 1);
    let picked: Vec<&Told<'_>> = (0..=steps).map(|step| shown[last * step / steps]).collect();
    let more = format!(
        "{} more between the slowest and the fastest, which are in the table",
        shown.len() - picked.len()
    );
    (picked, vec![more])
}

fn lines(told: &[&Told<'_>], x: &str, marks: Vec<(f64, String)>) -> Lines {
    let line = |it: &&Told<'_>| Line {
        name: it.name.clone(),
        points: it.points.iter().map(|(at, rate)| (*at, rate / 1e6)).collect(),
    };
    Lines {
        lines: told.iter().map(line).collect(),
        x: x.to_owned(),
        y: "MB/s".to_owned(),
        is_log2: false,
        marks,
    }
}

/// A fill is the first or the second one of its target.
fn is_fill(point: &Point, which: &str) -> bool {
    point.workload.name == format!("fill-{which}")
}

fn first_writes(points: &[Point]) -> Chart {
    let series = ["first fill", "second fill"].map(str::to_owned).to_vec();
    let mut bars = Bars { series, groups: Vec::new(), mark: None };
    let mut told = Vec::new();
    let all = of_stage(points, "precondition");
    for first in all.iter().filter(|point| is_fill(point, "first")) {
        let second = all.iter().find(|it| is_fill(it, "second") && target(it) == target(first));
        let Some(second) = second else { continue };
        let (was, then) = (first.rate(), second.rate());
        let bar = |series, value: f64, label| Bar { series, value, label, samples: Vec::new() };
        let ratio = if was > 0.0 { then / was } else { 0.0 };
        let (one, other) = (units::bytes_per_s(was), units::bytes_per_s(then));
        told.push(Told {
            point: first,
            name: String::new(),
            points: Vec::new(),
            said: format!("first {one}, second {other}: \u{d7}{ratio:.2}"),
        });
        let group = vec![bar(0, was, one), bar(1, then, other)];
        bars.groups.push((format!("{}, \u{d7}{ratio:.2}", target(first)), group));
    }
    let left_out = match bars.groups.len().checked_sub(24).filter(|more| *more > 0) {
        Some(more) => vec![format!("{more} more targets, which are in the table")],
        None => Vec::new(),
    };
    bars.groups.truncate(24);
    let question = "Does the first write cost more than the second?";
    let reading = "Each target written whole, twice: the ratio is the second fill over the first. \
                   Above 1 the first write had to allocate (a thin volume, a sparse file); \
                   below 1 a fresh drive had free flash that it does not have any more.";
    let svg = bars.svg(question);
    finished((question, reading), svg, &told, left_out)
}

fn fills(points: &[Point]) -> Chart {
    let told: Vec<Told<'_>> = of_stage(points, "precondition")
        .into_iter()
        .filter_map(|point| {
            let mut written = 0.0;
            let points: Vec<(f64, f64)> = rate_series(point.rounds.last()?)
                .into_iter()
                .map(|(_, rate)| {
                    written += rate / 1e9;
                    (written, rate)
                })
                .collect();
            let which = point.workload.name.replace("fill-", "");
            let said = format!("{which} fill, GB: MB/s: {}", charts::shown(&points, "GB", 1e6));
            let name = format!("{} {which}", target(point));
            (points.len() > 1).then_some(Told { point, name, points, said })
        })
        .collect();
    let (picked, left_out) = fitting(&told);
    let question = "How did the rate go while the drives were filled?";
    let reading = "One sample a second of each fill, over what it had written by then.";
    let svg = lines(&picked, "GB written", Vec::new()).svg(question);
    finished((question, reading), svg, &told, left_out)
}

fn zones(points: &[Point]) -> Chart {
    let mut told: Vec<Told<'_>> = Vec::new();
    for point in of_stage(points, "zone") {
        let place =
            point.workload.name.rsplit('-').next().and_then(|text| text.parse::<u32>().ok());
        let Some(place) = place else { continue };
        let at = told.iter().position(|it| it.name == target(point)).unwrap_or_else(|| {
            let name = target(point).to_owned();
            told.push(Told { point, name, points: Vec::new(), said: String::new() });
            told.len() - 1
        });
        told[at].points.push((f64::from(place), point.rate()));
    }
    for it in &mut told {
        it.points.sort_by(|one, other| one.0.total_cmp(&other.0));
        it.said = format!("% of the width: MB/s: {}", charts::shown(&it.points, "%", 1e6));
    }
    let (picked, left_out) = fitting(&told);
    let question = "How fast is a drive at which place?";
    let reading = "Sequential reads at eleven places of the width, from the first block (outer \
                   tracks of a disk) to the last. A disk falls to about half; flash is level.";
    let svg = lines(&picked, "% of the width", Vec::new()).svg(question);
    finished((question, reading), svg, &told, left_out)
}

fn cliffs(points: &[Point]) -> Chart {
    let told: Vec<Told<'_>> = of_stage(points, "cliff")
        .into_iter()
        .filter_map(|point| {
            let points = rate_series(point.rounds.last()?);
            let said = format!("MB/s: {}", charts::shown(&points, "s", 1e6));
            (points.len() > 1).then(|| Told { point, name: target(point).to_owned(), points, said })
        })
        .collect();
    let (picked, left_out) = fitting(&told);
    let marks = picked.iter().filter_map(|it| {
        let rates: Vec<f64> = it.points.iter().map(|(_, rate)| *rate).collect();
        let found = cliff::find(&rates, 1.0)?;
        let (from, to) = (units::bytes_per_s(found.before), units::bytes_per_s(found.after));
        let after = units::bytes(found.bytes_before);
        Some((it.points.get(found.at)?.0, format!("{}: {from} to {to} after {after}", it.name)))
    });
    let marks = marks.collect();
    let question = "When is a drive's fast cache full?";
    let reading = "Sequential writing, one sample a second. \
                   A dashed line marks where the rate falls for good, \
                   with the bytes that were written by then: publish the rate behind it.";
    let svg = lines(&picked, "seconds since the beginning", marks).svg(question);
    finished((question, reading), svg, &told, left_out)
}

/// Each drive while all ran: the load whose series is longest, and of several the one with the
/// largest blocks.
fn pace(points: &[Point]) -> Chart {
    let told: Vec<Told<'_>> = of_stage(points, "raw.all")
        .into_iter()
        .filter_map(|point| {
            let points = rate_series(point.rounds.last()?);
            let load = point.workload.describe();
            let said = format!("{load}, MB/s: {}", charts::shown(&points, "s", 1e6));
            (points.len() > 1).then(|| Told { point, name: target(point).to_owned(), points, said })
        })
        .collect();
    let load = told
        .iter()
        .map(|it| (it.points.len(), it.point.workload.block_bytes, &it.point.workload.name));
    let name = load.max().map(|(_, _, name)| name.clone()).unwrap_or_default();
    let (own, others): (Vec<_>, Vec<_>) =
        told.into_iter().partition(|it| it.point.workload.name == name);
    let (picked, left_out) = fitting(&own);
    let at_once = own.len() > 1;
    let question = "Do all drives keep the same pace?";
    let reading = "Every drive while all run, one sample a second: the load with the longest \
                   series. An array is as fast as the slowest of them at every moment.";
    let mut chart = lines(&picked, "seconds since the beginning", Vec::new());
    chart.y =
        format!("MB/s, {}", own.first().map_or(String::new(), |it| it.point.workload.describe()));
    let svg = if at_once { chart.svg(question) } else { String::new() };
    let rest: Vec<Told<'_>> = own.into_iter().chain(others).collect();
    finished((question, reading), svg, &rest, left_out)
}
