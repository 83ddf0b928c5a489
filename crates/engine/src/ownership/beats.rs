//! What an array that runs here says of itself on its members.

use ashlar_device::{Device, Outcome};
use ashlar_ring::Pending;
use ashlar_ring::local::Semaphore;
use ashlar_units::Nanos;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A command to each of some devices.
pub(super) type AskedOf = Vec<(Rc<dyn Device>, Pending<Outcome>)>;

/// A heartbeat that its device has not answered.
struct LateBeat {
    device: Rc<dyn Device>,
    write: Pending<Outcome>,
    began: Nanos,
}

/// What an array that runs here says of itself on its members. On the coordinator.
pub(crate) struct Beats {
    /// One block is written at a time: none follows the last.
    pub(super) turn: Semaphore,
    /// Sequence of the last one written; `None`: none was.
    pub(super) last: Cell<Option<u64>>,
    /// Devices that have not answered a heartbeat yet: the others must not wait for them.
    late: RefCell<Vec<LateBeat>>,
    /// Looks for others that have not ended: what they find counts when it comes.
    pub(super) reads: RefCell<AskedOf>,
    /// When the last one began that some device has.
    landed: Cell<Option<Nanos>>,
    /// The time to the next one that the last one named.
    pub(super) interval: Cell<Duration>,
}

impl Beats {
    /// A heartbeat that began then is not answered yet.
    pub(super) fn is_late_from(
        &self,
        began: Nanos,
        (device, write): (Rc<dyn Device>, Pending<Outcome>),
    ) {
        self.late.borrow_mut().push(LateBeat { device, write, began });
    }

    /// A heartbeat that began then is on a device.
    pub(super) fn has_landed(&self, began: Nanos) {
        self.landed.set(self.landed.get().max(Some(began)));
    }

    /// Whether the device still owes an answer to a heartbeat.
    pub(super) fn is_late(&self, device: &Rc<dyn Device>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let mut is_owed = |late: &mut LateBeat| match Pin::new(&mut late.write).poll(&mut context) {
            Poll::Pending => true,
            Poll::Ready(outcome) => {
                if outcome.is_some_and(|outcome| outcome.result.is_ok()) {
                    self.has_landed(late.began);
                }
                false
            }
        };
        let mut late = self.late.borrow_mut();
        late.retain_mut(|late| is_owed(late));
        late.iter().any(|own| Rc::ptr_eq(&own.device, device))
    }

    /// The time to the next heartbeat that one names which is written now. Whoever watches counts
    /// on it: it is longer where devices take so long that few heartbeats reach them.
    pub(super) fn interval_from(&self, now: Nanos, usual: Duration) -> Duration {
        let gap = self.landed.get().map_or(Duration::ZERO, |landed| now.since(landed));
        let needed = if gap > usual * 2 { gap } else { usual };
        // What was slow once may be so again: it is forgotten over some heartbeats.
        let interval = needed.max(self.interval.get() * 7 / 8);
        self.interval.set(interval);
        interval
    }
}

impl Default for Beats {
    fn default() -> Self {
        Beats {
            turn: Semaphore::new(1),
            last: Cell::new(None),
            late: RefCell::default(),
            reads: RefCell::default(),
            landed: Cell::new(None),
            interval: Cell::new(Duration::ZERO),
        }
    }
}
