//! The jobs in the superblocks, and the changes at a job's end.
//!
//! What must stay true: a checkpoint is recorded only after its device and all others were flushed,
//! with the written map. Its value was read before that flush began. The slot of a finished rebuild
//! becomes in sync only when the members have recorded it. So does the device of a finished copy.

use super::board::JobEnd;
use super::job::{End, Job};
use crate::coordinator;
use crate::coordinator::messages::everywhere;
use crate::coordinator::state::Coordinator;
use crate::coordinator::{map_writer, proof, record};
use crate::devices::SlotDevices;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::member::SlotEvent;
use crate::member::SlotState;
use crate::slot::{DeviceEpoch, MemberDevice};
use crate::stripe::work::Work;
use ashlar_device::Command;
use ashlar_ondisk::format::JOBS_MAX;
use ashlar_ondisk::{JobKind, JobRecord, MemberEvent, ScrubRecord, Superblock};
use ashlar_units::MemberIdx;
use std::rc::Rc;
use uuid::Uuid;

/// Whether the job has to stand still: the operator says so, or a resync goes before it (without
/// one, what parity says about an unsynced region is nothing to rebuild from). One that has only
/// lost stripes left holds up nobody.
pub(super) fn must_wait(coordinator: &Coordinator, job: &Job) -> bool {
    let is_resync = |other: &Rc<Job>| {
        other.kind() == JobKind::Resync && !other.is_paused.get() && !other.is_blocked.get()
    };
    let is_behind =
        job.kind() != JobKind::Resync && coordinator.jobs.running.borrow().iter().any(is_resync);
    job.is_paused.get() || is_behind
}

/// Enter the job, or replace what is said of it. False if the table is full.
pub(crate) fn put(superblock: &mut Superblock, job: JobRecord) -> bool {
    let is_same = |listed: &&mut JobRecord| (listed.kind, listed.slot) == (job.kind, job.slot);
    if let Some(listed) = superblock.jobs.iter_mut().find(is_same) {
        *listed = job;
        return true;
    }
    let has_room = superblock.jobs.len() < JOBS_MAX;
    if has_room {
        superblock.jobs.push(job);
    }
    has_room
}

/// The job is not in the table any more.
pub(super) fn remove(superblock: &mut Superblock, job: JobRecord) {
    superblock.jobs.retain(|listed| (listed.kind, listed.slot) != (job.kind, job.slot));
}

/// Record how far the job is, if that changed.
pub(super) async fn checkpoint(local: &Rc<LocalArray>, job: &Job) {
    let record = job.record();
    let is_news = |listed: &JobRecord| {
        (listed.kind, listed.slot) == (record.kind, record.slot) && *listed != record
    };
    // Not listed: the table was full, or its member has just gone.
    let is_changed = local.coordinator().superblock().jobs.iter().any(is_news);
    if !is_changed || !flush_target(local, job).await {
        return;
    }
    let put_if_listed = |superblock: &mut Superblock| {
        if superblock.jobs.iter().any(is_news) {
            put(superblock, record);
        }
    };
    // An array that cannot record it any more has said so by itself.
    let _lost = record::locked_update(local, put_if_listed).await;
}

/// Everything that was stored on the job's device before is durable, and so is all that the job
/// relied on: what it read from the others, and that the stripes it passed over are unwritten.
/// (Were a trim lost in a power cut after the job has passed the stripe by, the new device would be
/// believed to hold it.) False if the device went, or the array is lost.
async fn flush_target(local: &Rc<LocalArray>, job: &Job) -> bool {
    let (slot, device) = match job.work {
        Work::Rebuild { slot } => (slot, local.device(slot)),
        Work::Copy { slot } => (slot, local.replacement(slot)),
        Work::Resync | Work::Scrub { .. } | Work::FillCells { .. } | Work::MoveCells { .. } => {
            return true;
        }
    };
    let (Some(device), Some(device_epoch)) = (device, job.device_epoch) else { return false };
    if map_writer::flush(local).await.is_err() {
        return false;
    }
    let flushed = local.start_on(device.as_ref(), 0, Command::Flush).await;
    if flushed.is_some_and(|outcome| outcome.result.is_ok()) {
        proof::ask_for_filled(local);
        return true;
    }
    let why = "a flush failed".to_owned();
    let target = MemberDevice { member: slot, device_epoch };
    match job.work {
        Work::Copy { .. } => coordinator::replacement_failed(local, target, why).await,
        // A member whose group cannot do without it stays, and the job goes on trying.
        _ => drop(coordinator::take_out_holder(local, target, why).await),
    }
    false
}

/// The job has ended: make that so on the members, and say it. False if it must go on: what was to
/// be recorded could not be.
pub(super) async fn close(local: &Rc<LocalArray>, job: &Job, end: End) {
    let (name, why) = match end {
        End::Complete if complete(local, job).await => (names::JOB_FINISHED, None),
        End::Complete | End::TargetGone => (names::JOB_STOPPED, Some("its device is gone")),
        End::Cancelled => {
            forget(local, job).await;
            (names::JOB_STOPPED, Some("cancelled"))
        }
        End::Stopped => {
            checkpoint(local, job).await;
            (names::JOB_STOPPED, Some("the array stops; it goes on when it is started"))
        }
    };
    local.array.jobs.note_end(JobEnd { did: job.status(), stopped: why });
    let mut fields = job.result_fields();
    fields.extend(why.map(|why| ("reason", why.to_owned())));
    local.array.record(name, fields);
}

