//! The stripe intent log, as it is written: `docs/adr/0008-stripe-intent-log.md` decides, this says how.
//!
//! - here       updates: their numbers, their holders, their way into the lanes; settling
//! - `ahead`    records of whole stripes, written before their writes come
//! - `update`   what one update changes, as its records say it
//! - `lane`     one lane on one device: records become batches
//! - `ring`     the space of a lane
//! - `window`   numbers of updates, and which are under way
//! - `places`   the newest number of each stripe
//! - `shape`    how the log area is dealt out
//! - `replay`   what a start makes of the logs of its members
//!
//! What must stay true: an update is numbered, and space for its records promised on all its holders, in one
//! step without waiting; so once it has a number nothing but devices stands between it and its end. Numbers
//! rise in the order in which updates enter the lanes. Everything is settled by flushing, never by guessing.
//!
//! # Why waiting for space ends
//! An update that finds no space waits in line. It holds its row lock, its scratch buffers and its region, but no
//! number, no promise and no batch. Those before it in the lanes have all they need: their batches wait for devices
//! and for batch buffers, which come back from devices; their members are taken out, if need be, by the home
//! worker, under its gate, whose holders wait for devices alone; their writes in place wait for devices. So
//! they end. Then settling can go beyond them: it needs the home worker's flush, that is devices and the gate again, and
//! a batch on each device that is short of space, for which the ring keeps room that is promised to nobody. It
//! needs no row lock, no scratch buffer and no place in the line. So space comes back, and the first in
//! line has it. If settling fails (the array is lost) those who wait are told.
//!
//! A ring gets no further than its oldest batch that failed. A record's update puts the device out that failed it;
//! a batch without records is nobody's. So whoever waits for space on a lane that failed puts its device out and goes on
//! without it, or is told if the array cannot do without it.
//!
//! # Holders, as members come and go
//! A device is a holder from the moment at which this worker has its lane, until the slot lets it go; its writes
//! in place start and end at the same two moments, but for an update that is between its two rounds:
//! - *A member fails a batch, or fails otherwise meanwhile*: it is recorded as out before the second round
//!   (`datapath/log.rs`). Its tag is then of a device out of service, and nobody asks it.
//! - *A device joins between the rounds* (new, re-added, or to replace): it gets the second round without having
//!   the record. Nothing there is believed before the job that fills it was at the stripe, under the row lock of this
//!   update, thus after it; and the region is dirty, so that the job comes here whatever the device held (`home/join.rs`).
//!   After a crash before that the device is still to be filled there.
//! - *A device joins before the superblocks name it*: records name a tag that nobody knows after a crash; it
//!   is not in service then and is not asked.
//! - *A replacement takes over* because it is complete, or because the slot's own device failed: it keeps lane and tag.
//!   Whether records call it "being filled" says only what the device was when they were written.
//! - *A member comes back*: under a new tag, with an empty lane at the same place. What is left of its old ring has the
//!   old tag and is nobody's.
//! - *The slot's device goes between the rounds*: there is no second round on it. It is recorded as out by then.
//!
//! # Repairs
//! Rows stored anew because they could not be read, or were wrong, are updates of their own with the device as only
//! holder (`datapath/store.rs`, `repair`): a repair that is cut off would leave a readable block of which half
//! is old. What a job writes to the device it fills is not logged: nobody believes it before the job's checkpoint says
//! so, which follows a flush. Under the policies `bitmap` and `none` repairs are not protected: a power cut
//! in the middle of one can leave a readable block that is neither old nor new, and no mark.

mod ahead;
pub(crate) mod lane;
mod places;
pub(crate) mod replay;
mod ring;
mod shape;
mod update;
mod window;

pub(crate) use shape::{LogShape, least_lane_bytes};
pub(crate) use update::Piece;

