//! An array as all its workers share it: geometries (`layouts.rs`), slots (`slot.rs`), maps,
//! counters. No devices: those belong to the workers (`local_array.rs`).
//!
//! What must stay true: everything here is either fixed when the array starts or changes through
//! atomics; the members' superblocks are changed by the coordinator alone
//! (`coordinator/record.rs`); stripes are dealt out to workers by a hash of their write-intent
//! region, so that a region has one owner.

use crate::aside::Aside;
use crate::caches::Caches;
use crate::canary::{Canary, sings};
use crate::checksums::table::Checksums;
use crate::config::{ArrayTuning, LiveTuning};
use crate::coordinator::marks::Unproven;
use crate::event::{EventLog, names};
use crate::identity::Identities;
use crate::intent::IntentMap;
use crate::layouts::{Layout, Layouts};
use crate::log::shape::LogShape;
use crate::member::{SlotEvent, SlotState};
use crate::metrics::{
    ArrayCounters, ArrayCounts, Latency, LatencySummary, MemberCounts, MemberTally, StageLatencies,
};
use crate::read_only::ReadOnly;
use crate::room::Room;
use crate::slot::{DeviceEpoch, Slot, SlotCounts};
use crate::spare::SparePools;
use crate::spare_cells::{SpareCells, Spot};
use crate::watch::silence::Silence;
use crate::watch::slow::Avoided;
use crate::written::WrittenMap;
use ashlar_layout::{Geometry, LayoutEpoch, Place, Stripe, StripeId, StripeView};
use ashlar_ondisk::{ArrayName, JobRecord, Superblock};
use ashlar_units::{MemberIdx, StripIdx, StripSet, to_u64, to_usize};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use uuid::Uuid;

/// Number of a running array in this process; an index, never stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ArrayId(pub(crate) usize);

/// What an array is, fixed while it runs.
pub(crate) struct ArrayIdentity {
    pub(crate) id: ArrayId,
    pub(crate) name: String,
    pub(crate) uuid: [u8; 16],
    pub(crate) logical_block_bytes: u32,
}

/// One array, shared by all workers.
pub struct Array {
    pub(crate) identity: ArrayIdentity,
    pub(crate) layouts: Layouts,
    /// Where strips of lost members are, if it has distributed spares.
    pub(crate) spare_cells: Option<Box<SpareCells>>,
    pub(crate) tuning: LiveTuning,
    /// Start of the data area on every member, bytes.
    pub(crate) data_offset: u64,
    pub(crate) slots: Box<[Slot]>,
    pub(crate) written: WrittenMap,
    pub(crate) intent: IntentMap,
    /// The log rings of the stripe intent log, if the policy is to keep one.
    pub(crate) log: Option<LogShape>,
    /// Checksums of its blocks, if it keeps them.
    pub(crate) checksums: Option<Checksums>,
    /// What only caches hold.
    pub(crate) caches: Caches,
    /// Which members have no room for writes.
    pub(crate) room: Room,
    /// What the members do not know yet to be on all of them.
    pub(crate) unproven: Unproven,
    /// Members that reads go around.
    pub(crate) avoided: Avoided,
    /// Stripes that the volume has: fewer than the geometry, while the array grows.
    open_stripes: AtomicU64,
    incarnation: OnceLock<Uuid>,
    pub(crate) events: Arc<EventLog>,
    /// Which devices fill the slots, or did last.
    pub(crate) identities: Identities,
    /// This host, as it calls itself; empty if nobody said.
    pub(crate) host: String,
    pub(crate) spares: Arc<SparePools>,
    /// The wall clock, seconds since 1970: only ever displayed.
    pub(crate) wall_clock_s: fn() -> u64,
    /// Carries out what may block.
    pub(crate) aside: Aside,
    /// The pools it takes spares from, in this order; none: it takes no spares.
    pub(crate) spare_pools: Vec<String>,
    /// The progress of its background jobs.
    pub(crate) jobs: crate::background::board::JobBoard,
    /// One set for each worker.
    pub(crate) counters: Box<[Arc<LocalCounters>]>,
    pub(crate) coordinator: usize,
    slot_counts: SlotCounts,
    /// Why it takes no changes, if it takes none.
    pub(crate) read_only: ReadOnly,
    is_stopping: AtomicBool,
    /// Another process goes on with it: what this one has not done it does not answer.
    is_handed_over: AtomicBool,
    /// A member failed that nobody could stand in for: updates may have ended half way.
    has_failed: AtomicBool,
    /// Who runs it now, if somebody else does.
    taken_over_by: OnceLock<String>,
    may_be_parity_only: AtomicBool,
    /// A silent device is waited for.
    waits_for_silent: AtomicBool,
    /// It stops, and has waited for silent devices for long enough.
    waits_no_longer: AtomicBool,
}

