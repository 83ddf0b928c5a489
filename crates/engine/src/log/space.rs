//! Space for the records of updates: who gets it, who waits for it, and how it comes back
//! (settling).
//!
//! What must stay true: an update has space promised on all its holders at once, or on none.
//! Everything is settled by flushing, never by guessing; who waits gets space or is told.
//!
//! # Why waiting for space ends
//! An update that finds no space waits in line. It holds its row lock, its scratch buffers and its
//! region, but no number, no promise and no batch. Those before it in the lanes have all they need:
//! their batches wait for devices and for batch buffers, which come back from devices; their
//! members are taken out, if need be, by the home worker, under its gate, whose holders wait for
//! devices alone; their writes in place wait for devices. So they end. Then settling can go beyond
//! them: it needs the home worker's flush, that is devices and the gate again, and a batch on each
//! device that is short of space, for which the ring keeps room that is promised to nobody. It
//! needs no row lock, no scratch buffer and no place in the line. So space comes back, and the
//! first in line has it. If settling fails (the array is lost) those who wait are told.
//!
//! A ring gets no further than its oldest batch that failed. A record's update puts the device out
//! that failed it; a batch without records is nobody's. So whoever waits for space on a lane that
//! failed puts its device out and goes on without it, or is told if the array cannot do without it.

use super::holders::Held;
use super::lane::{Item, Lane};
use super::update::Body;
use super::{Log, NewUpdate};
use crate::canary::{Canary, sings};
use crate::datapath::settle::settle as settle_members;
use crate::datapath::store::{FailedMembers, Target, blame};
use crate::home::{keeper, on_home};
use crate::shard::Shard;
use ashlar_device::Fault;
use ashlar_ondisk::log::Holder;
use ashlar_ring::local::Semaphore;
use smallvec::SmallVec;
use std::cell::Cell;
use std::rc::Rc;

/// Who waits for space, and what is done about it.
pub(super) struct Space {
    /// Whose turn it is to get space: who does not find any keeps the others waiting.
    line: Semaphore,
    waiting: Cell<usize>,
    is_settling: Cell<bool>,
    /// Attempts to settle that failed.
    failures: Cell<u64>,
}

/// There is no space and none can be had: the array is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoLogSpace;

impl Space {
    /// Nobody waits.
    pub(super) fn new() -> Space {
        Space {
            line: Semaphore::new(1),
            waiting: Cell::new(0),
            is_settling: Cell::new(false),
            failures: Cell::new(0),
        }
    }
}

impl Log {
    /// Space for the records of an update on all its holders, if they have more than enough right
    /// now.
    pub(super) fn space_at_once(
        &self,
        shard: &Shard,
        new: &NewUpdate,
    ) -> Option<SmallVec<[Held; 8]>> {
        let _turn = self.space.line.try_acquire()?;
        let bytes = Item::bytes_alone(0);
        let held = self.lanes.holders(shard, new);
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
    pub(super) async fn space_for(
        &self,
        shard: &Rc<Shard>,
        new: &NewUpdate,
        body: &Body,
    ) -> Result<SmallVec<[Held; 8]>, NoLogSpace> {
        let _turn = match self.space.line.try_acquire() {
            Some(turn) => turn,
            None => Box::pin(self.space.line.acquire()).await,
        };
        let mut has_waited = false;
        loop {
            // Anew each time: devices come and go while we wait.
            let held = self.lanes.holders(shard, new);
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
        let failures = self.space.failures.get();
        self.space.waiting.set(self.space.waiting.get() + 1);
        let change = self.common.changed.changed();
        settle_if_useful(shard, self);
        change.await;
        self.space.waiting.set(self.space.waiting.get() - 1);
        if self.space.failures.get() == failures { Ok(()) } else { Err(NoLogSpace) }
    }

    /// Whether settling now would help a lane that is short of space.
    fn would_help(&self) -> bool {
        let (settled, oldest) = (self.common.settled_below.get(), self.window.borrow().oldest());
        let helps = |lane: &Rc<Lane>| {
            let ring = lane.ring.borrow();
            ring.is_short() && ring.oldest().is_some_and(|first| first >= settled && first < oldest)
        };
        self.lanes.any(helps)
    }

    /// Something has ended: if somebody waits for space, settling may help now.
    pub(super) fn settle_if_awaited(&self, shard: &Rc<Shard>) {
        if self.space.waiting.get() != 0 {
            settle_if_useful(shard, self);
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
    if log.space.is_settling.get() || !log.would_help() {
        return;
    }
    log.space.is_settling.set(true);
    let shard = Rc::clone(shard);
    let handle = shard.worker.handle.clone();
    handle.spawn(async move {
        let _under_way = shard.begin();
        settle(&shard).await;
    });
}

/// Everything older than the oldest update under way becomes durable in place, and the lanes say
/// so.
async fn settle(shard: &Rc<Shard>) {
    let Some(log) = shard.log() else { return };
    let oldest = log.window.borrow().oldest();
    let flushed = if sings(Canary::SpaceReusedUnflushed) {
        Some(Ok(()))
    } else {
        on_home(shard, async |shard: Rc<Shard>| keeper::flush(&shard).await).await
    };
    log.space.is_settling.set(false);
    if !matches!(flushed, Some(Ok(()))) {
        log.space.failures.set(log.space.failures.get() + 1);
        log.common.changed.notify_all();
        return;
    }
    shard.counts().log_settles.add(1);
    log.common.settled_below.set(oldest);
    log.lanes.for_each(|lane| lane.settled());
    // Updates that ended meanwhile may help further.
    settle_if_useful(shard, log);
}
