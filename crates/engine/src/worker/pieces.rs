//! Pieces of work in line, and the tasks that do them.
//!
//! What must stay true: pieces are taken in the order in which they came. A task that was called
//! finds a piece: the others leave one in line for each that was. A called task begins within the
//! task that brought the piece, where that may be. A task is listed as idle at most once. A piece
//! stays in line until a task has it.

use ashlar_ring::{Callable, Handle};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Poll;

/// The line, and who is idle.
pub(super) struct Pieces<T> {
    line: RefCell<VecDeque<T>>,
    /// Pieces that belong to tasks which were called and have yet to run.
    promised: Cell<usize>,
    idle: RefCell<Vec<Rc<Seat>>>,
}

/// One task that does pieces.
#[derive(Default)]
pub(crate) struct Seat {
    task: Cell<Option<Callable>>,
    is_listed: Cell<bool>,
    is_called: Cell<bool>,
}

impl Seat {
    /// This task has it.
    pub(crate) fn set_task(&self, task: Option<Callable>) {
        self.task.set(task);
    }
}

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Pieces { line: RefCell::default(), promised: Cell::new(0), idle: RefCell::default() }
    }
}

impl<T> Pieces<T> {
    /// Have a piece done: at once if a task is idle and may run now.
    #[inline]
    pub(super) fn push(&self, handle: &Handle, piece: T) {
        self.line.borrow_mut().push_back(piece);
        let seat = self.idle.borrow_mut().pop();
        if let Some(seat) = seat {
            seat.is_listed.set(false);
            seat.is_called.set(true);
            self.promised.set(self.promised.get() + 1);
            if let Some(task) = seat.task.get() {
                handle.call(task);
            }
        }
    }

    /// Whether there is a piece for the task with this seat, which must take it at once. While
    /// there is none, the task is idle: a push calls it.
    #[inline]
    pub(super) fn poll_promise(&self, seat: &Rc<Seat>) -> Poll<()> {
        if seat.is_called.replace(false) {
            self.promised.set(self.promised.get() - 1);
            return Poll::Ready(());
        }
        if seat.is_listed.get() {
            return Poll::Pending;
        }
        if self.len() > self.promised.get() {
            return Poll::Ready(());
        }
        seat.is_listed.set(true);
        self.idle.borrow_mut().push(Rc::clone(seat));
        Poll::Pending
    }

    /// The first piece.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub(super) fn take(&self) -> T {
        self.line.borrow_mut().pop_front().expect("a piece that was promised is in line")
    }

    /// Pieces in line.
    pub(super) fn len(&self) -> usize {
        self.line.borrow().len()
    }

    /// All that are in line, for nobody does them any more.
    pub(super) fn take_all(&self) -> VecDeque<T> {
        self.line.take()
    }
}

#[cfg(test)]
mod tests {
    use super::{Pieces, Seat};
    use ashlar_ring::{Executor, Handle, Schedule, VirtualReactor};
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::rc::Rc;

    type Done = Rc<RefCell<Vec<(usize, u32)>>>;

    fn start(handle: &Handle, pieces: &Rc<Pieces<u32>>, task: usize, done: &Done) {
        let seat = Rc::new(Seat::default());
        let (own, pieces, done) = (Rc::clone(&seat), Rc::clone(pieces), Rc::clone(done));
        let yielding = handle.clone();
        seat.set_task(handle.spawn_callable(async move {
            loop {
                poll_fn(|_| pieces.poll_promise(&own)).await;
                let piece = pieces.take();
                // Odd pieces take longer than a call.
                if piece % 2 == 1 {
                    yielding.yield_now().await;
                }
                done.borrow_mut().push((task, piece));
            }
        }));
    }

    fn run(schedule: Schedule) -> (Vec<usize>, Vec<(usize, u32)>) {
        let mut executor = Executor::new(Box::new(VirtualReactor::new()), schedule);
        let (handle, pieces) = (executor.handle(), Rc::new(Pieces::default()));
        let done = Done::default();
        (0..2).for_each(|task| start(&handle, &pieces, task, &done));
        let at_once = executor.block_on(async {
            let mut at_once = Vec::new();
            while pieces.idle.borrow().len() < 2 {
                handle.yield_now().await;
            }
            for piece in [0, 1, 2, 3, 5, 4, 6] {
                pieces.push(&handle, piece);
                at_once.push(done.borrow().len());
            }
            while done.borrow().len() < 7 || pieces.idle.borrow().len() < 2 {
                handle.yield_now().await;
            }
            at_once
        });
        assert_eq!((pieces.len(), pieces.promised.get()), (0, 0));
        (at_once, Rc::unwrap_or_clone(done).into_inner())
    }

    #[test]
    fn an_idle_task_does_a_piece_within_the_push_and_a_busy_one_later() {
        let (at_once, done) = run(Schedule::InOrder);
        // Task 1 was listed last. It does 0 at once and keeps 1, task 0 does 2 and keeps 3.
        assert_eq!(at_once, [1, 1, 2, 2, 2, 2, 2]);
        let pieces: Vec<u32> = done.iter().map(|(_, piece)| *piece).collect();
        assert_eq!(pieces, [0, 2, 1, 3, 4, 6, 5]);
        assert_eq!(done[..3], [(1, 0), (0, 2), (1, 1)]);
    }

    #[test]
    fn where_lots_are_drawn_some_pieces_are_done_within_their_push_and_all_are_done() {
        let at_once = (0..20).map(|seed| {
            let (at_once, done) = run(Schedule::Seeded(seed));
            let mut pieces: Vec<u32> = done.iter().map(|(_, piece)| *piece).collect();
            pieces.sort_unstable();
            assert_eq!(pieces, [0, 1, 2, 3, 4, 5, 6]);
            at_once[0]
        });
        let at_once: Vec<usize> = at_once.collect();
        assert!(at_once.contains(&0) && at_once.contains(&1), "{at_once:?}");
    }
}
