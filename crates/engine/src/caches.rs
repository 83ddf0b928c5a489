//! Writes that only the members' caches hold: they were answered, but neither a log nor the media
//! have them yet.
//!
//! What must stay true: a write is noted before it is answered and before its rows are unlocked. A
//! flush round that ends well removes exactly the writes that were noted before it began.
//!
//! - *unlogged*: everything that FLUSH must still make durable
//! - *logged*: writes that the log has, and that are in place, but perhaps no further than in a
//!   cache
//! - *relaxed*: whole stripes whose record has no data; on a degraded array parity must not rest on
//!   them

use std::sync::atomic::{AtomicU64, Ordering};

/// What only caches hold, of one array.
#[derive(Default)]
pub(crate) struct Caches {
    unlogged: Tide,
    relaxed: Tide,
    logged: Tide,
}

/// Counts of writes of one kind.
#[derive(Default)]
struct Tide {
    noted: AtomicU64,
    flushed: AtomicU64,
}

/// What was noted when a flush began.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    unlogged: u64,
    relaxed: u64,
    logged: u64,
}

impl Caches {
    /// A write that is not in the log is on the members.
    pub(crate) fn note_unlogged(&self) {
        self.unlogged.note();
    }

    /// A whole stripe is on the members whose record has no data.
    pub(crate) fn note_relaxed(&self) {
        self.relaxed.note();
        self.unlogged.note();
    }

    /// A write that is in the log is on the members: its number, to be asked about later.
    pub(crate) fn note_logged(&self) -> u64 {
        self.logged.note()
    }

    /// Whether caches may hold the logged write of that number.
    pub(crate) fn hold_logged(&self, number: u64) -> bool {
        self.logged.flushed.load(Ordering::Acquire) < number
    }

    /// Whether FLUSH has anything to do on an array with a log.
    pub(crate) fn hold_unlogged(&self) -> bool {
        self.unlogged.is_held()
    }

    /// Whether relaxed writes are held.
    pub(crate) fn hold_relaxed(&self) -> bool {
        self.relaxed.is_held()
    }

    /// Writes noted so far, of every kind.
    pub(crate) fn noted(&self) -> u64 {
        self.unlogged.now() + self.logged.now()
    }

    /// To be taken before a flush round begins.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            unlogged: self.unlogged.now(),
            relaxed: self.relaxed.now(),
            logged: self.logged.now(),
        }
    }

    /// The round went well, members and maps.
    pub(crate) fn flushed(&self, mark: Mark) {
        self.unlogged.flushed.fetch_max(mark.unlogged, Ordering::AcqRel);
        self.relaxed.flushed.fetch_max(mark.relaxed, Ordering::AcqRel);
        self.logged.flushed.fetch_max(mark.logged, Ordering::AcqRel);
    }
}

impl Tide {
    fn note(&self) -> u64 {
        self.noted.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn now(&self) -> u64 {
        self.noted.load(Ordering::Acquire)
    }

    fn is_held(&self) -> bool {
        self.flushed.load(Ordering::Acquire) < self.now()
    }
}

#[cfg(test)]
mod tests {
    use super::Caches;

    #[test]
    fn a_flush_takes_out_what_was_noted_before_it_began() {
        let caches = Caches::default();
        assert!(!caches.hold_unlogged());
        caches.note_relaxed();
        let mark = caches.mark();
        caches.note_unlogged();
        caches.flushed(mark);
        assert!(caches.hold_unlogged() && !caches.hold_relaxed());
        caches.flushed(caches.mark());
        assert!(!caches.hold_unlogged());
        caches.flushed(mark);
        assert!(!caches.hold_unlogged(), "rounds may end in any order");
        let first = caches.note_logged();
        let mark = caches.mark();
        let second = caches.note_logged();
        caches.flushed(mark);
        assert!(!caches.hold_logged(first) && caches.hold_logged(second));
    }
}
