//! One-shots within an executor: one task completes, another waits, and the place they share is
//! used again.
//!
//! What must stay true: the half that ends last frees the place, exactly once. There is no
//! allocation once the pool has seen its high-water mark. No value and no waker is dropped or run
//! while the pool is borrowed. Not here: threads; see [`mailbox`](crate::mailbox).

use crate::group::Places;
use slab::Slab;
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A supply of one-shots that recycles them. Clone shares it.
pub struct Completions<T> {
    pub(crate) pool: Rc<Pool<T>>,
}

pub(crate) struct Pool<T> {
    stages: RefCell<Slab<Stage<T>>>,
    /// Of several answers each.
    pub(crate) groups: RefCell<Places<T>>,
}

/// How far a one-shot is.
enum Stage<T> {
    /// Both halves live, nobody has asked yet.
    Fresh,
    /// Both halves live, and this is whom to wake.
    Awaited(Waker),
    /// The value is there; the waiting half frees the place.
    Done(T),
    /// The completing half was dropped; the waiting half frees the place.
    Abandoned,
    /// The waiting half was dropped; the completing half frees the place.
    Orphaned,
}

/// The place was given up.
const SPENT: u32 = u32::MAX;

/// The part of a completion that is no part of a group.
const ALONE: u8 = u8::MAX;

impl<T> Clone for Completions<T> {
    fn clone(&self) -> Self {
        Completions { pool: Rc::clone(&self.pool) }
    }
}

impl<T> Default for Completions<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Completions<T> {
    /// An empty supply.
    pub fn new() -> Self {
        let (stages, groups) = (RefCell::new(Slab::new()), RefCell::default());
        Completions { pool: Rc::new(Pool { stages, groups }) }
    }

    /// A new one-shot: the first half completes it, the second half waits.
    #[inline]
    pub fn pair(&self) -> (Completion<T>, Pending<T>) {
        let place = self.pool.stages.borrow_mut().insert(Stage::Fresh);
        let completion =
            Completion { pool: Rc::clone(&self.pool), place: short(place), part: ALONE };
        let from = Source::Other { pool: Rc::clone(&self.pool), place };
        (completion, Pending { from })
    }

    #[cfg(test)]
    fn in_use(&self) -> usize {
        self.pool.stages.borrow().len()
    }
}

/// One half of a local (same executor) one-shot: pooled, no allocation once warm.
///
/// The same for one answer of a [`Group`](crate::Group).
pub struct Completion<T> {
    pool: Rc<Pool<T>>,
    place: u32,
    /// Which answer of its group, or [`ALONE`].
    part: u8,
}

/// Every operation under way has one.
const _: () = assert!(size_of::<Completion<u64>>() <= 16);

/// The number of a place, in as few bytes as there are places for.
#[inline]
fn short(place: usize) -> u32 {
    u32::try_from(place).expect("fewer than 2^32 one-shots are under way")
}

impl<T> Completion<T> {
    #[inline]
    pub(crate) fn of_group(pool: Rc<Pool<T>>, place: usize, part: u8) -> Completion<T> {
        Completion { pool, place: short(place), part }
    }

    #[inline]
    fn at(&self) -> usize {
        usize::try_from(self.place).expect("a place is an index")
    }

    /// Hands over the value and wakes the waiter. Without a waiter, the value is dropped.
    #[inline]
    pub fn complete(mut self, value: T) {
        self.end(Some(value));
    }

    /// Whether the waiting half was dropped, so that completing is in vain.
    pub fn is_orphaned(&self) -> bool {
        if self.part != ALONE {
            return self.pool.groups.borrow().is_orphaned(self.at());
        }
        matches!(self.pool.stages.borrow()[self.at()], Stage::Orphaned)
    }

    #[inline]
    fn end(&mut self, value: Option<T>) {
        if self.part == ALONE {
            self.finish(value.map_or(Stage::Abandoned, Stage::Done));
        } else {
            self.pool.answer(self.at(), self.part, value);
        }
        self.place = SPENT;
    }

    #[inline]
    fn finish(&self, last: Stage<T>) {
        let at = self.at();
        let mut stages = self.pool.stages.borrow_mut();
        let stage = &mut stages[at];
        if matches!(stage, Stage::Orphaned) {
            stages.remove(at);
            drop(stages);
            drop(last);
        } else {
            let before = std::mem::replace(stage, last);
            drop(stages);
            if let Stage::Awaited(waker) = before {
                waker.wake();
            }
        }
    }
}

impl<T> Drop for Completion<T> {
    #[inline]
    fn drop(&mut self) {
        if self.place != SPENT {
            self.end(None);
        }
    }
}

/// The waiting half. Resolves with the value, or with `None` if the [`Completion`] was dropped
/// unfinished.
///
/// # Cancellation
/// Dropping it makes the value be dropped when it arrives.
pub struct Pending<T> {
    from: Source<T>,
}

/// Where the value comes from.
enum Source<T> {
    /// From the owner of the other half.
    Other { pool: Rc<Pool<T>>, place: usize },
    /// It was there from the beginning.
    Here(T),
    /// It was given out.
    Nowhere,
}

