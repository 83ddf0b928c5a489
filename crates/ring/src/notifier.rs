//! Signals an eventfd that somebody else may have, and never waits for them.
//!
//! What must stay true: a signal takes no longer than a system call, whatever the other side does
//! with the eventfd. A plain write(2) waits while the count is at its end, and whether it may wait
//! is a flag that the other side can change at any time. So the kernel is asked to signal it, as it
//! does for a ring's completions: each notifier has a ring of one entry, whose completions are
//! announced there, and completes an operation that does nothing.

use io_uring::{IoUring, opcode};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Signals one eventfd.
pub struct Notifier {
    uring: IoUring,
}

impl Notifier {
    /// For this eventfd, which may be closed afterwards.
    ///
    /// # Errors
    /// What io_uring_setup(2) and io_uring_register(2) say: this is no eventfd, or there are no
    /// resources.
    pub fn new(event: impl AsFd) -> io::Result<Notifier> {
        let uring = IoUring::builder().dontfork().build(1)?;
        uring.submitter().register_eventfd(event.as_fd().as_raw_fd())?;
        Ok(Notifier { uring })
    }

    /// Adds one to its count, unless that is at its end.
    ///
    /// # Errors
    /// What io_uring_enter(2) says.
    pub fn notify(&mut self) -> io::Result<()> {
        let nothing = opcode::Nop::new().build();
        // SAFETY: the entry points at no memory.
        let pushed = unsafe { self.uring.submission().push(&nothing) };
        pushed.map_err(|_| io::ErrorKind::WouldBlock)?;
        self.uring.submit()?;
        self.uring.completion().for_each(drop);
        Ok(())
    }
}
