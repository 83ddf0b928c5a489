//! The input of the judgement: what was read from each device, and what the operator asks for.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::copies::CopyState;
use crate::copies::{Choice, Label};
use crate::fault::SuperblockFault;
use crate::flush_mark::FlushMark;
use crate::format::SERIAL_BYTES;
use crate::spare::SpareSuperblock;
use crate::superblock::Superblock;
use crate::text::{ArrayName, Text};

/// What one device was found to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadLabel {
    /// A member of an array.
    Member(Box<Superblock>),
    /// A spare.
    Spare(SpareSuperblock),
    /// Ours, but no copy is intact.
    Damaged,
    /// Written by a newer program.
    Unsupported {
        /// The array; nil if it is a spare.
        array: Uuid,
        /// What is not known.
        fault: SuperblockFault,
    },
    /// Somebody else's content.
    Foreign,
    /// Nothing: zero bytes, or unreadable.
    Blank,
}

/// One device, as read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberReading {
    /// How the operator knows the device.
    pub path: String,
    /// Its size, in bytes.
    pub device_bytes: u64,
    /// Its serial; empty if it has none.
    pub serial: Text<SERIAL_BYTES>,
    /// What its superblock makes of it.
    pub label: ReadLabel,
    /// Its newest flush mark, if it is a member and has one.
    pub mark: Option<FlushMark>,
    /// It was cut short and made as long as before again: see [`Choice::is_cut_short`].
    pub is_cut_short: bool,
    /// It went and came while the array ran without it knowing: what it had not made durable may be
    /// lost. Set by whoever knows.
    pub has_reappeared: bool,
    /// How many copies of its superblock are damaged: see [`Choice::damaged_copies`].
    pub damaged_copies: usize,
    /// The signature of somebody else where only Ashlar writes. Whatever was there when the device
    /// was taken was wiped, so the device was given to somebody else since.
    pub foreign: Option<String>,
    /// What reads of it ended in, if they found nothing at all: it may be a member all the same.
    pub unread: Option<String>,
}

impl MemberReading {
    /// The reading of a device whose copies gave `choice`.
    pub fn new(path: &str, device_bytes: u64, serial: &str, choice: Choice) -> Self {
        let (is_cut_short, damaged_copies) = (choice.is_cut_short(), choice.damaged_copies());
        let (path, serial, label) = (path.to_owned(), Text::cut(serial), label_of(choice));
        let (mark, foreign, unread) = (None, None, None);
        MemberReading {
            path,
            device_bytes,
            serial,
            label,
            mark,
            is_cut_short,
            has_reappeared: false,
            damaged_copies,
            foreign,
            unread,
        }
    }

    /// The same of a device whose reads ended in `fault`, if they did. One that tells something all
    /// the same was read.
    #[must_use]
    pub fn after_fault(mut self, fault: Option<impl ToString>) -> Self {
        let is_silent = matches!(self.label, ReadLabel::Blank);
        self.unread = fault.filter(|_| is_silent).map(|fault| fault.to_string());
        self
    }

    /// That it could not be read, for people.
    pub fn cannot_be_read(&self) -> Option<String> {
        self.unread.as_ref().map(|fault| format!("{} cannot be read: {fault}", self.path))
    }

    /// Whether what begins at this byte of the device lies where no data of a client can be: see
    /// [`Superblock::guards`]. On a spare nothing else can lie.
    pub fn guards(&self, offset: u64) -> bool {
        match &self.label {
            ReadLabel::Member(own) => own.guards(offset),
            ReadLabel::Spare(_) => true,
            _ => false,
        }
    }

    /// The same with the flush mark in `head`, the first bytes of the device as far as they could
    /// be read.
    #[must_use]
    pub fn with_mark_in(mut self, head: Option<&[u8]>) -> Self {
        let array = self.superblock().map(|superblock| superblock.array_uuid);
        self.mark = array.and_then(|array| FlushMark::newest_in(head, array));
        self
    }

    /// The same with the marks that were read alone ([`FLUSH_MARKS`](crate::format::FLUSH_MARKS)),
    /// if they were.
    #[must_use]
    pub fn with_marks(mut self, marks: Option<&[u8]>) -> Self {
        let array = self.superblock().map(|superblock| superblock.array_uuid);
        let read = array.zip(marks).and_then(|(array, marks)| FlushMark::newest_of(marks, array));
        self.mark = self.mark.or(read);
        self
    }

    /// The superblock, if the device is a member.
    pub fn superblock(&self) -> Option<&Superblock> {
        match &self.label {
            ReadLabel::Member(superblock) => Some(superblock),
            _ => None,
        }
    }
}

fn label_of(choice: Choice) -> ReadLabel {
    if let Some((array, fault)) = choice.unsupported() {
        return ReadLabel::Unsupported { array, fault };
    }
    match choice.newest {
        Some(Label::Member(superblock)) => return ReadLabel::Member(superblock),
        Some(Label::Spare(spare)) => return ReadLabel::Spare(spare),
        None => {}
    }
    let ours =
        |copy: &CopyState| matches!(copy, CopyState::Damaged { .. } | CopyState::Torn { .. });
    if choice.copies.iter().any(ours) {
        ReadLabel::Damaged
    } else if choice.copies.contains(&CopyState::Foreign) {
        ReadLabel::Foreign
    } else {
        ReadLabel::Blank
    }
}

/// The sizes that these superblocks record of members: where the end of one may have been that grew
/// and whose own head tells nothing.
pub fn recorded_sizes<'a>(superblocks: impl Iterator<Item = &'a Superblock>) -> BTreeSet<u64> {
    superblocks.flat_map(|it| &it.members).map(|entry| entry.bytes).collect()
}

/// Which array is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ArrayChoice {
    /// The only one there is.
    #[default]
    Only,
    /// The one with this UUID.
    Uuid(Uuid),
    /// The one with this name.
    Name(ArrayName),
}

/// What the operator asks for. The default takes the only array and forces nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AssemblyRequest {
    /// Which array.
    pub array: ArrayChoice,
    /// If two halves lived on separately: the incarnation to trust.
    pub trust: Option<Uuid>,
    /// Accept members whose device has another serial than recorded.
    pub accept_serials: bool,
    /// Accept members that carry a signature of somebody else: it is overwritten.
    pub accept_signatures: bool,
    /// Start read-write although unclean and degraded.
    pub accept_dirty_degraded: bool,
    /// If too few members are there: take others although they may lack writes, the freshest first.
    pub accept_older_members: bool,
    /// Start although pages of the written map are lost: their stripes count as written.
    pub accept_lost_map: bool,
}

/// An array among the readings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundArray {
    /// Its UUID.
    pub uuid: Uuid,
    /// Its name, as the newest superblock gives it.
    pub name: ArrayName,
    /// How many of the readings belong to it.
    pub members: usize,
}
