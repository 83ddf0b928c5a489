//! What each raw drive and each array did alone, held against what it did while all others
//! worked, and raw drives against what their makers state.
//!
//! What must stay true: that drives disturb each other is said only where no link between them and
//! memory was full and where they were not all slowed alike; that arrays leave each other alone is
//! said only of the same load and of every array; a model that nobody knows, a drive without one,
//! and an array without a usable figure of its own, cannot tell.

use crate::inspect::models::{Entry, Library};
use crate::lint::live::Sysfs;
use crate::metrics::bandwidth::Rate;
use crate::metrics::slow_member::median;
use crate::record::{Check, CpuCost, Measurement};
use crate::rules;
use crate::units;
use crate::validity::Mark;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Of its slower edge a spinning drive reaches at least this.
const OF_EDGE: f64 = 0.9;
/// A link this full explains what is missing.
const FULL: f64 = 0.8;
/// Drives within this of each other were slowed alike.
const ALIKE: f64 = 0.03;
/// In flight, at which makers state random I/Os.
const STATED_DEPTH: u32 = 32;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    pub is_spinning: Option<bool>,
    /// Its model and its size in bytes, if it has one.
    pub model: Option<(String, u64)>,
}

impl Facts {
    pub fn of(path: &Path) -> Facts {
        use std::os::unix::fs::MetadataExt;
        let sysfs = fs::metadata(path).ok().and_then(|facts| Sysfs::of(facts.rdev()).ok());
        let Some(sysfs) = sysfs else { return Facts::default() };
        let text = |file: &str| fs::read_to_string(sysfs.disk.join(file)).ok();
        let word = |file: &str| text(file).map(|it| it.trim().to_owned());
        let vendor = word("device/vendor").filter(|it| it != "ATA" && !it.starts_with("0x"));
        let sectors = word("size").and_then(|it| it.parse::<u64>().ok());
        let model = word("device/model").filter(|it| !it.is_empty()).map(|model| match vendor {
            Some(vendor) if !vendor.is_empty() => format!("{vendor} {model}"),
            _ => model,
        });
        Facts {
            is_spinning: word("queue/rotational").map(|it| it == "1"),
            model: model.zip(sectors.map(|it| it.saturating_mul(512))),
        }
    }
}

/// What `known` shows of drives and arrays alone; `models` is what their makers state.
pub fn checks<'a>(
    known: impl Iterator<Item = &'a Measurement>,
    facts: impl Fn(&str) -> Facts,
    models: &Library,
) -> Vec<Check> {
    let usable = |it: &&Measurement| Mark::of(&it.findings) != Mark::Invalid;
    let known: Vec<&Measurement> = known.filter(usable).collect();
    let of = |stage: &str| -> Vec<&'a Measurement> {
        known.iter().filter(|it| it.stage == stage).copied().collect()
    };
    let (alone, together) = (of("raw.each"), of("raw.all"));
    let facts: BTreeMap<&str, Facts> =
        alone.iter().map(|it| (it.target.as_str(), facts(&it.target))).collect();
    let spins = |it: &&Measurement| {
        facts.get(it.target.as_str()).is_some_and(|it| it.is_spinning == Some(true))
    };
    let mut checks = as_stated(&alone, &facts, models);
    checks.extend(by_load(&alone, &together, spins, vibration));
    checks.extend(by_load(&of("array.sweep"), &of("arrays.all"), |_| true, influence));
    checks
}

/// What `judge` says of each load of `together` on targets that are meant: of its figures alone and
/// together.
fn by_load(
    alone: &[&Measurement],
    together: &[&Measurement],
    is_meant: impl Fn(&&Measurement) -> bool,
    judge: fn(&str, &[&Measurement], &[&Measurement]) -> Option<Check>,
) -> Vec<Check> {
    let loads: BTreeSet<&str> =
        together.iter().filter(|it| is_meant(it)).map(|it| it.workload.name.as_str()).collect();
    let judged = loads.into_iter().filter_map(|load| {
        let of = |it: &&&Measurement| it.workload.name == load && is_meant(it);
        let own: Vec<&Measurement> = alone.iter().filter(of).copied().collect();
        let all: Vec<&Measurement> = together.iter().filter(of).copied().collect();
        judge(load, &own, &all)
    });
    judged.collect()
}

