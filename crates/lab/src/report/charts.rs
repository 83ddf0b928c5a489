//! Which charts a report has, and the figures behind each; `templates/charts.toml` says what each
//! asks and how it is read.
//!
//! What must stay true: an INVALID figure is drawn nowhere and named under the chart it is missing
//! from; under each chart stand its figures with their marks and the lines of the forensic log with
//! their commands.

use super::chart::{Bar, Bars, Line, Lines};
use super::findings::engines;
use super::points::{Point, of_arrays};
use super::{media, waterfall};
use crate::metrics::latency::to_f64;
use crate::order::one_of;
use crate::record::{Measurement, RateUnit};
use crate::units;
use crate::validity::Mark;
use itertools::Itertools;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What a chart asks, and how it is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Words {
    pub question: String,
    pub reading: String,
}

static WORDS: LazyLock<BTreeMap<String, Words>> = LazyLock::new(|| {
    toml::from_str(include_str!("../../templates/charts.toml")).unwrap_or_default()
});

#[derive(Clone, Debug)]
pub struct Chart {
    pub words: Words,
    /// The picture; empty if there is nothing to draw.
    pub svg: String,
    pub mark: Mark,
    /// What is drawn, as a table.
    pub rows: Vec<ChartRow>,
    /// What is not drawn, and why.
    pub left_out: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct ChartRow {
    pub case: String,
    pub engine: String,
    /// What is drawn, with its unit.
    pub value: String,
    pub mark: Mark,
    pub commands: String,
    /// The first measurement behind it.
    pub first: String,
}

/// Samples of a series that are printed in its table.
const SAMPLES_SHOWN: usize = 40;
const LINES_MAX: usize = 6;

/// All charts that have something to show.
pub fn all(points: &[Point]) -> Vec<Chart> {
    let mut all = vec![
        rates(points, "bytes", RateUnit::BytesPerS),
        rates(points, "ios", RateUnit::Iops),
        efficiencies(points),
        waterfall::chart(points),
        latencies(points),
        scalability(points, "more-bytes", RateUnit::BytesPerS),
        scalability(points, "more-ios", RateUnit::Iops),
        over_time(points, "rate-time", "MB/s", |it| rates_of(it, 1e6)),
        over_time(points, "latency-time", "mean latency, us", |it| {
            waited(&it.read.latency_series, &it.write.latency_series)
        }),
    ];
    all.extend(media::all(points));
    all.into_iter().filter(|chart| !chart.svg.is_empty()).collect()
}

/// Lines of the forensic log that a point's commands stand in.
pub fn lines_of(point: &Point) -> String {
    let lines: Vec<u64> = point.rounds.iter().filter_map(|round| round.evidence).collect();
    match lines.as_slice() {
        [] => "none".to_owned(),
        [line] => format!("evidence.jsonl line {line}"),
        lines => format!("evidence.jsonl lines {}", lines.iter().join(", ")),
    }
}

pub(super) fn drawn(points: &[Point]) -> impl Iterator<Item = &Point> {
    of_arrays(points).filter(|point| point.mark() != Mark::Invalid)
}

/// The figure `value`, with the worst mark and all commands of what is behind it.
pub(super) fn row(behind: &[&Point], value: String) -> ChartRow {
    let one = behind.first();
    ChartRow {
        case: one.map(|it| it.case()).unwrap_or_default(),
        engine: one.map(|it| it.engine.clone()).unwrap_or_default(),
        value,
        mark: behind.iter().map(|it| it.mark()).max().unwrap_or_default(),
        commands: behind.iter().map(|it| lines_of(it)).join("; "),
        first: one.map(|it| first_of(it)).unwrap_or_default(),
    }
}

/// The first measurement of a point, by its id.
pub fn first_of(point: &Point) -> String {
    point.rounds.first().map_or_else(String::new, |round| round.id.clone())
}

/// What a chart is called in the table of words.
fn words(name: &str) -> Words {
    WORDS.get(name).cloned().unwrap_or_default()
}

impl Chart {
    /// Of what `draw` makes of the question, with the figures behind it.
    pub(super) fn new(name: &str, draw: impl FnOnce(&str) -> String, rows: Vec<ChartRow>) -> Chart {
        let words = words(name);
        let mark = rows.iter().map(|row| row.mark).max().unwrap_or_default();
        Chart { svg: draw(&words.question), words, mark, rows, left_out: Vec::new() }
    }

    /// The same, with the INVALID figures that would belong to it.
    pub(super) fn without(mut self, points: &[Point], belongs: impl Fn(&Point) -> bool) -> Chart {
        let invalid = of_arrays(points).filter(|it| it.mark() == Mark::Invalid && belongs(it));
        let named = invalid.map(|it| format!("{} ({}): INVALID", it.case(), it.engine));
        self.left_out.extend(named);
        self
    }
}

/// Lines in the making, each with the figures behind it.
#[derive(Default)]
pub(super) struct Curves {
    pub(super) lines: Vec<Line>,
    pub(super) rows: Vec<ChartRow>,
}

impl Curves {
    /// A place on the line called `name`.
    pub(super) fn add(&mut self, name: &str, at: (f64, f64)) {
        let none = || Line { name: name.to_owned(), points: Vec::new() };
        one_of(&mut self.lines, |line| line.name == name, none).points.push(at);
    }

