//! One job: its purpose, the stripes that are done, and the checkpoint that follows from them.
//!
//! What must stay true: a checkpoint covers only stripes that are done and flushed. A stripe that
//! could not be done holds the checkpoint where it is. Every stripe below `done_below` was visited,
//! because `drive.rs` begins and awaits stripes in order.
//!
//! Not here: the loop (`drive.rs`), what a job does to a stripe (`step.rs`), what the superblocks
//! say (`table.rs`).

use super::board::JobStatus;
use super::course::{Course, Maps};
use super::order::{VisitNo, VisitOrder};
use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::event::names;
use crate::intent::{IntentMap, RegionNo};
use crate::slot::DeviceEpoch;
use crate::stripe::work::{StepReport, Work};
use ashlar_layout::{LayoutEpoch, Stripe, StripeId};
use ashlar_ondisk::{JobKind, JobRecord};
use ashlar_units::{MemberIdx, StripeNo, to_u64};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use uuid::Uuid;
/// Lost stripes that a status names.
const LOST_SHOWN: usize = 64;

/// What a job is started with.
pub(super) struct JobSpec {
    pub(super) work: Work,
    /// The member it writes to.
    pub(super) member: Option<Uuid>,
    pub(super) course: Course,
    /// Stripes of its geometry below are done.
    pub(super) checkpoint: StripeId,
    pub(super) is_paused: bool,
    pub(super) mismatches: u64,
}

impl JobSpec {
    /// A job that has done nothing yet and writes to no member in particular.
    pub(super) fn new(work: Work, course: Course) -> JobSpec {
        JobSpec {
            work,
            member: None,
            course,
            checkpoint: StripeId::default(),
            is_paused: false,
            mismatches: 0,
        }
    }
}

/// A job that runs.
pub(super) struct Job {
    pub(super) id: u64,
    pub(super) work: Work,
    pub(super) member: Option<Uuid>,
    /// Of the device it writes to.
    pub(super) device_epoch: Option<DeviceEpoch>,
    course: Course,
    pub(super) order: VisitOrder,
    /// It does not visit what is below: the stripes that were done when it was started.
    checkpoint: StripeNo,
    /// The geometry that it goes over: its numbers are numbers of this one. The table on the
    /// members says none, since an array has one there; a job of an array with two needs a field
    /// for it.
    pub(super) epoch: LayoutEpoch,
    /// Stripes that its own task has under way.
    pub(super) own_steps: Cell<usize>,
    /// Stripes that the task of another job has under way for it, and which job that is.
    pub(super) carried: Cell<usize>,
    pub(super) carrier: Cell<u64>,
    /// It waits for another rebuild of its pass.
    pub(super) waits: Cell<bool>,
    pub(super) is_paused: Cell<bool>,
    /// It was everywhere, and left stripes that it could not do.
    pub(super) is_blocked: Cell<bool>,
    pub(super) is_cancelled: Cell<bool>,
    pub(super) progress: RefCell<Progress>,
}

/// How a job ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// All stripes are done.
    Complete,
    /// The operator does not want it any more.
    Cancelled,
    /// Its device went away.
    TargetGone,
    /// The array stops: it goes on at the next start.
    Stopped,
}

/// How far a job is.
#[derive(Default)]
pub(super) struct Progress {
    /// The next visit.
    cursor: VisitNo,
    /// Everything below was visited.
    done_below: StripeNo,
    /// Stripes that were visited and not done.
    lost: BTreeSet<StripeNo>,
    /// Lost stripes to be tried again.
    retries: VecDeque<StripeNo>,
    /// Mismatches in stripes that were visited and that `done_below` does not cover: after a
    /// restart they are found again.
    mismatches_ahead: BTreeMap<StripeNo, u64>,
    pub(super) done_stripes: u64,
    total_stripes: u64,
    /// Stripes that earlier starts did, and stripes that are behind those that are looked at now.
    before_and_behind: (u64, u64),
    pub(super) report: StepReport,
    pub(super) bytes_per_s: u64,
    /// For a resync: the first region that is not settled yet.
    region: RegionNo,
}

