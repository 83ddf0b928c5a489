//! The job table: background work that continues after a restart.
//!
//! What must stay true: a checkpoint never covers work that is not done. A job that restarts at its
//! checkpoint may do work twice, but never skips any.

use ashlar_units::{MemberIdx, StripeNo};
use uuid::Uuid;

use crate::format::{JOB_FLAG_PAUSED, JOB_FLAG_REPAIR, NO_SLOT, RawJob};

/// What a job does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum JobKind {
    /// Regenerates one member from the others.
    Rebuild,
    /// Copies a member that still serves onto its replacement.
    Replace,
    /// Makes parity match data again.
    Resync,
    /// Reads and compares everything.
    Scrub,
    /// Moves cells of a declustered array to new members.
    Grow,
}

impl JobKind {
    /// Every kind, in the order of the codes.
    pub const ALL: [JobKind; 5] =
        [JobKind::Rebuild, JobKind::Replace, JobKind::Resync, JobKind::Scrub, JobKind::Grow];

    /// The code on disk.
    pub fn code(self) -> u8 {
        match self {
            JobKind::Rebuild => 1,
            JobKind::Replace => 2,
            JobKind::Resync => 3,
            JobKind::Scrub => 4,
            JobKind::Grow => 5,
        }
    }

    /// The kind with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The word for people.
    pub fn name(self) -> &'static str {
        match self {
            JobKind::Rebuild => "rebuild",
            JobKind::Replace => "replace",
            JobKind::Resync => "resync",
            JobKind::Scrub => "scrub",
            JobKind::Grow => "grow",
        }
    }
}

/// The last scrub that ran to its end; for display only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ScrubRecord {
    /// Wall clock at its end, seconds since 1970. Never zero.
    pub at_s: u64,
    /// Blocks it found wrong.
    pub mismatches: u64,
}

/// One entry of the job table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct JobRecord {
    /// What it does.
    pub kind: JobKind,
    /// The member it writes to, for a rebuild or replace.
    pub member: Option<Uuid>,
    /// The slot it works for; `None` means the whole array.
    pub slot: Option<MemberIdx>,
    /// All stripes before this one are done.
    pub checkpoint: StripeNo,
    /// The operator paused it.
    pub paused: bool,
    /// It repairs what it finds (scrub).
    pub repair: bool,
    /// Blocks found wrong so far.
    pub mismatches: u64,
}

impl JobRecord {
    /// A job that has done nothing yet.
    pub fn new(kind: JobKind) -> Self {
        JobRecord {
            kind,
            member: None,
            slot: None,
            checkpoint: StripeNo(0),
            paused: false,
            repair: false,
            mismatches: 0,
        }
    }

    pub(crate) fn to_raw(self) -> RawJob {
        let paused = if self.paused { JOB_FLAG_PAUSED } else { 0 };
        let repair = if self.repair { JOB_FLAG_REPAIR } else { 0 };
        RawJob {
            kind: self.kind.code(),
            flags: paused | repair,
            slot: self.slot.map_or(NO_SLOT, |slot| slot.0).into(),
            reserved_0: [0; 4],
            member_uuid: self.member.unwrap_or(Uuid::nil()).into_bytes(),
            checkpoint_stripe: self.checkpoint.0.into(),
            mismatches: self.mismatches.into(),
            reserved_1: [0; 24],
        }
    }

    /// The job in `raw` (`None`: the entry is free), or the name of the field that makes no sense.
    /// Reserved bytes are checked unless `lenient`.
    pub(crate) fn from_raw(raw: &RawJob, lenient: bool) -> Result<Option<Self>, &'static str> {
        if !lenient && (raw.reserved_0 != [0; 4] || raw.reserved_1 != [0; 24]) {
            return Err("jobs.reserved");
        }
        if raw.kind == 0 {
            return Ok(None);
        }
        if !lenient && raw.flags & !(JOB_FLAG_PAUSED | JOB_FLAG_REPAIR) != 0 {
            return Err("jobs.flags");
        }
        let member = Uuid::from_bytes(raw.member_uuid);
        Ok(Some(JobRecord {
            kind: JobKind::from_code(raw.kind).ok_or("jobs.kind")?,
            member: (!member.is_nil()).then_some(member),
            slot: (raw.slot.get() != NO_SLOT).then(|| MemberIdx(raw.slot.get())),
            checkpoint: StripeNo(raw.checkpoint_stripe.get()),
            paused: raw.flags & JOB_FLAG_PAUSED != 0,
            repair: raw.flags & JOB_FLAG_REPAIR != 0,
            mismatches: raw.mismatches.get(),
        }))
    }
}
