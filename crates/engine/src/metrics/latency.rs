//! Latency histograms, from which quantiles can be read.
//!
//! What must stay true: one worker records, any thread may read, and readers merge (`metrics.rs`).
//! The size is fixed. A quantile is never too low, and at most a fifth too high.

use super::counter::add_alone;
use ashlar_units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const SUB_BUCKETS_LOG2: u32 = 2;
const BUCKET_COUNT: usize = (64 << SUB_BUCKETS_LOG2) as usize;

/// Entries of a histogram by powers of two: the last but one ends at 2^26 us, about 67 s.
pub const POWERS: usize = 28;

/// A latency histogram with four buckets to each power of two of nanoseconds: a quantile read from
/// it is at most 19 % above the true one. Fixed size; one thread records, any may read, readers
/// merge.
#[derive(Debug)]
pub struct Latency {
    buckets: Box<[AtomicU64; BUCKET_COUNT]>,
    max_ns: AtomicU64,
    sum_ns: AtomicU64,
}

impl Default for Latency {
    fn default() -> Self {
        let buckets = Box::new([const { AtomicU64::new(0) }; BUCKET_COUNT]);
        Latency { buckets, max_ns: AtomicU64::new(0), sum_ns: AtomicU64::new(0) }
    }
}

/// A merged histogram at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LatencySummary {
    buckets: Vec<u64>,
    /// Largest value, nanoseconds.
    pub max_ns: u64,
    /// Sum of all values, nanoseconds.
    pub sum_ns: u64,
    /// Number of values.
    pub count: u64,
}

impl Default for LatencySummary {
    fn default() -> Self {
        LatencySummary { buckets: vec![0; BUCKET_COUNT], max_ns: 0, sum_ns: 0, count: 0 }
    }
}

/// Where [`bucket_of`] puts what took no time.
const BUCKET_OF_ZERO: usize = 2 << SUB_BUCKETS_LOG2;

fn bucket_of(value_ns: u64) -> usize {
    let value = value_ns.max(1 << SUB_BUCKETS_LOG2);
    let top = value.ilog2();
    let sub = (value >> (top - SUB_BUCKETS_LOG2)) & ((1 << SUB_BUCKETS_LOG2) - 1);
    usize::try_from((u64::from(top) << SUB_BUCKETS_LOG2) | sub).expect("below 256")
}

/// The largest value that falls into bucket `at`.
fn bucket_end(at: usize) -> u64 {
    let at = u64::try_from(at).expect("small");
    let (top, sub) = (at >> SUB_BUCKETS_LOG2, at & ((1 << SUB_BUCKETS_LOG2) - 1));
    if top < u64::from(SUB_BUCKETS_LOG2) {
        return 0;
    }
    let base = (1u128 << top) + ((u128::from(sub) + 1) << (top - u64::from(SUB_BUCKETS_LOG2)));
    u64::try_from(base - 1).unwrap_or(u64::MAX)
}

