//! Counters and latency histograms: one set per array and worker, one per member.
//!
//! What must stay true: every set has one worker that counts in it, so counting is a load and a store: no lock, no
//! locked instruction, no cache line that moves between cores. A reader adds the workers' sets up and may see two
//! counters a moment apart. Counters only grow.

use crate::shard::Shard;
use ashlar_units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A counter that only grows. One thread adds, any may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Add `amount`. If two threads did, some of it would be lost.
    pub fn add(&self, amount: u64) {
        add_alone(&self.0, amount);
    }

    /// Its value now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What the one thread that changes `value` adds to it.
fn add_alone(value: &AtomicU64, amount: u64) {
    value.store(value.load(Relaxed).wrapping_add(amount), Relaxed);
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
        /// Bytes of members that were given back because clients did so.
        discarded_bytes,
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
        /// Member reads of data started, for clients and jobs.
        member_reads,
        /// Of these, those that client writes needed.
        write_member_reads,
        /// Of these, those of background jobs.
        job_member_reads,
        /// Member writes of data started, for clients and jobs.
        member_writes,
        /// Of these, those of background jobs.
        job_member_writes,
        /// Member flushes.
        member_flushes,
        /// Write-intent pages written.
        intent_page_writes,
        /// Written-map pages written.
        written_page_writes,
        /// Updates recorded in the stripe intent log.
        log_records,
        /// Of these, lean ones.
        lean_records,
        /// Batches written to the log, on all devices.
        log_batches,
        /// Bytes of those batches.
        log_bytes,
        /// Times that older updates were made durable in place to free space of the log.
        log_settles,
        /// Updates that had to wait for space of the log.
        log_space_waits,
        /// Pages of the checksum table read.
        checksum_page_reads,
        /// Pages of the checksum table written.
        checksum_page_writes,
        /// Writes that waited because too much of the checksum table in memory was to be stored first.
        checksum_waits,
        /// Checksums that were found to be wrong about a block that is right, and set anew.
        checksums_corrected,
        /// Pieces of requests handed to another worker.
        handed_over,
    }
}

counters! {
    /// What one member did for one worker.
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
        /// Blocks that were not what had been written.
        checksum_mismatches,
        /// Reads that were given up on because they took too long.
        slow_reads,
    }
}

/// What one member does for one worker, counted by that worker.
#[derive(Debug, Default)]
pub(crate) struct MemberTally {
    pub(crate) counters: MemberCounters,
    pub(crate) read_latency: Latency,
    pub(crate) write_latency: Latency,
    depth_max: AtomicU64,
}

impl MemberTally {
    /// Count a read that has begun.
    pub(crate) fn begin_read(&self, bytes: u64) {
        self.counters.reads.add(1);
        self.counters.read_bytes.add(bytes);
        self.note_depth();
    }

    /// Count a write that has begun.
    pub(crate) fn begin_write(&self, bytes: u64) {
        self.counters.writes.add(1);
        self.counters.write_bytes.add(bytes);
        self.note_depth();
    }

    /// Commands of this worker that are under way now.
    pub(crate) fn depth(&self) -> u64 {
        let begun = self.counters.reads.get() + self.counters.writes.get();
        begun.saturating_sub(self.counters.completed.get())
    }

    /// The most that were under way at once.
    pub(crate) fn depth_max(&self) -> u64 {
        self.depth_max.load(Relaxed)
    }

    fn note_depth(&self) {
        let depth = self.depth();
        if depth > self.depth_max() {
            self.depth_max.store(depth, Relaxed);
        }
    }
}

/// The stages of a write that are timed, in the order in which a write comes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteStage {
    /// Waiting for the lock on its rows.
    Lock,
    /// Making its region's intent durable; nearly always it is.
    Intent,
    /// Reading what parity is computed from, with what it takes to plan that.
    Gather,
    /// Computing parity.
    Parity,
    /// The record in the stripe intent log, if there is one.
    Log,
    /// Writing data and parity, and settling members that failed.
    Store,
}

impl WriteStage {
    /// All of them, with the names that they are shown by.
    pub const NAMES: [(WriteStage, &'static str); 6] = [
        (WriteStage::Lock, "lock"),
        (WriteStage::Intent, "intent"),
        (WriteStage::Gather, "gather"),
        (WriteStage::Parity, "parity"),
        (WriteStage::Log, "log"),
        (WriteStage::Store, "store"),
    ];
}

/// Latency of each stage of a write; one write in [`STAGE_SAMPLE_EVERY`] is timed.
pub type StageLatencies = [Latency; WriteStage::NAMES.len()];

/// A timed write reads the clock seven times, about as much as 4 % of a small write on null members costs.
pub const STAGE_SAMPLE_EVERY: u64 = 16;

/// Times the stages of one write, or of none: most writes only pay for asking.
pub(crate) struct StageClock {
    /// When the stage under way began; `None` if this write is not timed.
    since: Option<Nanos>,
}

impl StageClock {
    /// For the write that begins now.
    pub(crate) fn start(shard: &Shard) -> StageClock {
        let is_timed = shard.next_write().is_multiple_of(STAGE_SAMPLE_EVERY);
        StageClock { since: is_timed.then(|| shard.worker.handle.now()) }
    }

    /// Times nothing.
    pub(crate) fn off() -> StageClock {
        StageClock { since: None }
    }

    /// `stage` has ended and the next one begins.
    pub(crate) fn lap(&mut self, shard: &Shard, stage: WriteStage) {
        let Some(since) = self.since else { return };
        let now = shard.worker.handle.now();
        shard.stage_latencies()[stage as usize].record(now.since(since));
        self.since = Some(now);
    }
}

const SUB_BUCKETS_LOG2: u32 = 2;
const BUCKET_COUNT: usize = (64 << SUB_BUCKETS_LOG2) as usize;

/// Entries of a histogram by powers of two: the last but one ends at 2^26 us, about 67 s.
pub const POWERS: usize = 28;

/// A latency histogram with four buckets to each power of two of nanoseconds: a quantile read from it is
/// at most 19 % above the true one. Fixed size; one thread records, any may read, readers merge.
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

    /// Values by power of two of microseconds: entry 0 counts those below 1 us, entry n those below 2^n us and not below
    /// half of that; the last entry counts everything longer, too. A value may be counted one entry too high if it
    /// is within a fifth of the border.
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
