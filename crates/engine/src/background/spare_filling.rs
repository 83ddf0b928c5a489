//! Fills cells of lost members: rebuilds what is lost into distributed spares, or onto the device
//! that replaces a member, and copies back what is on spares.
//!
//! What must stay true: cells are filled in batches. A batch begins when every worker has answered
//! once more, so a write that was planned before the table was what it is has entered its region. A
//! step takes the row lock of each stripe that is written, or that lies in such a region
//! (`course.rs` says why that is enough; `cell_visits.rs` takes the steps). All of a cell is filled
//! before its state changes, and `coordinator/spare_states.rs` changes it. If the table changes
//! meanwhile, the batch was for nothing.
//!
//! A member that is whole gives its spare cells up, and the next loss fills them with strips of
//! other stripes. A read under a row lock that began in such a cell may take longer than all of
//! that. So the member is whole only after all holders of row locks have let go.
//!
//! Stripes that lost most go first, whichever members they lost strips of; then what is on spares
//! is copied back. A cell with blocks that cannot be decoded waits, and is tried again.
//!
//! Not here: which device joins (`coordinator/join.rs`), what a step does (`step.rs`).

use super::cell_visits::{Onward, Visitor, visit_all};
use super::course::{Course, Reach};
use super::job::{Job, JobSpec};
use super::{notify, regions_side_by_side, spawn, table};
use crate::canary::{Canary, sings};
use crate::coordinator::messages::everywhere;
use crate::coordinator::{record, spare_states};
use crate::event::names;
use crate::exposure::{self, Filled};
use crate::local_array::LocalArray;
use crate::member::SlotState;
use crate::spare_cells::SpareCells;
use crate::stripe::work::Work;
use ashlar_layout::declustered::{
    CellAt, CellState, Declustered, DeviceState, GroupAt, Settled, SpareEntry, SpareTable,
    Whereabouts, endangered_in,
};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_ring::within;
use ashlar_units::{MemberIdx, StripSet, to_u64, to_usize};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// Cells of a batch at most: one flush, one settling of the log and one write of pages for so many.
const BATCH_CELLS: usize = 2048;
/// After this time no cell of a batch is begun. A device that joins waits for the batch to end.
const BATCH_TIME: Duration = Duration::from_secs(4);
/// Before cells are tried again whose states could not be changed.
const PAUSE: Duration = Duration::from_secs(1);
/// Slices that are looked at before others have their turn.
const SLICES_AT_ONCE: u64 = 256;
/// Time before cells that could not be rebuilt are tried again: twice as long each time.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_EVERY: Duration = Duration::from_secs(60);

/// What is to be done to one cell.
#[derive(Clone, Copy)]
enum Fill {
    /// The data cell is lost: decode it to where the table says.
    Rebuild(CellAt),
    /// The cell of this number of a member is to hold what the data cell holds.
    CopyBack { member: MemberIdx, number: usize, origin: CellAt },
    /// The cell of this number of a member holds nothing.
    Empty { member: MemberIdx, number: usize },
}

impl Fill {
    /// The data cell whose content is stored.
    fn origin(self) -> Option<CellAt> {
        match self {
            Fill::Rebuild(origin) | Fill::CopyBack { origin, .. } => Some(origin),
            Fill::Empty { .. } => None,
        }
    }

    /// The slice whose stripes it may make safer.
    fn slice(self, map: &Declustered) -> Option<u64> {
        match self {
            Fill::Rebuild(origin) | Fill::CopyBack { origin, .. } => Some(origin.slice),
            Fill::Empty { member, number } => Some(map.numbered_cell(member, number)?.slice),
        }
    }
}

/// Where a pass through the cells is.
struct Pass {
    /// Strips that the stripes lost which are rebuilt now; 0: cells are copied back.
    lost: usize,
    slice: u64,
    /// Cells that cannot be filled now.
    blocked: BTreeSet<CellAt>,
    /// What the last batch did not begin.
    rest: Vec<Fill>,
    /// Cells to come, by and large: spare cells among them may hold nothing.
    cells_left: u64,
    /// Of this state of the table.
    version: u64,
}

