//! The HTML page: one file, style inside, pictures inside, nothing from the network.
//!
//! What must stay true: the verdict stands first; every chart has its table; every figure its mark,
//! and a way to its command line; text from outside is escaped by the template or by the charts.

use super::charts::{self, Chart, first_of, lines_of};
use super::findings::{self, Headline, engines, short, whose};
use super::forest::{self, Forest};
use super::pictures::{Budget, data_address, still};
use super::points::Point;
use super::sections::{self, Section};
use super::tables::{self, SideBySide};
use super::text::{efficiency, percentile, title};
use crate::order::distinct;
use crate::record::ArrayCondition;
use crate::refusal::Refusal;
use crate::store::Run;
use crate::units::{self, timestamp};
use crate::validity::{Mark, Severity};
use crate::verdict::Factor;
use askama::Template;
use itertools::Itertools;
use sha2::{Digest, Sha256};
use std::borrow::Borrow;
use std::path::Path;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    style: &'static str,
    script: &'static str,
    script_hash: String,
    title: &'a str,
    headline: Headline,
    forests: Vec<Forest>,
    marks: Vec<(Mark, usize)>,
    alarms: Vec<String>,
    engines: Vec<&'a str>,
    points: &'a [Point],
    figures: Vec<Figures<'a>>,
    shared: Vec<String>,
    side_by_side: Option<SideBySide<'a>>,
    charts: Vec<Chart>,
    picture: Option<(&'static str, String)>,
    flames: Vec<(&'a str, Vec<(String, String)>)>,
    flames_left_out: usize,
    sections: Vec<Section>,
    run: &'a Run,
}

struct Figures<'a> {
    name: &'static str,
    is_folded: bool,
    points: Vec<&'a Point>,
}

/// Charts that stand open: rates, what of the BASELINE is left, and where it is lost.
const CHARTS_FIRST: usize = 4;
/// Bytes of flame graphs that one page holds; the others stay in the run directory.
const FLAME_BYTES_MAX: usize = 1_200_000;

/// All that runs in a page: it unfolds everything while it is printed, where style alone cannot.
/// The page's policy lets nothing else run.
const SCRIPT: &str = include_str!("../../assets/report.js");

const PICTURE: (&str, &str) =
    ("bottleneck.svg", "The way from the drives to the processor, and its narrowest link");

/// The page of a run; pictures are looked for in `dir`.
///
/// # Errors
/// If the template cannot be filled, which is a fault of the lab.
pub fn html(run: &Run, points: &[Point], dir: &Path) -> Result<String, Refusal> {
    let rivals = findings::rivals(points);
    let mut budget = Budget::new(FLAME_BYTES_MAX);
    let flames = tables::flames(&run.records, dir, &mut budget);
    let against = |other| forest::of(points, &rivals, other);
    let page = Page {
        style: include_str!("../../assets/report.css"),
        script: SCRIPT,
        script_hash: script_hash(SCRIPT),
        title: title(run),
        headline: findings::headline(points, &run.records),
        forests: rivals.iter().skip(1).filter_map(|other| against(other)).collect(),
        marks: marks(points),
        alarms: tables::alarms(&run.records),
        engines: engines(points),
        points,
        figures: figures(points),
        shared: shared_notes(points),
        side_by_side: tables::side_by_side(points),
        charts: charts::all(points),
        picture: picture(dir),
        flames,
        flames_left_out: budget.left_out,
        sections: sections::all(&run.records, points),
        run,
    };
    page.render().map_err(|error| Refusal::cannot_run("report.unwritable", error.to_string()))
}

fn marks(points: &[Point]) -> Vec<(Mark, usize)> {
    let count = |mark| (mark, points.iter().filter(|point| point.mark() == mark).count());
    let all = [Mark::Valid, Mark::ValidWithNotes, Mark::Invalid].map(count);
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Points of the same case side by side, in the order in which cases first came.
fn by_case(points: &[Point]) -> Vec<&Point> {
    let mut cases = distinct(points.iter().map(Point::case));
    // Raw drives are what the others are held against: they come last.
    let is_raw = |case: &String| case.ends_with(&ArrayCondition::Raw.to_string());
    cases.sort_by_key(is_raw);
    let of_case = |case: String| points.iter().filter(move |point| point.case() == case);
    cases.into_iter().flat_map(of_case).collect()
}

/// More figures of raw drives than these are folded away: what they come to stands in cards and
/// charts.
const RAW_MAX: usize = 16;

/// The figures of arrays, and those of raw drives, which are folded away if there are many.
fn figures(points: &[Point]) -> Vec<Figures<'_>> {
    let (raw, mut own): (Vec<&Point>, Vec<&Point>) =
        by_case(points).into_iter().partition(|it| it.is_raw());
    let mut folded = None;
    match raw.len() > RAW_MAX && !own.is_empty() {
        true => folded = Some(("Figures of raw drives", true, raw)),
        false => own.extend(raw),
    }
    let all = std::iter::once(("Figures", false, own)).chain(folded);
    all.map(|(name, is_folded, points)| Figures { name, is_folded, points }).collect()
}

