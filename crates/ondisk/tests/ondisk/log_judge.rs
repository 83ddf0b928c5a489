//! The judgement of the logs against the judge of the model: updates of one stripe whose blocks lie
//! in caches as far as nobody flushed them, a crash in any round, losses before and with it; then
//! what the judgement says is done, and every block is looked at.
//!
//! What the writer keeps (`log/mod.rs`) is kept here, too: settled updates may vanish from the log
//! of a device that calls them settled, and of no other; when a member goes out, everything is
//! settled.
//!
//! Parity-only records are walked here and not only in `crates/model`, because the rules differ in
//! two points. The model's full form leaves no copies of data blocks in the log, and it solves from
//! whatever it finds. Here the copies are left, so a parity-only record waits until none counts,
//! and the block alone decides.

use std::collections::{BTreeMap, BTreeSet};

use ashlar_layout::{Geometry, RowRange};
use ashlar_model::chance::Chance;
use ashlar_model::field::{Block, solve, whole_row};
use ashlar_ondisk::GeometryRecord;
use ashlar_ondisk::log::{
    BlockChange, ChangedBlock, DeviceLog, Found, FoundBlock, Holder, LogRingSummary, LoggedRecord,
    MemberLog, Part, Places, Record, RecordKind, block_checksum, judge,
};
use ashlar_units::{MemberIdx, StripIdx, StripeNo};

use crate::choices::Choices;
use crate::samples::geometry;

const STRIPE: StripeNo = StripeNo(0);

struct Shape {
    k: usize,
    m: usize,
    rows: usize,
    updates: usize,
    tears: bool,
    /// Devices of data have no caches, and blocks do not tear: updates of one block may be
    /// parity-only.
    is_solid: bool,
}

/// An update: what it stores, by strip and row.
struct Update {
    kind: RecordKind,
    rows: RowRange,
    /// New blocks of this update by (strip, row), parity included; strips that are out, too.
    blocks: BTreeMap<(usize, usize), Block>,
    /// Strips in service when it was planned that it stores to.
    holders: Vec<usize>,
}

struct Universe<'c> {
    shape: Shape,
    choices: &'c mut Choices,
    bits: Chance,
    geometry: Geometry,
    updates: Vec<Update>,
    /// Every version of a block, by (strip, row): the update that made it (0: the start) and the
    /// content.
    versions: BTreeMap<(usize, usize), Vec<(usize, Block)>>,
    out_before: Vec<usize>,
    /// Updates up to this one are durable in place.
    settled: usize,
    /// Whether every live holder of the last update has its record.
    last_is_complete: bool,
}

/// What of the last update had happened when the crash came.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Logging,
    Storing,
    Done,
}

fn layout(shape: &Shape) -> Geometry {
    let (k, m) = (u16::try_from(shape.k).expect("few"), u16::try_from(shape.m).expect("few"));
    let level = if k == 1 { 1 } else { 100 };
    GeometryRecord { level, rows: 3, ..geometry(k, m, 1) }.to_layout().expect("an array")
}

fn strip(at: usize) -> StripIdx {
    StripIdx::from_at(at)
}

fn range(rows: std::ops::Range<usize>) -> RowRange {
    RowRange::new(u32::try_from(rows.start).expect("few"), u32::try_from(rows.end).expect("few"))
}

fn rows_of(rows: RowRange) -> std::ops::Range<usize> {
    usize::try_from(rows.start).expect("few")..usize::try_from(rows.end).expect("few")
}