use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::datapath::settle::settle as settle_members;
use crate::datapath::store::{FailedMembers, StoreWrite, Target, Writes, blame};
use crate::home::{keeper, on_home};
use crate::lists::List;
use crate::member::SlotState;
use crate::shard::{Shard, SlotDevice, SlotDevices};
use crate::worker::Worker;
use ahead::Ahead;
use ashlar_device::{Fault, Outcome};
use ashlar_iobuf::PoolUsage;
use ashlar_layout::RowRange;
use ashlar_ondisk::log::{Holder, RecordKind};
use ashlar_ring::Pending;
use ashlar_ring::local::Semaphore;
use ashlar_units::{MemberIdx, StripSet, StripeNo};
use lane::{Common, Item, Lane};
use places::Places;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
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
    /// Slot by slot: of its device, and of the one that replaces it.
    lanes: RefCell<Vec<SlotLanes>>,
    window: RefCell<Window>,
    ahead: RefCell<Ahead>,
    /// Whose turn it is to get space: who does not find any keeps the others waiting.
    line: Semaphore,
    waiting: Cell<usize>,
    is_settling: Cell<bool>,
    /// Attempts to settle that failed.
    failures: Cell<u64>,
    bodies: RefCell<Vec<Rc<Body>>>,
    /// By stripe: the number of its newest logged update that is in place, but perhaps in caches only.
    in_place: RefCell<Places>,
    /// By stripe: its newest full record.
    newest_full: RefCell<Places>,
}

#[derive(Clone, Default)]
struct SlotLanes {
    current: Option<Rc<Lane>>,
    replacement: Option<Rc<Lane>>,
}

/// An update to be recorded.
pub(crate) struct NewUpdate {
    pub(crate) stripe: StripeNo,
    pub(crate) kind: RecordKind,
    /// From the first row it touches to the last.
    pub(crate) rows: RowRange,
    /// The strips it writes in place.
    pub(crate) stored: StripSet,
    /// New content, strips rising, data strips not stored included; empty if the kind has none.
    pub(crate) pieces: List<Piece>,
}

/// An update under way. It ends when this drops: its writes in place have ended then, or it has none.
pub(crate) struct Update {
    shard: Rc<Shard>,
    body: Option<Rc<Body>>,
}

/// There is no space and none can be had: the array is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoLogSpace;

/// A holder of an update: its lane, whom to blame, and what the record calls it.
type Held = (Rc<Lane>, Target, Holder);

impl Log {
    /// The log on `worker`; `None` if the array has none, or the worker owns no stripes.
    ///
    /// # Errors
    /// If there is no memory for the batch buffers.
    pub(crate) fn new(worker: &Worker, array: &Arc<Array>) -> io::Result<Option<Log>> {
        let Some(shape) = array.log.filter(|shape| worker.index < shape.lanes) else {
            return Ok(None);
        };
        let common = Common::new(array, worker.index, shape, worker.outcomes.clone())?;
        Ok(Some(Log {
            common: Rc::new(common),
            handle: worker.handle.clone(),
            lanes: RefCell::new(vec![SlotLanes::default(); array.slots.len()]),
            window: RefCell::new(Window::new()),
            ahead: RefCell::new(Ahead::new()),
            line: Semaphore::new(1),
            waiting: Cell::new(0),
            is_settling: Cell::new(false),
            failures: Cell::new(0),
            bodies: RefCell::default(),
            in_place: RefCell::new(Places::new()),
            newest_full: RefCell::new(Places::new()),
        }))
    }

