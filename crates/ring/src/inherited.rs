//! Descriptors that the service manager hands to a process at its start: LISTEN_FDS of
//! sd_listen_fds(3).
//!
//! What must stay true: they are this process's, once. Not here: what they are.

use rustix::io::{FdFlags, fcntl_setfd};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The first of them.
const FIRST: RawFd = 3;

/// Whether somebody has taken them.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The descriptors that the service manager has passed to this very process, with their names, and
/// nobody else has taken. Child processes do not get them.
pub fn inherited_descriptors() -> Vec<(String, OwnedFd)> {
    let told = |name: &str| std::env::var(name).unwrap_or_default();
    if told("LISTEN_PID") != std::process::id().to_string() {
        return Vec::new();
    }
    let count = told("LISTEN_FDS").parse().unwrap_or(0).clamp(0, 4096);
    if IS_TAKEN.swap(true, Ordering::AcqRel) {
        return Vec::new();
    }
    let names = told("LISTEN_FDNAMES");
    let mut names = names.split(':');
    (FIRST..FIRST + count)
        .filter_map(|number| Some((names.next().unwrap_or_default().to_owned(), taken(number)?)))
        .collect()
}

/// `None` if there is no such descriptor.
fn taken(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: the value lives for one call, which fails if the number is not open.
    let there = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_setfd(there, FdFlags::CLOEXEC).ok()?;
    // SAFETY: it is open. The service manager gave it to this process by its id, and IS_TAKEN sees
    // that there is one owner.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}
