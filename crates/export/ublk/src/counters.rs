//! What the queues of a device did so far, for `status` and metrics.
//!
//! What must stay true: counters only rise. They are read while they move, so two of them need not
//! fit together to the last request.

use std::sync::atomic::{AtomicU64, Ordering};

/// What all queues of a device did so far.
#[derive(Debug, Default)]
pub struct UblkCounters {
    /// Reads.
    pub reads: AtomicU64,
    /// Writes.
    pub writes: AtomicU64,
    /// Flushes.
    pub flushes: AtomicU64,
    /// Discards, and writes of zeros.
    pub discards: AtomicU64,
    /// Bytes read.
    pub read_bytes: AtomicU64,
    /// Bytes written.
    pub written_bytes: AtomicU64,
    /// Requests that were answered with an error.
    pub errors: AtomicU64,
}

impl UblkCounters {
    /// Requests so far.
    pub fn requests(&self) -> u64 {
        let all = [&self.reads, &self.writes, &self.flushes, &self.discards];
        all.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }
}

pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}
