//! The rules of assembly, in the order in which they are applied.
//!
//! 1. One array: the named one, or the only one found.
//! 2. Nothing that a newer program wrote is touched, nor an array that is about to run out of
//!    generations.
//! 3. No member twice.
//! 4. No split brain, unless the operator trusts one side.
//! 5. The newest generation says which member belongs where. A member one generation behind is
//!    current, because a crash may cut an update off. Further behind it is incoherent and stays
//!    out, unless the array cannot do without it and so could not put it out (`behind`). A device
//!    that lacks what another member knows to be flushed on it stays out, too (`older`).
//! 6. No stripe may lack more strips than it has parity: at most so many members of a group, or so
//!    many failure domains with members, are missing. With distributed spares, members of the spare
//!    table may be on spares: whoever reads the states of their cells decides.
//! 7. Degraded, and unclean under the `bitmap` policy or with regions in doubt besides the log:
//!    read-only.

use std::ops::Range;

use ashlar_units::MemberIdx;
use uuid::Uuid;

use super::behind;
use super::older;
use super::reading::{ArrayChoice, AssemblyRequest, FoundArray, MemberReading, ReadLabel};
use super::refusal::{self, LeftOut};
use super::split_brain::{Candidate, candidates, lived_on, newest, speaker};
use super::verdict::{
    Extra, ExtraReason, JoiningDevice, ReadOnlyReason, Refusal, SlotState, SlotVerdict, Start,
    Verdict,
};
use crate::check::GENERATION_START_END;
use crate::features::{Access, Features};
use crate::format::member_bytes;
use crate::member::{MemberEntry, Role};
use crate::policy::ForcedActions;
use crate::superblock::Superblock;

/// The arrays among the readings, in the order of their first reading.
pub fn arrays(readings: &[MemberReading]) -> Vec<FoundArray> {
    let mut found: Vec<FoundArray> = Vec::new();
    for superblock in readings.iter().filter_map(MemberReading::superblock) {
        let uuid = superblock.array_uuid;
        if found.iter().any(|array| array.uuid == uuid) {
            continue;
        }
        let all = candidates(readings, uuid);
        let name = newest(&all, None).map_or(superblock.array_name, |(_, best)| best.array_name);
        found.push(FoundArray { uuid, name, members: all.len() });
    }
    found
}

/// Judges what the readings add up to.
pub fn assemble(readings: &[MemberReading], request: &AssemblyRequest) -> Verdict {
    match choose(readings, request) {
        Ok(choice) => judge(readings, request, &choice),
        Err((refusal, best)) => Verdict {
            extras: strangers(readings, best.map(|best| best.array_uuid)),
            newest: best.cloned(),
            slots: Vec::new(),
            flushed: 0,
            newest_mark: 0,
            start: Start::Refused(refusal),
            forced: 0,
            may_be_older: Vec::new(),
        },
    }
}

/// The superblock that speaks for the array, and who does not belong to its history.
struct Chosen<'a> {
    newest: &'a Superblock,
    candidates: Vec<Candidate<'a>>,
    lived_on: Vec<usize>,
}

/// Rules 1 to 4. A refusal carries the newest superblock as far as one was found.
fn choose<'a>(
    readings: &'a [MemberReading],
    request: &AssemblyRequest,
) -> Result<Chosen<'a>, (Refusal, Option<&'a Superblock>)> {
    let array = choose_array(readings, request).map_err(|refusal| (refusal, None))?;
    let all = candidates(readings, array);
    let Some((_, best)) = speaker(&all) else {
        return Err((refusal::no_array(readings, request), None));
    };
    let refuse = |refusal: Refusal| (refusal, Some(best));
    if best.generation >= GENERATION_START_END {
        return Err(refuse(refusal::generations_used_up(best)));
    }
    for reading in readings {
        if let ReadLabel::Unsupported { array: other, fault } = reading.label
            && other == array
        {
            return Err(refuse(refusal::unsupported(best, reading, fault)));
        }
    }
    // Its cells could be on their way only, and no table says so.
    if best.geometry.is_growing() && !best.has_spare_table() {
        return Err(refuse(refusal::growing(best)));
    }
    if let Some((one, two)) = same_member_twice(&all) {
        return Err(refuse(refusal::same_member_twice(best, &readings[one], &readings[two])));
    }
    let speaker = match request.trust {
        None => best,
        // Only a side that really split can be trusted: not a member that was merely away.
        Some(side) => {
            one_side(&all, best, side).ok_or_else(|| refuse(refusal::no_such_half(best, side)))?
        }
    };
    let apart = lived_on(&all, speaker);
    if !apart.is_empty() && request.trust.is_none() {
        return Err(refuse(refusal::split_brain(speaker, &all, &apart, readings)));
    }
    let lived_on = apart.into_iter().map(|(at, _)| at).collect();
    Ok(Chosen { newest: speaker, candidates: all, lived_on })
}

