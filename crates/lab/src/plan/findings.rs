//! What is concluded from several points: slow members, cliffs, steady state, zones.
//!
//! What must stay true: a conclusion names the figures it rests on; too little to conclude from
//! cannot tell.

use crate::inspect::server::software::Memory;
use crate::metrics::{cliff, latency, slow_member, steady, zones as zone_curve};
use crate::record::{ArrayCondition, Check, Measurement};
use crate::rules;
use crate::source::Source;
use crate::units;
use crate::validity::Finding;
use std::path::Path;
use std::time::Duration;

/// Which of the drives measured together is slow, and what the slow ones share.
pub fn slow_members(together: &[Measurement]) -> Check {
    let members: Vec<slow_member::Member> = together
        .iter()
        .map(|measured| slow_member::Member {
            name: measured.target.clone(),
            rate: measured.rate(),
            hangs_on: hangs_on(Path::new(&measured.target)),
        })
        .collect();
    let target = together.first().map_or(String::new(), |first| {
        format!("{} drives, {}", members.len(), first.workload.name)
    });
    let rule = rules::of("drives.slow_member");
    match (members.len(), slow_member::find(&members).sentence()) {
        (0..3, _) => rule.blind(target, "fewer than three drives: none can be called slow"),
        (_, Some(slow)) => rule.fail(target, slow),
        (_, None) => {
            let rates = || members.iter().map(|member| member.rate);
            let slowest = rates().fold(f64::INFINITY, f64::min) / slow_member::median(rates());
            let share = units::percent(slowest);
            let found = "all drives show the same speed; the slowest does";
            rule.pass(target, format!("{found} {share} of the median"))
        }
    }
}

/// What a drive hangs on, nearest first: expander, port, HBA, PCIe function, NUMA node.
fn hangs_on(path: &Path) -> Vec<(String, String)> {
    use std::os::unix::fs::MetadataExt;
    let Ok(facts) = std::fs::metadata(path) else { return Vec::new() };
    let Ok(sysfs) = crate::lint::live::Sysfs::of(facts.rdev()) else { return Vec::new() };
    let mut all = slow_member::components(&sysfs.disk);
    if let Ok(node) = std::fs::read_to_string(sysfs.disk.join("device/numa_node")) {
        all.push(("NUMA node".to_owned(), node.trim().to_owned()));
    }
    all
}

/// Where a drive's sequential writing falls and stays down.
pub fn cliff_of(measured: &Measurement) -> Check {
    let series: Vec<f64> = measured.write.series.iter().map(|(_, rate)| *rate).collect();
    let seconds = series.len();
    let (rule, target) = (rules::of("drive.cliff"), &measured.target);
    match cliff::find(&series, 1.0) {
        Some(cliff) => {
            let (at, bytes) = (cliff.at, units::bytes(cliff.bytes_before));
            let [before, after] = [cliff.before, cliff.after].map(units::bytes_per_s);
            rule.fail(target, format!("falls from {before} to {after} after {at} s and {bytes}"))
        }
        None if seconds < 10 => {
            rule.blind(target, format!("{seconds} s of writing are too short to see a cliff"))
        }
        None => {
            let written = units::bytes(latency::to_f64(measured.write.bytes));
            rule.pass(target, format!("no fall in {seconds} s and {written}"))
        }
    }
}

pub fn filled(measured: &Measurement) -> Check {
    let bytes = units::bytes(latency::to_f64(measured.write.bytes));
    let rate = units::bytes_per_s(measured.write.bytes_per_s);
    let said = format!(
        "written whole twice by sequential 1 MiB writes, the second time {bytes} at {rate}"
    );
    rules::of("drive.preconditioned").pass(&measured.target, said)
}

/// A fill shorter than this says nothing about the target, seconds.
const FILL_S_MIN: f64 = 10.0;

