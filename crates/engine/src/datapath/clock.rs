//! The clock that times the stages of some writes.
//!
//! What must stay true: a write that is not timed pays only for the question.

use crate::local_array::LocalArray;
use crate::metrics::{STAGE_SAMPLE_EVERY, WriteStage};
use ashlar_units::Nanos;

/// Times the stages of one write, or of none: most writes only pay for asking.
pub(crate) struct StageClock {
    /// When the stage under way began; `None` if this write is not timed.
    since: Option<Nanos>,
}

impl StageClock {
    /// For the write that begins now.
    pub(crate) fn start(local: &LocalArray) -> StageClock {
        let is_timed = local.next_write().is_multiple_of(STAGE_SAMPLE_EVERY);
        StageClock { since: is_timed.then(|| local.worker.handle.now()) }
    }

    /// Times nothing.
    pub(crate) fn off() -> StageClock {
        StageClock { since: None }
    }

    /// `stage` has ended and the next one begins.
    pub(crate) fn lap(&mut self, local: &LocalArray, stage: WriteStage) {
        let Some(since) = self.since else { return };
        let now = local.worker.handle.now();
        local.stage_latencies()[stage as usize].record(now.since(since));
        self.since = Some(now);
    }
}
