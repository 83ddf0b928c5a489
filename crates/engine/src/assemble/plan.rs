//! Turns the judgement of a start into a plan: which device fills which slot in which state, and
//! the superblock that the start will write.
//!
//! What must stay true: planning writes nothing and asks no device. A slot is in sync only if the
//! judgement calls its member current. A device that was being filled continues from its
//! checkpoint, or from the beginning if no job names it.

use super::new_members::NewMember;
use super::{AssembleSpec, FoundDevice, Looked, foreign};
use crate::canary::{Canary, sings};
use crate::coordinator::record;
use crate::devices::{SlotDevice, Tags};
use crate::engine_state::EngineState;
use crate::error::Refusal;
use crate::member::SlotState;
use crate::read_only::WhyReadOnly;
use crate::spare::Spare;
use crate::spare_pages::NewestPlaces;
use crate::worker::Worker;
use ashlar_device::{Device, Opened};
use ashlar_layout::Geometry;
use ashlar_ondisk::assembly::{self, MemberReading, ReadLabel, Start, Verdict};
use ashlar_ondisk::{ConsistencyPolicy, ForcedActions, MemberEntry, MemberEvent, Role, Superblock};
use ashlar_units::StripeNo;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// Everything the start needs once the judgement is made.
#[derive(Clone)]
pub(super) struct Plan {
    /// The newest superblock, as it was found.
    pub(super) found: Superblock,
    /// The same with what the start itself changes.
    pub(super) superblock: Superblock,
    pub(super) geometry: Geometry,
    pub(super) slots: Vec<SlotPlan>,
    /// Why it is not to be written, if it is not. What the judgement says comes first: it holds
    /// whatever is asked.
    pub(super) read_only: Option<WhyReadOnly>,
    /// The operator accepts that blocks of missing members may be wrong where a crash left doubt.
    pub(super) accepts_doubt: bool,
    /// Regions that were dirty must not be trusted.
    pub(super) is_unclean: bool,
    /// The newest flush mark on any device, and the one that is known to be on all members in sync.
    pub(super) marks: (u64, u64),
    /// The newest flush mark on a member in sync.
    pub(super) mark_in_sync: u64,
    /// The logs say what was under way.
    pub(super) has_log: bool,
    /// What the operator accepts, of [`ForcedActions`].
    pub(super) forced: u64,
    /// In which place each device has the newest states of cells.
    pub(super) newest_places: NewestPlaces,
    /// What is the matter with the kept map, if it does not count and the operator accepts that.
    pub(super) lacks_kept_map: Option<&'static str>,
    /// Devices that carry a signature of somebody else, which the operator accepts.
    pub(super) reused: Vec<(Arc<dyn Opened>, MemberEntry)>,
    /// Members that the operator takes although they may lack writes.
    pub(super) may_lack: Vec<Uuid>,
    /// Members may have lost what was not flushed: no kept map counts.
    pub(super) is_as_after_power_cut: bool,
    /// The members that the array grows by from this start on.
    pub(super) new_members: Vec<NewMember>,
}

impl Plan {
    /// The operator accepts this, too.
    pub(super) fn force(&mut self, flags: u64) {
        self.forced |= flags;
        let generation = self.superblock.generation + 1;
        self.superblock.forced = self.superblock.forced.with(flags, generation);
    }

    /// Every device of the array that was found.
    pub(super) fn devices(&self, worker: &Worker) -> Vec<Rc<dyn Device>> {
        let all = self.slots.iter().flat_map(|slot| [&slot.current, &slot.replacement]);
        all.flatten().map(|filler| filler.opened.attach(&worker.handle)).collect()
    }

    /// The members whose maps count: those in sync, but for those that have only come.
    pub(super) fn sources(&self, worker: &Worker) -> Vec<SlotDevice> {
        let before = self.slots.iter().take(self.slots.len() - self.new_members.len());
        let current = before.filter(|slot| slot.state == Some(SlotState::InSync));
        current.filter_map(|slot| slot.current.as_ref()).map(|it| it.attach(worker)).collect()
    }

