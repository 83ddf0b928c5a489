//! One superblock update on all members of an array.
//!
//! What must stay true: copies 0 and 2 are written and flushed on every member before copies 1 and
//! 3 are touched, so a crash leaves each member with a whole pair. If a member cannot take the
//! update, the next generation puts it out, and the others take that one. A generation is never
//! used twice. An update that a member in service lacks is owed (`Array::owes_superblock`): no
//! write is answered until a later one is on all of them, for members it puts out are out nowhere
//! else.

use super::writes::DeviceWrites;
use super::{changed_beneath, drives, proof};
use crate::canary::{Canary, sings};
use crate::control_io::aligned;
use crate::coordinator::messages::ArrayLost;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::member::{SlotEvent, SlotState};
use crate::slot::MemberDevice;
use ashlar_device::{Command, Device, Fault, Outcome};
use ashlar_ondisk::format::copy_slots;
use ashlar_ondisk::{JobKind, MemberEntry, MemberEvent, Role, Superblock, UPDATE_ORDER};
use ashlar_ring::Pending;
use ashlar_units::{MemberIdx, StripeNo};
use std::rc::Rc;
use uuid::Uuid;

/// A device that takes superblocks of the array.
pub(crate) struct SuperblockTarget {
    pub(crate) uuid: Uuid,
    pub(crate) slot: MemberIdx,
    pub(crate) is_replacement: bool,
    pub(crate) device: Rc<dyn Device>,
}

/// What an event says of the slot's device if the superblock has it as one that is being filled.
pub(super) fn role_of(superblock: &Superblock, slot: MemberIdx) -> Option<(&'static str, String)> {
    let joining = superblock.joining_device(slot);
    let is_filled = joining.is_some_and(|entry| entry.role == Role::Rebuilding);
    is_filled.then(|| ("role", "rebuilding".to_owned()))
}

/// Record `change` under a new generation on every member in service. The caller holds the
/// coordinator gate.
///
/// # Errors
/// [`ArrayLost`] if too few members can take the update. Some may have it: the generation counts as
/// used.
pub(crate) async fn update(
    local: &Rc<LocalArray>,
    change: impl FnOnce(&mut Superblock),
) -> Result<(), ArrayLost> {
    let coordinator = local.coordinator();
    let mut next = coordinator.superblock();
    next.generation += 1;
    change(&mut next);
    let result = write_until_taken(local, &mut next).await;
    taken(local, next, result).await
}

/// The same, waiting for the gate.
///
/// # Errors
/// As [`update`].
pub(crate) async fn locked_update(
    local: &Rc<LocalArray>,
    change: impl FnOnce(&mut Superblock),
) -> Result<(), ArrayLost> {
    let _gate = local.coordinator().gate.acquire().await;
    update(local, change).await
}

/// Record `next`, which has a new generation already.
///
/// # Errors
/// As [`update`].
pub(crate) async fn write(local: &Rc<LocalArray>, next: Superblock) -> Result<(), ArrayLost> {
    let _gate = local.coordinator().gate.acquire().await;
    write_in_turn(local, next).await
}

/// Have all members take what a start found, before it says anything of its own. No slot follows
/// it: there a member may be in service that is lost by now, and whose slot another device has.
///
/// # Errors
/// As [`update`].
pub(crate) async fn write_again(
    local: &Rc<LocalArray>,
    mut found: Superblock,
) -> Result<(), ArrayLost> {
    let _gate = local.coordinator().gate.acquire().await;
    let result = write_until_taken(local, &mut found).await;
    local.coordinator().set_superblock(found);
    local.array.set_owes_superblock(result.is_err());
    if result.is_ok() {
        drives::keep(local).await;
    }
    result
}

/// The same as [`write`] for a caller that holds the coordinator gate.
///
/// # Errors
/// As [`update`].
pub(crate) async fn write_in_turn(
    local: &Rc<LocalArray>,
    mut next: Superblock,
) -> Result<(), ArrayLost> {
    let result = write_until_taken(local, &mut next).await;
    taken(local, next, result).await
}

/// The generation of `next` is used; `result` says whether the members have it.
async fn taken(
    local: &Rc<LocalArray>,
    next: Superblock,
    result: Result<(), ArrayLost>,
) -> Result<(), ArrayLost> {
    *local.coordinator().superblock.borrow_mut() = next;
    local.array.set_owes_superblock(result.is_err() && !sings(Canary::UpdateCutOffTrusted));
    // Recorded or not: a slot that is out has an entry before another device comes into it.
    local.array.follow_spares(&local.coordinator().superblock.borrow(), result.is_ok());
    if result.is_ok() {
        drives::keep(local).await;
    }
    result
}

