//! Items handed from task to task, first in first out.
//!
//! Each push grants one waiter, and a granted waiter's item is promised: a newcomer may take the
//! item at the front only if more items are there than promises. A granted waiter that is dropped
//! hands its promise to the next in line.

use super::line::Line;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// First in first out, unbounded only in type: callers hold credits. Clone shares it.
pub struct Queue<T> {
    shared: Rc<RefCell<Shared<T>>>,
}

struct Shared<T> {
    items: VecDeque<T>,
    /// Items that belong to waiters which were granted but have yet to run.
    promised: usize,
    line: Line,
}

impl<T> Shared<T> {
    fn take_unpromised(&mut self) -> Option<T> {
        if self.items.len() > self.promised { self.items.pop_front() } else { None }
    }

    /// Promises an item to the first waiter, if there are both.
    fn promise(&mut self) -> Option<Waker> {
        if self.items.len() == self.promised {
            return None;
        }
        let waker = self.line.grant_first()?;
        self.promised += 1;
        Some(waker)
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Queue { shared: Rc::clone(&self.shared) }
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Queue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        let shared = Shared { items: VecDeque::new(), promised: 0, line: Line::new() };
        Queue { shared: Rc::new(RefCell::new(shared)) }
    }

    /// Appends an item and wakes the first waiter.
    pub fn push(&self, item: T) {
        let mut shared = self.shared.borrow_mut();
        shared.items.push_back(item);
        let waker = shared.promise();
        drop(shared);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The first item; waits in line while there is none.
    ///
    /// # Cancellation
    /// Dropping the future leaves the line and loses no item.
    pub fn pop(&self) -> Pop<T> {
        Pop { shared: Rc::clone(&self.shared), place: None }
    }

    /// The first item, if one is there that is not promised to a waiter.
    pub fn try_pop(&self) -> Option<T> {
        self.shared.borrow_mut().take_unpromised()
    }

    /// Items in the queue, promised ones included.
    pub fn len(&self) -> usize {
        self.shared.borrow().items.len()
    }

    /// Whether no item is in the queue.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Waits for an item; see [`Queue::pop`].
pub struct Pop<T> {
    shared: Rc<RefCell<Shared<T>>>,
    place: Option<usize>,
}

impl<T> Future for Pop<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        let mut shared = this.shared.borrow_mut();
        let Some(place) = this.place else {
            if let Some(item) = shared.take_unpromised() {
                return Poll::Ready(item);
            }
            this.place = Some(shared.line.enter(cx.waker().clone()));
            return Poll::Pending;
        };
        let (granted, unused) = shared.line.check(place, cx.waker());
        if granted {
            let _ = shared.line.leave(place);
            this.place = None;
            shared.promised -= 1;
            let item = shared.items.pop_front().expect("a promised item is in the queue");
            return Poll::Ready(item);
        }
        drop(shared);
        drop(unused);
        Poll::Pending
    }
}

impl<T> Drop for Pop<T> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut shared = self.shared.borrow_mut();
        let (granted, unused) = shared.line.leave(place);
        let next = if granted {
            shared.promised -= 1;
            shared.promise()
        } else {
            None
        };
        drop(shared);
        drop(unused);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}