    /// The devices that are being filled, or have only come: their maps do not count yet, but will.
    pub(super) fn followers(&self, worker: &Worker) -> Vec<SlotDevice> {
        let is_filled = |slot: &&SlotPlan| slot.state == Some(SlotState::Rebuilding);
        let current = self.slots.iter().filter(is_filled).filter_map(|slot| slot.current.as_ref());
        let replacements = self.slots.iter().filter_map(|slot| slot.replacement.as_ref());
        let new_members = self.slots.iter().skip(self.slots.len() - self.new_members.len());
        let new_members = new_members.filter_map(|slot| slot.current.as_ref());
        current.chain(replacements).chain(new_members).map(|it| it.attach(worker)).collect()
    }
}

/// What fills a slot.
#[derive(Clone, Default)]
pub(super) struct SlotPlan {
    pub(super) state: Option<SlotState>,
    pub(super) current: Option<Filler>,
    pub(super) replacement: Option<Filler>,
    pub(super) rebuilt_below: StripeNo,
}

/// A device that was opened for a slot, and what the array calls it.
#[derive(Clone)]
pub(super) struct Filler {
    pub(super) opened: Arc<dyn Opened>,
    pub(super) tags: Tags,
}

impl Filler {
    fn attach(&self, worker: &Worker) -> SlotDevice {
        SlotDevice { device: self.opened.attach(&worker.handle), tags: self.tags }
    }
}

/// The plan of a start that the judgement allows.
///
/// # Errors
/// If there is no array of this geometry.
pub(super) fn plan(spec: &AssembleSpec, looked: &Looked, worker: &Worker) -> Result<Plan, Refusal> {
    let Looked { verdict, found, readings, .. } = looked;
    let mut superblock = verdict.newest.clone().expect("an array that may start has a superblock");
    name_in_the_log(&mut superblock, worker);
    let superblock = superblock;
    let geometry = superblock.geometry.to_layout().ok_or_else(|| {
        Refusal::new(
            "array.not_started",
            format!("array '{}' has an impossible geometry", superblock.array_name.as_str()),
            "look at its members with `ashlar examine`; nothing was written",
        )
    })?;
    let started = started(superblock.clone(), looked);
    let filler = |reading: Option<usize>, entry: &MemberEntry| {
        let entry = started.member(entry.uuid)?;
        let opened = Arc::clone(&found[reading?].opened);
        Some(Filler { opened, tags: Tags::of(&started, entry) })
    };
    let mut slots = Vec::new();
    for slot in &verdict.slots {
        let is_believed = slot.reading.is_some() && sings(Canary::StaleMemberTrusted);
        let is_current = slot.state == assembly::SlotState::Current || is_believed;
        let joining_device = slot.joining_device.as_ref();
        let joining_device = joining_device
            .and_then(|joining_device| filler(joining_device.reading, &joining_device.entry));
        let planned = match (is_current, joining_device) {
            (true, joining_device) => SlotPlan {
                state: Some(SlotState::InSync),
                current: slot.holder.and_then(|holder| filler(slot.reading, &holder)),
                replacement: joining_device,
                ..SlotPlan::default()
            },
            (false, Some(device)) => SlotPlan {
                state: Some(SlotState::Rebuilding),
                current: Some(device),
                rebuilt_below: slot
                    .joining_device
                    .and_then(|joining_device| started.job_of(joining_device.entry.uuid))
                    .map_or(StripeNo(0), |job| job.checkpoint),
                ..SlotPlan::default()
            },
            (false, None) => SlotPlan { state: Some(SlotState::Out), ..SlotPlan::default() },
        };
        slots.push(planned);
    }
    let is_logged = superblock.policy == ConsistencyPolicy::Log;
    Ok(Plan {
        read_only: match verdict.start {
            Start::ReadOnly(reason) => Some(WhyReadOnly::Judged(reason)),
            _ => spec.is_read_only.then_some(WhyReadOnly::Asked),
        },
        accepts_doubt: verdict.forced & ForcedActions::DIRTY_DEGRADED != 0,
        is_unclean: superblock.resync_dirty_regions || superblock.unclean && !is_logged,
        marks: (verdict.newest_mark, verdict.flushed),
        mark_in_sync: mark_in_sync(verdict, found),
        has_log: superblock.unclean && is_logged,
        forced: verdict.forced,
        newest_places: NewestPlaces::new(),
        lacks_kept_map: None,
        reused: foreign::accepted(verdict, found, readings),
        may_lack: may_lack(verdict, readings),
        is_as_after_power_cut: !looked.reappeared.is_empty(),
        new_members: Vec::new(),
        found: superblock.clone(),
        superblock: started,
        geometry,
        slots,
    })
}

