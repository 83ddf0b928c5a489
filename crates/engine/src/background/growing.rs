//! An array grows: cells move to new members, and then the volume has more stripes.
//!
//! What must stay true: a few cells at a time are *moving*, and every write to them goes to both
//! places. A batch begins when every worker has answered once more, so a write that was planned for
//! one place has entered its region (`course.rs` says why that is enough). Then the cells are
//! copied under the row lock of each stripe. When all is flushed and no older record of the log
//! counts, one update of the superblocks moves the frontier, and only then are the cells read in
//! their new places. A crash before the update finds them in the old places, one after it in the
//! new ones; both are whole. At last all holders of row locks have let go: what was read in the old
//! places under a lock has ended then, before anything else is written there.
//!
//! Nothing moves while a member is lost or on its way. If one is lost or comes meanwhile, the batch
//! was for nothing, also if the device has the slot by the end of the batch. What has moved stays
//! where it is.
//!
//! Not here: which cells move (`ashlar_layout::declustered`), where strips are (`spare_cells.rs`).

use super::cell_visits::{Onward, Visitor, visit_all};
use super::course::{Course, Reach};
use super::job::{Job, JobSpec};
use super::{regions_side_by_side, spawn, table};
use crate::canary::{Canary, sings};
use crate::coordinator::messages::everywhere;
use crate::coordinator::{map_writer, record, spare_states};
use crate::event::names;
use crate::local_array::LocalArray;
use crate::member::SlotState;
use crate::spare_cells::SpareCells;
use crate::stripe::work::Work;
use ashlar_layout::declustered::{CellAt, Declustered};
use ashlar_ondisk::{JobKind, Superblock};
use ashlar_ring::within;
use ashlar_units::{MemberIdx, StripSet, to_u64, to_usize};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// Bytes that move together: one flush, one settling of the log and one update for so much.
const BATCH_BYTES: u64 = 1 << 30;
/// Cells of a batch at most, unless a step of the growth has more.
const BATCH_CELLS: usize = 64;
/// Before it is looked again whether cells can be moved.
const PAUSE: Duration = Duration::from_secs(1);

/// What came of a batch.
enum Batch {
    /// The frontier is behind it.
    Moved,
    /// Something else happened meanwhile.
    NotNow,
    /// The members cannot say where the frontier is. Writes go to both places for ever.
    Lost,
}

/// Move cells as long as the array grows. Spawned once, on the coordinator.
pub(super) fn begin(local: &Rc<LocalArray>) {
    let cells = local.array.spare_cells.as_ref();
    if cells.is_some_and(|cells| cells.map().growth().is_some()) {
        spawn(local, run);
    }
}

async fn run(local: Rc<LocalArray>) {
    let cells = local.array.spare_cells.as_ref().expect("begun only where there are spares");
    let changed = &local.coordinator().jobs.changed;
    let job = start(&local);
    let mut is_done = false;
    while !local.array.is_stopping() && !is_done {
        let change = changed.changed();
        if must_wait(&local, cells, &job) {
            local.array.jobs.show(job.status());
            // Not all that it waits for is told.
            let _changed = within(&local.worker.handle, PAUSE, change).await;
            continue;
        }
        match move_batch(&local, cells, &job).await {
            Batch::Moved => is_done = cells.map().growth().is_none(),
            Batch::NotNow => {
                let _changed = within(&local.worker.handle, PAUSE, change).await;
            }
            Batch::Lost => break,
        }
    }
    if is_done {
        let fields = vec![
            ("members", local.array.slots.len().to_string()),
            ("volume_bytes", local.array.volume_bytes().to_string()),
        ];
        local.array.record(names::ARRAY_GROWN, fields);
        local.array.record(names::JOB_FINISHED, job.result_fields());
        local.array.jobs.note_end(super::board::JobEnd { did: job.status(), stopped: None });
    }
    local.coordinator().jobs.running.borrow_mut().retain(|other| !Rc::ptr_eq(other, &job));
    local.array.jobs.take_down(job.kind(), job.slot());
}

fn start(local: &Rc<LocalArray>) -> Rc<Job> {
    let superblock = local.coordinator().superblock();
    let listed = superblock.jobs.iter().find(|job| job.kind == JobKind::Grow);
    let work = Work::MoveCells { strips: StripSet::EMPTY };
    let course = Course { slot: None, reach: Reach::Written };
    let is_paused = listed.is_some_and(|job| job.paused);
    let spec = JobSpec { is_paused, ..JobSpec::new(work, course) };
    let job = Rc::new(Job::new(&local.array, spec, regions_side_by_side(local)));
    local.coordinator().jobs.running.borrow_mut().push(Rc::clone(&job));
    let map = local.array.spare_cells.as_ref().map(|cells| cells.map());
    if let Some((map, at)) = map.and_then(|map| Some((map, map.growth()?))) {
        let stripes = |cells| stripes_of(&map, cells);
        job.set_before_and_behind(stripes(at.moved_cells), stripes(at.end_cells - at.moved_cells));
    }
    local.array.jobs.show(job.status());
    local.array.record(names::JOB_STARTED, job.fields());
    job
}

/// Whether nothing may move now: a copy of a cell needs all that it is made of, and two places that
/// stay.
fn must_wait(local: &LocalArray, cells: &SpareCells, job: &Job) -> bool {
    local.array.is_read_only()
        || lacks_members(local, cells)
        || local.array.intent.unsynced_count() != 0
        || table::must_wait(local.coordinator(), job)
}

