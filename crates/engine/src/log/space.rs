//! Space for the records of updates: which update gets it, which waits, and how it comes back
//! (settling).
//!
//! What must stay true: an update has space promised on all its holders at once, or on none. Only
//! flushing settles updates, never a guess. A waiting update gets space or an error.
//!
//! # Why waiting for space ends
//! An update that finds no space waits in line. It holds its row lock, its scratch buffers and its
//! region, but no number, no promise and no batch. Updates before it in the rings have all they
//! need. Their batches wait for devices and for batch buffers, which devices return. The
//! coordinator takes their members out if need be, under its gate, whose holders wait for devices
//! alone. Their writes in place wait for devices. So they end.
//!
//! What their batches do not need of what was promised comes back at once, and the first in line is
//! told. Then settling can pass them. It needs a flush by the coordinator, which means devices and
//! the gate again. It also needs a batch on each device that is short of space, and the ring keeps
//! room for that. It needs no row lock, no scratch buffer and no place in the line. So space comes
//! back, and the first in line gets it. If settling fails (the array is lost), all waiting updates
//! get an error.
//!
//! A ring cannot pass its oldest failed batch. If a record's batch fails, the update puts the
//! device out. A batch without records belongs to no update. So an update that waits for space on a
//! failed ring puts its device out and goes on without it, or gets an error if the array cannot do
//! without it.

use super::Log;
use super::holders::Held;
use super::log_ring::{Item, LogRing};
use super::update::Body;
use crate::blame::{FailedMembers, blame, take_out_failed};
use crate::canary::{Canary, sings};
use crate::coordinator::map_writer;
use crate::coordinator::messages::on_coordinator;
use crate::local_array::LocalArray;
use crate::log::update::NewUpdate;
use crate::slot::WriteTarget;
use ashlar_device::Fault;
use ashlar_ondisk::log::Holder;
use smallvec::SmallVec;
use std::rc::Rc;
use std::time::Duration;

/// Time between two looks whether updates have ended, or log rings have said something.
const SETTLE_POLL: Duration = Duration::from_millis(1);

/// There is no space and none can be had: the array is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoLogSpace;

impl Log {
    /// Space for the records of an update on all its holders, if they have more than enough right
    /// now.
    pub(super) fn space_at_once(
        &self,
        local: &LocalArray,
        new: &NewUpdate,
    ) -> Option<SmallVec<[Held; 8]>> {
        let _turn = self.space.line.try_acquire()?;
        let bytes = Item::bytes_alone(0);
        let held = self.holders(local, new);
        let has_room = |(log_ring, ..): &Held| {
            let ring = log_ring.ring.borrow();
            ring.can_promise(bytes) && !ring.is_short() && log_ring.fault.get().is_none()
        };
        if !held.iter().all(has_room) {
            return None;
        }
        held.iter().for_each(|(log_ring, ..)| log_ring.ring.borrow_mut().promise(bytes));
        Some(held)
    }