impl Job {
    /// It visits so many regions side by side.
    pub(super) fn new(array: &Array, spec: JobSpec, regions: u64) -> Job {
        let device_epoch = match spec.work {
            Work::Rebuild { slot } => Some(array.slot(slot).device_epoch()),
            Work::Copy { slot } => Some(array.slot(slot).replacement_device_epoch()),
            Work::Resync | Work::Scrub { .. } | Work::FillCells { .. } | Work::MoveCells { .. } => {
                None
            }
        };
        if spec.work == Work::Resync {
            array.intent.resync_begins();
        }
        // What it found before the last stop stayed, unless it was repaired on the spot.
        let is_repaired =
            spec.work == Work::Scrub { is_repairing: true } || array.checksums.is_some();
        let left = if is_repaired { 0 } else { spec.mismatches };
        let report = StepReport { mismatches: spec.mismatches, left, ..StepReport::default() };
        let (epoch, checkpoint) = (spec.checkpoint.epoch(), spec.checkpoint.number());
        let order = VisitOrder::new(regions, array.intent.stripes_per_region());
        let progress = Progress {
            cursor: order.window_of(checkpoint),
            done_below: checkpoint,
            total_stripes: spec.course.count(maps(array, epoch), checkpoint),
            report,
            ..Progress::default()
        };
        Job {
            id: array.jobs.draw_id(),
            work: spec.work,
            member: spec.member,
            device_epoch,
            course: spec.course,
            order,
            checkpoint,
            epoch,
            own_steps: Cell::new(0),
            carried: Cell::new(0),
            carrier: Cell::new(0),
            waits: Cell::new(false),
            is_paused: Cell::new(spec.is_paused),
            is_blocked: Cell::new(false),
            is_cancelled: Cell::new(false),
            progress: RefCell::new(progress),
        }
    }

    pub(super) fn kind(&self) -> JobKind {
        match self.work {
            Work::Rebuild { .. } | Work::FillCells { .. } => JobKind::Rebuild,
            Work::Copy { .. } => JobKind::Replace,
            Work::MoveCells { .. } => JobKind::Grow,
            Work::Resync => JobKind::Resync,
            Work::Scrub { .. } => JobKind::Scrub,
        }
    }

    pub(super) fn slot(&self) -> Option<MemberIdx> {
        match self.work {
            Work::Rebuild { slot } | Work::Copy { slot } => Some(slot),
            Work::Resync | Work::Scrub { .. } | Work::FillCells { .. } | Work::MoveCells { .. } => {
                None
            }
        }
    }

    /// Of a job that goes from cell to cell: so many stripes more were visited, and so many are
    /// left of what it knows of.
    pub(super) fn note_cells(&self, done: u64, left: u64, report: StepReport) {
        let mut progress = self.progress.borrow_mut();
        progress.done_stripes += done;
        progress.total_stripes = progress.done_stripes + left + progress.before_and_behind.1;
        progress.report.add(report);
    }

    /// Of a job that goes from cell to cell: so many stripes were done by earlier starts, and so
    /// many are to be done by this one.
    pub(super) fn set_before_and_behind(&self, before: u64, behind: u64) {
        let mut progress = self.progress.borrow_mut();
        progress.before_and_behind = (before, behind);
        progress.total_stripes = progress.done_stripes + behind;
    }

    /// So many stripes are behind those that it looks at next.
    pub(super) fn set_behind(&self, behind: u64) {
        self.progress.borrow_mut().before_and_behind.1 = behind;
    }

    /// As the job table is to say. Everything below the checkpoint is done, but is it flushed?
    pub(super) fn record(&self) -> JobRecord {
        let progress = self.progress.borrow();
        JobRecord {
            member: self.member,
            slot: self.slot(),
            checkpoint: progress.checkpoint_as_told(self.order),
            paused: self.is_paused.get(),
            repair: self.work == Work::Scrub { is_repairing: true },
            mismatches: progress.report.mismatches
                - progress.mismatches_ahead.values().sum::<u64>(),
            ..JobRecord::new(self.kind())
        }
    }

    pub(super) fn status(&self) -> JobStatus {
        let progress = self.progress.borrow();
        let unrepairable = match self.work {
            Work::Scrub { .. } => progress.report.lost_blocks,
            _ => to_u64(progress.lost.len()),
        };
        let (before, _) = progress.before_and_behind;
        JobStatus {
            id: self.id,
            kind: self.kind(),
            slot: self.slot(),
            done_stripes: before + progress.done_stripes.saturating_sub(self.waits_for(&progress)),
            total_stripes: before + progress.total_stripes.max(progress.done_stripes),
            bytes: progress.report.bytes,
            bytes_per_s: progress.bytes_per_s,
            mismatches: progress.report.mismatches,
            repaired: progress.report.repaired,
            left: progress.report.left,
            unrepairable,
            lost_stripes: progress.lost.iter().take(LOST_SHOWN).copied().collect(),
            is_paused: self.is_paused.get(),
            eta: progress.eta().filter(|_| self.waits_for(&progress) == 0),
        }
    }

