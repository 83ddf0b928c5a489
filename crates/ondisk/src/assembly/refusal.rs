//! The lines of refusal: each says what happened, to what, what is still safe, and what to do next.
//!
//! What must stay true: one line each, without line breaks; names and paths are quoted as they
//! came.

use ashlar_units::MemberIdx;
use uuid::Uuid;

use super::reading::{ArrayChoice, AssemblyRequest, FoundArray, MemberReading, ReadLabel};
use super::split_brain::Candidate;
use super::verdict::{Extra, ExtraReason, Refusal, RefusalKind, SlotState, SlotVerdict};
use crate::fault::SuperblockFault;
use crate::superblock::Superblock;

/// A device of the array that is not attached, and why.
pub(super) struct LeftOut<'r> {
    reading: &'r MemberReading,
    /// The slot that it holds, or would take.
    slot: MemberIdx,
    reason: ExtraReason,
}

impl<'r> LeftOut<'r> {
    /// `None` if it is of no slot.
    pub(super) fn of(
        extra: &Extra,
        readings: &'r [MemberReading],
        best: &Superblock,
    ) -> Option<Self> {
        let is_of_a_slot = matches!(
            extra.reason,
            ExtraReason::Older { .. }
                | ExtraReason::Incoherent { .. }
                | ExtraReason::TooSmall { .. }
                | ExtraReason::CutShort
                | ExtraReason::Reused
                | ExtraReason::SerialDiffers
        );
        let reading = &readings[extra.reading];
        let own = reading.superblock().filter(|_| is_of_a_slot)?;
        let slot = best.member(own.member_uuid)?.slot;
        Some(LeftOut { reading, slot, reason: extra.reason })
    }

    fn may_lack_writes(&self) -> bool {
        matches!(self.reason, ExtraReason::Older { .. } | ExtraReason::Incoherent { .. })
    }

    fn words(&self) -> String {
        let path = &self.reading.path;
        match (self.reason, &self.reading.foreign) {
            (ExtraReason::Older { has: 0, .. }, _) => format!(
                "{path} is an older copy of it, or was overwritten at its beginning: it lost its \
                 flush marks"
            ),
            (ExtraReason::Older { .. }, _) => format!(
                "{path} is an older copy of it: it lacks writes that the others know to be flushed"
            ),
            (ExtraReason::Incoherent { .. }, _) => {
                format!("{path} lacks updates of the array, and nothing tells why")
            }
            (ExtraReason::CutShort, _) => format!("{path} was cut short and made longer again"),
            (ExtraReason::Reused, Some(signature)) => {
                format!("{path} carries {signature}, so it was given to somebody else since")
            }
            (ExtraReason::SerialDiffers, _) => {
                format!("{path} shows serial {}", self.reading.serial)
            }
            _ => format!("{path} is smaller than it was"),
        }
    }
}

pub(super) fn no_array(readings: &[MemberReading], request: &AssemblyRequest) -> Refusal {
    let wanted = match request.array {
        ArrayChoice::Only => "an array".to_owned(),
        ArrayChoice::Uuid(uuid) => format!("array {uuid}"),
        ArrayChoice::Name(name) => format!("array {name}"),
    };
    let unread = unread(readings);
    let read = readings.iter().filter(|reading| reading.unread.is_none()).count();
    let devices = match (read, unread.is_empty()) {
        (1, true) => "the one device looked at".to_owned(),
        (count, true) => format!("the {count} devices looked at"),
        (1, false) => "the one other device".to_owned(),
        (count, false) => format!("the {count} other devices"),
    };
    let on_the_others = format!("no member of {wanted} was found on {devices}");
    let line = match (read, unread.is_empty()) {
        (0, false) => format!("{unread}; members of {wanted} may be on them; {UNREAD_NEXT}"),
        (_, false) => format!("{unread}; {on_the_others}; {UNREAD_NEXT}"),
        (_, true) => format!(
            "{on_the_others}; nothing was written; \
             check the list of devices, and run examine on each to see what it holds"
        ),
    };
    refusal(RefusalKind::NoArray, line)
}

/// What to do about devices that cannot be read.
const UNREAD_NEXT: &str = "nothing was written; check their cables, their power and the kernel's \
                           messages (dmesg), and assemble again when they can be read";

/// The devices that cannot be read, each with what reads end in; empty if there are none.
fn unread(readings: &[MemberReading]) -> String {
    let unread: Vec<String> = readings.iter().filter_map(MemberReading::cannot_be_read).collect();
    unread.join(", ")
}