    /// Space for the records of an update on all its holders, all at once.
    pub(super) async fn space_for(
        &self,
        local: &Rc<LocalArray>,
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
            let held = self.holders(local, new);
            let bytes = |holder: &Holder| Item::bytes_alone(body.blocks_of(holder.strip));
            let can_have =
                |(log_ring, _, holder): &Held| log_ring.ring.borrow().can_promise(bytes(holder));
            if held.iter().all(can_have) {
                let mut is_short = false;
                for (log_ring, _, holder) in &held {
                    let mut ring = log_ring.ring.borrow_mut();
                    ring.promise(bytes(holder));
                    is_short |= ring.is_short();
                }
                if is_short {
                    settle_if_useful(local, self);
                }
                return Ok(held);
            }
            if !std::mem::replace(&mut has_waited, true) {
                local.counts().log_space_waits.add(1);
            }
            let stuck = held.iter().find_map(|(log_ring, target, holder)| {
                let is_stuck = !log_ring.ring.borrow().can_promise(bytes(holder));
                log_ring.fault.get().filter(|_| is_stuck).map(|fault| (*target, fault))
            });
            match stuck {
                Some((target, fault)) => put_out(local, target, fault).await?,
                None => self.wait_for_space(local).await?,
            }
        }
    }

    /// All updates that have a number now are settled, and every log ring says so: no record of
    /// theirs counts any more, whatever devices are lost. False if that cannot be.
    pub(crate) async fn settle_all(&self, local: &Rc<LocalArray>) -> bool {
        let end = self.window.borrow().next();
        // A record that waits for its write would be waited for.
        self.give_up_ahead();
        while self.window.borrow().oldest() < end {
            self.handle.sleep(SETTLE_POLL).await;
            self.give_up_ahead();
        }
        let flush =
            on_coordinator(local, async |local: Rc<LocalArray>| map_writer::flush(&local).await);
        if !matches!(flush.await, Some(Ok(()))) {
            return false;
        }
        let settled = self.common.settled_below.get().max(end);
        self.common.settled_below.set(settled);
        let says = |log_ring: &Rc<LogRing>| {
            log_ring.ring.borrow().says() >= end || log_ring.fault.get().is_some()
        };
        loop {
            // Those of devices that joined meanwhile, too.
            self.log_rings.for_each(|log_ring| log_ring.say_settled(end));
            if self.log_rings.all(says) {
                return true;
            }
            if local.array.is_stopping() {
                return false;
            }
            self.handle.sleep(SETTLE_POLL).await;
        }
    }

    fn holders(&self, local: &LocalArray, new: &NewUpdate) -> SmallVec<[Held; 8]> {
        self.log_rings.holders(&local.array, |member| local.device_epochs(member), new)
    }

    async fn wait_for_space(&self, local: &Rc<LocalArray>) -> Result<(), NoLogSpace> {
        let failures = self.space.failures.get();
        self.space.waiting.set(self.space.waiting.get() + 1);
        let change = self.common.changed.changed();
        settle_if_useful(local, self);
        change.await;
        self.space.waiting.set(self.space.waiting.get() - 1);
        if self.space.failures.get() == failures { Ok(()) } else { Err(NoLogSpace) }
    }

    /// Whether settling now would help a log ring that is short of space.
    fn would_help(&self) -> bool {
        let (settled, oldest) = (self.common.settled_below.get(), self.window.borrow().oldest());
        let helps = |log_ring: &Rc<LogRing>| {
            let ring = log_ring.ring.borrow();
            ring.is_short() && ring.oldest().is_some_and(|first| first >= settled && first < oldest)
        };
        self.log_rings.any(helps)
    }

    /// Something has ended: if somebody waits for space, settling may help now.
    pub(super) fn settle_if_awaited(&self, local: &Rc<LocalArray>) {
        if self.space.waiting.get() != 0 {
            settle_if_useful(local, self);
        }
    }
}

/// The ring of this device will never have space again, for it failed a batch: it goes.
async fn put_out(
    local: &Rc<LocalArray>,
    target: WriteTarget,
    fault: Fault,
) -> Result<(), NoLogSpace> {
    let mut failed = FailedMembers::new();
    blame(local, target, fault, &mut failed).await;
    Box::pin(take_out_failed(local, failed)).await.map_err(|_| NoLogSpace)
}

/// Settle in the background, if that frees space that is needed and nobody is at it.
fn settle_if_useful(local: &Rc<LocalArray>, log: &Log) {
    // Nothing settles past a record that waits for its write.
    log.give_up_ahead();
    if log.space.is_settling.get() || !log.would_help() {
        return;
    }
    log.space.is_settling.set(true);
    let local = Rc::clone(local);
    let handle = local.worker.handle.clone();
    handle.spawn(async move {
        let _under_way = local.begin();
        settle(&local).await;
    });
}

/// Everything older than the oldest update under way becomes durable in place, and the log rings
/// say so.
async fn settle(local: &Rc<LocalArray>) {
    let Some(log) = local.log() else { return };
    let oldest = log.window.borrow().oldest();
    let flushed = if sings(Canary::SpaceReusedUnflushed) {
        Some(Ok(()))
    } else {
        on_coordinator(local, async |local: Rc<LocalArray>| map_writer::flush(&local).await).await
    };
    log.space.is_settling.set(false);
    if !matches!(flushed, Some(Ok(()))) {
        log.space.failures.set(log.space.failures.get() + 1);
        log.common.changed.notify_all();
        return;
    }
    local.counts().log_settles.add(1);
    // Another settling may have got further meanwhile.
    log.common.settled_below.set(log.common.settled_below.get().max(oldest));
    log.log_rings.for_each(|log_ring| log_ring.settled());
    // Updates that ended meanwhile may help further.
    settle_if_useful(local, log);
}