fn choose_array(readings: &[MemberReading], request: &AssemblyRequest) -> Result<Uuid, Refusal> {
    let found: Vec<FoundArray> = arrays(readings)
        .into_iter()
        .filter(|array| match request.array {
            ArrayChoice::Only => true,
            ArrayChoice::Uuid(uuid) => array.uuid == uuid,
            ArrayChoice::Name(name) => array.name == name,
        })
        .collect();
    match found.as_slice() {
        [] => Err(refusal::only_newer(readings, request)
            .unwrap_or_else(|| refusal::no_array(readings, request))),
        [only] => Ok(only.uuid),
        several => Err(refusal::several_arrays(several)),
    }
}

/// The newest superblock of the side `incarnation`, if it is one of the two that split.
fn one_side<'a>(
    all: &[Candidate<'a>],
    best: &'a Superblock,
    incarnation: Uuid,
) -> Option<&'a Superblock> {
    let split = lived_on(all, best).iter().any(|(_, own)| own.incarnation == incarnation);
    if !split && best.incarnation != incarnation {
        return None;
    }
    newest(all, Some(incarnation)).map(|(_, speaker)| speaker)
}

fn same_member_twice(candidates: &[Candidate<'_>]) -> Option<(usize, usize)> {
    candidates.iter().enumerate().find_map(|(at, (reading, superblock))| {
        let (first, _) = candidates[..at]
            .iter()
            .find(|(_, other)| other.member_uuid == superblock.member_uuid)?;
        Some((*first, *reading))
    })
}

/// Rules 5 to 7.
fn judge(readings: &[MemberReading], request: &AssemblyRequest, chosen: &Chosen<'_>) -> Verdict {
    let mut best = chosen.newest.clone();
    let mut extras = strangers(readings, Some(best.array_uuid));
    let mut attached: Vec<(usize, MemberEntry)> = Vec::new();
    let mut forced = 0;
    for &(at, own) in &chosen.candidates {
        let reason = match fitness(&readings[at], own, chosen, at) {
            Ok(doubts) => match doubts.accepted(request) {
                Ok(flags) => {
                    forced |= flags;
                    None
                }
                Err(reason) => Some(reason),
            },
            Err(reason) => Some(reason),
        };
        match (reason, best.member(own.member_uuid)) {
            (None, Some(entry)) => attached.push((at, *entry)),
            (None, None) => extras.push(Extra { reading: at, reason: ExtraReason::NotListed }),
            (Some(reason), _) => extras.push(Extra { reading: at, reason }),
        }
    }
    extras.extend(unknown_new_members(readings, chosen));
    behind::attach_needed(&best, (&mut attached, &mut extras), readings, request);
    let flushed = older::known_flushed(&best, &attached, readings);
    extras.extend(older::set_apart(&mut attached, readings, flushed));
    behind::take_back_needed(&mut best, &mut attached, readings, flushed);
    let lacks = |best: &Superblock, attached: &[(usize, MemberEntry)]| {
        set_that_lacks(best, &slot_verdicts(best, attached)).is_some()
    };
    let may_be_older = match request.accept_older_members && lacks(&best, &attached) {
        true => behind::take_freshest(&mut best, (&mut attached, &mut extras), readings, request),
        false => Vec::new(),
    };
    let flushed = if may_be_older.is_empty() { flushed } else { 0 };
    if !may_be_older.is_empty() {
        forced |= ForcedActions::OLDER_MEMBERS;
    }
    // All that changed is one update.
    best.generation = best.generation.min(chosen.newest.generation + 1);
    extras.sort_by_key(|extra| extra.reading);
    let slots = slot_verdicts(&best, &attached);
    if !chosen.lived_on.is_empty() {
        forced |= ForcedActions::CHOSE_SIDE;
    }
    let left_out: Vec<LeftOut<'_>> =
        extras.iter().filter_map(|extra| LeftOut::of(extra, readings, &best)).collect();
    let start = judge_start(&best, (&slots, &left_out), (readings, request), &mut forced);
    let newest_mark = older::newest_mark(&chosen.candidates, readings);
    let newest = Some(best);
    Verdict { newest, slots, extras, flushed, newest_mark, start, forced, may_be_older }
}

/// Devices that a growth would have added which never began.
fn unknown_new_members(readings: &[MemberReading], chosen: &Chosen<'_>) -> Vec<Extra> {
    let array = chosen.newest.array_uuid;
    let is_its = |at: &usize| readings[*at].superblock().is_some_and(|own| own.array_uuid == array);
    let is_candidate = |at: &usize| chosen.candidates.iter().any(|(candidate, _)| candidate == at);
    let all = (0..readings.len()).filter(|at| is_its(at) && !is_candidate(at));
    all.map(|reading| Extra { reading, reason: ExtraReason::NotListed }).collect()
}

/// Whether the device may be attached as what the newest superblock says it is.
fn fitness(
    reading: &MemberReading,
    own: &Superblock,
    chosen: &Chosen<'_>,
    at: usize,
) -> Result<Doubts, ExtraReason> {
    if chosen.lived_on.contains(&at) {
        return Err(ExtraReason::LivedOn);
    }
    let entry = chosen.newest.member(own.member_uuid).ok_or(ExtraReason::NotListed)?;
    if entry.role == Role::Removed {
        return Err(ExtraReason::Removed);
    }
    if member_bytes(reading.device_bytes) < entry.bytes {
        return Err(ExtraReason::TooSmall { needed_bytes: entry.bytes });
    }
    if reading.is_cut_short {
        return Err(ExtraReason::CutShort);
    }
    if reading.has_reappeared {
        return Err(ExtraReason::Reappeared);
    }
    let behind = chosen.newest.generation - own.generation;
    if entry.role != Role::Out && behind > 1 {
        return Err(ExtraReason::Incoherent { generation: own.generation });
    }
    let recorded = !entry.serial.is_empty() && !reading.serial.is_empty();
    Ok(Doubts {
        is_reused: reading.foreign.is_some(),
        has_other_serial: recorded && entry.serial != reading.serial,
    })
}

/// What the operator may accept of a device.
struct Doubts {
    is_reused: bool,
    has_other_serial: bool,
}

impl Doubts {
    /// The forced actions that taking the device means.
    ///
    /// # Errors
    /// What was not accepted.
    fn accepted(&self, request: &AssemblyRequest) -> Result<u64, ExtraReason> {
        if self.is_reused && !request.accept_signatures {
            return Err(ExtraReason::Reused);
        }
        if self.has_other_serial && !request.accept_serials {
            return Err(ExtraReason::SerialDiffers);
        }
        let if_so = |is_so: bool, flag: u64| if is_so { flag } else { 0 };
        Ok(if_so(self.is_reused, ForcedActions::OVERWROTE_SIGNATURE)
            | if_so(self.has_other_serial, ForcedActions::SERIAL_CHANGED))
    }
}

fn slot_verdicts(best: &Superblock, attached: &[(usize, MemberEntry)]) -> Vec<SlotVerdict> {
    let slots = (0..best.geometry.slots()).map(MemberIdx);
    slots.map(|slot| slot_verdict(best, slot, attached)).collect()
}

fn slot_verdict(
    best: &Superblock,
    slot: MemberIdx,
    attached: &[(usize, MemberEntry)],
) -> SlotVerdict {
    let found = |uuid: Uuid| {
        attached.iter().find(|(_, entry)| entry.uuid == uuid).map(|(at, it)| (*at, it))
    };
    let reading_of = |uuid: Uuid| found(uuid).map(|(reading, _)| reading);
    let holder = best.holder(slot).copied();
    let state = match holder.and_then(|entry| found(entry.uuid)) {
        // Perhaps listed as out, and taken back.
        Some((_, entry)) if entry.role == Role::Active => SlotState::Current,
        Some((_, entry)) => SlotState::Stale { out_since: entry.out_since },
        None => SlotState::Missing,
    };
    let reading = holder.and_then(|entry| reading_of(entry.uuid));
    let joining_device = best
        .joining_device(slot)
        .map(|entry| JoiningDevice { entry: *entry, reading: reading_of(entry.uuid) });
    SlotVerdict { slot, state, holder, reading, joining_device }
}

fn judge_start(
    best: &Superblock,
    (slots, left_out): (&[SlotVerdict], &[LeftOut<'_>]),
    (readings, request): (&[MemberReading], &AssemblyRequest),
    forced: &mut u64,
) -> Start {
    if let Some((group, set)) = set_that_lacks(best, slots) {
        let lacks = refusal::too_many_missing(best, (group, &slots[set]), left_out, readings);
        return Start::Refused(lacks);
    }
    match best.access(Features::SUPPORTED) {
        Access::Full => {}
        Access::ReadOnly { unknown } | Access::Refused { unknown } => {
            return Start::ReadOnly(ReadOnlyReason::UnknownFeatures { unknown });
        }
    }
    if slots.iter().all(|slot| slot.state == SlotState::Current) {
        return Start::Whole;
    }
    // The log repairs what was under way at the crash, but not what the flag tells of.
    if !behind::parity_may_lie(best) {
        return Start::Degraded;
    }
    if !request.accept_dirty_degraded {
        return Start::ReadOnly(ReadOnlyReason::DirtyDegraded);
    }
    *forced |= ForcedActions::DIRTY_DEGRADED;
    Start::Degraded
}

/// The first failure set that has too few members, and its number.
fn set_that_lacks(best: &Superblock, slots: &[SlotVerdict]) -> Option<(usize, Range<usize>)> {
    let parity = usize::from(best.geometry.parity_strips);
    let is_missing = |slot: usize| slots[slot].state != SlotState::Current;
    let mut sets = best.geometry.failure_sets().into_iter().enumerate();
    sets.find(|(_, set)| best.geometry.losses_in(set.clone(), is_missing) > parity)
        .filter(|_| !may_be_on_spares(best, slots))
}

/// Whether so many members are missing, but those that are not lost only now may be on distributed
/// spares. Strips of a stripe are in different failure domains, wherever they are.
fn may_be_on_spares(best: &Superblock, slots: &[SlotVerdict]) -> bool {
    let is_missing = |slot: usize| slots[slot].state != SlotState::Current;
    let is_new =
        |slot: usize| is_missing(slot) && best.spare_record(MemberIdx::from_at(slot)).is_none();
    let missing = (0..slots.len()).filter(|slot| is_missing(*slot)).count();
    best.has_spare_table()
        && best.geometry.losses_in(0..slots.len(), is_new)
            <= usize::from(best.geometry.parity_strips)
        && missing <= best.geometry.spare_entries()
}

/// The devices that have nothing to do with `array`, whatever the rules say.
fn strangers(readings: &[MemberReading], array: Option<Uuid>) -> Vec<Extra> {
    let reason_of = |reading: &MemberReading| match &reading.label {
        ReadLabel::Member(superblock) if Some(superblock.array_uuid) == array => None,
        ReadLabel::Member(superblock) => {
            Some(ExtraReason::OtherArray { array: superblock.array_uuid })
        }
        ReadLabel::Spare(_) => Some(ExtraReason::Spare),
        ReadLabel::Damaged => Some(ExtraReason::Damaged),
        ReadLabel::Unsupported { fault, .. } => Some(ExtraReason::Unsupported { fault: *fault }),
        ReadLabel::Foreign => Some(ExtraReason::Foreign),
        ReadLabel::Blank if reading.unread.is_some() => Some(ExtraReason::Unread),
        ReadLabel::Blank => Some(ExtraReason::Blank),
    };
    readings
        .iter()
        .enumerate()
        .filter_map(|(at, reading)| Some(Extra { reading: at, reason: reason_of(reading)? }))
        .collect()
}
