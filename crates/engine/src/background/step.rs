//! What a background job does to one stripe, on the stripe's owner, under its row lock.

use crate::shard::Shard;
use ashlar_units::StripeNo;
use std::rc::Rc;

/// One stripe's worth of a job.
pub(crate) struct Step {
    pub(crate) stripe: StripeNo,
}

/// What a step did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepReport {
    /// Bytes read and written on members.
    pub(crate) bytes: u64,
}

/// Do it.
pub(crate) async fn take(_shard: &Rc<Shard>, step: Step) -> StepReport {
    let _stripe = step.stripe;
    StepReport::default()
}