async fn complete(local: &Rc<LocalArray>, job: &Job) -> bool {
    match (job.work, job.member) {
        (Work::Rebuild { slot }, Some(member)) => complete_rebuild(local, job, slot, member).await,
        (Work::Copy { slot }, Some(member)) => complete_copy(local, job, slot, member).await,
        (Work::Rebuild { .. } | Work::Copy { .. }, None) => false,
        // They end by themselves (`spare_filling.rs`, `growing.rs`).
        (Work::FillCells { .. } | Work::MoveCells { .. }, _) => true,
        (Work::Resync, _) => {
            // As long as regions are not trusted the table says so, for the next start.
            if local.array.intent.unsynced_count() == 0 {
                forget_resync(local, job).await;
            }
            true
        }
        (Work::Scrub { .. }, _) => {
            finish_scrub(local, job).await;
            true
        }
    }
}

async fn forget(local: &Rc<LocalArray>, job: &Job) {
    let record = job.record();
    // An array that cannot record it any more has said so by itself.
    let _lost = record::locked_update(local, |superblock| remove(superblock, record)).await;
}

/// All regions are trusted again.
async fn forget_resync(local: &Rc<LocalArray>, job: &Job) {
    let record = job.record();
    let unsynced = Rc::clone(local);
    let forget = move |superblock: &mut Superblock| {
        remove(superblock, record);
        // Looked at under the gate: doubt that came up meanwhile waits for it to be recorded.
        superblock.resync_dirty_regions &= unsynced.array.intent.unsynced_count() != 0;
    };
    // As above.
    let _lost = record::locked_update(local, forget).await;
}

async fn finish_scrub(local: &Rc<LocalArray>, job: &Job) {
    let record = job.record();
    let now_s = (local.array.wall_clock_s)();
    let scrub = ScrubRecord { at_s: now_s.max(1), mismatches: record.mismatches };
    let finish = |superblock: &mut Superblock| {
        remove(superblock, record);
        superblock.last_scrub = Some(scrub);
    };
    // As above.
    let _lost = record::locked_update(local, finish).await;
}

/// The joining device holds the slot from now on; its former holder is dismissed.
fn enthrone(superblock: &mut Superblock, slot: MemberIdx, member: Uuid, job: JobRecord) {
    enthrone_member(superblock, slot, member);
    remove(superblock, job);
}

/// The same; its job goes with the event.
pub(super) fn enthrone_member(superblock: &mut Superblock, slot: MemberIdx, member: Uuid) {
    let holders = superblock
        .members
        .iter()
        .filter(|entry| entry.slot == slot && entry.role.is_holder() && entry.uuid != member);
    let holders: Vec<Uuid> = holders.map(|entry| entry.uuid).collect();
    for holder in holders {
        superblock.record(holder, MemberEvent::Dismissed).expect("a holder can be dismissed");
    }
    superblock.record(member, MemberEvent::Completed).expect("it was on its way");
}

async fn complete_rebuild(
    local: &Rc<LocalArray>,
    job: &Job,
    slot: MemberIdx,
    member: Uuid,
) -> bool {
    if !flush_target(local, job).await {
        return false;
    }
    let _gate = local.coordinator().gate().await;
    let is_listed =
        local.coordinator().superblock().joining_device(slot).is_some_and(|new| new.uuid == member);
    if !is_listed || !has_target(local, job) {
        return false;
    }
    let record = job.record();
    let recorded = record::update(local, |next| enthrone(next, slot, member, record)).await;
    if recorded.is_err() || !has_target(local, job) {
        return false;
    }
    let state = local.array.slot(slot).state().next(SlotEvent::RebuildRecorded);
    local.array.set_slot_state(slot, state.expect("the target is rebuilding"));
    true
}

/// The replacement takes the slot. All workers read from it and still write to both before the
/// members record it; only then is the old device let go. So whoever reads from the old one on a
/// worker that has not heard yet reads what is current, and a crash at any point finds one of the
/// two complete.
async fn complete_copy(local: &Rc<LocalArray>, job: &Job, slot: MemberIdx, member: Uuid) -> bool {
    if !flush_target(local, job).await {
        return false;
    }
    let _gate = local.coordinator().gate().await;
    let is_listed =
        local.coordinator().superblock().joining_device(slot).is_some_and(|new| new.uuid == member);
    let (Some(device_epoch), true) = (job.device_epoch, is_listed && has_target(local, job)) else {
        return false;
    };
    let before = local.array.slot(slot).device_epoch();
    let swap = move |device_epochs: (DeviceEpoch, DeviceEpoch)| {
        move |local: &Rc<LocalArray>| {
            let SlotDevices { current, replacement } = local.slot_devices(slot);
            let swapped = SlotDevices { current: replacement, replacement: current };
            local.set_devices(slot, swapped);
            local.set_device_epochs(slot, device_epochs);
        }
    };
    local.array.set_device_epoch(slot, device_epoch);
    everywhere(local, swap((device_epoch, before))).await;
    let record = job.record();
    let recorded = record::update(local, |next| enthrone(next, slot, member, record)).await;
    everywhere(local, move |local| {
        let before = local.replacement(slot);
        let devices = SlotDevices { replacement: None, ..local.slot_devices(slot) };
        local.set_devices(slot, devices);
        before.into_iter().for_each(|device| local.give_up_in_time(device));
    })
    .await;
    recorded.is_ok()
}

/// Whether its device is still there, as what it was.
pub(super) fn has_target(local: &LocalArray, job: &Job) -> bool {
    let Some((slot, device_epoch)) = job.slot().zip(job.device_epoch) else { return true };
    let state = local.array.slot(slot).state();
    match job.work {
        Work::Copy { .. } => {
            state == SlotState::InSync
                && local.array.slot(slot).replacement_device_epoch() == device_epoch
                && local.replacement(slot).is_some()
        }
        _ => {
            state == SlotState::Rebuilding && local.array.slot(slot).device_epoch() == device_epoch
        }
    }
}
