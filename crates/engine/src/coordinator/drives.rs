//! Drive pages on the members: which drive is, or was last, in each slot.
//!
//! What must stay true: they are written after the superblock that names the members, to the
//! devices that it lists as in service, and only if they say something new. A page that cannot be
//! written puts nobody out and holds nothing up: people read it, nothing else does.

use super::record::{SuperblockTarget, all_went_well, targets};
use crate::array::Array;
use crate::control_io::aligned;
use crate::identity::DeviceIdentity;
use crate::local_array::LocalArray;
use ashlar_device::Command;
use ashlar_ondisk::{Drive, Drives, MemberEntry, Superblock, Text};
use ashlar_units::MemberIdx;
use std::collections::BTreeSet;
use std::rc::Rc;
use uuid::Uuid;

/// The member that the slot's own device is, or was.
fn entry_of(superblock: &Superblock, slot: MemberIdx) -> Option<&MemberEntry> {
    superblock.holder(slot).or_else(|| superblock.joining_device(slot))
}

/// The start, before devices are given to the slots: take over what the members know.
pub(crate) fn recall(array: &Array, superblock: &Superblock, drives: &Drives) {
    for slot in (0..array.slots.len()).map(MemberIdx::from_at) {
        let Some(entry) = entry_of(superblock, slot) else { continue };
        if let Some(drive) = drives.of(slot, entry.uuid) {
            let serial = entry.serial.as_str();
            let identity = DeviceIdentity::of_drive(&drive, serial, &array.host);
            array.identities.recall(slot, identity);
        }
    }
}

/// The drives of all slots as `superblock` names their members.
fn drives_of(array: &Array, superblock: &Superblock) -> Drives {
    let drive = |slot: MemberIdx| {
        let identity = array.identities.last(slot);
        let is_of = |entry: &&MemberEntry| {
            entry.serial == Text::cut(identity.serial.as_deref().unwrap_or(""))
        };
        let entry = entry_of(superblock, slot).filter(is_of).filter(|_| !identity.path.is_empty());
        entry.map_or(Drive::default(), |entry| identity.to_drive(&array.host).of(entry.uuid))
    };
    Drives::new((0..array.slots.len()).map(MemberIdx::from_at).map(drive).collect())
}

/// The superblock was recorded: let the members say which drives are where. On the coordinator.
pub(super) async fn keep(local: &Rc<LocalArray>) {
    let superblock = local.coordinator().superblock();
    let drives = drives_of(&local.array, &superblock);
    let targets = targets(local, &superblock);
    let appearance = |it: &SuperblockTarget| Some((it.uuid, it.device.facts().appearance?));
    local.coordinator().appearances.keep(targets.iter().filter_map(appearance).collect());
    let members: BTreeSet<Uuid> = targets.iter().map(|target| target.uuid).collect();
    let kept = &local.coordinator().drives.0;
    if kept.borrow().0 == drives && kept.borrow().1.is_superset(&members) {
        return;
    }
    let pages = drives.pages(superblock.array_uuid, superblock.generation);
    let mut writes = Vec::new();
    for page in &pages {
        let (offset, block) = (page.offset(), aligned(&page.encode()));
        let start = |target: &SuperblockTarget| {
            local.start_on(target.device.as_ref(), offset, Command::Write(block.clone()))
        };
        writes.extend(targets.iter().map(start));
    }
    // A device that does not take them says so where data goes to it.
    let _written = all_went_well(writes).await;
    *kept.borrow_mut() = (drives, members);
}
