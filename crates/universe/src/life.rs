//! One life of a host: an engine is started, the array on its devices assembled, clients and a
//! director work, and it ends: with a clean stop, or because power or program are gone.
//!
//! What must stay true: within the budget the array starts, and starts for writing, unless the
//! contract says otherwise; a read-only start writes nothing.

use crate::audit;
use crate::client::{self, Who};
use crate::config::{Class, number};
use crate::damaged::{self, Believed};
use crate::director::{Director, TANK};
use crate::drive_slot::{DriveSlots, out_of_sync};
use crate::early::Early;
use crate::kept;
use crate::remnants;
use crate::replay;
use crate::rollback;
use crate::stage::{Stage, judge_time, seconds};
use crate::universe::draw_stop;
use ashlar_device::Opener;
use ashlar_engine::{
    Array, ArrayState, ArrayTuning, AssembleSpec, CreateSpec, Engine, EngineConfig, Runner,
    SilenceLimits, SlowLimits, event_names as names,
};
use ashlar_layout::Geometry;
use ashlar_ondisk::{ChecksumKind, EnclosureKind, EnclosureRecord};
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, Ended, Random, SimSwitch, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, StripIdx, StripeNo, to_usize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Virtual time in which everything must come to an end once faults have stopped.
pub(crate) const DEADLINE: Duration = Duration::from_secs(3600);
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What is known between two lives.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Outlook {
    /// The last life ended without a clean stop.
    pub(crate) was_crash: bool,
    /// When it crashed, members were missing.
    pub(crate) was_degraded: bool,
    /// When it ended, however that was, a resync was still owed.
    pub(crate) was_unsynced: bool,
    /// Generation of the superblocks when last looked at.
    pub(crate) generation: u64,
    /// There is nothing more to come.
    pub(crate) is_over: bool,
    /// More is damaged than parity replaces: requests may fail from the start on.
    pub(crate) is_beyond: bool,
    /// The last start was read-only.
    pub(crate) is_read_only: bool,
    /// The operator accepts what the last crash may have cost.
    pub(crate) accepts_doubt: bool,
}

/// How a start is to be cut off, besides what the switch was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartCut {
    /// All is read when it has started.
    pub(crate) reads: bool,
    /// It stops at the first device operation after that.
    pub(crate) after_reads: Option<Stop>,
}

pub(crate) struct Life<'w> {
    world: &'w mut SimWorld,
    stage: Stage,
    number: u64,
    generation: u64,
}

/// An array that runs, for whoever directs it.
pub(crate) struct Running {
    pub(crate) engine: Engine,
    pub(crate) array: Arc<Array>,
    pub(crate) is_read_only: bool,
}

