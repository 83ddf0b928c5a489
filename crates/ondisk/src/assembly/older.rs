//! Older copies of members: a device that was copied while the array ran and put in the member's
//! place, or a snapshot that was rolled back.
//!
//! What must stay true: only the marks of a member that is itself in sync can set a device apart,
//! and only on an array whose marks count ([`crate::Features::FLUSH_MARKS`]). If one device claims
//! marks that no other has, all others are set apart. Then too few are left and the array is
//! refused, or one copy of a mirror is left.

use super::reading::MemberReading;
use super::split_brain::Candidate;
use super::verdict::{Extra, ExtraReason};
use crate::flush_mark::FlushMark;
use crate::member::{MemberEntry, Role};
use crate::superblock::Superblock;

/// The mark that the members in sync know to be durable on each of them.
pub(super) fn known_flushed(
    best: &Superblock,
    attached: &[(usize, MemberEntry)],
    readings: &[MemberReading],
) -> u64 {
    if !best.has_flush_marks() {
        return 0;
    }
    let in_sync = attached.iter().filter(|(_, entry)| entry.role == Role::Active);
    let said = in_sync.filter_map(|(at, _)| readings[*at].mark).map(|mark| mark.flushed);
    said.max().unwrap_or(0)
}

/// Takes the devices out of `attached` that lack the mark `flushed`. One that is listed as out
/// lacks it rightly.
pub(super) fn set_apart(
    attached: &mut Vec<(usize, MemberEntry)>,
    readings: &[MemberReading],
    flushed: u64,
) -> Vec<Extra> {
    let has = |at: usize| readings[at].mark.map_or(0, |mark: FlushMark| mark.sequence);
    let is_older =
        |(at, entry): &(usize, MemberEntry)| entry.role != Role::Out && has(*at) < flushed;
    let older = attached.iter().filter(|it| is_older(it)).map(|(at, _)| Extra {
        reading: *at,
        reason: ExtraReason::Older { has: has(*at), flushed },
    });
    let older: Vec<Extra> = older.collect();
    attached.retain(|it| !is_older(it));
    older
}

/// The newest mark on any device of the array.
pub(super) fn newest_mark(candidates: &[Candidate<'_>], readings: &[MemberReading]) -> u64 {
    let marks = candidates.iter().filter_map(|(at, _)| readings[*at].mark);
    marks.map(|mark| mark.sequence).max().unwrap_or(0)
}
