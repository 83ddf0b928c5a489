//! The sentence on top: how the engines compare, what limits, what to do next, and whether the
//! figures may be used.
//!
//! What must stay true: only figures that were taken in turns and whose mark allows it are
//! compared; losses are told like gains.

use super::points::{Point, in_turns, of_arrays};
use crate::metrics::baseline::ratio;
use crate::metrics::latency::to_f64;
use crate::metrics::pairs::{self, Comparison, Decision};
use crate::order::distinct;
use crate::record::{Check, Record};
use crate::units;
use crate::validity::{Finding, Mark, Outcome, Severity};
use crate::verdict::{self, Evidence, Factor, Verdict};
use itertools::Itertools;

/// Two engines at the same workload point, in turns.
#[derive(Clone, Debug)]
pub struct Duel<'a> {
    pub one: &'a Point,
    pub other: &'a Point,
    /// First engine over second; `None` with fewer than six rounds of each.
    pub rate: Option<Comparison>,
    /// First engine's rate for each busy core over the second's.
    pub relative_cpu: Option<f64>,
    pub relative_latency: Option<f64>,
    pub is_usable: bool,
}

/// What the page says first.
#[derive(Clone, Debug)]
pub struct Headline {
    pub sentence: String,
    pub limit: Option<LimitedPoint>,
    pub figures: usize,
    pub invalid: usize,
}

#[derive(Clone, Debug)]
pub struct LimitedPoint {
    pub of: String,
    pub verdict: Verdict,
}

pub fn engines(points: &[Point]) -> Vec<&str> {
    distinct(of_arrays(points).map(|point| point.engine.as_str()))
}

pub fn rivals(points: &[Point]) -> Vec<&str> {
    distinct(in_turns(points).map(|point| point.engine.as_str()))
}

/// The first engine against `other`, at every point that both took turns at.
pub fn duels<'a>(points: &'a [Point], other: &str) -> Vec<Duel<'a>> {
    let names = rivals(points);
    let Some(first) = names.first() else { return Vec::new() };
    let of = |engine: &str| {
        let engine = engine.to_owned();
        in_turns(points).filter(move |point| point.engine == engine)
    };
    let alike = |one: &Point| {
        of(other).find(|it| (&it.workload, it.condition) == (&one.workload, one.condition))
    };
    of(first).filter_map(|one| Some(duel(one, alike(one)?))).collect()
}

fn duel<'a>(one: &'a Point, other: &'a Point) -> Duel<'a> {
    let both = |fraction| Some((one.percentile(fraction)?, other.percentile(fraction)?));
    Duel {
        one,
        other,
        rate: pairs::compare(&one.samples, &other.samples),
        relative_cpu: one
            .cpu_efficiency()
            .zip(other.cpu_efficiency())
            .and_then(|(one, other)| ratio(one, other)),
        relative_latency: both(0.999).and_then(|(one, other)| ratio(to_f64(other), to_f64(one))),
        is_usable: one.mark() != Mark::Invalid && other.mark() != Mark::Invalid,
    }
}

/// A line for each case of the first engine against each other one: both rates, and their ratio
/// with its interval.
pub fn cases(points: &[Point]) -> Vec<String> {
    let names = rivals(points);
    let rate_of = |point: &Point| {
        let rate = units::rate(point.rate(), point.unit());
        format!("{} {rate}", short(&point.engine, &names))
    };
    let line = |duel: Duel<'_>| {
        let told = match duel.rate {
            _ if !duel.is_usable => duel.not_compared(&names),
            None => format!("not compared: {}", pairs::TOO_FEW),
            Some(it) => format!(
                "{:.2} times ({:.2} to {:.2}): {}",
                it.ratio,
                it.low,
                it.high,
                it.decision().word()
            ),
        };
        format!("{}: {}, {}: {told}", duel.one.case(), rate_of(duel.one), rate_of(duel.other))
    };
    names.iter().skip(1).flat_map(|other| duels(points, other)).map(line).collect()
}

