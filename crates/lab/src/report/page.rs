//! The HTML page: one file, style inside, pictures inside, nothing from the network.
//!
//! What must stay true: the verdict stands first; every chart has its table; every figure its mark, and a way to its
//! command line; text from outside is escaped by the template or by the charts.

use super::chart::{Bar, Bars, Line, Lines};
use super::findings::{self, Headline, engines};
use super::ocp::timestamp;
use super::points::{Point, cores};
use super::text::{none, percentile, title};
use crate::cpu::account::GroupAccount;
use crate::cpu::tally::CONTEXTS;
use crate::metrics::share::Share;
use crate::record::{ArrayCondition, Check, Record};
use crate::refusal::Refusal;
use crate::store::Run;
use crate::units;
use crate::validity::{Mark, Outcome};
use askama::Template;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    style: &'static str,
    title: &'a str,
    when: String,
    headline: Headline,
    marks: Vec<(&'static str, usize)>,
    rows: Vec<Row>,
    charts: Vec<Chart>,
    duels: Vec<DuelTable>,
    pictures: Vec<(String, String)>,
    accounts: Vec<CpuTable>,
    checks: Vec<CheckRow>,
    environment: &'a BTreeMap<String, String>,
    left_out: &'a BTreeMap<String, String>,
    commands: Vec<Command>,
    unread: usize,
    lab: &'a str,
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
}

struct Chart {
    question: &'static str,
    svg: String,
    reading: String,
}

struct DuelTable {
    one: String,
    other: String,
    rows: Vec<(String, String, String, String)>,
}

struct CpuTable {
    of: String,
    source: String,
    rows: Vec<[String; 5]>,
    threads: String,
}

struct CheckRow {
    word: &'static str,
    class: &'static str,
    name: String,
    target: String,
    found: String,
    next: String,
}

struct Command {
    id: String,
    argv: String,
    evidence: String,
}

/// Pictures that a run directory may hold beside its records, and what they are called on the page.
const PICTURES: [(&str, &str); 4] = [
    ("bottleneck.svg", "The way from the drives to the processor, and its narrowest link"),
    ("flame-whole.svg", "Where the processors' time went: the whole system"),
    ("flame-client.svg", "The load generator alone"),
    ("flame-group.svg", "The engine's functions alone"),
];

/// The page of a run; pictures are looked for in `dir`.
///
/// # Errors
/// If the template cannot be filled, which is a fault of the lab.
pub fn html(run: &Run, points: &[Point], dir: &Path) -> Result<String, Refusal> {
    let names = engines(points);
    let page = Page {
        style: include_str!("../../assets/report.css"),
        title: title(run),
        when: timestamp(run.facts.began_unix_s),
        headline: findings::headline(points),
        marks: marks(points),
        rows: by_case(points).into_iter().map(row).collect(),
        charts: charts(points),
        duels: names.iter().skip(1).map(|other| duel_table(points, names[0], other)).collect(),
        pictures: pictures(dir),
        accounts: run.records.iter().filter_map(cpu_table).collect(),
        checks: run.records.iter().filter_map(check_row).collect(),
        environment: &run.facts.environment,
        left_out: &run.facts.left_out,
        commands: commands(points),
        unread: run.unread.len(),
        lab: &run.facts.lab,
    };
    page.render().map_err(|error| Refusal::cannot_run("report.unwritable", error.to_string(), ""))
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
    let mut cases: Vec<String> = Vec::new();
    for point in points {
        if !cases.contains(&point.case()) {
            cases.push(point.case());
        }
    }
    let of_case = |case: String| points.iter().filter(move |point| point.case() == case);
    cases.into_iter().flat_map(of_case).collect()
}

fn row(point: &Point) -> Row {
    let cpu = point.cpu.as_ref();
    let not_taken = || "not taken".to_owned();
    Row {
        case: point.case(),
        engine: point.engine.clone(),
        rate: rate(point),
        efficiency: point.efficiency().map_or_else(|| none(point).to_owned(), units::percent),
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
        notes: point
            .findings
            .iter()
            .map(|finding| format!("{}: {}", finding.rule, finding.reason))
            .collect(),
        limit: match point.condition {
            ArrayCondition::Raw => String::new(),
            _ => findings::limit(point).map_or_else(String::new, |verdict| verdict.sentence),
        },
    }
}

/// A load that ended with an error in every round has no rate.
fn rate(point: &Point) -> String {
    if point.rate() > 0.0 { units::rate(point.rate(), point.unit()) } else { "failed".to_owned() }
}

