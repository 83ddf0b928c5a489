//! An array on one worker: its devices, row locks and stripe buffers.
//!
//! What must stay true: only the worker's own thread touches this. A slot's device is here exactly
//! while the slot's state allows its use. A replacement gets every write that the slot's own device
//! gets, so that it can take over at any moment below its copied point.

use crate::array::{Array, LocalCounters};
use crate::coordinator::state::Coordinator;
use crate::datapath::streams::Merging;
use crate::devices::{SlotDevice, SlotDevices};
use crate::limits::Turns;
use crate::log::Log;
use crate::metrics::{ArrayCounters, MemberTally, StageLatencies};
use crate::pools::Pools;
use crate::scratch::Scratch;
use crate::slot::{DeviceEpoch, MemberDevice};
use crate::stripe::lock::RowLocks;
use crate::watch::wake::Watch;
use crate::worker::Worker;
use ashlar_device::{Command, Device, Outcome};
use ashlar_layout::{LayoutEpoch, Stripe};
use ashlar_parity::{DecodePlan, Locality};
use ashlar_ring::{Completion, Pending};
use ashlar_units::{MemberIdx, StripIdx, StripSet};
use ashlar_volume::VolumeFacts;
use smallvec::SmallVec;
use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// An array's share on one worker.
pub(crate) struct LocalArray {
    pub(crate) worker: Rc<Worker>,
    pub(crate) array: Arc<Array>,
    counters: Arc<LocalCounters>,
    pub(crate) locks: RowLocks,
    pub(crate) scratch: Scratch,
    pub(crate) pools: Pools,
    pub(crate) facts: VolumeFacts,
    pub(crate) merging: Merging,
    /// Who waits for a limit of the volume.
    pub(crate) turns: Turns,
    /// Requests and jobs under way here; the array stops when all workers' are zero.
    pub(crate) under_way: Cell<usize>,
    /// Pieces of them that change stripes, in stripe tasks.
    pub(crate) changes_under_way: Cell<usize>,
    /// Sees to it that no command is waited for without end.
    pub(crate) watch: Rc<Watch>,
    slots: RefCell<Vec<LocalSlot>>,
    /// Slots whose device is being replaced.
    replaced: Cell<usize>,
    log: Option<Log>,
    mirror_turn: Cell<u64>,
    writes_begun: Cell<u64>,
    /// Awaited writes, some of which are timed.
    pub(crate) writes_awaited: Cell<u64>,
    /// Reads that could go around a slow member.
    pub(crate) reads_around: Cell<u64>,
    decode_plans: RefCell<Vec<Rc<CachedPlan>>>,
    /// There on the coordinator only.
    coordinator: OnceCell<Coordinator>,
}

/// A slot as far as this worker knows.
struct LocalSlot {
    devices: SlotDevices,
    /// Device epochs of the slot's device and of its replacement.
    device_epochs: (DeviceEpoch, DeviceEpoch),
    /// The slot's device carries commands out within the call.
    runs_now: bool,
}

impl LocalSlot {
    /// Of an array that starts.
    fn first(devices: SlotDevices) -> LocalSlot {
        let device_epochs = (DeviceEpoch::FIRST, DeviceEpoch::FIRST_REPLACEMENT);
        let runs_now = runs_now(&devices);
        LocalSlot { devices, device_epochs, runs_now }
    }
}

fn runs_now(devices: &SlotDevices) -> bool {
    devices.current.as_ref().is_some_and(|current| current.device.runs_now())
}

/// Starts commands on the devices of slots.
pub(crate) struct Starter<'l> {
    slots: Ref<'l, Vec<LocalSlot>>,
}

impl Starter<'_> {
    /// Start a command on a slot's device, to be answered by `done`: which of the slot's devices it
    /// goes to. `None` if the slot has no device any more: then `done` is dropped.
    #[inline]
    pub(crate) fn start(
        &self,
        member: MemberIdx,
        offset: u64,
        command: Command,
        done: Completion<Outcome>,
    ) -> Option<MemberDevice> {
        let LocalSlot { devices, device_epochs, .. } = &self.slots[member.at()];
        let current = devices.current.as_ref()?;
        current.device.submit(offset, command, done);
        Some(MemberDevice { member, device_epoch: device_epochs.0 })
    }
}

/// A decode plan and what it is for.
pub(crate) struct CachedPlan {
    epoch: LayoutEpoch,
    survivors: StripSet,
    wanted: StripSet,
    plan: DecodePlan,
}

