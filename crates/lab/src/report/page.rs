//! The HTML page: one file, style inside, pictures inside, nothing from the network.
//!
//! What must stay true: the verdict stands first; every chart has its table; every figure its mark,
//! and a way to its command line; text from outside is escaped by the template or by the charts.

use super::charts::{self, Chart};
use super::findings::{self, Headline, engines};
use super::forest::{self, Forest, Share};
use super::pictures::{Budget, data_address, still};
use super::points::{Point, cores};
use super::sections::{self, Section};
use super::tables::{self, SideBySide};
use super::text::{efficiency, percentile, title};
use crate::order::distinct;
use crate::record::ArrayCondition;
use crate::refusal::Refusal;
use crate::store::Run;
use crate::units;
use crate::units::timestamp;
use crate::validity::{Mark, Severity};
use crate::verdict::Factor;
use crate::watch::TOPOLOGY;
use askama::Template;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    style: &'static str,
    script: &'static str,
    script_hash: String,
    title: &'a str,
    when: String,
    headline: Headline,
    forests: Vec<Forest>,
    shares: Vec<Share>,
    marks: Vec<(&'static str, usize)>,
    alarms: Vec<String>,
    engine_names: Vec<(String, String)>,
    figures: Vec<Figures>,
    shared: Vec<String>,
    side_by_side: Option<SideBySide>,
    charts: Vec<Chart>,
    picture: Option<(&'static str, String)>,
    flames: Vec<(&'a str, Vec<(String, String)>)>,
    flames_left_out: usize,
    sections: Vec<Section>,
    topology: Option<String>,
    environment: &'a BTreeMap<String, String>,
    left_out: &'a BTreeMap<String, String>,
    commands: Vec<Command>,
    unread: usize,
    lab: &'a str,
}

/// A table of figures.
struct Figures {
    name: &'static str,
    is_folded: bool,
    rows: Vec<Row>,
}

struct Row {
    case: String,
    engine: String,
    rate: String,
    efficiency: String,
    derivation: String,
    cpu: String,
    cores: String,
    ns_per_io: String,
    p50: String,
    p99: String,
    p999: String,
    mark: Mark,
    notes: Vec<String>,
    limit: String,
    more: String,
    commands: String,
    first: String,
}

struct Command {
    id: String,
    argv: String,
    evidence: String,
}

/// Charts that stand open: rates, what of the BASELINE is left, and where it is lost.
const CHARTS_FIRST: usize = 4;
/// Bytes of flame graphs that one page holds; the others stay in the run directory.
const FLAME_BYTES_MAX: usize = 1_200_000;

/// All that runs in a page: it unfolds everything while it is printed, where style alone cannot.
/// The page's policy lets nothing else run.
const SCRIPT: &str = include_str!("../../assets/report.js");

/// The picture that a run directory holds beside its records, and what it is called on the page.
const PICTURE: (&str, &str) =
    ("bottleneck.svg", "The way from the drives to the processor, and its narrowest link");

/// The page of a run; pictures are looked for in `dir`.
///
/// # Errors
/// If the template cannot be filled, which is a fault of the lab.
pub fn html(run: &Run, points: &[Point], dir: &Path) -> Result<String, Refusal> {
    let (names, rivals) = (engines(points), findings::rivals(points));
    let shared = shared_notes(points);
    let mut budget = Budget::new(FLAME_BYTES_MAX);
    let flames = tables::flames(&run.records, dir, &mut budget);
    let page = Page {
        style: include_str!("../../assets/report.css"),
        script: SCRIPT,
        script_hash: script_hash(SCRIPT),
        title: title(run),
        when: timestamp(run.facts.began_unix_s),
        headline: findings::headline(points, &run.records),
        forests: rivals
            .iter()
            .skip(1)
            .filter_map(|other| forest::of(points, &rivals, other))
            .collect(),
        shares: forest::shares(points),
        marks: marks(points),
        alarms: tables::alarms(&run.records),
        engine_names: names
            .iter()
            .map(|name| (findings::short(name, &names).to_owned(), (*name).to_owned()))
            .collect(),
        figures: figures(points, &shared),
        shared: shared.clone(),
        side_by_side: tables::side_by_side(points),
        charts: charts::all(points),
        picture: picture(dir),
        flames,
        flames_left_out: budget.left_out,
        sections: sections::all(&run.records, points),
        topology: std::fs::read_to_string(dir.join(TOPOLOGY)).ok(),
        environment: &run.facts.environment,
        left_out: &run.facts.left_out,
        commands: commands(points),
        unread: run.unread.len(),
        lab: &run.facts.lab,
    };
    page.render().map_err(|error| Refusal::cannot_run("report.unwritable", error.to_string()))
}

fn marks(points: &[Point]) -> Vec<(&'static str, usize)> {
    let count = |mark| points.iter().filter(|point| point.mark() == mark).count();
    [
        ("VALID", count(Mark::Valid)),
        ("VALID-WITH-NOTES", count(Mark::ValidWithNotes)),
        ("INVALID", count(Mark::Invalid)),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .collect()
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
fn figures(points: &[Point], shared: &[String]) -> Vec<Figures> {
    let rows = |of: Vec<&Point>| of.into_iter().map(|point| row(point, shared, points)).collect();
    let (raw, own): (Vec<&Point>, Vec<&Point>) =
        by_case(points).into_iter().partition(|it| it.is_raw());
    match raw.len() > RAW_MAX && !own.is_empty() {
        true => vec![
            Figures { name: "Figures", is_folded: false, rows: rows(own) },
            Figures { name: "Figures of raw drives", is_folded: true, rows: rows(raw) },
        ],
        false => {
            let all = own.into_iter().chain(raw).collect();
            vec![Figures { name: "Figures", is_folded: false, rows: rows(all) }]
        }
    }
}

/// Notes that every figure has: said once, above the table.
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

fn row(point: &Point, shared: &[String], points: &[Point]) -> Row {
    let cpu = point.cpu.as_ref();
    let not_taken = || "not taken".to_owned();
    Row {
        case: point.case(),
        engine: findings::whose(point, points),
        rate: rate(point),
        efficiency: efficiency(point),
        derivation: point
            .baseline
            .as_ref()
            .map_or_else(String::new, |baseline| baseline.derivation.clone()),
        cpu: cpu.map_or_else(not_taken, |cpu| units::percent(cpu.mean)),
        cores: cpu.map_or_else(not_taken, |cpu| cores(&cpu.per_core)),
        ns_per_io: cpu
            .and_then(|cpu| cpu.ns_per_io)
            .map_or_else(not_taken, |ns| format!("{} us", units::three_digits(ns / 1e3))),
        p50: percentile(point, 0.5),
        p99: percentile(point, 0.99),
        p999: percentile(point, 0.999),
        mark: point.mark(),
        notes: notes(point).into_iter().filter(|note| !shared.contains(note)).collect(),
        limit: match point.condition {
            ArrayCondition::Raw => String::new(),
            // That it is not known stands once, at the top.
            _ => findings::limit(point)
                .filter(|verdict| verdict.factor != Factor::Unknown)
                .map_or_else(String::new, |verdict| verdict.sentence),
        },
        more: more(point),
        commands: charts::lines_of(point),
        first: charts::first_of(point),
    }
}

/// What has no column: p99.99, and how even the rate was.
fn more(point: &Point) -> String {
    let far = point.percentile(0.9999).map(|ns| format!("p99.99 {}", units::microseconds(ns)));
    let even = point.unevenness().map(|(share, seconds)| {
        format!("rate of a second: standard deviation {} over {seconds} s", units::percent(share))
    });
    far.into_iter().chain(even).collect::<Vec<_>>().join("; ")
}

/// A load that ended with an error in every round has no rate.
fn rate(point: &Point) -> String {
    if point.rate() > 0.0 { units::rate(point.rate(), point.unit()) } else { "failed".to_owned() }
}

/// What it shows, and its address.
fn picture(dir: &Path) -> Option<(&'static str, String)> {
    let svg = std::fs::read_to_string(dir.join(PICTURE.0)).ok()?;
    let from = svg.find("<svg")?;
    Some((PICTURE.1, data_address(&still(&svg[from..]))))
}

fn commands(points: &[Point]) -> Vec<Command> {
    let rounds = points.iter().flat_map(|point| &point.rounds);
    rounds
        .map(|round| Command {
            id: round.id.clone(),
            argv: round.argv.join(" "),
            evidence: round.evidence.map_or_else(
                || "none".to_owned(),
                |number| format!("line {number} of evidence.jsonl"),
            ),
        })
        .collect()
}

/// The place on the page of the commands of a measurement.
fn anchor(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    format!("of-{}", id.chars().map(plain).collect::<String>())
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

/// Tables that tell once more, case by case, what stands at the top, and what is the same in every
/// report.
fn is_folded(section: &Section) -> bool {
    ["compare", "production"].contains(&section.word)
}

fn mark_class(mark: &Mark) -> &'static str {
    match mark {
        Mark::Valid => "valid",
        Mark::ValidWithNotes => "notes",
        Mark::Invalid => "invalid",
    }
}

/// A mark in one letter, for where there is no room; its word stands beside it as a title.
fn mark_sign(mark: &Mark) -> &'static str {
    match mark {
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