/// The middle of a drive's rounds.
fn rates(of: &[&Measurement]) -> BTreeMap<String, f64> {
    let mut rounds: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for one in of {
        rounds.entry(one.target.clone()).or_default().push(one.rate());
    }
    rounds.into_iter().map(|(name, rates)| (name, median(rates.into_iter()))).collect()
}

/// What part of its own rate each keeps while the others work, the least first; without those that
/// were measured only one way.
fn kept(alone: &[&Measurement], together: &[&Measurement]) -> Vec<(String, f64)> {
    let own = rates(alone);
    let of_own = |(name, rate): (String, f64)| {
        let own = own.get(&name).copied().filter(|own| *own > 0.0)?;
        Some((name, rate / own))
    };
    let mut shares: Vec<(String, f64)> = rates(together).into_iter().filter_map(of_own).collect();
    shares.sort_by(|one, other| one.1.total_cmp(&other.1));
    shares
}

/// The fullest link meanwhile, and how full it was.
fn fullest(together: &[&Measurement]) -> Option<(String, f64)> {
    let links = together.iter().filter_map(|it| it.path.as_ref()?.fullest());
    let fullest = links.max_by(|one, other| one.1.total_cmp(&other.1));
    fullest.map(|(link, share)| (link.name.clone(), share))
}

/// Whether spinning drives slow down when their neighbours work, though their way has room:
/// vibration. None without a drive that was measured both ways.
fn vibration(load: &str, alone: &[&Measurement], together: &[&Measurement]) -> Option<Check> {
    let shares = kept(alone, together);
    let (least, most) = (shares.first()?.1, shares.last()?.1);
    let middle = median(shares.iter().map(|it| it.1));
    let (count, rule) = (shares.len(), rules::of("drives.vibration"));
    let is_alike = most - least <= ALIKE;
    let [least, most, middle] = [least, most, middle].map(units::percent);
    let said = format!(
        "{count} drives together do {least} to {most} of what each does alone, {middle} in the \
         middle"
    );
    let slow = shares.iter().filter(|it| it.1 < rule.limit()).map(|it| it.0.as_str());
    let slow: Vec<&str> = slow.collect();
    let full = fullest(together);
    let is_full = full.as_ref().is_some_and(|(_, share)| *share >= FULL);
    Some(match full.map(|(link, share)| (link, units::percent(share))) {
        _ if count < 3 => rule.blind(load, format!("{said}; too few to disturb each other")),
        _ if slow.is_empty() => rule.pass(load, said),
        Some((link, share)) if is_full => rule
            .blind(load, format!("{said}; {link} was {share} full, which explains it"))
            .but("measure fewer drives at once, on one controller after the other"),
        _ if is_alike => rule
            .blind(load, format!("{said}: all alike, which vibration is not"))
            .but("look at the load generator's CPU and at the controller's own limit"),
        None => rule
            .blind(load, format!("{said}; how full the links were is not known"))
            .but("run as root, so that links say what they carry"),
        Some((link, share)) => {
            let slow = slow.join(", ");
            let why = format!("the fullest link, {link}, was {share} full");
            rule.fail(load, format!("{said}; {why}, so they disturb each other: {slow}")).but(
                "measure with every second bay at work, then with fans slower; \
                 look at bays, screws and dampers of these drives",
            )
        }
    })
}

/// Whether arrays leave each other alone. None of fewer than two.
fn influence(load: &str, alone: &[&Measurement], together: &[&Measurement]) -> Option<Check> {
    let rule = rules::of("arrays.apart");
    let arrays: BTreeSet<&str> = together.iter().map(|it| it.target.as_str()).collect();
    let shares = kept(alone, together);
    let told: Vec<String> =
        shares.iter().map(|(name, share)| format!("{name} {}", units::percent(*share))).collect();
    let said =
        format!("{} arrays at once, each of what it does alone: {}", arrays.len(), told.join(", "));
    let is_slow = shares.first().is_some_and(|least| least.1 < rule.limit());
    Some(match arrays.len() {
        0 | 1 => return None,
        count if shares.len() < count => {
            let has = |name: &&&str| shares.iter().all(|it| it.0 != **name);
            let without: Vec<&str> = arrays.iter().filter(has).copied().collect();
            let without = without.join(", ");
            rule.blind(load, format!("no usable figure of this load alone: {without}"))
        }
        _ if is_slow => rule.fail(load, format!("{said}: {}", cause(together))),
        _ => rule.pass(load, format!("{said}: no mutual influence")),
    })
}