impl CachedPlan {
    /// Compute the wanted strips, or the same rows of each, into `targets`, in rising order.
    /// `source` has those rows of each survivor.
    ///
    /// # Panics
    /// Unless there is a target for each wanted strip and all slices have one length.
    pub(crate) fn run<'a>(&self, source: impl Fn(StripIdx) -> &'a [u8], targets: &mut [&mut [u8]]) {
        let sources: SmallVec<[&[u8]; 24]> = self.plan.sources().iter().map(source).collect();
        let decoded = self.plan.run(&sources, targets, Locality::Cached);
        decoded.expect("a slice for each strip, all of the same rows");
    }
}

/// Decode plans kept: one missing member needs one plan for each strip it can hold.
const DECODE_PLANS_MAX: usize = 128;

/// Stripe buffers that one array may take on one worker beyond the minimum, bytes.
const SCRATCH_TARGET_BYTES: usize = 24 << 20;

/// The same for this array. Cells of a declustered array are filled on all members side by side:
/// all workers together have buffers for each set of members that holds a stripe.
fn scratch_target(array: &Array, width: usize) -> usize {
    let workers = array.counters.len();
    let side_by_side = array.spare_cells.as_ref().map_or(1, |_| array.slots.len() / width);
    SCRATCH_TARGET_BYTES * side_by_side.div_ceil(workers).max(1)
}

impl LocalArray {
    pub(crate) fn new(
        worker: &Rc<Worker>,
        array: &Arc<Array>,
        devices: Vec<SlotDevices>,
    ) -> io::Result<Rc<LocalArray>> {
        let strip_bytes = ashlar_units::to_usize(array.layouts.strip_bytes_max());
        let width = array.layouts.stripe_width_max();
        for (at, devices) in devices.iter().enumerate() {
            note_device(array, MemberIdx::from_at(at), devices);
        }
        let watch = Watch::new();
        let outcomes = worker.outcomes.clone();
        let log = Log::new(worker.index, &worker.handle, outcomes, array, &watch)?;
        if let Some(log) = &log {
            for (at, devices) in devices.iter().enumerate() {
                log.set_devices(MemberIdx::from_at(at), devices);
            }
        }
        Ok(Rc::new(LocalArray {
            worker: Rc::clone(worker),
            array: Arc::clone(array),
            counters: Arc::clone(&array.counters[worker.index]),
            locks: RowLocks::default(),
            scratch: Scratch::new(width, strip_bytes, scratch_target(array, width))?,
            facts: facts_of(array, &devices),
            merging: Merging::new(array.tuning.get().merge_wait_max),
            turns: Turns::default(),
            pools: Pools::default(),
            under_way: Cell::new(0),
            changes_under_way: Cell::new(0),
            watch,
            replaced: Cell::new(devices.iter().filter(|it| it.replacement.is_some()).count()),
            slots: RefCell::new(devices.into_iter().map(LocalSlot::first).collect()),
            log,
            mirror_turn: Cell::new(0),
            writes_begun: Cell::new(0),
            writes_awaited: Cell::new(0),
            reads_around: Cell::new(0),
            decode_plans: RefCell::default(),
            coordinator: OnceCell::new(),
        }))
    }

    /// Make this the coordinator's share.
    ///
    /// # Panics
    /// If it was made that before.
    pub(crate) fn set_coordinator(&self, coordinator: Coordinator) {
        assert!(self.coordinator.set(coordinator).is_ok(), "an array has one coordinator");
    }

    /// What only the coordinator keeps.
    ///
    /// # Panics
    /// On any other worker: callers come here by `on_coordinator`.
    pub(crate) fn coordinator(&self) -> &Coordinator {
        self.coordinator.get().expect("only asked on the coordinator")
    }

    /// The same where it may be asked too early, or on another worker.
    pub(crate) fn try_coordinator(&self) -> Option<&Coordinator> {
        self.coordinator.get()
    }

    /// The stripe intent log, if the array has one and this worker owns stripes.
    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    /// The plan that computes `wanted` from `survivors`; computed once and kept.
    pub(crate) fn decode_plan(
        &self,
        stripe: Stripe,
        survivors: StripSet,
        wanted: StripSet,
    ) -> Rc<CachedPlan> {
        let mut plans = self.decode_plans.borrow_mut();
        let key = (stripe.epoch(), survivors, wanted);
        let is_it =
            |cached: &&Rc<CachedPlan>| (cached.epoch, cached.survivors, cached.wanted) == key;
        if let Some(cached) = plans.iter().find(is_it) {
            return Rc::clone(cached);
        }
        let plan = DecodePlan::new(&self.array.layout_of(stripe).code, survivors, wanted)
            .expect("plans name enough survivors");
        let cached = Rc::new(CachedPlan { epoch: stripe.epoch(), survivors, wanted, plan });
        if plans.len() == DECODE_PLANS_MAX {
            plans.remove(0);
        }
        plans.push(Rc::clone(&cached));
        cached
    }

