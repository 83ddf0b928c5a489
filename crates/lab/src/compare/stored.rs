//! Two runs that were measured at different times, and whether they are of the same machine.
//!
//! What must stay true: a fact of a machine that one of them did not record is a difference, never
//! a match; it is said that they were not taken in turns; a case that only one of them
//! has is named; an invalid side takes no part; too few rounds, or a side that drifted, decide
//! nothing.

use crate::metrics::pairs::{self, Comparison};
use crate::refusal::Refusal;
use crate::report::findings;
use crate::report::points::{self, Point};
use crate::store::RunDir;
use crate::units;
use crate::validity::Mark;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Pair {
    pub case: String,
    /// The new run's rate over the old one's.
    pub ratio: f64,
    pub sentence: String,
    /// It has an interval, and neither side drifted.
    pub is_decided: bool,
    /// Even the upper end of its interval is below the limit that was asked for.
    pub is_worse: bool,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Stored {
    pub pairs: Vec<Pair>,
    /// Cases that cannot be compared, and why.
    pub left_out: Vec<String>,
}

/// Compare the run at `new` with the one at `old`; a case below `limit` of the old rate is worse.
pub fn compare(new: &Path, old: &Path, limit: f64) -> Result<Stored, Refusal> {
    let read = |path: &Path| Ok::<_, Refusal>(points::of(&RunDir::open(path)?.read()?.records));
    let (new, old) = (read(new)?, read(old)?);
    let stored = judge(&new, &old, limit);
    if stored.pairs.is_empty() {
        let said = "the two runs have no valid case in common; nothing was compared";
        return Err(
            Refusal::cannot_run("compare.nothing", said).hint("compare runs of the same plan")
        );
    }
    Ok(stored)
}

/// The same case in the old run. An engine of another version or with other settings is the same
/// if each run has only one of its name.
fn same_case<'a>(point: &Point, new: &[Point], old: &'a [Point]) -> Option<&'a Point> {
    let is_alike = |other: &&Point| {
        other.workload == point.workload
            && other.condition == point.condition
            && other.stage == point.stage
            && other.rounds[0].target == point.rounds[0].target
            && other.rounds[0].engine.name == point.rounds[0].engine.name
    };
    let alike: Vec<&Point> = old.iter().filter(is_alike).collect();
    let exactly = alike.iter().find(|other| other.engine == point.engine).copied();
    let is_only = alike.len() == 1 && new.iter().filter(is_alike).count() == 1;
    exactly.or(alike.first().copied().filter(|_| is_only))
}

impl Stored {
    pub fn counts(&self) -> (usize, usize) {
        let count = |is_it: fn(&Pair) -> bool| self.pairs.iter().filter(|it| is_it(it)).count();
        (count(|it| it.is_worse), count(|it| !it.is_decided))
    }

    /// What a script gets: 0 no case is worse, 1 a case is, 2 none is decided.
    pub fn code(&self) -> u8 {
        match self.counts() {
            (1.., _) => 1,
            (0, open) if open == self.pairs.len() => 2,
            _ => 0,
        }
    }
}

fn judge(new: &[Point], old: &[Point], limit: f64) -> Stored {
    let mut stored = Stored::default();
    if new.iter().chain(old).all(Point::is_raw) {
        return stored;
    }
    for point in new {
        let name = format!("{}, {}", findings::whose(point, new), point.case());
        let Some(other) = same_case(point, new, old) else {
            stored.left_out.push(format!("{name}: only in the new run"));
            continue;
        };
        if point.mark() == Mark::Invalid || other.mark() == Mark::Invalid {
            stored.left_out.push(format!("{name}: a side is INVALID"));
            continue;
        }
        let ratio = point.rate() / other.rate();
        let interval = pairs::compare(&point.samples, &other.samples);
        let decided = interval.filter(|interval| !interval.has_drifted());
        let is_worse = decided.is_some_and(|interval| interval.high < limit);
        let shown = interval.map_or_else(|| pairs::TOO_FEW.to_owned(), Comparison::shown);
        let rate = |point: &Point| units::rate(point.rate(), point.unit());
        let sentence = format!(
            "{} against {}: {ratio:.3} times ({shown}; not taken in turns)",
            rate(point),
            rate(other)
        );
        let is_decided = decided.is_some();
        stored.pairs.push(Pair { case: name, ratio, sentence, is_decided, is_worse });
    }
    stored
}

/// Facts that make a machine another one.
const MACHINE: [&str; 4] = ["cpu", "cores", "memory", "devices"];
/// Facts that may be what is being tested; they are said.
const SOFTWARE: [&str; 8] =
    ["kernel", "distribution", "fio", "governor", "turbo", "C-states", "SMT", "mitigations"];
/// Memory that the kernel keeps for itself differs from version to version.
const MEMORY_TOLERANCE: f64 = 0.03;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Differences {
    /// Facts of the machine: `cores: 0-1 -> 0-3`.
    pub machine: Vec<String>,
    /// Facts of its software and its settings.
    pub software: Vec<String>,
}

/// Compare the environment of an older run with that of a newer one.
pub fn differences(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Differences {
    let differing = |names: &[&str]| {
        names.iter().filter_map(|name| difference(name, old.get(*name), new.get(*name))).collect()
    };
    Differences { machine: differing(&MACHINE), software: differing(&SOFTWARE) }
}

fn difference(name: &str, old: Option<&String>, new: Option<&String>) -> Option<String> {
    match (old, new) {
        (Some(old), Some(new)) if is_same(name, old, new) => None,
        _ => {
            let shown =
                |fact: Option<&String>| fact.map_or("not recorded", String::as_str).to_owned();
            Some(format!("{name}: {} -> {}", shown(old), shown(new)))
        }
    }
}

fn is_same(name: &str, old: &str, new: &str) -> bool {
    let size = |text: &str| text.split_whitespace().next()?.parse::<f64>().ok();
    match (name, size(old), size(new)) {
        ("memory", Some(old), Some(new)) => (old - new).abs() <= old * MEMORY_TOLERANCE,
        _ => old == new,
    }
}

#[cfg(test)]
mod tests;