impl Duel<'_> {
    /// Why the two are not compared: one that answered with an error failed it. `names` are those
    /// of all engines.
    pub fn not_compared(&self, names: &[&str]) -> String {
        let fails = |point: &&&Point| {
            let is_error = |it: &Finding| it.rule == "L28" && it.severity == Severity::Error;
            point.rate() <= 0.0 && point.findings.iter().any(is_error)
        };
        let failed = [&self.one, &self.other];
        let failed: Vec<&str> =
            failed.into_iter().filter(fails).map(|it| short(&it.engine, names)).collect();
        match failed.as_slice() {
            [] => "not compared: a side is INVALID".to_owned(),
            [one] => format!("{one} fails this: it answered with errors"),
            both => format!("{} fail this: they answered with errors", both.join(" and ")),
        }
    }
}

pub fn limit(point: &Point) -> Option<Verdict> {
    let last = point.rounds.last()?;
    let evidence = Evidence {
        baseline: point.baseline.as_ref().map(|baseline| baseline.value),
        figure: point.rate(),
        link: point.link.as_ref().map(|(name, share)| (name.as_str(), *share)),
        busiest: point.busiest.as_deref(),
    };
    let mut middle = last.clone();
    if let (Some(cost), Some(cpu)) = (&mut middle.cpu, &point.cpu) {
        cost.per_core.clone_from(&cpu.per_core);
    }
    Some(verdict::judge(&middle, &evidence))
}

pub fn headline(points: &[Point], records: &[Record]) -> Headline {
    let invalid = points.iter().filter(|point| point.mark() == Mark::Invalid).count();
    let (rivals, names) = (rivals(points), engines(points));
    let compared = match (rivals.as_slice(), names.as_slice()) {
        ([one, others @ ..], _) if !others.is_empty() => others
            .iter()
            .map(|other| {
                let names = (short(one, &rivals), short(other, &rivals));
                against(names, &duels(points, other))
            })
            .join(" "),
        (_, []) if points.is_empty() => "Nothing was measured.".to_owned(),
        (_, []) => raw_only(records),
        (_, [_]) => alone(points, &names),
        _ => {
            let all: Vec<String> = names.iter().map(|it| short(it, &names).to_owned()).collect();
            let apart = "were not measured in turns: no verdict between them";
            format!("{} {apart}. {}", listed(&all), alone(points, &names))
        }
    };
    let arrays = telling(records, &["arrays.apart"]);
    let sentence = match arrays.first() {
        Some(arrays) => format!("{compared} {arrays}."),
        None => compared,
    };
    Headline { sentence, limit: weakest(points), figures: points.len(), invalid }
}

/// What raw drives alone showed: what failed first, then what was found out about them.
fn raw_only(records: &[Record]) -> String {
    const TELLING: [&str; 5] =
        ["drives.slow_member", "drives.scale", "drive.cliff", "drive.first_write", "drive.zones"];
    let told = telling(records, &TELLING);
    match told.is_empty() {
        true => "Raw drives only: no array was measured, and nothing was concluded about them."
            .to_owned(),
        false => format!("Raw drives only. {}.", told[..told.len().min(2)].join(". ")),
    }
}

fn telling(records: &[Record], names: &[&str]) -> Vec<String> {
    let checks = records.iter().filter_map(Record::check);
    let told = checks.filter(|it| it.outcome != Outcome::CannotTell);
    let mut checks: Vec<&Check> = told.filter(|it| names.contains(&it.name.as_str())).collect();
    checks.sort_by_key(|check| check.outcome != Outcome::Fail);
    checks.iter().map(|check| format!("{}: {}", check.target, check.found)).collect()
}

/// How little any array reaches of its BASELINE.
fn alone(points: &[Point], names: &[&str]) -> String {
    let usable = of_arrays(points).filter(|point| point.mark() != Mark::Invalid);
    let worst = usable
        .filter_map(|point| Some((point, point.efficiency()?)))
        .min_by(|one, other| one.1.total_cmp(&other.1));
    match worst {
        Some((point, share)) => format!(
            "{} reaches {:.0} % of what its drives allow where it is weakest: {}.",
            short(&point.engine, names),
            share * 100.0,
            point.case()
        ),
        None => "There is no BASELINE of the drives to hold a figure against.".to_owned(),
    }
}