    /// What this worker counts for the array.
    #[inline]
    pub(crate) fn counters(&self) -> &LocalCounters {
        &self.counters
    }

    #[inline]
    pub(crate) fn counts(&self) -> &ArrayCounters {
        &self.counters().counts
    }

    /// What a slot's devices do for this worker.
    #[inline]
    pub(crate) fn tally(&self, member: MemberIdx) -> &MemberTally {
        &self.counters().members[member.at()]
    }

    /// A write or a flush failed: it counts against its device, unless that has left the slot.
    pub(crate) fn count_write_error(&self, device: MemberDevice) {
        if self.array.slot(device.member).device_epoch() == device.device_epoch {
            self.tally(device.member).counters.write_errors.add(1);
        }
    }

    /// The device in a slot, if there is one.
    pub(crate) fn device(&self, member: MemberIdx) -> Option<Rc<dyn Device>> {
        let slots = self.slots.borrow();
        slots[member.at()].devices.current.as_ref().map(|current| Rc::clone(&current.device))
    }

    /// The device that is being filled to take the slot's place.
    pub(crate) fn replacement(&self, member: MemberIdx) -> Option<Rc<dyn Device>> {
        let slots = self.slots.borrow();
        let replacement = slots[member.at()].devices.replacement.as_ref();
        replacement.map(|replacement| Rc::clone(&replacement.device))
    }

    /// Both.
    pub(crate) fn slot_devices(&self, member: MemberIdx) -> SlotDevices {
        self.slots.borrow()[member.at()].devices.clone()
    }

    pub(crate) fn set_devices(&self, member: MemberIdx, devices: SlotDevices) {
        if let Some(log) = &self.log {
            log.set_devices(member, &devices);
        }
        note_device(&self.array, member, &devices);
        let mut slots = self.slots.borrow_mut();
        slots[member.at()].runs_now = runs_now(&devices);
        let before = std::mem::replace(&mut slots[member.at()].devices, devices);
        self.replaced.set(slots.iter().filter(|it| it.devices.replacement.is_some()).count());
        drop(slots);
        drop(before);
    }

    /// Which of the slot's devices commands started here now go to, and which one is replacing it.
    #[inline]
    pub(crate) fn device_epochs(&self, member: MemberIdx) -> (DeviceEpoch, DeviceEpoch) {
        self.slots.borrow()[member.at()].device_epochs
    }

    /// The device of that slot and device epoch, as long as it is there; one that was to replace
    /// another may have done so.
    pub(crate) fn device_of(&self, owner: MemberDevice) -> Option<Rc<dyn Device>> {
        let (current, replacement) = self.device_epochs(owner.member);
        let own = self.device(owner.member).filter(|_| owner.device_epoch == current);
        let replacing = || self.replacement(owner.member);
        own.or_else(|| replacing().filter(|_| owner.device_epoch == replacement))
    }

    /// Set both, together with the devices.
    pub(crate) fn set_device_epochs(
        &self,
        member: MemberIdx,
        device_epochs: (DeviceEpoch, DeviceEpoch),
    ) {
        self.slots.borrow_mut()[member.at()].device_epochs = device_epochs;
    }

    /// Nobody waits for the slot's device any more.
    pub(crate) fn give_up(&self, member: MemberIdx) {
        if let Some(device) = self.device(member) {
            device.give_up();
        }
    }

    /// A device that leaves its slot well may still owe answers. Nobody watches it from now on, so
    /// it has as long for them as a member that is silent. It is closed when it owes none.
    pub(crate) fn give_up_in_time(&self, device: Rc<dyn Device>) {
        if device.look_at_commands().under_way == 0 {
            return;
        }
        let limit = self.array.tuning.get().silence.of(device.facts());
        let handle = self.worker.handle.clone();
        self.worker.handle.spawn(async move {
            let end = handle.now().after(limit);
            while device.look_at_commands().under_way != 0 {
                if handle.now() >= end {
                    return device.give_up();
                }
                handle.sleep(OWED_POLL).await;
            }
        });
    }

    /// The array is not here any more.
    pub(crate) fn give_up_all(&self) {
        for LocalSlot { devices, .. } in self.slots.borrow().iter() {
            let SlotDevices { current, replacement } = devices;
            [current, replacement].into_iter().flatten().for_each(|it| it.device.give_up());
        }
    }

    /// Start a command on a slot's device; `None` if the slot has no device any more.
    #[inline]
    pub(crate) fn start(
        &self,
        member: MemberIdx,
        offset: u64,
        command: Command,
    ) -> Option<Pending<Outcome>> {
        self.start_named(member, offset, command).map(|(_, pending)| pending)
    }

