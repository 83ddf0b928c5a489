//! Chooses among the four superblock copies of one device, and says what is wrong with the others.
//!
//! What must stay true: one intact copy is enough. The newest generation wins. An interrupted
//! creation may leave copies of another array or of a spare pool, and these never mix with the
//! chosen one. The identity that most copies carry wins. On a tie the one with the lowest copy
//! wins, because copy 0 is written first. Nothing here guesses content: a damaged copy is never
//! used.

use uuid::Uuid;
use zerocopy::FromBytes;

use crate::fault::SuperblockFault;
use crate::format::{
    FieldAt, HEADER_FIELDS, MEMBER_FIELDS, MEMBER_MAGIC, RawHeader, RawMember, RawPreamble,
    SPARE_FIELDS, SPARE_MAGIC, SUPERBLOCK_COPIES,
};
use crate::spare::SpareSuperblock;
use crate::superblock::Superblock;

/// What a device is to us, by its superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Label {
    /// A member of an array.
    Member(Box<Superblock>),
    /// A spare.
    Spare(SpareSuperblock),
}

impl Label {
    /// Generation of the superblock.
    pub fn generation(&self) -> u64 {
        match self {
            Label::Member(superblock) => superblock.generation,
            Label::Spare(spare) => spare.generation,
        }
    }

    /// Size of the device when it became this, as far as it is used.
    pub fn member_bytes(&self) -> u64 {
        match self {
            Label::Member(superblock) => superblock.member_bytes,
            Label::Spare(spare) => spare.member_bytes,
        }
    }

    /// The array (nil for a spare) and the member: copies of one device agree in both.
    fn identity(&self) -> (Uuid, Uuid) {
        match self {
            Label::Member(superblock) => (superblock.array_uuid, superblock.member_uuid),
            Label::Spare(spare) => (Uuid::nil(), spare.member_uuid),
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, SuperblockFault> {
        match Superblock::decode(bytes) {
            Ok(superblock) => Ok(Label::Member(Box::new(superblock))),
            Err(SuperblockFault::OtherKind) => SpareSuperblock::decode(bytes).map(Label::Spare),
            Err(fault) => Err(fault),
        }
    }
}

/// What one superblock copy is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyState {
    /// Intact and of the newest generation.
    Ok,
    /// Intact, of an older generation.
    Stale {
        /// Its generation.
        generation: u64,
    },
    /// Intact, of the same generation and identity as the chosen one, but with other content.
    Conflicting,
    /// Intact, of another array, member or kind.
    Other {
        /// The array it belongs to; nil for a spare's superblock.
        array: Uuid,
    },
    /// A write of it was interrupted: parts are of one generation, parts of another. Told only
    /// where an intact copy proves it; otherwise the copy counts as damaged.
    Torn {
        /// The generation its header claims.
        generation: u64,
    },
    /// The checksum does not match or the content is impossible.
    Damaged {
        /// The first field that differs from the chosen copy, or that is impossible; `None` if
        /// there is nothing to compare with.
        field: Option<&'static str>,
    },
    /// Intact as far as can be told, but written by a newer program.
    Unsupported {
        /// The array it belongs to; nil for a spare's superblock.
        array: Uuid,
        /// Its generation.
        generation: u64,
        /// What is not known.
        fault: SuperblockFault,
    },
    /// Zero bytes: never written, or erased.
    Absent,
    /// Content that is not ours.
    Foreign,
    /// The device could not be read there.
    Unreadable,
}

/// The verdict over the four copies of one device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The newest intact superblock, if there is one.
    pub newest: Option<Label>,
    /// What each copy is.
    pub copies: [CopyState; SUPERBLOCK_COPIES],
}

impl Choice {
    /// The newest superblock, if the device is a member of an array.
    pub fn superblock(&self) -> Option<&Superblock> {
        match &self.newest {
            Some(Label::Member(superblock)) => Some(superblock),
            _ => None,
        }
    }

    /// Whether all four copies are intact and equal.
    pub fn is_whole(&self) -> bool {
        self.copies == [CopyState::Ok; SUPERBLOCK_COPIES]
    }

    /// How many copies hold something that no update of ours leaves there: somebody wrote over
    /// them, or they cannot be read.
    pub fn damaged_copies(&self) -> usize {
        let is_damaged = |copy: &&CopyState| {
            matches!(
                copy,
                CopyState::Damaged { .. }
                    | CopyState::Absent
                    | CopyState::Foreign
                    | CopyState::Other { .. }
                    | CopyState::Unreadable
            )
        };
        self.copies.iter().filter(is_damaged).count()
    }

