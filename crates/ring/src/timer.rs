//! Deadlines of one executor: a binary heap whose entries can be removed from the middle.
//!
//! A dropped sleep leaves the heap at once: a timeout of 30 seconds that is cancelled a million
//! times a second must not pile up. Equal deadlines fire in the order they were set. A timer's
//! place belongs to its [`Sleep`] until that is dropped or done. Not here: the clock.

use crate::executor::Core;
use ashlar_units::Nanos;
use slab::Slab;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

struct Entry {
    deadline: Nanos,
    sequence: u64,
    timer: usize,
}

struct Timer {
    /// Where in the heap; `None` once it has fired.
    place: Option<usize>,
    waker: Option<Waker>,
}

/// The heap.
pub(crate) struct Timers {
    heap: Vec<Entry>,
    timers: Slab<Timer>,
    sequence: u64,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Timers { heap: Vec::new(), timers: Slab::new(), sequence: 0 }
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.heap.first().map(|entry| entry.deadline)
    }

    /// Takes out the first timer that is due and returns whom to wake.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<Waker> {
        while self.next_deadline()? <= now {
            let timer = self.remove_at(0);
            if let Some(waker) = self.timers[timer].waker.take() {
                return Some(waker);
            }
        }
        None
    }

    fn insert(&mut self, deadline: Nanos, waker: Waker) -> usize {
        let place = self.heap.len();
        let timer = self.timers.insert(Timer { place: Some(place), waker: Some(waker) });
        self.sequence += 1;
        self.heap.push(Entry { deadline, sequence: self.sequence, timer });
        self.sift_up(place);
        timer
    }

    /// Whether it has fired. If not, it will wake `waker`.
    fn check(&mut self, timer: usize, waker: &Waker) -> (bool, Option<Waker>) {
        let timer = &mut self.timers[timer];
        match (&timer.place, &timer.waker) {
            (None, _) => (true, None),
            (Some(_), Some(known)) if known.will_wake(waker) => (false, None),
            (Some(_), _) => (false, timer.waker.replace(waker.clone())),
        }
    }

    /// Frees the timer, fired or not. Returns its waker, to be dropped outside of any borrow.
    fn remove(&mut self, timer: usize) -> Option<Waker> {
        if let Some(place) = self.timers[timer].place {
            self.remove_at(place);
        }
        self.timers.remove(timer).waker
    }

    /// Takes the entry at `place` out of the heap and returns its timer.
    fn remove_at(&mut self, place: usize) -> usize {
        let entry = self.heap.swap_remove(place);
        if place < self.heap.len() {
            let moved = self.heap[place].timer;
            self.sift_up(place);
            let place = self.timers[moved].place.expect("still in the heap");
            self.sift_down(place);
        }
        self.timers[entry.timer].place = None;
        entry.timer
    }

    fn is_before(&self, left: usize, right: usize) -> bool {
        let key = |entry: &Entry| (entry.deadline, entry.sequence);
        key(&self.heap[left]) < key(&self.heap[right])
    }

    fn sift_up(&mut self, mut place: usize) {
        while place > 0 && self.is_before(place, (place - 1) / 2) {
            let parent = (place - 1) / 2;
            self.heap.swap(place, parent);
            self.note_place(place);
            place = parent;
        }
        self.note_place(place);
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            if left >= self.heap.len() {
                break;
            }
            let right = left + 1;
            let first =
                if right < self.heap.len() && self.is_before(right, left) { right } else { left };
            if self.is_before(place, first) {
                break;
            }
            self.heap.swap(place, first);
            self.note_place(place);
            place = first;
        }
        self.note_place(place);
    }

    fn note_place(&mut self, place: usize) {
        let timer = self.heap[place].timer;
        self.timers[timer].place = Some(place);
    }
}

/// Resolves once the executor's clock has reached a moment.
///
/// # Cancellation
/// Dropping it removes the timer.
pub struct Sleep {
    core: Rc<Core>,
    deadline: Nanos,
    timer: Option<usize>,
}

impl Sleep {
    pub(crate) fn new(core: Rc<Core>, deadline: Nanos) -> Self {
        Sleep { core, deadline, timer: None }
    }

    /// When it resolves.
    pub fn deadline(&self) -> Nanos {
        self.deadline
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.core.turn_now.get() >= self.deadline {
            return Poll::Ready(());
        }
        let core = Rc::clone(&self.core);
        let mut timers = core.timers.borrow_mut();
        let Some(timer) = self.timer else {
            self.timer = Some(timers.insert(self.deadline, cx.waker().clone()));
            return Poll::Pending;
        };
        let (fired, unused) = timers.check(timer, cx.waker());
        drop(timers);
        drop(unused);
        if fired { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            let unused = self.core.timers.borrow_mut().remove(timer);
            drop(unused);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Nanos, Timers};
    use crate::random::Random;
    use std::task::Waker;

    #[test]
    fn heap_with_removals_fires_the_rest_in_order() {
        let mut random = Random::from_seed(7);
        let mut timers = Timers::new();
        let mut live: Vec<(u64, usize)> = Vec::new();
        for _ in 0..1000 {
            let deadline = u64::try_from(random.below(50)).expect("small");
            live.push((deadline, timers.insert(Nanos(deadline), Waker::noop().clone())));
            if random.below(3) == 0 {
                let (_, timer) = live.swap_remove(random.below(live.len()));
                timers.remove(timer);
            }
        }
        live.sort_by_key(|(deadline, _)| *deadline);
        for (deadline, _) in &live {
            assert_eq!(timers.next_deadline(), Some(Nanos(*deadline)));
            assert!(timers.pop_due(Nanos(*deadline)).is_some());
        }
        assert_eq!(timers.next_deadline(), None);
        for (_, timer) in live {
            timers.remove(timer);
        }
        assert_eq!(timers.timers.len(), 0);
    }
}
