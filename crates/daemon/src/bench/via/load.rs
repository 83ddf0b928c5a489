//! What a client of an export asks for, one request after the other, and what came of it.
//!
//! What must stay true: every client asks for the same places in the same order, so that what is
//! compared differs in the way to the volume alone.

use super::interrupt;
use crate::bench::places::{Pattern, Places, seed_of};
use ashlar_units::to_u64;
use std::time::Duration;
use tokio::time::Instant;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) is_write: bool,
    pub(super) is_random: bool,
    /// How many sequences, if the order is not random.
    pub(super) streams: usize,
    /// Bytes of the volume before the first request.
    pub(super) start_bytes: u64,
    /// Bytes of each request.
    pub(super) bytes: u32,
    /// Requests under way at any time.
    pub(super) depth: usize,
    /// Bytes of the volume that are used.
    pub(super) span_bytes: u64,
}

impl Asked {
    /// Bytes of each request, as sizes in memory are counted.
    pub(super) fn bytes_usize(&self) -> usize {
        usize::try_from(self.bytes).expect("at most 1 MiB")
    }

    /// The places of all requests, from the start.
    pub(super) fn places(&self) -> Places {
        let Asked { is_random, streams, start_bytes, span_bytes, .. } = *self;
        let (client, bytes) = ((0, 1), self.bytes.into());
        let pattern = Pattern { is_random, streams, client, bytes, start_bytes, span_bytes };
        Places::of(pattern, seed_of(0))
    }
}

/// When to ask for no more.
#[derive(Clone, Copy)]
pub(super) struct Until {
    end: Instant,
    requests: u64,
}

impl Until {
    /// When `time` has passed.
    pub(super) fn after(time: Duration) -> Until {
        Until { end: Instant::now() + time, requests: u64::MAX }
    }

    /// When `requests` were asked for; they may not take longer than `most`.
    pub(super) fn asked(requests: u64, most: Duration) -> Until {
        Until { requests, ..Until::after(most) }
    }

    /// Whether one more may be asked for; it counts then.
    pub(super) fn allows_one(&mut self) -> bool {
        let is_allowed = self.requests > 0 && Instant::now() < self.end && !interrupt::is_asked();
        self.requests -= u64::from(is_allowed);
        is_allowed
    }
}

/// What a client did.
#[derive(Default)]
pub(super) struct Effort {
    /// Time of each request, in nanoseconds.
    nanos: Vec<u32>,
    /// Time of all.
    pub(super) time: Duration,
}

impl Effort {
    /// A request that was sent at `since` is done.
    pub(super) fn done(&mut self, since: Instant) {
        self.nanos.push(u32::try_from(since.elapsed().as_nanos()).unwrap_or(u32::MAX));
    }

    /// Requests that were answered.
    pub(super) fn requests(&self) -> u64 {
        to_u64(self.nanos.len())
    }

    /// Requests a second.
    pub(super) fn rate(&self) -> f64 {
        self.requests() as f64 / self.time.as_secs_f64()
    }

    /// The times below which a half and 99 of 100 requests took, in microseconds.
    pub(super) fn us_p50_p99(&mut self) -> (f64, f64) {
        self.nanos.sort_unstable();
        let at = |percent: usize| {
            let last = self.nanos.len().saturating_sub(1);
            let nanos = self.nanos.get(last * percent / 100);
            nanos.map_or(0.0, |nanos| f64::from(*nanos) / 1000.0)
        };
        (at(50), at(99))
    }
}

#[cfg(test)]
mod tests {
    use super::{Effort, Until};
    use std::time::Duration;
    use tokio::time::Instant;

    #[test]
    fn as_many_requests_are_allowed_as_were_to_be_asked_for() {
        let mut until = Until::asked(3, Duration::from_secs(3600));
        let allowed = (0..10).filter(|_| until.allows_one()).count();
        assert_eq!(allowed, 3);
        assert!(!Until::after(Duration::ZERO).allows_one());
        assert!(Until::after(Duration::from_secs(3600)).allows_one());
    }

    #[test]
    fn times_are_told_by_rank() {
        let mut effort = Effort { time: Duration::from_secs(2), ..Effort::default() };
        assert_eq!(effort.us_p50_p99(), (0.0, 0.0));
        effort.nanos = (1..=101).rev().map(|us| us * 1000).collect();
        assert_eq!(effort.us_p50_p99(), (51.0, 100.0));
        assert_eq!((effort.requests(), effort.rate()), (101, 50.5));
        effort.done(Instant::now());
        assert_eq!(effort.requests(), 102);
    }
}