impl<'c> Universe<'c> {
    fn new(shape: Shape, choices: &'c mut Choices) -> Universe<'c> {
        let mut bits = Chance(7);
        let mut versions = BTreeMap::new();
        for row in 0..shape.rows {
            let data: Vec<Block> = (0..shape.k).map(|_| Block::from_bits(bits.bits())).collect();
            for (strip, block) in whole_row(&data, shape.m).into_iter().enumerate() {
                versions.insert((strip, row), vec![(0, block)]);
            }
        }
        let geometry = layout(&shape);
        let (updates, out_before) = (Vec::new(), Vec::new());
        Universe {
            shape,
            choices,
            bits,
            geometry,
            updates,
            versions,
            out_before,
            settled: 0,
            last_is_complete: true,
        }
    }

    fn strips(&self) -> usize {
        self.shape.k + self.shape.m
    }

    fn newest(&self, place: (usize, usize)) -> Block {
        self.versions[&place].last().expect("there is a first one").1
    }

    /// Plan an update and let its blocks go to the caches.
    fn update(&mut self) {
        let start = self.choices.below(self.shape.rows);
        let rows = start..start + 1 + self.choices.below(self.shape.rows - start);
        // A mirror has no parity that could be generated from what is whole.
        let is_whole = self.shape.k > 1 && self.out_before.is_empty() && self.choices.below(4) == 0;
        let changed = if is_whole {
            (1 << self.shape.k) - 1
        } else {
            1 + self.choices.below((1 << self.shape.k) - 1)
        };
        let mut blocks = BTreeMap::new();
        for row in rows.clone() {
            let data: Vec<Block> = (0..self.shape.k)
                .map(|at| {
                    if changed >> at & 1 == 1 {
                        Block::from_bits(self.bits.bits())
                    } else {
                        self.newest((at, row))
                    }
                })
                .collect();
            for (at, block) in whole_row(&data, self.shape.m).into_iter().enumerate() {
                if at >= self.shape.k || changed >> at & 1 == 1 {
                    blocks.insert((at, row), block);
                }
            }
        }
        let number = self.updates.len() + 1;
        for (place, block) in &blocks {
            self.versions.get_mut(place).expect("a place").push((number, *block));
        }
        let stores =
            |at: &usize| !self.out_before.contains(at) && blocks.contains_key(&(*at, rows.start));
        let mut holders: Vec<usize> = (0..self.strips()).filter(stores).collect();
        let mut kind = if is_whole { RecordKind::InDoubt } else { RecordKind::Full };
        if let Some(change) = self.change(&holders, rows.clone()).filter(|_| !is_whole) {
            holders.retain(|at| *at != change.strip.at());
            kind = RecordKind::ParityOnly(change);
        }
        self.updates.push(Update { kind, rows: range(rows), blocks, holders });
    }

    /// The block that the update is about, if it is to be a parity-only one.
    fn change(&mut self, holders: &[usize], rows: std::ops::Range<usize>) -> Option<BlockChange> {
        let data: Vec<usize> = holders.iter().copied().filter(|at| *at < self.shape.k).collect();
        let [at] = data[..] else { return None };
        let versions = &self.versions[&(at, rows.start)];
        let [.., old, new] = versions[..] else { return None };
        let changes_one = self.is_alone(at, rows.start, new.0);
        // Its record is on devices of parity alone: with those lost, the change copy of an older
        // one would be believed.
        let has_copy = |update: &Update| {
            update.kind == RecordKind::Full && update.blocks.contains_key(&(at, rows.start))
        };
        let changes_one = changes_one && !self.updates.iter().any(has_copy);
        let may_be = self.shape.is_solid && rows.len() == 1 && holders.len() > 1 && changes_one;
        let change = BlockChange { strip: strip(at), old: checksum(old.1), new: checksum(new.1) };
        (may_be && self.choices.yes()).then_some(change)
    }

    /// Whether the update changed no other data of the row, on strips that are out neither.
    fn is_alone(&self, at: usize, row: usize, number: usize) -> bool {
        let is_changed =
            |other: usize| self.versions[&(other, row)].last().is_some_and(|v| v.0 == number);
        (0..self.shape.k).all(|other| other == at || !is_changed(other))
    }

    /// The record of update `number` (from 1) on the device of `at`; its block of row r lies at
    /// (number * 64 + r) * 4096.
    fn record(&self, number: usize, at: usize) -> LoggedRecord {
        let update = &self.updates[number - 1];
        let holder = |at: &usize| Holder { log_tag: tag(*at), strip: strip(*at), is_filled: false };
        let part = Part { strip: strip(at), rows: update.rows };
        let record = Record {
            sequence: number as u64,
            stripe: STRIPE,
            kind: update.kind,
            rows: update.rows,
            holders: update.holders.iter().map(holder).collect(),
            parts: if update.kind.has_payload() { Box::new([part]) } else { Box::new([]) },
            payload_offset: u64::from(update.rows.start) * 4096,
        };
        LoggedRecord { log_ring: 3, batch_offset: number as u64 * 64 * 4096, record }
    }

    /// What lies in the log of the device of `at`.
    fn log(&mut self, at: usize, last_is_logged: bool, says: usize) -> MemberLog {
        let settled_below = says as u64 + 1;
        let kept = self.choices.below(says + 1);
        let numbers = (kept + 1..=self.updates.len()).filter(|number| {
            let is_last = *number == self.updates.len();
            self.updates[number - 1].holders.contains(&at) && (!is_last || last_is_logged)
        });
        // What the device itself calls settled, its scan leaves out.
        let records = numbers.map(|number| self.record(number, at));
        let records = records.filter(|logged| logged.record.sequence >= settled_below).collect();
        let log_ring = LogRingSummary { settled_below, ..LogRingSummary::default() };
        MemberLog { log_rings: [(3, log_ring)].into(), records, ..MemberLog::default() }
    }
}

fn checksum(block: Block) -> u32 {
    block_checksum(&block.0.map(u64::to_le_bytes).concat())
}

fn tag(at: usize) -> u64 {
    100 + at as u64
}

/// One universe, start to verdict.
fn run(shape: Shape, choices: &mut Choices) -> Result<(), String> {
    let mut world = Universe::new(shape, choices);
    let (updates, m) = (world.shape.updates, world.shape.m);
    let loss_at = world.choices.below(updates + 1);
    for number in 0..updates {
        if number == loss_at {
            let lost = world.choices.below(world.strips());
            world.out_before.push(lost);
            world.settled = number;
        }
        world.update();
    }
    // Settled before the last one; the last is under way or done.
    world.settled += world.choices.below(updates - world.settled);
    let phase = [Phase::Logging, Phase::Storing, Phase::Done][world.choices.below(3)];
    let mut lost = world.out_before.clone();
    for at in 0..world.strips() {
        if lost.len() < m && !lost.contains(&at) && world.choices.below(3) == 0 {
            lost.push(at);
        }
    }
    let (place, doubt_is_durable) = world.durable(phase);
    let live: Vec<usize> = (0..world.strips()).filter(|at| !lost.contains(at)).collect();
    let after = world.restart(&live, phase, place)?;
    world.examine(&lost, phase, doubt_is_durable, &after)
}

type Content = BTreeMap<(usize, usize), Block>;

/// What a restart finds on the live devices.
struct InPlace<'w> {
    live: &'w [usize],
    content: &'w Content,
}

