//! The member table: the members, their roles, and the one function that changes a role.
//!
//! What must stay true: a slot has at most one holder (Active or Out) and at most one joining
//! device (Rebuilding or Replacement). `out_since` is the generation of the superblock update that
//! first recorded the member as having missed writes. Zero means that it never missed any. The two
//! incarnations recorded with it tell a member that merely missed writes from one that was started
//! on its own meanwhile.

use ashlar_units::MemberIdx;
use uuid::Uuid;

use crate::format::{FLUSH_MARK_SEQUENCE_END, RawMember, SERIAL_BYTES};
use crate::text::Text;

/// What a member does for its slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Holds the slot, all its strips are current.
    Active,
    /// Is being rebuilt from the other members; strips before the job's checkpoint are current.
    Rebuilding,
    /// Receives a copy of a member that still serves.
    Replacement,
    /// Holds the slot but missed writes; can be brought back by replaying the write-intent bitmap.
    Out,
    /// No longer belongs to the array; its content is of no use.
    Removed,
}

impl Role {
    /// Every role, in the order of the codes.
    pub const ALL: [Role; 5] =
        [Role::Active, Role::Rebuilding, Role::Replacement, Role::Out, Role::Removed];

    /// The code on disk.
    pub fn code(self) -> u8 {
        match self {
            Role::Active => 1,
            Role::Rebuilding => 2,
            Role::Replacement => 3,
            Role::Out => 4,
            Role::Removed => 5,
        }
    }

    /// The role with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.code() == code)
    }

    /// The word for people.
    pub fn name(self) -> &'static str {
        match self {
            Role::Active => "active",
            Role::Rebuilding => "rebuilding",
            Role::Replacement => "replacement",
            Role::Out => "out",
            Role::Removed => "removed",
        }
    }

    /// Whether the member holds its slot (a slot has at most one holder).
    pub fn is_holder(self) -> bool {
        matches!(self, Role::Active | Role::Out)
    }

    /// Whether the member is on its way into its slot (a slot has at most one joining device).
    pub fn is_joining_device(self) -> bool {
        matches!(self, Role::Rebuilding | Role::Replacement)
    }
}

/// What can happen to a member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemberEvent {
    /// It missed a write: it failed, vanished, or the operator took it out.
    Lost,
    /// It is back and its missed regions are to be rebuilt.
    Readded,
    /// The member it was being copied from is lost: it is rebuilt from the others instead.
    SourceLost,
    /// Its rebuild or copy is complete.
    Completed,
    /// It was recorded as out and missed nothing after all, or is believed to have.
    Believed,
    /// Another device took its slot, or the operator removed it for good.
    Dismissed,
}

impl MemberEvent {
    /// Every event.
    pub const ALL: [MemberEvent; 6] = [
        MemberEvent::Lost,
        MemberEvent::Readded,
        MemberEvent::SourceLost,
        MemberEvent::Completed,
        MemberEvent::Believed,
        MemberEvent::Dismissed,
    ];
}

/// An event that cannot happen to a member in this role: a bug of the caller, or a stale request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a member that is {} cannot be {event:?}", role.name())]
pub struct BadTransition {
    /// The role it has.
    pub role: Role,
    /// What was to happen.
    pub event: MemberEvent,
}

/// One entry of the member table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemberEntry {
    /// Identity, drawn when the device joined the array.
    pub uuid: Uuid,
    /// The slot it holds, is on its way into, or held last.
    pub slot: MemberIdx,
    /// What it does for the slot.
    pub role: Role,
    /// Generation of the update that recorded it as out; zero if it missed nothing.
    pub out_since: u64,
    /// The incarnation that recorded it as out, and the one before; nil if it missed nothing. If it
    /// comes back under any other, it lived on separately.
    pub out_incarnations: [Uuid; 2],
    /// The flush mark that was known durable on it when it went out; zero: none, or it is not out.
    /// An older copy of it lacks that one.
    pub out_flushed: u64,
    /// Usable size of the device, in bytes.
    pub bytes: u64,
    /// Serial of the device; empty if it has none.
    pub serial: Text<SERIAL_BYTES>,
    /// Its name in the stripe intent log: a random number drawn by the update that takes it into a
    /// slot, so that records of an earlier stay do not count. Zero: none yet, and none once it is
    /// out or removed.
    pub log_tag: u64,
    /// Bytes at multiples of themselves that its device writes whole or not at all, as the operator
    /// stated; 0: nothing was stated, and the device is asked.
    pub stated_atomic_bytes: u32,
}

/// The superblock update that records an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Update {
    /// Its generation.
    pub generation: u64,
    /// The incarnation that runs, and the one before.
    pub incarnations: [Uuid; 2],
}

impl MemberEntry {
    /// A member that just joined, in `role`: Active at creation, Rebuilding or Replacement later.
    pub fn new(uuid: Uuid, slot: MemberIdx, role: Role) -> Self {
        MemberEntry {
            uuid,
            slot,
            role,
            out_since: 0,
            out_incarnations: [Uuid::nil(); 2],
            out_flushed: 0,
            bytes: 0,
            serial: Text::EMPTY,
            log_tag: 0,
            stated_atomic_bytes: 0,
        }
    }