impl Pass {
    fn new(cells: &SpareCells) -> Pass {
        Pass {
            lost: cells.map().parts().parity_strips,
            slice: 0,
            blocked: BTreeSet::new(),
            rest: Vec::new(),
            cells_left: cells_to_fill(&cells.table()),
            version: cells.version(),
        }
    }
}

/// Lost cells that have a place to go to, and cells whose device is there and does not hold them.
fn cells_to_fill(table: &SpareTable) -> u64 {
    let of_entry = |entry: &SpareEntry| {
        let is_open = |state: &&CellState| match entry.device {
            DeviceState::Absent => entry.column.is_some() && **state == CellState::Missing,
            DeviceState::Filling => **state != CellState::InPlace,
        };
        to_u64(entry.states().iter().filter(is_open).count())
    };
    table.entries().map(|(_, entry)| of_entry(entry)).sum()
}

/// Fill cells as long as the array runs. Spawned once, on the coordinator.
pub(super) fn begin(local: &Rc<LocalArray>) {
    if local.array.spare_cells.is_some() && local.array.layouts.parity_strips_max() > 0 {
        spawn(local, run);
    }
}

/// A device has joined the slot of a lost member, and is listed. `is_readded`: it is the one that
/// was lost.
pub(crate) async fn device_joined(local: &Rc<LocalArray>, member: MemberIdx, is_readded: bool) {
    let _turn = local.coordinator().spare_gate.acquire().await;
    spare_states::attach(local, member).await;
    // A member that cannot take the pages goes out by itself.
    let _kept = spare_states::store_all(local).await;
    if is_readded {
        // If its cells cannot be trusted now, they are filled.
        let _trusted = spare_states::trust(local, member).await;
    }
    notify(local.coordinator());
}

/// The array starts with a device on its way into the slot.
pub(super) fn resume(local: &Rc<LocalArray>, member: MemberIdx) {
    let superblock = local.coordinator().superblock();
    let entry = superblock.joining_device(member).copied();
    let is_readded = superblock.policy != ConsistencyPolicy::None
        && entry.is_some_and(|entry| entry.out_since != 0);
    // The member that it was to replace was lost during the start: the table lists the loss alone.
    let took_over = local.array.spare_cells.as_ref().is_some_and(|cells| {
        let is_absent =
            |entry: &SpareEntry| entry.member == member && entry.device == DeviceState::Absent;
        cells.table().entries().any(|(_, entry)| is_absent(entry))
    });
    if is_readded || took_over {
        let join = async move |local: Rc<LocalArray>| {
            device_joined(&local, member, is_readded).await;
        };
        spawn(local, join);
    }
}

async fn run(local: Rc<LocalArray>) {
    let cells = local.array.spare_cells.as_ref().expect("begun only where there are spares");
    let changed = &local.coordinator().jobs.changed;
    let mut pass = Pass::new(cells);
    let mut job: Option<Rc<Job>> = None;
    let mut retry = RETRY_FIRST;
    while !local.array.is_stopping() {
        let change = changed.changed();
        if !cells.has_losses() {
            end(&local, &mut job, false);
            change.await;
            continue;
        }
        if must_wait(&local, job.as_deref()) {
            local.coordinator().exposure.stands_still();
            show(&local, job.as_deref());
            change.await;
            continue;
        }
        if pass.version != cells.version() {
            pass = Pass::new(cells);
        }
        let batch = next_batch(&local, cells, &mut pass).await;
        if batch.is_empty() {
            if complete_members(&local, cells).await {
                notify(local.coordinator());
                continue;
            }
            let is_blocked = !pass.blocked.is_empty();
            end(&local, &mut job, is_blocked);
            match is_blocked {
                true => drop(within(&local.worker.handle, retry, change).await),
                false => change.await,
            }
            retry = if is_blocked { (2 * retry).min(RETRY_EVERY) } else { RETRY_FIRST };
            pass.blocked.clear();
            (pass.lost, pass.slice) = (cells.map().parts().parity_strips, 0);
            continue;
        }
        let own = job.get_or_insert_with(|| start(&local));
        fill(&local, cells, own, (&mut pass, batch)).await;
    }
    if let Some(job) = job {
        take_down(&local, &job);
    }
}

