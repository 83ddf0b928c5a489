//! Blames devices for failed I/O: who failed, and what the other members must record before the
//! client is answered.
//!
//! What must stay true: a write is acknowledged only when every member it is not on is recorded as
//! out on the survivors, so that no crash can bring a stale member back as current. A member whose
//! loss would leave more missing than the parity replaces is not recorded as out: the array answers
//! with errors instead, and an operator can still bring it back.

use crate::coordinator;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::member::SlotState;
use crate::slot::MemberDevice;
use crate::slot::WriteTarget;
use ashlar_device::{Fault, FaultKind};
use ashlar_volume::VolumeErrorKind;
use smallvec::SmallVec;
use std::rc::Rc;

/// Members that failed a write, each once, and on which of their devices.
pub(crate) type FailedMembers = SmallVec<[(MemberDevice, Fault); 4]>;

/// A device failed a write: it goes at once if it was only being filled, else it is among the
/// failed.
pub(crate) async fn blame(
    local: &Rc<LocalArray>,
    target: WriteTarget,
    fault: Fault,
    failed: &mut FailedMembers,
) {
    if target.is_replacement {
        // Before the write is answered. If the device were made current first, it would lack the
        // write.
        return coordinator::replacement_failed(local, target.device, fault.to_string()).await;
    }
    local.count_write_error(target.device);
    if failed.iter().all(|(device, _)| device.member != target.device.member) {
        failed.push((target.device, fault));
    }
}

/// The writes of one stripe ended, `failed` of them badly. On success every member that lacks them
/// is recorded as out.
pub(crate) async fn take_out_failed(
    local: &Rc<LocalArray>,
    failed: FailedMembers,
) -> Result<(), VolumeErrorKind> {
    let mut result = Ok(());
    // All of them, whatever becomes of the first.
    for (device, fault) in failed {
        let out = coordinator::take_out_holder(local, device, fault.to_string());
        result = result.and(out.await.map_err(|_| kind_of(fault)));
    }
    result?;
    if local.array.has_failing_slots() {
        coordinator::all_recorded(local).await.map_err(|_| VolumeErrorKind::Io)?;
    }
    Ok(())
}

/// A read failed on a member: count it; a member that is gone, or that fails too often, goes out of
/// service in the background (the read itself needs nobody's record).
pub(crate) fn read_failed(local: &Rc<LocalArray>, device: MemberDevice, fault: Fault) {
    let array = &local.array;
    let slot = array.slot(device.member);
    if slot.device_epoch() != device.device_epoch {
        // It left the slot while the read was under way: its successor has no part in this.
        return;
    }
    if matches!(slot.state(), SlotState::Failing | SlotState::Out) {
        // It is on its way out already, and what it was asked was given up.
        return;
    }
    local.tally(device.member).counters.read_errors.add(1);
    let is_worn =
        array.member_counts(device.member).read_errors > array.tuning.get().read_errors_max;
    let is_gone = fault.kind == FaultKind::Gone;
    if is_worn && !is_gone && array.is_needed(device.member) {
        // It stays, and no update has ended half way for that. A flush shows whether it is well.
        if !slot.fails() {
            slot.set_fails(true);
            let why = vec![("slot", device.member.to_string()), ("reason", fault.to_string())];
            array.record(names::ARRAY_FAILED, why);
        }
    } else if is_gone || is_worn {
        coordinator::take_out_soon(local, device, fault.to_string());
    }
}

/// A block is lost: say so once for each request.
pub(crate) fn block_lost(local: &LocalArray, stripe: ashlar_layout::Stripe) -> VolumeErrorKind {
    local.counts().lost_blocks.add(1);
    local.array.record(names::BLOCK_LOST, vec![("stripe", stripe.to_string())]);
    VolumeErrorKind::Io
}

fn kind_of(fault: Fault) -> VolumeErrorKind {
    match fault.kind {
        FaultKind::NoSpace => VolumeErrorKind::NoSpace,
        _ => VolumeErrorKind::Io,
    }
}
