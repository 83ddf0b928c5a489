//! The coordinator: the one worker of an array that changes superblocks, write-intent bitmap and
//! written map on the members.
//!
//! What must stay true: one change of the superblocks at a time, each with a generation of its own.
//! A change takes effect in memory only after it is durable on every member that it does not put
//! out. Other workers come here by message.
//!
//! - here       members and replacements go
//! - `state`    what the coordinator keeps, and whom it tells of changes; `marks`
//! - `messages` the way to it, and from it to all workers
//! - `holders`  the devices that it writes to
//! - `by_hand`  the operator puts a member out
//! - `join`     a device takes a slot
//! - `drives`   which drives are, or were last, in the slots
//! - `proof`    flush marks: what is known to be on every member
//! - `record`   one superblock update on all members
//! - `look`     whether devices are still what was opened; `changed_beneath`: asked before a write
//! - `map_writer`   bitmap and map pages, flush rounds, the sweep that cleans idle regions
//! - `checksum_pages`   the first step of a flush round
//! - `spare_states`   where cells of lost members are
//! - `rounds`   many callers, one round of work
//! - `writes`   superblocks and pages on their way to one device

pub(crate) mod by_hand;
pub(crate) mod changed_beneath;
mod checksum_pages;
pub(crate) mod drives;
pub(crate) mod holders;
pub(crate) mod join;
pub(crate) mod look;
pub(crate) mod map_writer;
pub(crate) mod marks;
pub(crate) mod messages;
pub(crate) mod proof;
pub(crate) mod record;
mod rounds;
pub(crate) mod spare_states;
pub(crate) mod state;
pub(crate) mod writes;

use crate::canary::{Canary, sings};
use crate::coordinator::messages::{ArrayLost, everywhere, on_coordinator, on_every_local};
use crate::coordinator::state::Change;
use crate::devices::{SlotDevice, SlotDevices, Tags};
use crate::event::names;
use crate::local_array::LocalArray;
use crate::member::{SlotEvent, SlotState};
use crate::read_only::WhyReadOnly;
use crate::slot::MemberDevice;
use ashlar_units::MemberIdx;
use std::rc::Rc;

/// Put a member out of service: the survivors say so when this returns.
///
/// # Errors
/// [`ArrayLost`] if its group could not do without it: then nothing is recorded.
pub(crate) async fn take_out(
    local: &Rc<LocalArray>,
    member: MemberIdx,
    why: String,
) -> Result<(), ArrayLost> {
    let taken = on_coordinator(local, async move |local: Rc<LocalArray>| {
        let _gate = local.coordinator().gate.acquire().await;
        take_out_alone(&local, member, &why).await
    });
    taken.await.unwrap_or(Err(ArrayLost))
}

/// The same for the device that had the slot in that device epoch. If it has left the slot
/// meanwhile there is nothing to do: the others say so, and whatever was missed goes to its
/// successor by the job that fills that one, since the job waits for the row locks of every write
/// that was planned without it.
///
/// # Errors
/// As [`take_out`].
pub(crate) async fn take_out_holder(
    local: &Rc<LocalArray>,
    MemberDevice { member, device_epoch }: MemberDevice,
    why: String,
) -> Result<(), ArrayLost> {
    let taken = on_coordinator(local, async move |local: Rc<LocalArray>| {
        let _gate = local.coordinator().gate.acquire().await;
        if local.array.slot(member).device_epoch() != device_epoch {
            return Ok(());
        }
        take_out_alone(&local, member, &why).await
    });
    taken.await.unwrap_or(Err(ArrayLost))
}

/// The same in the background, for callers that need not wait.
pub(crate) fn take_out_soon(local: &Rc<LocalArray>, device: MemberDevice, why: String) {
    let local = Rc::clone(local);
    let handle = local.worker.handle.clone();
    handle.spawn(async move {
        // A member whose group cannot do without it stays: the event says so.
        let _stays = take_out_holder(&local, device, why).await;
    });
}

/// Wait until no member is out without all others saying so.
///
/// # Errors
/// [`ArrayLost`] if they cannot say it: what left that member out is not to be answered.
pub(crate) async fn all_recorded(local: &Rc<LocalArray>) -> Result<(), ArrayLost> {
    let recorded = on_coordinator(local, async |local: Rc<LocalArray>| {
        let _gate = local.coordinator().gate.acquire().await;
        record_all(&local).await
    });
    recorded.await.unwrap_or(Err(ArrayLost))
}

async fn record_all(local: &Rc<LocalArray>) -> Result<(), ArrayLost> {
    for member in (0..local.array.slots.len()).map(MemberIdx::from_at) {
        if local.array.slot(member).state() == SlotState::Failing {
            take_out_alone(local, member, "it failed").await?;
        }
    }
    match local.array.owes_superblock() {
        true => record::update(local, |_| {}).await,
        false => Ok(()),
    }
}

/// A write ended halfway, or its records did, and no member could be put out for it: the next start
/// is to resync what is dirty, whatever the log says. The members say so when this returns. If they
/// cannot, the array takes no more writes: nothing could vouch for them.
pub(crate) async fn record_doubt(local: &Rc<LocalArray>) {
    let recorded = on_coordinator(local, async |local: Rc<LocalArray>| {
        let _gate = local.coordinator().gate.acquire().await;
        if local.coordinator().superblock.borrow().resync_dirty_regions {
            return Ok(());
        }
        record::update(&local, |superblock| superblock.resync_dirty_regions = true).await
    });
    if !matches!(recorded.await, Some(Ok(()))) {
        local.array.read_only.set(Some(WhyReadOnly::DoubtNotRecorded));
    }
}