/// What one worker counts for one array. On cache lines of its own: other workers write next to it.
#[repr(align(128))]
pub(crate) struct LocalCounters {
    pub(crate) counts: ArrayCounters,
    pub(crate) read_latency: Latency,
    pub(crate) write_latency: Latency,
    pub(crate) flush_latency: Latency,
    pub(crate) stages: StageLatencies,
    /// One for each slot.
    pub(crate) members: Box<[MemberTally]>,
}

impl LocalCounters {
    fn new(slots: usize) -> LocalCounters {
        LocalCounters {
            counts: ArrayCounters::default(),
            read_latency: Latency::default(),
            write_latency: Latency::default(),
            flush_latency: Latency::default(),
            stages: StageLatencies::default(),
            members: (0..slots).map(|_| MemberTally::default()).collect(),
        }
    }
}

/// The parts an array is made of, when it starts.
pub(crate) struct ArrayParts {
    pub(crate) identity: ArrayIdentity,
    pub(crate) layouts: Layouts,
    pub(crate) spare_cells: Option<Box<SpareCells>>,
    pub(crate) tuning: ArrayTuning,
    pub(crate) data_offset: u64,
    pub(crate) open_stripes: u64,
    pub(crate) slot_states: Vec<SlotState>,
    pub(crate) written: WrittenMap,
    pub(crate) intent: IntentMap,
    pub(crate) log: Option<LogShape>,
    pub(crate) checksums: Option<Checksums>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) spares: Arc<SparePools>,
    pub(crate) wall_clock_s: fn() -> u64,
    /// Carries out what may block.
    pub(crate) aside: Aside,
    pub(crate) spare_pools: Vec<String>,
    pub(crate) host: String,
    pub(crate) worker_count: usize,
}

/// The pools that are meant: the default one if none is named. What cannot be the name of a pool
/// says that the array takes no spares.
fn pools_of(named: Vec<String>) -> Vec<String> {
    match named.is_empty() {
        true => vec![ashlar_ondisk::DEFAULT_POOL.to_owned()],
        false => named.into_iter().filter(|name| ArrayName::new(name).is_ok()).collect(),
    }
}