/// No member that can be understood, but one that a newer program wrote, of the wanted array as far
/// as that can be told.
pub(super) fn only_newer(readings: &[MemberReading], request: &AssemblyRequest) -> Option<Refusal> {
    let newer = readings.iter().find_map(|reading| match reading.label {
        ReadLabel::Unsupported { array, fault } => Some((reading, array, fault)),
        _ => None,
    });
    let (reading, array, fault) = newer?;
    if matches!(request.array, ArrayChoice::Uuid(wanted) if wanted != array) {
        return None;
    }
    let line = format!(
        "array {array}: {} cannot be understood ({fault}), nor can any of its other members; \
         nothing was written and all data is as it was; \
         start the array with the program that wrote it, or a newer one",
        reading.path
    );
    Some(refusal(RefusalKind::Unsupported, line))
}

pub(super) fn several_arrays(found: &[FoundArray]) -> Refusal {
    let names: Vec<String> = found
        .iter()
        .map(|array| format!("{} ({}, {} members)", array.name, array.uuid, array.members))
        .collect();
    refusal(
        RefusalKind::SeveralArrays,
        format!(
            "the devices belong to several arrays: {}; nothing was written; \
             name one of them by its UUID",
            names.join(", ")
        ),
    )
}

pub(super) fn unsupported(
    best: &Superblock,
    reading: &MemberReading,
    fault: SuperblockFault,
) -> Refusal {
    refusal(
        RefusalKind::Unsupported,
        format!(
            "array {}: {} cannot be understood ({fault}); nothing was written and all data is as \
             it was; start the array with the program that wrote it, or a newer one",
            best.array_name, reading.path
        ),
    )
}

/// Such arrays are examined and salvaged, and not served.
pub(super) fn growing(best: &Superblock) -> Refusal {
    refusal(
        RefusalKind::Unsupported,
        format!(
            "array {}: it is growing, and this program does not serve such arrays; nothing was \
             written and all data is as it was; start it with the program that grew it, or copy \
             the data with `ashlar salvage`",
            best.array_name
        ),
    )
}

pub(super) fn generations_used_up(best: &Superblock) -> Refusal {
    refusal(
        RefusalKind::GenerationsUsedUp,
        format!(
            "array {}: its superblocks say generation {}, which no array gets to, \
             so they were damaged or forged; nothing was written and all data is as it was; \
             assemble without the devices that say so, or copy the data with `ashlar salvage`",
            best.array_name, best.generation
        ),
    )
}

pub(super) fn same_member_twice(
    best: &Superblock,
    one: &MemberReading,
    two: &MemberReading,
) -> Refusal {
    let slot = one.superblock().map_or(0, |superblock| superblock.slot.0);
    let same_device = !one.serial.is_empty() && one.serial == two.serial;
    let guess = if same_device {
        format!("both have serial {}, so perhaps two paths to one device", one.serial)
    } else {
        "perhaps one is a clone of the other".to_owned()
    };
    refusal(
        RefusalKind::SameMemberTwice,
        format!(
            "array {}: {} and {} are the same member (slot {slot}; {guess}); nothing was written; \
             assemble again with only the right one of them",
            best.array_name, one.path, two.path
        ),
    )
}

