//! The four efficiencies: of the array, of its CPU, and of one engine against another.
//!
//! What must stay true: an efficiency compares figures of the same workload point; what cannot be
//! divided is not given.

/// F4, RAID efficiency: what the array did over its BASELINE at the same point. Same unit on both
/// sides.
pub fn raid(performance: f64, baseline: f64) -> Option<f64> {
    ratio(performance, baseline)
}

/// CPU time of an engine, with and without the load generator's own.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct CpuTime {
    /// Busy seconds of all cores.
    pub busy_s: f64,
    /// What of them the load generator costs by itself, from a run against a null engine or raw
    /// drives at the same rate.
    pub generator_s: f64,
}

impl CpuTime {
    /// What is left for the engine, seconds; never below 0.
    pub fn engine_s(self) -> f64 {
        (self.busy_s - self.generator_s).max(0.0)
    }

    /// CPU nanoseconds for each of `ios` I/Os: all of it, and the engine's share.
    pub fn ns_per_io(self, ios: u64) -> Option<(f64, f64)> {
        let ios = super::latency::to_f64(ios);
        Some((ratio(self.busy_s * 1e9, ios)?, ratio(self.engine_s() * 1e9, ios)?))
    }

    /// CPU nanoseconds for each MiB of `bytes`: all of it, and the engine's share.
    pub fn ns_per_mib(self, bytes: u64) -> Option<(f64, f64)> {
        let mib = super::latency::to_f64(bytes) / f64::from(1 << 20);
        Some((ratio(self.busy_s * 1e9, mib)?, ratio(self.engine_s() * 1e9, mib)?))
    }
}

/// F5, CPU efficiency: performance for each busy core.
pub fn cpu(performance: f64, busy_s: f64, wall_s: f64) -> Option<f64> {
    ratio(performance, ratio(busy_s, wall_s)?)
}

/// Relative CPU efficiency of engine 1 against engine 2: above 1, engine 1 does more with a core.
pub fn relative_cpu(one: f64, other: f64) -> Option<f64> {
    ratio(one, other)
}

/// Relative latency efficiency of engine 1 against engine 2 at p99.9 of the same point: above 1,
/// engine 1 answers sooner.
pub fn relative_latency(p999_one_ns: u64, p999_other_ns: u64) -> Option<f64> {
    ratio(super::latency::to_f64(p999_other_ns), super::latency::to_f64(p999_one_ns))
}

/// Item 2 of the checklist: fio's own system time falls although the load rises, so it cannot be
/// the engine's cost. Each point is (I/Os a second, system share in percent).
pub fn client_time_is_inverted(lighter: (f64, f64), heavier: (f64, f64)) -> bool {
    heavier.0 > lighter.0 && heavier.1 < lighter.1
}

fn ratio(above: f64, below: f64) -> Option<f64> {
    (below > 0.0 && above.is_finite() && below.is_finite()).then(|| above / below)
}

#[cfg(test)]
mod tests {
    use super::{CpuTime, client_time_is_inverted, cpu, raid, relative_latency};

    #[test]
    fn nothing_is_divided_by_nothing() {
        assert_eq!(raid(1.0, 0.0), None);
        assert_eq!(cpu(1.0, 0.0, 1.0), None);
        assert_eq!(relative_latency(0, 5), None);
    }

    /// Seed 000: 11.93 M IOPS with 17.7 % system time against 8.94 M with 30.9 %.
    #[test]
    fn the_seeds_pair_of_client_times_is_flagged() {
        assert!(client_time_is_inverted((8.94e6, 30.9), (11.93e6, 17.7)));
        assert!(!client_time_is_inverted((8.94e6, 14.4), (11.93e6, 17.7)));
    }

    #[test]
    fn the_load_generators_own_cost_is_taken_off_and_both_are_shown() {
        let time = CpuTime { busy_s: 3.0, generator_s: 1.0 };
        let (all, engine) = time.ns_per_io(1_000_000).expect("I/Os");
        assert!((all - 3000.0).abs() < 1e-9 && (engine - 2000.0).abs() < 1e-9);
        assert_eq!(time.ns_per_io(0), None);
        let (all, _) = time.ns_per_mib(1 << 30).expect("bytes");
        assert!((all - 3e9 / 1024.0).abs() < 1e-6);
    }

    #[test]
    fn cpu_efficiency_is_performance_over_busy_cores() {
        assert_eq!(cpu(10e9, 20.0, 10.0), Some(5e9));
        assert_eq!(relative_latency(1000, 2500), Some(2.5));
    }
}
