//! Begins jobs: those that fill a joining device, and those that the superblock lists as under way
//! when the array starts.
//!
//! What must stay true: a resync is among the running jobs before any other begins. A device that
//! may have missed writes visits every region that can hold them. These regions are known only
//! after every worker has answered once more (`coordinator/join.rs`).

use super::course::{Course, Reach};
use super::job::JobSpec;
use super::sparing::look_again;
use super::{exposure, growing, notify, spare_filling, spawn, start, table};
use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::coordinator::messages::everywhere;
use crate::coordinator::record;
use crate::local_array::LocalArray;
use crate::member::SlotState;
use crate::stripe::work::Work;
use ashlar_layout::StripeId;
use ashlar_ondisk::{ConsistencyPolicy, JobKind, JobRecord, MemberEntry, Role, Superblock};
use ashlar_units::{MemberIdx, StripeNo};
use std::rc::Rc;

/// The array starts: go on with what its superblock says was under way.
pub(crate) fn resume(local: &Rc<LocalArray>) {
    local.coordinator().jobs.has_begun.set(true);
    let superblock = local.coordinator().superblock();
    // Before the others are looked at: they wait for it.
    resume_resync(local, &superblock);
    for at in 0..local.array.slots.len() {
        let slot = MemberIdx::from_at(at);
        match (local.array.slot(slot).state(), superblock.joining_device(slot)) {
            (SlotState::Rebuilding, Some(_)) if local.array.spare_cells.is_some() => {
                spare_filling::resume(local, slot);
            }
            (SlotState::Rebuilding, Some(entry)) => resume_rebuild(local, &superblock, *entry),
            (SlotState::InSync, Some(entry)) if local.replacement(slot).is_some() => {
                resume_copy(local, &superblock, *entry);
            }
            _ => {}
        }
    }
    spare_filling::begin(local);
    exposure::begin(local);
    growing::begin(local);
    if let Some(record) = superblock.jobs.iter().find(|job| job.kind == JobKind::Scrub) {
        let spec = JobSpec {
            checkpoint: local.array.checkpoint_of(record),
            is_paused: record.paused,
            mismatches: record.mismatches,
            ..JobSpec::new(
                Work::Scrub { is_repairing: record.repair },
                Course { slot: None, reach: Reach::Written },
            )
        };
        start(local, spec);
    }
    look_again(local);
}

fn resume_resync(local: &Rc<LocalArray>, superblock: &Superblock) {
    if local.array.intent.unsynced_count() == 0 {
        return;
    }
    let listed = superblock.jobs.iter().find(|job| job.kind == JobKind::Resync);
    let job = start(
        local,
        JobSpec {
            is_paused: listed.is_some_and(|job| job.paused),
            ..JobSpec::new(Work::Resync, Course { slot: None, reach: Reach::Unsynced })
        },
    );
    enter(local, job.record());
}

/// Enter a job into the table in the background.
fn enter(local: &Rc<LocalArray>, job: JobRecord) {
    spawn(local, async move |local: Rc<LocalArray>| {
        let put = |superblock: &mut Superblock| {
            table::put(superblock, job);
        };
        // A job that is not in the table begins anew after a restart, nothing worse.
        let _lost = record::locked_update(&local, put).await;
    });
}

fn resume_rebuild(local: &Rc<LocalArray>, superblock: &Superblock, entry: MemberEntry) {
    let (array, slot) = (&local.array, entry.slot);
    let listed = superblock.job_of(entry.uuid);
    let is_readded = entry.out_since != 0 && superblock.policy != ConsistencyPolicy::None;
    let job = start(
        local,
        JobSpec {
            member: Some(entry.uuid),
            checkpoint: array.slot(slot).rebuilt_below(),
            is_paused: listed.is_some_and(|job| job.paused),
            ..JobSpec::new(Work::Rebuild { slot }, rebuild_course(&local.array, slot, is_readded))
        },
    );
    let job = job.record();
    // The member it was to replace did not come back: it is no copy any more.
    spawn(local, async move |local: Rc<LocalArray>| {
        let change = |superblock: &mut Superblock| {
            if superblock.joining_device(slot).is_some_and(|new| new.role == Role::Replacement) {
                record::mark_out(superblock, slot);
            }
            table::put(superblock, job);
        };
        // A job that is not in the table begins anew after a restart, nothing worse.
        let _lost = record::locked_update(&local, change).await;
    });
}

