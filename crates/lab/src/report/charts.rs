//! Which charts a report has, what each draws, and the figures behind it.
//!
//! What must stay true: an INVALID figure is drawn nowhere and named under the chart it is missing
//! from; under each chart stand its figures with their marks and the lines of the forensic log with
//! their commands.

use super::chart::{Bar, Bars, Line, Lines};
use super::findings::{self, engines};
use super::media;
use super::points::Point;
use super::{sweeps, waterfall};
use crate::metrics::latency::to_f64;
use crate::record::{ArrayCondition, Measurement, RateUnit};
use crate::units;
use crate::validity::Mark;
use std::collections::BTreeMap;

/// One chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The question it answers.
    pub question: &'static str,
    /// The picture; empty if there is nothing to draw.
    pub svg: String,
    /// How to read it.
    pub reading: &'static str,
    /// The worst mark of what is drawn.
    pub mark: Mark,
    /// What is drawn, as a table.
    pub rows: Vec<ChartRow>,
    /// What is not drawn, and why.
    pub left_out: Vec<String>,
}

/// A figure behind a chart.
#[derive(Clone, Debug)]
pub struct ChartRow {
    /// Workload and condition.
    pub case: String,
    /// By whom.
    pub engine: String,
    /// What is drawn, with its unit.
    pub value: String,
    /// Its mark.
    pub mark: Mark,
    /// Where its commands stand.
    pub commands: String,
    /// The first measurement behind it.
    pub first: String,
}

/// Samples of a series that are printed in its table.
const SAMPLES_SHOWN: usize = 40;
/// Series that fit into one chart over time.
const LINES_MAX: usize = 6;

/// All charts that have something to show.
pub fn all(points: &[Point]) -> Vec<Chart> {
    let mut all = vec![
        rates(points, "How many bytes a second?", RateUnit::BytesPerS),
        rates(points, "How many I/Os a second?", RateUnit::Iops),
        efficiencies(points),
        waterfall::chart(points),
        relative(
            points,
            "Whose core does more work?",
            "Relative CPU efficiency: the first engine's rate for each busy core over the other's. \
             Right of the line the first engine does more with a core.",
            |duel| duel.relative_cpu,
        ),
        relative(
            points,
            "Who keeps the slowest of a thousand waiting less?",
            "Relative latency efficiency: the other engine's p99.9 over the first one's. \
             Right of the line the first engine answers sooner.",
            |duel| duel.relative_latency,
        ),
        latencies(points),
        scalability(points, "Does more load bring more bytes?", RateUnit::BytesPerS),
        scalability(points, "Does more load bring more I/Os?", RateUnit::Iops),
    ];
    all.push(over_time(points, "Does the rate hold over time?", "MB/s", |round| {
        sum(&round.read.series, &round.write.series, 1e6)
    }));
    all.push(over_time(points, "Does latency hold over time?", "mean latency, us", |round| {
        let (read, write) = (&round.read.latency_series, &round.write.latency_series);
        let told = if read.is_empty() { write } else { read };
        told.iter().map(|(ms, ns)| (to_f64(*ms) / 1e3, ns / 1e3)).collect()
    }));
    all.push(over_time(
        points,
        "Do the slowest of a hundred wait longer with time?",
        "p99, us",
        |round| {
            let (read, write) = (&round.read.p99_series, &round.write.p99_series);
            let told = if read.is_empty() { write } else { read };
            told.iter().map(|(ms, ns)| (to_f64(*ms) / 1e3, ns / 1e3)).collect()
        },
    ));
    all.extend(sweeps::all(points));
    all.extend(media::all(points));
    all.into_iter().filter(|chart| !chart.svg.is_empty()).collect()
}

/// Lines of the forensic log that a point's commands stand in.
pub fn lines_of(point: &Point) -> String {
    let lines: Vec<String> = point
        .rounds
        .iter()
        .filter_map(|round| round.evidence.map(|number| number.to_string()))
        .collect();
    if lines.is_empty() {
        return "none".to_owned();
    }
    format!("evidence.jsonl line{} {}", if lines.len() == 1 { "" } else { "s" }, lines.join(", "))
}

fn array_points(points: &[Point]) -> impl Iterator<Item = &Point> {
    points.iter().filter(|point| point.condition != ArrayCondition::Raw)
}

pub(super) fn drawn(points: &[Point]) -> impl Iterator<Item = &Point> {
    array_points(points).filter(|point| point.mark() != Mark::Invalid)
}

pub(super) fn row(point: &Point, value: String) -> ChartRow {
    ChartRow {
        case: point.case(),
        engine: point.engine.clone(),
        value,
        mark: point.mark(),
        commands: lines_of(point),
        first: first_of(point),
    }
}

