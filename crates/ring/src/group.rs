//! Several answers and one waiter: what one task asks of several devices at once.
//!
//! What must stay true: the waiter is woken when the last answer is there, and not before, unless
//! it wants to see each. An answer stays where it was put until it is taken. A half that ends last
//! frees the place, exactly once. There is no allocation once the supply has seen its high-water
//! mark. No value and no waker is dropped or run while the supply is borrowed. Not here: one-shots
//! with one answer (`oneshot`).

use crate::oneshot::{Completion, Completions, Pool};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Answers that one group has at most.
pub const GROUP_MAX: usize = 4;

/// The answers, by the order in which their completions were made.
type Answers<T> = [Option<T>; GROUP_MAX];

/// Places of groups, used again.
pub(crate) struct Places<T> {
    places: Vec<Place<T>>,
    free: Vec<usize>,
}

/// What the halves of one group share.
struct Place<T> {
    answers: Answers<T>,
    /// All completions, one bit each.
    asked: u8,
    /// Those that have ended, one bit each.
    ended: u8,
    /// Those whose answer is there and was not taken, one bit each.
    untaken: u8,
    /// The waiter wants to see each answer.
    is_seeing_each: bool,
    is_orphaned: bool,
    waker: Option<Waker>,
}

/// The waiting half of several one-shots. Resolves when the last one has ended; then the answers
/// can be taken.
///
/// # Cancellation
/// Dropping it makes the values be dropped when they arrive.
pub struct Group<T> {
    pool: Rc<Pool<T>>,
    place: usize,
    /// Completions that were not made, one bit each.
    unmade: u8,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Places { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Places<T> {
    #[inline]
    fn take(&mut self, asked: u8) -> usize {
        if let Some(place) = self.free.pop() {
            self.places[place].asked = asked;
            return place;
        }
        self.places.push(Place {
            answers: [const { None }; GROUP_MAX],
            asked,
            ended: 0,
            untaken: 0,
            is_seeing_each: false,
            is_orphaned: false,
            waker: None,
        });
        self.places.len() - 1
    }

    /// Nobody refers to the place any more, and its answers were taken.
    #[inline]
    fn free(&mut self, at: usize) {
        let place = &mut self.places[at];
        (place.ended, place.untaken) = (0, 0);
        (place.is_seeing_each, place.is_orphaned) = (false, false);
        self.free.push(at);
    }

    pub(crate) fn is_orphaned(&self, at: usize) -> bool {
        self.places[at].is_orphaned
    }
}

impl<T> Place<T> {
    #[inline]
    fn has_all(&self) -> bool {
        self.ended == self.asked
    }

    /// Whether there is something that nobody took.
    #[inline]
    fn has_more(&self) -> bool {
        self.untaken != 0 || self.waker.is_some()
    }

    /// All of that, to be dropped outside of any borrow.
    fn take_rest(&mut self) -> (Answers<T>, Option<Waker>) {
        (self.answers.each_mut().map(Option::take), self.waker.take())
    }
}

impl<T> Completions<T> {
    /// A new group of `count` answers to wait for.
    ///
    /// # Panics
    /// If these are more than [`GROUP_MAX`].
    #[inline]
    pub fn group(&self, count: usize) -> Group<T> {
        assert!(count <= GROUP_MAX, "a group has {GROUP_MAX} answers at most");
        let asked = (1 << count) - 1;
        let place = self.pool.groups.borrow_mut().take(asked);
        Group { pool: Rc::clone(&self.pool), place, unmade: asked }
    }
}

impl<T> Pool<T> {
    /// One of a group's completions has ended.
    #[inline]
    pub(crate) fn answer(&self, at: usize, part: u8, value: Option<T>) {
        let mut places = self.groups.borrow_mut();
        let place = &mut places.places[at];
        place.ended |= 1 << part;
        let is_last = place.has_all();
        if place.is_orphaned {
            if is_last {
                places.free(at);
            }
            drop(places);
            drop(value);
            return;
        }
        place.untaken |= u8::from(value.is_some()) << part;
        place.answers[usize::from(part)] = value;
        let waker = if is_last || place.is_seeing_each { place.waker.take() } else { None };
        drop(places);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Group<T> {
    /// What gives the answer of this number.
    ///
    /// # Panics
    /// If the group has no such answer, or its completion was made before.
    #[inline]
    pub fn completion(&mut self, at: usize) -> Completion<T> {
        let unmade = usize::from(self.unmade) >> at & 1;
        assert!(unmade == 1, "each answer of a group is given once");
        self.unmade &= !(1 << at);
        let part = u8::try_from(at).expect("a group has few answers");
        Completion::of_group(Rc::clone(&self.pool), self.place, part)
    }

    /// Use it again, for `count` other answers.
    ///
    /// # Panics
    /// If these are more than [`GROUP_MAX`], or an answer from before was not given and taken.
    #[inline]
    pub fn begin_again(&mut self, count: usize) {
        assert!(count <= GROUP_MAX, "a group has {GROUP_MAX} answers at most");
        let mut places = self.pool.groups.borrow_mut();
        let place = &mut places.places[self.place];
        let is_over = self.unmade == 0 && place.has_all() && !place.has_more();
        assert!(is_over, "a group is used again when its answers are taken");
        self.unmade = (1 << count) - 1;
        (place.asked, place.ended) = (self.unmade, 0);
    }

    /// Whether all answers are there.
    #[inline]
    pub fn has_all(&self) -> bool {
        self.pool.groups.borrow().places[self.place].has_all()
    }

    /// The answer of this number, if it is there and was not taken; never if its completion was
    /// dropped unfinished.
    #[inline]
    pub fn take(&mut self, at: usize) -> Option<T> {
        let place = &mut self.pool.groups.borrow_mut().places[self.place];
        place.untaken &= !(1 << at);
        place.answers[at].take()
    }

    /// Which answers are there, one bit each, once these are more than `seen`, or all.
    pub fn poll_more(&mut self, seen: u8, context: &mut Context<'_>) -> Poll<u8> {
        let mut places = self.pool.groups.borrow_mut();
        let place = &mut places.places[self.place];
        if place.ended != seen || place.has_all() {
            return Poll::Ready(place.ended);
        }
        place.is_seeing_each = true;
        let before = place.waker.replace(context.waker().clone());
        drop(places);
        drop(before);
        Poll::Pending
    }
}

impl<T> Unpin for Group<T> {}

impl<T> Future for Group<T> {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut places = self.pool.groups.borrow_mut();
        let place = &mut places.places[self.place];
        place.is_seeing_each = false;
        if place.has_all() {
            return Poll::Ready(());
        }
        let before = match &place.waker {
            Some(known) if known.will_wake(context.waker()) => None,
            _ => place.waker.replace(context.waker().clone()),
        };
        drop(places);
        drop(before);
        Poll::Pending
    }
}

impl<T> Drop for Group<T> {
    #[inline]
    fn drop(&mut self) {
        let mut places = self.pool.groups.borrow_mut();
        let place = &mut places.places[self.place];
        // Nobody will give those.
        place.ended |= self.unmade;
        if place.has_all() && !place.has_more() {
            return places.free(self.place);
        }
        let rest = place.take_rest();
        place.is_orphaned = true;
        if place.has_all() {
            places.free(self.place);
        }
        drop(places);
        drop(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::{Completions, GROUP_MAX};
    use std::cell::Cell;
    use std::pin::Pin;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counted() -> (Arc<Wakes>, Waker) {
        let wakes = Arc::new(Wakes(AtomicUsize::new(0)));
        (Arc::clone(&wakes), Waker::from(wakes))
    }

    #[test]
    fn the_waiter_is_woken_once_by_the_last_answer() {
        let supply = Completions::new();
        let (wakes, waker) = counted();
        let mut context = Context::from_waker(&waker);
        for round in 0..3 {
            let mut group = supply.group(3);
            let [first, second, third] = [0, 1, 2].map(|at| group.completion(at));
            assert!(Pin::new(&mut group).poll(&mut context).is_pending());
            second.complete(2);
            drop(third);
            assert_eq!(wakes.0.load(Ordering::Relaxed), round, "two of three are no reason");
            assert!(Pin::new(&mut group).poll(&mut context).is_pending());
            first.complete(1);
            assert_eq!(wakes.0.load(Ordering::Relaxed), round + 1);
            assert!(Pin::new(&mut group).poll(&mut context).is_ready());
            assert_eq!([0, 1, 2, 3].map(|at| group.take(at)), [Some(1), Some(2), None, None]);
            assert_eq!(group.take(0), None, "an answer is taken once");
            group.begin_again(2);
            assert!(!group.has_all());
            drop(group.completion(0));
            group.completion(1).complete(4);
            assert_eq!([0, 1].map(|at| group.take(at)), [None, Some(4)]);
        }
        assert_eq!(supply.pool.groups.borrow().places.len(), 1, "the place is used again");
    }

    #[test]
    fn a_waiter_that_wants_to_see_each_answer_is_woken_by_each() {
        let supply = Completions::new();
        let (wakes, waker) = counted();
        let mut context = Context::from_waker(&waker);
        let mut group = supply.group(2);
        let [first, second] = [0, 1].map(|at| group.completion(at));
        assert!(group.poll_more(0, &mut context).is_pending());
        second.complete(2);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(group.poll_more(0, &mut context), Poll::Ready(0b10));
        assert!(group.poll_more(0b10, &mut context).is_pending());
        first.complete(1);
        assert_eq!(group.poll_more(0b10, &mut context), Poll::Ready(0b11));
        assert!(Pin::new(&mut group).poll(&mut context).is_ready());
    }

    #[test]
    fn values_of_a_dropped_group_are_dropped_and_its_place_is_free_after_the_last() {
        let supply = Completions::new();
        let value = Rc::new(Cell::new(()));
        let mut group = supply.group(2);
        let [first, second] = [0, 1].map(|at| group.completion(at));
        first.complete(Rc::clone(&value));
        drop(group);
        assert!(second.is_orphaned());
        assert_eq!(supply.pool.groups.borrow().free.len(), 0, "a completion refers to it");
        second.complete(Rc::clone(&value));
        assert_eq!(supply.pool.groups.borrow().free.len(), 1);
        assert_eq!(Rc::strong_count(&value), 1);
        drop(supply.group(0));
        drop(supply.group(2));
        let mut group = supply.group(2);
        group.completion(1).complete(value);
        drop(group);
        assert_eq!(supply.pool.groups.borrow().free.len(), 1, "one whose answers nobody gives");
    }

    #[test]
    #[should_panic(expected = "4 answers at most")]
    fn a_group_has_no_more_answers_than_it_has_places_for() {
        drop(Completions::<()>::new().group(GROUP_MAX + 1));
    }

    #[test]
    #[should_panic(expected = "when its answers are taken")]
    fn a_group_whose_answers_are_not_taken_is_not_used_again() {
        let mut group = Completions::new().group(1);
        group.completion(0).complete(7);
        group.begin_again(1);
    }

    #[test]
    #[should_panic(expected = "is given once")]
    fn an_answer_is_given_once() {
        let mut group = Completions::<()>::new().group(2);
        drop(group.completion(1));
        drop(group.completion(1));
    }
}