impl Array {
    pub(crate) fn new(parts: ArrayParts) -> Self {
        let coordinator = parts.identity.id.0 % parts.worker_count;
        let array = Array {
            slots: parts.slot_states.iter().map(|_| Slot::default()).collect(),
            counters: (0..parts.worker_count)
                .map(|_| Arc::new(LocalCounters::new(parts.slot_states.len())))
                .collect(),
            identity: parts.identity,
            layouts: parts.layouts,
            spare_cells: parts.spare_cells,
            tuning: LiveTuning::new(parts.tuning),
            data_offset: parts.data_offset,
            written: parts.written,
            intent: parts.intent,
            log: parts.log,
            checksums: parts.checksums,
            caches: Caches::default(),
            room: Room::new(parts.slot_states.len()),
            unproven: Unproven::default(),
            avoided: Avoided::new(parts.slot_states.len()),
            open_stripes: AtomicU64::new(parts.open_stripes),
            incarnation: OnceLock::new(),
            events: parts.events,
            identities: Identities::new(parts.slot_states.len()),
            host: parts.host,
            spares: parts.spares,
            wall_clock_s: parts.wall_clock_s,
            aside: parts.aside,
            spare_pools: pools_of(parts.spare_pools),
            jobs: crate::background::board::JobBoard::default(),
            coordinator,
            slot_counts: SlotCounts::default(),
            read_only: ReadOnly::default(),
            is_stopping: AtomicBool::new(false),
            is_handed_over: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            taken_over_by: OnceLock::new(),
            may_be_parity_only: AtomicBool::new(false),
            waits_for_silent: AtomicBool::new(false),
            waits_no_longer: AtomicBool::new(false),
        };
        for (at, state) in parts.slot_states.into_iter().enumerate() {
            array.set_slot_state(MemberIdx::from_at(at), state);
        }
        array
    }

