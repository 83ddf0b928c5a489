//! Making the kernel's side of a ring with the best flags it knows.
//!
//! Tried best first: deferred task work (completions are handled only when we ask, 6.1), then
//! cooperative (no interrupts of the running thread, 5.19), then plain. Not here: use of the ring.

use super::uring::Uring;
use io_uring::{IoUring, squeue};
use std::io;

/// The queue has two entries for each operation and the kernel's limit is 32,768.
const ENTRIES_MAX: u32 = 8192;

/// How large the entries are in which operations are handed to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EntryBytes {
    /// 64 bytes: enough for everything but a [`WideCommand`](crate::WideCommand).
    #[default]
    Narrow,
    /// 128 bytes.
    Wide,
}

/// One set of flags.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Completions are handled only when we ask (6.1).
    Deferred,
    /// No interrupts of the running thread (5.19).
    Cooperative,
    /// Whatever there is.
    Plain,
}

/// Best first.
const WAYS: [Way; 3] = [Way::Deferred, Way::Cooperative, Way::Plain];

/// A ring for `entries` operations at once, of the calling thread.
pub(super) fn build(entries: u32, entry_bytes: EntryBytes) -> io::Result<Uring> {
    if !(1..=ENTRIES_MAX).contains(&entries) {
        let limits = format!("a ring has 1 to {ENTRIES_MAX} entries, not {entries}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, limits));
    }
    let [best, others @ ..] = WAYS;
    let first = build_one(best, entries, entry_bytes);
    let built = others
        .iter()
        .fold(first, |built, way| built.or_else(|_| build_one(*way, entries, entry_bytes)));
    let uring = built.map_err(|error| {
        let why = format!("no io_uring here (old kernel, io_uring_disabled or seccomp?): {error}");
        io::Error::new(error.kind(), why)
    })?;
    let params = uring.params();
    let has_all = params.is_feature_ext_arg()
        && params.is_feature_nodrop()
        && params.is_feature_submit_stable();
    if !has_all {
        let why = "the kernel's io_uring is too old: Linux 5.11 or later is needed";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(uring)
}

fn build_one(way: Way, entries: u32, entry_bytes: EntryBytes) -> io::Result<Uring> {
    Ok(match entry_bytes {
        EntryBytes::Narrow => Uring::Narrow(build_with(way, entries)?),
        EntryBytes::Wide => Uring::Wide(build_with(way, entries)?),
    })
}

fn build_with<S: squeue::EntryMarker>(way: Way, entries: u32) -> io::Result<IoUring<S>> {
    let mut builder = IoUring::<S>::builder();
    builder.dontfork();
    match way {
        Way::Deferred => {
            builder.setup_single_issuer().setup_defer_taskrun();
            builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
        }
        Way::Cooperative => {
            builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
        }
        Way::Plain => {}
    }
    // One place for each operation, one to cancel each, one each for reading the doorbell and
    // cancelling that.
    builder.build(2 * entries + 2)
}

#[cfg(test)]
mod tests {
    use super::{EntryBytes, WAYS, build_one};
    use crate::{Executor, Ring, Schedule, mailbox};
    use ashlar_iobuf::BufMut;
    use std::io::Write;
    use std::sync::Arc;

    /// Older kernels take the later ways; this one can do all of them, so each is tried here.
    #[test]
    fn every_way_of_building_reads_a_pipe_and_hears_other_threads() {
        let sizes = [EntryBytes::Narrow, EntryBytes::Wide];
        for (way, size) in WAYS.into_iter().flat_map(|way| sizes.map(|size| (way, size))) {
            let uring = build_one(way, 4, size).expect("these tests need io_uring of Linux 6.1");
            let ring = Ring::on(uring, 4).expect("a ring");
            let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
            let (sender, mut receiver) = mailbox::mailbox(&executor.handle());
            let (reader, mut writer) = std::io::pipe().expect("a pipe");
            let reader = Arc::new(reader.into());
            let far = std::thread::spawn(move || {
                for message in 0..100_u8 {
                    writer.write_all(&[message]).expect("the reader lives");
                    sender.send(message);
                }
            });
            executor.block_on(async {
                for message in 0..100 {
                    let (read, buf) = ring.read_at(&reader, 0, BufMut::zeroed(1)).await;
                    assert_eq!((read.expect("read"), buf[0]), (1, message), "{way:?} {size:?}");
                    assert_eq!(receiver.receive().await, message, "{way:?} {size:?}");
                }
            });
            far.join().expect("the thread ended well");
        }
    }
}
