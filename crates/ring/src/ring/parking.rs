//! The reactor of a ring, and the doorbell that ends its sleep from other threads.
//!
//! What must stay true: an unpark is never lost (it finds the reactor parked and rings, or is found
//! by the next attempt to park), and only one that finds it parked costs a system call: one that
//! looks for completions before it parks is not parked. The clock is CLOCK_MONOTONIC: this is the
//! one place of the engine where real time comes from. Not here: tasks; how long to look
//! (`spinning`).

use super::spinning::{Asking, Spinning};
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
    spinning: Spinning,
}

/// Looks between two readings of the clock, which take about as long as all of them.
const LOOKS: u32 = 16;

/// A call that hands something over and ends within so many nanoseconds did not wait: what it
/// handed over was done at once.
const AT_ONCE: u64 = 3_000;

impl UringReactor {
    /// It looks for completions for at most `spin_most` before it sleeps.
    pub(super) fn new(ring: Ring, spin_most: Duration) -> Self {
        UringReactor { ring, spinning: Spinning::new(spin_most) }
    }

    /// Nothing is there: waits until something is, or the deadline. The clock after that.
    fn wait(&mut self, deadline: Option<Nanos>) -> Nanos {
        let mut begun = self.now();
        if !self.spinning.is_on() {
            self.ring.shared.park(deadline.map(|deadline| deadline.since(begun)));
            return self.now();
        }
        let mut asleep = begun;
        let mut may_end_at_once = self.ring.shared.in_flight.borrow().has_unsubmitted();
        if let Some(most) = self.spinning.begin() {
            if self.ring.shared.has_completions_once_submitted() {
                return self.now();
            }
            begun = self.now();
            may_end_at_once = false;
            let most = deadline.map_or(most, |deadline| most.min(nanos(deadline.since(begun))));
            let is_hit = self.look(begun, most);
            self.spinning.looked(is_hit);
            asleep = self.now();
            let took = nanos(asleep.since(begun));
            self.ring.shared.in_flight.borrow_mut().note_look(is_hit, took);
            if is_hit {
                self.spinning.waited(took);
                return asleep;
            }
        }
        self.ring.shared.park(deadline.map(|deadline| deadline.since(asleep)));
        let now = self.now();
        let waited = nanos(now.since(begun));
        if !may_end_at_once || waited > AT_ONCE {
            self.spinning.waited(waited);
        }
        now
    }

    /// Looks for completions and unparks, for so many nanoseconds, and asks the kernel for those it
    /// keeps. Whether there are any.
    fn look(&self, begun: Nanos, most: u64) -> bool {
        let shared = &self.ring.shared;
        let mut in_flight = shared.in_flight.borrow_mut();
        // The kernel may say for long that it keeps completions, and keep none: it is asked less
        // and less often.
        let mut asking = Asking::default();
        loop {
            for _ in 0..LOOKS {
                if in_flight.has_completions() || shared.doorbell.take_ring() {
                    return true;
                }
                if asking.is_due(in_flight.may_keep_completions()) {
                    in_flight.submit();
                }
                std::hint::spin_loop();
            }
            if nanos(self.now().since(begun)) >= most {
                return false;
            }
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Reactor for UringReactor {
    fn now(&self) -> Nanos {
        let now = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).expect("the monotonic clock begins at boot");
        let nanos = u64::try_from(now.tv_nsec).expect("nanoseconds are not negative");
        Nanos(seconds * 1_000_000_000 + nanos)
    }

    fn turn(&mut self, park: Park) -> Nanos {
        let now = match park {
            Park::No => {
                self.ring.shared.in_flight.borrow_mut().submit();
                self.now()
            }
            // Tasks that wake up now will prepare more to submit: do it in one call then.
            Park::Until(_) if self.ring.shared.reap() > 0 => return self.now(),
            Park::Until(deadline) => self.wait(deadline),
        };
        self.ring.shared.reap();
        now
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

    /// Submits, and says whether something has completed by then.
    fn has_completions_once_submitted(&self) -> bool {
        let mut in_flight = self.in_flight.borrow_mut();
        in_flight.submit();
        in_flight.has_completions()
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

    /// Takes note of an unpark that came since the last look, if one did.
    fn take_ring(&self) -> bool {
        self.state.load(Ordering::Acquire) == RUNG
            && self.state.swap(AWAKE, Ordering::AcqRel) == RUNG
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

#[cfg(test)]
mod tests {
    use super::Doorbell;
    use crate::reactor::Unpark;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn was_rung(doorbell: &Doorbell) -> bool {
        let mut polled = [PollFd::new(&doorbell.eventfd, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("poll") == 1
    }

    #[test]
    fn an_unpark_of_one_that_is_awake_rings_nothing_and_is_taken_once() {
        let doorbell = Doorbell::new().expect("an eventfd");
        assert!(!doorbell.take_ring());
        for _ in 0..3 {
            doorbell.unpark();
        }
        assert!(doorbell.take_ring());
        assert!(!doorbell.take_ring());
        doorbell.unpark();
        assert!(!doorbell.begin_park(), "it must not sleep now");
        assert!(doorbell.begin_park(), "it was taken note of");
        doorbell.end_park();
        assert!(!was_rung(&doorbell));
    }

    #[test]
    fn an_unpark_of_one_that_sleeps_rings_once() {
        let doorbell = Doorbell::new().expect("an eventfd");
        assert!(doorbell.begin_park());
        doorbell.unpark();
        doorbell.unpark();
        assert!(was_rung(&doorbell));
        let mut count = [0; 8];
        rustix::io::read(&doorbell.eventfd, &mut count).expect("a count");
        assert_eq!(u64::from_ne_bytes(count), 1);
        doorbell.end_park();
        assert!(!doorbell.take_ring());
    }
}