async fn write_until_taken(local: &Rc<LocalArray>, next: &mut Superblock) -> Result<(), ArrayLost> {
    let array = &local.array;
    let before = local.coordinator().superblock();
    loop {
        proof::note_in_table(local.coordinator(), &before, next);
        let failed = write_all(local, next).await;
        if failed.is_empty() {
            return Ok(());
        }
        if array.room.is_given_up() {
            return Err(ArrayLost);
        }
        next.generation += 1;
        let mut result = Ok(());
        for (target, fault) in failed {
            result = result.and(put_out(local, next, &target, fault));
        }
        result?;
    }
}

/// A device could not take the update: the next one is to put it out.
///
/// # Errors
/// [`ArrayLost`] if its group cannot do without it.
fn put_out(
    local: &Rc<LocalArray>,
    next: &mut Superblock,
    target: &SuperblockTarget,
    fault: Fault,
) -> Result<(), ArrayLost> {
    let (array, slot) = (&local.array, target.slot);
    let why = format!("its superblock could not be written: {fault}");
    let path = target.device.facts().path.clone();
    if target.is_replacement {
        drop_joining_device(next, slot);
        super::detach_replacement(local, slot);
        let fields = vec![
            ("slot", slot.to_string()),
            ("role", "replacement".to_owned()),
            ("reason", why),
            ("path", path),
        ];
        array.record(names::MEMBER_FAILED, fields);
        return Ok(());
    }
    let device = MemberDevice { member: slot, device_epoch: array.slot(slot).device_epoch() };
    let why = local.coordinator().silences.reason(device, &why);
    let mut fields = vec![("slot", slot.to_string()), ("reason", why), ("path", path)];
    fields.extend(role_of(next, slot));
    if array.is_needed(slot) {
        array.set_fails(slot);
        array.record(names::ARRAY_FAILED, fields);
        return Err(ArrayLost);
    }
    let failing = array.slot(slot).state().next(SlotEvent::Fault).expect("any state can fail");
    array.set_slot_state(slot, failing);
    hand_over(next, slot);
    array.record(names::MEMBER_FAILED, fields);
    finish_taking_out_later(local, slot);
    Ok(())
}

/// The update that is being written will say that the slot is out: finish that once the gate is
/// free.
fn finish_taking_out_later(local: &Rc<LocalArray>, member: MemberIdx) {
    let local = Rc::clone(local);
    let handle = local.worker.handle.clone();
    handle.spawn(async move {
        let _gate = local.coordinator().gate.acquire().await;
        let is_failing = local.array.slot(member).state() == SlotState::Failing;
        if is_failing && !local.array.owes_superblock() {
            super::finish_taking_out(&local, member).await;
        }
    });
}

/// Write the superblock to every member it lists as in service; the ones that failed come back.
async fn write_all(
    local: &Rc<LocalArray>,
    superblock: &Superblock,
) -> Vec<(SuperblockTarget, Fault)> {
    let (mut targets, mut failed) = (targets(local, superblock), Vec::new());
    for copies in UPDATE_ORDER {
        targets = still_whole(local, targets, &mut failed).await;
        let mut started = Vec::new();
        for target in &targets {
            started.push(start_copies(local, superblock, target, copies));
        }
        for writes in &mut started {
            writes.end(&local.array).await;
        }
        let mut alive = Vec::new();
        for (target, writes) in targets.into_iter().zip(started) {
            match writes.finish(local).await {
                Ok(()) => alive.push(target),
                Err(fault) => failed.push((target, fault)),
            }
        }
        let flushes: Vec<_> = alive
            .iter()
            .map(|target| vec![local.start_on(target.device.as_ref(), 0, Command::Flush)])
            .collect();
        targets = Vec::new();
        for (target, flush) in alive.into_iter().zip(flushes) {
            match ended(flush).await {
                Ok(()) => targets.push(target),
                Err(fault) => failed.push((target, fault)),
            }
        }
    }
    still_whole(local, targets, &mut failed).await;
    failed
}

/// Those that did not shrink; the others have failed. Copies at the end would give a device its
/// size back, and nobody would see that it lost what lay before them. So it is looked at before
/// each pair of them, and once more after the last.
async fn still_whole(
    local: &LocalArray,
    targets: Vec<SuperblockTarget>,
    failed: &mut Vec<(SuperblockTarget, Fault)>,
) -> Vec<SuperblockTarget> {
    let faults =
        changed_beneath::faults_of(local, targets.iter().map(|it| it.device.as_ref())).await;
    let mut whole = Vec::new();
    for (target, fault) in targets.into_iter().zip(faults) {
        match fault.filter(|_| !sings(Canary::ShorterMemberRepaired)) {
            Some(fault) => failed.push((target, fault)),
            None => whole.push(target),
        }
    }
    whole
}

