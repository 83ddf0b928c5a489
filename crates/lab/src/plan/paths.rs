//! What the way to the drives carries: link, controller and kernel, apart from the media.
//!
//! What must stay true: it is called a ceiling only where something faster than the media answered;
//! its figures say that they are not about the media.

use super::points::{BANDWIDTH, CLIENT, IOPS, UNMAPPED};
use crate::record::{Check, Measurement};
use crate::units;
use crate::validity::{Finding, Mark, Outcome, Severity};
use std::collections::BTreeMap;

/// A way that carries less than this times what the media gave was not seen to carry more.
const CLEARLY_MORE: f64 = 1.05;

/// What every figure of the stage gets.
pub fn not_the_media() -> Finding {
    Finding {
        rule: "F14".to_owned(),
        severity: Severity::Warning,
        reason: "on purpose next to nothing is asked of the media: \
                 what the way to the drives carries, never what a drive does"
            .to_owned(),
        correction: None,
    }
}

/// All drives of one load at once.
struct Together<'a> {
    drives: usize,
    rate: f64,
    one: &'a Measurement,
}

/// Loads of `stage` in their best round.
fn together<'a>(known: &[&'a Measurement], stage: &str) -> Vec<Together<'a>> {
    let mut runs: BTreeMap<(&str, u32), Vec<&Measurement>> = BTreeMap::new();
    let usable = |it: &&&Measurement| it.stage == stage && Mark::of(&it.findings) != Mark::Invalid;
    for measured in known.iter().filter(usable) {
        runs.entry((measured.workload.name.as_str(), measured.round)).or_default().push(measured);
    }
    let mut best: BTreeMap<&str, Together<'_>> = BTreeMap::new();
    for ((name, _), run) in runs {
        let rate = run.iter().map(|measured| measured.rate()).sum();
        if best.get(name).is_none_or(|known| known.rate < rate) {
            best.insert(name, Together { drives: run.len(), rate, one: run[0] });
        }
    }
    best.into_values().collect()
}

/// A check for each load of the stage, once everything was measured.
pub fn checks<'a>(known: impl Iterator<Item = &'a Measurement>) -> Vec<Check> {
    let known: Vec<&Measurement> = known.collect();
    let raw = together(&known, "raw.all");
    together(&known, "path").iter().map(|way| check(way, &raw)).collect()
}

fn check(way: &Together<'_>, raw: &[Together<'_>]) -> Check {
    let (name, unit) = (way.one.workload.name.as_str(), way.one.workload.unit());
    let rate = |value: f64| units::rate(value, unit);
    let media = raw
        .iter()
        .filter(|raw| raw.drives == way.drives && raw.one.workload.unit() == unit)
        .filter(|raw| raw.one.workload.mix.trim_start_matches("rand") == "read")
        .max_by(|one, other| one.rate.total_cmp(&other.rate));
    let is = |load: &str| name.starts_with(load);
    let how = match () {
        () if is(BANDWIDTH) => "reads of the same megabyte",
        () if is(IOPS) => "reads of the same 64 KiB",
        () if is(UNMAPPED) => "reads of what was purged and not written since",
        () => "I/Os that end in the load generator",
    };
    let (outcome, found) = match media {
        _ if is(CLIENT) => (
            Outcome::Pass,
            format!("one job of the load generator asks for {} at most ({how})", rate(way.rate)),
        ),
        None => (
            Outcome::CannotTell,
            format!("{how}: {}; no raw.all to hold it against", rate(way.rate)),
        ),
        Some(media) if way.rate > media.rate * CLEARLY_MORE => (
            Outcome::Pass,
            format!(
                "the way to {} drives carries {} ({how}); their media gave {} at once ({}), \
                 {} of it",
                way.drives,
                rate(way.rate),
                rate(media.rate),
                media.one.workload.name,
                units::percent(media.rate / way.rate)
            ),
        ),
        Some(media) => (
            Outcome::CannotTell,
            format!(
                "{how} gave {}, the media {} ({}): no cache of the drives answered faster, \
                 or the way itself is full; its ceiling is not known",
                rate(way.rate),
                rate(media.rate),
                media.one.workload.name
            ),
        ),
    };
    let target = match is(CLIENT) {
        true => format!("the load generator, {name}"),
        false => format!("{} drives, {name}", way.drives),
    };
    Check { name: "path.ceiling".to_owned(), target, outcome, found, next: None }
}
