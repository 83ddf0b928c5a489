//! Finds split brain: the newest superblock, and members that diverged from it.
//!
//! A member diverged if one of these holds:
//!
//! - The newest superblock says that it was out, and the member's own superblock goes on from
//!   there. It has a generation at which it should not have been written any more, or an
//!   incarnation that the newest does not know.
//! - Both carry one generation and do not agree.
//! - It is in sync by its own superblock, and the newest does not list it at all: it joined where
//!   the newest was not.
//!
//! In each case one of the two was started on its own, and their contents differ.
//!
//! Exception: a start or update that was never completed. It takes no request before every member
//! that it lists as in service has it. So if one of these members followed the newest, nothing was
//! ever served under it. The member merely missed a crash in the middle of a start. Three facts
//! prove that a listed member followed the newest:
//!
//! - it is in sync under a later generation;
//! - it is out or replaced since, by its own superblock;
//! - it is gone altogether, and the newest put it out at a later generation than the one that it
//!   should have got.
//!
//! A listed member that was being rebuilt proves nothing: requests were served without it. If two
//! members carry one generation, the list of the newest proves nothing either, because its own
//! update may be the incomplete one.
//!
//! An older copy of a member that another half put out since is no divergence: the member itself
//! went on from there.
//!
//! A growth begins when a member that was there before has it: new members are told first, so that
//! all of them are there by then. A new member of whom none of the others knows counts for nothing
//! if its update may be that first one. A second update comes before any request. So a new member
//! of a later generation proves that the others were put back to an older state.
//!
//! `tests/ondisk/lineages.rs` tries these rules on random histories, and knows which requests were
//! served.

use std::cmp::Ordering;

use ashlar_units::to_u64;
use uuid::Uuid;

use super::reading::MemberReading;
use crate::format::MEMBER_ENTRIES_MAX;
use crate::member::{MemberEntry, Role};
use crate::superblock::Superblock;

/// A member that is put out may lack at most this many of the last generations.
const GENERATIONS_MISSED: u64 = 2;

/// A reading of the wanted array: its index and its superblock.
pub(super) type Candidate<'a> = (usize, &'a Superblock);

/// The candidates of `array` among the readings. Members of a growth that never began are none.
pub(super) fn candidates(readings: &[MemberReading], array: Uuid) -> Vec<Candidate<'_>> {
    let mut all: Vec<Candidate<'_>> = readings
        .iter()
        .enumerate()
        .filter_map(|(at, reading)| Some((at, reading.superblock()?)))
        .filter(|(_, superblock)| superblock.array_uuid == array)
        .collect();
    let others: Vec<&Superblock> =
        all.iter().map(|(_, own)| *own).filter(|own| !own.is_new_member()).collect();
    // A growth begins with the generation after that of its last members.
    let Some(begins_by) = others.iter().map(|own| own.generation.saturating_add(1)).max() else {
        return all;
    };
    let is_known = |own: &Superblock| {
        own.generation > begins_by || others.iter().any(|it| it.member(own.member_uuid).is_some())
    };
    all.retain(|(_, own)| !own.is_new_member() || is_known(own));
    all
}

/// The candidate with the highest generation; on a tie the one that knows most members to be out,
/// for that was written after an attempt without them had come to nothing, and then the first. If
/// one side is to be trusted, of that side.
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

/// The candidate that speaks for the array: the newest. Several may have its generation and not
/// agree, after starts that were cut off with other members each; then it is one of them from which
/// nobody has split, if there is one: under the others nothing was ever served.
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
    let split = |(_, own): &&Candidate<'a>| has_split(own, newest);
    let went_along = |it: &&Candidate<'a>| !split(it) && newest.member(it.1.member_uuid).is_some();
    let witnesses: Vec<&Superblock> =
        candidates.iter().filter(went_along).map(|(_, superblock)| *superblock).collect();
    let was_away = |own: &Superblock| {
        newest.member(own.member_uuid).is_none_or(is_out)
            && (was_left_behind(own, newest) || witnesses.iter().any(|it| shows_idle(it, own)))
    };
    candidates.iter().filter(|it| split(it) && !was_away(it.1)).copied().collect()
}

/// Whether `witness`, which went the way of the newest, shows that nothing was served under `own`:
/// it would have to have got that update, or a later one of that side, before; and it got another
/// one.
fn shows_idle(witness: &Superblock, own: &Superblock) -> bool {
    let is_other = match witness.generation.cmp(&own.generation) {
        Ordering::Less => false,
        Ordering::Equal => !witness.agrees_with(own),
        Ordering::Greater => witness.incarnation != own.incarnation,
    };
    is_other && own.member(witness.member_uuid).is_some_and(must_have_it)
}