impl Latency {
    /// Count one value.
    pub fn record(&self, took: Duration) {
        self.record_ns(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Count the time from one moment to a later one.
    #[inline]
    pub fn record_between(&self, began: Nanos, ended: Nanos) {
        self.record_ns(ended.0.saturating_sub(began.0));
    }

    #[inline]
    fn record_ns(&self, value_ns: u64) {
        // Most of what is answered within one turn took no time by the clock of the turn.
        if value_ns == 0 {
            return add_alone(&self.buckets[BUCKET_OF_ZERO], 1);
        }
        add_alone(&self.buckets[bucket_of(value_ns)], 1);
        add_alone(&self.sum_ns, value_ns);
        if value_ns > self.max_ns.load(Relaxed) {
            self.max_ns.store(value_ns, Relaxed);
        }
    }

    /// Add what was counted to `sum`.
    pub fn add_to(&self, sum: &mut LatencySummary) {
        for (bucket, total) in self.buckets.iter().zip(&mut sum.buckets) {
            let count = bucket.load(Relaxed);
            *total += count;
            sum.count += count;
        }
        sum.max_ns = sum.max_ns.max(self.max_ns.load(Relaxed));
        sum.sum_ns += self.sum_ns.load(Relaxed);
    }
}

impl LatencySummary {
    /// The value that `per_mille` of 1000 values do not exceed, nanoseconds; 0 if nothing was
    /// counted.
    pub fn quantile_ns(&self, per_mille: u64) -> u64 {
        let wanted = (self.count * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return bucket_end(at).min(self.max_ns);
            }
        }
        0
    }

    /// What was counted after `earlier`, a summary of the same histograms. The largest value is
    /// that of all times.
    #[must_use]
    pub fn since(&self, earlier: &LatencySummary) -> LatencySummary {
        let buckets = self.buckets.iter().zip(&earlier.buckets);
        LatencySummary {
            buckets: buckets.map(|(now, then)| now.saturating_sub(*then)).collect(),
            max_ns: self.max_ns,
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
            count: self.count.saturating_sub(earlier.count),
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(&self, other: &LatencySummary) -> LatencySummary {
        let buckets = self.buckets.iter().zip(&other.buckets);
        LatencySummary {
            buckets: buckets.map(|(one, other)| one + other).collect(),
            max_ns: self.max_ns.max(other.max_ns),
            sum_ns: self.sum_ns + other.sum_ns,
            count: self.count + other.count,
        }
    }

    /// Values by power of two of microseconds: entry 0 counts those below 1 us, entry n those below
    /// 2^n us and not below half of that; the last entry counts everything longer, too. A value may
    /// be counted one entry too high if it is within a fifth of the border.
    pub fn by_power_of_two_us(&self) -> [u64; POWERS] {
        let mut powers = [0; POWERS];
        for (at, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count != 0) {
            let us = bucket_end(at) / 1000;
            let power = usize::try_from(u64::BITS - us.leading_zeros()).expect("at most 64");
            powers[power.min(POWERS - 1)] += count;
        }
        powers
    }

    /// Mean, nanoseconds; 0 if nothing was counted.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::{BUCKET_OF_ZERO, Latency, LatencySummary, bucket_end, bucket_of};
    use std::time::Duration;

    #[test]
    fn every_value_lies_in_its_bucket_and_buckets_rise() {
        assert_eq!(bucket_of(0), BUCKET_OF_ZERO);
        for value in (0..4096).chain([u64::MAX, 1 << 40, (1 << 40) + 1]) {
            let at = bucket_of(value);
            assert!(value <= bucket_end(at), "{value} above bucket {at}");
            assert!(at == 0 || value.max(4) > bucket_end(at - 1), "{value} below bucket {at}");
        }
    }

    #[test]
    fn powers_of_two_count_every_value_once_and_where_it_belongs() {
        let latency = Latency::default();
        for ns in [0, 500, 1_000, 1_500, 3_000, 900_000, 40_000_000_000, u64::MAX / 2] {
            latency.record(Duration::from_nanos(ns));
        }
        let mut sum = LatencySummary::default();
        latency.add_to(&mut sum);
        let powers = sum.by_power_of_two_us();
        assert_eq!(powers.iter().sum::<u64>(), sum.count);
        let found: Vec<(usize, u64)> =
            powers.iter().copied().enumerate().filter(|(_, count)| *count != 0).collect();
        // 1.5 us and 1 us lie in [1, 2), 3 us in [2, 4), 0.9 ms in [512 us, 1024 us).
        assert_eq!(found, [(0, 2), (1, 2), (2, 1), (10, 1), (26, 1), (27, 1)]);
    }

    #[test]
    fn quantiles_are_within_a_fifth_of_the_truth() {
        let latency = Latency::default();
        for us in 1..=1000 {
            latency.record(Duration::from_micros(us));
        }
        let mut sum = LatencySummary::default();
        latency.add_to(&mut sum);
        let p99 = sum.quantile_ns(990);
        assert!((990_000..=1_180_000).contains(&p99), "p99 {p99}");
        assert_eq!(sum.quantile_ns(1000), 1_000_000);
        assert_eq!(sum.mean_ns(), 500_500);
    }
}
