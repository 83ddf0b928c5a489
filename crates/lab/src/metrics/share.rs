//! Which share of a machine's CPU time something takes: formulas F1 and F1'.
//!
//! What must stay true: the denominator is wall-clock cores x F x T (or cores x T for nanoseconds),
//! never the number of samples received: on idle cores the software clock samples less. Counts
//! whose sum does not fit into that product are refused, so nanoseconds are never read as samples.

use crate::metrics::latency::to_f64;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a count of a folded stack is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Number of samples.
    Samples,
    /// Nanoseconds of CPU time: each sample counts with its sampling period.
    #[value(name = "ns")]
    Nanoseconds,
}

impl Unit {
    pub fn word(self) -> &'static str {
        match self {
            Unit::Samples => "samples",
            Unit::Nanoseconds => "nanoseconds",
        }
    }
}

/// What was sampled: how many cores, how often, how long.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Window {
    pub cores: u32,
    /// Samples a second on each busy core.
    pub hz: f64,
    pub seconds: f64,
}

/// A share with its error, both 0 to 1 of all cores.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Share {
    pub share: f64,
    /// One standard error of sampling.
    pub error: f64,
}

impl Share {
    /// What part of `whole` it is, percent; 0 of nothing.
    pub fn percent_of(&self, whole: &Share) -> f64 {
        if whole.share > 0.0 { self.share / whole.share * 100.0 } else { 0.0 }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&format!("{:.1} +-{:.1} %", self.share * 100.0, self.error * 100.0))
    }
}

/// How much more than cores x F x T may come in: perf starts a little before and stops a little
/// after.
const SLACK: f64 = 1.1;

impl Window {
    /// What all cores busy all the time would count in `unit`.
    pub fn full(&self, unit: Unit) -> f64 {
        let each = match unit {
            Unit::Samples => self.hz,
            Unit::Nanoseconds => 1e9,
        };
        f64::from(self.cores) * each * self.seconds
    }

    /// Formula F1 for samples, F1' for nanoseconds. The error is that of as many samples as the
    /// window has.
    pub fn share(&self, count: u64, unit: Unit) -> Share {
        let share = to_f64(count) / self.full(unit);
        let p = share.clamp(0.0, 1.0);
        Share { share, error: (p * (1.0 - p) / self.full(Unit::Samples)).sqrt() }
    }

    /// What counts that sum to `total` can be: samples if that fits, nanoseconds if only that fits,
    /// else neither.
    pub fn unit_of(&self, total: u64) -> Option<Unit> {
        [Unit::Samples, Unit::Nanoseconds].into_iter().find(|unit| self.holds(total, *unit))
    }

    /// Whether counts that sum to `total` can be in `unit`: not more than all cores could give.
    pub fn holds(&self, total: u64, unit: Unit) -> bool {
        to_f64(total) <= self.full(unit) * SLACK
    }

    /// Whether there is anything to divide by.
    pub fn is_sound(&self) -> bool {
        self.cores > 0 && [self.hz, self.seconds].iter().all(|it| it.is_finite() && *it > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Unit, Window};

    const GUEST: Window = Window { cores: 2, hz: 99.0, seconds: 5.0 };

    #[test]
    fn periods_and_samples_of_the_same_run_give_the_same_share() {
        // 990 samples, which two collapse programs turned into 1.0e10: the sum of their periods at
        // 99 Hz.
        let periods = 990 * 10_101_010;
        assert_eq!(GUEST.unit_of(990), Some(Unit::Samples));
        assert_eq!(GUEST.unit_of(periods), Some(Unit::Nanoseconds));
        let (samples, nanoseconds) =
            (GUEST.share(990, Unit::Samples), GUEST.share(periods, Unit::Nanoseconds));
        assert!((samples.share - 1.0).abs() < 1e-9 && (nanoseconds.share - 1.0).abs() < 1e-6);
    }

    #[test]
    fn counts_that_fit_no_unit_are_not_guessed_at() {
        assert_eq!(GUEST.unit_of(20_000_000_000), None);
        assert!(!GUEST.holds(990 * 10_101_010, Unit::Samples));
    }

    #[test]
    fn the_denominator_is_wall_clock_and_not_the_samples_that_came_in() {
        // An idle guest gave 505 of 990: half of the machine, not all of it.
        let half = GUEST.share(505, Unit::Samples);
        assert!((half.share - 0.5101).abs() < 1e-4 && (half.error - 0.0159).abs() < 1e-4);
    }
}
