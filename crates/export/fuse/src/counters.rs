//! What the servers of a mount did so far, for `status` and metrics.
//!
//! What must stay true: counters only rise. They are read while they move, so two of them need not
//! fit together to the last request.

use std::sync::atomic::{AtomicU64, Ordering};

/// What all servers of a mount did so far.
#[derive(Debug, Default)]
pub struct FuseCounters {
    /// READ requests.
    pub reads: AtomicU64,
    /// WRITE requests.
    pub writes: AtomicU64,
    /// FSYNC requests.
    pub flushes: AtomicU64,
    /// FALLOCATE requests.
    pub fallocates: AtomicU64,
    /// All other requests.
    pub others: AtomicU64,
    /// Those of all that came over io_uring.
    pub over_ring: AtomicU64,
    /// Bytes of data sent in answer to reads.
    pub read_bytes: AtomicU64,
    /// Bytes of data stored by writes.
    pub written_bytes: AtomicU64,
    /// Reads, writes, fsyncs and fallocates that were answered with an error.
    pub errors: AtomicU64,
    /// Payload buffers replaced because a volume still held on to one after its reply.
    pub buffers_replaced: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}
