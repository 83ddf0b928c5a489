//! Jobs: background work with progress. A rebuild or resync starts by itself, a scrub by hand.

use super::Done;
use crate::Call;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Read every written stripe and compare its parity.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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

/// Pause, resume or cancel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobControl {
    /// The array's name.
    pub array: String,
    /// All jobs of this kind.
    pub kind: JobKind,
    /// What to do with them.
    pub action: JobAction,
}

impl Call for JobControl {
    const PATH: &'static str = "/v1/jobs/control";
    type Answer = Done;
}

/// What to do with a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Regenerate one member onto a spare or replacement.
    Rebuild,
    /// Make parity match data for dirty regions.
    Resync,
    /// Read all, compare.
    Scrub,
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            JobKind::Rebuild => "rebuild",
            JobKind::Resync => "resync",
            JobKind::Scrub => "scrub",
        })
    }
}

/// One job at one moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobStatus {
    /// Number of the job, unique while the daemon runs.
    pub id: u64,
    /// What it does.
    pub kind: JobKind,
    /// The slot that is rebuilt.
    #[serde(default)]
    pub slot: Option<u16>,
    /// Work done, in bytes of members.
    pub done_bytes: u64,
    /// All of the work, in bytes of members.
    pub total_bytes: u64,
    /// Recent speed.
    pub bytes_per_second: u64,
    /// Time left at that speed, in seconds; `None` while it is not known.
    #[serde(default)]
    pub left_seconds: Option<u64>,
    /// Whether it was paused by hand.
    pub paused: bool,
    /// Blocks whose parity did not match (scrub).
    #[serde(default)]
    pub mismatches: u64,
    /// Blocks that were rewritten.
    #[serde(default)]
    pub repaired: u64,
}

impl JobStatus {
    /// Whole percent done; 100 only when all is done.
    pub fn percent(&self) -> u64 {
        if self.total_bytes == 0 {
            return 0;
        }
        let percent = u128::from(self.done_bytes) * 100 / u128::from(self.total_bytes);
        u64::try_from(percent).map_or(100, |percent| percent.min(100))
    }
}