/// What the first write of a target costs against the second: space that is allocated only then, or
/// free flash that a fresh drive has.
pub fn first_write(first: &Measurement, second: &Measurement) -> Check {
    let (was, then) = (first.write.bytes_per_s, second.write.bytes_per_s);
    let shortest = [first, second]
        .map(|fill| latency::to_f64(fill.write.bytes) / fill.write.bytes_per_s.max(1.0))
        .into_iter()
        .fold(f64::INFINITY, f64::min);
    let ratio = then / was.max(1.0);
    let said = format!(
        "first fill {}, second fill {}: \u{d7}{ratio:.2}",
        units::bytes_per_s(was),
        units::bytes_per_s(then)
    );
    let (rule, target) = (rules::of("drive.first_write"), &second.target);
    match ratio {
        _ if shortest < FILL_S_MIN => rule
            .blind(target, format!("{said}; {shortest:.1} s of writing are too short to compare")),
        ratio if ratio > 1.0 + rule.limit() => rule
            .fail(target, format!("{said}; first writes cost more: space is allocated by them"))
            .but(
                "publish figures of an area that was written before, \
                 and say what the first write costs",
            ),
        ratio if ratio < 1.0 - rule.limit() => rule
            .fail(
                target,
                format!("{said}; a fresh drive is faster than the same drive once it is full"),
            )
            .but("publish figures that were taken after the second fill"),
        _ => rule.pass(target, said),
    }
}

/// Between which sizes of the working set a cache ends, of `(bytes, rate)`, smallest first.
pub fn knee(target: &str, sizes: &[(u64, f64)], memory_bytes: Option<u64>) -> Check {
    let size = |bytes: u64| units::bytes(latency::to_f64(bytes));
    let memory = memory_bytes.map_or_else(String::new, |it| format!("; memory is {}", size(it)));
    let rule = rules::of("cache.knee");
    match (cliff::knee(sizes), sizes) {
        (Some(knee), _) => {
            let (share, fits, beyond) =
                (units::percent(knee.ratio), size(knee.fits), size(knee.beyond));
            let found = format!(
                "the rate falls to {share} between {fits} and {beyond}: up to {fits} something \
                 remembers the working set{memory}"
            );
            rule.pass(target, found).but(format!("publish figures of {beyond} and more"))
        }
        (None, [(first, _), .., (last, _)]) => {
            let is_beyond = |bytes: u64| *last >= bytes.saturating_mul(2);
            let (first, last) = (size(*first), size(*last));
            match memory_bytes.is_some_and(is_beyond) {
                true => rule.pass(target, format!("no knee from {first} to {last}{memory}")),
                false => {
                    let why = "all sizes may still be in a cache, or none";
                    rule.blind(target, format!("no knee up to {last}{memory}: {why}"))
                        .but("a size of twice the memory and more")
                }
            }
        }
        _ => rule.blind(target, "fewer than two sizes"),
    }
}

/// Whether a series of rounds reached steady state on both criteria.
pub fn steadiness(series: &str, rates: &[f64]) -> Check {
    let (rule, rounds) = (rules::of("workload.steady"), rates.len());
    match (steady::reached(rates), steady::judge(rates)) {
        (Some(round), _) => {
            rule.pass(series, format!("steady after {round} rounds (range and slope, 5 rounds)"))
        }
        (None, Some(window)) => {
            let [range, slope] = [window.range, window.excursion].map(units::percent);
            let found = format!(
                "not steady after {rounds} rounds: range {range} (20 % allowed), \
                 slope {slope} (10 % allowed)"
            );
            rule.fail(series, found)
        }
        (None, None) => rule.blind(series, format!("{rounds} rounds; five are needed")),
    }
}

/// How the rate grows with the number of drives that work at once, of `(drives, their rates
/// together)`, fewest first.
pub fn scaling(load: &str, rates: &[(usize, f64)]) -> Check {
    let rule = rules::of("drives.scale");
    match (rates.first(), rates.last()) {
        (Some((1, one)), Some((count, all))) if *count > 1 && *one > 0.0 => {
            let times = |rate: f64| format!("{:.2}", rate / one);
            let steps: Vec<String> =
                rates.iter().map(|(count, rate)| format!("{count}: {}", times(*rate))).collect();
            let expected = latency::to_f64(u64::try_from(*count).unwrap_or(u64::MAX));
            let is_enough = all / one >= expected * rule.limit();
            let said = format!(
                "{count} drives at once do {} times what one does ({})",
                times(*all),
                steps.join(", ")
            );
            rule.judge(is_enough, load, said)
        }
        _ => rule.blind(load, "fewer than two drives"),
    }
}