    /// The same member on a device of this usable size and serial.
    #[must_use]
    pub fn on_device(self, bytes: u64, serial: Text<SERIAL_BYTES>) -> Self {
        MemberEntry { bytes, serial, ..self }
    }

    /// The entry after `event`, recorded by `update`. A member that leaves or comes back has no log
    /// tag afterwards: the update draws a new one.
    ///
    /// # Errors
    /// If the event cannot happen to a member in this role.
    pub fn next(self, event: MemberEvent, update: Update) -> Result<MemberEntry, BadTransition> {
        let generation = update.generation;
        let (role, out_since) = match (self.role, event) {
            (Role::Active, MemberEvent::Lost) => (Role::Out, generation),
            // A re-added member still lacks what it missed the first time; a fresh one has nothing
            // to keep.
            (Role::Rebuilding, MemberEvent::Lost) if self.out_since != 0 => {
                (Role::Out, self.out_since)
            }
            (Role::Rebuilding | Role::Replacement, MemberEvent::Lost) => {
                (Role::Removed, generation)
            }
            (Role::Out, MemberEvent::Readded) => (Role::Rebuilding, self.out_since),
            (Role::Replacement, MemberEvent::SourceLost) => (Role::Rebuilding, 0),
            (Role::Rebuilding | Role::Replacement, MemberEvent::Completed) => (Role::Active, 0),
            (Role::Out, MemberEvent::Believed) => (Role::Active, 0),
            (Role::Out, MemberEvent::Dismissed) => (Role::Removed, self.out_since),
            (Role::Active | Role::Rebuilding | Role::Replacement, MemberEvent::Dismissed) => {
                (Role::Removed, generation)
            }
            (role, event) => return Err(BadTransition { role, event }),
        };
        let out_incarnations = match out_since {
            0 => [Uuid::nil(); 2],
            kept if kept == self.out_since => self.out_incarnations,
            _ => update.incarnations,
        };
        let out_flushed = if out_since == 0 { 0 } else { self.out_flushed };
        let in_service = !matches!(role, Role::Out | Role::Removed) && self.role != Role::Out;
        let log_tag = if in_service { self.log_tag } else { 0 };
        Ok(MemberEntry { role, out_since, out_incarnations, out_flushed, log_tag, ..self })
    }

    pub(crate) fn to_raw(self) -> RawMember {
        let mut out_flushed = [0; 5];
        out_flushed.copy_from_slice(&self.out_flushed.to_le_bytes()[..5]);
        RawMember {
            member_uuid: self.uuid.into_bytes(),
            slot: self.slot.0.into(),
            role: self.role.code(),
            out_flushed,
            out_since: self.out_since.into(),
            member_bytes: self.bytes.into(),
            serial: self.serial.to_bytes(),
            out_incarnation: self.out_incarnations[0].into_bytes(),
            out_previous_incarnation: self.out_incarnations[1].into_bytes(),
            log_tag: self.log_tag.into(),
            stated_atomic_bytes: self.stated_atomic_bytes.into(),
            reserved_0: [0; 4],
        }
    }

    /// The entry in `raw`, or the name of the field that makes no sense. Reserved bytes are checked
    /// unless `lenient`.
    pub(crate) fn from_raw(raw: &RawMember, lenient: bool) -> Result<Self, &'static str> {
        if !lenient && raw.reserved_0 != [0; 4] {
            return Err("members.reserved");
        }
        let mut out_flushed = [0; 8];
        out_flushed[..5].copy_from_slice(&raw.out_flushed);
        let entry = MemberEntry {
            uuid: Uuid::from_bytes(raw.member_uuid),
            slot: MemberIdx(raw.slot.get()),
            role: Role::from_code(raw.role).ok_or("members.role")?,
            out_since: raw.out_since.get(),
            out_incarnations: [raw.out_incarnation, raw.out_previous_incarnation]
                .map(Uuid::from_bytes),
            out_flushed: u64::from_le_bytes(out_flushed),
            bytes: raw.member_bytes.get(),
            serial: Text::from_bytes(raw.serial).ok_or("members.serial")?,
            log_tag: raw.log_tag.get(),
            stated_atomic_bytes: raw.stated_atomic_bytes.get(),
        };
        entry.check()?;
        Ok(entry)
    }

    /// The name of the field that makes no sense by itself, if there is one.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.uuid.is_nil() {
            return Err("members.member_uuid");
        }
        let missed = self.out_since != 0;
        if missed == self.out_incarnations[0].is_nil() {
            return Err("members.out_incarnation");
        }
        if self.out_flushed >= FLUSH_MARK_SEQUENCE_END || self.out_flushed != 0 && !missed {
            return Err("members.out_flushed");
        }
        if self.log_tag != 0 && matches!(self.role, Role::Out | Role::Removed) {
            return Err("members.log_tag");
        }
        if self.stated_atomic_bytes != 0 && !self.stated_atomic_bytes.is_power_of_two() {
            return Err("members.stated_atomic_bytes");
        }
        match self.role {
            Role::Active | Role::Replacement if missed => Err("members.out_since"),
            Role::Out if !missed => Err("members.out_since"),
            _ => Ok(()),
        }
    }
}