impl Life<'_> {
    pub(crate) fn new<'w>(
        world: &'w mut SimWorld,
        stage: &Stage,
        number: u64,
        outlook: &Outlook,
    ) -> Life<'w> {
        Life { world, stage: stage.clone(), number, generation: outlook.generation }
    }

    /// Make the array. Where its data area begins, and its geometry; `None` if the host was
    /// stopped.
    pub(crate) fn create(self, slots: &DriveSlots, again: bool) -> Option<(u64, Geometry)> {
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let ended = self.world.run(async |handle| {
            let engine = engine(opener, &handle, &stage);
            let config = stage.config();
            let shape = config.created();
            let devices: Vec<String> = (0..shape.members).map(|at| format!("disk{at}")).collect();
            let mut known = remnants::known(slots);
            known.retain(|name| devices.contains(name));
            let has_domains = shape.declustered.is_some_and(|own| own.domain_members > 1);
            let listed = EnclosureRecord { kind: EnclosureKind::Listed, domains: 1 };
            let spec = CreateSpec {
                enclosures: has_domains.then_some(listed),
                name: TANK.to_owned(),
                destroy: Vec::new(),
                devices: devices.clone(),
                shape,
                policy: config.policy,
                atomic_write_bytes: config.stated_atomic_bytes,
                checksums: match config.has_checksums {
                    true => ChecksumKind::Crc32c,
                    false => ChecksumKind::None,
                },
                logical_block_bytes: config.logical_block_bytes,
                region_bytes: Some(config.stripe_bytes() * config.stripes_per_region),
                member_bytes: None,
                is_dry_run: false,
            };
            if let Some(carrier) = slots.all.iter().find(|it| known.contains(&it.name)) {
                let changes = carrier.disk.changes();
                let answer = engine.create(spec.clone()).await;
                remnants::was_refused(&stage, (&carrier.disk, changes), answer);
            }
            let destroy = if again { devices } else { known };
            match engine.create(CreateSpec { destroy, ..spec }).await {
                Ok(report) => (report.data_offset, report.geometry),
                Err(refusal) => stage.fail(format!("creation was refused: {refusal}")),
            }
        });
        match ended {
            Ended::Done(made) => Some(made),
            Ended::Stopped(_) => None,
        }
    }

    /// Only start, with a stop on its way. True if it was stopped before it had started.
    pub(crate) fn only_start(
        mut self,
        drive_slots: &mut DriveSlots,
        outlook: &Outlook,
        StartCut { reads, after_reads }: StartCut,
    ) -> bool {
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let switch = self.world.switch();
        stage.say(|| format!("life {}: a start that may be cut", self.number));
        let ended = self.world.run(async |handle| {
            drive_slots.speak_some_day(&handle);
            let running = assemble((opener, &handle), &stage, drive_slots, outlook).await;
            if reads {
                // What was read stays, whatever comes next.
                audit::read_all(&running.engine, &stage).await;
            }
            if let Some(stop) = after_reads {
                switch.stop_after(1, stop);
            }
            // The stop may come a little later: jobs run.
            handle.sleep(Duration::from_millis(200)).await;
            stop((&running.engine, &handle), &stage).await
        });
        match ended {
            Ended::Stopped(stop) => {
                self.stage.say(|| format!("{stop:?} during the start"));
                self.stage.crashed(stop, drive_slots.has_unseen());
                true
            }
            Ended::Done(_) => {
                self.exit();
                self.stage.ledger().stopped();
                false
            }
        }
    }

    /// A life of clients and acts. Others are to follow: `later` of them. If it is cut off, then
    /// mostly in `place`, at one of so many writes there.
    pub(crate) fn live(
        self,
        drive_slots: &mut DriveSlots,
        outlook: Outlook,
        (later, place, random): (usize, Option<(Extent, u64)>, &mut Random),
    ) -> Outlook {
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let end = draw_end(random, stage.config().class, (later, place));
        let switch = self.world.switch();
        if stage.config().class == Class::Everything {
            end.arm(&switch);
        }
        stage.say(|| format!("life {}, to end by {end:?}", self.number));
        let life = self.number;
        stage.set_array(None);
        let ended = self.world.run(async |handle| {
            drive_slots.speak_some_day(&handle);
            let running = assemble((opener, &handle), &stage, drive_slots, &outlook).await;
            let floor = stage.requests_left() * later / (later + 1);
            let is_calm = stage.config().class == Class::Losses && later == 0;
            let mut director = Director {
                stage: stage.clone(),
                engine: running.engine.clone(),
                handle: handle.clone(),
                random: Random::stream(stage.config().seed, 0xAC00 + life),
                drive_slots: &mut *drive_slots,
                array: Arc::clone(&running.array),
                is_resyncing: false,
                is_calm,
            };
            // What was lost together with a crash, beyond the contract, does not come back.
            let may_begin_whole = !running.is_read_only && !stage.errors_are_allowed();
            let begins_whole = stage.config().cuts.begins_whole && may_begin_whole;
            if begins_whole {
                director.heal_devices();
            }
            if (is_calm || begins_whole) && !running.is_read_only {
                director.make_whole().await;
            }
            if begins_whole {
                director.drive_slots.forget_suspicions();
            }
            rollback::copy_some_day(&stage, &handle, (director.drive_slots, life));
            begin_clients(&running, &stage, (life, floor)).await;
            if running.is_read_only {
                await_clients(&stage, &handle).await;
                return LifeEnd::ReadOnly;
            }
            director.direct(12 + random.below(18)).await;
            if end.is_cut() && stage.config().class != Class::Everything {
                if stage.config().class == Class::Crashes || is_calm {
                    director.await_calm().await;
                }
                end.arm(&switch);
            }
            await_clients(&stage, &handle).await;
            if matches!(end, End::Stop) {
                judge_events(&running.engine, &stage);
                return LifeEnd::Stopped(stop_clean((&running.engine, &handle), &stage).await);
            }
            judge_events(&running.engine, &stage);
            LifeEnd::Cut
        });
        let seen = self.stage.array();
        self.conclude(ended, (end, seen), drive_slots, outlook)
    }

    fn conclude(
        mut self,
        ended: Ended<LifeEnd>,
        (end, array): (End, Option<Arc<Array>>),
        drive_slots: &mut DriveSlots,
        outlook: Outlook,
    ) -> Outlook {
        let stop = match (&ended, end) {
            (Ended::Stopped(stop), _) => Some(*stop),
            (Ended::Done(LifeEnd::Cut), End::CutAfter { stop, .. } | End::CutAt { stop, .. }) => {
                self.world.call_off();
                self.world.stop(stop);
                Some(stop)
            }
            _ => None,
        };
        self.world.call_off();
        self.stage.forget_clients();
        self.stage.ledger().recall();
        let was_degraded = array.as_ref().is_some_and(|array| out_of_sync(array).contains(&true))
            || array.is_none();
        if let Some(stop) = stop {
            self.stage.say(|| format!("{stop:?}"));
            self.stage.mark(if stop == Stop::PowerCut { "crash.power" } else { "crash.kill" });
            if was_degraded {
                self.stage.mark("crash.degraded");
            }
            for job in array.iter().flat_map(|array| array.running_jobs()) {
                self.stage.mark(&format!("crash.during_{}", job.kind.name()));
            }
            self.note_cut_growth(drive_slots);
            if stop == Stop::Kill {
                drive_slots.note_unseen(array.as_ref().map(|array| array.slot_states()).as_deref());
            }
            self.stage.crashed(stop, drive_slots.has_unseen());
        }
        if stop.is_none() {
            self.exit();
            match ended {
                Ended::Done(LifeEnd::Stopped(true)) => self.stage.ledger().stopped(),
                _ => {
                    drive_slots
                        .note_unseen(array.as_ref().map(|array| array.slot_states()).as_deref());
                    self.stage.crashed(Stop::Kill, drive_slots.has_unseen());
                }
            }
        }
        let generation = audit::generation(&self.stage, drive_slots, self.generation);
        Outlook {
            was_crash: !matches!(ended, Ended::Done(LifeEnd::Stopped(true))),
            was_degraded: was_degraded || (outlook.was_crash && array.is_none()),
            was_unsynced: array
                .as_ref()
                .map_or(outlook.was_unsynced, |array| array.unsynced_regions() > 0),
            generation,
            // What was lost together with a crash does not come back: there is nothing to heal.
            is_over: self.stage.errors_are_allowed(),
            is_beyond: false,
            is_read_only: matches!(ended, Ended::Done(LifeEnd::ReadOnly)),
            accepts_doubt: false,
        }
    }

    /// Where a crash met the command for a growth.
    fn note_cut_growth(&self, drive_slots: &DriveSlots) {
        drive_slots.absent_are_gone();
        let Some(before) = self.stage.growth_begins(None) else { return };
        let rest = drive_slots.at_rest();
        let has_begun = rest.is_some_and(|rest| usize::from(rest.newest.geometry.slots()) > before);
        self.stage.mark(match has_begun {
            true => "crash.as_a_growth_had_begun",
            false => "crash.before_a_growth_had_begun",
        });
    }

    /// The program ends, as a daemon does after it has stopped its arrays: whatever it still had
    /// open is let go.
    fn exit(&mut self) {
        self.world.stop(Stop::Kill);
    }

    /// Nothing is wrong any more: everything must come back to a whole and clean array. `None`: a
    /// crash left a doubt that the operator has to accept first.
    pub(crate) fn heal(
        mut self,
        drive_slots: &mut DriveSlots,
        outlook: Outlook,
    ) -> Option<Outlook> {
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        if let Some(rest) = drive_slots.at_rest() {
            drive_slots.adopt(&rest);
        }
        let ended = self.world.run(async |handle| {
            drive_slots.speak_some_day(&handle);
            let running = assemble((opener, &handle), &stage, drive_slots, &outlook).await;
            if running.is_read_only {
                return false;
            }
            let mut director = Director {
                stage: stage.clone(),
                engine: running.engine.clone(),
                handle: handle.clone(),
                random: Random::stream(stage.config().seed, 0xAC99),
                drive_slots: &mut *drive_slots,
                array: Arc::clone(&running.array),
                is_resyncing: false,
                is_calm: true,
            };
            let damaged = damaged::on_members(director.drive_slots, &running.array);
            let (is_restored, may_fail) = (director.make_whole().await, stage.errors_are_allowed());
            if is_restored {
                // Nothing is in doubt any more.
                stage.allow_errors(outlook.is_beyond);
            }
            audit::read_all(&running.engine, &stage).await;
            director.scrub_clean().await;
            stage.allow_errors(may_fail);
            judge_events(&running.engine, &stage);
            damaged::were_named(&running.engine, &stage, (director.drive_slots, &damaged));
            if !stop((&running.engine, &handle), &stage).await {
                stage.fail("a healthy array could not be stopped cleanly");
            }
            true
        });
        let is_whole = ended.done();
        self.exit();
        if !is_whole {
            if outlook.accepts_doubt {
                self.stage.fail("the array is read-only although its operator accepts the doubt");
            }
            self.stage.crashed(Stop::Kill, false);
            return None;
        }
        self.stage.ledger().stopped();
        let generation = audit::generation(&self.stage, drive_slots, self.generation);
        Some(Outlook { generation, ..Outlook::default() })
    }

    /// Start once more, read everything, lose what may be lost, read everything.
    pub(crate) fn look_again(self, drive_slots: &mut DriveSlots) {
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let outlook = Outlook { generation: self.generation, ..Outlook::default() };
        let mut random = Random::stream(stage.config().seed, 0xAC9A);
        self.world
            .run(async |handle| {
                let running = assemble((opener, &handle), &stage, drive_slots, &outlook).await;
                audit::read_all(&running.engine, &stage).await;
                audit::read_with_losses(&running.engine, &stage, drive_slots, &mut random).await;
                judge_events(&running.engine, &stage);
            })
            .done();
    }
}