impl Found for InPlace<'_> {
    fn is_written(&self, _: StripeNo) -> bool {
        true
    }

    fn block(&self, block: ChangedBlock) -> FoundBlock {
        let (at, row) = (block.strip.at(), usize::try_from(block.row).expect("few"));
        match self.live.contains(&at) {
            true => FoundBlock::Holds(checksum(self.content[&(at, row)])),
            false => FoundBlock::Gone,
        }
    }
}

impl Universe<'_> {
    /// What is on the media: of each block any version since it was settled. And whether all that
    /// updates without data stored is there.
    fn durable(&mut self, phase: Phase) -> (Content, bool) {
        let last = self.updates.len();
        let (mut content, mut is_durable) = (Content::new(), true);
        let parity_only = self.updates.last().and_then(|update| update.kind.change());
        // Parity of a parity-only update follows its block.
        let is_there = parity_only.is_none() || phase == Phase::Done || self.choices.yes();
        for (place, versions) in self.versions.clone() {
            let is_its_place = parity_only.is_some_and(|change| change.strip.at() == place.0);
            let landed = |number: usize| number < last || phase != Phase::Logging && is_there;
            let may: Vec<_> = versions.iter().filter(|v| landed(v.0)).collect();
            let is_solid = self.shape.is_solid && place.0 < self.shape.k;
            let is_durable_by_now = |number: usize| {
                number <= self.settled
                    || is_solid && (number < last || phase == Phase::Done || is_its_place)
            };
            let floor = may.iter().rposition(|v| is_durable_by_now(v.0)).expect("the start");
            let chosen = floor + self.choices.below(may.len() - floor);
            let mut block = may[chosen].1;
            if self.shape.tears && chosen > floor && self.choices.yes() {
                block.0[0] = may[floor].1.0[0];
                is_durable = false;
            }
            let in_doubt = |number: &usize| {
                let update = &self.updates[number - 1];
                update.kind == RecordKind::InDoubt && update.blocks.contains_key(&place)
            };
            let newest = (self.settled + 1..=last).rfind(in_doubt).unwrap_or(0);
            is_durable &= may[chosen].0 >= newest;
            content.insert(place, block);
        }
        (content, is_durable)
    }

    /// Judge the logs of the live devices and do what the judgement says.
    fn restart(&mut self, live: &[usize], phase: Phase, place: Content) -> Result<Content, String> {
        let mut logs = Vec::new();
        for &at in live {
            let is_logged = phase != Phase::Logging || self.choices.yes();
            let last = self.updates.last().expect("there is one");
            self.last_is_complete &= is_logged || !last.holders.contains(&at);
            let says = if self.choices.yes() { self.settled } else { 0 };
            logs.push(self.log(at, is_logged, says));
        }
        let slot = |at: usize| {
            (0..self.strips())
                .map(MemberIdx::from_at)
                .find(|slot| {
                    self.geometry.strip_on(self.geometry.stripe(STRIPE), *slot) == Some(strip(at))
                })
                .expect("every strip has a slot")
        };
        let devices: Vec<DeviceLog<'_>> = live
            .iter()
            .zip(&logs)
            .map(|(&at, log)| DeviceLog { log_tag: tag(at), slot: slot(at), log, may_lack: false })
            .collect();
        let found = InPlace { live, content: &place };
        let judgement = judge(&devices, Places::Fixed(&self.geometry), &found)
            .map_err(|fault| fault.to_string())?;
        if !judgement.damaged.is_empty() {
            return Err(format!("no log is damaged: {:?}", judgement.damaged));
        }
        let mut after: Content =
            place.into_iter().filter(|((at, _), _)| live.contains(at)).collect();
        let mut written = BTreeSet::new();
        for replay in &judgement.stripes {
            for write in &replay.writes {
                let at = write.strip.at();
                assert_eq!(live[write.device], at, "a device is given what it stores");
                for (nth, row) in rows_of(write.rows).enumerate() {
                    let offset = write.log_offset + nth as u64 * 4096;
                    let number = usize::try_from(offset / 4096 / 64).expect("few");
                    assert!(written.insert((at, row)), "no block is written twice");
                    assert_eq!(offset / 4096 % 64, row as u64, "the block of this row");
                    after.insert((at, row), self.updates[number - 1].blocks[&(at, row)]);
                }
            }
            if !replay.lost.is_empty() {
                return Err(format!("no block is damaged: {:?}", replay.lost));
            }
            for row in replay.in_doubt.iter().flat_map(|rows| rows_of(*rows)) {
                self.generate(&mut after, row);
            }
        }
        Ok(after)
    }

    fn row(&self, content: &Content, row: usize) -> Vec<Option<Block>> {
        (0..self.strips()).map(|at| content.get(&(at, row)).copied()).collect()
    }

    fn generate(&self, content: &mut Content, row: usize) {
        let data = solve(&self.row(content, row), self.shape.k).expect("within the budget");
        for (at, block) in whole_row(&data, self.shape.m).into_iter().enumerate() {
            content.entry((at, row)).and_modify(|stored| *stored = block);
        }
    }

    /// What a block may hold.
    fn allowed(&self, place: (usize, usize), phase: Phase) -> Vec<Block> {
        let last = self.updates.len();
        let is_sure = |number: usize| {
            number <= self.settled
                || self.updates[number - 1].kind.has_payload()
                    && !self.doubted_after(number, place.1)
        };
        let may_stay = |number: usize| number < last || phase == Phase::Done;
        let versions = &self.versions[&place];
        let sure = versions
            .iter()
            .rposition(|v| v.0 == 0 || is_sure(v.0) && may_stay(v.0))
            .expect("the start");
        versions[sure..].iter().map(|v| v.1).collect()
    }

    fn doubted_after(&self, number: usize, row: usize) -> bool {
        self.updates[number..].iter().enumerate().any(|(at, update)| {
            let is_open = number + at + 1 > self.settled;
            let counts = number + at + 1 < self.updates.len() || self.last_is_complete;
            is_open
                && counts
                && update.kind == RecordKind::InDoubt
                && rows_of(update.rows).contains(&row)
        })
    }

    fn examine(
        &self,
        lost: &[usize],
        phase: Phase,
        doubt_is_durable: bool,
        after: &Content,
    ) -> Result<(), String> {
        for row in 0..self.shape.rows {
            let in_doubt = self.doubted_after(0, row);
            let stored = self.row(after, row);
            let data = solve(&stored, self.shape.k).ok_or("too much is lost")?;
            for (at, block) in whole_row(&data, self.shape.m).into_iter().enumerate() {
                if stored[at].is_some_and(|stored| stored != block) {
                    return Err(format!("row {row}: strip {at} does not fit the others"));
                }
            }
            for (at, block) in data.iter().enumerate() {
                // The promise of whole rows without data: no more than that.
                let weak =
                    in_doubt && (lost.contains(&at) && !doubt_is_durable || self.shape.tears);
                if !weak && !self.allowed((at, row), phase).contains(block) {
                    return Err(format!("row {row}: data strip {at} holds {block:?}"));
                }
            }
        }
        Ok(())
    }
}

