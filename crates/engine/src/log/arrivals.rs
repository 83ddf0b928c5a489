//! The arrival of one update's records on their devices: how many are still under way, and which
//! failed.
//!
//! What must stay true: the waiter is woken when the last record has ended, and not before. Not
//! here: what a failure means (`blame.rs`).

use ashlar_device::Fault;
use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

/// Records of one update, by the number of their holder.
#[derive(Default)]
pub(super) struct Arrivals {
    under_way: Cell<usize>,
    failed: RefCell<Vec<(usize, Fault)>>,
    waiter: Cell<Option<Waker>>,
}

impl Arrivals {
    /// So many records are on their way from now on.
    pub(super) fn begin(&mut self, records: usize) {
        self.under_way.set(records);
        self.failed.get_mut().clear();
        self.waiter.set(None);
    }

    /// The record of this holder has ended. If it was the last one: whom to wake.
    pub(super) fn end(&self, holder: usize, result: Result<(), Fault>) -> Option<Waker> {
        if let Err(fault) = result {
            self.failed.borrow_mut().push((holder, fault));
        }
        let left = self.under_way.get() - 1;
        self.under_way.set(left);
        if left == 0 { self.waiter.take() } else { None }
    }

    /// Ready when all have ended.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.under_way.get() == 0 {
            return Poll::Ready(());
        }
        self.waiter.set(Some(context.waker().clone()));
        Poll::Pending
    }

    /// The holders whose record failed, in the order of their ends.
    pub(super) fn take_failed(&self) -> Vec<(usize, Fault)> {
        self.failed.take()
    }
}

#[cfg(test)]
mod tests {
    use super::Arrivals;
    use ashlar_device::Fault;
    use std::task::{Context, Waker};

    #[test]
    fn the_last_record_wakes_the_waiter_and_failures_are_kept() {
        let mut arrivals = Arrivals::default();
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            arrivals.begin(3);
            assert!(arrivals.end(2, Ok(())).is_none());
            assert!(arrivals.poll(&mut context).is_pending());
            assert!(arrivals.end(0, Err(Fault::GONE)).is_none(), "one is under way");
            assert!(arrivals.end(1, Ok(())).is_some());
            assert!(arrivals.poll(&mut context).is_ready());
            assert_eq!(arrivals.take_failed(), [(0, Fault::GONE)]);
            assert!(arrivals.take_failed().is_empty());
        }
    }
}
