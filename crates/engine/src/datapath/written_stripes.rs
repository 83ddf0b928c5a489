//! Looks through the written map of a whole volume, in turns.
//!
//! What must stay true: however large the volume is, a look takes some microseconds and then lets
//! the worker's other tasks run. The map may change between two turns: each answer is true of some
//! moment since the question.

use crate::local_array::LocalArray;
use crate::written::{Look, Stint, WORDS_PER_TURN};
use ashlar_layout::LayoutEpoch;
use ashlar_units::StripeNo;
use std::ops::Range;

/// Looks for stripes, one after the other.
pub(crate) struct Looking<'l> {
    local: &'l LocalArray,
    turn: Stint,
}

/// What is done with a stripe, or a run of them, that was found takes as long as it takes to look
/// at so many words; at least.
const WORDS_PER_FIND: u64 = 16;

impl Looking<'_> {
    pub(crate) fn new(local: &LocalArray) -> Looking<'_> {
        Looking { local, turn: Stint::new() }
    }

    /// The first stripe of `range` that is written, or that is not.
    pub(crate) async fn next(&mut self, is_written: bool, range: Range<u64>) -> Option<StripeNo> {
        let mut from = range.start;
        self.turn.spend(WORDS_PER_FIND);
        loop {
            match self.local.array.written.look_for(is_written, from..range.end, &mut self.turn) {
                Look::Found(stripe) => return Some(stripe),
                Look::Nothing => return None,
                Look::GoesOn(next) => from = next.0,
            }
            self.local.worker.handle.yield_now().await;
            self.turn = Stint::new();
        }
    }
}

/// Stripes that one turn looks at.
pub(super) const STRIPES_PER_TURN: u64 = 64 * WORDS_PER_TURN;

/// Whether a start after this process was killed would find every stripe of these written or
/// unwritten as it is now.
pub(super) async fn outlive_process(
    local: &LocalArray,
    (epoch, range): (LayoutEpoch, Range<u64>),
) -> bool {
    let mut from = range.start;
    while from < range.end {
        let end = (from + STRIPES_PER_TURN).min(range.end);
        if !local.array.written_of(epoch).outlives_process_in(from..end) {
            return false;
        }
        from = end;
        local.worker.handle.yield_now().await;
    }
    true
}