    /// Stripes that were visited and are to be visited again.
    fn waits_for(&self, progress: &Progress) -> u64 {
        match self.work {
            Work::Scrub { .. } => 0,
            _ => to_u64(progress.lost.len()),
        }
    }

    /// The fields of an event about it.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![("job", self.kind().name().to_owned()), ("id", self.id.to_string())];
        fields.extend(self.slot().map(|slot| ("slot", slot.to_string())));
        fields
    }

    /// Fields that tell what came of it.
    pub(super) fn result_fields(&self) -> Vec<(&'static str, String)> {
        let status = self.status();
        let mut fields = self.fields();
        fields.push(("stripes", status.done_stripes.to_string()));
        fields.push(("bytes", status.bytes.to_string()));
        fields.push(("mismatches", status.mismatches.to_string()));
        fields.push(("repaired", status.repaired.to_string()));
        fields.push(("unrepairable", status.unrepairable.to_string()));
        fields
    }

    /// Whether stripes are left that could not be done.
    pub(super) fn has_lost(&self) -> bool {
        !self.progress.borrow().lost.is_empty()
    }

    /// The next stripe to begin, if there is one left in this pass.
    pub(super) fn next(&self, array: &Array) -> Option<Stripe> {
        Some(self.stripe(array, self.next_number(array)?))
    }

    /// A stripe of the geometry that it goes over.
    pub(super) fn stripe(&self, array: &Array, number: StripeNo) -> Stripe {
        array.layouts.stripe(StripeId::new(self.epoch, number))
    }

    /// Its next visit, if it is not through.
    pub(super) fn cursor(&self) -> VisitNo {
        self.progress.borrow().cursor
    }

    /// The next visit of its course, if there is one left.
    pub(super) fn peek(&self, array: &Array) -> Option<VisitNo> {
        self.course.next(maps(array, self.epoch), self.order, self.cursor(), self.checkpoint)
    }

    /// The stripe of the visit is begun, or none of its own.
    pub(super) fn pass_by(&self, visit: VisitNo) {
        self.progress.borrow_mut().cursor = VisitNo(visit.0 + 1);
    }

    fn next_number(&self, array: &Array) -> Option<StripeNo> {
        let next = self.peek(array);
        let mut progress = self.progress.borrow_mut();
        let Some(visit) = next else {
            let stripe_count = array.layouts.of(self.epoch).geometry.stripe_count();
            progress.cursor = self.order.end_of(stripe_count);
            return progress.retries.pop_front();
        };
        progress.cursor = VisitNo(visit.0 + 1);
        Some(self.order.stripe_of(visit))
    }

    /// A stripe was visited; `next` is the oldest one still under way.
    pub(super) fn note(
        &self,
        array: &Array,
        stripe: StripeNo,
        report: StepReport,
        next: Option<StripeNo>,
    ) {
        let mut progress = self.progress.borrow_mut();
        let is_first_visit = stripe >= progress.done_below;
        let is_done = !report.is_target_gone && report.lost_blocks == 0;
        if is_first_visit {
            progress.done_stripes += 1;
        }
        if is_done {
            let was_lost = progress.lost.remove(&stripe);
            if was_lost && self.work == Work::Resync {
                settle_again(&array.intent, &progress, stripe);
            }
        } else if !matches!(self.work, Work::Scrub { .. }) {
            progress.lost.insert(stripe);
        }
        progress.report.add(report);
        if report.mismatches > 0 && is_first_visit {
            progress.mismatches_ahead.insert(stripe, report.mismatches);
        }
        if !is_done && is_first_visit && !report.is_target_gone {
            self.say_lost(array, stripe, report.lost_blocks);
        }
        self.advance(array, &mut progress, next);
    }

    /// None is left to begin in this pass; `oldest` is the oldest one still under way.
    pub(super) fn note_all_begun(&self, array: &Array, oldest: Option<StripeNo>) {
        self.advance(array, &mut self.progress.borrow_mut(), oldest);
    }

    /// The stripes that could not be done are to be tried again.
    pub(super) fn retry_lost(&self) {
        let mut progress = self.progress.borrow_mut();
        progress.retries = progress.lost.iter().copied().collect();
    }

    /// Everything below the oldest stripe under way, or else the cursor, was visited.
    fn advance(&self, array: &Array, progress: &mut Progress, next: Option<StripeNo>) {
        let next = next.map_or(progress.cursor, |stripe| self.order.visit_of(stripe));
        let visited = self.order.visited_below(next.min(progress.cursor));
        let stripe_count = array.layouts.of(self.epoch).geometry.stripe_count();
        progress.done_below = progress.done_below.max(visited.min(StripeNo(stripe_count)));
        progress.mismatches_ahead = progress.mismatches_ahead.split_off(&progress.done_below);
        if let Some(slot) = self.slot().filter(|slot| self.speaks_for(array, *slot)) {
            array.slot(slot).set_lost(&progress.lost);
            let below = StripeId::new(self.epoch, progress.done_below);
            array.slot(slot).set_rebuilt_below(below);
        }
        if self.work == Work::Resync {
            settle_regions(maps(array, self.epoch), progress);
        }
    }

    /// Whether the rebuilt point of the slot is about the device that this job fills: stripes that
    /// were under way when that one went may end when its successor is there.
    fn speaks_for(&self, array: &Array, slot: MemberIdx) -> bool {
        let slot = array.slot(slot);
        let is_current = self.device_epoch == Some(slot.device_epoch());
        match self.work {
            Work::Copy { .. } => {
                self.device_epoch == Some(slot.replacement_device_epoch()) && !is_current
            }
            _ => is_current,
        }
    }

    fn say_lost(&self, array: &Array, stripe: StripeNo, blocks: u64) {
        let mut fields = self.fields();
        fields.push(("stripe", stripe.to_string()));
        fields.push(("blocks", blocks.to_string()));
        array.record(names::BLOCK_LOST, fields);
    }
}

