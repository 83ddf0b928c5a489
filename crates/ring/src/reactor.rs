//! The seam between the executor and the world: where time and events come from.
//!
//! The executor asks a [`Reactor`] for the time, lets it deliver completions once a turn, and parks
//! in it when no task is ready. io_uring is one reactor ([`Ring::reactor`](crate::Ring::reactor)),
//! [`VirtualReactor`](crate::VirtualReactor) another. Not here: which task runs next; a reactor
//! only makes tasks ready.

use crate::Ring;
use ashlar_units::Nanos;
use std::sync::Arc;

/// Where events come from: io_uring in life, a simulated world in tests.
pub trait Reactor {
    /// Now, by this world's clock. Never goes back.
    fn now(&self) -> Nanos;

    /// Hands over what was prepared and delivers completions (by completing `Pending`s). With
    /// [`Park::Until`], and if nothing is there, sleeps until a completion, an unpark or the
    /// deadline. May return early without a reason; must not sleep if an unpark came since the last
    /// turn that could sleep. What the clock said when it woke up, or says now.
    fn turn(&mut self, park: Park) -> Nanos;

    /// What wakes a parked turn from another thread.
    fn unparker(&self) -> Arc<dyn Unpark>;

    /// The io_uring behind this reactor, if it is one.
    fn ring(&self) -> Option<Ring> {
        None
    }
}

/// Whether a turn of the reactor may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Park {
    /// Tasks are ready: look, do not wait.
    No,
    /// No task is ready: wait for an event until this moment; `None` is for ever.
    Until(Option<Nanos>),
}

/// Wakes one reactor, from any thread.
pub trait Unpark: Send + Sync {
    /// Ends the current sleep of the reactor, or else its next one before it begins. Cheap when it
    /// is not asleep.
    fn unpark(&self);
}
