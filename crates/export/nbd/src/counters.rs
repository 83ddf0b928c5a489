//! What all sessions did so far, for `status` and metrics.
//!
//! What must stay true: counters only rise, except that of open sessions. They are read while they
//! move, so two of them need not fit together to the last request.

use crate::wire::RequestType;
use ashlar_session::SessionCounters;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shared by all sessions of all workers.
#[derive(Debug, Default)]
pub struct NbdCounters {
    /// Connections; `total` are those that reached the transmission phase.
    pub sessions: Arc<SessionCounters>,
    /// READ requests.
    pub reads: AtomicU64,
    /// WRITE requests.
    pub writes: AtomicU64,
    /// FLUSH requests.
    pub flushes: AtomicU64,
    /// TRIM requests.
    pub trims: AtomicU64,
    /// WRITE_ZEROES requests.
    pub write_zeroes: AtomicU64,
    /// CACHE requests.
    pub caches: AtomicU64,
    /// BLOCK_STATUS requests.
    pub block_statuses: AtomicU64,
    /// Bytes of data sent in answer to reads.
    pub read_bytes: AtomicU64,
    /// Bytes of data received for writes.
    pub written_bytes: AtomicU64,
    /// Requests, or pieces of reads, that were answered with an error.
    pub errors: AtomicU64,
}

impl NbdCounters {
    pub(crate) fn count(&self, kind: RequestType) {
        let counter = match kind {
            RequestType::Read => &self.reads,
            RequestType::Write => &self.writes,
            RequestType::Flush => &self.flushes,
            RequestType::Trim => &self.trims,
            RequestType::WriteZeroes => &self.write_zeroes,
            RequestType::Cache => &self.caches,
            RequestType::BlockStatus => &self.block_statuses,
            RequestType::Disconnect => return,
        };
        add(counter, 1);
    }
}

pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}
