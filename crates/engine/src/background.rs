//! Background work: rebuild, copy to a replacement, resync, scrub; and spares for slots that went out.
//!
//! What must stay true: all of it is run by the array's home worker and done by the stripes' owners; what
//! is to go on after a restart is in the superblock's job table; everything ends soon after the array is
//! stopping, and `stopped` waits for that.
//!
//! In reading order:
//! - here       which jobs run: start, pause, resume, cancel; a member went out, a spare comes in
//! - `job`      one job: stripes under way, progress, checkpoints
//! - `step`     what a job does to one stripe, on the stripe's owner
//! - `compare`  the same for scrub and resync
//! - `course`   which stripes a job visits
//! - `pace`     the governor
//! - `table`    jobs in the superblock; what happens when a job ends
//! - `board`    progress for whoever looks

mod board;
mod compare;
mod course;
mod job;
mod pace;
pub(crate) mod step;
pub(crate) mod table;

pub(crate) use board::JobBoard;
pub use board::JobStatus;

use crate::error::Refusal;
use crate::event::names;
use crate::home::{self, join, record};
use crate::member::SlotState;
use crate::shard::Shard;
use crate::spare::Spare;
use ashlar_ondisk::format::JOBS_MAX;
use ashlar_ondisk::{ConsistencyPolicy, JobKind, JobRecord, MemberEntry, Role, Superblock};
use ashlar_ring::local::Signal;
use ashlar_units::{MemberIdx, StripeNo};
use course::{Course, Reach};
use job::{Job, JobSpec};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use step::Work;

/// The jobs of one array, on its home worker.
#[derive(Default)]
pub(crate) struct Jobs {
    running: RefCell<Vec<Rc<Job>>>,
    /// Tasks that hold the array's share: jobs, and whatever starts them.
    tasks: Cell<usize>,
    changed: Signal,
}

/// The jobs of the array.
pub(crate) fn status(shard: &Rc<Shard>) -> Vec<JobStatus> {
    shard.array.jobs.status()
}

