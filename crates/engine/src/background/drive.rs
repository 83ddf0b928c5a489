//! Runs a job: begins stripes as the pace allows, awaits them in order, and tries failed ones
//! again.
//!
//! What must stay true: stripes are begun and awaited in order, so all stripes below the oldest one
//! under way are done. A job holds its share of the array only while it runs. It ends soon after
//! the array begins to stop, and leaves no stripe under way.
//!
//! A rebuild or copy does not end while stripes are lost: its device would be called good without
//! their content. Nor does a resync: their parity would be trusted. The job tries them again now
//! and then. A client that writes what is lost of such a stripe, or discards it, clears it.
//!
//! A stripe may be begun for several rebuilds at once (`pass.rs`): the others wait meanwhile.
//!
//! Not here: how far the job is (`job.rs`), what a job does to a stripe (`step.rs`), how fast
//! (`pace.rs`, `meter.rs`).

use super::job::{End, Job};
use super::meter::Meter;
use super::pace::Pace;
use super::pass::{self, Next};
use super::table;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::stripe::work::{Answer, RebuildEach, Step, StepReport, StripeWork, Work};
use ashlar_layout::Stripe;
use ashlar_ring::local::Signal;
use ashlar_ring::{Pending, within};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// Time before lost stripes are tried again: twice as long each time. Each try may be one more read
/// error of a member, and so many put it out: a job must not wear out the member it waits for.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_EVERY: Duration = Duration::from_secs(24 * 3600);

/// Stripes under way, oldest first.
type UnderWay = VecDeque<Begun>;

/// A stripe under way, and the jobs that it is for.
struct Begun {
    stripe: Stripe,
    jobs: Vec<Rc<Job>>,
    pending: Pending<Answer>,
}

/// What came of beginning stripes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filled {
    /// As many as the pace allows are under way.
    Full,
    /// Another job has to end what it has under way.
    Held,
    /// None is left to begin in this pass.
    AllBegun,
}

/// Visit stripes until the job ends. All stripes it began have ended then.
pub(super) async fn drive(local: &Rc<LocalArray>, job: &Rc<Job>, changed: &Signal) -> End {
    let mut under_way = UnderWay::new();
    let mut meter = Meter::new(local, job, 1);
    let mut retry = Retry::default();
    loop {
        let change = changed.changed();
        let ended = end_of(local, job);
        let is_led = pass::is_led(local, job);
        if ended.is_some() || is_led || table::must_wait(local.coordinator(), job) {
            while !under_way.is_empty() {
                absorb(local, job, &mut under_way).await;
            }
            local.array.jobs.show(job.status());
            if let Some(end) = ended.filter(|_| job.carried.get() == 0) {
                return end;
            }
            // It may stand still for long: a kill meanwhile must not cost what is done. Who leads
            // records it with its own.
            if !is_led {
                table::checkpoint(local, job).await;
            }
            // What led it may have gone while it drained.
            if !is_led || pass::is_led(local, job) {
                wait(job, is_led, change).await;
            }
            meter = Meter::new(local, job, 1);
            continue;
        }
        let filled = fill(local, job, meter.pace, changed, &mut under_way).await;
        if under_way.is_empty() {
            match filled {
                Filled::Held | Filled::Full => wait(job, true, change).await,
                Filled::AllBegun if !job.has_lost() || is_in_vain(local, job) => {
                    return End::Complete;
                }
                Filled::AllBegun => wait_to_retry(local, job, &mut retry, change).await,
            }
            continue;
        }
        absorb(local, job, &mut under_way).await;
        // Members that answer within the call would keep clients waiting until the job ends.
        local.worker.handle.yield_now().await;
        meter.tick(local, job);
        if meter.checkpoint_is_due(local) {
            table::checkpoint(local, job).await;
            for other in pass::led_by(local, job) {
                table::checkpoint(local, &other).await;
            }
        }
    }
}

/// Wait for a change; for one in its pass, too, if that is what it needs.
async fn wait(job: &Job, is_in_pass: bool, change: impl Future<Output = ()>) {
    job.waits.set(is_in_pass);
    change.await;
    job.waits.set(false);
}

