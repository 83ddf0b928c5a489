//! Members that answer, but much later than their peers: judged for reads and for writes, reported,
//! and read around or replaced, as the operator wishes.
//!
//! What must stay true: a slow member stays in service, and is written like any other. Reads use it
//! if a block cannot be had without it, or if the others are not known to agree with it. When most
//! members are slow, the host is, and no member is judged slow.
//!
//! - here       the operator's choice
//! - `timing`   how long commands of a member take
//! - `judge`    which members are slow, and which are well again
//! - `act`      what follows, on the coordinator
//! - `members`  what is kept of them
//! - `avoid`    the members that reads go around
//!
//! Not here: members that do not answer at all (`watch.rs`); single reads that take longer than the
//! read deadline (`datapath/read.rs`); how a spare takes over (`background/sparing.rs`).

mod act;
mod avoid;
mod judge;
mod members;
mod timing;

pub(crate) use act::watch;
pub(crate) use avoid::Avoided;
pub(crate) use members::SlowMembers;
pub(crate) use timing::Timings;

pub use judge::{CommandsKind, SlowFigures};

use std::time::Duration;

/// What follows when a member is judged slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SlowReaction {
    /// An event reports it, nothing else.
    #[default]
    Warn,
    /// Reads are served by the others while the member's stripes are whole.
    Avoid,
    /// A spare takes its slot: the member is copied, and serves until then.
    Replace,
}

impl SlowReaction {
    /// The word for configuration and events.
    pub fn word(self) -> &'static str {
        match self {
            SlowReaction::Warn => "warn",
            SlowReaction::Avoid => "avoid",
            SlowReaction::Replace => "replace",
        }
    }
}

/// When a member is slow, and what follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlowLimits {
    /// What follows.
    pub reaction: SlowReaction,
    /// A slow member's commands take more than this many times the median of its peers.
    pub times: u32,
    /// They take longer than this: below, no client cares.
    pub floor: Duration,
    /// How long that must last, and how long it must be over.
    pub after: Duration,
    /// Commands of a kind that must be timed in a sixth of that; fewer say nothing.
    pub commands_min: u64,
}

impl Default for SlowLimits {
    fn default() -> Self {
        SlowLimits {
            reaction: SlowReaction::Warn,
            times: 4,
            floor: Duration::from_millis(2),
            after: Duration::from_secs(30),
            commands_min: 32,
        }
    }
}

/// Periods that are looked at until a member is judged.
const PERIODS: u32 = 6;

impl SlowLimits {
    /// How long commands are counted before they are looked at.
    fn period(&self) -> Duration {
        self.after / PERIODS
    }
}