/// How a life is to end.
#[derive(Clone, Copy, Debug)]
enum End {
    Stop,
    CutAfter {
        stop: Stop,
        operations: u64,
    },
    /// At one of the writes there.
    CutAt {
        stop: Stop,
        place: Extent,
        writes: u64,
    },
}

impl End {
    fn is_cut(self) -> bool {
        !matches!(self, End::Stop)
    }

    fn arm(self, switch: &SimSwitch) {
        match self {
            End::Stop => {}
            End::CutAfter { stop, operations } => switch.stop_after(operations, stop),
            End::CutAt { stop, place, writes } => switch.stop_at_write_in(place, writes, stop),
        }
    }
}

/// How it ended.
enum LifeEnd {
    /// Told to stop; whether that was recorded on the members.
    Stopped(bool),
    /// It is to be cut off now.
    Cut,
    /// Nothing can be written to it any more.
    ReadOnly,
}

fn draw_end(
    random: &mut Random,
    class: Class,
    (later, place): (usize, Option<(Extent, u64)>),
) -> End {
    let end = draw_end_anywhere(random, class, later);
    match (end, place) {
        (End::CutAfter { stop, .. }, Some((place, writes))) if random.percent(70) => {
            End::CutAt { stop, place, writes: 1 + random.below(writes) }
        }
        _ => end,
    }
}