/// Begin as many stripes as the pace allows.
async fn fill(
    local: &Rc<LocalArray>,
    job: &Rc<Job>,
    pace: Pace,
    changed: &Signal,
    under_way: &mut UnderWay,
) -> Filled {
    while under_way.len() < pace.depth {
        if !pace.pause.is_zero() {
            within(&local.worker.handle, pace.pause, changed.changed()).await;
        }
        match pass::next(local, job) {
            Next::Stripe(stripe, jobs) => begin(local, job, (stripe, jobs), under_way),
            Next::Held => return Filled::Held,
            Next::Nothing => {
                let oldest = under_way.front().map(|begun| begun.stripe.number());
                job.note_all_begun(&local.array, oldest);
                pass::tell_who_waits(local);
                return Filled::AllBegun;
            }
        }
    }
    Filled::Full
}

/// Have the owner of the stripe do what these jobs want there.
fn begin(
    local: &Rc<LocalArray>,
    job: &Job,
    (stripe, mut jobs): (Stripe, Vec<Rc<Job>>),
    under_way: &mut UnderWay,
) {
    let strip_of = |job: &Job| job.slot().and_then(|slot| local.array.strip_on(stripe, slot));
    let piece = match &jobs[..] {
        [one] => StripeWork::Step(Step { stripe, work: one.work }),
        several => {
            let strips = several.iter().filter_map(|job| strip_of(job)).collect();
            StripeWork::RebuildEach(RebuildEach { stripe, strips })
        }
    };
    // As the reports will be.
    jobs.sort_by_key(|job| strip_of(job));
    for other in jobs.iter().filter(|other| other.id != job.id) {
        other.carried.set(other.carried.get() + 1);
        other.carrier.set(job.id);
    }
    let owner = local.array.owner_of(stripe);
    let pending = local.worker.hand_to(owner, local, piece);
    under_way.push_back(Begun { stripe, jobs, pending });
    job.own_steps.set(under_way.len());
}

/// Wait for the oldest stripe and note what came of it.
async fn absorb(local: &Rc<LocalArray>, job: &Job, under_way: &mut UnderWay) {
    let Some(Begun { stripe, jobs, pending }) = under_way.pop_front() else { return };
    let mut reports = match pending.await {
        Some(Answer::Stepped(report)) => vec![report],
        Some(Answer::SteppedEach(reports)) => reports,
        // The owner has let the array go: the stripe is not done, and the jobs are about to end.
        _ => Vec::new(),
    };
    let gone = StepReport { is_target_gone: true, ..StepReport::default() };
    reports.resize(jobs.len(), gone);
    let oldest = under_way.front().map(|begun| begun.stripe.number());
    for (job, report) in jobs.iter().zip(reports) {
        job.note(&local.array, stripe.number(), report, oldest);
    }
    job.own_steps.set(under_way.len());
    for other in jobs.iter().filter(|other| other.id != job.id) {
        other.carried.set(other.carried.get() - 1);
    }
    pass::tell_who_waits(local);
}

/// How long to wait before lost stripes are tried again.
struct Retry {
    after: Duration,
    /// Stripes that were lost at the last try.
    lost: u64,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { after: RETRY_FIRST, lost: 0 }
    }
}

impl Retry {
    /// The time for these lost stripes, and whether they are others than last time.
    fn next(&mut self, lost: u64) -> (Duration, bool) {
        let is_news = lost != self.lost;
        self.after = if is_news { RETRY_FIRST } else { (2 * self.after).min(RETRY_EVERY) };
        self.lost = lost;
        (self.after, is_news)
    }
}

/// Whether only a start can go on with the stripes that a resync had to leave.
fn is_in_vain(local: &LocalArray, job: &Job) -> bool {
    job.work == Work::Resync && local.array.has_failed()
}

/// Nothing is left but lost stripes: say so, wait, and try them again.
async fn wait_to_retry(
    local: &Rc<LocalArray>,
    job: &Job,
    retry: &mut Retry,
    change: impl Future<Output = ()>,
) {
    let status = job.status();
    let (after, is_news) = retry.next(status.unrepairable);
    local.array.jobs.show(status);
    if is_news {
        local.array.record(names::JOB_BLOCKED, job.result_fields());
    }
    table::checkpoint(local, job).await;
    if !job.is_blocked.replace(true) {
        // Jobs behind a resync go on without these stripes.
        local.coordinator().jobs.changed.notify_all();
    }
    within(&local.worker.handle, after, change).await;
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