fn may_lack(verdict: &Verdict, readings: &[MemberReading]) -> Vec<Uuid> {
    let own = verdict.may_be_older.iter().filter_map(|taken| readings[taken.reading].superblock());
    own.map(|own| own.member_uuid).collect()
}

fn mark_in_sync(verdict: &Verdict, found: &[FoundDevice]) -> u64 {
    let current = |slot: &&assembly::SlotVerdict| slot.state == assembly::SlotState::Current;
    let readings = verdict.slots.iter().filter(current).filter_map(|slot| slot.reading);
    readings.map(|reading| found[reading].mark).max().unwrap_or(0)
}

/// Members that are taken back from another run of the array get a name in its log.
fn name_in_the_log(superblock: &mut Superblock, worker: &Worker) {
    let has_log = superblock.policy == ConsistencyPolicy::Log;
    let is_nameless = |entry: &&mut MemberEntry| entry.role == Role::Active && entry.log_tag == 0;
    for entry in superblock.members.iter_mut().filter(|_| has_log).filter(is_nameless) {
        entry.log_tag = worker.draw_log_tag();
    }
}

/// The superblock of the start itself, but for its generation and incarnation: members that were
/// not found are lost, forced actions are recorded, and the serials that devices show now.
fn started(mut superblock: Superblock, Looked { verdict, readings, .. }: &Looked) -> Superblock {
    superblock.generation += 1;
    if verdict.forced & ForcedActions::SERIAL_CHANGED != 0 {
        record_serials(&mut superblock, verdict, readings);
    }
    for slot in &verdict.slots {
        let is_lost = slot.state == assembly::SlotState::Missing;
        if let Some(joining_device) =
            slot.joining_device.filter(|joining_device| joining_device.reading.is_none())
        {
            superblock
                .record(joining_device.entry.uuid, MemberEvent::Lost)
                .expect("it was on its way");
        }
        if let (true, Some(holder)) = (is_lost, slot.holder)
            && holder.role == Role::Active
        {
            // The device that was to replace it is to be rebuilt from the others now.
            record::mark_out(&mut superblock, slot.slot);
            let entry = superblock.members.iter_mut().find(|entry| entry.uuid == holder.uuid);
            entry.expect("it is listed").out_flushed = verdict.flushed;
        }
    }
    superblock.forced = superblock.forced.with(verdict.forced, superblock.generation);
    superblock.generation -= 1;
    superblock
}

/// What was accepted once holds from now on.
fn record_serials(superblock: &mut Superblock, verdict: &Verdict, readings: &[MemberReading]) {
    let taken = verdict.slots.iter().flat_map(|slot| {
        [slot.reading, slot.joining_device.and_then(|joining_device| joining_device.reading)]
    });
    for reading in taken.flatten().map(|at| &readings[at]) {
        let Some(own) = reading.superblock().map(|own| own.member_uuid) else { continue };
        let entry = superblock.members.iter_mut().find(|entry| entry.uuid == own);
        if let Some(entry) = entry.filter(|_| !reading.serial.is_empty()) {
            entry.serial = reading.serial;
        }
    }
}

/// Spares among the devices go on waiting in their pools.
pub(super) fn keep_spares(
    engine_state: &EngineState,
    readings: &[MemberReading],
    found: &[FoundDevice],
) {
    for (reading, found) in readings.iter().zip(found) {
        if let (ReadLabel::Spare(record), None) = (&reading.label, &reading.foreign) {
            let opened = Arc::clone(&found.opened);
            engine_state.spares.add(Spare { opened, record: *record });
        }
    }
}
