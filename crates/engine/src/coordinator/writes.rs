//! Writes of the coordinator to one device: superblocks and pages.
//!
//! What must stay true: a caller that writes to several devices lets all writes end before it looks
//! at the results, so that every device without space has said so. Writes that met no space are
//! repeated with the same bytes for as long as `room` says.

use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::local_array::LocalArray;
use crate::member::SlotState;
use crate::room::patience::Patience;
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
    pub(crate) fn start(&mut self, local: &LocalArray, offset: u64, bytes: Buf) {
        let write = Command::Write(bytes.clone());
        let pending = local.start_on(self.device.as_ref(), offset, write);
        self.started.push((Write { offset, bytes }, pending));
    }

    /// All have ended, well or not.
    pub(crate) async fn end(&mut self, array: &Array) {
        for (write, pending) in self.started.drain(..) {
            match ended(pending).await {
                Err(fault) if fault.kind == FaultKind::NoSpace => {
                    array.room.note_full(self.member);
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
    pub(crate) async fn finish(mut self, local: &LocalArray) -> Result<(), Fault> {
        self.end(&local.array).await;
        for Write { offset, bytes } in self.again.drain(..) {
            let again = try_again(local, self.member, &self.device, offset, &bytes);
            self.result = self.result.and(again.await);
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
    local: &LocalArray,
    member: MemberIdx,
    device: &Rc<dyn Device>,
    offset: u64,
    bytes: &Buf,
) -> Result<(), Fault> {
    // There may be room by now: one that waited before this one has gone well.
    let write = || local.start_on(device.as_ref(), offset, Command::Write(bytes.clone()));
    let mut result = ended(write()).await;
    let mut patience = Patience::new(&local.array, &local.worker.handle, member);
    let is_gone = || !is_in_slot(local, member, device);
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

fn is_in_slot(local: &LocalArray, member: MemberIdx, device: &Rc<dyn Device>) -> bool {
    let is_it =
        |own: &Option<Rc<dyn Device>>| own.as_ref().is_some_and(|own| Rc::ptr_eq(own, device));
    let is_in_service =
        matches!(local.array.slot(member).state(), SlotState::InSync | SlotState::Rebuilding);
    is_in_service && is_it(&local.device(member)) || is_it(&local.replacement(member))
}

async fn ended(pending: Pending<Outcome>) -> Result<(), Fault> {
    pending.await.map_or(Err(Fault::GONE), |outcome| outcome.result)
}
