//! The report as Markdown and as CSV: `templates/report.markdown`, `templates/rounds.csv`.
//!
//! What must stay true: whatever a record says is text in Markdown: no HTML, no link, no cell of a
//! table more.

use super::findings::{Headline, engines, headline, whose};
use super::points::Point;
use super::sections::{self, Section};
use crate::metrics::latency;
use crate::record::Measurement;
use crate::store::Run;
use crate::units;
use crate::validity::Finding;
use askama::Template;
use askama::filters::Escaper;
use std::fmt;

/// Words as text of Markdown, in one line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Markdown;

impl Escaper for Markdown {
    fn write_escaped_str<W: fmt::Write>(&self, mut out: W, words: &str) -> fmt::Result {
        words.chars().try_for_each(|c| match c {
            '&' => out.write_str("&amp;"),
            '<' => out.write_str("&lt;"),
            '>' => out.write_str("&gt;"),
            '|' | '[' | ']' | '`' | '\\' => write!(out, "\\{c}"),
            c => out.write_char(if c.is_control() { ' ' } else { c }),
        })
    }
}

#[derive(Template)]
#[template(path = "report.markdown")]
struct Text<'a> {
    title: &'a str,
    headline: Headline,
    points: &'a [Point],
    noted: Vec<(&'a Point, &'a Finding)>,
    sections: Vec<Section>,
    run: &'a Run,
}

#[derive(Template)]
#[template(path = "rounds.csv", escape = "none")]
struct Rounds<'a> {
    points: &'a [Point],
}

pub fn markdown(run: &Run, points: &[Point]) -> String {
    let of_point = points.iter().map(|point| (point, &point.findings));
    let text = Text {
        title: title(run),
        headline: headline(points, &run.records),
        points,
        noted: of_point.flat_map(|(point, all)| all.iter().map(move |it| (point, it))).collect(),
        sections: sections::all(&run.records, points),
        run,
    };
    text.to_string()
}

/// One line for each round of each point; rates in plain units, latency in nanoseconds.
pub fn csv(points: &[Point]) -> String {
    Rounds { points }.to_string()
}

pub fn csv_of(section: &Section) -> String {
    let line = |cells: Vec<String>| cells.join(",") + "\n";
    let head = line(section.head.iter().map(quote).collect());
    section.rows.iter().fold(head, |out, row| out + &line(row.iter().map(quote).collect()))
}

fn quote(field: impl fmt::Display) -> String {
    let field = field.to_string();
    match field.contains([',', '"', '\n']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field,
    }
}

/// A round's percentile, nanoseconds; empty if too few I/Os lie beyond it.
fn percentile_ns(round: &Measurement, fraction: f64) -> String {
    let ns = latency::percentile(&round.latency_bins(), fraction);
    ns.map_or_else(String::new, |ns| ns.to_string())
}

/// A percentile for people, or why there is none.
pub fn percentile(point: &Point, fraction: f64) -> String {
    point.percentile(fraction).map_or_else(|| "too few I/Os".to_owned(), units::microseconds)
}

/// An efficiency with that of its worst and its best round; or why there is none.
pub fn efficiency(point: &Point) -> String {
    let Some(share) = point.efficiency() else {
        return if point.is_raw() { "is one" } else { "not measured" }.to_owned();
    };
    let spread = point.efficiencies().map_or_else(String::new, |(least, most)| {
        format!(" ({:.0} to {:.0})", least * 100.0, most * 100.0)
    });
    format!("{}{spread}", units::percent(share))
}

pub fn title(run: &Run) -> &str {
    match run.facts.question.as_str() {
        "" => "A run of the lab",
        question => question,
    }
}