/// Whether a member is lost, about to be, or on its way.
fn lacks_members(local: &LocalArray, cells: &SpareCells) -> bool {
    let mut slots = (0..local.array.slots.len()).map(MemberIdx::from_at);
    let is_whole = |slot: MemberIdx| {
        local.array.slot(slot).state() == SlotState::InSync && local.replacement(slot).is_none()
    };
    local.array.has_failed() || cells.has_losses() || !slots.all(is_whole)
}

/// The next cells to move: whole steps of the growth, at least one.
fn next_window(map: &Declustered) -> Option<Range<u64>> {
    let at = map.growth()?;
    let cell_bytes = map.parts().cell_rows * map.parts().strip_bytes;
    let mut end = at.moved_cells + at.step_cells;
    let most = to_usize(BATCH_BYTES / cell_bytes).min(BATCH_CELLS);
    let cells_until = |end: u64| map.moves(at.moved_cells..end).len();
    while end < at.end_cells && cells_until(end + at.step_cells) <= most {
        end += at.step_cells;
    }
    Some(at.moved_cells..end)
}

/// What the moving cells hold: the data cells among them. Spare cells are empty, as nothing is
/// lost.
fn content_of(map: &Declustered, window: &Range<u64>) -> Vec<CellAt> {
    let cell = |number: u64, from: MemberIdx| {
        map.numbered_cell(from, to_usize(number)).filter(|cell| map.spare_index(*cell).is_none())
    };
    map.moves(window.clone()).into_iter().filter_map(|it| cell(it.number, it.from)).collect()
}

/// Rows of stripes that lie in the data cells which move from so many cells of each member, on
/// average.
fn stripes_of(map: &Declustered, cells: u64) -> u64 {
    let Some(at) = map.growth() else { return 0 };
    let (parts, before) = (map.parts(), at.members_before);
    let from = to_u64(before.saturating_sub(parts.spare_columns));
    cells * from * to_u64(parts.members - before) / to_u64(parts.members) * parts.cell_rows
}

async fn move_batch(local: &Rc<LocalArray>, cells: &SpareCells, job: &Job) -> Batch {
    let _turn = local.coordinator().spare_gate.acquire().await;
    let (version, map) = (cells.version(), cells.map());
    let Some(window) = next_window(&map) else { return Batch::Moved };
    if let Some(at) = map.growth() {
        let behind = stripes_of(&map, at.end_cells - window.end);
        job.set_behind(behind);
    }
    cells.set_moving(window.clone());
    everywhere(local, |_| {}).await;
    let content = content_of(&map, &window);
    let copy = |strips| Work::MoveCells { strips };
    let by = Visitor { local, cells, job };
    let visited = visit_all(by, content.into_iter(), copy, || Onward::Begin).await;
    let is_copied = visited.undone.is_empty() && !local.array.is_stopping();
    let is_copied = is_copied && map_writer::flush(local).await.is_ok();
    if !is_copied || !spare_states::settle(local).await {
        cells.set_moving(0..0);
        return Batch::NotNow;
    }
    let batch = flip(local, cells, version, window.end).await;
    if matches!(batch, Batch::Moved) {
        spare_states::let_holders_pass(local).await;
        if cells.map().growth().is_none() {
            local.array.open_all_stripes();
        }
    }
    batch
}

/// The frontier moves, on the members first.
async fn flip(local: &Rc<LocalArray>, cells: &SpareCells, version: u64, end: u64) -> Batch {
    let _gate = local.coordinator().gate().await;
    // A write that failed somewhere, with nobody to put out, may be in one of the places only, and
    // what moved before another device took a slot is not on that.
    if cells.version() != version || !cells.are_moving_until(end) || lacks_members(local, cells) {
        cells.set_moving(0..0);
        return Batch::NotNow;
    }
    let (map, before) = (cells.map(), local.coordinator().superblock());
    let next = map.moved_to(end).expect("the end of a step");
    let is_last = next.growth().is_none();
    cells.set_coming(next);
    if sings(Canary::MovedUnrecorded) {
        cells.set_map(next);
        local.worker.handle.sleep(PAUSE).await;
    }
    let recorded = record::update(local, |superblock: &mut Superblock| {
        superblock.set_moved_cells(end);
        if is_last {
            superblock.jobs.retain(|job| job.kind != JobKind::Grow);
        }
    });
    if recorded.await.is_err() {
        return Batch::Lost;
    }
    if lacks_members(local, cells) {
        return flip_back(local, cells, map, before).await;
    }
    cells.set_map(next);
    Batch::Moved
}

/// A member was lost while the frontier moved. Writes that do without it store nothing of its
/// strips, in the new places neither: the old places count, which nobody has touched. Such writes
/// go in place only when it is recorded as out, for which they need the gate.
async fn flip_back(
    local: &Rc<LocalArray>,
    cells: &SpareCells,
    map: Declustered,
    before: Superblock,
) -> Batch {
    let frontier = map.growth().expect("it grows").moved_cells;
    let grow = before.jobs.into_iter().find(|job| job.kind == JobKind::Grow);
    let recorded = record::update(local, |superblock: &mut Superblock| {
        superblock.set_moved_cells(frontier);
        if !superblock.jobs.iter().any(|job| job.kind == JobKind::Grow) {
            superblock.jobs.extend(grow);
        }
    });
    if recorded.await.is_err() {
        return Batch::Lost;
    }
    cells.set_map(map);
    Batch::NotNow
}