fn draw_end_anywhere(random: &mut Random, class: Class, later: usize) -> End {
    let stop = draw_stop(random);
    let magnitude = 3 + random.below(10);
    let operations = 1 + random.below(1 << magnitude);
    let is_cut = random.percent(70);
    match class {
        // None of them ends without having been cut off once.
        Class::Everything | Class::Crashes if is_cut || later == 0 => {
            End::CutAfter { stop, operations }
        }
        Class::Losses if later == 0 => End::CutAfter { stop, operations },
        Class::LossesThenCrash if later == 1 => End::CutAfter { stop, operations },
        _ => End::Stop,
    }
}

pub(crate) fn engine(opener: ashlar_sim::SimOpener, handle: &Handle, stage: &Stage) -> Engine {
    engine_of((Arc::new(opener), None), handle, stage)
}

/// An engine that opens devices so, and says on members that this process runs their array.
pub(crate) fn engine_of(
    (opener, runner): (Arc<dyn Opener>, Option<Runner>),
    handle: &Handle,
    stage: &Stage,
) -> Engine {
    let config = EngineConfig {
        worker_count: stage.config().workers,
        payload_bytes: 4 << 20,
        wall_clock_s: || 1_700_000_000,
        tuning: ArrayTuning {
            pass_discards: stage.config().passes_discards,
            silence: silence(stage),
            slow: slow(stage),
            ..ArrayTuning::default()
        },
        runner,
        kept_memory: stage.memory().map(kept::of),
        ..EngineConfig::new(opener)
    };
    let config = match stage.prober() {
        None => config,
        Some(prober) => {
            EngineConfig { signatures: Some(prober.signatures()), wiper: prober.wiper(), ..config }
        }
    };
    match Engine::on_executor(config, handle) {
        Ok(engine) => engine,
        Err(error) => stage.fail(format!("no memory for an engine: {error}")),
    }
}