impl Progress {
    fn checkpoint_as_told(&self, order: VisitOrder) -> StripeNo {
        match sings(Canary::CheckpointAhead) {
            true => order.visited_below(self.cursor),
            false => self.checkpoint(),
        }
    }

    fn has_lost_in(&self, intent: &IntentMap, region: RegionNo) -> bool {
        let stripes = intent.stripes_of(region);
        self.lost.range(StripeNo(stripes.start)..StripeNo(stripes.end)).next().is_some()
    }

    fn checkpoint(&self) -> StripeNo {
        self.lost.first().map_or(self.done_below, |lost| self.done_below.min(*lost))
    }

    fn eta(&self) -> Option<Duration> {
        let left = u128::from(self.total_stripes.saturating_sub(self.done_stripes));
        let bytes_each = u128::from(self.report.bytes / self.done_stripes.max(1));
        let seconds = (left * bytes_each).checked_div(u128::from(self.bytes_per_s))?;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX)))
    }
}

impl StepReport {
    fn add(&mut self, other: StepReport) {
        self.bytes += other.bytes;
        self.mismatches += other.mismatches;
        self.repaired += other.repaired;
        self.left += other.left;
        self.lost_blocks += other.lost_blocks;
    }
}

fn maps(array: &Array, epoch: LayoutEpoch) -> Maps<'_> {
    let geometry = &array.layouts.of(epoch).geometry;
    let (written, mut moves_strips) = (array.written_of(epoch), array.moves_strips());
    if sings(Canary::GrowthLeftOut) {
        moves_strips = array.spare_cells.as_ref().is_some_and(|cells| cells.has_losses());
    }
    Maps { geometry, written, intent: &array.intent, moves_strips }
}

/// A stripe that a resync had to leave is done: its region is trusted if no other one is left.
fn settle_again(intent: &IntentMap, progress: &Progress, stripe: StripeNo) {
    let region = RegionNo(stripe.0 / intent.stripes_per_region());
    if region < progress.region && !progress.has_lost_in(intent, region) {
        intent.set_synced(region);
    }
}

/// Regions that were visited whole are trusted again, except where a stripe could not be done.
fn settle_regions(maps: Maps<'_>, progress: &mut Progress) {
    let intent = maps.intent;
    while progress.region.0 < intent.region_count() {
        let stripes = intent.stripes_of(progress.region);
        let end = stripes.end.min(maps.geometry.stripe_count());
        if end > progress.done_below.0 {
            return;
        }
        if !progress.has_lost_in(intent, progress.region) {
            intent.set_synced(progress.region);
        }
        progress.region.0 += 1;
    }
}
