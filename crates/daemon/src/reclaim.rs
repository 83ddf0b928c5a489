//! This process while the kernel is short of memory: write-back of a volume's users ends only if
//! this process goes on, so it must not wait for write-back itself.
//!
//! What must stay true: all of it holds for every thread of the process, those of io_uring
//! included, because it is asked for before the first one is made. What the kernel refuses is said,
//! and arrays run all the same. Not here: memory limits (`memory`).

use crate::exports::Say;
use crate::memory::{SHARE, Sources};
use ashlar_engine::{Engine, EngineConfig};
use ashlar_units::{ByteSize, to_u64, to_usize};
use rustix::io;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, configure_io_flusher_behavior, getrlimit};
use rustix::thread::{CapabilitySet, capabilities, gettid};
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

/// Heap that each worker has at hand, and what it has where needing more may end in a wait; in
/// pieces of the third size.
const HEAP_BYTES: usize = 4 << 20;
const HEAP_IN_OLD_GROUP_BYTES: usize = 16 << 20;
const HEAP_PIECE_BYTES: usize = 32 << 10;

/// Keep this process out of reclaim as far as the kernel lets it.
///
/// - The kernel frees memory for its threads without waiting for I/O (`PR_SET_IO_FLUSHER`).
/// - Its code and data stay in memory, from their first use on.
/// - Buffers are there before the first request, up to half of what the process may have: memory
///   that cannot be freed must leave room for what the kernel needs, or it ends this process.
pub fn keep_out(say: Say<'_>) -> WaitsForWriteBack {
    let sources = Sources::own();
    let most = sources.limit_bytes().map_or(0, |bytes| bytes / 2);
    ashlar_iobuf::fill_pools_at_once(to_usize(most));
    let waits = match configure_io_flusher_behavior(true) {
        Ok(()) => WaitsForWriteBack::NoThread,
        Err(error) => waits_of(&sources, error, say),
    };
    if let Err(error) = lock_memory() {
        say(&format!(
            "memory of this process may be swapped out ({error}): give it CAP_IPC_LOCK or \
             LimitMEMLOCK=infinity, and do not swap to its volumes"
        ));
    }
    waits
}

/// Who of this process may have to wait for write-back.
pub enum WaitsForWriteBack {
    /// No thread, as far as is known.
    NoThread,
    /// All but workers, if their own kernel objects are this memory group's.
    AllButWorkers(PathBuf),
    /// Whoever needs memory, for this reason.
    All(String),
}

impl WaitsForWriteBack {
    /// Workers do without threads that the kernel makes for them, if that may wait; and what of
    /// it the status says, with the payload that is configured.
    pub fn settle(&self, config: &mut EngineConfig, lacks: &mut Vec<(&'static str, String)>) {
        config.waits_in_reclaim = matches!(self, WaitsForWriteBack::All(_));
        lacks.extend(self.lack(to_u64(config.payload_bytes * config.worker_count)));
    }

    fn lack(&self, payload_bytes: u64) -> Option<(&'static str, String)> {
        let most = Sources::own().limit_bytes().map_or(u64::MAX, |limit| limit / SHARE);
        let why = match self {
            WaitsForWriteBack::NoThread => return None,
            WaitsForWriteBack::All(why) => why.clone(),
            WaitsForWriteBack::AllButWorkers(_) if payload_bytes <= most => return None,
            WaitsForWriteBack::AllButWorkers(_) => format!(
                "a pool of {} in a memory cgroup (v1) has its memory with first use, and whoever \
                 needs it may wait; make it {} at most, or give the process CAP_SYS_RESOURCE",
                ByteSize(payload_bytes),
                ByteSize(most)
            ),
        };
        Some(("memory without waits for write-back", why))
    }
}

/// Without `PR_SET_IO_FLUSHER`. Only the older memory controller has those that need memory wait
/// for write-back.
fn waits_of(sources: &Sources, error: io::Errno, say: Say<'_>) -> WaitsForWriteBack {
    if !sources.is_limited_by_old_group() {
        return WaitsForWriteBack::NoThread;
    }
    let group = sources.old_group_without_limit();
    let why = format!("in a memory cgroup (v1) without CAP_SYS_RESOURCE (IO_FLUSHER: {error})");
    // A thread that ends at once tries it.
    let tried = group.map(|group| thread::spawn(|| move_to(&group).map(|()| group)).join());
    if let Some(Ok(Ok(group))) = tried {
        say(&format!(
            "{why}: kernel objects of workers are accounted to {}, so that no worker waits for \
             write-back that it is to carry out itself",
            group.display()
        ));
        return WaitsForWriteBack::AllButWorkers(group);
    }
    WaitsForWriteBack::All(format!(
        "{why}: what blocks is done by one thread for each worker, which is slow on sparse \
         files, and a writer in the same group may stand still; give the process \
         CAP_SYS_RESOURCE, or let writers to its volumes have a memory limit of their own"
    ))
}

/// What the kernel makes for the calling thread from now on, threads of io_uring among it, is
/// accounted to that group. The memory of the process is not: that is of its first thread's group.
fn move_to(group: &Path) -> std::io::Result<()> {
    fs::write(group.join("tasks"), gettid().as_raw_nonzero().to_string())
}

/// As was found at the start.
pub fn move_workers(engine: &Engine, waits: &WaitsForWriteBack, say: Say<'_>) {
    let WaitsForWriteBack::AllButWorkers(group) = waits else { return };
    let (told, moved) = mpsc::channel();
    for worker in 0..engine.worker_count() {
        let (group, told) = (group.clone(), told.clone());
        engine.run_on(worker, move |_| drop(told.send(move_to(&group))));
    }
    drop(told);
    for error in moved.iter().filter_map(Result::err) {
        say(&format!("a worker may wait for write-back when memory is short: {error}"));
    }
}

/// Let each worker have some heap at hand that is not in use: what it keeps of arrays and
/// attachments has taken some. Locked memory stays when it is freed.
pub fn grow_heaps(engine: &Engine) {
    let is_limited = Sources::own().is_limited_by_old_group();
    let bytes = if is_limited { HEAP_IN_OLD_GROUP_BYTES } else { HEAP_BYTES };
    for worker in 0..engine.worker_count() {
        engine.run_on(worker, move |_| {
            let pieces = (0..bytes / HEAP_PIECE_BYTES).map(|_| vec![1_u8; HEAP_PIECE_BYTES]);
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
