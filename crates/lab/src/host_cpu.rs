//! CPU time of the whole machine around a piece of work, from /proc/stat.
//!
//! What must stay true: time that was stolen or idle is not busy. These are ticks (10 ms): good for
//! seconds of work, not for less. Stacks and exact accounting are `lab cpu`'s.

use crate::metrics::latency::to_f64;
use crate::record::CpuCost;
use crate::refusal::{AtPath, Refusal};
use std::path::Path;
use std::time::Duration;

/// Ticks of a core since boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Ticks {
    busy: u64,
    stolen: u64,
    all: u64,
}

/// The machine's CPU time at one moment.
#[derive(Clone, Debug)]
pub struct HostCpu {
    cores: Vec<Ticks>,
    /// Monotonic time.
    taken: Duration,
}

impl HostCpu {
    pub fn now() -> Result<HostCpu, Refusal> {
        let path = Path::new("/proc/stat");
        let text = std::fs::read_to_string(path).at(path, "")?;
        Ok(HostCpu::parsed(&text, crate::evidence::process::monotonic()))
    }

    /// What `text` of /proc/stat said at `taken`.
    pub(crate) fn parsed(text: &str, taken: Duration) -> HostCpu {
        HostCpu { cores: parse(text), taken }
    }

    pub fn cores(&self) -> u32 {
        u32::try_from(self.cores.len()).unwrap_or(u32::MAX)
    }

    /// What was spent since then, by whomever.
    pub fn until(&self, later: &HostCpu) -> CpuCost {
        let pairs = || self.cores.iter().zip(&later.cores);
        let wall_s = later.taken.saturating_sub(self.taken).as_secs_f64();
        let share = |of: fn(&Ticks) -> u64| {
            let share = move |(before, after): (&Ticks, &Ticks)| {
                let all = after.all.saturating_sub(before.all);
                let part = of(after).saturating_sub(of(before));
                if all == 0 { 0.0 } else { to_f64(part) / to_f64(all) }
            };
            pairs().map(share).collect::<Vec<f64>>()
        };
        let per_core = share(|it| it.busy);
        CpuCost {
            cores: u32::try_from(per_core.len()).unwrap_or(u32::MAX),
            wall_s,
            busy_s: per_core.iter().sum::<f64>() * wall_s,
            stolen_s: share(|it| it.stolen).iter().sum::<f64>() * wall_s,
            per_core,
            ..CpuCost::default()
        }
    }
}

/// The lines `cpuN user nice system idle iowait irq softirq steal guest guest_nice`; guest time is
/// in user time already.
fn parse(text: &str) -> Vec<Ticks> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let core = words.next()?.strip_prefix("cpu")?;
            if core.is_empty() {
                return None;
            }
            let ticks: Vec<u64> = words.take(8).map(|word| word.parse().unwrap_or(0)).collect();
            let stolen = ticks.get(7).copied().unwrap_or(0);
            let idle = ticks.iter().skip(3).take(2).sum::<u64>() + stolen;
            let all = ticks.iter().sum::<u64>();
            Some(Ticks { busy: all - idle, stolen, all })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Ticks, parse};

    #[test]
    fn idle_waiting_and_stolen_time_is_not_busy() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 1 20 60 5 1 2 1 7 0\n\
                    cpu1 0 0 0 100 0 0 0 0 0 0\nintr 5\n";
        let idle = Ticks { busy: 0, stolen: 0, all: 100 };
        assert_eq!(parse(text), [Ticks { busy: 34, stolen: 1, all: 100 }, idle]);
        assert_eq!(parse("garbage\n\ncpu0\n"), [Ticks::default()]);
    }
}
