//! The writer of the stripe intent log, by the rules W1 to W16 and P1 to P5 of
//! docs/on-disk-format.md. docs/adr/0008-stripe-intent-log.md has the reasons.
//!
//! - here          what a worker keeps of its log
//! - `updates`     updates: their numbers, their way into the log rings, their end
//! - `update`      what one update changes, as its records say it
//! - `arrivals`    which of its records are on their devices
//! - `holders`     the devices that hold its record, each with its log ring
//! - `space`       which update gets space for records, and how it comes back
//! - `ahead`       records of whole stripes, written before their writes come; `write_ahead`
//!   their way
//! - `log_ring`    one log ring on one device: records become batches
//! - `ring_space`  the space of a log ring
//! - `window`      numbers of updates, and which are under way
//! - `places`      the newest numbers of each stripe
//! - `shape`       how the log area is divided
//! - `replay`      replays the logs of the members at a start
//!
//! What must stay true: an update gets its number, and space for its records on all holders, in one
//! step without waiting. So once it has a number, only devices stand between it and its end.
//! Numbers rise in the order in which updates enter the log rings. Only flushing settles updates,
//! never a guess.
//!
//! # Repairs
//! A row that is stored anew because it was unreadable or wrong is an update of its own, with the
//! device as only holder (`datapath/store.rs`, `repair`). Otherwise a repair that is cut off would
//! leave a readable block, half of it old. Blocks that a job writes to the device that it fills are
//! not logged: they count only when the job's checkpoint says so, which follows a flush. Under the
//! policies `bitmap` and `none` repairs are not protected: a power cut in the middle of one can
//! leave a readable block that is neither old nor new, and no mark.

mod ahead;
mod arrivals;
mod holders;
pub(crate) mod log_ring;
mod places;
pub(crate) mod replay;
mod ring_space;
pub(crate) mod shape;
mod space;
pub(crate) mod update;
pub(crate) mod updates;
mod window;
mod write_ahead;

use crate::array::Array;
use crate::devices::SlotDevices;
use crate::log::update::NewUpdate;
use crate::watch::wake::Watch;
use ahead::Ahead;
use ashlar_device::Outcome;
use ashlar_iobuf::PoolUsage;
use ashlar_layout::Stripe;
use ashlar_ring::Completions;
use ashlar_ring::local::Semaphore;
use ashlar_units::MemberIdx;
use holders::LogRings;
use log_ring::Common;
use places::{Numbered, Places};
use std::cell::Cell;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use update::Body;
use window::Window;

/// Bodies kept for the next updates: as many as a worker has under way at most.
const BODIES_KEPT: usize = 256;

/// The log of one array on one worker that owns stripes.
pub(crate) struct Log {
    common: Rc<Common>,
    handle: ashlar_ring::Handle,
    log_rings: LogRings,
    window: RefCell<Window>,
    ahead: RefCell<Ahead>,
    space: Space,
    bodies: RefCell<Vec<Rc<Body>>>,
    numbers: RefCell<Places>,
}

/// The waiters for space, and the state of settling.
struct Space {
    /// Whose turn it is to get space: who does not find any keeps the others waiting.
    line: Semaphore,
    waiting: Cell<usize>,
    is_settling: Cell<bool>,
    /// Attempts to settle that failed.
    failures: Cell<u64>,
}

impl Space {
    /// Nobody waits.
    fn new() -> Space {
        Space {
            line: Semaphore::new(1),
            waiting: Cell::new(0),
            is_settling: Cell::new(false),
            failures: Cell::new(0),
        }
    }
}

impl Log {
    /// The log on `worker`; `None` if the array has none, or the worker owns no stripes.
    ///
    /// # Errors
    /// If there is no memory for the batch buffers.
    pub(crate) fn new(
        worker: usize,
        handle: &ashlar_ring::Handle,
        outcomes: Completions<Outcome>,
        array: &Arc<Array>,
        watch: &Rc<Watch>,
    ) -> io::Result<Option<Log>> {
        let Some(shape) = array.log.filter(|shape| worker < shape.log_rings) else {
            return Ok(None);
        };
        let common = Common::new(array, worker, shape, outcomes, Rc::clone(watch))?;
        Ok(Some(Log {
            common: Rc::new(common),
            handle: handle.clone(),
            log_rings: LogRings::new(array.slots.len()),
            window: RefCell::new(Window::new()),
            ahead: RefCell::new(Ahead::new()),
            space: Space::new(),
            bodies: RefCell::default(),
            numbers: RefCell::new(Places::new()),
        }))
    }