    /// The chart, on the axes of `picture`.
    pub(super) fn chart(mut self, name: &str, picture: Lines) -> Chart {
        let lines = self.lines.iter_mut();
        lines.for_each(|it| it.points.sort_by(|one, other| one.0.total_cmp(&other.0)));
        let picture = Lines { lines: self.lines, ..picture };
        Chart::new(name, |question| picture.svg(question), self.rows)
    }
}

/// Bars of what `height` gives for each array point, one group for each case.
fn grouped(points: &[Point], height: impl Fn(&Point) -> Option<Bar>) -> (Bars, Vec<ChartRow>) {
    let series: Vec<String> = engines(points).into_iter().map(str::to_owned).collect();
    let mut bars = Bars { series, ..Bars::default() };
    let mut rows = Vec::new();
    for point in drawn(points) {
        let Some(mut bar) = height(point) else { continue };
        rows.push(row(&[point], bar.label.clone()));
        bar.series = bars.series.iter().position(|name| *name == point.engine).unwrap_or(0);
        bars.add(&point.case(), bar);
    }
    (bars, rows)
}

fn rates(points: &[Point], name: &str, unit: RateUnit) -> Chart {
    let (bars, rows) = grouped(points, |point| {
        let (label, samples) = (units::rate(point.rate(), unit), point.samples.clone());
        (point.unit() == unit).then(|| Bar { series: 0, value: point.rate(), label, samples })
    });
    Chart::new(name, |it| bars.svg(it), rows).without(points, |point| point.unit() == unit)
}

fn efficiencies(points: &[Point]) -> Chart {
    let (mut bars, rows) = grouped(points, |point| {
        let value = point.efficiency()?;
        let baseline = point.baseline.as_ref()?.value;
        let samples = point.samples.iter().map(|sample| sample / baseline).collect();
        Some(Bar { series: 0, value, label: units::percent(value), samples })
    });
    bars.mark = Some((1.0, "BASELINE".to_owned()));
    Chart::new("efficiency", |it| bars.svg(it), rows)
        .without(points, |point| point.baseline.is_some())
}

/// A chart has one unit: bytes and I/Os differ by thousands.
pub(super) fn axis(unit: RateUnit) -> (f64, &'static str) {
    match unit {
        RateUnit::BytesPerS => (1e6, "MB/s"),
        RateUnit::Iops => (1e3, "thousand I/Os a second"),
    }
}

fn scalability(points: &[Point], name: &str, unit: RateUnit) -> Chart {
    let (scale, y) = axis(unit);
    let is_swept = |point: &Point| point.stage.contains("sweep") && point.unit() == unit;
    let mut curves = Curves::default();
    for point in drawn(points).filter(|point| is_swept(point)) {
        let load = &point.workload;
        let line = format!("{} {} {}", point.engine, load.mix, units::block(load.block_bytes));
        curves.add(&line, (f64::from(load.jobs * load.depth), point.rate() / scale));
        curves.rows.push(row(&[point], units::rate(point.rate(), point.unit())));
    }
    let x = "I/Os in flight (jobs x depth)".to_owned();
    let picture = Lines { x, y: y.to_owned(), is_log2: true, ..Lines::default() };
    curves.chart(name, picture).without(points, is_swept)
}

fn latencies(points: &[Point]) -> Chart {
    let (bars, rows) = grouped(points, |point| {
        let p999 = point.percentile(0.999)?;
        let (value, label) = (to_f64(p999) / 1e3, units::microseconds(p999));
        Some(Bar { series: 0, value, label, samples: Vec::new() })
    });
    Chart::new("p999", |it| bars.svg(it), rows).without(points, |_| true)
}

/// Seconds and the rate of both sides, over `scale`.
fn rates_of(round: &Measurement, scale: f64) -> Vec<(f64, f64)> {
    let series = round.rate_series().into_iter();
    series.map(|(at_ms, rate)| (to_f64(at_ms) / 1e3, rate / scale)).collect()
}

/// Seconds and microseconds of reads, or of writes if nothing was read.
fn waited(read: &[(u64, f64)], write: &[(u64, f64)]) -> Vec<(f64, f64)> {
    let told = if read.is_empty() { write } else { read };
    told.iter().map(|(ms, ns)| (to_f64(*ms) / 1e3, ns / 1e3)).collect()
}

/// The first samples of a series as text, x in `unit`, y over `scale`.
fn shown(points: &[(f64, f64)], unit: &str, scale: f64) -> String {
    let sample = |(at, value): &(f64, f64)| {
        let at = if *at >= 10.0 { format!("{at:.0}") } else { units::three_digits(*at) };
        format!("{at} {unit}: {}", units::three_digits(value / scale))
    };
    let all = points.iter().take(SAMPLES_SHOWN).map(sample).join(", ");
    let more = match points.len().saturating_sub(SAMPLES_SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more in records.jsonl"),
    };
    format!("{}{more}", all)
}

/// What x is where a line goes over time.
const SECONDS: &str = "seconds since the beginning";

fn over_time(
    points: &[Point],
    name: &str,
    unit: &str,
    series: impl Fn(&Measurement) -> Vec<(f64, f64)>,
) -> Chart {
    let told = drawn(points).filter_map(|point| {
        let points = series(point.rounds.last()?);
        (points.len() > 1).then_some((point, points))
    });
    let mut curves = Curves::default();
    for (point, points) in told.take(LINES_MAX) {
        curves.rows.push(row(&[point], format!("{unit}: {}", shown(&points, "s", 1.0))));
        let name = format!("{} {}", point.engine, point.case());
        curves.lines.push(Line { name, points });
    }
    let picture = Lines { x: SECONDS.into(), y: unit.into(), ..Lines::default() };
    curves.chart(name, picture)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_chart_has_its_words() {
        assert_eq!(super::WORDS.len(), 12);
        let empty = super::WORDS.iter().find(|(_, it)| it.question.is_empty());
        assert!(empty.is_none(), "{empty:?}");
    }
}