    /// Whether the device was cut short and made as long as before again: its head has a
    /// superblock, and where both copies of its tail were is nothing. What lay before the tail may
    /// be gone as well, and reads as zeros.
    pub fn is_cut_short(&self) -> bool {
        let [_, _, tail @ ..] = &self.copies;
        self.superblock().is_some() && tail.iter().all(|copy| *copy == CopyState::Absent)
    }

    /// The array and the fault of a copy that only a newer program can read, if it is newer than
    /// the chosen copy: then the chosen one must not be used for writing.
    pub fn unsupported(&self) -> Option<(Uuid, SuperblockFault)> {
        let chosen = self.newest.as_ref().map_or(0, Label::generation);
        self.copies.iter().find_map(|copy| match *copy {
            CopyState::Unsupported { array, generation, fault } if generation > chosen => {
                Some((array, fault))
            }
            _ => None,
        })
    }
}

/// The four superblock copies of one device, as read.
pub struct SuperblockCopies;

impl SuperblockCopies {
    /// Chooses the newest intact superblock. Each copy is the bytes of its slot (up to 64 KiB), or
    /// `None` if they could not be read.
    pub fn choose(copies: &[Option<&[u8]>; SUPERBLOCK_COPIES]) -> Choice {
        let decoded: Vec<Option<Result<Label, SuperblockFault>>> =
            copies.iter().map(|copy| copy.map(Label::decode)).collect();
        let intact: Vec<(usize, &Label)> = decoded
            .iter()
            .enumerate()
            .filter_map(|(at, copy)| Some((at, copy.as_ref()?.as_ref().ok()?)))
            .collect();
        let chosen = choose_newest(&intact);
        let states = std::array::from_fn(|at| match (&decoded[at], copies[at]) {
            (None, _) | (_, None) => CopyState::Unreadable,
            (Some(Ok(label)), _) => intact_state(label, chosen.map(|(_, newest)| newest)),
            (Some(Err(fault)), Some(bytes)) => {
                let others: Vec<&[u8]> =
                    intact.iter().filter_map(|&(other, _)| copies[other]).collect();
                faulty_state(*fault, bytes, chosen.and_then(|(best, _)| copies[best]), &others)
            }
        });
        Choice { newest: chosen.map(|(_, label)| label.clone()), copies: states }
    }
}

/// The identity most copies carry, the earlier copy on a tie; of that, the newest generation.
fn choose_newest<'a>(intact: &[(usize, &'a Label)]) -> Option<(usize, &'a Label)> {
    let support = |label: &Label| {
        intact.iter().filter(|(_, other)| other.identity() == label.identity()).count()
    };
    let most = intact.iter().map(|(_, label)| support(label)).max()?;
    let (_, first) = intact.iter().find(|(_, label)| support(label) == most)?;
    intact
        .iter()
        .filter(|(_, label)| label.identity() == first.identity())
        .rev()
        .max_by_key(|(_, label)| label.generation())
        .copied()
}

fn intact_state(label: &Label, newest: Option<&Label>) -> CopyState {
    match newest {
        Some(newest) if newest == label => CopyState::Ok,
        Some(newest) if newest.identity() != label.identity() => {
            CopyState::Other { array: label.identity().0 }
        }
        Some(newest) if newest.generation() == label.generation() => CopyState::Conflicting,
        _ => CopyState::Stale { generation: label.generation() },
    }
}

fn faulty_state(
    fault: SuperblockFault,
    bytes: &[u8],
    chosen: Option<&[u8]>,
    intact: &[&[u8]],
) -> CopyState {
    match fault {
        SuperblockFault::Empty => CopyState::Absent,
        SuperblockFault::Short { .. } => CopyState::Unreadable,
        SuperblockFault::Field { name } => CopyState::Damaged { field: Some(name) },
        SuperblockFault::Version { .. } | SuperblockFault::UnknownFeatures { .. } => {
            unsupported_state(fault, bytes)
        }
        SuperblockFault::Checksum { .. } => damaged_state(bytes, chosen, intact),
        // A damaged magic is damage, not somebody else's data, if the rest looks like the chosen
        // copy.
        SuperblockFault::Foreign | SuperblockFault::OtherKind => {
            let resembles = chosen.is_some_and(|chosen| equal_sectors(bytes, chosen) > 0);
            if resembles { damaged_state(bytes, chosen, intact) } else { CopyState::Foreign }
        }
    }
}

