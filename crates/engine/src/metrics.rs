//! Counters and latency histograms: one set per array and worker, one per member.
//!
//! What must stay true: counting never takes a lock and never allocates; a reader adds the workers' sets
//! up and may see two counters a moment apart. Counters only grow.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A counter that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Add `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Relaxed);
    }

    /// Its value now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($(#[$doc:meta])* $set:ident, $snapshot:ident { $($(#[$field_doc:meta])* $field:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub struct $set { $($(#[$field_doc])* pub $field: Counter),* }

        /// The values of the counters of the same names at one moment.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $snapshot { $($(#[$field_doc])* pub $field: u64),* }

        impl $set {
            /// Add the values now to `sum`.
            pub fn add_to(&self, sum: &mut $snapshot) {
                $(sum.$field += self.$field.get();)*
            }
        }

        impl $snapshot {
            /// Names and values, in the order of definition.
            pub fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),*]
            }
        }
    };
}

counters! {
    /// What an array did on one worker.
    ArrayCounters, ArrayCounts {
        /// Client reads.
        reads,
        /// Bytes of client reads.
        read_bytes,
        /// Client writes.
        writes,
        /// Bytes of client writes.
        write_bytes,
        /// Client flushes.
        flushes,
        /// Client discards and zero writes.
        discards,
        /// Client requests that were answered with an error.
        errors,
        /// Bands of stripes written whole: no reads.
        full_stripe_writes,
        /// Bands written by reading the old data and old parity.
        rmw_writes,
        /// Bands written by reading the data that stays.
        rcw_writes,
        /// Bands written after reconstructing missing data.
        decode_writes,
        /// First writes of a stripe.
        first_writes,
        /// Writes that were merged into a write before them.
        merged_writes,
        /// Reads that had to reconstruct.
        degraded_reads,
        /// Blocks reconstructed and written back after a read error.
        repaired_blocks,
        /// Blocks that could not be returned.
        lost_blocks,
        /// Member reads started for client requests.
        member_reads,
        /// Member writes started for client requests.
        member_writes,
        /// Member flushes.
        member_flushes,
        /// Write-intent pages written.
        intent_page_writes,
        /// Written-map pages written.
        written_page_writes,
        /// Updates recorded in the stripe intent log.
        log_records,
        /// Batches written to the log, on all devices.
        log_batches,
        /// Bytes of those batches.
        log_bytes,
        /// Times that older updates were made durable in place to free space of the log.
        log_settles,
        /// Updates that had to wait for space of the log.
        log_space_waits,
        /// Pieces of requests handed to another worker.
        handed_over,
    }
}

counters! {
    /// What one member did, over all workers.
    MemberCounters, MemberCounts {
        /// Reads started.
        reads,
        /// Bytes of reads.
        read_bytes,
        /// Writes started.
        writes,
        /// Bytes of writes.
        write_bytes,
        /// Reads and writes that ended, well or badly, or were given up on.
        completed,
        /// Reads that failed.
        read_errors,
        /// Writes and flushes that failed.
        write_errors,
        /// Blocks repaired on it.
        repaired_blocks,
        /// Reads that were given up on because they took too long.
        slow_reads,
    }
}

const SUB_BUCKETS_LOG2: u32 = 2;
const BUCKET_COUNT: usize = (64 << SUB_BUCKETS_LOG2) as usize;

/// A latency histogram with four buckets to each power of two of nanoseconds: a quantile read from it is
/// at most 19 % above the true one. Fixed size, lock-free; workers fill their own and readers merge.
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
        let value_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(value_ns)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(value_ns, Relaxed);
        if value_ns > self.max_ns.load(Relaxed) {
            self.max_ns.fetch_max(value_ns, Relaxed);
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
    /// The value that `per_mille` of 1000 values do not exceed, nanoseconds; 0 if nothing was counted.
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

    /// What was counted after `earlier`, a summary of the same histograms. The largest value is that of
    /// all times.
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

    /// Mean, nanoseconds; 0 if nothing was counted.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Latency, LatencySummary, bucket_end, bucket_of};
    use std::time::Duration;

    #[test]
    fn every_value_lies_in_its_bucket_and_buckets_rise() {
        for value in (0..4096).chain([u64::MAX, 1 << 40, (1 << 40) + 1]) {
            let at = bucket_of(value);
            assert!(value <= bucket_end(at), "{value} above bucket {at}");
            assert!(at == 0 || value.max(4) > bucket_end(at - 1), "{value} below bucket {at}");
        }
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