fn charts(points: &[Point]) -> Vec<Chart> {
    let all = [
        rates(points, "How many bytes a second?", crate::record::RateUnit::BytesPerS),
        rates(points, "How many I/Os a second?", crate::record::RateUnit::Iops),
        efficiencies(points),
        scalability(points),
        latencies(points),
        over_time(points),
    ];
    all.into_iter().filter(|chart| !chart.svg.is_empty()).collect()
}

fn arrays(points: &[Point]) -> impl Iterator<Item = &Point> {
    points
        .iter()
        .filter(|point| point.condition != ArrayCondition::Raw && point.mark() != Mark::Invalid)
}

/// Bars of what `height` gives for each array point, one group for each case.
fn grouped(points: &[Point], height: impl Fn(&Point) -> Option<Bar>) -> Bars {
    let series: Vec<String> = engines(points).into_iter().map(str::to_owned).collect();
    let mut groups: Vec<(String, Vec<Bar>)> = Vec::new();
    for point in arrays(points) {
        let Some(mut bar) = height(point) else { continue };
        bar.series = series.iter().position(|name| *name == point.engine).unwrap_or(0);
        match groups.iter_mut().find(|(case, _)| *case == point.case()) {
            Some((_, bars)) => bars.push(bar),
            None => groups.push((point.case(), vec![bar])),
        }
    }
    Bars { series, groups, mark: None }
}

fn rates(points: &[Point], question: &'static str, unit: crate::record::RateUnit) -> Chart {
    let bars = grouped(points, |point| {
        (point.unit() == unit).then(|| Bar {
            series: 0,
            value: point.rate(),
            label: units::rate(point.rate(), unit),
            samples: point.samples.clone(),
        })
    });
    Chart {
        question,
        svg: bars.svg(question),
        reading: "Longer is better. A bar is the median of its rounds, each dot one round; the axis starts at zero.".to_owned(),
    }
}

fn efficiencies(points: &[Point]) -> Chart {
    let mut bars = grouped(points, |point| {
        let value = point.efficiency()?;
        let baseline = point.baseline.as_ref()?.value;
        let samples = point.samples.iter().map(|sample| sample / baseline).collect();
        Some(Bar { series: 0, value, label: units::percent(value), samples })
    });
    bars.mark = Some((1.0, "BASELINE".to_owned()));
    let question = "How much of what the raw drives allow is left?";
    Chart {
        question,
        svg: if bars.groups.is_empty() { String::new() } else { bars.svg(question) },
        reading: "RAID efficiency: the rate over the BASELINE of the same workload, jobs and depth, with the RAID penalty. Above the line the baseline was not the best the drives can do.".to_owned(),
    }
}

fn scalability(points: &[Point]) -> Chart {
    let mut lines: Vec<Line> = Vec::new();
    for point in arrays(points).filter(|point| point.stage.contains("sweep")) {
        let shape = format!(
            "{} {} {}",
            point.engine,
            point.workload.mix,
            units::block(point.workload.block_bytes)
        );
        let at = (f64::from(point.workload.jobs * point.workload.depth), point.rate());
        match lines.iter_mut().find(|line| line.name == shape) {
            Some(line) => line.points.push(at),
            None => lines.push(Line { name: shape, points: vec![at] }),
        }
    }
    let question = "Does more load bring more?";
    let chart = Lines {
        lines,
        x: "I/Os in flight (jobs x depth)".to_owned(),
        y: "rate (bytes or I/Os a second)".to_owned(),
        is_log2: true,
    };
    Chart {
        question,
        svg: chart.svg(question),
        reading: "Where the line turns flat, something is full.".to_owned(),
    }
}

fn latencies(points: &[Point]) -> Chart {
    let bars = grouped(points, |point| {
        let p999 = point.percentile(0.999)?;
        let value = crate::metrics::latency::to_f64(p999) / 1e3;
        Some(Bar { series: 0, value, label: units::microseconds(p999), samples: Vec::new() })
    });
    let question = "How long do the slowest of a thousand take?";
    Chart {
        question,
        svg: bars.svg(question),
        reading: "p99.9 completion latency; shorter is better. Histograms of all jobs and rounds were added first. Points with too few I/Os for this percentile are left out.".to_owned(),
    }
}