    /// The array's name.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// Its UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.identity.uuid
    }

    /// The geometry that its size follows from. What is asked about a stripe is asked of the
    /// stripe's own.
    pub fn geometry(&self) -> &Geometry {
        &self.layouts.current().geometry
    }

    /// Where strips lie now, as long as no member is lost: while the array grows, its geometry is
    /// that of the end.
    pub fn geometry_now(&self) -> Geometry {
        let (mut parts, map) =
            (self.geometry().parts(), self.spare_cells.as_ref().map(|it| it.map()));
        for (spread, map) in parts.spread.iter_mut().zip(map) {
            spread.growths = map.parts().growths;
        }
        Geometry::from_parts(parts).expect("a growth is one of the geometry's")
    }

    /// Bytes of the volume now.
    pub fn volume_bytes(&self) -> u64 {
        self.open_stripes.load(Ordering::Acquire) * self.geometry().stripe_bytes()
    }

    /// Coordinator only: the volume has all stripes of the geometry.
    pub(crate) fn open_all_stripes(&self) {
        self.open_stripes.store(self.geometry().stripe_count(), Ordering::Release);
    }

    /// Regions whose parity is not trusted: a resync has not been there yet.
    pub fn unsynced_regions(&self) -> usize {
        self.intent.unsynced_count()
    }

    /// Whether blocks have checksums.
    pub fn keeps_checksums(&self) -> bool {
        self.checksums.is_some()
    }

    /// Background work, as last shown.
    pub fn running_jobs(&self) -> Vec<crate::background::board::JobStatus> {
        self.jobs.status()
    }

    /// The state of every slot, in order.
    pub fn slot_states(&self) -> Vec<SlotState> {
        self.slots.iter().map(Slot::state).collect()
    }

    /// The slots that are out.
    pub fn slots_out(&self) -> Vec<MemberIdx> {
        let all = (0..self.slots.len()).map(MemberIdx::from_at);
        all.filter(|member| self.slot(*member).state() == SlotState::Out).collect()
    }

    pub(crate) fn slot(&self, member: MemberIdx) -> &Slot {
        &self.slots[member.at()]
    }

    /// What all workers found of a slot's devices: of the one that fills it, and of the one that is
    /// to replace it.
    pub(crate) fn silences(&self, member: MemberIdx) -> [Silence; 2] {
        let slot = self.slot(member);
        let device_epochs = [slot.device_epoch(), slot.replacement_device_epoch()];
        let mut worst = [Silence::default(); 2];
        for tally in self.tallies(member) {
            for at in 0..2 {
                worst[at] = worst[at].or(tally.silences[at].of(device_epochs[at]));
            }
        }
        worst
    }

    /// What a slot's devices did, one tally for each worker.
    pub(crate) fn tallies(&self, member: MemberIdx) -> impl Iterator<Item = &MemberTally> {
        self.counters.iter().map(move |counters| &counters.members[member.at()])
    }

    /// What the slot did, with the faults of the device alone that fills it, or did last.
    pub(crate) fn member_counts(&self, member: MemberIdx) -> MemberCounts {
        self.counts_of_all(member).with_faults_since(&self.slot(member).counts_before())
    }

    /// Coordinator only: the device of this device epoch fills the slot from now on. What is known
    /// of the one before it goes into the history.
    pub(crate) fn set_device_epoch(&self, member: MemberIdx, device_epoch: DeviceEpoch) {
        if !self.identities.last(member).path.is_empty() {
            let mut fields = vec![("slot", member.to_string())];
            fields.extend(self.member_counts(member).faults());
            self.record(names::MEMBER_REPLACED, fields);
        }
        self.slot(member).set_device_epoch(device_epoch, self.counts_of_all(member));
    }

    fn counts_of_all(&self, member: MemberIdx) -> MemberCounts {
        let mut counts = MemberCounts::default();
        self.tallies(member).for_each(|tally| tally.counters.add_to(&mut counts));
        counts
    }

    /// Put a slot into `state`. Called by the coordinator, and by any worker for `Failing`.
    pub(crate) fn set_slot_state(&self, member: MemberIdx, state: SlotState) {
        self.slot(member).set_state(state);
        self.slot_counts.count(&self.slots);
    }

    /// Whether some slot is out, or a device that was to replace it gone, without all others saying
    /// so yet: no write may be acknowledged that left it out.
    pub(crate) fn has_failing_slots(&self) -> bool {
        self.slot_counts.has_failing()
    }

    /// Coordinator only: some member in service lacks the newest superblock, or none does.
    pub(crate) fn set_owes_superblock(&self, owes: bool) {
        self.slot_counts.set_owes_superblock(owes, &self.slots);
    }

    /// Coordinator only.
    pub(crate) fn owes_superblock(&self) -> bool {
        self.slot_counts.owes_superblock()
    }

    /// Slots that are not in sync.
    pub(crate) fn missing_slots(&self) -> usize {
        self.slot_counts.missing()
    }

    /// The geometry of a stripe, and its code.
    #[inline]
    pub(crate) fn layout_of(&self, stripe: Stripe) -> &Layout {
        self.layouts.of(stripe.epoch())
    }

    /// The geometry of a stripe.
    #[inline]
    pub(crate) fn geometry_of(&self, stripe: Stripe) -> &Geometry {
        &self.layout_of(stripe).geometry
    }

    /// How far a job is that the members list.
    pub(crate) fn checkpoint_of(&self, record: &JobRecord) -> StripeId {
        self.layouts.cursor(record.checkpoint)
    }

    /// The written bits of a geometry's stripes.
    pub(crate) fn written_of(&self, epoch: LayoutEpoch) -> &WrittenMap {
        assert!(self.written.epoch() == epoch, "a geometry has bits of its own");
        &self.written
    }

    /// Where a strip lies: the one place where the engine asks a layout that.
    #[inline]
    fn place_of(&self, stripe: Stripe, strip: StripIdx) -> Place {
        let own = self.geometry_of(stripe).place(stripe, strip);
        match self.moved() {
            None => own,
            Some(cells) => cells.spot(own).place,
        }
    }

    /// Where strips are, if some member is lost or the array grows.
    #[inline]
    fn moved(&self) -> Option<&SpareCells> {
        self.spare_cells.as_deref().filter(|cells| cells.moves_strips())
    }

    /// Whether some strip may be in another place than the geometry says, or in two.
    #[inline]
    pub(crate) fn moves_strips(&self) -> bool {
        self.moved().is_some()
    }

    /// Coordinator only: this is the superblock, and the members have it if it is recorded.
    pub(crate) fn follow_spares(&self, superblock: &Superblock, is_recorded: bool) {
        let Some(cells) = &self.spare_cells else { return };
        let is_filled = |slot| self.slot(slot).state() == SlotState::Rebuilding;
        // A member that is whole is in sync before its entry goes: else it would serve nothing in
        // between, and neither would the cells that it holds for others.
        let all = (0..self.slots.len()).map(MemberIdx::from_at);
        let is_whole = |slot: &MemberIdx| {
            is_recorded && is_filled(*slot) && superblock.spare_record(*slot).is_none()
        };
        for slot in all.filter(is_whole) {
            let state = SlotState::Rebuilding.next(SlotEvent::RebuildRecorded);
            self.set_slot_state(slot, state.expect("it was rebuilding"));
        }
        cells.follow(superblock, is_filled);
    }

    /// Where a strip is, and where it is written besides.
    fn spot(&self, stripe: Stripe, strip: StripIdx) -> Spot {
        let own = self.geometry_of(stripe).place(stripe, strip);
        match self.moved() {
            None => Spot::own(own),
            Some(cells) => cells.spot(own),
        }
    }

    /// Where row `row` of each of these strips lies: the members, and bytes from their start. What
    /// all strips of a stripe share is asked once.
    #[inline]
    pub(crate) fn places(
        &self,
        stripe: Stripe,
        strips: impl Iterator<Item = StripIdx>,
        row: u32,
    ) -> impl Iterator<Item = (MemberIdx, u64)> {
        let (geometry, moved) = (self.geometry_of(stripe), self.moved());
        strips.map(move |strip| {
            let own = geometry.place(stripe, strip);
            let place = moved.map_or(own, |cells| cells.spot(own).place);
            (place.member, self.offset_of(place, row))
        })
    }

    /// The member that holds a strip, and the bytes from the member's start where the strip's row
    /// `row` lies.
    #[inline]
    pub(crate) fn place(&self, stripe: Stripe, strip: StripIdx, row: u32) -> (MemberIdx, u64) {
        let place = self.place_of(stripe, strip);
        (place.member, self.offset_of(place, row))
    }

    /// Bytes from the member's start where row `row` of a strip in this place lies.
    #[inline]
    pub(crate) fn offset_of(&self, place: Place, row: u32) -> u64 {
        self.data_offset + place.offset + u64::from(row) * ashlar_units::BLOCK_BYTES
    }

    /// The same if the strip may be read there.
    #[inline]
    pub(crate) fn readable_place(
        &self,
        stripe: Stripe,
        strip: StripIdx,
        row: u32,
    ) -> Option<(MemberIdx, u64)> {
        if self.spare_cells.is_none() {
            let place = self.place(stripe, strip, row);
            return self.slot(place.0).access(stripe).0.then_some(place);
        }
        let own = self.geometry_of(stripe).place(stripe, strip);
        let Some(cells) = self.moved() else {
            // The table knows no loss, so a device that is being filled serves nothing.
            let is_there = self.slot(own.member).state() == SlotState::InSync;
            return is_there.then(|| (own.member, self.offset_of(own, row)));
        };
        let spot = cells.spot(own);
        self.serves(&spot).0.then(|| (spot.place.member, self.offset_of(spot.place, row)))
    }

    /// Whether a strip may be read in its spot, and whether it is written. A device that is being
    /// filled serves what the spare table says is on it, and nothing if the table knows no loss.
    fn serves(&self, spot: &Spot) -> (bool, bool) {
        match self.slot(spot.place.member).state() {
            SlotState::InSync => (spot.is_there, spot.takes_writes),
            SlotState::Rebuilding => (spot.is_there && spot.is_listed, spot.takes_writes),
            SlotState::Failing | SlotState::Out => (false, false),
        }
    }

    /// Rises when strips move. What was read in a place may be something else since.
    pub(crate) fn places_version(&self) -> u64 {
        self.spare_cells.as_ref().map_or(0, |cells| cells.version())
    }

    /// The places that a strip is written to: where it is, and where it is being copied to.
    pub(crate) fn write_places(
        &self,
        stripe: Stripe,
        strip: StripIdx,
    ) -> (Place, SmallVec<[Place; 2]>) {
        let Spot { place, copies, .. } = self.spot(stripe, strip);
        (place, copies)
    }

    /// The place among them that is on this member; its own if none is.
    pub(crate) fn place_on(&self, stripe: Stripe, strip: StripIdx, member: MemberIdx) -> Place {
        let (place, copies) = self.write_places(stripe, strip);
        copies.into_iter().find(|copy| copy.member == member).unwrap_or(place)
    }

    /// The strip of the stripe that lies on a member.
    pub(crate) fn strip_on(&self, stripe: Stripe, member: MemberIdx) -> Option<StripIdx> {
        if self.moved().is_some() {
            let is_on = |strip: &StripIdx| {
                let (at, copies) = self.write_places(stripe, *strip);
                at.member == member || copies.iter().any(|copy| copy.member == member)
            };
            return self.geometry_of(stripe).all_strips().iter().find(is_on);
        }
        let geometry = self.geometry_of(stripe);
        // A member may have joined for another geometry alone.
        if member.at() < geometry.members() { geometry.strip_on(stripe, member) } else { None }
    }

    /// The member that holds a strip.
    #[inline]
    pub(crate) fn member_of(&self, stripe: Stripe, strip: StripIdx) -> MemberIdx {
        self.place_of(stripe, strip).member
    }

    /// Bytes from the member's start where a strip's row `row` lies.
    #[inline]
    pub(crate) fn device_offset(&self, stripe: Stripe, strip: StripIdx, row: u32) -> u64 {
        self.place(stripe, strip, row).1
    }

    /// What may be done with each strip of `stripe` right now.
    pub(crate) fn view(&self, stripe: Stripe) -> StripeView {
        let is_parity_valid = !self.intent.is_in_doubt(self.intent.region_of(stripe))
            || sings(Canary::UnsyncedTrusted);
        let all = self.geometry_of(stripe).all_strips();
        if self.missing_slots() == 0 {
            return StripeView { readable: all, writable: all, is_parity_valid };
        }
        let mut view =
            StripeView { readable: StripSet::EMPTY, writable: StripSet::EMPTY, is_parity_valid };
        for strip in all.iter() {
            let (readable, writable) = self.access(stripe, strip);
            if readable {
                view.readable = view.readable.with(strip);
            }
            if writable {
                view.writable = view.writable.with(strip);
            }
        }
        view
    }

    /// Whether a strip may be read, and whether it is written.
    fn access(&self, stripe: Stripe, strip: StripIdx) -> (bool, bool) {
        if self.spare_cells.is_none() {
            return self.slot(self.member_of(stripe, strip)).access(stripe);
        }
        self.serves(&self.spot(stripe, strip))
    }

    /// Whether a strip may be read where it lies.
    pub(crate) fn is_readable(&self, stripe: Stripe, strip: StripIdx) -> bool {
        self.access(stripe, strip).0
    }

    /// Workers that own stripes: all of them, or as many as have a log ring in the log.
    pub(crate) fn owners(&self) -> usize {
        self.log.as_ref().map_or(self.counters.len(), |log| log.log_rings)
    }

    /// The start that runs, as the superblocks say it; set once, before the first request.
    pub(crate) fn set_incarnation(&self, incarnation: Uuid) {
        assert!(self.incarnation.set(incarnation).is_ok(), "an array is started once");
    }

    /// The incarnation of this start.
    pub(crate) fn incarnation(&self) -> Uuid {
        *self.incarnation.get().expect("nothing is logged before the start is recorded")
    }

    /// Whether no member that can lose stripes together with those of the stripe is missing. Of a
    /// declustered array that is any member, though the stripe may have no strip on it.
    pub(crate) fn lacks_nothing(&self, stripe: Stripe) -> bool {
        let is_there =
            |strip| self.slot(self.member_of(stripe, strip)).state() == SlotState::InSync;
        let geometry = self.geometry_of(stripe);
        self.missing_slots() == 0
            || geometry.declustered().is_none() && geometry.all_strips().iter().all(is_there)
    }

    /// Whether updates may have parity-only records: the members say so of this start.
    pub(crate) fn may_be_parity_only(&self) -> bool {
        self.may_be_parity_only.load(Ordering::Acquire)
    }

    /// Coordinator only, before the first request: they may.
    pub(crate) fn set_may_be_parity_only(&self) {
        self.may_be_parity_only.store(true, Ordering::Release);
    }

    /// The worker that owns a stripe. Each owner has one region of each round: of as many
    /// neighbouring regions as there are owners.
    pub(crate) fn owner_of(&self, stripe: Stripe) -> usize {
        let owners = self.owners();
        if owners == 1 {
            return 0;
        }
        let region = to_usize(self.intent.region_of(stripe).0);
        let (round, at) = (region / owners, region % owners);
        // Another owner begins each round, or regions a round apart would all be one owner's.
        let seed = to_u64(round + self.identity.id.0);
        let spread = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let first = to_usize((spread * to_u64(owners)) >> 32);
        if at + first < owners { at + first } else { at + first - owners }
    }

    /// Whether some stripe needs this member, because too many of its other strips lie on slots
    /// that are not in sync.
    pub(crate) fn is_needed(&self, member: MemberIdx) -> bool {
        let is_missing = |other| self.slot(other).state() != SlotState::InSync;
        let Some(cells) = &self.spare_cells else {
            return self.layouts.is_needed(member, is_missing);
        };
        let all = (0..self.slots.len()).map(MemberIdx::from_at);
        let is_counted = |other: &MemberIdx| {
            *other != member
                && (cells.is_lost(*other) || self.slot(*other).state() == SlotState::Failing)
        };
        let has_entry =
            cells.is_lost(member) || all.filter(is_counted).count() < self.entries_max();
        !has_entry
            || self.lost_at_most(cells, |other| other == member || is_missing(other), member)
                > self.layouts.parity_strips_max()
    }

    /// Members that the spare table has room for (`ashlar_ondisk::GeometryRecord::spare_entries`).
    fn entries_max(&self) -> usize {
        let spares = self.geometry().declustered().map_or(0, |map| map.parts().spare_columns);
        (spares + self.layouts.parity_strips_max()) * self.geometry().domain_members()
    }

    /// Strips that some stripe lacks at most when these members are missing, and `out` serves
    /// nothing either.
    fn lost_at_most(
        &self,
        cells: &SpareCells,
        is_missing: impl Fn(MemberIdx) -> bool,
        out: MemberIdx,
    ) -> usize {
        // A member that is being filled serves the cells that it has.
        let is_gone = |member: MemberIdx| {
            let slot = self.slot(member);
            let is_filled = slot.state() == SlotState::Rebuilding && !slot.fails();
            is_missing(member) && !(member != out && is_filled && cells.is_lost(member))
        };
        let is_hit = |at| {
            let member = MemberIdx::from_at(at);
            cells.is_lost(member) || is_gone(member)
        };
        // A stripe has at most one strip in each failure domain.
        let domain = self.geometry().domain_members();
        let domains = (0..self.slots.len()).step_by(domain);
        let count = domains.filter(|first| (*first..*first + domain).any(is_hit)).count();
        if count <= self.layouts.parity_strips_max() && !cells.has_losses() {
            return count;
        }
        cells.most_lost(is_gone)
    }

    /// Whether some stripe lacks more strips than its parity replaces when these members are
    /// missing; of arrays without distributed spares some stripe of `member`.
    pub(crate) fn is_beyond(
        &self,
        member: MemberIdx,
        is_missing: impl Fn(MemberIdx) -> bool,
    ) -> bool {
        let Some(cells) = &self.spare_cells else {
            return self.layouts.is_beyond(member, is_missing);
        };
        let out = MemberIdx(if is_missing(member) { member.0 } else { u16::MAX });
        self.lost_at_most(cells, is_missing, out) > self.layouts.parity_strips_max()
    }

    /// How many members may still be lost, whichever they are, when these are missing; `None` if
    /// some stripe lacks more strips than its parity replaces.
    pub(crate) fn tolerates(&self, is_missing: impl Fn(MemberIdx) -> bool) -> Option<usize> {
        let Some(cells) = &self.spare_cells else { return self.layouts.tolerates(is_missing) };
        let all = (0..self.slots.len()).map(MemberIdx::from_at);
        let has_entry = |slot: &MemberIdx| cells.is_lost(*slot) || is_missing(*slot);
        let free = self.entries_max().saturating_sub(all.filter(has_entry).count());
        let lost = self.lost_at_most(cells, is_missing, MemberIdx(u16::MAX));
        Some(self.layouts.parity_strips_max().checked_sub(lost)?.min(free))
    }

    /// How many members may still be lost, whichever they are; `None` if some stripe lacks too
    /// much already.
    pub fn tolerated_losses(&self) -> Option<usize> {
        self.tolerates(|member| {
            let slot = self.slot(member);
            slot.state() != SlotState::InSync || slot.fails()
        })
    }

    /// Whether each cell of a lost member has a state: in arrays with distributed spares, and in
    /// those that grew.
    pub fn has_spare_table(&self) -> bool {
        self.spare_cells.is_some()
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.is_set()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Whether a successor of this process answers what has not ended here.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Ordering::Acquire)
    }

    pub(crate) fn set_handed_over(&self) {
        self.is_handed_over.store(true, Ordering::Release);
    }

    /// The member failed something, and its group cannot do without it.
    pub(crate) fn set_fails(&self, member: MemberIdx) {
        self.slot(member).set_fails(true);
        self.has_failed.store(true, Ordering::Release);
    }

    /// Whether that happened since the array was started. It may be well again: what ended half way
    /// is not.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Where it runs now, if somebody else took it over: `in process 7 on host 'a'`.
    pub(crate) fn taken_over_by(&self) -> Option<&str> {
        self.taken_over_by.get().map(String::as_str)
    }

    pub(crate) fn set_taken_over(&self, by: String) {
        // Once is enough: nothing is written here any more.
        let _known = self.taken_over_by.set(by);
    }

    pub(crate) fn set_stopping(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Whether a silent device is waited for, because its group cannot do without it or most are
    /// silent.
    pub(crate) fn waits_for_silent(&self) -> bool {
        self.waits_for_silent.load(Ordering::Acquire)
    }

    pub(crate) fn set_waits_for_silent(&self, waits: bool) {
        self.waits_for_silent.store(waits, Ordering::Release);
    }

    /// Whether silent devices are given up even if the array needs them, because the array stops.
    pub(crate) fn waits_no_longer(&self) -> bool {
        self.waits_no_longer.load(Ordering::Acquire)
    }

    pub(crate) fn set_waits_no_longer(&self) {
        self.waits_no_longer.store(true, Ordering::Release);
    }

    /// What it did so far, on all workers.
    pub fn counts(&self) -> ArrayCounts {
        let mut sum = ArrayCounts::default();
        for local in &self.counters {
            local.counts.add_to(&mut sum);
        }
        sum
    }

    pub(crate) fn latency(&self, of: fn(&LocalCounters) -> &Latency) -> LatencySummary {
        let mut sum = LatencySummary::default();
        for local in &self.counters {
            of(local).add_to(&mut sum);
        }
        sum
    }

    pub(crate) fn record(&self, event: &'static str, fields: Vec<(&'static str, String)>) {
        self.events.record(event, self.name(), self.identities.name_device(fields));
    }
}
