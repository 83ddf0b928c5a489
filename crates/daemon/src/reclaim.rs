//! This process while the kernel is short of memory: write-back of a volume's users ends only if
//! this process goes on, so it must not wait for write-back itself.
//!
//! What must stay true: all of it holds for every thread of the process, those of io_uring
//! included, because it is asked for before the first one is made. What the kernel refuses is said,
//! and arrays run all the same. Not here: memory limits (`memory`).

use crate::exports::Say;
use crate::memory::Sources;
use ashlar_engine::Engine;
use ashlar_units::to_usize;
use rustix::io;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, configure_io_flusher_behavior, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use std::hint::black_box;

/// Heap that each worker has at hand, in pieces of this size.
const HEAP_BYTES: usize = 4 << 20;
const HEAP_PIECE_BYTES: usize = 32 << 10;

/// Keep this process out of reclaim as far as the kernel lets it.
///
/// - The kernel frees memory for its threads without waiting for I/O (`PR_SET_IO_FLUSHER`).
/// - Its code and data stay in memory, from their first use on.
/// - Buffers are there before the first request, up to half of what the process may have: memory
///   that cannot be freed must leave room for what the kernel needs, or it ends this process.
pub fn keep_out(say: Say<'_>) {
    let most = Sources::own().limit_bytes().map_or(0, |bytes| bytes / 2);
    ashlar_iobuf::fill_pools_at_once(to_usize(most));
    if let Err(error) = configure_io_flusher_behavior(true) {
        say(&format!(
            "threads may wait for write-back when memory is short (IO_FLUSHER: {error}): give the \
             process CAP_SYS_RESOURCE, or let writers to its volumes have a memory limit of their \
             own"
        ));
    }
    if let Err(error) = lock_memory() {
        say(&format!(
            "memory of this process may be swapped out ({error}): give it CAP_IPC_LOCK or \
             LimitMEMLOCK=infinity, and do not swap to its volumes"
        ));
    }
}

/// Let each worker have some heap at hand that is not in use: what it keeps of arrays and
/// attachments has taken some. Locked memory stays when it is freed.
pub fn grow_heaps(engine: &Engine) {
    for worker in 0..engine.worker_count() {
        engine.run_on(worker, |_| {
            let pieces = (0..HEAP_BYTES / HEAP_PIECE_BYTES).map(|_| vec![1_u8; HEAP_PIECE_BYTES]);
            drop(black_box(pieces.collect::<Vec<_>>()));
        });
    }
}

fn lock_memory() -> io::Result<()> {
    let has_capability = capabilities(None)?.effective.contains(CapabilitySet::IPC_LOCK);
    // With a limit, memory that is asked for later would be refused.
    if !has_capability && getrlimit(Resource::Memlock).current.is_some() {
        return Err(io::Errno::PERM);
    }
    // What is mapped is read in now: the program itself. What comes is locked as it is used.
    mlockall(MlockAllFlags::CURRENT)?;
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
}
