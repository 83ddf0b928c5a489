//! Counted permits, first come first served.
//!
//! A permit that comes back goes straight to the first waiter, so nobody can overtake the line:
//! while anybody waits, no permit is free. A waiter dropped after its turn came passes the permit
//! on.

use super::line::Line;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Counted permits, first come first served. Clone shares them.
#[derive(Clone)]
pub struct Semaphore {
    shared: Rc<Shared>,
}

struct Shared {
    permits: usize,
    free: Cell<usize>,
    in_use_max: Cell<usize>,
    line: RefCell<Line>,
}

impl Semaphore {
    /// A semaphore with `permits` permits, all free.
    pub fn new(permits: usize) -> Self {
        let shared = Shared {
            permits,
            free: Cell::new(permits),
            in_use_max: Cell::new(0),
            line: RefCell::new(Line::new()),
        };
        Semaphore { shared: Rc::new(shared) }
    }

    /// A permit; waits in line while none is free.
    ///
    /// # Cancellation
    /// Dropping the future leaves the line.
    pub fn acquire(&self) -> Acquire {
        Acquire { shared: Rc::clone(&self.shared), place: None }
    }

    /// A permit, if one is free.
    pub fn try_acquire(&self) -> Option<Permit> {
        self.shared.take().then(|| Permit { shared: Rc::clone(&self.shared) })
    }

    /// Permits that are held, or promised to a waiter that has yet to run.
    pub fn in_use(&self) -> usize {
        self.shared.permits - self.shared.free.get()
    }

    /// The most permits that were ever in use at once.
    pub fn in_use_max(&self) -> usize {
        self.shared.in_use_max.get()
    }

    /// How many permits there are in all.
    pub fn permits(&self) -> usize {
        self.shared.permits
    }
}

impl Shared {
    fn take(&self) -> bool {
        let Some(left) = self.free.get().checked_sub(1) else { return false };
        self.free.set(left);
        self.in_use_max.set(self.in_use_max.get().max(self.permits - left));
        true
    }

    fn give_back(&self) {
        let first = self.line.borrow_mut().grant_first();
        match first {
            Some(waker) => waker.wake(),
            None => self.free.set(self.free.get() + 1),
        }
    }
}

/// One permit; dropping it gives it back.
pub struct Permit {
    shared: Rc<Shared>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shared.give_back();
    }
}

/// Waits for a permit; see [`Semaphore::acquire`].
pub struct Acquire {
    shared: Rc<Shared>,
    place: Option<usize>,
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let shared = Rc::clone(&self.shared);
        let Some(place) = self.place else {
            if shared.take() {
                return Poll::Ready(Permit { shared });
            }
            self.place = Some(shared.line.borrow_mut().enter(cx.waker().clone()));
            return Poll::Pending;
        };
        let (granted, unused) = shared.line.borrow_mut().check(place, cx.waker());
        drop(unused);
        if !granted {
            return Poll::Pending;
        }
        let _ = shared.line.borrow_mut().leave(place);
        self.place = None;
        Poll::Ready(Permit { shared })
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let (granted, unused) = self.shared.line.borrow_mut().leave(place);
        drop(unused);
        if granted {
            self.shared.give_back();
        }
    }
}