/// Whether `newest` itself tells that a member which `own` lists as in service went on without it:
/// it was put out two generations and more after that of `own`, and so had a later one by then (all
/// but perhaps the last, which it failed).
fn was_left_behind(own: &Superblock, newest: &Superblock) -> bool {
    let went_on = |entry: &&MemberEntry| {
        let is_other = entry.uuid != own.member_uuid;
        is_other && entry.out_since.saturating_sub(GENERATIONS_MISSED) > own.generation
    };
    let mut later = newest.members.iter().filter(went_on);
    later.any(|entry| own.member(entry.uuid).is_some_and(must_have_it))
}

fn is_out(entry: &MemberEntry) -> bool {
    entry.out_since != 0
}

/// Whether an update that lists it so had to reach it, and all before that since it joined: it is
/// in sync or on its way for the first time. One that came back lacks what was served while it was
/// away.
fn must_have_it(entry: &MemberEntry) -> bool {
    entry.out_since == 0
}

fn is_active(entry: &MemberEntry) -> bool {
    entry.role == Role::Active
}

fn has_split(own: &Superblock, newest: &Superblock) -> bool {
    if own.generation > newest.generation {
        // Only when the other side is trusted: otherwise this one would be the newest.
        return true;
    }
    if own.generation == newest.generation && own.agrees_with(newest) {
        return false;
    }
    if own.generation == newest.generation {
        return true;
    }
    let entry = newest.member(own.member_uuid);
    if entry.is_none_or(is_out) && never_came_about(own, newest) {
        return false;
    }
    match entry {
        Some(entry) if is_out(entry) => woke_while_out(own, entry) && !is_older(own, newest, entry),
        // One generation behind: an update was interrupted, perhaps that of a start.
        Some(_) if own.generation + 1 == newest.generation => {
            own.incarnation != newest.incarnation && own.incarnation != newest.previous_incarnation
        }
        Some(_) => false,
        None => is_in_sync_unheard_of(own, newest),
    }
}

/// Whether the newest knows nothing of a member that is in sync by its own superblock: it joined
/// where the newest was not. (A table that is full forgets the members that were removed first.)
fn is_in_sync_unheard_of(own: &Superblock, newest: &Superblock) -> bool {
    let is_in_sync = own.member(own.member_uuid).is_some_and(is_active);
    is_in_sync && to_u64(newest.members.len()) < MEMBER_ENTRIES_MAX
}

/// Whether `own`, which is older, counts on a member that went the way of `newest`.
fn never_came_about(own: &Superblock, newest: &Superblock) -> bool {
    let went = newest.members.iter().filter(|entry| entry.role == Role::Active);
    went.filter_map(|entry| own.member(entry.uuid)).any(must_have_it)
}

fn woke_while_out(own: &Superblock, entry: &MemberEntry) -> bool {
    let knows_it_is_out = own.member(own.member_uuid).is_some_and(|seen| is_same_loss(seen, entry));
    let stranger = !entry.out_incarnations.contains(&own.incarnation);
    !knows_it_is_out && (own.generation >= entry.out_since || stranger)
}

/// Whether `own` is an older copy of a member that was put out since: the member itself got on
/// further before, and the copy counts on another one that the newest knows. Who starts the member
/// on its own begins where it was put out; who starts the copy on its own has all others out.
fn is_older(own: &Superblock, newest: &Superblock, entry: &MemberEntry) -> bool {
    let is_behind = own.generation + GENERATIONS_MISSED < entry.out_since;
    let counts_on = |other: &&MemberEntry| other.uuid != own.member_uuid && must_have_it(other);
    let mut others = own.members.iter().filter(counts_on);
    is_behind && others.any(|other| newest.member(other.uuid).is_some())
}

/// Whether a member that has not been in sync since knows that it was put out when the newest says.
fn is_same_loss(seen: &MemberEntry, entry: &MemberEntry) -> bool {
    seen.role != Role::Active && seen.out_since == entry.out_since
}

/// Whether the device that carries `own` has only missed what came since the array of `listed` put
/// it out, and may come back with what it holds; `found` is the generation that the present start
/// of that array found. Not if somebody started the device meanwhile; nor if it came back already
/// somewhere else and was written there. Of one that was being rebuilt when it was lost, its
/// incarnation tells: that of this start, or the one before as far as this start knows it.
pub fn has_only_missed(own: &Superblock, listed: &Superblock, found: u64) -> bool {
    let entry = listed.member(own.member_uuid).filter(|_| listed.array_uuid == own.array_uuid);
    let (Some(entry), Some(seen)) = (entry, own.member(own.member_uuid)) else { return false };
    let was_away =
        own.generation < entry.out_since && entry.out_incarnations.contains(&own.incarnation);
    let is_of_this_start = own.incarnation == listed.incarnation
        || own.incarnation == listed.previous_incarnation && own.generation <= found;
    entry.role == Role::Out && (was_away || is_same_loss(seen, entry) && is_of_this_start)
}
