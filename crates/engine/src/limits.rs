//! Limits of a volume: how many reads and writes, and how many bytes of them, begin in a second.
//!
//! What must stay true: a volume without limits costs a request one look at a flag. A transfer is
//! counted once, when it begins, so one that is given up while it waits is not counted. All workers
//! count in the same buckets. Not here: how a transfer waits (`datapath/turn`).

use ashlar_ring::local::Semaphore;
use ashlar_units::Nanos;
use ashlar_volume::Transfer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a volume that was idle may catch up on.
const BURST_NS: u64 = 100_000_000;

const SECOND_NS: u128 = 1_000_000_000;

/// What may begin in a second; 0 is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RateLimit {
    /// Bytes.
    pub bytes: u64,
    /// Requests of at most 1 MiB; a longer one counts as several.
    pub requests: u64,
}

/// The limits of one volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VolumeLimits {
    /// Of reads.
    pub reads: RateLimit,
    /// Of writes. Discards and zeroing do not count.
    pub writes: RateLimit,
}

/// Where transfers of all workers are counted. Empty: nothing is limited.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    is_set: AtomicBool,
    reads: Mutex<Bucket>,
    writes: Mutex<Bucket>,
}

/// A limit, and from when on it allows the next transfer.
#[derive(Debug, Default)]
struct Bucket {
    limit: RateLimit,
    bytes_from_ns: u64,
    requests_from_ns: u64,
}

/// The lines of one worker: of reads and of writes.
pub(crate) struct Turns {
    reads: Semaphore,
    writes: Semaphore,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { reads: Semaphore::new(1), writes: Semaphore::new(1) }
    }
}

impl Turns {
    /// The line of such transfers: who holds its permit is the first.
    pub(crate) fn of(&self, transfer: Transfer) -> &Semaphore {
        match transfer {
            Transfer::Read => &self.reads,
            Transfer::Write => &self.writes,
        }
    }
}

impl Limiter {
    /// From now on these.
    pub(crate) fn set(&self, limits: VolumeLimits) {
        self.bucket(Transfer::Read).limit = limits.reads;
        self.bucket(Transfer::Write).limit = limits.writes;
        self.is_set.store(limits != VolumeLimits::default(), Ordering::Relaxed);
    }

    /// Whether anything is limited.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Count a transfer, if it may begin now.
    ///
    /// # Errors
    /// How long it must wait at least; it is not counted.
    pub(crate) fn begin(&self, transfer: Transfer, bytes: u64, now: Nanos) -> Result<(), Duration> {
        self.bucket(transfer).begin(bytes, now)
    }

    fn bucket(&self, transfer: Transfer) -> MutexGuard<'_, Bucket> {
        let bucket = match transfer {
            Transfer::Read => &self.reads,
            Transfer::Write => &self.writes,
        };
        bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bucket {
    fn begin(&mut self, bytes: u64, now: Nanos) -> Result<(), Duration> {
        let RateLimit { bytes: bytes_max, requests: requests_max } = self.limit;
        let from = |limit, from_ns| if limit == 0 { 0 } else { from_ns };
        let from =
            from(bytes_max, self.bytes_from_ns).max(from(requests_max, self.requests_from_ns));
        if from > now.0 {
            return Err(Duration::from_nanos(from - now.0));
        }
        let oldest = now.0.saturating_sub(BURST_NS);
        self.bytes_from_ns =
            self.bytes_from_ns.max(oldest).saturating_add(cost_ns(bytes, bytes_max));
        self.requests_from_ns =
            self.requests_from_ns.max(oldest).saturating_add(cost_ns(1, requests_max));
        Ok(())
    }
}

/// The time that `count` takes at this rate, rounded up; nothing without a limit.
fn cost_ns(count: u64, per_second: u64) -> u64 {
    match per_second {
        0 => 0,
        _ => {
            let cost = (u128::from(count) * SECOND_NS).div_ceil(u128::from(per_second));
            u64::try_from(cost).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Limiter, RateLimit, VolumeLimits};
    use ashlar_units::Nanos;
    use ashlar_volume::Transfer;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn limiter(bytes: u64, requests: u64) -> Limiter {
        let limiter = Limiter::default();
        limiter
            .set(VolumeLimits { writes: RateLimit { bytes, requests }, ..VolumeLimits::default() });
        limiter
    }

    /// How many writes begin in a time, if the next one always comes at once or sleeps as told, and
    /// wakes up that late.
    fn begun(limiter: &Limiter, bytes: u64, from: Nanos, time: Duration, late: Duration) -> u64 {
        let (mut now, mut count) = (from, 0);
        while now.since(from) < time {
            match limiter.begin(Transfer::Write, bytes, now) {
                Ok(()) => count += 1,
                Err(wait) => now = now.after(wait + late),
            }
        }
        count
    }

    #[test]
    fn the_rate_is_the_limit_with_a_tenth_of_a_second_to_catch_up_on() {
        let from = Nanos(5_000_000_000);
        for late in [Duration::ZERO, Duration::from_millis(3)] {
            let by_requests = begun(&limiter(0, 1000), 4096, from, 10 * SECOND, late);
            assert!((10_000..=10_101).contains(&by_requests), "{by_requests} with {late:?}");
            let by_bytes = begun(&limiter(4 << 20, 0), 65_536, from, 10 * SECOND, late);
            assert!((640..=648).contains(&by_bytes), "{by_bytes} with {late:?}");
        }
    }

    #[test]
    fn the_narrower_of_two_limits_counts_and_reads_are_another_matter() {
        let limiter = limiter(1 << 20, 1000);
        let from = Nanos(5_000_000_000);
        let large = begun(&limiter, 1 << 20, from, 10 * SECOND, Duration::ZERO);
        assert!((10..=11).contains(&large), "{large} of 1 MiB");
        let later = from.after(20 * SECOND);
        let small = begun(&limiter, 512, later, 10 * SECOND, Duration::ZERO);
        assert!((10_000..=10_101).contains(&small), "{small} of 512 bytes");
        for _ in 0..100_000 {
            limiter.begin(Transfer::Read, 1 << 20, later).expect("not limited");
        }
    }

    #[test]
    fn what_waits_is_not_counted_and_a_limit_that_is_lifted_holds_nobody() {
        let (limiter, now) = (limiter(0, 1), Nanos(5_000_000_000));
        limiter.begin(Transfer::Write, 1, now).expect("the first");
        for _ in 0..1000 {
            let wait = limiter.begin(Transfer::Write, 1, now).expect_err("one a second");
            assert_eq!(wait, Duration::from_millis(900));
        }
        limiter.set(VolumeLimits::default());
        assert!(!limiter.is_set());
        limiter.begin(Transfer::Write, 1, now).expect("no limit");
    }
}