/// The devices in service, as `superblock` lists them.
pub(crate) fn targets(local: &Rc<LocalArray>, superblock: &Superblock) -> Vec<SuperblockTarget> {
    let mut targets = Vec::new();
    for entry in &superblock.members {
        let slot = entry.slot;
        let state = local.array.slot(slot).state();
        let is_usable = matches!(state, SlotState::InSync | SlotState::Rebuilding);
        // A start without the slot's own device has the joining device in its place before the
        // table says so: what the table says of the one must not be written to the other.
        let is_joining_devices = state == SlotState::Rebuilding
            && superblock.joining_device(slot).is_some()
            && !sings(Canary::IdentityMixed);
        let (is_replacement, device) = match entry.role {
            Role::Active if is_joining_devices => continue,
            Role::Active | Role::Rebuilding if is_usable => (false, local.device(slot)),
            Role::Replacement if is_joining_devices && local.replacement(slot).is_none() => {
                (false, local.device(slot))
            }
            // After its slot's own device went out, a replacement is listed as rebuilding.
            Role::Rebuilding => (true, local.replacement(slot)),
            Role::Replacement => (true, local.replacement(slot)),
            Role::Active | Role::Out | Role::Removed => continue,
        };
        if let Some(device) = device {
            targets.push(SuperblockTarget {
                uuid: entry.uuid,
                slot: entry.slot,
                is_replacement,
                device,
            });
        }
    }
    targets
}

fn start_copies(
    local: &LocalArray,
    superblock: &Superblock,
    target: &SuperblockTarget,
    copies: [usize; 2],
) -> DeviceWrites {
    let own = superblock.for_member(target.uuid).expect("targets come from its table");
    let bytes = own.encode().expect("the engine makes valid superblocks");
    let slots = copy_slots(own.member_bytes).expect("members are large enough for their copies");
    let buffer = aligned(&bytes);
    let mut writes = DeviceWrites::new(target.slot, &target.device);
    for copy in copies {
        writes.start(local, slots[copy].offset, buffer.clone());
    }
    writes
}

pub(crate) async fn all_went_well(pending: Vec<Pending<Outcome>>) -> bool {
    ended(pending).await.is_ok()
}

/// All of them have ended when this returns.
///
/// # Errors
/// The first fault.
pub(crate) async fn ended(pending: Vec<Pending<Outcome>>) -> Result<(), Fault> {
    let mut all = Ok(());
    for one in pending {
        all = all.and(one.await.map_or(Err(Fault::GONE), |outcome| outcome.result));
    }
    all
}

/// Whether the slot's own device is recorded as out. While a replacement is there, the slot's
/// device is in sync, and a member that is listed as rebuilding is the replacement after that was
/// recorded.
pub(crate) fn says_out(superblock: &Superblock, slot: MemberIdx, has_replacement: bool) -> bool {
    let is_own =
        |role: Role| role == Role::Active || (role == Role::Rebuilding && !has_replacement);
    !superblock.members.iter().any(|entry| entry.slot == slot && is_own(entry.role))
}

/// The slot's holder missed something: out since this generation. A replacement under way takes its
/// place as a member to be rebuilt.
pub(crate) fn mark_out(superblock: &mut Superblock, slot: MemberIdx) {
    for entry in entries_of(superblock, slot) {
        match entry.role {
            Role::Active | Role::Rebuilding => {
                superblock.record(entry.uuid, MemberEvent::Lost).expect("it was in service");
            }
            Role::Replacement => {
                let listed = superblock.members.iter_mut().find(|listed| listed.uuid == entry.uuid);
                listed.expect("it is listed").role = Role::Rebuilding;
                rebuild_from_the_start(superblock, entry.uuid);
            }
            Role::Out | Role::Removed => {}
        }
    }
}

/// The copy to this member becomes a rebuild. What was written since its slot was failing is not on
/// it, and only this run of the array knows where: after a restart all of it is rebuilt.
fn rebuild_from_the_start(superblock: &mut Superblock, member: Uuid) {
    for job in superblock.jobs.iter_mut().filter(|job| job.member == Some(member)) {
        job.kind = JobKind::Rebuild;
        job.checkpoint = StripeNo(0);
    }
}

/// The same while the array runs: a device that takes over is under a new name in the log from now
/// on. Until it has the slot updates go on without it and do not name it. What it gets in their
/// stead is newer than records that do, and none of those must be rolled forward over it.
pub(crate) fn hand_over(superblock: &mut Superblock, slot: MemberIdx) {
    mark_out(superblock, slot);
    let of_slot = superblock.members.iter_mut().filter(|entry| entry.slot == slot);
    for entry in of_slot.filter(|entry| entry.role == Role::Rebuilding && entry.log_tag != 0) {
        entry.log_tag = entry.log_tag.wrapping_add(1).max(1);
    }
}

/// The device on its way into the slot does not get there.
pub(crate) fn drop_joining_device(superblock: &mut Superblock, slot: MemberIdx) {
    for entry in entries_of(superblock, slot) {
        if entry.role.is_joining_device() {
            superblock.record(entry.uuid, MemberEvent::Lost).expect("it was on its way");
        }
    }
}

fn entries_of(superblock: &Superblock, slot: MemberIdx) -> Vec<MemberEntry> {
    superblock.members.iter().filter(|entry| entry.slot == slot).copied().collect()
}
