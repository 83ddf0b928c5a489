//! How long commands of a member take: counts and sums, for comparing members.
//!
//! What must stay true: a time ends when the device answered, not when a request came to ask.
//! Requests wait for their members in turn. If a command is already done when its turn comes, its
//! time would be that of the member before it. Such commands are not timed.
//!
//! Not here: the histograms that operators see (`metrics/latency.rs`).

use crate::metrics::Counter;
use ashlar_units::Nanos;
use std::time::Duration;

/// The times of one member's commands on one worker.
#[derive(Debug, Default)]
pub(crate) struct Timings {
    pub(super) reads: Timing,
    pub(crate) writes: Timing,
}

impl Timings {
    /// A read that began `at` was awaited since `asked`, and is answered now.
    pub(crate) fn note_read(&self, at: Nanos, asked: Nanos, now: Nanos) {
        if now > asked {
            self.reads.add(now.since(at));
        }
    }
}

/// Times of one kind of command. They only grow.
#[derive(Debug, Default)]
pub(crate) struct Timing {
    count: Counter,
    sum_ns: Counter,
}

impl Timing {
    pub(crate) fn add(&self, took: Duration) {
        self.count.add(1);
        self.sum_ns.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn total(&self) -> Total {
        Total { count: self.count.get(), sum_ns: self.sum_ns.get() }
    }
}

/// Times at one moment, of several workers or of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Total {
    pub(super) count: u64,
    sum_ns: u64,
}

impl Total {
    pub(super) fn and(self, other: Total) -> Total {
        let sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
        Total { count: self.count + other.count, sum_ns }
    }

    pub(super) fn since(self, earlier: Total) -> Total {
        let sum_ns = self.sum_ns.wrapping_sub(earlier.sum_ns);
        Total { count: self.count.saturating_sub(earlier.count), sum_ns }
    }

    /// Of at least `count_min` commands; `None` of fewer.
    pub(super) fn mean(self, count_min: u64) -> Option<Duration> {
        let ns = self.sum_ns.checked_div(self.count)?;
        (self.count >= count_min).then(|| Duration::from_nanos(ns))
    }
}

#[cfg(test)]
mod tests {
    use super::{Timing, Timings, Total};
    use ashlar_units::Nanos;
    use std::time::Duration;

    #[test]
    fn a_mean_is_of_what_was_added_since_and_of_enough() {
        let timing = Timing::default();
        timing.add(Duration::from_millis(900));
        let before = timing.total();
        timing.add(Duration::from_millis(2));
        timing.add(Duration::from_millis(4));
        let since = timing.total().and(Total::default()).since(before);
        assert_eq!(since.mean(2), Some(Duration::from_millis(3)));
        assert_eq!(since.mean(3), None, "too few");
        assert_eq!(Total::default().mean(0), None, "none");
    }

    #[test]
    fn a_read_that_was_answered_before_anybody_asked_is_not_timed() {
        let timings = Timings::default();
        timings.note_read(Nanos(10), Nanos(500), Nanos(500));
        assert_eq!(timings.reads.total(), Total::default());
        timings.note_read(Nanos(10), Nanos(500), Nanos(510));
        assert_eq!(timings.reads.total().mean(1), Some(Duration::from_nanos(500)));
    }
}