/// A universe lasts seconds: a few slow commands are enough.
fn slow(stage: &Stage) -> SlowLimits {
    SlowLimits {
        reaction: stage.config().slow,
        floor: Duration::from_micros(500),
        after: Duration::from_millis(120),
        commands_min: 1,
        ..SlowLimits::default()
    }
}

/// Devices that take seconds to answer anything are not silent.
fn silence(stage: &Stage) -> SilenceLimits {
    let is_slow = |disk: &DiskOptions| *disk.latency.read.end() > Duration::from_secs(2);
    let seconds = if stage.config().disks.iter().any(is_slow) { 60 } else { 5 };
    SilenceLimits { flash: Duration::from_secs(seconds), ..SilenceLimits::default() }
}

pub(crate) async fn assemble(
    (opener, handle): (ashlar_sim::SimOpener, &Handle),
    stage: &Stage,
    drive_slots: &mut DriveSlots,
    outlook: &Outlook,
) -> Running {
    drive_slots.make_room();
    drive_slots.go_on();
    let engine = engine(opener, handle, stage);
    let devices = drive_slots.names();
    assemble_on((engine, devices), handle, stage, (drive_slots, outlook)).await
}

/// Start the array on an engine, by these names of its devices.
pub(crate) async fn assemble_on(
    (engine, devices): (Engine, Vec<String>),
    handle: &Handle,
    stage: &Stage,
    slots: (&mut DriveSlots, &Outlook),
) -> Running {
    let mut spec = AssembleSpec { devices, ..AssembleSpec::default() };
    spec.request.accept_dirty_degraded = slots.1.accepts_doubt;
    assemble_as((engine, spec), handle, stage, slots).await
}

/// The same, with what the operator forces.
pub(crate) async fn assemble_as(
    (engine, spec): (Engine, AssembleSpec),
    handle: &Handle,
    stage: &Stage,
    (drive_slots, outlook): (&mut DriveSlots, &Outlook),
) -> Running {
    stage.set_array(None);
    stage.follow(Some(&engine));
    let changes = |drive_slots: &DriveSlots| -> u64 {
        drive_slots.all.iter().map(|drive_slot| drive_slot.disk.changes()).sum()
    };
    let before = changes(drive_slots);
    let missing = drive_slots
        .all
        .iter()
        .any(|drive_slot| drive_slot.slot.is_some() && drive_slot.trouble.is_some());
    drive_slots.note_start(stage.config());
    let damaged = drive_slots.damaged_blocks(stage.config());
    let early = Early::begin(&engine, stage, false);
    if let Err(refusal) = engine.assemble(spec).await {
        stage.fail(format!("the array does not start within the budget: {refusal}"));
    }
    let Ok(array) = engine.array(TANK) else { stage.fail("the array that started is not there") };
    stage.set_array(Some(&array));
    let status = match engine.status().await {
        Ok(mut status) => status.arrays.remove(0),
        Err(refusal) => stage.fail(format!("no status: {refusal}")),
    };
    note_uncertain(stage, &array, &drive_slots.unread_at_starts(), &damaged);
    early.end();
    if outlook.accepts_doubt {
        note_accepted(stage, &array);
    }
    let is_read_only = status.state == ArrayState::ReadOnly;
    stage.say(|| {
        let states: Vec<&str> = array.slot_states().iter().map(|state| state.word()).collect();
        format!("{} started, {:?}: {}", seconds(handle), status.state, states.join(", "))
    });
    if status.state == ArrayState::Failed {
        stage.fail("the array started as failed within the budget");
    }
    if is_read_only {
        audit::read_only(stage, &status, outlook, missing);
        if changes(drive_slots) != before {
            stage.fail("a read-only start changed a device");
        }
    }
    // Where a crash came together with unreadable sectors, or a device in trouble does not outlive
    // the resync, some blocks have no parity that can be trusted.
    let is_broken =
        drive_slots.all.iter().any(|drive_slot| drive_slot.disk.unreadable_sectors() > 0);
    let contract = stage.config().contract;
    let is_loss = is_broken || missing;
    let is_uncertain = outlook.was_crash || outlook.was_unsynced;
    let may_fail = is_loss && is_uncertain && !contract.survives_losses_with_crash;
    stage.allow_errors(is_read_only || may_fail || outlook.is_beyond);
    handle.spawn(judge_time(handle.clone(), stage.clone(), Arc::clone(&array)));
    early.judge(handle, stage).await;
    stage.forget_unseen(drive_slots, is_read_only);
    stage.mark("start.done");
    if outlook.was_crash {
        stage.mark("start.after_a_crash");
    }
    if out_of_sync(&array).contains(&true) {
        stage.mark("start.degraded");
        if outlook.was_crash && !is_read_only {
            stage.mark("start.degraded_after_a_crash");
        }
    }
    Running { engine, array, is_read_only }
}

