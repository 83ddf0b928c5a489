//! Takes a step for every stripe of some cells, on many members at once.
//!
//! What must stay true: the stripes of a group of cells lie on the same members, so groups are open
//! side by side: enough of them that every member of the array has work. Each has its turn for a
//! run of rows, which drives that rotate read in one go. Stripes near each other are one worker's,
//! so on other drives groups begin at different rows, and the owners of these rows alternate. An
//! open group is ended, unless nothing is
//! wanted any more; whoever asks gets to know which cells were never begun.
//!
//! Not here: which cells, and what follows (`spare_filling.rs`, `growing.rs`).

use super::job::Job;
use super::meter::Meter;
use crate::local_array::LocalArray;
use crate::spare_cells::SpareCells;
use crate::stripe::work::{Answer, Step, StepReport, StripeWork, Work};
use ashlar_layout::Stripe;
use ashlar_layout::declustered::{CellAt, GroupAt, Held};
use ashlar_ring::Pending;
use ashlar_units::{StripSet, to_u64, to_usize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

/// A group has its turn for this part of a cell: a MiB of each member if drives rotate, a strip if
/// not.
const RUNS_OF_CELL: u64 = 16;
/// Groups that are open, at least, for as many as the members can hold side by side.
const OPEN_GROUPS: usize = 2;

/// How to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Onward {
    /// With further groups.
    Begin,
    /// With those that are open.
    End,
    /// Not at all: whatever is done is for nothing.
    Stop,
}

/// What came of it.
pub(super) struct Visited {
    /// Cells that could not be done.
    pub(super) undone: BTreeSet<CellAt>,
    /// Cells that were not begun, or not ended.
    pub(super) left: BTreeSet<CellAt>,
}

/// Cells of one group.
struct OpenGroup {
    origins: Rc<[CellAt]>,
    /// The row that it began with; those before it come last.
    first_row: u64,
    /// Rows that were begun.
    begun: u64,
}

/// A step under way.
struct UnderWay {
    origins: Rc<[CellAt]>,
    answer: Pending<Answer>,
}

/// Whose cells are visited, and for which job.
#[derive(Clone, Copy)]
pub(super) struct Visitor<'a> {
    pub(super) local: &'a Rc<LocalArray>,
    pub(super) cells: &'a SpareCells,
    pub(super) job: &'a Job,
}

/// The walk through the cells.
struct Visit<'a> {
    by: Visitor<'a>,
    meter: Meter,
    /// Stripes that are not begun.
    rows_left: u64,
    under_way: Vec<UnderWay>,
    undone: BTreeSet<CellAt>,
}

/// Do `work` to all stripes of the cells of data columns, which says it of the strips that lie in
/// them, as long as `onward` says so.
pub(super) async fn visit_all(
    by: Visitor<'_>,
    origins: impl Iterator<Item = CellAt>,
    work: impl Fn(StripSet) -> Work,
    onward: impl Fn() -> Onward,
) -> Visited {
    let Visitor { local, cells, job } = by;
    let parts = cells.map().parts();
    let run = parts.cell_rows.div_ceil(RUNS_OF_CELL);
    let mut waiting = by_turns(by, by_group(cells, origins), run);
    let rows_left = to_u64(waiting.len()) * parts.cell_rows;
    let side_by_side = parts.members.div_ceil(parts.data_strips + parts.parity_strips);
    let meter = Meter::new(local, job, side_by_side);
    let (under_way, undone) = (Vec::new(), BTreeSet::new());
    let mut visit = Visit { by, meter, rows_left, under_way, undone };
    let mut open: VecDeque<OpenGroup> = VecDeque::new();
    loop {
        let now = if local.array.is_stopping() { Onward::Stop } else { onward() };
        let most = visit.groups_at_once(run, side_by_side);
        while now == Onward::Begin
            && open.len() < most
            && let Some(group) = waiting.pop_front()
        {
            open.push_back(group);
        }
        if now == Onward::Stop {
            break;
        }
        let Some(group) = open.pop_front() else { break };
        let end = parts.cell_rows.min(group.begun + run);
        for nth in group.begun..end {
            let row = (group.first_row + nth) % parts.cell_rows;
            visit.begin_step(&group.origins, row, &work).await;
        }
        if end < parts.cell_rows {
            open.push_back(OpenGroup { begun: end, ..group });
        }
    }
    while !visit.under_way.is_empty() {
        visit.end_step().await;
    }
    let left = waiting.into_iter().chain(open);
    Visited { undone: visit.undone, left: left.flat_map(|it| it.origins.to_vec()).collect() }
}

/// The cells, those of one group together, in order.
fn by_group(
    cells: &SpareCells,
    origins: impl Iterator<Item = CellAt>,
) -> impl Iterator<Item = Rc<[CellAt]>> {
    let map = cells.map();
    let mut groups: BTreeMap<GroupAt, Vec<CellAt>> = BTreeMap::new();
    for origin in origins {
        let (group, _) = map.group_of(origin).expect("a data cell is of a group");
        groups.entry(group).or_default().push(origin);
    }
    groups.into_values().map(Rc::from)
}

