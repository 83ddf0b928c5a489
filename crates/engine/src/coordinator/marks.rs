//! What is known of the flush marks of an array (`proof.rs`).

use super::rounds::Rounds;
use ashlar_ring::local::Semaphore;
use ashlar_units::Nanos;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// What the coordinator knows of the marks of its array.
pub(crate) struct Marks {
    /// The newest mark.
    pub(super) sequence: Cell<u64>,
    /// The mark that is durable on every device in service.
    pub(super) flushed: Cell<u64>,
    /// One mark is written at a time, so that each is on every device before the next.
    pub(super) gate: Semaphore,
    pub(super) rounds: Rounds,
    /// When a client's flush may ask for the next proof.
    pub(super) not_before: Cell<Nanos>,
    /// When a change of the kept map may ask for the next mark.
    pub(super) no_mark_before: Cell<Nanos>,
}

impl Marks {
    /// Go on above what the members carry.
    pub(crate) fn after(sequence: u64, flushed: u64) -> Self {
        Marks {
            sequence: Cell::new(sequence),
            flushed: Cell::new(flushed),
            gate: Semaphore::new(1),
            rounds: Rounds::default(),
            not_before: Cell::new(Nanos::default()),
            no_mark_before: Cell::new(Nanos::default()),
        }
    }
}

/// Whether there is anything to prove; any worker asks.
#[derive(Default)]
pub(crate) struct Unproven {
    /// Writes that had been noted when the last proof began.
    pub(super) proven: AtomicU64,
    /// How often a job has flushed what it filled.
    pub(super) filled: AtomicU64,
    /// A proof is on its way.
    pub(super) is_asked_for: AtomicBool,
    /// A mark after a change of the kept map is on its way.
    pub(super) is_mark_asked_for: AtomicBool,
}
