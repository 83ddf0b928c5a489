//! Work on one stripe as its owner gets it, and what came of it. Plain data.
//!
//! What must stay true: one piece of work is for one stripe, or for neighbouring stripes of one
//! owner. Not here: who does it (`stripe_tasks.rs`).

use ashlar_iobuf::{Buf, BufMut};
use ashlar_layout::{Stripe, StripeId};
use ashlar_units::{Extent, MemberIdx, StripSet, StripeNo};
use ashlar_volume::VolumeErrorKind;

/// Work on one stripe, done by its owner.
pub(crate) enum StripeWork {
    /// Store this.
    Write(StripeWrite),
    /// Make this part read as zeros.
    Zero(StripeZero),
    /// Read this although it cannot be read straight.
    Reconstruct(StripeRead),
    /// One step of a background job.
    Step(Step),
    /// The step of several rebuilds at once.
    RebuildEach(RebuildEach),
    /// No record of the log that is there now is to count any more. Of the worker, not of a stripe.
    Settle,
    /// Whoever holds rows now, or waits for some, is done with them. Of the worker as well.
    PassBy,
    /// Tell the members that the blocks of these stripes are not needed.
    GiveBack(Run),
}

/// What came of a piece.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Done.
    Done,
    /// The data of a read.
    Data(BufMut),
    /// What a job's step did.
    Stepped(StepReport),
    /// What a step did for each of several rebuilds.
    SteppedEach(Vec<StepReport>),
    /// Not done.
    Failed(VolumeErrorKind),
}

/// Bytes to store in one stripe. `extent` is within the stripe's data and as long as `bytes`.
pub(crate) struct StripeWrite {
    pub(crate) stripe: Stripe,
    pub(crate) extent: Extent,
    pub(crate) bytes: Buf,
}

/// Part of a stripe that is to read as zeros. `extent` is within the stripe's data.
pub(crate) struct StripeZero {
    pub(crate) stripe: Stripe,
    pub(crate) extent: Extent,
}

/// Part of one stripe's data to be read. `extent` is bytes within that data, as long as `buffer`.
pub(crate) struct StripeRead {
    pub(crate) stripe: Stripe,
    pub(crate) extent: Extent,
    pub(crate) buffer: BufMut,
    /// Strips that were tried and could not be read.
    pub(crate) missing: Missing,
}

/// Strips that could not be read, by reason.
#[derive(Clone, Copy, Default)]
pub(crate) struct Missing {
    /// The medium does not give the block back, or not what was written: it can be written anew.
    pub(crate) broken: StripSet,
    /// The member is gone, or failed in another way.
    pub(crate) failed: StripSet,
    /// The member did not answer in time.
    pub(crate) slow: StripSet,
}

impl Missing {
    /// Every one of them.
    pub(crate) fn all(self) -> StripSet {
        self.broken.or(self.failed).or(self.slow)
    }

    /// Together with others.
    pub(crate) fn and(self, other: Missing) -> Missing {
        Missing {
            broken: self.broken.or(other.broken),
            failed: self.failed.or(other.failed),
            slow: self.slow.or(other.slow),
        }
    }
}

/// One stripe's worth of a job.
pub(crate) struct Step {
    pub(crate) stripe: Stripe,
    pub(crate) work: Work,
}

/// One stripe's worth of several rebuilds: these strips are to be regenerated.
pub(crate) struct RebuildEach {
    pub(crate) stripe: Stripe,
    pub(crate) strips: StripSet,
}

/// What is to be done to the stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Regenerate the strip on this slot.
    Rebuild { slot: MemberIdx },
    /// Copy the strip on this slot to the slot's replacement.
    Copy { slot: MemberIdx },
    /// Make parity what the data says.
    Resync,
    /// Read and compare everything.
    Scrub { is_repairing: bool },
    /// Regenerate these strips, or copy them back, where the spare table says.
    FillCells { strips: StripSet },
    /// Copy these strips to the new members that a growth moves them to.
    MoveCells { strips: StripSet },
}

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct StepReport {
    /// Bytes read and written on members.
    pub(crate) bytes: u64,
    /// Blocks found wrong.
    pub(crate) mismatches: u64,
    /// Blocks put right.
    pub(crate) repaired: u64,
    /// Rows of blocks found wrong that stay as they are.
    pub(crate) left: u64,
    /// Blocks that could not be done: too much cannot be read.
    pub(crate) lost_blocks: u64,
    /// The device the job writes to is not there any more, or failed: the stripe is not done.
    pub(crate) is_target_gone: bool,
}

/// Neighbouring stripes of one owner.
pub(crate) struct Run {
    pub(crate) first: StripeId,
    /// Of the same geometry.
    pub(crate) end: StripeNo,
}
