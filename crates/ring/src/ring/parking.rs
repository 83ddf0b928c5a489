//! The reactor of a ring, and the doorbell that ends its sleep from other threads.
//!
//! What must stay true: an unpark is never lost (it finds the reactor parked and rings, or is found
//! by the next attempt to park), and only one that finds it parked costs a system call. The clock
//! is CLOCK_MONOTONIC: this is the one place of the engine where real time comes from. Not here:
//! tasks.

use super::submit::{Ring, Shared};
use crate::reactor::{Park, Reactor, Unpark};
use ashlar_units::Nanos;
use io_uring::types::Timespec;
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Drives a ring for an executor.
pub(super) struct UringReactor {
    ring: Ring,
}

impl UringReactor {
    pub(super) fn new(ring: Ring) -> Self {
        UringReactor { ring }
    }
}

impl Reactor for UringReactor {
    fn now(&self) -> Nanos {
        let now = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).expect("the monotonic clock begins at boot");
        let nanos = u64::try_from(now.tv_nsec).expect("nanoseconds are not negative");
        Nanos(seconds * 1_000_000_000 + nanos)
    }

    fn turn(&mut self, park: Park) {
        let shared = &self.ring.shared;
        match park {
            Park::No => shared.in_flight.borrow_mut().submit(),
            // Tasks that wake up now will prepare more to submit: do it in one call then.
            Park::Until(_) if shared.reap() > 0 => return,
            Park::Until(deadline) => {
                let timeout = deadline.map(|deadline| deadline.since(self.now()));
                shared.park(timeout);
            }
        }
        shared.reap();
    }

    fn unparker(&self) -> Arc<dyn Unpark> {
        Arc::<Doorbell>::clone(&self.ring.shared.doorbell)
    }

    fn ring(&self) -> Option<Ring> {
        Some(self.ring.clone())
    }
}

impl Shared {
    /// Delivers what has completed; returns how many operations that were.
    fn reap(&self) -> usize {
        let mut count = 0;
        loop {
            let finished = self.in_flight.borrow_mut().next_finished();
            let Some(finished) = finished else { return count };
            self.deliver(finished);
            count += 1;
        }
    }

    /// Submits and sleeps, unless an unpark has come or there is no time to sleep.
    fn park(&self, timeout: Option<Duration>) {
        let mut in_flight = self.in_flight.borrow_mut();
        if timeout == Some(Duration::ZERO) {
            return in_flight.submit();
        }
        in_flight.arm_bell(self.doorbell.eventfd.as_fd());
        if self.doorbell.begin_park() {
            in_flight.submit_and_wait(timeout.map(Timespec::from));
            self.doorbell.end_park();
        } else {
            in_flight.submit();
        }
    }
}

/// Awake: an unpark needs to do nothing now, but the next park must not sleep.
const AWAKE: u8 = 0;
/// Asleep, or about to be: an unpark must ring.
const PARKED: u8 = 1;
/// An unpark came.
const RUNG: u8 = 2;

/// Wakes the ring's thread.
pub(super) struct Doorbell {
    state: AtomicU8,
    eventfd: OwnedFd,
}

impl Doorbell {
    pub(super) fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Doorbell { state: AtomicU8::new(AWAKE), eventfd })
    }

    /// Whether to sleep; `false` takes note of an unpark that came since.
    fn begin_park(&self) -> bool {
        let parked =
            self.state.compare_exchange(AWAKE, PARKED, Ordering::AcqRel, Ordering::Acquire);
        if parked.is_err() {
            self.state.swap(AWAKE, Ordering::AcqRel);
        }
        parked.is_ok()
    }

    fn end_park(&self) {
        self.state.swap(AWAKE, Ordering::AcqRel);
    }
}

impl Unpark for Doorbell {
    fn unpark(&self) {
        if self.state.swap(RUNG, Ordering::AcqRel) == PARKED {
            // Fails only if the count would pass 2^64 - 2; the ring reads it to zero each time.
            let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
        }
    }
}