/// Whether nothing may be filled now. While a copy runs, cells of its member would be lost with the
/// device that leaves. After a write that failed with nobody to put out, no cell counts as whole.
fn must_wait(local: &LocalArray, job: Option<&Job>) -> bool {
    let slots = || (0..local.array.slots.len()).map(MemberIdx::from_at);
    local.array.is_read_only()
        || local.array.has_failed()
        || slots().any(|slot| local.replacement(slot).is_some())
        || local.array.intent.unsynced_count() != 0
        || job.is_some_and(|job| table::must_wait(local.coordinator(), job))
}

fn start(local: &Rc<LocalArray>) -> Rc<Job> {
    let work = Work::FillCells { strips: StripSet::EMPTY };
    let course = Course { slot: None, reach: Reach::Written };
    let regions = regions_side_by_side(local);
    let job = Rc::new(Job::new(&local.array, JobSpec::new(work, course), regions));
    local.coordinator().jobs.running.borrow_mut().push(Rc::clone(&job));
    local.array.jobs.show(job.status());
    local.array.record(names::JOB_STARTED, job.fields());
    job
}

fn show(local: &LocalArray, job: Option<&Job>) {
    job.inspect(|job| local.array.jobs.show(job.status()));
}

/// Nothing is left that can be filled.
fn end(local: &LocalArray, job: &mut Option<Rc<Job>>, is_blocked: bool) {
    local.coordinator().exposure.stands_still();
    let Some(own) = job.as_ref() else { return };
    if is_blocked {
        local.array.record(names::JOB_BLOCKED, own.result_fields());
        return show(local, Some(own));
    }
    own.set_before_and_behind(0, 0);
    local.array.record(names::JOB_FINISHED, own.result_fields());
    local.array.jobs.note_end(super::board::JobEnd { did: own.status(), stopped: None });
    take_down(local, own);
    *job = None;
}

fn take_down(local: &LocalArray, job: &Rc<Job>) {
    local.coordinator().jobs.running.borrow_mut().retain(|other| !Rc::ptr_eq(other, job));
    local.array.jobs.take_down(job.kind(), job.slot());
}

/// The next cells in order; none, if none is left in this pass.
async fn next_batch(local: &Rc<LocalArray>, cells: &SpareCells, pass: &mut Pass) -> Vec<Fill> {
    let map = cells.map();
    let mut batch = std::mem::take(&mut pass.rest);
    if !batch.is_empty() {
        return batch;
    }
    while pass.lost > 0 {
        let end = map.slices().min(pass.slice + SLICES_AT_ONCE);
        while pass.slice < end && batch.len() < BATCH_CELLS {
            lost_in(cells, pass, &mut batch);
            pass.slice += 1;
        }
        if batch.len() >= BATCH_CELLS {
            return batch;
        }
        if pass.slice == map.slices() {
            if !batch.is_empty() {
                return batch;
            }
            (pass.lost, pass.slice) = (pass.lost - 1, 0);
        }
        local.worker.handle.yield_now().await;
    }
    while batch.is_empty() && pass.slice < map.slices() {
        let end = map.slices().min(pass.slice + SLICES_AT_ONCE);
        while pass.slice < end && batch.len() < BATCH_CELLS {
            copies_in(cells, pass, &mut batch);
            pass.slice += 1;
        }
        local.worker.handle.yield_now().await;
    }
    batch
}