    /// The same; and which of the slot's devices it goes to.
    #[inline]
    pub(crate) fn start_named(
        &self,
        member: MemberIdx,
        offset: u64,
        command: Command,
    ) -> Option<(MemberDevice, Pending<Outcome>)> {
        let slots = self.slots.borrow();
        let LocalSlot { devices, device_epochs, runs_now } = &slots[member.at()];
        let device = devices.current.as_ref()?.device.as_ref();
        let owner = MemberDevice { member, device_epoch: device_epochs.0 };
        let pending = match runs_now {
            true => self.start_on(device, offset, command),
            false => self.submit_to(device, offset, command),
        };
        Some((owner, pending))
    }

    /// The slots, to start several commands one after the other.
    #[inline]
    pub(crate) fn starter(&self) -> Starter<'_> {
        self.watch.note();
        Starter { slots: self.slots.borrow() }
    }

    /// Whether some slot's device is being replaced.
    #[inline]
    pub(crate) fn has_replacements(&self) -> bool {
        self.replaced.get() != 0
    }

    /// Whether a device is being filled to take the slot's place.
    pub(crate) fn is_replaced(&self, member: MemberIdx) -> bool {
        self.slots.borrow()[member.at()].devices.replacement.is_some()
    }

    /// Start a command on this device.
    #[inline]
    pub(crate) fn start_on(
        &self,
        device: &dyn Device,
        offset: u64,
        command: Command,
    ) -> Pending<Outcome> {
        match device.run_now(offset, command) {
            Ok(outcome) => Pending::ready(outcome),
            Err(command) => self.submit_to(device, offset, command),
        }
    }

    #[inline]
    fn submit_to(&self, device: &dyn Device, offset: u64, command: Command) -> Pending<Outcome> {
        let (completion, pending) = self.worker.outcomes.pair();
        device.submit(offset, command, completion);
        self.watch.note();
        pending
    }

    /// A number that rises with each call: mirrors take turns by it.
    pub(crate) fn next_turn(&self) -> u64 {
        self.mirror_turn.set(self.mirror_turn.get().wrapping_add(1));
        self.mirror_turn.get()
    }

    /// Stripe writes begun here before this one.
    pub(crate) fn next_write(&self) -> u64 {
        let before = self.writes_begun.get();
        self.writes_begun.set(before.wrapping_add(1));
        before
    }

    pub(crate) fn stage_latencies(&self) -> &StageLatencies {
        &self.counters().stages
    }

    /// Count something as under way until the guard drops.
    #[inline]
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        self.worker.under_way.begin();
        self.under_way.set(self.under_way.get() + 1);
        UnderWay(self)
    }

    /// Count a piece as one that changes its stripe until the guard drops.
    #[inline]
    pub(crate) fn begin_change(&self) -> Changing<'_> {
        self.changes_under_way.set(self.changes_under_way.get() + 1);
        Changing(self)
    }
}

/// How often to look whether a device that left its slot still owes answers.
const OWED_POLL: Duration = Duration::from_millis(20);

/// Something under way on a local array.
pub(crate) struct UnderWay<'l>(&'l LocalArray);

impl Drop for UnderWay<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.worker.under_way.end();
        self.0.under_way.set(self.0.under_way.get() - 1);
    }
}

/// A piece that changes its stripe, under way.
pub(crate) struct Changing<'l>(&'l LocalArray);

impl Drop for Changing<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.changes_under_way.set(self.0.changes_under_way.get() - 1);
    }
}

fn note_device(array: &Array, member: MemberIdx, devices: &SlotDevices) {
    if let Some(current) = &devices.current {
        array.room.joins(member, current.device.facts());
        array.identities.joins(member, current.device.facts());
    }
}

fn facts_of(array: &Array, devices: &[SlotDevices]) -> VolumeFacts {
    let current = devices.iter().filter_map(|slot| slot.current.as_ref());
    let turns = |it: &SlotDevice| it.device.facts().is_rotational;
    let optimal = array.geometry().stripe_bytes();
    VolumeFacts {
        name: array.identity.name.clone(),
        uuid: array.identity.uuid,
        size_bytes: array.geometry().volume_bytes(),
        logical_block_bytes: array.identity.logical_block_bytes,
        physical_block_bytes: 4096,
        strip_bytes: u32::try_from(array.geometry().strip_bytes()).unwrap_or(u32::MAX),
        optimal_bytes: u32::try_from(optimal).unwrap_or(u32::MAX),
        request_bytes_max: u32::try_from(crate::config::REQUEST_BYTES_MAX).expect("1 MiB"),
        read_only: array.is_read_only(),
        is_rotational: current.into_iter().any(turns),
    }
}