/// Wait until no job runs: the array is stopping.
pub(crate) async fn stopped(shard: &Rc<Shard>) {
    let jobs = &shard.home().jobs;
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
pub(crate) fn notify(shard: &Shard) {
    shard.home().jobs.changed.notify_all();
}

/// The array starts: go on with what its superblock says was under way.
pub(crate) fn resume(shard: &Rc<Shard>) {
    let superblock = shard.home().superblock();
    // Before the others are looked at: they wait for it.
    resume_resync(shard, &superblock);
    for at in 0..shard.array.slots.len() {
        let slot = MemberIdx::from_at(at);
        match (shard.array.slot(slot).state(), superblock.newcomer(slot)) {
            (SlotState::Rebuilding, Some(entry)) => resume_rebuild(shard, &superblock, *entry),
            (SlotState::InSync, Some(entry)) if shard.replacement(slot).is_some() => {
                resume_copy(shard, &superblock, *entry);
            }
            _ => {}
        }
    }
    if let Some(record) = superblock.jobs.iter().find(|job| job.kind == JobKind::Scrub) {
        let spec = JobSpec {
            work: Work::Scrub { is_repairing: record.repair },
            member: None,
            course: Course { slot: None, reach: Reach::Written },
            checkpoint: record.checkpoint,
            is_paused: record.paused,
            mismatches: record.mismatches,
        };
        start(shard, spec);
    }
    look_again(shard);
}

fn resume_resync(shard: &Rc<Shard>, superblock: &Superblock) {
    if shard.array.intent.unsynced_count() == 0 {
        return;
    }
    let listed = superblock.jobs.iter().find(|job| job.kind == JobKind::Resync);
    let job = start(
        shard,
        JobSpec {
            work: Work::Resync,
            member: None,
            course: Course { slot: None, reach: Reach::Unsynced },
            checkpoint: StripeNo(0),
            is_paused: listed.is_some_and(|job| job.paused),
            mismatches: 0,
        },
    );
    enter(shard, job.record());
}

/// Enter a job into the table in the background.
fn enter(shard: &Rc<Shard>, job: JobRecord) {
    spawn(shard, async move |shard: Rc<Shard>| {
        let put = |superblock: &mut Superblock| {
            table::put(superblock, job);
        };
        // A job that is not in the table begins anew after a restart, nothing worse.
        let _lost = record::locked_update(&shard, put).await;
    });
}

fn resume_rebuild(shard: &Rc<Shard>, superblock: &Superblock, entry: MemberEntry) {
    let (array, slot) = (&shard.array, entry.slot);
    let listed = superblock.jobs.iter().find(|job| job.member == Some(entry.uuid));
    let is_readded = entry.out_since != 0 && superblock.policy != ConsistencyPolicy::None;
    let job = start(
        shard,
        JobSpec {
            work: Work::Rebuild { slot },
            member: Some(entry.uuid),
            course: rebuild_course(shard, slot, is_readded),
            checkpoint: array.slot(slot).rebuilt_below(),
            is_paused: listed.is_some_and(|job| job.paused),
            mismatches: 0,
        },
    );
    let job = job.record();
    // The member it was to replace did not come back: it is no copy any more.
    spawn(shard, async move |shard: Rc<Shard>| {
        let change = |superblock: &mut Superblock| {
            if superblock.newcomer(slot).is_some_and(|new| new.role == Role::Replacement) {
                record::mark_out(superblock, slot);
            }
            table::put(superblock, job);
        };
        // A job that is not in the table begins anew after a restart, nothing worse.
        let _lost = record::locked_update(&shard, change).await;
    });
}

fn rebuild_course(shard: &Shard, slot: MemberIdx, is_readded: bool) -> Course {
    let below = StripeNo(shard.array.geometry.stripe_count());
    let reach = if is_readded { stale_regions(shard, below) } else { Reach::Written };
    Course { slot: Some(slot), reach }
}

/// Below this stripe the device holds what it should, except in regions that are dirty.
fn stale_regions(shard: &Shard, below: StripeNo) -> Reach {
    Reach::Stale { below, regions: shard.array.intent.durable_regions().into_iter().collect() }
}

/// A crash may have left a write on one of the two devices only: dirty regions are copied again.
fn resume_copy(shard: &Rc<Shard>, superblock: &Superblock, entry: MemberEntry) {
    let slot = entry.slot;
    let listed = superblock.jobs.iter().find(|job| job.member == Some(entry.uuid));
    let below = listed.map_or(StripeNo(0), |job| job.checkpoint);
    shard.array.slot(slot).set_rebuilt_below(StripeNo(0));
    let job = start(
        shard,
        JobSpec {
            work: Work::Copy { slot },
            member: Some(entry.uuid),
            course: Course { slot: Some(slot), reach: stale_regions(shard, below) },
            checkpoint: StripeNo(0),
            is_paused: listed.is_some_and(|job| job.paused),
            mismatches: 0,
        },
    );
    if listed.is_none() {
        enter(shard, job.record());
    }
}

/// Fill the device that has just taken the slot. Every worker knows it and the slot is rebuilding.
pub(crate) fn start_rebuild(shard: &Rc<Shard>, entry: MemberEntry, is_readded: bool) {
    let slot = entry.slot;
    start(
        shard,
        JobSpec {
            work: Work::Rebuild { slot },
            member: Some(entry.uuid),
            course: rebuild_course(shard, slot, is_readded),
            checkpoint: StripeNo(0),
            is_paused: false,
            mismatches: 0,
        },
    );
}

/// Fill the device that is to replace the slot's. Every worker knows it.
pub(crate) fn start_copy(shard: &Rc<Shard>, entry: MemberEntry) {
    let slot = entry.slot;
    start(
        shard,
        JobSpec {
            work: Work::Copy { slot },
            member: Some(entry.uuid),
            course: Course { slot: Some(slot), reach: Reach::Written },
            checkpoint: StripeNo(0),
            is_paused: false,
            mismatches: 0,
        },
    );
}

/// The slot's device died and the one that was to replace it has taken over, with everything below
/// `copied_below` on it but for what was written since the slot was failing. Those writes have made their
/// regions dirty, and regions stay dirty while a slot is not in sync.
pub(crate) fn replacement_took_over(shard: &Rc<Shard>, slot: MemberIdx, copied_below: StripeNo) {
    notify(shard);
    spawn(shard, async move |shard: Rc<Shard>| {
        // Writes planned before the slot was rebuilding have entered their regions when this returns.
        home::everywhere(&shard, |_| {}).await;
        let Some(entry) = shard.home().superblock().newcomer(slot).copied() else { return };
        let spec = JobSpec {
            work: Work::Rebuild { slot },
            member: Some(entry.uuid),
            course: Course { slot: Some(slot), reach: stale_regions(&shard, copied_below) },
            checkpoint: StripeNo(0),
            is_paused: false,
            mismatches: 0,
        };
        start(&shard, spec);
    });
}

/// A member was put out and the others know: its job ends, and a spare takes its slot if one fits.
pub(crate) fn member_went_out(shard: &Rc<Shard>, member: MemberIdx) {
    notify(shard);
    let is_out = shard.array.slot(member).state() == SlotState::Out;
    if is_out && shard.array.geometry.parity_strips() > 0 {
        spawn(shard, async move |shard: Rc<Shard>| {
            if !take_spare(&shard, member).await {
                let fields = vec![
                    ("slot", member.to_string()),
                    ("pool", shard.array.spare_pool()),
                    ("bytes_min", join::bytes_needed(&shard.home().superblock()).to_string()),
                ];
                shard.array.record(names::SPARE_MISSING, fields);
            }
        });
    }
}

/// Spares may be there now: let them take the slots that are out.
pub(crate) fn look_again(shard: &Rc<Shard>) {
    let has_parity = shard.array.geometry.parity_strips() > 0;
    for member in shard.array.slots_out().into_iter().filter(|_| has_parity) {
        spawn(shard, async move |shard: Rc<Shard>| {
            take_spare(&shard, member).await;
        });
    }
}

/// Have the smallest spare that fits take the slot; a spare that does not work is dropped and the next one
/// tried. False if none fits.
async fn take_spare(shard: &Rc<Shard>, member: MemberIdx) -> bool {
    let array = &shard.array;
    loop {
        let is_needed = array.slot(member).state() == SlotState::Out && !array.is_stopping();
        if !is_needed {
            return true;
        }
        let bytes_min = join::bytes_needed(&shard.home().superblock());
        let Some(spare) = array.spares.take(&array.spare_pool(), bytes_min) else { return false };
        let Spare { opened, record } = spare;
        let path = opened.facts().path.clone();
        let uuid = record.member_uuid;
        let joined = join::with_uuid(shard, member, (std::sync::Arc::clone(&opened), uuid)).await;
        let Err(refusal) = joined else { return true };
        if refusal.code == join::SLOT_TAKEN {
            array.spares.add(Spare { opened, record });
            return true;
        }
        let fields = vec![("path", path), ("reason", refusal.what)];
        array.record(names::SPARE_REMOVED, fields);
    }
}

/// Begin a scrub of all written stripes.
///
/// # Errors
/// If one runs, or the members have no room to note it, or cannot.
pub(crate) async fn start_scrub(shard: &Rc<Shard>, is_repairing: bool) -> Result<(), Refusal> {
    let array = &shard.array;
    if find(shard, JobKind::Scrub, None).is_ok() {
        return Err(Refusal::new(
            "scrub.running",
            format!("array '{}' is being scrubbed already; nothing was changed", array.name()),
            "wait for it, or cancel it first",
        ));
    }
    if array.is_read_only() || array.is_stopping() {
        return Err(Refusal::new(
            "array.read_only",
            format!("array '{}' takes no changes now; nothing was changed", array.name()),
            "assemble it for writing first",
        ));
    }
    if shard.home().superblock().jobs.len() >= JOBS_MAX {
        return Err(Refusal::new(
            "job.table_full",
            format!("array '{}' has {JOBS_MAX} jobs under way; nothing was changed", array.name()),
            "wait until one of them is done",
        ));
    }
    let job = start(
        shard,
        JobSpec {
            work: Work::Scrub { is_repairing },
            member: None,
            course: Course { slot: None, reach: Reach::Written },
            checkpoint: StripeNo(0),
            is_paused: false,
            mismatches: 0,
        },
    );
    change_table(shard, job.record()).await
}

/// Stop a scrub for good.
///
/// # Errors
/// If none runs.
pub(crate) fn cancel_scrub(shard: &Rc<Shard>) -> Result<(), Refusal> {
    let job = find(shard, JobKind::Scrub, None)?;
    job.is_cancelled.set(true);
    notify(shard);
    Ok(())
}

/// Let a job stand still, also over restarts.
///
/// # Errors
/// If there is no such job, or the members cannot note it.
pub(crate) async fn pause(
    shard: &Rc<Shard>,
    kind: JobKind,
    slot: Option<MemberIdx>,
) -> Result<(), Refusal> {
    set_paused(shard, (kind, slot), true).await
}

/// Let a paused job go on.
///
/// # Errors
/// As [`pause`].
pub(crate) async fn unpause(
    shard: &Rc<Shard>,
    kind: JobKind,
    slot: Option<MemberIdx>,
) -> Result<(), Refusal> {
    set_paused(shard, (kind, slot), false).await
}

async fn set_paused(
    shard: &Rc<Shard>,
    (kind, slot): (JobKind, Option<MemberIdx>),
    is_paused: bool,
) -> Result<(), Refusal> {
    let job = find(shard, kind, slot)?;
    if job.is_paused.replace(is_paused) == is_paused {
        return Ok(());
    }
    let name = if is_paused { names::JOB_PAUSED } else { names::JOB_RESUMED };
    shard.array.record(name, job.fields());
    shard.array.jobs.show(job.status());
    notify(shard);
    let set = |superblock: &mut Superblock| {
        let listed = superblock.jobs.iter_mut().filter(|job| (job.kind, job.slot) == (kind, slot));
        listed.for_each(|job| job.paused = is_paused);
    };
    record::locked_update(shard, set).await.map_err(|_| not_recorded(shard))
}

async fn change_table(shard: &Rc<Shard>, job: JobRecord) -> Result<(), Refusal> {
    let put = |superblock: &mut Superblock| {
        table::put(superblock, job);
    };
    record::locked_update(shard, put).await.map_err(|_| not_recorded(shard))
}

fn find(shard: &Shard, kind: JobKind, slot: Option<MemberIdx>) -> Result<Rc<Job>, Refusal> {
    let running = shard.home().jobs.running.borrow();
    let found = running.iter().find(|job| (job.kind(), job.slot()) == (kind, slot));
    found.cloned().ok_or_else(|| {
        Refusal::new(
            "job.unknown",
            format!("array '{}' has no such {} under way", shard.array.name(), kind.name()),
            "see `ashlar status` for what runs",
        )
    })
}

fn not_recorded(shard: &Shard) -> Refusal {
    Refusal::new(
        "array.failed",
        format!("the members of array '{}' could not record the change", shard.array.name()),
        "it is in force until the array stops; look at its members with `ashlar status`",
    )
}

/// Begin a job; it is among the running ones when this returns.
fn start(shard: &Rc<Shard>, spec: JobSpec) -> Rc<Job> {
    let job = Rc::new(Job::new(shard, spec));
    shard.home().jobs.running.borrow_mut().push(Rc::clone(&job));
    shard.array.jobs.show(job.status());
    let mut fields = job.fields();
    let status = job.status();
    fields.push(("stripes", status.total_stripes.to_string()));
    shard.array.record(names::JOB_STARTED, fields);
    let own = Rc::clone(&job);
    spawn(shard, async move |shard: Rc<Shard>| run(&shard, &own).await);
    job
}

async fn run(shard: &Rc<Shard>, job: &Rc<Job>) {
    let jobs = &shard.home().jobs;
    let end = job::drive(shard, job, &jobs.changed).await;
    table::close(shard, job, end).await;
    jobs.running.borrow_mut().retain(|other| !Rc::ptr_eq(other, job));
    // A job of that kind may have begun on the slot meanwhile: what it shows stays.
    let is_same = |other: &Rc<Job>| (other.kind(), other.slot()) == (job.kind(), job.slot());
    if !jobs.running.borrow().iter().any(is_same) {
        shard.array.jobs.take_down(job.kind(), job.slot());
    }
}

/// Run a task that the end of the array waits for.
fn spawn<F>(shard: &Rc<Shard>, task: impl FnOnce(Rc<Shard>) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let jobs = &shard.home().jobs;
    jobs.tasks.set(jobs.tasks.get() + 1);
    let shard = Rc::clone(shard);
    let handle = shard.worker.handle.clone();
    handle.spawn(async move {
        task(Rc::clone(&shard)).await;
        let jobs = &shard.home().jobs;
        jobs.tasks.set(jobs.tasks.get() - 1);
        jobs.changed.notify_all();
    });
}
