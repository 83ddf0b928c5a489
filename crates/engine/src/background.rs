//! Background work: rebuild, copy to a replacement, resync, scrub; and spares for slots that went
//! out.
//!
//! What must stay true: all of it is run by the array's coordinator and done by the stripes'
//! owners; what is to go on after a restart is in the superblock's job table; everything ends soon
//! after the array is stopping, and `stopped` waits for that.
//!
//! In reading order:
//! - here       which jobs run: start, pause, resume, cancel
//! - `changes`  what the coordinator tells, and what follows
//! - `jobs`     the jobs that run
//! - `filling`  a device joined, or the array starts: which jobs begin
//! - `sparing`  a member went out, or is slow: a spare takes its slot
//! - `spare_filling`  cells of lost members: rebuilt into distributed spares, copied back
//! - `cell_visits`  the steps of both, on all members side by side
//! - `growing`  cells of an array that grows move to new members
//! - `exposure`  how many losses stripes still survive, counted
//! - `drive`    a job at work: stripes under way, and tried again
//! - `pass`     rebuilds that go over the stripes together
//! - `job`      one job: which stripes it is through with, and how far that lets it say it is
//! - `step`     what a job does to one stripe, on the stripe's owner
//! - `compare`  the same for scrub and resync
//! - `course`   which stripes a job visits; `order` in which order
//! - `discard`  what clients gave back goes back to the members
//! - `pace`     the governor; `meter` feeds it
//! - `table`    jobs in the superblock; what happens when a job ends
//! - `board`    progress for whoever looks

pub(crate) mod board;
mod cell_visits;
mod changes;
mod compare;
mod course;
pub(crate) mod discard;
mod drive;
mod exposure;
mod filling;
mod growing;
mod job;
pub(crate) mod jobs;
mod meter;
mod order;
mod pace;
mod pass;
mod spare_filling;
mod sparing;
pub(crate) mod step;
pub(crate) mod table;

pub use board::{JobEnd, JobStatus, ScrubEnd};
pub(crate) use changes::listener;
pub(crate) use filling::{begin_copies_anew, resume, start_copy, start_rebuild};
pub(crate) use spare_filling::device_joined;
pub(crate) use sparing::{copy_to_spare, look_again};

use crate::array::Array;
use crate::coordinator::record;
use crate::coordinator::state::Coordinator;
use crate::error::Refusal;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::read_only::takes_changes;
use crate::stripe::work::Work;
use ashlar_ondisk::format::JOBS_MAX;
use ashlar_ondisk::{JobKind, JobRecord, Superblock};
use ashlar_units::{MemberIdx, to_u64};
use course::{Course, Reach};
use job::{Job, JobSpec};
use std::future::Future;
use std::rc::Rc;

/// The jobs of the array.
pub(crate) fn status(array: &Array) -> Vec<JobStatus> {
    array.jobs.status()
}

/// Wait until no job runs: the array is stopping.
pub(crate) async fn stopped(coordinator: &Coordinator) {
    let jobs = &coordinator.jobs;
    jobs.changed.notify_all();
    loop {
        let change = jobs.changed.changed();
        if jobs.tasks.get() == 0 {
            return;
        }
        change.await;
    }
}

/// Something changed that a job may wait for, or that ends it.
pub(crate) fn notify(coordinator: &Coordinator) {
    coordinator.jobs.changed.notify_all();
}

/// Begin a scrub of all written stripes.
///
/// # Errors
/// If one runs, or the members have no room to note it, or cannot.
pub(crate) async fn start_scrub(local: &Rc<LocalArray>, is_repairing: bool) -> Result<(), Refusal> {
    let array = &local.array;
    if find(local, JobKind::Scrub, None).is_ok() {
        return Err(Refusal::new(
            "scrub.running",
            format!("array '{}' is being scrubbed already; nothing was changed", array.name()),
            "wait for it, or cancel it first",
        ));
    }
    takes_changes(array)?;
    if local.coordinator().superblock().jobs.len() >= JOBS_MAX {
        return Err(Refusal::new(
            "job.table_full",
            format!("array '{}' has {JOBS_MAX} jobs under way; nothing was changed", array.name()),
            "wait until one of them is done",
        ));
    }
    let course = Course { slot: None, reach: Reach::Written };
    let job = start(local, JobSpec::new(Work::Scrub { is_repairing }, course));
    change_table(local, job.record()).await
}

/// Stop a scrub for good: the one of this number, if one is given.
///
/// # Errors
/// If none runs.
pub(crate) fn cancel_scrub(local: &Rc<LocalArray>, id: Option<u64>) -> Result<(), Refusal> {
    let job = find(local, JobKind::Scrub, None)?;
    if id.is_some_and(|id| id != job.id) {
        return Err(unknown(local, JobKind::Scrub));
    }
    job.is_cancelled.set(true);
    notify(local.coordinator());
    Ok(())
}

/// The kind and slot of the job of this number.
///
/// # Errors
/// If there is none.
pub(crate) fn of_id(array: &Array, id: u64) -> Result<(JobKind, Option<MemberIdx>), Refusal> {
    let found = status(array).into_iter().find(|job| job.id == id);
    found.map(|job| (job.kind, job.slot)).ok_or_else(|| {
        let what = format!("array '{}' has no job {id} under way", array.name());
        Refusal::new("job.unknown", what, "see `ashlar job list` for what runs")
    })
}

