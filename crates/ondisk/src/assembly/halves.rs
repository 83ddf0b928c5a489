//! Finding the newest superblock, and members that lived on separately from it.
//!
//! A member lived on separately if the newest superblock says it was out, or knows nothing of what its own
//! superblock tells: it carries a generation at which it should not have been written any more, or an
//! incarnation that was never on the way from it to the newest. Both mean that somebody started it on its
//! own, and its content and ours have parted.
//!
//! Not if that start or update never came about: it takes no request before every member that it lists as in service has
//! it, so if it lists one that went the way of the newest, nothing was ever served under it. Such a member merely slept: a crash in the middle of a start, and the devices that had got it already were
//! not there at the next. The one that it lists may be in service still, or be out or replaced since and tell it by its own superblock, or be gone
//! altogether: then the generation at which the newest put it out tells it, if that is later than what it should have got.

use uuid::Uuid;

use super::reading::MemberReading;
use crate::member::{MemberEntry, Role};
use crate::superblock::Superblock;

/// A member that is put out may lack so many of the last generations.
const GENERATIONS_MISSED: u64 = 2;

/// A reading of the wanted array: its index and its superblock.
pub(super) type Candidate<'a> = (usize, &'a Superblock);

/// The candidates of `array` among the readings.
pub(super) fn candidates(readings: &[MemberReading], array: Uuid) -> Vec<Candidate<'_>> {
    readings
        .iter()
        .enumerate()
        .filter_map(|(at, reading)| Some((at, reading.superblock()?)))
        .filter(|(_, superblock)| superblock.array_uuid == array)
        .collect()
}

/// The candidate with the highest generation; on a tie the one that knows most members to be out, for that was written
/// after an attempt without them had come to nothing, and then the first. If one side is to be trusted, of that side.
pub(super) fn newest<'a>(
    candidates: &[Candidate<'a>],
    trust: Option<Uuid>,
) -> Option<Candidate<'a>> {
    candidates
        .iter()
        .filter(|(_, superblock)| trust.is_none_or(|side| superblock.incarnation == side))
        .rev()
        .max_by_key(|(_, superblock)| (superblock.generation, superblock.members_out()))
        .copied()
}

/// The candidate that speaks for the array: the newest. Several may have its generation and not agree, after starts that were
/// cut off with other members each; then it is one of them from which nobody has parted, if there is one: under the
/// others nothing was ever served.
pub(super) fn speaker<'a>(candidates: &[Candidate<'a>]) -> Option<Candidate<'a>> {
    let newest = newest(candidates, None)?;
    let is_equal = |(_, own): &&Candidate<'a>| own.generation == newest.1.generation;
    let speaks = |own: &&Candidate<'a>| lived_on(candidates, own.1).is_empty();
    let mut equals = std::iter::once(&newest).chain(candidates.iter().filter(is_equal));
    Some(equals.find(speaks).copied().unwrap_or(newest))
}

/// The candidates that lived on separately from `newest`.
pub(super) fn lived_on<'a>(
    candidates: &[Candidate<'a>],
    newest: &Superblock,
) -> Vec<Candidate<'a>> {
    let parted = |(_, own): &&Candidate<'a>| has_parted(own, newest);
    let witnesses: Vec<&Superblock> =
        candidates.iter().filter(|it| !parted(it)).map(|(_, superblock)| *superblock).collect();
    let slept = |own: &Superblock| {
        newest.member(own.member_uuid).is_some_and(is_out)
            && (was_left_behind(own, newest) || witnesses.iter().any(|it| shows_idle(it, own)))
    };
    candidates.iter().filter(|it| parted(it) && !slept(it.1)).copied().collect()
}

/// Whether `witness`, which went the way of the newest, shows that nothing was served under `own`: it would have to have
/// got that update, or a later one of that side, before; and it got another one.
fn shows_idle(witness: &Superblock, own: &Superblock) -> bool {
    let is_later = witness.generation >= own.generation && witness.incarnation != own.incarnation;
    is_later && own.member(witness.member_uuid).is_some_and(is_in_service)
}

/// Whether `newest` itself tells that a member which `own` lists as in service went on without it: it was put out two
/// generations and more after that of `own`, and so had a later one by then (all but perhaps the last, which it failed).
fn was_left_behind(own: &Superblock, newest: &Superblock) -> bool {
    let went_on = |entry: &&MemberEntry| {
        let is_other = entry.uuid != own.member_uuid;
        is_other && entry.out_since.saturating_sub(GENERATIONS_MISSED) > own.generation
    };
    let mut later = newest.members.iter().filter(went_on);
    later.any(|entry| own.member(entry.uuid).is_some_and(is_in_service))
}

fn is_out(entry: &MemberEntry) -> bool {
    entry.out_since != 0 && entry.role != Role::Rebuilding
}

fn is_in_service(entry: &MemberEntry) -> bool {
    !matches!(entry.role, Role::Out | Role::Removed)
}

fn has_parted(own: &Superblock, newest: &Superblock) -> bool {
    if own.generation > newest.generation {
        // Only when the other side is trusted: otherwise this one would be the newest.
        return true;
    }
    if own.generation == newest.generation && own.agrees_with(newest) {
        return false;
    }
    let entry = newest.member(own.member_uuid);
    if entry.is_some_and(is_out) && never_came_about(own, newest) {
        return false;
    }
    if own.generation == newest.generation {
        return true;
    }
    match entry {
        Some(entry) if is_out(entry) => woke_while_out(own, entry),
        // One generation behind: an update was interrupted, perhaps that of a start.
        Some(_) if own.generation + 1 == newest.generation => {
            own.incarnation != newest.incarnation && own.incarnation != newest.previous_incarnation
        }
        _ => false,
    }
}

/// Whether `own` counts on a member that went the way of `newest`.
fn never_came_about(own: &Superblock, newest: &Superblock) -> bool {
    let went = newest.members.iter().filter(|entry| entry.role == Role::Active);
    went.filter_map(|entry| own.member(entry.uuid)).any(is_in_service)
}

fn woke_while_out(own: &Superblock, entry: &MemberEntry) -> bool {
    let knows_it_is_out = own
        .member(own.member_uuid)
        .is_some_and(|seen| seen.out_since == entry.out_since && seen.role != Role::Active);
    let stranger = !entry.out_incarnations.contains(&own.incarnation);
    !knows_it_is_out && (own.generation >= entry.out_since || stranger)
}