/// The preamble and the array's UUID keep their place in every version, so that a newer array is
/// known by name.
fn unsupported_state(fault: SuperblockFault, bytes: &[u8]) -> CopyState {
    let generation = preamble(bytes).map_or(0, |head| head.generation.get());
    let array = match RawHeader::ref_from_prefix(bytes) {
        Ok((header, _)) if header.magic == MEMBER_MAGIC => Uuid::from_bytes(header.array_uuid),
        _ => Uuid::nil(),
    };
    CopyState::Unsupported { array, generation, fault }
}

fn damaged_state(bytes: &[u8], chosen: Option<&[u8]>, intact: &[&[u8]]) -> CopyState {
    let generation = preamble(bytes).map_or(0, |head| head.generation.get());
    if is_torn(bytes, chosen, intact) {
        return CopyState::Torn { generation };
    }
    CopyState::Damaged { field: chosen.and_then(|chosen| first_difference(bytes, chosen)) }
}

/// An interrupted write leaves whole sectors of two generations. Either every sector is found in
/// some intact copy, or the header is of the generation after the chosen one, checksum included.
fn is_torn(bytes: &[u8], chosen: Option<&[u8]>, intact: &[&[u8]]) -> bool {
    let (Some(head), Some(best)) = (preamble(bytes), chosen.and_then(preamble)) else {
        return false;
    };
    let next = best.generation.get().checked_add(1) == Some(head.generation.get());
    if next && head.checksum != best.checksum && head.magic == best.magic {
        return true;
    }
    let length = superblock_length(bytes);
    let mixed = |at: usize, sector: &[u8]| {
        intact.iter().any(|copy| copy.get(at * 512..at * 512 + sector.len()) == Some(sector))
    };
    let mut sectors = bytes[..length].chunks(512).enumerate();
    length > 0 && sectors.all(|(at, sector)| mixed(at, sector))
}

fn equal_sectors(bytes: &[u8], other: &[u8]) -> usize {
    let zero = [0; 512];
    let length = superblock_length(other).min(bytes.len());
    bytes[..length]
        .chunks(512)
        .zip(other[..length].chunks(512))
        .filter(|(one, two)| one == two && **one != zero[..one.len()])
        .count()
}

fn superblock_length(bytes: &[u8]) -> usize {
    let claimed = preamble(bytes).map_or(0, |head| head.length.get());
    usize::try_from(claimed).map_or(0, |claimed| claimed.min(bytes.len()))
}

fn preamble(bytes: &[u8]) -> Option<&RawPreamble> {
    RawPreamble::ref_from_prefix(bytes).ok().map(|(head, _)| head)
}

/// The field of the first byte in which the two differ. The checksum is named only if nothing else
/// differs.
fn first_difference(bytes: &[u8], chosen: &[u8]) -> Option<&'static str> {
    let length = superblock_length(chosen);
    let differs = |at: &usize| bytes.get(*at) != chosen.get(*at);
    let in_checksum = |at: &usize| (8..12).contains(at);
    let at = (0..length)
        .filter(differs)
        .find(|at| !in_checksum(at))
        .or_else(|| (0..length).find(differs))?;
    Some(field_name(preamble(chosen)?.magic == SPARE_MAGIC, at))
}

/// The name of the field that holds byte `at` of a superblock.
pub(crate) fn field_name(spare: bool, at: usize) -> &'static str {
    if spare {
        return FieldAt::holding(SPARE_FIELDS, at).map_or("beyond the end", |field| field.name);
    }
    if let Some(field) = FieldAt::holding(HEADER_FIELDS, at) {
        return field.name;
    }
    let in_entry = (at - size_of::<RawHeader>()) % size_of::<RawMember>();
    match FieldAt::holding(MEMBER_FIELDS, in_entry).map(|field| field.name) {
        Some("member_uuid") => "members.member_uuid",
        Some("slot") => "members.slot",
        Some("role") => "members.role",
        Some("out_since") => "members.out_since",
        Some("member_bytes") => "members.member_bytes",
        Some("serial") => "members.serial",
        Some("out_incarnation") => "members.out_incarnation",
        Some("out_previous_incarnation") => "members.out_previous_incarnation",
        _ => "members.reserved",
    }
}