    /// The slot has these devices from now on. A device that was there already under this name
    /// keeps its log ring.
    pub(crate) fn set_devices(&self, member: MemberIdx, devices: &SlotDevices) {
        self.give_up_ahead();
        self.log_rings.set(&self.common, &self.handle, member, devices);
        // A waiter for space may not need that of a device that went.
        self.common.changed.notify_all();
    }

    /// An update whose record has its blocks is in place.
    pub(crate) fn note_in_place(&self, stripe: Stripe) {
        let number = self.common.array.caches.note_logged();
        self.numbers.borrow_mut().note(stripe.id(), Numbered::InPlace, number);
    }

    /// Whether only the log may have what was last written to some block of the stripe. Then a
    /// record that outdates older ones must not be written for it: they are still needed.
    pub(crate) fn is_needed_for(&self, stripe: Stripe) -> bool {
        let newest = self.newest(stripe, Numbered::InPlace);
        self.common.array.caches.hold_logged(newest)
    }

    /// Blocks of one contiguous update at most; `None` if every update of a stripe will do.
    pub(crate) fn piece_blocks_max(&self) -> Option<u64> {
        self.common.shape.piece_blocks_max()
    }

    /// Rows of one update at most.
    pub(crate) fn rows_max(&self) -> u32 {
        self.common.shape.rows_max()
    }

    /// What batch buffers are out and ever were.
    pub(crate) fn usage(&self) -> PoolUsage {
        self.common.usage()
    }

    fn body_of(&self, new: &mut NewUpdate) -> Rc<Body> {
        let mut body = self.blank_body();
        let own = Rc::get_mut(&mut body).expect("kept bodies are nobody else's");
        (own.stripe, own.kind, own.rows) = (new.stripe.id(), new.kind, new.rows);
        own.pieces.append(&mut new.pieces);
        body
    }

    /// Whether no record of the stripe with data, and none of a first write, counts any more,
    /// whatever devices are lost: all of them call it settled.
    pub(crate) fn is_settled(&self, stripe: Stripe) -> bool {
        self.all_say_settled(self.newest(stripe, Numbered::Record))
    }

    /// Whether no full record of the stripe counts any more, whatever devices are lost. A
    /// parity-only record is not on the device of its block, and with all devices of parity lost
    /// nothing would outdate a copy that is there.
    pub(crate) fn has_no_copies(&self, stripe: Stripe) -> bool {
        self.all_say_settled(self.newest(stripe, Numbered::Full))
    }

    /// The newest number that the stripe may have; 0 if it has none.
    fn newest(&self, stripe: Stripe, what: Numbered) -> u64 {
        self.numbers.borrow().newest(stripe.id(), what)
    }

    fn all_say_settled(&self, number: u64) -> bool {
        number == 0 || self.log_rings.all(|log_ring| log_ring.ring.borrow().says() > number)
    }

    /// Nobody uses a record that was written early any more.
    fn give_up_ahead(&self) {
        let unused = self.ahead.borrow_mut().give_up();
        unused.into_iter().for_each(|body| self.recycle(body));
    }

    fn blank_body(&self) -> Rc<Body> {
        let kept = self.bodies.borrow_mut().pop();
        kept.unwrap_or_else(|| Rc::new(Body::empty()))
    }

    /// It is not under way any more; its body is used again.
    fn recycle(&self, mut body: Rc<Body>) {
        self.window.borrow_mut().end(body.sequence);
        // A log ring that has not dropped it yet is one of a device that went.
        let Some(own) = Rc::get_mut(&mut body) else { return };
        own.holders.clear();
        own.targets.clear();
        own.pieces.clear();
        let mut bodies = self.bodies.borrow_mut();
        if bodies.len() < BODIES_KEPT {
            bodies.push(body);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.log_rings.for_each(|log_ring| log_ring.close());
    }
}
