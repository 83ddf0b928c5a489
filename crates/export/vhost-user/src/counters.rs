//! What the clients of a volume did so far, for `status` and metrics.
//!
//! What must stay true: counters only rise. They are read while they move, so two of them need not
//! fit together to the last request.

use crate::request::VhostRequest;
use std::sync::atomic::{AtomicU64, Ordering};

/// What all queues of a volume did so far.
#[derive(Debug, Default)]
pub struct VhostCounters {
    /// Reads.
    pub reads: AtomicU64,
    /// Writes.
    pub writes: AtomicU64,
    /// Flushes.
    pub flushes: AtomicU64,
    /// Discards, and writes of zeros.
    pub discards: AtomicU64,
    /// Questions for the name of the device.
    pub names: AtomicU64,
    /// Requests that were answered with an error.
    pub errors: AtomicU64,
    /// Requests that a backend which is gone had left without an answer, and were carried out
    /// again.
    pub repeated: AtomicU64,
}

impl VhostCounters {
    /// Requests so far.
    pub fn requests(&self) -> u64 {
        let all = [&self.reads, &self.writes, &self.flushes, &self.discards, &self.names];
        all.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn count(&self, request: &VhostRequest) {
        let counter = match request {
            VhostRequest::Read(_) => &self.reads,
            VhostRequest::Write(_) => &self.writes,
            VhostRequest::Flush => &self.flushes,
            VhostRequest::Identify => &self.names,
            VhostRequest::Discard(_) | VhostRequest::WriteZeroes { .. } => &self.discards,
        };
        add(counter, 1);
    }
}

pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}