/// The first measurement of a point, by its id.
pub fn first_of(point: &Point) -> String {
    point.rounds.first().map_or_else(String::new, |round| round.id.clone())
}

/// A chart of what is drawn in `rows`; INVALID points that `belongs` are named.
pub(super) fn chart(
    points: &[Point],
    (question, reading): (&'static str, &'static str),
    (svg, rows): (String, Vec<ChartRow>),
    belongs: impl Fn(&Point) -> bool,
) -> Chart {
    let left_out = array_points(points)
        .filter(|point| point.mark() == Mark::Invalid && belongs(point))
        .map(|point| format!("{} ({}): INVALID", point.case(), point.engine))
        .collect();
    let worst = |worst: Mark, mark: Mark| if mark == Mark::Valid { worst } else { mark };
    let mark = rows.iter().map(|row| row.mark).fold(Mark::Valid, worst);
    Chart { question, svg, reading, mark, rows, left_out }
}

/// Bars of what `height` gives for each array point, one group for each case.
fn grouped(points: &[Point], height: impl Fn(&Point) -> Option<Bar>) -> (Bars, Vec<ChartRow>) {
    let series: Vec<String> = engines(points).into_iter().map(str::to_owned).collect();
    let mut groups: Vec<(String, Vec<Bar>)> = Vec::new();
    let mut rows = Vec::new();
    for point in drawn(points) {
        let Some(mut bar) = height(point) else { continue };
        rows.push(row(point, bar.label.clone()));
        bar.series = series.iter().position(|name| *name == point.engine).unwrap_or(0);
        match groups.iter_mut().find(|(case, _)| *case == point.case()) {
            Some((_, bars)) => bars.push(bar),
            None => groups.push((point.case(), vec![bar])),
        }
    }
    (Bars { series, groups, mark: None }, rows)
}

fn rates(points: &[Point], question: &'static str, unit: RateUnit) -> Chart {
    let (bars, rows) = grouped(points, |point| {
        (point.unit() == unit).then(|| Bar {
            series: 0,
            value: point.rate(),
            label: units::rate(point.rate(), unit),
            samples: point.samples.clone(),
        })
    });
    let reading = "Longer is better. A bar is the median of its rounds, each dot one round; \
                   the axis starts at zero.";
    chart(points, (question, reading), (bars.svg(question), rows), |point| point.unit() == unit)
}

fn efficiencies(points: &[Point]) -> Chart {
    let (mut bars, rows) = grouped(points, |point| {
        let value = point.efficiency()?;
        let baseline = point.baseline.as_ref()?.value;
        let samples = point.samples.iter().map(|sample| sample / baseline).collect();
        Some(Bar { series: 0, value, label: units::percent(value), samples })
    });
    bars.mark = Some((1.0, "BASELINE".to_owned()));
    let question = "How much of what the raw drives allow is left?";
    let reading = "RAID efficiency: the rate over the BASELINE of the same mix, blocks and \
                   total depth, with the RAID penalty. Above the line the baseline was not the \
                   best the drives can do.";
    let svg = if bars.groups.is_empty() { String::new() } else { bars.svg(question) };
    chart(points, (question, reading), (svg, rows), |point| point.baseline.is_some())
}

/// Ratios of the first engine against each other one.
fn relative(
    points: &[Point],
    question: &'static str,
    reading: &'static str,
    of: impl Fn(&findings::Duel) -> Option<f64>,
) -> Chart {
    let names = engines(points);
    let series: Vec<String> =
        names.iter().skip(1).map(|other| format!("{} against {other}", names[0])).collect();
    let mut bars = Bars { series, groups: Vec::new(), mark: Some((1.0, "equal".to_owned())) };
    let mut rows = Vec::new();
    for (at, other) in names.iter().skip(1).enumerate() {
        for duel in findings::duels(points, other).iter().filter(|duel| duel.is_usable) {
            let Some(value) = of(duel) else { continue };
            let label = format!("{value:.2} times");
            let first = points.iter().find(|it| it.case() == duel.case && it.engine == names[0]);
            let second = points.iter().find(|it| it.case() == duel.case && it.engine == *other);
            if let (Some(first), Some(second)) = (first, second) {
                let commands = format!("{}; {}", lines_of(first), lines_of(second));
                let engine = bars.series[at].clone();
                let noted = [first, second].iter().any(|point| point.mark() != Mark::Valid);
                let mark = if noted { Mark::ValidWithNotes } else { Mark::Valid };
                let (case, value) = (duel.case.clone(), label.clone());
                let first = first_of(first);
                rows.push(ChartRow { case, engine, value, mark, commands, first });
            }
            let bar = Bar { series: at, value, label, samples: Vec::new() };
            match bars.groups.iter_mut().find(|(case, _)| *case == duel.case) {
                Some((_, group)) => group.push(bar),
                None => bars.groups.push((duel.case.clone(), vec![bar])),
            }
        }
    }
    let svg = if bars.groups.is_empty() { String::new() } else { bars.svg(question) };
    chart(points, (question, reading), (svg, rows), |_| names.len() > 1)
}

