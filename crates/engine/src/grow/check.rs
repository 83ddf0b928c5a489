//! What stands against a growth, before anything is written.
//!
//! What must stay true: each refusal is one line that says what to do next.

use super::GrowSpec;
use crate::assemble::cannot_grow;
use crate::coordinator::join::bytes_needed;
use crate::error::Refusal;
use crate::joining_device::JoiningDevice;
use crate::local_array::LocalArray;
use crate::member::SlotState;
use crate::read_only::takes_changes;
use ashlar_ondisk::Superblock;
use ashlar_ondisk::format::member_bytes;
use ashlar_units::{BLOCK_BYTES, ByteSize, MemberIdx};
use std::rc::Rc;

/// An array as it is before it grows, by its coordinator.
pub(super) struct Before {
    pub(super) superblock: Superblock,
    /// Of its members, slot by slot.
    pub(super) paths: Vec<String>,
}

/// No device is named twice.
///
/// # Errors
/// One is.
pub(super) fn paths(spec: &GrowSpec) -> Result<(), Refusal> {
    for (at, path) in spec.devices.iter().enumerate() {
        if spec.devices[..at].contains(path) {
            return Err(Refusal::new(
                "device.given_twice",
                format!("{path} is given twice"),
                "each member needs a device of its own; nothing was written",
            ));
        }
    }
    Ok(())
}

/// The array, if nothing stands against a growth now. Runs on the coordinator.
///
/// # Errors
/// What stands against it, and what to do.
pub(super) fn look(local: &Rc<LocalArray>) -> Result<Before, Refusal> {
    let (array, superblock) = (&local.array, local.coordinator().superblock());
    let refuse = |what: &str, next: &str| Err(cannot_grow(&superblock, what, next));
    let name = array.name();
    if superblock.geometry.is_growing() {
        let next = format!("wait for its end (ashlar status {name}), or see to its job");
        return refuse("while it grows already", &next);
    }
    if superblock.geometry.spread.is_none() {
        let next = "make a pool (`ashlar create --declustered`) and copy the data";
        return refuse("as its members are in fixed groups: only declustered pools grow", next);
    }
    if let Err(Refusal { what, next, .. }) = takes_changes(array) {
        return refuse(&format!(": {what}"), &next);
    }
    if array.has_failed() {
        let next = format!("stop it and assemble it again, and then: ashlar status {name}");
        return refuse("as a write failed that nobody could stand in for", &next);
    }
    if array.pause().is_some() || array.waits_for_silent() {
        return refuse("while requests wait for a member", "see `ashlar status` for which one");
    }
    let all = (0..array.slots.len()).map(MemberIdx::from_at);
    let out: Vec<String> = all
        .filter(|slot| array.slot(*slot).state() != SlotState::InSync || local.is_replaced(*slot))
        .map(|slot| slot.to_string())
        .collect();
    if !out.is_empty() {
        let what = format!("while it is not whole: slot {}", out.join(", "));
        let next = format!("bring it back or replace it (ashlar replace {name} SLOT DEVICE)");
        return refuse(&what, &next);
    }
    if array.intent.unsynced_count() != 0 {
        return refuse("before its resync has ended", &format!("ashlar status {name}"));
    }
    let path = |slot| local.device(slot).map(|device| device.facts().path.clone());
    let paths = (0..array.slots.len()).map(MemberIdx::from_at).filter_map(path).collect();
    Ok(Before { superblock, paths })
}

/// The device is large enough, and takes blocks of 4 KiB.
///
/// # Errors
/// It does not.
pub(super) fn device(superblock: &Superblock, candidate: &JoiningDevice) -> Result<(), Refusal> {
    let (facts, path) = (candidate.opened.facts(), &candidate.path);
    let needed = bytes_needed(superblock);
    if member_bytes(facts.size_bytes) < needed {
        return Err(Refusal::new(
            "member.too_small",
            format!("{path} has {}, too little for a member", ByteSize(facts.size_bytes)),
            format!("use a device of at least {}; nothing was written", ByteSize(needed)),
        ));
    }
    if u64::from(facts.logical_block_bytes) > BLOCK_BYTES {
        let has = facts.logical_block_bytes;
        return Err(Refusal::new(
            "member.large_blocks",
            format!("{path} has blocks of {has} bytes"),
            format!("use a device with blocks of at most {BLOCK_BYTES} bytes; nothing was written"),
        ));
    }
    Ok(())
}
