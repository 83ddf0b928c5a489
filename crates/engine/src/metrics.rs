//! Counters: one set for each array and worker, and one for each member.
//!
//! - here        sets of counters; `counter`   one
//! - `latency`   histograms of how long something took
//! - `stages`    where the time of a write goes
//!
//! What must stay true: one worker counts in each set, so counting is a load and a store, without
//! locks and without cache lines that move between cores. A reader adds the workers' sets up and
//! may see two counters a moment apart. Counters only grow.

mod counter;
mod latency;
mod stages;

pub use counter::Counter;
pub use latency::{Latency, LatencySummary, POWERS};
pub use stages::{STAGE_SAMPLE_EVERY, StageLatencies, WriteStage};

use ashlar_units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    (
        $(#[$doc:meta])* $set:ident, $snapshot:ident {
            $($(#[$field_doc:meta])* $field:ident),* $(,)?
        }
    ) => {
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
        /// Reads and writes that waited because of a limit of the volume.
        limit_waits,
        /// How long they waited in all, microseconds.
        limit_wait_us,
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
        /// Of these, parity-only ones.
        parity_only_records,
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
        /// Writes that waited because too much of the checksum table in memory was to be stored
        /// first.
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
        /// Blocks that the parities of a scrub pointed at.
        located_mismatches,
        /// Reads that were given up on because they took too long.
        slow_reads,
    }
}

impl MemberCounts {
    /// These, with faults alone that were not counted `before`.
    #[must_use]
    pub fn with_faults_since(self, before: &MemberCounts) -> MemberCounts {
        MemberCounts {
            read_errors: self.read_errors.saturating_sub(before.read_errors),
            write_errors: self.write_errors.saturating_sub(before.write_errors),
            repaired_blocks: self.repaired_blocks.saturating_sub(before.repaired_blocks),
            checksum_mismatches: self
                .checksum_mismatches
                .saturating_sub(before.checksum_mismatches),
            located_mismatches: self.located_mismatches.saturating_sub(before.located_mismatches),
            slow_reads: self.slow_reads.saturating_sub(before.slow_reads),
            ..self
        }
    }

    /// Names of the faults, and how many there were.
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let faults = [
            ("read_errors", self.read_errors),
            ("write_errors", self.write_errors),
            ("repaired_blocks", self.repaired_blocks),
            ("checksum_mismatches", self.checksum_mismatches),
            ("located_mismatches", self.located_mismatches),
            ("slow_reads", self.slow_reads),
        ];
        faults.map(|(name, count)| (name, count.to_string())).to_vec()
    }
}

/// What one member does for one worker, counted by that worker.
#[derive(Debug, Default)]
pub(crate) struct MemberTally {
    pub(crate) counters: MemberCounters,
    pub(crate) read_latency: Latency,
    pub(crate) write_latency: Latency,
    /// The figures by which members are compared.
    pub(crate) timings: crate::watch::slow::Timings,
    depth_max: AtomicU64,
    /// How long its devices have not answered: the one that fills the slot, and the one that is to
    /// replace it.
    pub(crate) silences: [crate::watch::silence::Found; 2],
}

impl MemberTally {
    /// Count a read that has begun.
    #[inline]
    pub(crate) fn begin_read(&self, bytes: u64) {
        self.counters.reads.add(1);
        self.counters.read_bytes.add(bytes);
        self.note_depth();
    }

    /// Count the end of a read.
    #[inline]
    pub(crate) fn end_read(&self, began: Nanos, ended: Nanos) {
        self.counters.completed.add(1);
        self.read_latency.record_between(began, ended);
    }

    /// Count the end of a write.
    #[inline]
    pub(crate) fn end_write(&self, began: Nanos, ended: Nanos) {
        self.counters.completed.add(1);
        self.write_latency.record_between(began, ended);
    }

    /// Count a write that has begun.
    #[inline]
    pub(crate) fn begin_write(&self, bytes: u64) {
        self.counters.writes.add(1);
        self.counters.write_bytes.add(bytes);
        self.note_depth();
    }

    /// Commands of this worker that are under way now.
    #[inline]
    pub(crate) fn depth(&self) -> u64 {
        let begun = self.counters.reads.get() + self.counters.writes.get();
        begun.saturating_sub(self.counters.completed.get())
    }

    /// The most that were under way at once.
    pub(crate) fn depth_max(&self) -> u64 {
        self.depth_max.load(Relaxed)
    }

    #[inline]
    fn note_depth(&self) {
        let depth = self.depth();
        if depth > self.depth_max() {
            self.depth_max.store(depth, Relaxed);
        }
    }
}