/// The groups in the order in which they are opened, each with the row that it begins with, which
/// is a multiple of the run.
fn by_turns(
    by: Visitor<'_>,
    groups: impl Iterator<Item = Rc<[CellAt]>>,
    run: u64,
) -> VecDeque<OpenGroup> {
    let Visitor { local, cells, job } = by;
    if job.order.regions() == 1 {
        return groups.map(|origins| OpenGroup { origins, first_row: 0, begun: 0 }).collect();
    }
    let runs = cells.map().parts().cell_rows.div_ceil(run);
    let mut of_owner = vec![0_u64; local.array.owners()];
    let mut turns: Vec<((u64, usize), OpenGroup)> = Vec::new();
    for (nth, origins) in (0_u64..).zip(groups) {
        // The golden ratio keeps any few of them apart.
        let first_row = (nth * runs * 618 / 1000) % runs * run;
        let (stripe, _) = strips_in(local, cells, &origins, first_row);
        let owner = local.array.owner_of(stripe);
        of_owner[owner] += 1;
        turns.push(((of_owner[owner], owner), OpenGroup { origins, first_row, begun: 0 }));
    }
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, group)| group).collect()
}

impl Visit<'_> {
    /// So many groups are open that runs of rows fill the depth, and every member and every owner
    /// of stripes has some.
    fn groups_at_once(&self, run: u64, side_by_side: usize) -> usize {
        let of_depth = to_u64(self.meter.pace.depth).div_ceil(run);
        (OPEN_GROUPS * side_by_side).max(to_usize(of_depth.max(self.by.job.order.regions())))
    }

    /// Hand the step of a row to the stripe's owner, when the pace allows one more.
    async fn begin_step(
        &mut self,
        origins: &Rc<[CellAt]>,
        row: u64,
        work: &impl Fn(StripSet) -> Work,
    ) {
        self.rows_left -= 1;
        let Visitor { local, cells, job } = self.by;
        let (stripe, strips) = strips_in(local, cells, origins, row);
        if !must_visit(local, stripe) {
            return job.note_cells(1, self.rows_left, StepReport::default());
        }
        if !self.meter.pace.pause.is_zero() {
            local.worker.handle.sleep(self.meter.pace.pause).await;
        }
        let owner = local.array.owner_of(stripe);
        let step = Step { stripe, work: work(strips) };
        let answer = local.worker.hand_to(owner, local, StripeWork::Step(step));
        self.under_way.push(UnderWay { origins: Rc::clone(origins), answer });
        while self.under_way.len() >= self.meter.pace.depth {
            self.end_step().await;
        }
    }

    /// Wait for any step, and note what came of it.
    async fn end_step(&mut self) {
        let (at, answer) = first_of(&mut self.under_way).await;
        let origins = self.under_way.swap_remove(at).origins;
        let report = match answer {
            Some(Answer::Stepped(report)) => report,
            _ => StepReport { is_target_gone: true, ..StepReport::default() },
        };
        if report.is_target_gone || report.lost_blocks > 0 {
            self.undone.extend(origins.iter());
        }
        self.by.job.note_cells(1, self.rows_left, report);
        self.meter.tick(self.by.local, self.by.job);
    }
}

/// The answer that is there first, and its place.
async fn first_of(under_way: &mut [UnderWay]) -> (usize, Option<Answer>) {
    poll_fn(|context| {
        let mut all = under_way.iter_mut().enumerate();
        let found = all.find_map(|(at, step)| match Pin::new(&mut step.answer).poll(context) {
            Poll::Ready(answer) => Some((at, answer)),
            Poll::Pending => None,
        });
        found.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// The stripe in a row of these cells of one group, and its strips in them.
fn strips_in(
    local: &LocalArray,
    cells: &SpareCells,
    origins: &[CellAt],
    row: u64,
) -> (Stripe, StripSet) {
    let map = cells.map();
    let mut found = None;
    let mut strips = StripSet::EMPTY;
    for origin in origins {
        let mut at = map.start_of(*origin);
        at.row += row;
        let Held::Strip(stripe, strip) = map.held(at) else { unreachable!("it is a data cell") };
        found = Some(stripe);
        strips = strips.with(strip);
    }
    (local.array.layouts.recorded(found.expect("there is a cell")), strips)
}

/// Whether the stripe is written, or may be being written for the first time.
fn must_visit(local: &LocalArray, stripe: Stripe) -> bool {
    // The region first: a write leaves it after it has set the bit.
    let intent = &local.array.intent;
    intent.is_entered(intent.region_of(stripe)) || local.array.written.is_written(stripe)
}