    /// The slot has these devices from now on. A device that was there already keeps its lane.
    pub(crate) fn set_devices(&self, member: MemberIdx, devices: &SlotDevices) {
        self.give_up_ahead();
        let mut lanes = self.lanes.borrow_mut();
        let before = std::mem::take(&mut lanes[member.at()]);
        let had = [before.current, before.replacement];
        let lane_of = |device: &Option<SlotDevice>| {
            let SlotDevice { device, log_tag } = device.clone()?;
            let known = had.iter().flatten().find(|lane| lane.log_tag == log_tag);
            Some(match known {
                Some(lane) => Rc::clone(lane),
                None => Lane::open(&self.common, &self.handle, (device, log_tag)),
            })
        };
        let now = SlotLanes {
            current: lane_of(&devices.current),
            replacement: lane_of(&devices.replacement),
        };
        let stays = |tag: u64| {
            [&now.current, &now.replacement].into_iter().flatten().any(|lane| lane.log_tag == tag)
        };
        had.iter().flatten().filter(|lane| !stays(lane.log_tag)).for_each(|lane| lane.close());
        lanes[member.at()] = now;
        // Who waits for space may not need that of a device that went.
        self.common.changed.notify_all();
    }

    /// An update whose record has its blocks is in place.
    pub(crate) fn note_in_place(&self, stripe: StripeNo) {
        self.in_place.borrow_mut().note(stripe, self.common.array.caches.note_logged());
    }

