//! Where the time of a write goes: its stages, and the clock that times some writes.
//!
//! What must stay true: a write that is not timed pays for asking and for nothing else.

use super::latency::Latency;
use crate::shard::Shard;
use ashlar_units::Nanos;

/// The stages of a write that are timed, in the order in which a write comes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteStage {
    /// Waiting for the lock on its rows.
    Lock,
    /// Making its region's intent durable; nearly always it is.
    Intent,
    /// Reading what parity is computed from, with what it takes to plan that.
    Gather,
    /// Computing parity.
    Parity,
    /// The record in the stripe intent log, if there is one.
    Log,
    /// Writing data and parity, and settling members that failed.
    Store,
}

impl WriteStage {
    /// All of them, with the names that they are shown by.
    pub const NAMES: [(WriteStage, &'static str); 6] = [
        (WriteStage::Lock, "lock"),
        (WriteStage::Intent, "intent"),
        (WriteStage::Gather, "gather"),
        (WriteStage::Parity, "parity"),
        (WriteStage::Log, "log"),
        (WriteStage::Store, "store"),
    ];
}

/// Latency of each stage of a write; one write in [`STAGE_SAMPLE_EVERY`] is timed.
pub type StageLatencies = [Latency; WriteStage::NAMES.len()];

/// A timed write reads the clock seven times, about as much as 4 % of a small write on null members costs.
pub const STAGE_SAMPLE_EVERY: u64 = 16;

/// Times the stages of one write, or of none: most writes only pay for asking.
pub(crate) struct StageClock {
    /// When the stage under way began; `None` if this write is not timed.
    since: Option<Nanos>,
}

impl StageClock {
    /// For the write that begins now.
    pub(crate) fn start(shard: &Shard) -> StageClock {
        let is_timed = shard.next_write().is_multiple_of(STAGE_SAMPLE_EVERY);
        StageClock { since: is_timed.then(|| shard.worker.handle.now()) }
    }

    /// Times nothing.
    pub(crate) fn off() -> StageClock {
        StageClock { since: None }
    }

    /// `stage` has ended and the next one begins.
    pub(crate) fn lap(&mut self, shard: &Shard, stage: WriteStage) {
        let Some(since) = self.since else { return };
        let now = shard.worker.handle.now();
        shard.stage_latencies()[stage as usize].record(now.since(since));
        self.since = Some(now);
    }
}
