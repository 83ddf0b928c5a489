//! Every crash state of small workloads, on the engine itself: up to three operations, at most
//! three data and three parity strips, every subset of the member writes that were not durable,
//! each whole, lost or torn, and every loss within the budget with it.
//!
//! What must stay true: nothing is drawn; a case is run again up to each of its device operations,
//! frozen there, and each state that follows is started once, all of it is read, further members
//! are lost up to the budget, and all is read again. What may be found is the ledger's to say, as
//! in any universe. States that differ only in writes to members that are lost with the crash are
//! the same state.
//!
//! Not here: crashes during the start that follows (universes have them).

use crate::audit;
use crate::config::{Class, Config, Contract, Payload, Wish};
use crate::director::TANK;
use crate::drive_slot::{DriveSlots, Trouble};
use crate::ledger::{Change, Ending};
use crate::life::{Life, Outlook, assemble, judge_events};
use crate::stage::{Stage, Stopper};
use ashlar_device::CommandKind;
use ashlar_engine::{ArrayVolume, Engine};
use ashlar_layout::{DeclusteredShape, Geometry, Level, Shape};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_sim::{DiskOptions, Ended, Fate, KeptDisk, Latency, Random, SimWorld, Stop};
use ashlar_units::{Extent, MemberIdx, to_u64, to_usize};
use ashlar_volume::{Command, Request, Volume};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

const STRIP_BYTES: u64 = 4096;
/// Stripes that are written.
const STRIPES: u64 = 2;

/// An operation of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Write the first block of the first stripe.
    First,
    /// Write the last block of the first stripe.
    Last,
    /// Write the first stripe whole.
    Whole,
    /// Write the first stripe but for its first and last sector.
    Ragged,
    /// Write the first block of the second stripe.
    Other,
    /// Flush.
    Flush,
}

/// Every operation.
const STEPS: [Step; 6] =
    [Step::First, Step::Last, Step::Whole, Step::Ragged, Step::Other, Step::Flush];

/// What is run up to each of its device operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Data strips of a stripe.
    pub data: usize,
    /// Parity strips, or further copies.
    pub parity: usize,
    /// Members more than a stripe has strips: the array is declustered if there are any.
    pub beyond: usize,
    /// What is done.
    pub steps: Vec<Step>,
    /// All at once, and not one after the other.
    pub is_together: bool,
    /// Devices have volatile caches.
    pub has_caches: bool,
    /// The stripes were written and flushed before.
    pub is_written: bool,
    /// A member is out from the beginning.
    pub is_degraded: bool,
    /// Writes may tear; those of devices that are said to write blocks whole, between blocks.
    pub tears: bool,
    /// It is stated that devices write blocks whole, as they do: updates of single blocks may have
    /// parity-only records.
    pub is_parity_only: bool,
}

/// How much was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Covered {
    /// Cases.
    pub cases: u64,
    /// Device operations at which they were frozen.
    pub points: u64,
    /// States: subsets of writes with losses.
    pub states: u64,
    /// Of them different from all before: started and read.
    pub started: u64,
    /// Of those, states with a member lost.
    pub with_loss: u64,
    /// Of those, states with a torn write.
    pub torn: u64,
    /// Points left out since they have more states than the bound.
    pub left_out: u64,
}

impl Covered {
    /// Add those of another.
    pub fn add(&mut self, other: Covered) {
        self.cases += other.cases;
        self.points += other.points;
        self.states += other.states;
        self.started += other.started;
        self.with_loss += other.with_loss;
        self.torn += other.torn;
        self.left_out += other.left_out;
    }
}

impl fmt::Display for Covered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} workloads, {} crash points, {} crash states, \
             {} of them different and started ({} with lost members, {} with a torn write), \
             {} points left out for more states than the bound",
            self.cases,
            self.points,
            self.states,
            self.started,
            self.with_loss,
            self.torn,
            self.left_out
        )
    }
}

