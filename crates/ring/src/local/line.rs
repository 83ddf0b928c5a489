//! A waiting line: first come first served, and any waiter may leave from the middle.
//!
//! A waiter gets a place and owns it until it leaves. A grant takes a waiter out of the line but
//! not out of its place, so it still learns of its turn, or passes it on if it is dropped first. No
//! allocation once warm. Not here: what is granted.

use slab::Slab;
use std::task::Waker;

/// The line.
pub(super) struct Line {
    waiters: Slab<Waiter>,
    first: Option<usize>,
    last: Option<usize>,
}

enum Waiter {
    InLine { waker: Waker, before: Option<usize>, after: Option<usize> },
    Granted,
}

impl Line {
    pub(super) const fn new() -> Self {
        Line { waiters: Slab::new(), first: None, last: None }
    }

    /// To the end of the line.
    pub(super) fn enter(&mut self, waker: Waker) -> usize {
        let place = self.waiters.insert(Waiter::InLine { waker, before: self.last, after: None });
        match self.last {
            Some(last) => *self.after_mut(last) = Some(place),
            None => self.first = Some(place),
        }
        self.last = Some(place);
        place
    }

    /// Whether it was this waiter's turn. If not, `waker` is woken later. Drop the second value
    /// outside of any borrow.
    pub(super) fn check(&mut self, place: usize, waker: &Waker) -> (bool, Option<Waker>) {
        match &mut self.waiters[place] {
            Waiter::Granted => (true, None),
            Waiter::InLine { waker: known, .. } if known.will_wake(waker) => (false, None),
            Waiter::InLine { waker: known, .. } => {
                (false, Some(std::mem::replace(known, waker.clone())))
            }
        }
    }

    /// Takes the first waiter out of the line; the caller wakes it.
    pub(super) fn grant_first(&mut self) -> Option<Waker> {
        let first = self.first?;
        self.unlink(first);
        match std::mem::replace(&mut self.waiters[first], Waiter::Granted) {
            Waiter::InLine { waker, .. } => Some(waker),
            Waiter::Granted => unreachable!("granted waiters are not in the line"),
        }
    }

    /// Gives the place up. Whether it had been granted, and a waker to be dropped outside of any
    /// borrow.
    pub(super) fn leave(&mut self, place: usize) -> (bool, Option<Waker>) {
        if matches!(self.waiters[place], Waiter::InLine { .. }) {
            self.unlink(place);
        }
        match self.waiters.remove(place) {
            Waiter::InLine { waker, .. } => (false, Some(waker)),
            Waiter::Granted => (true, None),
        }
    }

    fn unlink(&mut self, place: usize) {
        let Waiter::InLine { before, after, .. } = self.waiters[place] else {
            unreachable!("only waiters in the line are linked")
        };
        match before {
            Some(before) => *self.after_mut(before) = after,
            None => self.first = after,
        }
        match after {
            Some(after) => *self.before_mut(after) = before,
            None => self.last = before,
        }
    }

    fn after_mut(&mut self, place: usize) -> &mut Option<usize> {
        match &mut self.waiters[place] {
            Waiter::InLine { after, .. } => after,
            Waiter::Granted => unreachable!("neighbours in the line wait"),
        }
    }

    fn before_mut(&mut self, place: usize) -> &mut Option<usize> {
        match &mut self.waiters[place] {
            Waiter::InLine { before, .. } => before,
            Waiter::Granted => unreachable!("neighbours in the line wait"),
        }
    }
}
