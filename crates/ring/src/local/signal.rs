//! Wakes everybody who waits for a change.
//!
//! A change is counted, and a waiter remembers the count at the call of `changed`, so a
//! notification between that call and the first poll is not lost.

use super::line::Line;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Wakes all waiters: check your condition again after `changed().await`. Clones share it.
#[derive(Clone, Default)]
pub struct Signal {
    shared: Rc<Shared>,
}

struct Shared {
    changes: Cell<u64>,
    line: RefCell<Line>,
}

impl Default for Shared {
    fn default() -> Self {
        Shared { changes: Cell::new(0), line: RefCell::new(Line::new()) }
    }
}

impl Signal {
    /// A signal nobody waits for.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes all current waiters, in order of arrival.
    pub fn notify_all(&self) {
        self.shared.changes.set(self.shared.changes.get().wrapping_add(1));
        loop {
            let first = self.shared.line.borrow_mut().grant_first();
            let Some(waker) = first else { break };
            waker.wake();
        }
    }

    /// Resolves at the first `notify_all` after this call.
    pub fn changed(&self) -> Changed {
        Changed { seen: self.shared.changes.get(), shared: Rc::clone(&self.shared), place: None }
    }
}

/// Waits for a change; see [`Signal::changed`].
pub struct Changed {
    shared: Rc<Shared>,
    seen: u64,
    place: Option<usize>,
}

impl Future for Changed {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.shared.changes.get() != self.seen {
            return Poll::Ready(());
        }
        let shared = Rc::clone(&self.shared);
        let mut line = shared.line.borrow_mut();
        let unused = match self.place {
            Some(place) => line.check(place, cx.waker()).1,
            None => {
                self.place = Some(line.enter(cx.waker().clone()));
                None
            }
        };
        drop(line);
        drop(unused);
        Poll::Pending
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let (_, unused) = self.shared.line.borrow_mut().leave(place);
            drop(unused);
        }
    }
}