/// The cells of a slice whose stripes lost as much as the pass rebuilds now.
fn lost_in(cells: &SpareCells, pass: &Pass, batch: &mut Vec<Fill>) {
    let (map, table) = (&cells.map(), cells.table());
    let all = endangered_in(map, &table, pass.slice);
    let due: Vec<GroupAt> =
        all.into_iter().filter(|it| it.lost == pass.lost).map(|it| it.group).collect();
    if due.is_empty() {
        return;
    }
    for cell in cells_of_slice(map, &table, pass.slice) {
        let Some((group, _)) = map.group_of(cell) else { continue };
        let has_target = matches!(table.whereabouts(map, cell), Whereabouts::LostTo(_));
        if has_target && !pass.blocked.contains(&cell) && due.contains(&group) {
            batch.push(Fill::Rebuild(cell));
        }
    }
}

/// The cells of a slice's share that are not in their places, of members whose device is being
/// filled.
fn copies_in(cells: &SpareCells, pass: &Pass, batch: &mut Vec<Fill>) {
    let (map, table) = (&cells.map(), cells.table());
    for (member, number) in share_of_slice(map, &table, pass.slice) {
        let Some((_, entry)) = table.entries().find(|(_, entry)| entry.member == member) else {
            continue;
        };
        let is_open =
            entry.states()[number] != CellState::InPlace && !is_forgotten(cells, member, number);
        if entry.device != DeviceState::Filling || !is_open {
            continue;
        }
        match table.copy_source(map, member, number) {
            Ok(None) => batch.push(Fill::Empty { member, number }),
            Ok(Some(_)) => {
                let cell = map.numbered_cell(member, number).expect("it has content");
                let origin = table.origin(map, cell);
                if !pass.blocked.contains(&origin) {
                    batch.push(Fill::CopyBack { member, number, origin });
                }
            }
            // It is to be rebuilt, not copied.
            Err(_) => {}
        }
    }
}

/// The cells of lost members in a slice.
fn cells_of_slice(map: &Declustered, table: &SpareTable, slice: u64) -> Vec<CellAt> {
    let lost = table.entries().map(|(_, entry)| entry.member);
    let rows = 0..map.cell_rows_of(slice);
    let cells =
        lost.flat_map(|member| rows.clone().filter_map(move |row| map.cell(member, slice, row)));
    cells.collect()
}

/// As many cells of lost members as there are for each slice, by member and number: all slices
/// together have all cells, those of no slice as well.
fn share_of_slice(map: &Declustered, table: &SpareTable, slice: u64) -> Vec<(MemberIdx, usize)> {
    let until = |slice: u64| to_usize(slice * map.cells() / map.slices());
    let numbers = until(slice)..until(slice + 1);
    let lost = table.entries().map(|(_, entry)| entry.member);
    lost.flat_map(|member| numbers.clone().map(move |number| (member, number))).collect()
}