    /// Whether only the log may have what was last written to some block of the stripe. Then a record that outdates
    /// older ones must not be written for it: they are still needed.
    pub(crate) fn is_needed_for(&self, stripe: StripeNo) -> bool {
        self.common.array.caches.hold_logged(self.in_place.borrow().newest(stripe))
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

    /// Number an update and hand its record to the lanes of its holders; waits for space. What comes back besides
    /// are the batches, one for each holder, to be waited for.
    ///
    /// # Errors
    /// [`NoLogSpace`]: then it has no number and no record.
    pub(crate) async fn begin(
        &self,
        shard: &Rc<Shard>,
        mut new: NewUpdate,
    ) -> Result<(Update, List<StoreWrite>), NoLogSpace> {
        let body = self.body_of(&mut new);
        let held = self.space_for(shard, &new, &body).await?;
        Ok(self.number(shard, body, held))
    }

    fn body_of(&self, new: &mut NewUpdate) -> Rc<Body> {
        let mut body = self.blank_body();
        let own = Rc::get_mut(&mut body).expect("kept bodies are nobody else's");
        (own.stripe, own.kind, own.rows) = (new.stripe, new.kind, new.rows);
        own.pieces.append(&mut new.pieces);
        body
    }

    /// The update is one from here on: it has a number, and its record is on its way to the holders.
    fn number(
        &self,
        shard: &Rc<Shard>,
        mut body: Rc<Body>,
        held: SmallVec<[Held; 8]>,
    ) -> (Update, List<StoreWrite>) {
        {
            let body = Rc::get_mut(&mut body).expect("not handed out yet");
            body.sequence = self.window.borrow_mut().begin();
            body.holders.extend(held.iter().map(|(_, _, holder)| *holder));
        }
        if body.kind != RecordKind::InDoubt {
            self.ahead.borrow_mut().note(body.stripe, body.sequence);
        }
        if body.kind == RecordKind::Full {
            self.newest_full.borrow_mut().note(body.stripe, body.sequence);
        }
        shard.counts().log_records.add(1);
        if body.kind.home().is_some() {
            shard.counts().lean_records.add(1);
        }
        let mut batches = shard.write_lists.list();
        for (lane, target, holder) in held {
            let (done, pending): (_, Pending<Outcome>) = shard.worker.outcomes.pair();
            let (strip, blocks) = (holder.strip, body.blocks_of(holder.strip));
            lane.push(Item { body: Rc::clone(&body), strip, blocks, done });
            batches.push((target, pending));
        }
        (Update { shard: Rc::clone(shard), body: Some(body) }, batches)
    }

    /// Whether no record of the stripe with data, and none of a first write, counts any more, whatever devices are
    /// lost: all of them call it settled.
    pub(crate) fn is_settled(&self, stripe: StripeNo) -> bool {
        let newest = self.ahead.borrow().newest(stripe);
        newest == 0 || self.open_lanes().iter().all(|lane| lane.ring.borrow().says() > newest)
    }

    /// Whether no full record of the stripe counts any more, whatever devices are lost. A lean record is not on the
    /// device of its block, and with all devices of parity lost nothing would outdate a copy that is there.
    pub(crate) fn has_no_copies(&self, stripe: StripeNo) -> bool {
        let newest = self.newest_full.borrow().newest(stripe);
        newest == 0 || self.open_lanes().iter().all(|lane| lane.ring.borrow().says() > newest)
    }

    /// The record of a whole stripe that is to be written on an array that lacks nothing, if it was written early.
    /// If the stripe continues a stream, records of those that follow are on their way when this returns.
    pub(crate) fn take_ahead(&self, shard: &Rc<Shard>, stripe: StripeNo) -> Option<Update> {
        let wanted = self.ahead.borrow_mut().wanted(stripe);
        if let Some(stripes) = wanted {
            self.write_ahead(shard, stripes);
        }
        let taken = self.ahead.borrow_mut().take(stripe)?;
        match taken {
            Ok(body) => Some(Update { shard: Rc::clone(shard), body: Some(body) }),
            Err(body) => {
                self.recycle(body);
                None
            }
        }
    }

    /// Number records of whole stripes, as many of the wanted ones as have a place without waiting, and see them on
    /// their way.
    fn write_ahead(&self, shard: &Rc<Shard>, stripes: Range<u64>) {
        let array = &self.common.array;
        let rows = RowRange::new(0, array.geometry.strip_blocks());
        let (mut bodies, mut held_rows) = (Vec::new(), Vec::new());
        let mut batches = shard.write_lists.list();
        for stripe in stripes.map(StripeNo) {
            if !self.may_be_ahead(stripe) {
                break;
            }
            let Some(guard) = shard.locks.lock_if_idle(stripe, rows) else { break };
            let stored = array.view(stripe).writable;
            let (kind, pieces) = (RecordKind::InDoubt, shard.piece_lists.list());
            let mut new = NewUpdate { stripe, kind, rows, stored, pieces };
            let Some(held) = self.space_at_once(shard, &new) else { break };
            let body = self.body_of(&mut new);
            let (mut update, mut own) = self.number(shard, body, held);
            bodies.extend(update.body.take());
            batches.append(&mut own);
            held_rows.push(guard);
        }
        if bodies.is_empty() {
            return;
        }
        let epoch = self.ahead.borrow().epoch();
        let shard = Rc::clone(shard);
        let handle = shard.worker.handle.clone();
        handle.spawn(async move {
            let _under_way = shard.begin();
            let failed = Writes::of(&shard, batches).finish_records(&shard).await;
            let is_good = failed.is_empty() || settle_members(&shard, failed).await.is_ok();
            let Some(log) = shard.log() else { return };
            if !is_good {
                log.give_up_ahead();
            }
            let unwanted = log.ahead.borrow_mut().arrive(epoch, bodies);
            drop(held_rows);
            unwanted.into_iter().for_each(|body| log.recycle(body));
            if log.waiting.get() != 0 {
                settle_if_useful(&shard, log);
            }
        });
    }

    /// Whether the stripe's next write, if it is a whole one, would need the record that can be written for it now.
    fn may_be_ahead(&self, stripe: StripeNo) -> bool {
        let array = &self.common.array;
        // What is in doubt has its checksums taken from what is found: not to be said of stripes nobody writes.
        array.checksums.is_none()
            && stripe.0 < array.geometry.stripe_count()
            && array.owner_of(stripe) == self.common.worker
            && array.written.is_written(stripe)
            && array.lacks_nothing(stripe)
            && !array.intent.is_unsynced(array.intent.region_of(stripe))
            && self.is_settled(stripe)
    }

    /// Nobody uses a record that was written early any more.
    fn give_up_ahead(&self) {
        let unused = self.ahead.borrow_mut().give_up();
        unused.into_iter().for_each(|body| self.recycle(body));
    }

    fn open_lanes(&self) -> SmallVec<[Rc<Lane>; 16]> {
        let lanes = self.lanes.borrow();
        let of_slot = lanes.iter().flat_map(|slot| [&slot.current, &slot.replacement]);
        of_slot.flatten().map(Rc::clone).collect()
    }

    /// Space for the records of an update on all its holders, if they have more than enough right now.
    fn space_at_once(&self, shard: &Shard, new: &NewUpdate) -> Option<SmallVec<[Held; 8]>> {
        let _turn = self.line.try_acquire()?;
        let bytes = Item::bytes_alone(0);
        let held = self.holders(shard, new);
        let has_room = |(lane, ..): &Held| {
            let ring = lane.ring.borrow();
            ring.can_promise(bytes) && !ring.is_short() && lane.fault.get().is_none()
        };
        if !held.iter().all(has_room) {
            return None;
        }
        held.iter().for_each(|(lane, ..)| lane.ring.borrow_mut().promise(bytes));
        Some(held)
    }

    /// Space for the records of an update on all its holders, all at once.
    async fn space_for(
        &self,
        shard: &Rc<Shard>,
        new: &NewUpdate,
        body: &Body,
    ) -> Result<SmallVec<[Held; 8]>, NoLogSpace> {
        let _turn = match self.line.try_acquire() {
            Some(turn) => turn,
            None => Box::pin(self.line.acquire()).await,
        };
        let mut has_waited = false;
        loop {
            // Anew each time: devices come and go while we wait.
            let held = self.holders(shard, new);
            let bytes = |holder: &Holder| Item::bytes_alone(body.blocks_of(holder.strip));
            let can_have = |(lane, _, holder): &Held| lane.ring.borrow().can_promise(bytes(holder));
            if held.iter().all(can_have) {
                let mut is_short = false;
                for (lane, _, holder) in &held {
                    let mut ring = lane.ring.borrow_mut();
                    ring.promise(bytes(holder));
                    is_short |= ring.is_short();
                }
                if is_short {
                    settle_if_useful(shard, self);
                }
                return Ok(held);
            }
            if !std::mem::replace(&mut has_waited, true) {
                shard.counts().log_space_waits.add(1);
            }
            let stuck = held.iter().find_map(|(lane, target, holder)| {
                let is_stuck = !lane.ring.borrow().can_promise(bytes(holder));
                lane.fault.get().filter(|_| is_stuck).map(|fault| (*target, fault))
            });
            match stuck {
                Some((target, fault)) => put_out(shard, target, fault).await?,
                None => self.wait_for_space(shard).await?,
            }
        }
    }

    async fn wait_for_space(&self, shard: &Rc<Shard>) -> Result<(), NoLogSpace> {
        let failures = self.failures.get();
        self.waiting.set(self.waiting.get() + 1);
        let change = self.common.changed.changed();
        settle_if_useful(shard, self);
        change.await;
        self.waiting.set(self.waiting.get() - 1);
        if self.failures.get() == failures { Ok(()) } else { Err(NoLogSpace) }
    }

    /// Everybody who writes the update in place, as of now.
    fn holders(&self, shard: &Shard, new: &NewUpdate) -> SmallVec<[Held; 8]> {
        let array = &self.common.array;
        let lanes = self.lanes.borrow();
        let mut held = SmallVec::new();
        for strip in new.stored.iter() {
            let member = array.member_of(new.stripe, strip);
            let SlotLanes { current, replacement } = &lanes[member.at()];
            let (tenure, replacement_tenure) = shard.tenures(member);
            if let Some(lane) = replacement {
                let holder = Holder { log_tag: lane.log_tag, strip, is_filled: true };
                held.push((
                    Rc::clone(lane),
                    Target::replacement(member, replacement_tenure),
                    holder,
                ));
            }
            if let Some(lane) = current {
                let is_filled = array.slot(member).state() == SlotState::Rebuilding;
                let holder = Holder { log_tag: lane.log_tag, strip, is_filled };
                held.push((Rc::clone(lane), Target::current(member, tenure), holder));
            }
        }
        held
    }

    fn blank_body(&self) -> Rc<Body> {
        let kept = self.bodies.borrow_mut().pop();
        kept.unwrap_or_else(|| Rc::new(Body::empty()))
    }

    /// The update has ended.
    fn end(&self, shard: &Rc<Shard>, body: Rc<Body>) {
        self.recycle(body);
        if self.waiting.get() != 0 {
            settle_if_useful(shard, self);
        }
    }

    /// It is not under way any more; its body is used again.
    fn recycle(&self, mut body: Rc<Body>) {
        self.window.borrow_mut().end(body.sequence);
        // A lane that has not dropped it yet is one of a device that went.
        let Some(own) = Rc::get_mut(&mut body) else { return };
        own.holders.clear();
        own.pieces.clear();
        let mut bodies = self.bodies.borrow_mut();
        if bodies.len() < BODIES_KEPT {
            bodies.push(body);
        }
    }

    /// Whether settling now would help a lane that is short of space.
    fn would_help(&self) -> bool {
        let (settled, oldest) = (self.common.settled_below.get(), self.window.borrow().oldest());
        let helps = |lane: &Rc<Lane>| {
            let ring = lane.ring.borrow();
            ring.is_short() && ring.oldest().is_some_and(|first| first >= settled && first < oldest)
        };
        self.lanes
            .borrow()
            .iter()
            .flat_map(|slot| [&slot.current, &slot.replacement])
            .flatten()
            .any(helps)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        for slot in self.lanes.borrow().iter() {
            [&slot.current, &slot.replacement].into_iter().flatten().for_each(|lane| lane.close());
        }
    }
}

impl Drop for Update {
    fn drop(&mut self) {
        if let (Some(log), Some(body)) = (self.shard.log(), self.body.take()) {
            log.end(&self.shard, body);
        }
    }
}

/// The ring of this device will never have space again, for it failed a batch: it goes.
async fn put_out(shard: &Rc<Shard>, target: Target, fault: Fault) -> Result<(), NoLogSpace> {
    let mut failed = FailedMembers::new();
    blame(shard, target, fault, &mut failed).await;
    Box::pin(settle_members(shard, failed)).await.map_err(|_| NoLogSpace)
}

/// Settle in the background, if that frees space that is needed and nobody is at it.
fn settle_if_useful(shard: &Rc<Shard>, log: &Log) {
    // Nothing settles past a record that waits for its write.
    log.give_up_ahead();
    if log.is_settling.get() || !log.would_help() {
        return;
    }
    log.is_settling.set(true);
    let shard = Rc::clone(shard);
    let handle = shard.worker.handle.clone();
    handle.spawn(async move {
        let _under_way = shard.begin();
        settle(&shard).await;
    });
}

/// Everything older than the oldest update under way becomes durable in place, and the lanes say so.
async fn settle(shard: &Rc<Shard>) {
    let Some(log) = shard.log() else { return };
    let oldest = log.window.borrow().oldest();
    let flushed = if sings(Canary::SpaceReusedUnflushed) {
        Some(Ok(()))
    } else {
        on_home(shard, async |shard: Rc<Shard>| keeper::flush(&shard).await).await
    };
    log.is_settling.set(false);
    if !matches!(flushed, Some(Ok(()))) {
        log.failures.set(log.failures.get() + 1);
        log.common.changed.notify_all();
        return;
    }
    shard.counts().log_settles.add(1);
    log.common.settled_below.set(oldest);
    for slot in log.lanes.borrow().iter() {
        [&slot.current, &slot.replacement].into_iter().flatten().for_each(|lane| lane.settled());
    }
    // Updates that ended meanwhile may help further.
    settle_if_useful(shard, log);
}
