//! A reactor without a world: time stands still while tasks are ready and jumps to the next
//! deadline when none is.
//!
//! Tests and simulations run on it: an hour of timeouts takes no time and is the same every time.
//! Nothing else could wake a task, so parking without a deadline is a deadlock and stops the
//! program. Not here: devices; they are tasks that sleep.

use crate::reactor::{Park, Reactor, Unpark};
use ashlar_units::Nanos;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A reactor with a virtual clock and no events but timers.
pub struct VirtualReactor {
    clock: VirtualClock,
    unparked: Arc<Flag>,
}

/// Reads the clock of a [`VirtualReactor`] from outside its executor. Clone shares it.
#[derive(Clone)]
pub struct VirtualClock {
    now: Rc<Cell<Nanos>>,
}

impl VirtualClock {
    /// The virtual time.
    pub fn now(&self) -> Nanos {
        self.now.get()
    }
}

struct Flag(AtomicBool);

impl Unpark for Flag {
    fn unpark(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl VirtualReactor {
    /// A world whose clock begins at 0.
    pub fn new() -> Self {
        Self::starting_at(Nanos(0))
    }

    /// A world whose clock begins at `start`.
    pub fn starting_at(start: Nanos) -> Self {
        let clock = VirtualClock { now: Rc::new(Cell::new(start)) };
        VirtualReactor { clock, unparked: Arc::new(Flag(AtomicBool::new(false))) }
    }

    /// A view of the clock that stays valid after the reactor went to its executor.
    pub fn clock(&self) -> VirtualClock {
        self.clock.clone()
    }
}

impl Default for VirtualReactor {
    fn default() -> Self {
        Self::new()
    }
}

impl Reactor for VirtualReactor {
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// # Panics
    /// If every task waits and no timer is set: nothing could ever happen again.
    fn turn(&mut self, park: Park) -> Nanos {
        let Park::Until(deadline) = park else { return self.now() };
        if !self.unparked.0.swap(false, Ordering::Acquire) {
            let deadline = deadline.expect("deadlock: every task waits and no timer is set");
            self.clock.now.set(self.now().max(deadline));
        }
        self.now()
    }

    fn unparker(&self) -> Arc<dyn Unpark> {
        Arc::<Flag>::clone(&self.unparked)
    }
}