/// The rates over a drive's width: of `(percent of the width, measurement)`.
pub fn zones(drive: &str, points: &[(u32, f64)]) -> Check {
    let rule = rules::of("drive.zones");
    match (points.first(), points.last()) {
        (Some((from, outer)), Some((to, inner))) if points.len() > 2 && *outer > 0.0 => {
            let (fast, slow) = (units::bytes_per_s(*outer), units::bytes_per_s(*inner));
            let curve: Vec<(f64, f64)> =
                points.iter().map(|(place, rate)| (f64::from(*place), *rate)).collect();
            let mean = zone_curve::mean(&curve).map_or(String::new(), |mean| {
                format!(
                    "; expect {} of a pass over all of it, {} of what its outer edge promises",
                    units::bytes_per_s(mean),
                    units::percent(mean / outer)
                )
            });
            let said = format!(
                "{fast} at {from} % of the width, {slow} at {to} %: {}{mean}",
                units::percent(inner / outer)
            );
            rule.pass(drive, said)
        }
        _ => rule.blind(drive, "too few places were read"),
    }
}

/// F19: how long a rebuild took, of `(bytes of the member, seconds)`, and what the load beside it
/// felt against the same load on the healthy array, if that was measured.
pub fn rebuild<'a>(
    array: &str,
    (bytes, seconds): (Option<u64>, f64),
    during: Option<&Measurement>,
    mut known: impl Iterator<Item = &'a Measurement>,
) -> Check {
    let p999 = |measured: &Measurement| latency::percentile(&measured.latency_bins(), 0.999);
    let before = during.and_then(|during| {
        known.find(|measured| {
            measured.condition == ArrayCondition::Healthy
                && measured.target == during.target
                && measured.workload == during.workload
        })
    });
    let both = before.and_then(p999).filter(|ns| *ns > 0).zip(during.and_then(p999));
    let rule = rules::of("array.rebuild");
    match bytes.filter(|_| seconds > 0.0) {
        Some(bytes) => {
            let felt = both.zip(during).map_or(String::new(), |((was, is), during)| {
                let ratio = latency::to_f64(is) / latency::to_f64(was);
                let load = &during.workload.name;
                format!("; p99.9 of {load} was {ratio:.1} times that of the healthy array")
            });
            let said = format!(
                "rebuilt in {seconds:.1} s under load: {} of a member of {}{felt}",
                units::bytes_per_s(latency::to_f64(bytes) / seconds),
                units::bytes(latency::to_f64(bytes))
            );
            rule.pass(array, said)
        }
        None => rule.blind(array, "the rebuild could not be timed"),
    }
}

/// What a figure gets whose rebuild ended before it did.
pub fn rebuild_ended(seconds: f64) -> Finding {
    rules::of("F19").finding(format!(
        "the rebuild ended after {seconds:.1} s, before the measurement did: \
         not all of the figure is under rebuild"
    ))
}

/// Memory now; `None` if the kernel does not say.
pub fn memory_now() -> Option<Memory> {
    Memory::read(&Source::live(Duration::from_secs(1)))
}

/// What became of memory between the beginning of a rebuild and the end of the load beside it: what
/// `free` and `slabtop` would have shown.
pub fn memory(array: &str, before: &Memory, during: &Memory) -> Check {
    let bytes = |count: u64| units::bytes(latency::to_f64(count));
    let change = |what: &str, was: u64, is: u64| match is.checked_sub(was) {
        Some(more) => format!("{what} grew by {}", bytes(more)),
        None => format!("{what} fell by {}", bytes(was - is)),
    };
    let share = latency::to_f64(during.available) / latency::to_f64(during.total.max(1));
    let (available, percent) = (bytes(during.available), units::percent(share));
    let mut told = vec![
        format!("{available} available beside the rebuild, {percent}"),
        change("what is available", before.available, during.available),
        change("slabs that cannot be given back", before.kernel, during.kernel),
    ];
    let grown = during.slabs.iter().filter_map(|(name, is)| {
        let more = is.checked_sub(*before.slabs.get(name)?)?;
        (more > 0).then_some((more, name))
    });
    told.extend(grown.max().map(|(more, name)| format!("most of all {name} by {}", bytes(more))));
    let rule = rules::of("rebuild.memory");
    rule.judge(share >= rule.limit(), array, told.join("; "))
}