/// The workloads: those of `./check --full`, or all of them.
pub fn cases(is_long: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for count in 1..=3 {
        for (data, parity) in (1..=3).flat_map(|data| (1..=3).map(move |parity| (data, parity))) {
            for steps in sequences(count, data) {
                for variant in 0..64_u32 {
                    let is = |bit: u32| variant & (1 << bit) != 0;
                    let case = Case {
                        data,
                        parity,
                        beyond: if is(5) { 2 } else { 0 },
                        steps: steps.clone(),
                        is_together: is(0),
                        has_caches: is(1),
                        is_written: !is(2),
                        is_degraded: is(3),
                        tears: true,
                        is_parity_only: is(4),
                    };
                    if case.is_worth_it() && (is_long || case.is_short()) {
                        cases.push(case);
                    }
                }
            }
        }
    }
    cases
}

/// All sequences of so many steps that do something.
fn sequences(count: u32, data: usize) -> Vec<Vec<Step>> {
    // A mirror has one block a stripe.
    let steps = if data == 1 { &[Step::First, Step::Other, Step::Flush][..] } else { &STEPS };
    let all = (0..steps.len().pow(count)).map(|number| {
        let digit = |at: u32| steps[number / steps.len().pow(at) % steps.len()];
        (0..count).map(digit).collect::<Vec<Step>>()
    });
    all.filter(|steps| steps.first() != Some(&Step::Flush)).collect()
}

impl Case {
    fn is_worth_it(&self) -> bool {
        // One operation is alone either way.
        let is_one = self.steps.len() > 1 || !self.is_together;
        // One shape says it all: which members a stripe has is not for the log to care.
        let may_spread = (self.data, self.parity) == (2, 1);
        is_one
            && (!self.is_parity_only || self.may_be_parity_only())
            && (self.beyond == 0 || may_spread)
    }

    /// Some update reads what it changes, because that is no more than all others, or one of those
    /// is out.
    fn may_be_parity_only(&self) -> bool {
        let reads_old = self.data > self.parity + 1 || self.data > 1 && self.is_degraded;
        reads_old && self.is_written && !self.has_caches
    }

    /// What is in reach within two minutes.
    fn is_short(&self) -> bool {
        let strips = self.data + self.parity;
        if self.beyond > 0 {
            return self.steps.len() == 1;
        }
        if self.is_parity_only {
            return self.steps.len() == 1 || self.steps.len() == 2 && strips == 3;
        }
        match self.steps.len() {
            1 => strips <= if self.has_caches { 3 } else { 4 },
            2 if strips > 2 => {
                let is_plain = !self.has_caches && !self.is_degraded && self.is_written;
                strips == 3 && self.parity == 1 && is_plain && !self.is_together
            }
            2 => !self.has_caches && !self.is_degraded,
            _ => strips <= 2 && !self.has_caches && !self.is_degraded && self.is_written,
        }
    }

    fn shape(&self) -> Shape {
        let level = match (self.data, self.parity) {
            (1, _) => Level::Raid1,
            (_, 1) => Level::Raid5,
            (_, 2) => Level::Raid6,
            _ => Level::Raid7,
        };
        let stripe_width = self.data + self.parity;
        let spread = DeclusteredShape {
            domain_members: 1,
            stripe_width,
            spare_columns: 0,
            cell_bytes: Some(STRIP_BYTES),
        };
        Shape {
            level,
            members: self.members(),
            parity: None,
            group_members: None,
            strip_bytes: STRIP_BYTES,
            declustered: (self.beyond > 0).then_some(spread),
        }
    }

    fn members(&self) -> usize {
        self.data + self.parity + self.beyond
    }

