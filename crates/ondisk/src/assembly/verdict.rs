//! The output of the judgement.

use ashlar_units::MemberIdx;
use uuid::Uuid;

use crate::fault::SuperblockFault;
use crate::member::MemberEntry;
use crate::superblock::Superblock;

/// What a slot's holder is good for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SlotState {
    /// All its strips are current.
    Current,
    /// It missed writes since this generation; it may be re-added by replaying the write-intent
    /// bitmap.
    Stale {
        /// Generation of the update that recorded it as out.
        out_since: u64,
    },
    /// No usable device holds the slot.
    Missing,
}

/// A member on its way into a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoiningDevice {
    /// Its entry: Rebuilding or Replacement.
    pub entry: MemberEntry,
    /// Index of the reading of its device; `None` if it was not found or is not usable.
    pub reading: Option<usize>,
}

/// One slot of the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotVerdict {
    /// The slot.
    pub slot: MemberIdx,
    /// What its holder is good for.
    pub state: SlotState,
    /// The holder's entry, Active or Out; `None` if no member holds the slot.
    pub holder: Option<MemberEntry>,
    /// Index of the reading of the holder's device; `None` exactly if the slot is missing.
    pub reading: Option<usize>,
    /// The member being rebuilt or copied into the slot.
    pub joining_device: Option<JoiningDevice>,
}

/// Why a device is not attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtraReason {
    /// It belongs to another array.
    OtherArray {
        /// That array.
        array: Uuid,
    },
    /// It is a spare.
    Spare,
    /// Ours, but no superblock copy is intact.
    Damaged,
    /// Written by a newer program.
    Unsupported {
        /// What is not known.
        fault: SuperblockFault,
    },
    /// Somebody else's content.
    Foreign,
    /// Nothing on it.
    Blank,
    /// It cannot be read: see [`MemberReading::unread`].
    ///
    /// [`MemberReading::unread`]: super::MemberReading::unread
    Unread,
    /// It was removed from this array.
    Removed,
    /// It carries this array's UUID, but the newest superblock does not list it.
    NotListed,
    /// The device is smaller than its superblock says.
    TooSmall {
        /// Size it had, in bytes.
        needed_bytes: u64,
    },
    /// The tail of the device is empty: it was cut short and made as long as before again, and what
    /// was cut off would read as zeros.
    CutShort,
    /// It went and came while nobody who ran the array saw it: what it had not made durable may be
    /// lost.
    Reappeared,
    /// The device has another serial than recorded: perhaps a clone.
    SerialDiffers,
    /// The device carries a signature of somebody else: see [`MemberReading::foreign`].
    ///
    /// [`MemberReading::foreign`]: super::MemberReading::foreign
    Reused,
    /// Listed as current, but its superblock is more than one generation behind: it missed updates
    /// that nobody recorded.
    Incoherent {
        /// Generation of its superblock.
        generation: u64,
    },
    /// An older copy of the member: it lacks what the others know to be flushed on it.
    Older {
        /// Its newest flush mark; 0: it has none that can be read.
        has: u64,
        /// The mark that others know to be durable on it.
        flushed: u64,
    },
    /// It lived on separately and the other side is trusted: its content is of no use here.
    LivedOn,
}

/// A device that is not attached to any slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extra {
    /// Index of the reading.
    pub reading: usize,
    /// Why.
    pub reason: ExtraReason,
}

/// Why an array starts read-only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReadOnlyReason {
    /// Unclean and degraded without a log: blocks of the missing members that were being written
    /// when it stopped cannot be proven right.
    DirtyDegraded,
    /// Read-only compatible features that are not known.
    UnknownFeatures {
        /// The unknown bits.
        unknown: u64,
    },
}

/// Why an array is not started, to match on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RefusalKind {
    /// No member of the wanted array was found.
    NoArray,
    /// Several arrays were found and none was named.
    SeveralArrays,
    /// A newer program wrote to it.
    Unsupported,
    /// The same member was found on two devices.
    SameMemberTwice,
    /// Two halves lived on separately.
    SplitBrain,
    /// The side to trust was not found.
    NoSuchSide,
    /// Its generation is beyond what an array can reach: readers would reject its next superblocks.
    GenerationsUsedUp,
    /// More members are missing than parity can replace.
    TooManyMissing,
}

/// Why an array is not started.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{line}")]
pub struct Refusal {
    /// To match on.
    pub kind: RefusalKind,
    /// One line: what happened, to what, what is still safe, what to do next.
    pub line: String,
}

/// Whether and how the array may start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Start {
    /// All members are there.
    Whole,
    /// Members are missing; all data is there.
    Degraded,
    /// Reads only; whether members are missing, the slots say.
    ReadOnly(ReadOnlyReason),
    /// Not at all; nothing may be written.
    Refused(Refusal),
}

/// A member that is taken although it may lack writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Index of the reading.
    pub reading: usize,
    /// It is listed as out, so the write-intent bitmap tells where it may lack something.
    pub was_out: bool,
}

/// What a set of devices adds up to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The newest superblock of the array. If members are taken back that it lists as out, this is
    /// the update that says so: no member has it yet.
    pub newest: Option<Superblock>,
    /// Every slot, in order; empty if no array could be chosen.
    pub slots: Vec<SlotVerdict>,
    /// Devices that are attached to no slot.
    pub extras: Vec<Extra>,
    /// The flush mark that is known to be durable on every member in sync; 0: none is.
    pub flushed: u64,
    /// The newest flush mark that any device of the array carries; 0: none.
    pub newest_mark: u64,
    /// Whether and how the array may start.
    pub start: Start,
    /// Which forced actions starting this way means, as flags of
    /// [`ForcedActions`](crate::ForcedActions), to be recorded by the start's own update.
    pub forced: u64,
    /// Members that are taken although they may lack writes.
    pub may_be_older: Vec<Taken>,
}

impl Verdict {
    /// The slots without a current holder.
    pub fn missing(&self) -> impl Iterator<Item = &SlotVerdict> {
        self.slots.iter().filter(|slot| slot.state != SlotState::Current)
    }

    /// The refusal, if the array may not start.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.start {
            Start::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// The extra verdict on a reading, if it is attached to no slot.
    pub fn extra(&self, reading: usize) -> Option<ExtraReason> {
        self.extras.iter().find(|extra| extra.reading == reading).map(|extra| extra.reason)
    }
}
