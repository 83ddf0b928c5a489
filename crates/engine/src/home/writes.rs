//! Writes of the home worker to one device: superblocks, pages.
//!
//! What must stay true: whoever writes to several devices lets all of them end before it asks how
//! one went, so that each that has no room has said so. Those that met no room are tried again,
//! with the same bytes, for as long as `room` says.

use crate::canary::{Canary, sings};
use crate::member::SlotState;
use crate::room::Patience;
use crate::shard::Shard;
use ashlar_device::{Command, Device, Fault, FaultKind, Outcome};
use ashlar_iobuf::Buf;
use ashlar_ring::Pending;
use ashlar_units::MemberIdx;
use std::rc::Rc;

/// Writes to one device.
pub(crate) struct DeviceWrites {
    member: MemberIdx,
    device: Rc<dyn Device>,
    started: Vec<(Write, Pending<Outcome>)>,
    /// Those that met no room.
    again: Vec<Write>,
    result: Result<(), Fault>,
}

/// Bytes, and where they go.
struct Write {
    offset: u64,
    bytes: Buf,
}

impl DeviceWrites {
    /// None yet.
    pub(crate) fn new(member: MemberIdx, device: &Rc<dyn Device>) -> DeviceWrites {
        let device = Rc::clone(device);
        DeviceWrites { member, device, started: Vec::new(), again: Vec::new(), result: Ok(()) }
    }

    /// Start one more.
    pub(crate) fn start(&mut self, shard: &Shard, offset: u64, bytes: Buf) {
        let write = Command::Write(bytes.clone());
        let pending = shard.start_on(self.device.as_ref(), offset, write);
        self.started.push((Write { offset, bytes }, pending));
    }

    /// All have ended, well or not.
    pub(crate) async fn end(&mut self, shard: &Shard) {
        for (write, pending) in self.started.drain(..) {
            match ended(pending).await {
                Err(fault) if fault.kind == FaultKind::NoSpace => {
                    shard.array.room.note_full(self.member);
                    self.again.push(write);
                }
                result => self.result = self.result.and(result),
            }
        }
    }

    /// All are stored.
    ///
    /// # Errors
    /// The first fault.
    pub(crate) async fn finish(mut self, shard: &Shard) -> Result<(), Fault> {
        self.end(shard).await;
        for Write { offset, bytes } in self.again.drain(..) {
            let device = (self.member, &self.device);
            self.result = self.result.and(try_again(shard, device, (offset, &bytes)).await);
        }
        self.result
    }
}

/// A write to this device, which is in the slot or on its way there, met no room: it is tried
/// again.
///
/// # Errors
/// The last fault.
pub(crate) async fn try_again(
    shard: &Shard,
    (member, device): (MemberIdx, &Rc<dyn Device>),
    (offset, bytes): (u64, &Buf),
) -> Result<(), Fault> {
    // There may be room by now: one that waited before this one has gone well.
    let write = || shard.start_on(device.as_ref(), offset, Command::Write(bytes.clone()));
    let mut result = ended(write()).await;
    let mut patience = Patience::new((&shard.array, &shard.worker.handle), member);
    let is_gone = || !is_in_slot(shard, member, device);
    while let Err(fault) = result
        && patience.may_try_again(fault, is_gone).await
    {
        if sings(Canary::NoRoomForgotten) {
            return Ok(());
        }
        result = ended(write()).await;
    }
    result
}

fn is_in_slot(shard: &Shard, member: MemberIdx, device: &Rc<dyn Device>) -> bool {
    let is_it =
        |own: &Option<Rc<dyn Device>>| own.as_ref().is_some_and(|own| Rc::ptr_eq(own, device));
    let is_in_service =
        matches!(shard.array.slot(member).state(), SlotState::InSync | SlotState::Rebuilding);
    is_in_service && is_it(&shard.device(member)) || is_it(&shard.replacement(member))
}

async fn ended(pending: Pending<Outcome>) -> Result<(), Fault> {
    pending.await.map_or(Err(Fault::GONE), |outcome| outcome.result)
}