/// Fill the cells of a batch and change their states.
async fn fill(
    local: &Rc<LocalArray>,
    cells: &SpareCells,
    job: &Job,
    (pass, mut batch): (&mut Pass, Vec<Fill>),
) {
    let _turn = local.coordinator().spare_gate.acquire().await;
    // Of the table as it is from here on: who changes it otherwise changes its number.
    let version = cells.version();
    if version != pass.version {
        return;
    }
    let done = Filled::begun(pass.lost, local.worker.handle.turn_now());
    everywhere(local, |_| {}).await;
    let origins = batch.iter().filter_map(|fill| fill.origin());
    let work = |strips| Work::FillCells { strips };
    pass.cells_left = pass.cells_left.saturating_sub(to_u64(batch.len()));
    job.set_behind(pass.cells_left * cells.map().parts().cell_rows);
    let until = local.worker.handle.turn_now().after(BATCH_TIME);
    let onward = || match cells.version() == version {
        false => Onward::Stop,
        true if local.worker.handle.turn_now() > until || must_wait(local, Some(job)) => {
            Onward::End
        }
        true => Onward::Begin,
    };
    let visited = visit_all(Visitor { local, cells, job }, origins, work, onward).await;
    // If a target was lost meanwhile, another cell is the target by now, and nothing is in it.
    if local.array.is_stopping() || cells.version() != version {
        return;
    }
    let is_in = |set: &BTreeSet<CellAt>, fill: &Fill| {
        fill.origin().is_some_and(|origin| set.contains(&origin))
    };
    pass.rest = batch.extract_if(.., |fill| is_in(&visited.left, fill)).collect();
    pass.cells_left += to_u64(pass.rest.len());
    batch.retain(|fill| !is_in(&visited.undone, fill));
    pass.blocked.extend(visited.undone);
    if batch.is_empty() {
        return;
    }
    let slices = batch.iter().filter_map(|fill| fill.slice(&cells.map()));
    let before = exposure::before(&local.array, cells, slices);
    let mut next = cells.table().clone();
    for fill in batch {
        let changed = match fill {
            Fill::Rebuild(cell) => next.rebuilt(&cells.map(), cell, Settled),
            Fill::CopyBack { member, number, .. } | Fill::Empty { member, number } => {
                next.copied_back(&cells.map(), member, number, Settled)
            }
        };
        if changed.is_err() {
            // The table is another one by now; the pass begins anew.
            return;
        }
    }
    match spare_states::commit(local, next, version).await {
        Ok(true) => {
            pass.version = cells.version();
            let done = done.ended(local.worker.handle.turn_now());
            local.coordinator().exposure.filled(cells, &before, done);
            if job.is_paused.get() {
                local.coordinator().exposure.stands_still();
            }
        }
        // If the members cannot take it, the array has said so.
        Ok(false) | Err(_) => {
            local.worker.handle.sleep(PAUSE).await;
            *pass = Pass::new(cells);
        }
    }
}

/// Members all of whose cells are in their places are whole: the members record that. True if some
/// were.
async fn complete_members(local: &Rc<LocalArray>, cells: &SpareCells) -> bool {
    let is_whole = |member: &MemberIdx| {
        let table = cells.table();
        let own = table.entries().find(|(_, entry)| entry.member == *member);
        let is_back = |(number, state): (usize, &CellState)| {
            *state == CellState::InPlace || is_forgotten(cells, *member, number)
        };
        own.is_some_and(|(_, entry)| {
            entry.device == DeviceState::Filling && entry.states().iter().enumerate().all(is_back)
        })
    };
    let all = (0..local.array.slots.len()).map(MemberIdx::from_at);
    let whole: Vec<MemberIdx> = all.filter(is_whole).collect();
    let mut is_some = false;
    for member in whole {
        is_some |= complete(local, member, &is_whole).await;
    }
    is_some
}

/// A fault planted on purpose: whether it is a spare cell, whatever it holds.
fn is_forgotten(cells: &SpareCells, member: MemberIdx, number: usize) -> bool {
    let map = cells.map();
    let is_spare = |cell| map.spare_index(cell).is_some();
    sings(Canary::HostedCellsForgotten) && map.numbered_cell(member, number).is_some_and(is_spare)
}

async fn complete(
    local: &Rc<LocalArray>,
    member: MemberIdx,
    is_whole: &impl Fn(&MemberIdx) -> bool,
) -> bool {
    let _turn = local.coordinator().spare_gate.acquire().await;
    if crate::coordinator::map_writer::flush(local).await.is_err() {
        return false;
    }
    // Somebody may still read there.
    spare_states::let_holders_pass(local).await;
    let _gate = local.coordinator().gate().await;
    let slot = local.array.slot(member);
    let joined = local.coordinator().superblock().joining_device(member).map(|entry| entry.uuid);
    let (Some(uuid), SlotState::Rebuilding, true) = (joined, slot.state(), is_whole(&member))
    else {
        return false;
    };
    let recorded = record::update(local, |next| table::enthrone_member(next, member, uuid)).await;
    if recorded.is_err() || slot.state() != SlotState::InSync {
        return false;
    }
    local.array.record(names::MEMBER_WHOLE, vec![("slot", member.to_string())]);
    true
}