/// A chart has one unit: bytes and I/Os differ by thousands.
pub(super) fn axis(unit: RateUnit) -> (f64, &'static str) {
    match unit {
        RateUnit::BytesPerS => (1e6, "MB/s"),
        RateUnit::Iops => (1e3, "thousand I/Os a second"),
    }
}

fn scalability(points: &[Point], question: &'static str, unit: RateUnit) -> Chart {
    let (scale, name) = axis(unit);
    let is_swept = |point: &Point| point.stage.contains("sweep") && point.unit() == unit;
    let mut lines: Vec<Line> = Vec::new();
    let mut rows = Vec::new();
    for point in drawn(points).filter(|point| is_swept(point)) {
        let block = units::block(point.workload.block_bytes);
        let shape = format!("{} {} {block}", point.engine, point.workload.mix);
        let at = (f64::from(point.workload.jobs * point.workload.depth), point.rate() / scale);
        rows.push(row(point, units::rate(point.rate(), point.unit())));
        match lines.iter_mut().find(|line| line.name == shape) {
            Some(line) => line.points.push(at),
            None => lines.push(Line { name: shape, points: vec![at] }),
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|one, other| one.0.total_cmp(&other.0)));
    let chart_of = Lines {
        lines,
        x: "I/Os in flight (jobs x depth)".to_owned(),
        y: name.to_owned(),
        is_log2: true,
        marks: Vec::new(),
    };
    let reading = "Where the line turns flat, something is full.";
    chart(points, (question, reading), (chart_of.svg(question), rows), is_swept)
}

fn latencies(points: &[Point]) -> Chart {
    let (bars, rows) = grouped(points, |point| {
        let p999 = point.percentile(0.999)?;
        let value = to_f64(p999) / 1e3;
        Some(Bar { series: 0, value, label: units::microseconds(p999), samples: Vec::new() })
    });
    let question = "How long do the slowest of a thousand take?";
    let reading = "p99.9 completion latency; shorter is better. Histograms of all jobs and rounds \
                   were added first. Points with too few I/Os for this percentile are left out.";
    chart(points, (question, reading), (bars.svg(question), rows), |_| true)
}

/// Seconds and the sum of both sides, over `scale`.
pub(super) fn sum(read: &[(u64, f64)], write: &[(u64, f64)], scale: f64) -> Vec<(f64, f64)> {
    let mut series: BTreeMap<u64, f64> = BTreeMap::new();
    for (ms, rate) in read.iter().chain(write) {
        *series.entry(*ms).or_default() += rate / scale;
    }
    series.into_iter().map(|(ms, rate)| (to_f64(ms) / 1e3, rate)).collect()
}

/// The first samples of a series as text, x in `unit`, y over `scale`.
pub(super) fn shown(points: &[(f64, f64)], unit: &str, scale: f64) -> String {
    let sample = |(at, value): &(f64, f64)| {
        let at = if *at >= 10.0 { format!("{at:.0}") } else { units::three_digits(*at) };
        format!("{at} {unit}: {}", units::three_digits(value / scale))
    };
    let all: Vec<String> = points.iter().take(SAMPLES_SHOWN).map(sample).collect();
    let more = match points.len().saturating_sub(SAMPLES_SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more in records.jsonl"),
    };
    format!("{}{more}", all.join(", "))
}

fn over_time(
    points: &[Point],
    question: &'static str,
    unit: &str,
    series: impl Fn(&Measurement) -> Vec<(f64, f64)>,
) -> Chart {
    let told = drawn(points).filter_map(|point| {
        let points = series(point.rounds.last()?);
        (points.len() > 1).then_some((point, points))
    });
    let mut lines = Vec::new();
    let mut rows = Vec::new();
    for (point, points) in told.take(LINES_MAX) {
        rows.push(row(point, format!("{unit}: {}", shown(&points, "s", 1.0))));
        lines.push(Line { name: format!("{} {}", point.engine, point.case()), points });
    }
    let chart_of = Lines {
        lines,
        x: "seconds since the beginning".into(),
        y: unit.into(),
        ..Lines::default()
    };
    let reading = "The last round of the first six points that kept a series; one sample a second.";
    chart(points, (question, reading), (chart_of.svg(question), rows), |_| false)
}