fn shared_notes(points: &[Point]) -> Vec<String> {
    let Some(first) = points.first().filter(|_| points.len() > 1) else { return Vec::new() };
    let is_shared = |note: &String| points.iter().all(|point| notes(point).contains(note));
    notes(first).into_iter().filter(is_shared).collect()
}

/// What rules say of a point, in one line each; what only explains is not among them.
fn notes(point: &Point) -> Vec<String> {
    point
        .findings
        .iter()
        .filter(|finding| finding.severity > Severity::Info)
        .map(|finding| format!("{}: {}", finding.rule, finding.reason))
        .collect()
}

fn own_notes(point: &Point, shared: &[String]) -> Vec<String> {
    notes(point).into_iter().filter(|note| !shared.contains(note)).collect()
}

fn when(run: &Run) -> String {
    timestamp(run.facts.began_unix_s)
}

fn rounds(points: &[Point]) -> usize {
    points.iter().map(|point| point.rounds.len()).sum()
}

/// What limits an array; that it is not known stands once, at the top.
fn limit(point: &Point) -> Option<String> {
    let known = findings::limit(point).filter(|verdict| verdict.factor != Factor::Unknown);
    known.filter(|_| !point.is_raw()).map(|verdict| verdict.sentence)
}

/// What has no column: p99.99, and how even the rate was.
fn more(point: &Point) -> String {
    let far = point.percentile(0.9999).map(|ns| format!("p99.99 {}", units::microseconds(ns)));
    let even = point.unevenness().map(|(share, seconds)| {
        format!("rate of a second: standard deviation {} over {seconds} s", units::percent(share))
    });
    far.into_iter().chain(even).join("; ")
}

/// What it shows, and its address.
fn picture(dir: &Path) -> Option<(&'static str, String)> {
    let svg = std::fs::read_to_string(dir.join(PICTURE.0)).ok()?;
    let from = svg.find("<svg")?;
    Some((PICTURE.1, data_address(&still(&svg[from..]))))
}

/// The place on the page of the commands of a measurement.
fn anchor(id: impl AsRef<str>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    format!("of-{}", id.as_ref().chars().map(plain).collect::<String>())
}

/// What a content security policy calls a script.
fn script_hash(script: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = "sha256-".to_owned();
    for three in Sha256::digest(script.as_bytes()).chunks(3) {
        let at = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..=three.len() {
            let six = (bits >> (18 - 6 * digit)) & 63;
            text.push(char::from(DIGITS[usize::try_from(six).unwrap_or(0)]));
        }
        text.push_str(&"=".repeat(3 - three.len()));
    }
    text
}

/// The class of a word for how a check came out.
fn outcome_class(word: &str) -> &'static str {
    match word {
        "FAIL" => "invalid",
        "cannot tell" => "notes",
        "pass" => "valid",
        _ => "none",
    }
}

/// Tables that come before the charts; the others stand behind them.
fn is_first(section: &Section) -> bool {
    ["drive", "bay"].contains(&section.word)
}

/// Tables that tell once more, case by case, what stands at the top.
fn is_folded(section: &Section) -> bool {
    section.word == "compare"
}

fn mark_class(mark: impl Borrow<Mark>) -> &'static str {
    match mark.borrow() {
        Mark::Valid => "valid",
        Mark::ValidWithNotes => "notes",
        Mark::Invalid => "invalid",
    }
}

/// A mark in one letter, for where there is no room; its word stands beside it as a title.
fn mark_sign(mark: impl Borrow<Mark>) -> &'static str {
    match mark.borrow() {
        Mark::Valid => "✓",
        Mark::ValidWithNotes => "!",
        Mark::Invalid => "✗",
    }
}

#[cfg(test)]
mod tests {
    use super::{anchor, script_hash};

    #[test]
    fn a_script_is_named_by_its_hash_in_base64() {
        assert_eq!(script_hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        assert_eq!(script_hash("abc"), "sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
    }

    #[test]
    fn a_measurement_has_a_place_of_its_own() {
        assert_eq!(anchor("raw.all//dev/a/rr-4k#0"), "of-raw-all--dev-a-rr-4k-0");
    }
}
