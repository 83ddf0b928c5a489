//! Members that could not take the last updates, members that only such an update put out, and
//! members that the operator takes although they may lack writes.
//!
//! More members than parity replaces fail together for a moment: a shelf, a controller, a dock.
//! Those that still answer record some of the others as out, and cannot do without the rest; the
//! rest stays in service and lacks these updates. All of them may be whole again.
//!
//! What must stay true: nothing is answered without a member before an update that puts it out is
//! on *every* member that it lists as in service. So
//!
//! - a member in service missed nothing, however many updates it lacks;
//! - if a member in service lacks the update that put another one out, and all later ones, then
//!   nothing was answered without that other one.
//!
//! An older copy of a member lacks updates, too. So this counts only where the array cannot do
//! without these members: one that it can do without would have been put out. And it counts only
//! within one run of the array, because each start brings all its members to one generation. Flush
//! marks say the rest (`older`).

use std::ops::Range;

use super::reading::{AssemblyRequest, MemberReading};
use super::verdict::{Extra, ExtraReason, Taken};
use crate::features::Features;
use crate::member::{MemberEntry, MemberEvent, Role};
use crate::policy::ConsistencyPolicy;
use crate::superblock::Superblock;

/// Members that are attached: the index of the reading, and the entry.
pub(super) type Attached = Vec<(usize, MemberEntry)>;

/// Attaches the members in service that are more than one generation behind, in each failure set
/// that cannot do without them.
pub(super) fn attach_needed(
    best: &Superblock,
    (attached, extras): (&mut Attached, &mut Vec<Extra>),
    readings: &[MemberReading],
    request: &AssemblyRequest,
) {
    let mut needed: Attached = Vec::new();
    for set in sets_without_enough(best, attached) {
        for extra in extras.iter() {
            let own =
                readings[extra.reading].superblock().filter(|own| is_behind(best, own, extra));
            let entry = own.and_then(|own| best.member(own.member_uuid));
            let entry = entry.filter(|it| may_be_it(&readings[extra.reading], it, request));
            let of_set = entry.filter(|entry| is_active(entry) && set.contains(&entry.slot.at()));
            needed.extend(of_set.map(|entry| (extra.reading, *entry)));
        }
    }
    extras.retain(|it| needed.iter().all(|(reading, _)| it.reading != *reading));
    attached.extend(needed);
}

/// Whether it only lacks updates of the run that wrote the newest.
fn is_behind(best: &Superblock, own: &Superblock, extra: &Extra) -> bool {
    let lacks = matches!(extra.reason, ExtraReason::Incoherent { .. });
    lacks && is_of_this_run(best, own) && says_active(own)
}

/// Takes members back that are listed as out, if a member in service proves that nothing was
/// answered since: in each failure set that has too few members without them, or needs all of them
/// to be put right. They are in `best` then.
pub(super) fn take_back_needed(
    best: &mut Superblock,
    attached: &mut Attached,
    readings: &[MemberReading],
    flushed: u64,
) {
    let in_service: Vec<&Superblock> = attached
        .iter()
        .filter(|(_, entry)| is_active(entry))
        .filter_map(|(reading, _)| readings[*reading].superblock())
        .filter(|own| is_of_this_run(best, own))
        .collect();
    let missed_nothing = |(reading, entry): &&(usize, MemberEntry)| {
        let own = readings[*reading].superblock();
        let is_proven = in_service.iter().any(|witness| lacks_loss(witness, entry));
        is_proven
            && mark_of(&readings[*reading]) >= flushed
            && own.is_some_and(|own| has_only_failed(best, own, entry))
    };
    let mut back = Vec::new();
    // Where parity may lie, nothing can be read without the members that are out.
    let sets = match parity_may_lie(best) {
        true => best.geometry.failure_sets(),
        false => sets_without_enough(best, attached),
    };
    for set in sets {
        let out = attached.iter().filter(|(_, entry)| is_out_in(entry, &set));
        back.extend(out.filter(missed_nothing).map(|(reading, _)| *reading));
    }
    believe(best, attached, &back, readings);
}

/// Takes as many members as it needs although they may lack writes, the freshest first: listed as
/// out, more than one generation behind, or older copies. Those that were taken.
pub(super) fn take_freshest(
    best: &mut Superblock,
    (attached, extras): (&mut Attached, &mut Vec<Extra>),
    readings: &[MemberReading],
    request: &AssemblyRequest,
) -> Vec<Taken> {
    let mut taken = Vec::new();
    for set in sets_without_enough(best, attached) {
        let left_out = extras.iter().filter(|extra| may_lack_writes(extra.reason));
        let left_out = left_out.filter_map(|extra| {
            let own = readings[extra.reading].superblock()?;
            let entry = best.member(own.member_uuid).filter(|entry| is_active(entry))?;
            may_be_it(&readings[extra.reading], entry, request).then_some((extra.reading, *entry))
        });
        let out = attached.iter().filter(|(_, entry)| entry.role == Role::Out).copied();
        let mut all: Attached = left_out.chain(out).collect();
        all.retain(|(_, entry)| {
            set.contains(&entry.slot.at()) && best.joining_device(entry.slot).is_none()
        });
        let generation = |at: usize| readings[at].superblock().map_or(0, |own| own.generation);
        all.sort_by_key(|(at, _)| (mark_of(&readings[*at]), generation(*at)));
        while lacks(best, attached, &set) {
            let Some((reading, entry)) = all.pop() else { break };
            taken.push(Taken { reading, was_out: entry.role == Role::Out });
            if is_active(&entry) {
                extras.retain(|extra| extra.reading != reading);
                attached.push((reading, entry));
            }
            believe(best, attached, &[reading], readings);
        }
    }
    if !taken.is_empty() {
        // Their marks say nothing any more: the start makes new ones.
        best.features.compatible &= !Features::FLUSH_MARKS;
        best.members.iter_mut().for_each(|entry| entry.out_flushed = 0);
        best.generation += 1;
    }
    taken
}