fn every(shape: fn() -> Shape) -> u64 {
    let (mut choices, mut runs) = (Choices::every(), 0);
    loop {
        if let Err(fault) = run(shape(), &mut choices) {
            let Choices::Every(made, _) = &choices else { unreachable!("made so") };
            panic!("{fault}; choices {made:?}");
        }
        runs += 1;
        if !choices.next_run() {
            return runs;
        }
    }
}

#[test]
fn every_crash_state_of_one_update_is_repaired() {
    assert!(
        every(|| Shape { k: 2, m: 1, rows: 2, updates: 1, tears: false, is_solid: false }) > 10_000
    );
    assert!(
        every(|| Shape { k: 2, m: 2, rows: 1, updates: 1, tears: false, is_solid: false }) > 10_000
    );
    assert!(
        every(|| Shape { k: 2, m: 1, rows: 1, updates: 1, tears: true, is_solid: false }) > 1_000
    );
    assert!(
        every(|| Shape { k: 1, m: 2, rows: 1, updates: 1, tears: true, is_solid: false }) > 1_000
    );
    assert!(
        every(|| Shape { k: 2, m: 1, rows: 2, updates: 1, tears: false, is_solid: true }) > 1_000
    );
    assert!(
        every(|| Shape { k: 2, m: 2, rows: 1, updates: 1, tears: false, is_solid: true }) > 1_000
    );
}

#[test]
fn every_crash_state_of_two_updates_of_a_row_is_repaired() {
    assert!(
        every(|| Shape { k: 2, m: 1, rows: 1, updates: 2, tears: false, is_solid: false })
            > 100_000
    );
    assert!(
        every(|| Shape { k: 2, m: 1, rows: 1, updates: 2, tears: false, is_solid: true }) > 10_000
    );
}

#[test]
fn seeded_crash_states_of_more_updates_are_repaired() {
    for seed in 0..30_000 {
        let mut chance = Chance(seed);
        let k = 2 + chance.below(3);
        let (m, rows) = (1 + chance.below(3), 1 + chance.below(3));
        let (updates, tears) = (1 + chance.below(5), chance.percent(30));
        let is_solid = !tears && chance.percent(60);
        let shape = Shape { k, m, rows, updates, tears, is_solid };
        if let Err(fault) = run(shape, &mut Choices::Seeded(chance)) {
            panic!("seed {seed}: {fault}");
        }
    }
}