    fn config(&self) -> Config {
        let drawn = Config::draw(1, Wish::default());
        let disk = DiskOptions {
            has_volatile_cache: self.has_caches,
            latency: Latency::constant(Duration::from_micros(100)),
            atomic_write_bytes: if self.is_parity_only { STRIP_BYTES } else { 512 },
            ..DiskOptions::sized(8 << 20)
        };
        let shape = self.shape();
        let is_ragged = self.steps.contains(&Step::Ragged);
        let logical_block_bytes = if is_ragged { 512 } else { 4096 };
        let geometry = Geometry::smallest(&shape).expect("drawn shapes are possible");
        let contract = Contract::of(ConsistencyPolicy::Log, &geometry);
        // What devices may tear in two is two units.
        let unit_bytes = if contract.repairs_torn_blocks { logical_block_bytes } else { 512 };
        Config {
            policy: ConsistencyPolicy::Log,
            contract,
            stated_atomic_bytes: if self.is_parity_only { 4096 } else { 0 },
            class: Class::Everything,
            logical_block_bytes,
            workers: 1,
            disks: vec![disk; shape.members],
            stripes_per_region: 4,
            window: (0, STRIPES),
            unit_bytes: u64::from(unit_bytes),
            payload: Payload::Tags,
            clients: Vec::new(),
            shape,
            ..drawn
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.is_together { "at once" } else { "one after the other" };
        let caches = if self.has_caches { "volatile caches" } else { "no caches" };
        let written = if self.is_written { "written stripes" } else { "unwritten stripes" };
        let out = if self.is_degraded { ", one member out" } else { "" };
        let whole = if self.is_parity_only { ", blocks written whole" } else { "" };
        write!(
            f,
            "{}+{}{}, {:?} {order}, {written}, {caches}{out}{whole}",
            self.data,
            self.parity,
            if self.beyond > 0 { format!(" over {}", self.members()) } else { String::new() },
            self.steps
        )
    }
}

/// A world that was frozen, and what is known of it.
struct Frozen {
    world: SimWorld,
    stage: Stage,
    drive_slots: DriveSlots,
    disks: Vec<KeptDisk>,
    /// Writes of the workload by the number of their operation, and which member they went to.
    writes: BTreeMap<u64, usize>,
    /// Those of them that are not durable.
    volatile: Vec<u64>,
    /// The workload was over before.
    is_over: bool,
}

/// What tells a state from others: what was answered, who is lost, what is on the others.
type Key = (u64, usize, Vec<(u64, Fate)>);

/// Run a case up to each of its device operations; a point with more than `states_max` states is
/// left out.
///
/// # Errors
/// What is wrong in the first state that is.
pub fn exhaust(case: &Case, states_max: u64) -> Result<Covered, String> {
    let mut covered = Covered { cases: 1, ..Covered::default() };
    let mut seen = HashSet::new();
    for operations in 1.. {
        let at = Rc::new(Cell::new(String::new()));
        let said = Rc::clone(&at);
        let looked = catch_unwind(AssertUnwindSafe(|| {
            let mut frozen = freeze(case, operations);
            let is_over = frozen.is_over;
            (frozen.look(case, states_max, (&mut seen, &said)), is_over)
        }));
        match looked {
            Ok((own, is_over)) => {
                covered.add(own);
                if is_over {
                    return Ok(covered);
                }
            }
            Err(panic) => {
                let what = match panic.downcast::<Stopper>() {
                    Ok(stopper) => stopper.0,
                    Err(panic) => format!("panic: {}", crate::universe::text_of(panic.as_ref())),
                };
                let at = at.take();
                return Err(format!("{case}: frozen at operation {operations}, {at}: {what}"));
            }
        }
    }
    Ok(covered)
}

/// Make the array, and run the workload until so many operations were submitted.
fn freeze(case: &Case, operations: u64) -> Frozen {
    let config = case.config();
    let stage = Stage::new(config.clone(), (usize::MAX, usize::MAX), false);
    let mut world = SimWorld::new(7);
    let mut drive_slots = DriveSlots::new(&mut world, &config);
    stage.set_switch(world.switch());
    let begin = Outlook::default();
    let made = Life::new(&mut world, &stage, 0, &begin).create(&drive_slots, false);
    let (data_offset, geometry) = made.expect("nothing stops it");
    world.stop(Stop::Kill);
    drive_slots.data_offset = data_offset;
    drive_slots.geometry = Some(geometry);
    drive_slots.leave_old_content(&geometry, config.window);
    let engine = start(&mut world, (&stage, case), &mut drive_slots);
    let before = world.operations();
    world.stop_at(before + operations, Stop::Freeze);
    let own = stage.clone();
    let steps = case.steps.clone();
    let is_together = case.is_together;
    let ended = world.run(async move |handle| {
        let volume_stage = own.clone();
        let work = async move |volume: ArrayVolume| {
            for step in steps {
                let (one, stage) = (volume.clone(), volume_stage.clone());
                let guard = stage.enter();
                let task = async move {
                    take(&one, &stage, step).await;
                    drop(guard);
                };
                if is_together { volume.handle().spawn(task) } else { task.await }
            }
        };
        let answer = engine.with_volume(0, TANK, work).await;
        answer.expect("the array runs");
        while own.clients() > 0 {
            handle.sleep(Duration::from_micros(50)).await;
        }
    });
    world.call_off();
    let is_over = ended == Ended::Done(());
    if is_over {
        world.stop(Stop::Freeze);
    }
    stage.crashed(Stop::Freeze, false);
    stage.forget_clients();
    let volatile: Vec<u64> = drive_slots
        .all
        .iter()
        .flat_map(|drive_slot| drive_slot.disk.volatile_writes())
        .filter(|number| *number > before)
        .collect();
    let names = drive_slots.names();
    let is_write = |kind: CommandKind| !matches!(kind, CommandKind::Read | CommandKind::Flush);
    let last = world.last_operations();
    assert!(
        last.first().is_none_or(|first| first.number <= before + 1),
        "more operations than are kept"
    );
    let writes = last
        .iter()
        .filter(|operation| operation.number > before && is_write(operation.kind))
        .map(|operation| {
            let at = names.iter().position(|name| *name == operation.disk);
            (operation.number, at.expect("a disk of this world"))
        })
        .collect();
    let disks = drive_slots.all.iter().map(|drive_slot| drive_slot.disk.keep()).collect();
    Frozen { world, stage, drive_slots, disks, writes, volatile, is_over }
}

/// Start the array, and bring it to where the workload begins.
fn start(
    world: &mut SimWorld,
    (stage, case): (&Stage, &Case),
    drive_slots: &mut DriveSlots,
) -> Engine {
    let (opener, own) = (world.opener(), stage.clone());
    let (is_written, is_degraded) = (case.is_written, case.is_degraded);
    world
        .run(async move |handle| {
            let running = assemble((opener, &handle), &own, drive_slots, &Outlook::default()).await;
            let fill = async move |volume: ArrayVolume| {
                if is_written {
                    let bytes = own.ledger().bytes();
                    write(&volume, &own, Extent::new(0, bytes)).await;
                }
                take(&volume, &own, Step::Flush).await;
            };
            running.engine.with_volume(0, TANK, fill).await.expect("the array runs");
            if is_degraded {
                let out = running.engine.fail(TANK, MemberIdx::from_at(0)).await;
                out.expect("within the budget");
            }
            running.engine
        })
        .done()
}

async fn take(volume: &ArrayVolume, stage: &Stage, step: Step) {
    let (block, stripe) = (STRIP_BYTES, stage.config().stripe_bytes());
    match step {
        Step::First => write(volume, stage, Extent::new(0, block)).await,
        Step::Last => write(volume, stage, Extent::new(stripe - block, block)).await,
        Step::Whole => write(volume, stage, Extent::new(0, stripe)).await,
        Step::Ragged => write(volume, stage, Extent::new(512, stripe - 1024)).await,
        Step::Other => write(volume, stage, Extent::new(stripe, block)).await,
        Step::Flush => {
            let begun = stage.ledger().tick();
            let request =
                Request { command: Command::Flush, extent: Extent::default(), fua: false };
            if volume.submit(request).await.is_ok() {
                stage.ledger().flushed(begun);
            }
        }
    }
}

async fn write(volume: &ArrayVolume, stage: &Stage, extent: Extent) {
    let mut buffer = volume.buffer(to_usize(extent.bytes)).await;
    let lacks = stage.lacks(extent);
    let begun = {
        let mut ledger = stage.ledger();
        let begun = ledger.begin_on(Change::Write, extent, (0, lacks));
        ledger.fill(begun, &mut buffer);
        begun
    };
    let command = Command::Write(buffer.freeze());
    let request = Request { command, extent: stage.place(extent), fua: false };
    let is_done = volume.submit(request).await.is_ok();
    stage.ledger().end(begun, if is_done { Ending::Done } else { Ending::Failed });
}

impl Frozen {
    /// Start every state that follows from here and was not seen before.
    fn look(
        &mut self,
        case: &Case,
        states_max: u64,
        (seen, said): (&mut HashSet<Key>, &Rc<Cell<String>>),
    ) -> Covered {
        let mut covered = Covered { points: 1, ..Covered::default() };
        let fates: &[Fate] = if case.tears {
            &[Fate::Lost, Fate::Whole, Fate::Beginning]
        } else {
            &[Fate::Lost, Fate::Whole]
        };
        let losses = self.losses(case);
        let subsets = u32::try_from(self.volatile.len())
            .ok()
            .and_then(|count| to_u64(fates.len()).checked_pow(count))
            .filter(|subsets| subsets.saturating_mul(to_u64(losses.len())) <= states_max);
        let Some(subsets) = subsets else {
            covered.left_out = 1;
            return covered;
        };
        let ledger = self.stage.ledger().clone();
        let answered = ledger.moment();
        for number in 0..subsets {
            let mut rest = number;
            let mut chosen = BTreeMap::new();
            for write in &self.volatile {
                chosen.insert(*write, fates[to_usize(rest % to_u64(fates.len()))]);
                rest /= to_u64(fates.len());
            }
            for lost in &losses {
                covered.states += 1;
                if !seen.insert(self.key(answered, lost, &chosen)) {
                    continue;
                }
                covered.started += 1;
                covered.with_loss += u64::from(!lost.is_empty());
                covered.torn += u64::from(chosen.values().any(|fate| *fate == Fate::Beginning));
                said.set(format!("fates {chosen:?}, lost {lost:?}"));
                *self.stage.ledger() = ledger.clone();
                self.start(case, &chosen, lost);
            }
        }
        covered
    }