/// Blocks of whole stripes that were under way at a crash, on members that are not there, or could
/// not be read.
fn note_uncertain(
    stage: &Stage,
    array: &Array,
    unreadable: &BTreeSet<(StripeNo, StripIdx)>,
    damaged: &BTreeSet<(StripeNo, StripIdx, u64)>,
) {
    let (config, geometry) = (stage.config(), array.geometry());
    let out = out_of_sync(array);
    let is_gone = |stripe: StripeNo, strip: StripIdx| {
        out[geometry.place(geometry.stripe(stripe), strip).member.at()]
            || unreadable.contains(&(stripe, strip))
    };
    let place = |unit: u64| {
        let at = stage.place(Extent::new(unit * config.unit_bytes, config.unit_bytes)).offset;
        let (stripe, within) = (at / config.stripe_bytes(), at % config.stripe_bytes());
        let strip = StripIdx::from_at(to_usize(within / geometry.strip_bytes()));
        let row = within % geometry.strip_bytes() / BLOCK_BYTES;
        (StripeNo(stripe), strip, row)
    };
    let is_lost = |unit: u64| {
        let (stripe, strip, _) = place(unit);
        is_gone(stripe, strip)
    };
    if !damaged.is_empty() {
        let rows = damaged::believed((stage, geometry), damaged, is_gone);
        // What such a row holds is believed, and what its lost members held is decoded from that.
        let is_believed = |unit: u64| {
            let (stripe, strip, row) = place(unit);
            match rows.get(&(stripe, row)) {
                Some(Believed::All) => true,
                Some(Believed::Damaged) => {
                    damaged.contains(&(stripe, strip, row)) || is_gone(stripe, strip)
                }
                None => false,
            }
        };
        let believed = stage.ledger().taken_as_found(is_believed);
        stage.marks().add("uncertain.damaged", believed);
    }
    let lost = stage.ledger().started(is_lost);
    stage.marks().add("uncertain.on_a_lost_member", lost);
}

/// The operator accepts what blocks of members may be that are not there.
fn note_accepted(stage: &Stage, array: &Array) {
    let (config, geometry, out) = (stage.config(), array.geometry(), out_of_sync(array));
    let is_lost = |unit: u64| {
        let at = stage.place(Extent::new(unit * config.unit_bytes, config.unit_bytes)).offset;
        let (stripe, within) = (at / config.stripe_bytes(), at % config.stripe_bytes());
        let strip = StripIdx::from_at(to_usize(within / geometry.strip_bytes()));
        out[geometry.place(geometry.stripe(StripeNo(stripe)), strip).member.at()]
    };
    let accepted = stage.ledger().accepted(is_lost);
    stage.marks().add("uncertain.accepted", accepted);
    stage.mark("start.accepted_dirty_degraded");
}

async fn begin_clients(running: &Running, stage: &Stage, (life, floor): (u64, usize)) {
    let workers = stage.config().workers;
    let again = replay::resume(stage);
    for (at, profile) in stage.config().clients.iter().copied().enumerate() {
        let own = stage.clone();
        let who = Who { number: at, profile, floor, life };
        let again = again.get(&at).copied();
        let spawn = async move |volume: ashlar_engine::ArrayVolume| {
            volume.handle().clone().spawn(client::run(volume, own, who, again));
        };
        if let Err(refusal) = running.engine.with_volume(at % workers, TANK, spawn).await {
            stage.fail(format!("no volume: {refusal}"));
        }
    }
}

