//! The contract between the engine and the exports: a volume is a flat run of bytes with a size.
//!
//! What must stay true: nothing here knows how the bytes are kept; exports see [`Volume`] and
//! nothing else of the engine. A request owns its buffer until the reply; a reply hands it back.

#![forbid(unsafe_code)]

mod error;
mod facts;
mod mem;
mod request;

pub use error::{VolumeError, VolumeErrorKind};
pub use facts::{AllocationRun, VolumeFacts};
pub use mem::MemVolume;
pub use request::{Command, Reply, Request, Transfer};

use ashlar_iobuf::BufMut;
use ashlar_units::Extent;
use std::future::Future;

/// A block address space as an export sees it. Cheap to clone; a clone lives on one worker.
///
/// Durability (the contract of FLUSH and FUA): a write is durable when its reply came and it had
/// `fua`, or when a flush that was submitted after its reply has been answered. The promise holds
/// across all clones of a volume, on all workers and connections.
pub trait Volume: Clone + 'static {
    /// Size, block sizes and abilities. May change (a resize): ask again when a session starts.
    fn facts(&self) -> VolumeFacts;

    /// Wait until the limits of the volume let a transfer of `bytes` begin. An export waits here
    /// once for each read and write, or for each piece of one, before it takes a buffer: so
    /// transfers that wait hold no buffers that others need.
    fn turn(&self, transfer: Transfer, bytes: u64) -> impl Future<Output = ()>;

    /// A buffer of exactly `bytes` for a request's payload; waits while the pool is empty.
    ///
    /// # Panics
    /// If `bytes` exceeds [`VolumeFacts::request_bytes_max`].
    fn buffer(&self, bytes: usize) -> impl Future<Output = BufMut>;

    /// Carry out one request. Requests may be answered in any order.
    ///
    /// # Cancellation
    /// Dropping the future leaves a write in an unknown state (old or new block by block), never
    /// torn parity; its buffers return to their pool when the devices are done with them.
    fn submit(&self, request: Request) -> impl Future<Output = Result<Reply, VolumeError>>;

    /// Which parts of `extent` are allocated, as runs in rising order that cover it exactly.
    /// At most `runs_max` runs; the last one then ends before the extent does.
    fn allocation(
        &self,
        extent: Extent,
        runs_max: usize,
    ) -> impl Future<Output = Result<Vec<AllocationRun>, VolumeError>>;
}