    fn key(&self, answered: u64, lost: &BTreeSet<usize>, chosen: &BTreeMap<u64, Fate>) -> Key {
        let mask = lost.iter().fold(0, |mask, at| mask | 1 << at);
        let of = |(number, at): (&u64, &usize)| {
            let fate = chosen.get(number).copied().unwrap_or(Fate::Whole);
            (!lost.contains(at) && fate != Fate::Lost).then_some((*number, fate))
        };
        (answered, mask, self.writes.iter().filter_map(of).collect())
    }

    /// Every set of members that may be lost with the crash.
    fn losses(&self, case: &Case) -> Vec<BTreeSet<usize>> {
        let members = case.members();
        let most = case.parity - usize::from(case.is_degraded);
        let sets = (0..1_usize << members).map(|mask| {
            (0..members).filter(|at| mask & (1 << at) != 0).collect::<BTreeSet<usize>>()
        });
        // The one that is out is no loss.
        let may_be = |set: &BTreeSet<usize>| !(case.is_degraded && set.contains(&0));
        sets.filter(|set| set.len() <= most && may_be(set)).collect()
    }

    /// Start this state, read all, lose what may still be lost, read all.
    fn start(&mut self, case: &Case, chosen: &BTreeMap<u64, Fate>, lost: &BTreeSet<usize>) {
        let now = self.world.now();
        for (at, (drive_slot, disk)) in self.drive_slots.all.iter_mut().zip(&self.disks).enumerate()
        {
            drive_slot.disk.put_back(disk.clone());
            drive_slot.disk.settle(|number| chosen.get(&number).copied().unwrap_or(Fate::Whole));
            drive_slot.trouble = lost.contains(&at).then_some(Trouble::Absent);
            if lost.contains(&at) {
                drive_slot.disk.vanish();
            }
        }
        self.drive_slots.forget_suspicions();
        let further = further(case, lost, now.0);
        let (opener, stage, drive_slots) =
            (self.world.opener(), self.stage.clone(), &mut self.drive_slots);
        let outlook =
            Outlook { was_crash: true, was_degraded: case.is_degraded, ..Outlook::default() };
        self.world
            .run(async move |handle| {
                let running = assemble((opener, &handle), &stage, drive_slots, &outlook).await;
                audit::read_all(&running.engine, &stage).await;
                for at in further {
                    drive_slots.all[at].disk.vanish();
                }
                audit::read_all(&running.engine, &stage).await;
                judge_events(&running.engine, &stage);
            })
            .done();
        self.world.stop(Stop::Kill);
        self.stage.forget_story();
    }
}

/// Members to be lost after the start, up to the budget: others for each state.
fn further(case: &Case, lost: &BTreeSet<usize>, salt: u64) -> Vec<usize> {
    let gone = lost.len() + usize::from(case.is_degraded);
    let is_gone = |at: &usize| lost.contains(at) || (case.is_degraded && *at == 0);
    let mut left: Vec<usize> = (0..case.members()).filter(|at| !is_gone(at)).collect();
    Random::stream(salt, 3).shuffle(&mut left);
    left.truncate(case.parity.saturating_sub(gone));
    left
}