/// Wait until the clients have no more to do.
async fn await_clients(stage: &Stage, handle: &Handle) {
    let began = handle.now();
    handle.sleep(LOOK_EVERY).await;
    while stage.clients() > 0 {
        if handle.now().since(began) > DEADLINE {
            stage.fail("client requests do not end within an hour of virtual time");
        }
        handle.sleep(LOOK_EVERY).await;
    }
}

async fn stop_clean(engine: (&Engine, &Handle), stage: &Stage) -> bool {
    let is_clean = stop(engine, stage).await;
    stage.mark(if is_clean { "stop.clean" } else { "stop.unclean" });
    is_clean
}

pub(crate) async fn stop((engine, handle): (&Engine, &Handle), stage: &Stage) -> bool {
    match engine.stop(TANK).await {
        Ok(_) => {
            // A slow device may still have the buffer of a read that was given up on.
            handle.sleep(Duration::from_secs(5)).await;
            nothing_leaks(engine, stage).await;
            true
        }
        Err(refusal) if refusal.code == "array.stopped_unclean" => false,
        Err(refusal) => stage.fail(format!("the array does not stop: {refusal}")),
    }
}

/// The array is stopped and no client has a buffer: all of them are back in their pools, and
/// nothing is under way.
async fn nothing_leaks(engine: &Engine, stage: &Stage) {
    let Ok(status) = engine.status().await else { return };
    if stage.clients() > 0 {
        return;
    }
    for pool in &status.pools {
        let out: usize = pool.usage.classes.iter().map(|class| class.in_use).sum();
        if out > 0 {
            stage.fail(format!("{out} buffers of {} are out after a clean stop", pool.name));
        }
    }
    if let Some(busy) = status.workers.iter().find(|worker| worker.in_flight > 0) {
        stage.fail(format!("worker {} has work under way after a clean stop", busy.worker));
    }
    stage.mark("stop.nothing_leaks");
}

/// What must not have happened within the budget; what has happened is counted.
pub(crate) fn judge_events(engine: &Engine, stage: &Stage) {
    for event in engine.events().since(0) {
        let field = |wanted: &str| event.fields.iter().find(|(name, _)| *name == wanted);
        match field("job").or_else(|| field("role")) {
            Some((_, kind)) => stage.mark(&format!("{} ({kind})", event.name)),
            None => stage.mark(event.name),
        }
        if event.name == names::LOG_REPLAYED {
            for (name, value) in &event.fields {
                stage.marks().add(&format!("replay.{name}"), value.parse().unwrap_or(0));
            }
        }
        if event.name == names::MEMBER_CHECKSUM_MISMATCH
            && let Some((_, path)) = field("path")
            && !stage.is_liar(path)
        {
            stage.fail(format!("{path} is blamed for what it did not do: {:?}", event.fields));
        }
        if event.name == names::MEMBER_FAILED
            && let (Some((_, path)), Some((_, reason))) = (field("path"), field("reason"))
            && reason.starts_with("it did not answer")
            // A device that is being filled may go: only its copy begins anew.
            && field("role").is_none()
            && !stage.was_silent(path)
        {
            stage.fail(format!("put out though all stood still: {:?}", event.fields));
        }
        let is_wrong =
            [names::BLOCK_LOST, names::SCRUB_MISMATCH, names::ARRAY_FAILED].contains(&event.name);
        // A command that is refused is said as if the array had failed.
        let is_refusal =
            event.fields.iter().any(|(_, value)| value.as_str() == "put out by the operator");
        if is_wrong && !is_refusal && !stage.errors_are_allowed() {
            stage.fail(format!("{} within the budget: {:?}", event.name, event.fields));
        }
    }
    if let Ok(array) = engine.array(TANK) {
        let counts = array.counts();
        for (name, value) in counts.fields() {
            if value > 0 {
                stage.marks().add(&format!("count.{name}"), value);
            }
        }
    }
}

/// Stripes in the window.
pub(crate) fn window_stripes(stage: &Stage) -> std::ops::Range<u64> {
    let (first, count) = stage.config().window;
    first..first + count.max(number(1))
}