/// Whether blocks of members that are missing cannot be computed: an update was cut off, and no log
/// tells which. (Copies of a mirror need no parity to be right.)
pub(super) fn parity_may_lie(best: &Superblock) -> bool {
    let is_in_doubt =
        best.resync_dirty_regions || best.unclean && best.policy != ConsistencyPolicy::Log;
    is_in_doubt && best.geometry.data_strips > 1
}

/// Whether the device may be the member: nobody else was given it since, and it is no clone. How
/// far a device is behind is told before that is asked.
fn may_be_it(reading: &MemberReading, entry: &MemberEntry, request: &AssemblyRequest) -> bool {
    let recorded = !entry.serial.is_empty() && !reading.serial.is_empty();
    let has_other_serial = recorded && entry.serial != reading.serial;
    (reading.foreign.is_none() || request.accept_signatures)
        && (!has_other_serial || request.accept_serials)
}

fn may_lack_writes(reason: ExtraReason) -> bool {
    matches!(reason, ExtraReason::Incoherent { .. } | ExtraReason::Older { .. })
}

/// The members of these readings that are listed as out are in service again, by an update of the
/// same run: a start has its members there before it writes anything else.
fn believe(
    best: &mut Superblock,
    attached: &mut Attached,
    back: &[usize],
    readings: &[MemberReading],
) {
    let is_back = |(reading, entry): &&mut (usize, MemberEntry)| {
        entry.role == Role::Out && back.contains(reading)
    };
    for (reading, entry) in attached.iter_mut().filter(is_back) {
        best.generation += 1;
        best.record(entry.uuid, MemberEvent::Believed).expect("it is out");
        let own = readings[*reading].superblock();
        let own =
            own.filter(|own| is_of_this_run(best, own)).and_then(|own| own.member(entry.uuid));
        let (log_tag, uuid) = (own.map_or(0, |own| own.log_tag), entry.uuid);
        let is_free = best.members.iter().all(|other| other.log_tag != log_tag);
        if let Some(listed) = best.members.iter_mut().find(|listed| listed.uuid == uuid) {
            // What its log says of this run counts.
            listed.log_tag = if is_free { log_tag } else { 0 };
            *entry = *listed;
        }
    }
}

/// Whether a member that was put out was in sync until then, in this run, and nobody used it since.
fn has_only_failed(best: &Superblock, own: &Superblock, entry: &MemberEntry) -> bool {
    entry.out_incarnations[0] == best.incarnation
        && own.generation < entry.out_since
        && is_of_this_run(best, own)
        && says_active(own)
        && best.joining_device(entry.slot).is_none()
}

/// Whether this member in service has no update that puts the member of `entry` out.
fn lacks_loss(own: &Superblock, entry: &MemberEntry) -> bool {
    own.generation < entry.out_since && own.member(entry.uuid).is_some_and(is_active)
}

fn mark_of(reading: &MemberReading) -> u64 {
    reading.mark.map_or(0, |mark| mark.sequence)
}

fn is_of_this_run(best: &Superblock, own: &Superblock) -> bool {
    own.incarnation == best.incarnation
}

fn says_active(own: &Superblock) -> bool {
    own.member(own.member_uuid).is_some_and(is_active)
}

fn is_active(entry: &MemberEntry) -> bool {
    entry.role == Role::Active
}

fn is_out_in(entry: &MemberEntry, set: &Range<usize>) -> bool {
    entry.role == Role::Out && set.contains(&entry.slot.at())
}

/// The failure sets that have too few members in sync among those attached.
fn sets_without_enough(best: &Superblock, attached: &Attached) -> Vec<Range<usize>> {
    let sets = best.geometry.failure_sets();
    sets.into_iter().filter(|set| lacks(best, attached, set)).collect()
}

fn lacks(best: &Superblock, attached: &Attached, set: &Range<usize>) -> bool {
    let is_here =
        |slot: usize| attached.iter().any(|(_, entry)| is_active(entry) && entry.slot.at() == slot);
    let losses = best.geometry.losses_in(set.clone(), |slot| !is_here(slot));
    losses > usize::from(best.geometry.parity_strips)
}