/// An engine's name without version and tunables, if no other engine of the run has it.
pub fn short<'a>(label: &'a str, all: &[&str]) -> &'a str {
    let first = |label: &'a str| label.split(' ').next().unwrap_or(label);
    let own = first(label);
    let alike = all.iter().filter(|other| other.split(' ').next() == Some(own)).count();
    if alike == 1 { own } else { label }
}

pub fn whose(point: &Point, points: &[Point]) -> String {
    let own = point.target();
    if point.is_raw() {
        let label = point.engine.strip_prefix("raw").unwrap_or(&point.engine);
        let with = match point.stage.as_str() {
            "raw.all" if !own.starts_with("all ") => ", all at once".to_owned(),
            "precondition" | "zone" => format!(", {}", point.workload.name),
            _ => String::new(),
        };
        return format!("{own}{label}{with}");
    }
    short(&point.engine, &engines(points)).to_owned()
}

fn against((one, other): (&str, &str), duels: &[Duel<'_>]) -> String {
    let usable: Vec<&Duel<'_>> = duels.iter().filter(|duel| duel.is_usable).collect();
    let rates: Vec<Comparison> = usable.iter().filter_map(|duel| duel.rate).collect();
    let left_out = match duels.len() - usable.len() {
        0 => String::new(),
        1 => "; one more is INVALID and left out".to_owned(),
        count => format!("; {count} more are INVALID and left out"),
    };
    if rates.is_empty() {
        return format!(
            "{one} against {other}: too few usable rounds to compare (six decide){left_out}."
        );
    }
    let told = [
        (Decision::Faster, "faster", "than", ""),
        (Decision::Slower, "slower", "than", ""),
        (Decision::Open, "not shown to differ", "from", ""),
        (Decision::Drifted, "not decided", "against", ", because a side drifted,"),
    ];
    let all = if rates.len() == 1 { "1 case".to_owned() } else { format!("{} cases", rates.len()) };
    let mut parts: Vec<String> = Vec::new();
    for (decision, word, than, why) in told {
        let own = rates.iter().filter(|rate| rate.decision() == decision).map(|rate| rate.ratio);
        let own: Vec<f64> = own.sorted_by(f64::total_cmp).collect();
        if own.is_empty() {
            continue;
        }
        let (count, range) = (own.len(), times(decision, &own));
        parts.push(match parts.is_empty() {
            true => format!("{word} {than} {other}{why} in {count} of {all}{range}"),
            false => format!("{word}{why} in {count}{range}"),
        });
    }
    format!("{one} is {}{left_out}.", listed(&parts))
}

/// How many times the rate, of rising ratios that decide something.
fn times(decision: Decision, ratios: &[f64]) -> String {
    let [low, high] = [ratios.first(), ratios.last()]
        .map(|ratio| ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")));
    match decision {
        Decision::Open | Decision::Drifted => String::new(),
        _ if low == high => format!(" ({low} times the rate)"),
        _ => format!(" ({low} to {high} times the rate)"),
    }
}

/// `a`, `a and b`, `a, b and c`.
fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn weakest(points: &[Point]) -> Option<LimitedPoint> {
    let names = engines(points);
    let first = names.first()?;
    let usable = || {
        of_arrays(points).filter(|point| point.engine == *first && point.mark() != Mark::Invalid)
    };
    let share = |point: &&Point| point.efficiency().unwrap_or(f64::INFINITY);
    let point = usable().min_by(|one, other| share(one).total_cmp(&share(other)))?;
    let verdict = limit(point).filter(|verdict| verdict.factor != Factor::Invalid)?;
    Some(LimitedPoint { of: format!("{} ({})", point.engine, point.case()), verdict })
}
