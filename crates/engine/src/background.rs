//! Background work: rebuild, copy to a replacement, resync, scrub.
//!
//! - `step`   what a job does to one stripe, on the stripe's owner

pub(crate) mod step;

use crate::shard::Shard;
use ashlar_units::MemberIdx;
use std::rc::Rc;

/// The jobs of one array, on its home worker.
#[derive(Default)]
pub(crate) struct Jobs {}

/// A member was put out and the others know: see whether a spare can take its slot.
pub(crate) fn member_went_out(_shard: &Rc<Shard>, _member: MemberIdx) {}

/// The array starts: go on with what its superblock says was under way.
pub(crate) fn resume(_shard: &Rc<Shard>) {}

/// Wait until no job runs: the array is stopping.
pub(crate) async fn stopped(_shard: &Rc<Shard>) {}

/// How a job is doing.
#[derive(Clone, Debug)]
pub struct JobStatus {}

/// The jobs of the array.
pub(crate) fn status(_shard: &Rc<Shard>) -> Vec<JobStatus> {
    Vec::new()
}
