//! Making the kernel's side of a ring with the best flags it knows.
//!
//! Tried best first: deferred task work (completions are handled only when we ask, 6.1), then cooperative
//! (no interrupts of the running thread, 5.19), then plain. Not here: use of the ring.

use io_uring::{IoUring, squeue};
use std::io;

/// The queue has two entries for each operation and the kernel's limit is 32,768.
const ENTRIES_MAX: u32 = 8192;

/// A ring for `entries` operations at once, of the calling thread.
pub(super) fn build(entries: u32) -> io::Result<IoUring> {
    if !(1..=ENTRIES_MAX).contains(&entries) {
        let limits = format!("a ring has 1 to {ENTRIES_MAX} entries, not {entries}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, limits));
    }
    // One place for each operation, one to cancel each, one each for reading the doorbell and cancelling that.
    let places = 2 * entries + 2;
    let uring = build_deferred(places)
        .or_else(|_| build_cooperative(places))
        .or_else(|_| IoUring::<squeue::Entry>::builder().dontfork().build(places))
        .map_err(|error| {
            let why =
                format!("no io_uring here (old kernel, io_uring_disabled or seccomp?): {error}");
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

fn build_deferred(places: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun();
    builder.setup_taskrun_flag().setup_submit_all().dontfork().build(places)
}

fn build_cooperative(places: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all().dontfork().build(places)
}
