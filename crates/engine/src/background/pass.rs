//! Rebuilds of several members go over the stripes together: one set of reads serves all of them.
//!
//! What must stay true: each rebuild still visits its stripes in its order. Of two that are near
//! each other the one behind leads, and the other waits for it. When they are at the same stripe,
//! the leader begins each stripe for both. Nobody begins a stripe that another rebuild of the pass
//! has not begun, or ended, before. A rebuild that is far behind goes its own way: the other would
//! end late.
//!
//! Not here: the loop (`drive.rs`), the work on a stripe (`step.rs`).

use super::job::Job;
use super::order::VisitNo;
use super::table;
use crate::local_array::LocalArray;
use crate::stripe::work::Work;
use ashlar_layout::Stripe;
use ashlar_units::MemberIdx;
use std::rc::Rc;

/// Rebuilds are near each other if they are less than this part of all stripes apart, or less than
/// so many: twice what one may have under way.
const NEAR: u64 = 16;
const NEAR_MIN: u64 = 64;

/// What to begin next.
pub(super) enum Next {
    /// This stripe, for these jobs.
    Stripe(Stripe, Vec<Rc<Job>>),
    /// Nothing before another job has ended what it has under way.
    Held,
    /// Nothing in this pass.
    Nothing,
}

/// Whether another job takes steps for this one, or is about to.
pub(super) fn is_led(local: &LocalArray, job: &Job) -> bool {
    let running = local.coordinator().jobs.running.borrow();
    job.carried.get() > 0 || running.iter().any(|other| leads(local, other, job))
}

/// The jobs that this one leads.
pub(super) fn led_by(local: &LocalArray, job: &Job) -> Vec<Rc<Job>> {
    let running = local.coordinator().jobs.running.borrow();
    running.iter().filter(|other| leads(local, job, other)).cloned().collect()
}

/// Whether `leader` goes before `other`, which is near.
pub(super) fn leads(local: &LocalArray, leader: &Job, other: &Job) -> bool {
    if !may_go_together(local, leader, other) {
        return false;
    }
    let (at, other_at) = (leader.cursor(), other.cursor());
    let stripes = local.array.layouts.of(leader.epoch).geometry.stripe_count();
    let end = leader.order.end_of(stripes);
    if at == other_at {
        // The one that is at work stays so.
        let rank = |job: &Job| (job.own_steps.get() == 0, job.id);
        return at < end && rank(leader) < rank(other);
    }
    at < other_at && other_at < end && other_at.0 - at.0 < NEAR_MIN.max(stripes / NEAR)
}

/// Whether both are rebuilds that run, of members that have stripes in common.
fn may_go_together(local: &LocalArray, one: &Job, other: &Job) -> bool {
    let (Some(slot), Some(other_slot)) = (rebuilt_slot(one), rebuilt_slot(other)) else {
        return false;
    };
    let runs = |job: &Job| {
        !job.is_paused.get() && !job.is_cancelled.get() && table::has_target(local, job)
    };
    let mut sets = local.array.layouts.of(one.epoch).geometry.failure_sets();
    one.id != other.id
        && (one.epoch, one.order) == (other.epoch, other.order)
        && runs(one)
        && runs(other)
        && sets.any(|set| set.contains(&slot.at()) && set.contains(&other_slot.at()))
}

fn rebuilt_slot(job: &Job) -> Option<MemberIdx> {
    match job.work {
        Work::Rebuild { slot } => Some(slot),
        _ => None,
    }
}

/// A rebuild that waits and is not led is told to go on.
pub(super) fn tell_who_waits(local: &LocalArray) {
    let jobs = &local.coordinator().jobs;
    let goes_on = |job: &Rc<Job>| job.waits.get() && !is_led(local, job);
    if jobs.running.borrow().iter().any(goes_on) {
        jobs.changed.notify_all();
    }
}

/// The next stripe of this job or of one that it leads and has reached. All of them go on behind
/// it.
pub(super) fn next(local: &LocalArray, job: &Rc<Job>) -> Next {
    let array = &local.array;
    if is_led(local, job) {
        return Next::Held;
    }
    let alone = || match job.next(array) {
        Some(stripe) => Next::Stripe(stripe, vec![Rc::clone(job)]),
        None => Next::Nothing,
    };
    let others = led_by(local, job);
    let (false, Some(own)) = (others.is_empty(), job.peek(array)) else { return alone() };
    let reached: Vec<Rc<Job>> = others.into_iter().filter(|other| other.cursor() <= own).collect();
    let is_at_work = |other: &Rc<Job>| {
        let is_carried = other.carried.get() > 0 && other.carrier.get() != job.id;
        other.own_steps.get() > 0 || is_carried
    };
    if reached.iter().any(is_at_work) {
        return Next::Held;
    }
    let wanted = |job: &Rc<Job>| (job.peek(array), Rc::clone(job));
    let wants: Vec<(Option<VisitNo>, Rc<Job>)> =
        std::iter::once(job).chain(&reached).map(wanted).collect();
    let at = wants.iter().filter_map(|(visit, _)| *visit).min().unwrap_or(own);
    for (_, job) in wants.iter().filter(|(_, job)| job.cursor() <= at) {
        job.pass_by(at);
    }
    let want_it = wants.into_iter().filter(|(visit, _)| *visit == Some(at));
    let stripe = job.stripe(array, job.order.stripe_of(at));
    Next::Stripe(stripe, want_it.map(|(_, job)| job).collect())
}