/// Let a job stand still, also over restarts.
///
/// # Errors
/// If there is no such job, or the members cannot note it.
pub(crate) async fn pause(
    local: &Rc<LocalArray>,
    kind: JobKind,
    slot: Option<MemberIdx>,
) -> Result<(), Refusal> {
    set_paused(local, kind, slot, true).await
}

/// Let a paused job go on.
///
/// # Errors
/// As [`pause`].
pub(crate) async fn unpause(
    local: &Rc<LocalArray>,
    kind: JobKind,
    slot: Option<MemberIdx>,
) -> Result<(), Refusal> {
    set_paused(local, kind, slot, false).await
}

async fn set_paused(
    local: &Rc<LocalArray>,
    kind: JobKind,
    slot: Option<MemberIdx>,
    is_paused: bool,
) -> Result<(), Refusal> {
    let job = find(local, kind, slot)?;
    if job.is_paused.replace(is_paused) == is_paused {
        return Ok(());
    }
    local.coordinator().exposure.stands_still();
    let name = if is_paused { names::JOB_PAUSED } else { names::JOB_RESUMED };
    local.array.record(name, job.fields());
    local.array.jobs.show(job.status());
    notify(local.coordinator());
    let set = |superblock: &mut Superblock| {
        let listed = superblock.jobs.iter_mut().filter(|job| (job.kind, job.slot) == (kind, slot));
        listed.for_each(|job| job.paused = is_paused);
    };
    record::locked_update(local, set).await.map_err(|_| not_recorded(&local.array))
}

async fn change_table(local: &Rc<LocalArray>, job: JobRecord) -> Result<(), Refusal> {
    let put = |superblock: &mut Superblock| {
        table::put(superblock, job);
    };
    record::locked_update(local, put).await.map_err(|_| not_recorded(&local.array))
}

fn find(local: &LocalArray, kind: JobKind, slot: Option<MemberIdx>) -> Result<Rc<Job>, Refusal> {
    let running = local.coordinator().jobs.running.borrow();
    let found = running.iter().find(|job| (job.kind(), job.slot()) == (kind, slot));
    found.cloned().ok_or_else(|| unknown(local, kind))
}

fn unknown(local: &LocalArray, kind: JobKind) -> Refusal {
    Refusal::new(
        "job.unknown",
        format!("array '{}' has no such {} under way", local.array.name(), kind.name()),
        "see `ashlar job list` for what runs",
    )
}

fn not_recorded(array: &Array) -> Refusal {
    Refusal::new(
        "array.failed",
        format!("the members of array '{}' could not record the change", array.name()),
        "it is in force until the array stops; look at its members with `ashlar status`",
    )
}

/// One for each owner of stripes, but one if a drive rotates: it would seek between them.
fn regions_side_by_side(local: &LocalArray) -> u64 {
    let slots = (0..local.array.slots.len()).map(MemberIdx::from_at);
    let rotates = slots.filter_map(|slot| local.device(slot)).any(|it| it.facts().is_rotational);
    if rotates { 1 } else { to_u64(local.array.owners()) }
}

/// Begin a job; it is among the running ones when this returns.
fn start(local: &Rc<LocalArray>, spec: JobSpec) -> Rc<Job> {
    let job = Rc::new(Job::new(&local.array, spec, regions_side_by_side(local)));
    local.coordinator().jobs.running.borrow_mut().push(Rc::clone(&job));
    local.array.jobs.show(job.status());
    let mut fields = job.fields();
    let status = job.status();
    fields.push(("stripes", status.total_stripes.to_string()));
    local.array.record(names::JOB_STARTED, fields);
    let own = Rc::clone(&job);
    spawn(local, async move |local: Rc<LocalArray>| run(&local, &own).await);
    job
}

async fn run(local: &Rc<LocalArray>, job: &Rc<Job>) {
    let jobs = &local.coordinator().jobs;
    let end = drive::drive(local, job, &jobs.changed).await;
    if matches!(job.work, Work::Scrub { .. }) {
        let at_s = (local.array.wall_clock_s)();
        let is_cancelled = end != job::End::Complete;
        local.array.jobs.note_scrub(ScrubEnd { at_s, is_cancelled, did: job.status() });
    }
    table::close(local, job, end).await;
    jobs.running.borrow_mut().retain(|other| !Rc::ptr_eq(other, job));
    // A job of that kind may have begun on the slot meanwhile: what it shows stays.
    let is_same = |other: &Rc<Job>| (other.kind(), other.slot()) == (job.kind(), job.slot());
    if !jobs.running.borrow().iter().any(is_same) {
        local.array.jobs.take_down(job.kind(), job.slot());
    }
}

/// Run a task that the end of the array waits for.
fn spawn<F>(local: &Rc<LocalArray>, task: impl FnOnce(Rc<LocalArray>) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let jobs = &local.coordinator().jobs;
    jobs.tasks.set(jobs.tasks.get() + 1);
    let local = Rc::clone(local);
    let handle = local.worker.handle.clone();
    handle.spawn(async move {
        task(Rc::clone(&local)).await;
        let jobs = &local.coordinator().jobs;
        jobs.tasks.set(jobs.tasks.get() - 1);
        jobs.changed.notify_all();
    });
}