pub(super) fn split_brain(
    speaker: &Superblock,
    all: &[Candidate<'_>],
    apart: &[Candidate<'_>],
    readings: &[MemberReading],
) -> Refusal {
    let rest: Vec<Candidate<'_>> =
        all.iter().filter(|(at, _)| apart.iter().all(|(other, _)| other != at)).copied().collect();
    refusal(
        RefusalKind::SplitBrain,
        format!(
            "array {}: its members were started separately and split: {} against {}; nothing was \
             written and both sides are as they were; examine both, \
             then assemble again and name the incarnation to trust (the other side will be rebuilt \
             from it and lose what only it has)",
            speaker.array_name,
            side(&rest, readings),
            side(apart, readings),
        ),
    )
}

fn side(members: &[Candidate<'_>], readings: &[MemberReading]) -> String {
    let paths: Vec<&str> = members.iter().map(|(at, _)| readings[*at].path.as_str()).collect();
    let newest = members.iter().max_by_key(|(_, superblock)| superblock.generation);
    let told = newest.map_or_else(String::new, |(_, superblock)| {
        format!(" (generation {}, incarnation {})", superblock.generation, superblock.incarnation)
    });
    format!("{}{told}", paths.join(" "))
}

pub(super) fn no_such_half(best: &Superblock, trust: Uuid) -> Refusal {
    refusal(
        RefusalKind::NoSuchSide,
        format!(
            "array {}: no member carries the incarnation to trust, {}; nothing was written; \
             take the incarnation from the refusal or from examine",
            best.array_name, trust
        ),
    )
}

pub(super) fn too_many_missing(
    best: &Superblock,
    (group, members): (usize, &[SlotVerdict]),
    left_out: &[LeftOut<'_>],
    readings: &[MemberReading],
) -> Refusal {
    let is_missing = |slot: &&SlotVerdict| slot.state != SlotState::Current;
    let missing: Vec<String> =
        members.iter().filter(is_missing).map(|slot| describe_missing(slot, left_out)).collect();
    let unread = unread(readings);
    let next = match unread.is_empty() {
        true => format!("nothing was written; {}", next_without(best, members, left_out)),
        // Devices come first of which nothing is known but that they fail.
        false => format!("{unread}; {UNREAD_NEXT}"),
    };
    let domains =
        best.geometry.losses_in(0..members.len(), |slot| members[slot].state != SlotState::Current);
    let (of_domains, unit) = match best.enclosures {
        Some(_) => (format!(", of {domains} failure domains,"), " of these"),
        None => (String::new(), ""),
    };
    let of_group = if best.geometry.groups > 1 { format!("group {group} ") } else { String::new() };
    refusal(
        RefusalKind::TooManyMissing,
        format!(
            "array {}: {of_group}lacks {} of {} members{of_domains} and can do without \
             {}{unit}: {}; {next}",
            best.array_name,
            missing.len(),
            members.len(),
            best.geometry.parity_strips,
            missing.join(", ")
        ),
    )
}

/// What to do about the devices that are missing, or may lack writes.
fn next_without(best: &Superblock, members: &[SlotVerdict], left_out: &[LeftOut<'_>]) -> String {
    let of = |slot: &SlotVerdict| left_out.iter().find(|it| it.slot == slot.slot);
    let is_there = |reason| left_out.iter().any(|it| it.reason == reason);
    if is_there(ExtraReason::Reused) {
        let has_other_serial = is_there(ExtraReason::SerialDiffers);
        let serials = if has_other_serial { "--accept-serials " } else { "" };
        return format!(
            "if what these devices carry may be lost, and the array is wanted without what was \
             overwritten on them: ashlar assemble {serials}--accept-signatures DEVICE..."
        );
    }
    if is_there(ExtraReason::SerialDiffers) {
        return "if these are the drives themselves behind another adapter, or copies that take \
                their place: ashlar assemble --accept-serials DEVICE..."
            .to_owned();
    }
    // Nothing on a device that is being filled counts in its stead.
    let could_be_taken = |slot: &SlotVerdict| {
        let is_stale = matches!(slot.state, SlotState::Stale { .. });
        slot.joining_device.is_none()
            && (is_stale || of(slot).is_some_and(LeftOut::may_lack_writes))
    };
    let is_lost =
        |at: usize| members[at].state != SlotState::Current && !could_be_taken(&members[at]);
    let losses = best.geometry.losses_in(0..members.len(), is_lost);
    let missing = members.iter().filter(|slot| slot.state != SlotState::Current);
    let is_enough = losses <= usize::from(best.geometry.parity_strips);
    let by_hand: String = missing
        .filter_map(of)
        .filter(|it| it.may_lack_writes())
        .map(|it| format!(" --slot {}={}", it.slot, it.reading.path))
        .collect();
    let mut next = "attach the missing devices and assemble again".to_owned();
    if is_enough {
        next.push_str(
            "; without them, `--accept-older-members` starts it with blocks that may be old \
             (`--dry-run --accept-older-members` says which)",
        );
    }
    if !by_hand.is_empty() {
        next.push_str(&format!(
            "; what is there can be copied out, with wrong blocks: \
             `ashlar salvage MEMBER... --to FILE{by_hand}`"
        ));
    }
    next
}

fn describe_missing(slot: &SlotVerdict, left_out: &[LeftOut<'_>]) -> String {
    let serial = slot
        .holder
        .filter(|holder| !holder.serial.is_empty())
        .map_or_else(String::new, |holder| format!(" serial {}", holder.serial));
    let own = left_out.iter().find(|it| it.slot == slot.slot);
    let state = match slot.state {
        _ if let Some(own) = own => own.words(),
        SlotState::Stale { out_since } => format!("out since generation {out_since}"),
        _ if slot.joining_device.is_some_and(|new| new.reading.is_some()) => {
            "still being rebuilt".to_owned()
        }
        _ if slot.holder.is_none() => "nobody's".to_owned(),
        _ => "not usable or not found".to_owned(),
    };
    format!("slot {}{serial} ({state})", slot.slot)
}

fn refusal(kind: RefusalKind, line: String) -> Refusal {
    debug_assert!(!line.contains('\n'), "a refusal is one line");
    Refusal { kind, line }
}