impl<T> Pending<T> {
    /// A value that is there already: resolves at once, takes no place.
    #[inline]
    pub fn ready(value: T) -> Pending<T> {
        Pending { from: Source::Here(value) }
    }

    /// What awaiting it would bring at once; `None` if that has yet to come.
    ///
    /// # Panics
    /// If it has resolved before.
    #[inline]
    pub fn look(&mut self) -> Option<Option<T>> {
        let Source::Other { pool, place } = &self.from else {
            return match std::mem::replace(&mut self.from, Source::Nowhere) {
                Source::Here(value) => Some(Some(value)),
                _ => panic!("a one-shot was polled after it had resolved"),
            };
        };
        let mut stages = pool.stages.borrow_mut();
        if matches!(stages[*place], Stage::Fresh | Stage::Awaited(_)) {
            return None;
        }
        let stage = stages.remove(*place);
        drop(stages);
        self.from = Source::Nowhere;
        match stage {
            Stage::Done(value) => Some(Some(value)),
            _ => Some(None),
        }
    }

    /// Whom to wake.
    fn await_by(&self, waker: &Waker) {
        let Source::Other { pool, place } = &self.from else { return };
        let mut stages = pool.stages.borrow_mut();
        let stage = &mut stages[*place];
        if matches!(stage, Stage::Awaited(known) if known.will_wake(waker)) {
            return;
        }
        let before = std::mem::replace(stage, Stage::Awaited(waker.clone()));
        drop(stages);
        drop(before);
    }
}

/// A value that is here is moved, and never pinned.
impl<T> Unpin for Pending<T> {}

impl<T> Future for Pending<T> {
    type Output = Option<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        match self.look() {
            Some(value) => Poll::Ready(value),
            None => {
                self.await_by(cx.waker());
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Pending<T> {
    #[inline]
    fn drop(&mut self) {
        let Source::Other { pool, place } = &self.from else { return };
        let mut stages = pool.stages.borrow_mut();
        let stage = &mut stages[*place];
        let before = match stage {
            Stage::Done(_) | Stage::Abandoned => stages.remove(*place),
            _ => std::mem::replace(stage, Stage::Orphaned),
        };
        drop(stages);
        drop(before);
    }
}

#[cfg(test)]
mod tests {
    use super::Completions;
    use std::pin::pin;
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(future: F) -> Poll<F::Output> {
        pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn value_arrives_and_the_place_is_free_again() {
        let supply = Completions::new();
        for round in 0..3 {
            let (completion, mut pending) = supply.pair();
            assert_eq!(poll(&mut pending), Poll::Pending);
            completion.complete(round);
            assert_eq!(poll(&mut pending), Poll::Ready(Some(round)));
        }
        assert_eq!(supply.in_use(), 0);
    }

    #[test]
    fn value_that_is_there_from_the_beginning_takes_no_place() {
        let value = Rc::new(7);
        let mut pending = super::Pending::ready(Rc::clone(&value));
        assert_eq!(poll(&mut pending), Poll::Ready(Some(Rc::clone(&value))));
        drop(pending);
        drop(super::Pending::ready(Rc::clone(&value)));
        assert_eq!(Rc::strong_count(&value), 1);
    }

    #[test]
    fn a_look_takes_the_value_and_the_place_is_free() {
        let supply = Completions::new();
        let (completion, mut pending) = supply.pair();
        assert_eq!(pending.look(), None);
        completion.complete(7);
        assert_eq!(pending.look(), Some(Some(7)));
        assert_eq!(supply.in_use(), 0);
        let (completion, mut pending) = supply.pair();
        drop(completion);
        assert_eq!(pending.look(), Some(None));
        drop(pending);
        assert_eq!(supply.in_use(), 0);
        assert_eq!(super::Pending::ready(8).look(), Some(Some(8)));
    }

    #[test]
    #[should_panic(expected = "polled after it had resolved")]
    fn a_value_is_given_out_once() {
        let mut pending = super::Pending::ready(7);
        assert!(poll(&mut pending).is_ready());
        let _again = poll(&mut pending);
    }

    #[test]
    fn dropped_completion_resolves_with_none() {
        let supply = Completions::<u8>::new();
        let (completion, mut pending) = supply.pair();
        assert_eq!(poll(&mut pending), Poll::Pending);
        drop(completion);
        assert_eq!(poll(pending), Poll::Ready(None));
        assert_eq!(supply.in_use(), 0);
    }

    #[test]
    fn value_for_a_dropped_pending_is_dropped_on_arrival() {
        let supply = Completions::new();
        let value = Rc::new(());
        let (completion, pending) = supply.pair();
        drop(pending);
        assert!(completion.is_orphaned());
        completion.complete(Rc::clone(&value));
        assert_eq!(Rc::strong_count(&value), 1);
        let (completion, pending) = supply.pair();
        completion.complete(Rc::clone(&value));
        drop(pending);
        assert_eq!(Rc::strong_count(&value), 1);
        assert_eq!(supply.in_use(), 0);
    }
}
