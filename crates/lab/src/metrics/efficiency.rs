//! The four efficiencies: of the array, of its CPU, and of one engine against another.
//!
//! What must stay true: an efficiency compares figures of the same workload point; what cannot be
//! divided is not given.

/// What the array did over its BASELINE at the same point. Same unit on both
/// sides.
pub fn raid(performance: f64, baseline: f64) -> Option<f64> {
    ratio(performance, baseline)
}

/// Performance for each busy core.
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

fn ratio(above: f64, below: f64) -> Option<f64> {
    (below > 0.0 && above.is_finite() && below.is_finite()).then(|| above / below)
}

#[cfg(test)]
mod tests {
    use super::{cpu, raid, relative_latency};

    #[test]
    fn nothing_is_divided_by_nothing() {
        assert_eq!(raid(1.0, 0.0), None);
        assert_eq!(cpu(1.0, 0.0, 1.0), None);
        assert_eq!(relative_latency(0, 5), None);
    }

    #[test]
    fn cpu_efficiency_is_performance_over_busy_cores() {
        assert_eq!(cpu(10e9, 20.0, 10.0), Some(5e9));
        assert_eq!(relative_latency(1000, 2500), Some(2.5));
    }
}