fn rebuild_course(array: &Array, slot: MemberIdx, is_readded: bool) -> Course {
    let below = StripeNo(array.geometry().stripe_count());
    let reach = if is_readded { stale_regions(array, below) } else { Reach::Written };
    Course { slot: Some(slot), reach }
}

/// Below this stripe the device holds what it should, except in regions that are dirty.
fn stale_regions(array: &Array, below: StripeNo) -> Reach {
    let mut regions = array.intent.durable_regions();
    if sings(Canary::ReAddVisitsNothing) {
        regions.clear();
    }
    Reach::Stale { below, regions: regions.into_iter().collect() }
}

/// A crash may have left a write on one of the two devices only: dirty regions are copied again.
fn resume_copy(local: &Rc<LocalArray>, superblock: &Superblock, entry: MemberEntry) {
    let slot = entry.slot;
    let listed = superblock.job_of(entry.uuid);
    let found = local.coordinator().jobs.copied_below.borrow_mut().remove(&slot);
    let below = found.or(listed.map(|job| job.checkpoint)).unwrap_or(StripeNo(0));
    local.array.slot(slot).set_rebuilt_below(StripeId::default());
    let job = start(
        local,
        JobSpec {
            member: Some(entry.uuid),
            is_paused: listed.is_some_and(|job| job.paused),
            ..JobSpec::new(
                Work::Copy { slot },
                Course { slot: Some(slot), reach: stale_regions(&local.array, below) },
            )
        },
    );
    if listed.is_none() {
        enter(local, job.record());
    }
}

/// The start is about to be recorded. A crash may have left a write on one device of a slot and not
/// on the other: as long as that is so, nothing may say that the copy is done. The dirty regions
/// say it, and a resync cleans them before the copy is there (seed 15566 of the universes).
pub(crate) fn begin_copies_anew(local: &LocalArray, superblock: &mut Superblock) {
    if local.array.intent.durable_count() == 0 {
        return;
    }
    for job in superblock.jobs.iter_mut().filter(|job| job.kind == JobKind::Replace) {
        let copied_below = std::mem::replace(&mut job.checkpoint, StripeNo(0));
        let slot = job.slot.map(|slot| (slot, copied_below));
        local.coordinator().jobs.copied_below.borrow_mut().extend(slot);
    }
}

/// Fill the device that has just taken the slot. Every worker knows it and the slot is rebuilding.
pub(crate) fn start_rebuild(local: &Rc<LocalArray>, entry: MemberEntry, is_readded: bool) {
    let slot = entry.slot;
    start(
        local,
        JobSpec {
            member: Some(entry.uuid),
            ..JobSpec::new(Work::Rebuild { slot }, rebuild_course(&local.array, slot, is_readded))
        },
    );
}

/// Fill the device that is to replace the slot's. Every worker knows it.
pub(crate) fn start_copy(local: &Rc<LocalArray>, entry: MemberEntry) {
    let slot = entry.slot;
    start(
        local,
        JobSpec {
            member: Some(entry.uuid),
            ..JobSpec::new(Work::Copy { slot }, Course { slot: Some(slot), reach: Reach::Written })
        },
    );
}

/// The slot's device died and the one that was to replace it has taken over, with everything below
/// `copied_below` on it but for what was written since the slot was failing. Those writes have made
/// their regions dirty, and regions stay dirty while a slot is not in sync.
pub(crate) fn replacement_took_over(
    local: &Rc<LocalArray>,
    slot: MemberIdx,
    copied_below: StripeId,
) {
    notify(local.coordinator());
    if !local.coordinator().jobs.has_begun.get() {
        // The superblock lists the rebuild; it begins with the others.
        return;
    }
    spawn(local, async move |local: Rc<LocalArray>| {
        // Writes planned before the slot was rebuilding have entered their regions when this
        // returns.
        everywhere(&local, |_| {}).await;
        if local.array.spare_cells.is_some() {
            return spare_filling::device_joined(&local, slot, false).await;
        }
        let Some(entry) = local.coordinator().superblock().joining_device(slot).copied() else {
            return;
        };
        let spec = JobSpec {
            member: Some(entry.uuid),
            ..JobSpec::new(
                Work::Rebuild { slot },
                Course {
                    slot: Some(slot),
                    reach: stale_regions(&local.array, copied_below.number()),
                },
            )
        };
        start(&local, spec);
    });
}