/// What all of them shared and used up.
fn cause(together: &[&Measurement]) -> String {
    let busy = together.iter().filter_map(|it| it.cpu.as_ref().and_then(CpuCost::share));
    let busiest = busy.fold(0.0, f64::max);
    match fullest(together).filter(|it| it.1 >= FULL) {
        Some((link, share)) => format!("{link} was {} full", units::percent(share)),
        None if busiest >= FULL => format!("all cores were {} busy", units::percent(busiest)),
        None => "they disturb each other, and neither cores nor a link were full".to_owned(),
    }
}

/// What a maker states for a load: a rate in the unit of the load, and the share of it that must be
/// reached.
fn stated(entry: &Entry, measured: &Measurement) -> Option<(f64, f64)> {
    let (load, least) = (&measured.workload, rules::of("drive.as_stated").limit());
    let rate = |rate: Option<Rate>| Some(crate::metrics::latency::to_f64(rate?.0));
    let count = |count: Option<u64>| Some(crate::metrics::latency::to_f64(count?));
    let is_deep = load.jobs.saturating_mul(load.depth) >= STATED_DEPTH;
    // Somewhere between both edges: the slower one is what must be reached.
    let edge = entry.figures.outer.map(|outer| {
        let inner = entry.figures.inner.unwrap_or(outer / 2);
        crate::metrics::latency::to_f64(inner) / crate::metrics::latency::to_f64(outer.max(1))
    });
    let part = least.min(edge.map_or(1.0, |edge| edge * OF_EDGE));
    match load.mix.as_str() {
        "read" if load.block_bytes >= 64 << 10 => Some((rate(entry.read())?, part)),
        "write" if load.block_bytes >= 64 << 10 => Some((rate(entry.write())?, part)),
        "randread" if load.block_bytes == 4_096 && is_deep => {
            Some((count(entry.figures.random_read)?, least))
        }
        "randwrite" if load.block_bytes == 4_096 && is_deep => {
            Some((count(entry.figures.random_write)?, least))
        }
        _ => None,
    }
}

/// What the makers of all drives of a run state for its load, in the unit of the load. `None` if
/// that of one of them is not known.
pub fn stated_sum(
    run: &[&Measurement],
    facts: impl Fn(&str) -> Facts,
    library: &Library,
) -> Option<f64> {
    let of_drive = |measured: &&Measurement| {
        let (model, size) = facts(&measured.target).model?;
        let Ok(entry) = library.look(&model, size) else { return None };
        Some(stated(&entry, measured)?.0)
    };
    run.iter().map(of_drive).sum::<Option<f64>>().filter(|sum| *sum > 0.0)
}

/// Each drive against what its maker states, at the load at which it falls behind most.
fn as_stated(
    alone: &[&Measurement],
    facts: &BTreeMap<&str, Facts>,
    library: &Library,
) -> Vec<Check> {
    let (mut checks, mut without_model) = (Vec::new(), 0_usize);
    let rule = rules::of("drive.as_stated");
    for (target, facts) in facts {
        let Some((model, size)) = &facts.model else {
            without_model += 1;
            continue;
        };
        let entry = match library.look(model, *size) {
            Ok(entry) => entry,
            Err(why) => {
                checks.push(rule.blind(*target, format!("{model}: {why}")));
                continue;
            }
        };
        let own = alone.iter().filter(|it| it.target == *target);
        let shares = own.filter_map(|it| {
            let (stated, part) = stated(&entry, it)?;
            Some((it.rate() / stated.max(1.0), part, stated, *it))
        });
        let worst = shares.min_by(|one, other| (one.0 / one.1).total_cmp(&(other.0 / other.1)));
        checks.push(match worst {
            None => {
                let why = "no load was measured that its maker states a figure for";
                rule.blind(*target, format!("{model}: {why}"))
                    .but("raw.each with 1 MiB sequential, or 4 KiB random at 32 in flight")
            }
            Some((share, part, stated, it)) => {
                let found = format!(
                    "{}: {} of {} stated, {}; {}",
                    it.workload.name,
                    units::rate(it.rate(), it.workload.unit()),
                    units::rate(stated, it.workload.unit()),
                    units::percent(share),
                    entry.sentence()
                );
                rule.judge(share >= part, *target, found)
            }
        });
    }
    if without_model > 0 {
        let said = "files, loop devices and a guest's disks have no model that a maker states \
                    anything about";
        checks.push(rule.blind(format!("{without_model} without a model"), said));
    }
    checks
}

#[cfg(test)]
mod tests;
