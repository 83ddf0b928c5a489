//! The kernel's own accounts of CPU time: `/proc/stat`, `/proc/schedstat`, `/proc/PID/schedstat`.
//!
//! `/proc/stat` counts ticks and is coarse; run times of `schedstat` are exact, but those of a core
//! are added when a thread leaves it, so a thread that never leaves is missing from them. They
//! stand beside the samples, not in their place. What must stay true: a file that is not there or
//! not understood gives nothing, never zero; no input panics.

use crate::metrics::latency::to_f64;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ticks of each core: busy and all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    ticks: BTreeMap<u32, (u64, u64)>,
    run_ns: BTreeMap<u32, u64>,
}

/// What the kernel says about the same time as the samples.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct KernelAccount {
    /// Busy percent of each core by `/proc/stat`.
    pub core_percents: Vec<f64>,
    /// Busy share of the machine by `/proc/stat`, 0 to 1.
    pub stat_share: Option<f64>,
    /// Share of the machine that threads ran by `/proc/schedstat`, 0 to 1.
    pub schedstat_share: Option<f64>,
}

impl Snapshot {
    /// What the kernel says now.
    pub fn take() -> Snapshot {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Snapshot::parse(&read("/proc/stat"), &read("/proc/schedstat"))
    }

    /// From the texts of `/proc/stat` and `/proc/schedstat`.
    pub fn parse(stat: &str, schedstat: &str) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (core, numbers) in stat.lines().filter_map(core_line) {
            // user nice system idle iowait irq softirq steal; guest is inside user already.
            let all = numbers.iter().take(8).fold(0, |sum: u64, it| sum.saturating_add(*it));
            let idle =
                numbers.iter().skip(3).take(2).fold(0, |sum: u64, it| sum.saturating_add(*it));
            if numbers.len() >= 4 {
                snapshot.ticks.insert(core, (all.saturating_sub(idle), all));
            }
        }
        for (core, numbers) in schedstat.lines().filter_map(core_line) {
            if let Some(run_ns) = numbers.get(6) {
                snapshot.run_ns.insert(core, *run_ns);
            }
        }
        snapshot
    }

    /// Cores online.
    pub fn cores(&self) -> u32 {
        u32::try_from(self.ticks.len()).unwrap_or(u32::MAX)
    }

    /// What happened until `after`, `seconds` later.
    pub fn until(&self, after: &Snapshot, seconds: f64) -> KernelAccount {
        let (mut core_percents, mut busy, mut all) = (Vec::new(), 0, 0);
        for (core, (busy_after, all_after)) in &after.ticks {
            let Some((busy_before, all_before)) = self.ticks.get(core) else { continue };
            let (b, a) =
                (busy_after.saturating_sub(*busy_before), all_after.saturating_sub(*all_before));
            core_percents.push(if a > 0 { to_f64(b) / to_f64(a) * 100.0 } else { 0.0 });
            (busy, all) = (busy + b, all + a);
        }
        let ran = after
            .run_ns
            .iter()
            .filter_map(|(core, ns)| Some(ns.saturating_sub(*self.run_ns.get(core)?)));
        let ran = ran.fold(0, u64::saturating_add);
        let cores = to_f64(u64::try_from(after.run_ns.len()).unwrap_or(u64::MAX));
        let is_known = cores > 0.0 && seconds > 0.0;
        KernelAccount {
            core_percents,
            stat_share: (all > 0).then(|| to_f64(busy) / to_f64(all)),
            schedstat_share: is_known.then(|| to_f64(ran) / 1e9 / seconds / cores),
        }
    }
}

/// `cpu3 1 2 3`: the core and its numbers. The line `cpu` without a number is the sum.
fn core_line(line: &str) -> Option<(u32, Vec<u64>)> {
    let mut words = line.split_ascii_whitespace();
    let core = words.next()?.strip_prefix("cpu")?.parse().ok()?;
    Some((core, words.map_while(|word| word.parse().ok()).collect()))
}

/// CPU time of a process's main thread or of one thread so far, nanoseconds. `task` is `PID` or
/// `PID/task/TID`.
pub fn run_ns(task: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{task}/schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::Snapshot;

    #[test]
    fn busy_is_everything_but_idle_and_waiting() {
        let before = Snapshot::parse(
            "cpu  9 9 9 9\ncpu0 100 0 0 900 0 0 0 0 0 0\ncpu1 0 0 0 1000 0 0 0 0\n",
            "",
        );
        let after =
            Snapshot::parse("cpu0 150 10 20 910 10 5 5 0 50 0\ncpu1 0 0 0 1100 0 0 0 0\n", "");
        let account = before.until(&after, 1.0);
        assert_eq!(account.core_percents, [(50.0 + 10.0 + 20.0 + 10.0) / 110.0 * 100.0, 0.0]);
        assert_eq!((after.cores(), account.schedstat_share), (2, None));
    }

    #[test]
    fn run_times_of_schedstat_are_summed_over_cores() {
        let text = |ns: u64| {
            format!(
                "version 17\ncpu0 0 0 0 0 0 0 {ns} 5 9\ndomain0 MC 3 1\ncpu1 0 0 0 0 0 0 7 5 9\n"
            )
        };
        let (before, after) =
            (Snapshot::parse("", &text(0)), Snapshot::parse("", &text(1_000_000_000)));
        assert_eq!(before.until(&after, 2.0).schedstat_share, Some(0.25));
        assert_eq!(before.until(&after, 2.0).stat_share, None);
    }
}
