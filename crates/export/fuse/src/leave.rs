//! Telling the servers of a mount to end and leave the mount, and what waits in it, as they are.
//!
//! What must stay true: who was told stays told; any thread may tell, and every server hears.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared by the servers of a mount. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Leave {
    is_told: Arc<AtomicBool>,
    /// Readable from then on: nobody takes its count.
    event: Arc<OwnedFd>,
}

impl Leave {
    /// Nobody is told yet.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new() -> io::Result<Leave> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Leave { is_told: Arc::default(), event: Arc::new(event) })
    }

    /// Servers finish the requests that they carry out, and read no more.
    ///
    /// # Errors
    /// The event cannot be raised: servers end with the next request.
    pub fn tell(&self) -> io::Result<()> {
        self.is_told.store(true, Ordering::Release);
        rustix::io::write(&self.event, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    pub(crate) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Acquire)
    }

    pub(crate) fn event(&self) -> &Arc<OwnedFd> {
        &self.event
    }
}