/// The device that was being filled to replace a member failed: the member goes on without it. If
/// that device has been made current meanwhile, the member is out. The members say so when this
/// returns.
pub(crate) async fn replacement_failed(
    local: &Rc<LocalArray>,
    MemberDevice { member, device_epoch }: MemberDevice,
    why: String,
) {
    let dropped = on_coordinator(local, async move |local: Rc<LocalArray>| {
        let _gate = local.coordinator().gate.acquire().await;
        let slot = local.array.slot(member);
        if slot.device_epoch() == device_epoch {
            // A member whose group cannot do without it stays: the event says so.
            let _stays = take_out_alone(&local, member, &why).await;
        } else if slot.replacement_device_epoch() == device_epoch {
            drop_replacement(&local, member, &why).await;
        }
    });
    // The array may have stopped meanwhile: then there is nothing to drop.
    let _gone = dropped.await;
}

/// The coordinator's part of taking a member out. The caller holds the gate.
pub(crate) async fn take_out_alone(
    local: &Rc<LocalArray>,
    member: MemberIdx,
    why: &str,
) -> Result<(), ArrayLost> {
    let array = &local.array;
    let state = array.slot(member).state();
    if state == SlotState::Out {
        return Ok(());
    }
    if array.room.is_given_up() {
        return Err(ArrayLost);
    }
    let has_replacement = local.replacement(member).is_some();
    let says_out =
        record::says_out(&local.coordinator().superblock.borrow(), member, has_replacement);
    if state == SlotState::Failing && says_out {
        // It failed while the superblocks were being written: they say so already, unless that was
        // cut off.
        if array.owes_superblock() {
            record::update(local, |_| {}).await?;
        }
        finish_taking_out(local, member).await;
        return Ok(());
    }
    let device_epoch = array.slot(member).device_epoch();
    let device = MemberDevice { member, device_epoch };
    let why = local.coordinator().silences.reason(device, why);
    let mut fields = vec![("slot", member.to_string()), ("reason", why)];
    fields.extend(local.device(member).map(|device| ("path", device.facts().path.clone())));
    fields.extend(record::role_of(&local.coordinator().superblock.borrow(), member));
    if array.is_needed(member) {
        array.set_fails(member);
        array.record(names::ARRAY_FAILED, fields);
        return Err(ArrayLost);
    }
    array.set_slot_state(member, state.next(SlotEvent::Fault).expect("any state can fail"));
    if !sings(Canary::TakeOutNotRecorded) {
        record::update(local, |superblock| record::hand_over(superblock, member)).await?;
    }
    array.record(names::MEMBER_FAILED, fields);
    finish_taking_out(local, member).await;
    Ok(())
}

/// The superblocks say that the slot, which was failing, is out: make it so. The caller holds the
/// gate.
async fn finish_taking_out(local: &Rc<LocalArray>, member: MemberIdx) {
    let out = SlotState::Failing.next(SlotEvent::OutRecorded).expect("it was failing");
    local.array.set_slot_state(member, out);
    hand_over_to_replacement(local, member).await;
    // No proof came about while it was failing.
    proof::ask_for(local);
    local.coordinator().tell(Change::MemberOut(member));
}

/// The slot's device is let go everywhere; if one was being filled to replace it, that one takes
/// over, to be rebuilt: it missed what was written since the slot was failing. (The superblock says
/// so already.)
async fn hand_over_to_replacement(local: &Rc<LocalArray>, member: MemberIdx) {
    let array = &local.array;
    let log_tag =
        local.coordinator().superblock.borrow().joining_device(member).map(|entry| entry.log_tag);
    let Some(log_tag) = log_tag.filter(|_| local.replacement(member).is_some()) else {
        on_every_local(local, move |local| {
            // Its open commands do not matter any more, whether it ever answers or not.
            local.give_up(member);
            local.set_devices(member, SlotDevices::default());
        });
        return;
    };
    let slot = array.slot(member);
    let copied_below = slot.whole_below();
    slot.set_nothing_rebuilt();
    let device_epoch = slot.replacement_device_epoch();
    array.set_device_epoch(member, device_epoch);
    // On every worker before the slot may be written again: a write must not go to the device that
    // went.
    everywhere(local, move |local| {
        local.give_up(member);
        let taking_over = local.slot_devices(member).replacement;
        let current = taking_over.map(|SlotDevice { device, tags }| {
            let tags = Tags { log: log_tag, ..tags };
            SlotDevice { device, tags }
        });
        let devices = SlotDevices { current, replacement: None };
        local.set_devices(member, devices);
        local.set_device_epochs(member, (device_epoch, device_epoch));
    })
    .await;
    let joined = SlotState::Out.next(SlotEvent::DeviceJoined).expect("the slot is out");
    array.set_slot_state(member, joined);
    local.coordinator().tell(Change::ReplacementTookOver { member, copied_below });
}

async fn drop_replacement(local: &Rc<LocalArray>, member: MemberIdx, why: &str) {
    let Some(device) = local.replacement(member) else { return };
    detach_replacement(local, member);
    let dropped =
        record::update(local, |superblock| record::drop_joining_device(superblock, member)).await;
    let mut fields = vec![("slot", member.to_string()), ("reason", why.to_owned())];
    fields.push(("role", "replacement".to_owned()));
    fields.push(("path", device.facts().path.clone()));
    if dropped.is_err() {
        fields.push(("recorded", "no".to_owned()));
    }
    local.array.record(names::MEMBER_FAILED, fields);
    local.coordinator().tell(Change::ReplacementDropped);
}

fn detach_replacement(local: &Rc<LocalArray>, member: MemberIdx) {
    on_every_local(local, move |local| {
        // It failed: its waiters need not wait any more.
        local.replacement(member).into_iter().for_each(|device| device.give_up());
        let devices = SlotDevices { replacement: None, ..local.slot_devices(member) };
        local.set_devices(member, devices);
    });
}
