//! Spares for slots that are out, and for slow members.
//!
//! What must stay true: a spare that leaves its pool joins a slot, returns because the slot is no
//! longer free, or is dropped because it does not work. An event says which.

use super::{notify, spawn};
use crate::coordinator::join;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::member::SlotState;
use crate::read_only::TAKES_NO_CHANGES;
use crate::spare::Spare;
use ashlar_units::MemberIdx;
use std::rc::Rc;
use std::sync::Arc;

/// A member was put out and the others know: its job ends, and a spare takes its slot if one fits.
pub(crate) fn member_went_out(local: &Rc<LocalArray>, member: MemberIdx) {
    notify(local.coordinator());
    let has_begun = local.coordinator().jobs.has_begun.get();
    let is_out = local.array.slot(member).state() == SlotState::Out;
    if has_begun && is_out && local.array.layouts.parity_strips_max() > 0 {
        spawn(local, async move |local: Rc<LocalArray>| {
            if !take_spare(&local, member, SlotState::Out).await {
                tell_missing(&local, member);
            }
        });
    }
}

/// Spares may be there now: let them take the slots that are out.
pub(crate) fn look_again(local: &Rc<LocalArray>) {
    let has_parity = local.array.layouts.parity_strips_max() > 0;
    for member in local.array.slots_out().into_iter().filter(|_| has_parity) {
        spawn(local, async move |local: Rc<LocalArray>| {
            take_spare(&local, member, SlotState::Out).await;
        });
    }
}

/// A member is slow: a spare is filled while it still serves, and takes its slot then.
pub(crate) fn copy_to_spare(local: &Rc<LocalArray>, member: MemberIdx) {
    spawn(local, async move |local: Rc<LocalArray>| {
        let was_there = take_spare(&local, member, SlotState::InSync).await;
        if local.coordinator().slow.spare_taken(member, was_there) {
            tell_missing(&local, member);
        }
    });
}

fn tell_missing(local: &LocalArray, member: MemberIdx) {
    if local.array.spare_pools.is_empty() {
        return;
    }
    let fields = vec![
        ("slot", member.to_string()),
        ("pools", local.array.spare_pools.join(" ")),
        ("bytes_min", join::bytes_needed(&local.coordinator().superblock()).to_string()),
    ];
    local.array.record(names::SPARE_MISSING, fields);
}

/// Have the smallest spare that fits, of the first pool that has one, take the slot if that is in
/// this state; a spare that does not
/// work is dropped and the next one tried. False if none fits.
async fn take_spare(local: &Rc<LocalArray>, member: MemberIdx, wanted: SlotState) -> bool {
    let array = &local.array;
    loop {
        let is_needed = array.slot(member).state() == wanted && !array.is_stopping();
        if !is_needed {
            return true;
        }
        let bytes_min = join::bytes_needed(&local.coordinator().superblock());
        let mut pools = array.spare_pools.iter();
        let spare = pools.find_map(|pool| array.spares.take(pool, bytes_min));
        let Some(spare) = spare else { return false };
        let Spare { opened, record } = spare;
        let path = opened.facts().path.clone();
        let uuid = record.member_uuid;
        let joining_device = join::Stated {
            opened: Arc::clone(&opened),
            atomic_write_bytes: record.stated_atomic_bytes,
            // It was made blank when it became a spare.
            blanking: None,
        };
        let joined = match wanted {
            SlotState::InSync => {
                join::replacement_with_uuid(local, member, joining_device, uuid).await
            }
            _ => join::with_uuid(local, member, joining_device, uuid).await,
        };
        let Err(refusal) = joined else { return true };
        if [join::SLOT_TAKEN, TAKES_NO_CHANGES, join::MEMBERS_LOST].contains(&refusal.code) {
            array.spares.add(Spare { opened, record });
            return true;
        }
        let fields = vec![("path", path), ("reason", refusal.what)];
        array.record(names::SPARE_REMOVED, fields);
    }
}