fn over_time(points: &[Point]) -> Chart {
    let lines: Vec<Line> = arrays(points)
        .filter_map(|point| {
            let round = point.rounds.last()?;
            let mut series: BTreeMap<u64, f64> = BTreeMap::new();
            for (ms, rate) in round.read.series.iter().chain(&round.write.series) {
                *series.entry(*ms).or_default() += rate / 1e6;
            }
            let points = series
                .iter()
                .map(|(ms, rate)| (crate::metrics::latency::to_f64(*ms) / 1e3, *rate))
                .collect();
            Some(Line { name: format!("{} {}", point.engine, point.case()), points })
        })
        .filter(|line| line.points.len() > 1)
        .take(6)
        .collect();
    let question = "Does the rate hold over time?";
    let chart = Lines {
        lines,
        x: "seconds since the beginning".to_owned(),
        y: "MB/s".to_owned(),
        is_log2: false,
    };
    Chart {
        question,
        svg: chart.svg(question),
        reading: "The last round of the first six points that kept a series.".to_owned(),
    }
}

fn duel_table(points: &[Point], one: &str, other: &str) -> DuelTable {
    let ratio = |value: Option<f64>| {
        value.map_or_else(|| "not known".to_owned(), |value| format!("{value:.2}"))
    };
    let rows = findings::duels(points, other)
        .into_iter()
        .map(|duel| {
            let rate = match (duel.is_usable, duel.rate) {
                (false, _) => "not compared: a side is INVALID".to_owned(),
                (true, None) => "fewer than three rounds".to_owned(),
                (true, Some(rate)) => rate.sentence(),
            };
            (duel.case, rate, ratio(duel.relative_cpu), ratio(duel.relative_latency))
        })
        .collect();
    DuelTable { one: one.to_owned(), other: other.to_owned(), rows }
}

fn pictures(dir: &Path) -> Vec<(String, String)> {
    let read = |(file, name): (&str, &str)| {
        let svg = std::fs::read_to_string(dir.join(file)).ok()?;
        let from = svg.find("<svg")?;
        Some((name.to_owned(), data_address(&svg[from..])))
    };
    PICTURES.into_iter().filter_map(read).collect()
}

/// A picture as an address of its own: whatever script is in it cannot reach the page.
fn data_address(svg: &str) -> String {
    let mut out = String::from("data:image/svg+xml,");
    for byte in svg.bytes() {
        match byte {
            b'A'..=b'Z'
            | b'a'..=b'z'
            | b'0'..=b'9'
            | b'-'
            | b'_'
            | b'.'
            | b'~'
            | b'/'
            | b':'
            | b'='
            | b';'
            | b' '
            | b',' => {
                out.push(char::from(byte));
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Whose CPU time it was: one row for each engine that stacks were found of.
fn cpu_table(record: &Record) -> Option<CpuTable> {
    let Record::Cpu(account) = record else { return None };
    let of_machine = |share: &Share| {
        format!("{} ± {}", units::percent(share.share), units::percent(share.error))
    };
    let row = |group: &GroupAccount| {
        let contexts: Vec<String> = group
            .contexts
            .iter()
            .map(|(context, share)| {
                let name =
                    CONTEXTS.iter().find(|(one, _)| one == context).map_or("", |(_, name)| name);
                format!("{name} {}", units::percent(share.share))
            })
            .collect();
        let name = format!("{} (functions of version {})", group.name, group.version);
        [
            name,
            of_machine(&group.share),
            of_machine(&group.useful),
            of_machine(&group.overhead),
            contexts.join(", "),
        ]
    };
    let mut rows = vec![[
        "everything but idle".to_owned(),
        of_machine(&account.busy),
        String::new(),
        String::new(),
        String::new(),
    ]];
    rows.extend(account.groups.iter().map(row));
    let threads: Vec<String> = account
        .threads
        .iter()
        .take(6)
        .map(|thread| format!("{} {:.2} cores", thread.name, thread.cores))
        .collect();
    Some(CpuTable {
        of: account.of.clone(),
        source: account.sampling.source.clone(),
        rows,
        threads: threads.join(", "),
    })
}

fn check_row(record: &Record) -> Option<CheckRow> {
    let Record::Check(Check { name, target, outcome, found, next }) = record else { return None };
    let (word, class) = match outcome {
        Outcome::Pass => ("pass", "valid"),
        Outcome::Fail => ("FAIL", "invalid"),
        Outcome::CannotTell => ("cannot tell", "notes"),
        Outcome::NotApplicable => ("not applicable", "none"),
    };
    let (name, target, found) = (name.clone(), target.clone(), found.clone());
    Some(CheckRow { word, class, name, target, found, next: next.clone().unwrap_or_default() })
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

fn mark_class(mark: &Mark) -> &'static str {
    match mark {
        Mark::Valid => "valid",
        Mark::ValidWithNotes => "notes",
        Mark::Invalid => "invalid",
    }
}
