//! What an array that runs here says of itself on its members.

use ashlar_device::{Device, Outcome};
use ashlar_ring::Pending;
use ashlar_ring::local::Semaphore;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

/// A heartbeat that its device has not answered.
type LateBeat = (Rc<dyn Device>, Pending<Outcome>);

/// What an array that runs here says of itself on its members. On the coordinator.
pub(crate) struct Beats {
    /// One block is written at a time: none follows the last.
    pub(super) turn: Semaphore,
    /// Sequence of the last one written; `None`: none was.
    pub(super) last: Cell<Option<u64>>,
    /// Devices that have not answered a heartbeat yet: the others must not wait for them.
    pub(super) late: RefCell<Vec<LateBeat>>,
}

impl Beats {
    /// Whether the device still owes an answer to a heartbeat.
    pub(super) fn is_late(&self, device: &Rc<dyn Device>) -> bool {
        let mut late = self.late.borrow_mut();
        let mut context = Context::from_waker(Waker::noop());
        late.retain_mut(|(_, write)| Pin::new(write).poll(&mut context).is_pending());
        late.iter().any(|(own, _)| Rc::ptr_eq(own, device))
    }
}

impl Default for Beats {
    fn default() -> Self {
        Beats { turn: Semaphore::new(1), last: Cell::new(None), late: RefCell::default() }
    }
}
