//! Runs a job: begins stripes as the pace allows, awaits them in order, and tries failed ones
//! again.
//!
//! What must stay true: stripes are begun and awaited in order, so all stripes below the oldest one
//! under way are done. A job holds its share of the array only while it runs. It ends soon after
//! the array begins to stop, and leaves no stripe under way.
//!
//! A rebuild or copy does not end while stripes are lost: its device would be called good without
//! their content. The job tries them again now and then. A client that writes such a stripe whole,
//! or discards it, clears it.
//!
//! Not here: how far the job is (`job.rs`), what a job does to a stripe (`step.rs`), how fast
//! (`pace.rs`, `meter.rs`).

use super::job::{End, Job};
use super::meter::Meter;
use super::pace::Pace;
use super::table;
use crate::array::Array;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::stripe::work::{Answer, Step, StepReport, StripeWork, Work};
use ashlar_layout::Stripe;
use ashlar_ring::local::Signal;
use ashlar_ring::{Pending, within};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// Time between two tries of stripes that could not be rebuilt.
const RETRY_EVERY: Duration = Duration::from_secs(60);

/// Stripes under way, oldest first.
type UnderWay = VecDeque<(Stripe, Pending<Answer>)>;

/// Visit stripes until the job ends. All stripes it began have ended then.
pub(super) async fn drive(local: &Rc<LocalArray>, job: &Job, changed: &Signal) -> End {
    let mut under_way = UnderWay::new();
    let mut meter = Meter::new(local, 1);
    loop {
        let change = changed.changed();
        let ended = end_of(local, job);
        if ended.is_some() || table::must_wait(local.coordinator(), job) {
            while !under_way.is_empty() {
                absorb(&local.array, job, &mut under_way).await;
            }
            local.array.jobs.show(job.status());
            if let Some(end) = ended {
                return end;
            }
            // It may stand still for long: a kill meanwhile must not cost what is done.
            table::checkpoint(local, job).await;
            change.await;
            meter = Meter::new(local, 1);
            continue;
        }
        fill(local, job, meter.pace, changed, &mut under_way).await;
        if under_way.is_empty() {
            if !job.has_lost() || job.work == Work::Resync {
                return End::Complete;
            }
            wait_to_retry(local, job, change).await;
            continue;
        }
        absorb(&local.array, job, &mut under_way).await;
        // Members that answer within the call would keep clients waiting until the job ends.
        local.worker.handle.yield_now().await;
        meter.tick(local, job);
        if meter.checkpoint_is_due(local) {
            table::checkpoint(local, job).await;
        }
    }
}

/// Begin as many stripes as the pace allows.
async fn fill(
    local: &Rc<LocalArray>,
    job: &Job,
    pace: Pace,
    changed: &Signal,
    under_way: &mut UnderWay,
) {
    while under_way.len() < pace.depth {
        if !pace.pause.is_zero() {
            within(&local.worker.handle, pace.pause, changed.changed()).await;
        }
        let Some(stripe) = job.next(&local.array) else {
            let oldest = under_way.front().map(|(stripe, _)| stripe.number());
            job.note_all_begun(&local.array, oldest);
            return;
        };
        let owner = local.array.owner_of(stripe);
        let piece = StripeWork::Step(Step { stripe, work: job.work });
        under_way.push_back((stripe, local.worker.hand_to(owner, local, piece)));
    }
}

/// Wait for the oldest stripe and note what came of it.
async fn absorb(array: &Array, job: &Job, under_way: &mut UnderWay) {
    let Some((stripe, pending)) = under_way.pop_front() else { return };
    let report = match pending.await {
        Some(Answer::Stepped(report)) => report,
        // The owner has let the array go: the stripe is not done, and the job is about to end.
        _ => StepReport { is_target_gone: true, ..StepReport::default() },
    };
    let oldest = under_way.front().map(|(stripe, _)| stripe.number());
    job.note(array, stripe.number(), report, oldest);
}

/// Nothing is left but lost stripes: say so, wait, and try them again.
async fn wait_to_retry(local: &Rc<LocalArray>, job: &Job, change: impl Future<Output = ()>) {
    local.array.jobs.show(job.status());
    local.array.record(names::JOB_BLOCKED, job.result_fields());
    table::checkpoint(local, job).await;
    within(&local.worker.handle, RETRY_EVERY, change).await;
    job.retry_lost();
}

/// Whether it is to end, and how.
fn end_of(local: &LocalArray, job: &Job) -> Option<End> {
    if local.array.is_stopping() {
        return Some(End::Stopped);
    }
    if job.is_cancelled.get() {
        return Some(End::Cancelled);
    }
    (!table::has_target(local, job)).then_some(End::TargetGone)
}
