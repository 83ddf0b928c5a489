//! Jobs: background work with progress. A rebuild or resync starts by itself, a scrub by hand.

use super::Done;
use crate::Call;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Scrub an array: read every written stripe and compare data with parity, or the copies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScrubStart {
    /// The array's name.
    pub array: String,
    /// Also rewrite parity that does not match.
    #[serde(default)]
    pub repair: bool,
}

impl Call for ScrubStart {
    const PATH: &'static str = "/v1/jobs/scrub";
    type Answer = Done;
}

/// Pause, resume or cancel the jobs of a kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobControl {
    /// The array's name.
    pub array: String,
    /// All jobs of this kind; a copy to a replacement counts as a rebuild.
    pub kind: JobKind,
    /// What to do with them.
    pub action: JobAction,
    /// Only the job of this number.
    #[serde(default)]
    pub id: Option<u64>,
}

impl Call for JobControl {
    const PATH: &'static str = "/v1/jobs/control";
    type Answer = Done;
}

/// What to do with a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobAction {
    /// Stop for now and keep the place.
    Pause,
    /// Go on.
    Resume,
    /// Stop for good. A rebuild cannot be cancelled.
    Cancel,
}

/// The kinds of background work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Regenerate one member onto a spare or replacement.
    Rebuild,
    /// Copy a member that still works onto its replacement.
    Replace,
    /// Make parity match data for dirty regions.
    Resync,
    /// Read all, compare.
    Scrub,
    /// Move cells of a declustered array to new members.
    Grow,
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            JobKind::Rebuild => "rebuild",
            JobKind::Replace => "replace",
            JobKind::Resync => "resync",
            JobKind::Scrub => "scrub",
            JobKind::Grow => "grow",
        })
    }
}

/// One job at one moment. A slot has one at most, and so has each kind that works for the whole
/// array.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct JobStatus {
    /// Its number: counts the jobs of an array since it started. 0: an older daemon.
    #[serde(default)]
    pub id: u64,
    /// What it does.
    pub kind: JobKind,
    /// The slot that it works for; `None` means the whole array.
    #[serde(default)]
    pub slot: Option<u16>,
    /// Stripes visited.
    pub done_stripes: u64,
    /// Stripes to visit; writes meanwhile may add some.
    pub total_stripes: u64,
    /// Bytes that it read and wrote on members.
    pub bytes: u64,
    /// The same in the last seconds, each second.
    pub bytes_per_second: u64,
    /// Time left at that speed, in seconds; `None` while it stands still.
    #[serde(default)]
    pub left_seconds: Option<u64>,
    /// Whether it was paused by hand.
    pub paused: bool,
    /// Blocks found wrong.
    #[serde(default)]
    pub mismatches: u64,
    /// Blocks put right.
    #[serde(default)]
    pub repaired: u64,
    /// What cannot be done because too much cannot be read: stripes, for a scrub blocks.
    #[serde(default)]
    pub unrepairable: u64,
}

/// A job that has ended since the array started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct JobEnd {
    /// Its number.
    pub id: u64,
    /// What it did.
    pub kind: JobKind,
    /// The slot that it worked for.
    #[serde(default)]
    pub slot: Option<u16>,
    /// Why it ended before it was done; left out if it was done.
    #[serde(default)]
    pub stopped: Option<String>,
    /// Blocks found wrong.
    pub mismatches: u64,
    /// Of these, blocks that stay as they are.
    #[serde(default)]
    pub left: u64,
    /// What could not be done because too much cannot be read.
    pub unrepairable: u64,
}

impl JobStatus {
    /// Whether it fills a device of a slot.
    pub fn is_rebuild(&self) -> bool {
        matches!(self.kind, JobKind::Rebuild | JobKind::Replace)
    }

    /// Whole percent done; 100 only when all is done.
    pub fn percent(&self) -> u64 {
        if self.total_stripes == 0 {
            return 0;
        }
        let percent = u128::from(self.done_stripes) * 100 / u128::from(self.total_stripes);
        u64::try_from(percent).map_or(100, |percent| percent.min(100))
    }
}
