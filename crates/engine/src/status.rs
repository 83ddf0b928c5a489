//! The state of the engine as plain values: what the control side shows and the metrics export.
//!
//! What must stay true: looking changes nothing and waits for no I/O. Figures of one array are
//! taken on its coordinator, pool figures on each worker, so they may be a moment apart.

use crate::array::Array;
use crate::checksums::cache::CacheUsage;
use crate::checksums::table::Checksums;
use crate::coordinator::state::HowStarted;
use crate::engine::Engine;
use crate::error::Refusal;
use crate::exposure::ArrayExposure;
use crate::identity::DeviceIdentity;
use crate::local_array::LocalArray;
use crate::member::SlotState;
use crate::metrics::{ArrayCounts, LatencySummary, MemberCounts, WriteStage};
use crate::read_only::WhyReadOnly;
use crate::room::Pause;
use crate::spare_cells::LostMember;
use crate::watch::slow::SlowFigures;
use crate::worker::Worker;
use ashlar_device::Bay;
use ashlar_iobuf::{Nodes, Pool, PoolUsage};
use ashlar_layout::Geometry;
use ashlar_ondisk::{ChecksumKind, ConsistencyPolicy, EnclosureRecord, ScrubRecord, Superblock};
use ashlar_ring::{KernelCalls, affinity};
use ashlar_units::{MemberIdx, to_u64};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Everything at one moment.
#[derive(Clone, Debug)]
pub struct EngineStatus {
    /// Running arrays.
    pub arrays: Vec<ArrayStatus>,
    /// Workers, in order.
    pub workers: Vec<WorkerStatus>,
    /// Buffer pools with their limits.
    pub pools: Vec<PoolStatus>,
}

/// The state of an array as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArrayState {
    /// All members in sync, all parity trusted.
    Clean,
    /// Parity of some regions is not trusted yet after an unclean stop.
    Resyncing,
    /// Members are missing; all data can be read.
    Degraded,
    /// Writes are refused.
    ReadOnly,
    /// In some group more members are missing than the parity replaces, or fail what they are
    /// asked.
    Failed,
}

/// One array.
#[derive(Clone, Debug)]
pub struct ArrayStatus {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: Uuid,
    /// Its geometry.
    pub geometry: Geometry,
    /// Which of its slots fail together, if it was created so.
    pub enclosures: Option<EnclosureRecord>,
    /// Its state.
    pub state: ArrayState,
    /// Where it runs now, if another process took it over: `in process 7 on host 'a'`.
    pub taken_over_by: Option<String>,
    /// Why it takes no changes, if it takes none.
    pub read_only: Option<WhyReadOnly>,
    /// Writes wait: more members have no room for them than the array can do without.
    pub pause: Option<Pause>,
    /// Members that may still be lost, whichever they are.
    pub tolerates: usize,
    /// How it stays consistent over a crash.
    pub policy: ConsistencyPolicy,
    /// Which checksums of its blocks it keeps.
    pub checksums: ChecksumKind,
    /// How much of the table of checksums is in memory; `None` if it keeps none.
    pub checksum_cache: Option<CacheUsage>,
    /// Name of the parity kernel.
    pub kernel: &'static str,
    /// Its tunables.
    pub tuning: crate::config::ArrayTuning,
    /// Pools it takes spares from, in this order.
    pub spare_pools: Vec<String>,
    /// Generation of its superblocks.
    pub generation: u64,
    /// Write-intent regions that are dirty, of how many.
    pub dirty_regions: (u64, u64),
    /// Regions whose parity is not trusted.
    pub unsynced_regions: u64,
    /// Stripes ever written, of how many.
    pub written_stripes: (u64, u64),
    /// The last scrub that ran to its end.
    pub last_scrub: Option<ScrubRecord>,
    /// The last scrub since assembly, also one that was cancelled.
    pub scrub_end: Option<crate::background::ScrubEnd>,
    /// What this start found in the stripe intent log; `None` if there was no need to look.
    pub replayed: Option<crate::ReplaySummary>,
    /// How it started.
    pub beginning: HowStarted,
    /// Its members, slot by slot.
    pub members: Vec<MemberStatus>,
    /// Lost members whose cells are on distributed spares, or are to be.
    pub lost_members: Vec<LostMember>,
    /// Stripes by the losses that they still survive, of arrays with distributed spares; `None`
    /// while they are being counted, and if members are lost of an array that is read-only since
    /// its start.
    pub exposure: Option<ArrayExposure>,
    /// Background work.
    pub jobs: Vec<crate::background::JobStatus>,
    /// How its last jobs ended, oldest first.
    pub ended_jobs: Vec<crate::background::JobEnd>,
    /// What it did.
    pub counts: ArrayCounts,
    /// Latency of client reads.
    pub read_latency: LatencySummary,
    /// Latency of client writes.
    pub write_latency: LatencySummary,
    /// Latency of client flushes.
    pub flush_latency: LatencySummary,
    /// Latency of the stages of stripe writes, by name; of one write in
    /// [`STAGE_SAMPLE_EVERY`](crate::STAGE_SAMPLE_EVERY).
    pub write_stages: Vec<(&'static str, LatencySummary)>,
}

/// One member slot.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// The slot.
    pub slot: MemberIdx,
    /// State of the slot.
    pub state: SlotState,
    /// Path of the device in it; empty if there is none.
    pub path: String,
    /// What the device is open by; see
    /// [`DeviceFacts::exclusion`](ashlar_device::DeviceFacts::exclusion).
    pub exclusion: Option<[u64; 2]>,
    /// Path of the device that is being filled to replace it.
    pub replacement: Option<String>,
    /// Serial of the device, if it has one.
    pub serial: Option<String>,
    /// What the device calls itself.
    pub model: Option<String>,
    /// Where the device is plugged in.
    pub bay: Bay,
    /// The device that filled the slot last, if none does now and anything is known of it.
    pub last_device: Option<DeviceIdentity>,
    /// Size of the device, bytes.
    pub device_bytes: u64,
    /// Single blocks that are written to it have parity-only records: it was stated that the device
    /// writes a block whole, it has no volatile cache, and it has been in service since the array
    /// started.
    pub is_parity_only: bool,
    /// These blocks are handed to the device as commands that it reports to write whole, not only
    /// as was stated.
    pub is_whole_by_report: bool,
    /// Bytes that the device, or the one that is being filled for the slot, was stated to write
    /// whole or not at all; 0: nothing was.
    pub stated_atomic_bytes: u32,
    /// What it did.
    pub counts: MemberCounts,
    /// How long its device has not answered though something was under way; a second or two say
    /// nothing yet.
    pub silent: Duration,
    /// How much slower than its peers it is, if it is judged slow.
    pub slow: Option<SlowFigures>,
    /// Commands under way.
    pub in_flight: u64,
    /// The most that were under way at once since the array started: the maxima of all workers,
    /// added up.
    pub in_flight_max: u64,
    /// Latency of reads.
    pub read_latency: LatencySummary,
    /// Latency of writes.
    pub write_latency: LatencySummary,
}

/// One worker.
#[derive(Clone, Copy, Debug)]
pub struct WorkerStatus {
    /// Its number.
    pub worker: usize,
    /// The core that its thread is bound to, if it is.
    pub core: Option<usize>,
    /// The NUMA node of that core, if the machine has several.
    pub node: Option<u32>,
    /// Client requests that arrived at it.
    pub requests: u64,
    /// Pieces of stripe work it did.
    pub pieces: u64,
    /// Requests and pieces under way on it.
    pub in_flight: usize,
    /// The most that were under way at once since it started.
    pub in_flight_max: usize,
    /// Messages that it sent to other workers.
    pub hops: u64,
    /// How often its ring called the kernel; zeros without a ring.
    pub calls: KernelCalls,
}

/// One buffer pool.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// Whose pool.
    pub name: String,
    /// Its classes and marks.
    pub usage: PoolUsage,
}

impl Engine {
    /// How everything is doing.
    ///
    /// # Errors
    /// If the engine is shutting down.
    pub async fn status(&self) -> Result<EngineStatus, Refusal> {
        let mut arrays = Vec::new();
        for array in self.arrays() {
            // An array that is being stopped right now is simply not listed.
            arrays.extend(self.status_when_started(array).await);
        }
        let (mut workers, mut pools) = (Vec::new(), Vec::new());
        let looked = self.engine_state().on_every_worker(|worker| {
            let locals = worker.locals();
            let own = |kind: &str, pool: &Pool| PoolStatus {
                name: format!("worker{}.{kind}", worker.index),
                usage: pool.usage(),
            };
            let mut pools = vec![own("payload", &worker.payload), own("wide", &worker.wide)];
            for local in &locals {
                let name = format!("worker{}.stripes.{}", worker.index, local.array.name());
                pools.push(PoolStatus { name, usage: local.scratch.usage() });
                if let Some(log) = local.log() {
                    let name = format!("worker{}.log.{}", worker.index, local.array.name());
                    pools.push(PoolStatus { name, usage: log.usage() });
                }
            }
            let core = affinity::core();
            let status = WorkerStatus {
                worker: worker.index,
                core,
                node: core.and_then(|core| Nodes::here().of_core(core)),
                requests: worker.load.requests.get(),
                pieces: worker.load.pieces.get(),
                in_flight: worker.under_way.now(),
                in_flight_max: worker.under_way.max(),
                hops: worker.load.hops.get(),
                calls: worker.handle.ring().map_or_else(KernelCalls::default, |it| it.load().calls),
            };
            (status, pools)
        });
        for (status, mut own) in looked.await? {
            workers.push(status);
            pools.append(&mut own);
        }
        Ok(EngineStatus { arrays, workers, pools })
    }
}

/// Time between two looks at an array that starts again.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl Engine {
    /// One array; if it starts again while its clients wait, the array that started.
    async fn status_when_started(&self, mut array: Arc<Array>) -> Option<ArrayStatus> {
        loop {
            let look = async move |local: Rc<LocalArray>| status_of(&local);
            if let Ok(status) = self.on_coordinator_of(&array, look).await {
                return Some(status);
            }
            let id = array.identity.id;
            let is_restarting = self.engine_state().is_restarting(id);
            let now = self.engine_state().arrays().get(id.0).cloned().flatten()?;
            if !is_restarting && Arc::ptr_eq(&now, &array) {
                return None;
            }
            array = now;
            let wait = async move |worker: Rc<Worker>| worker.handle.sleep(LOOK_EVERY).await;
            self.on_worker(0, wait).await.ok()?;
        }
    }
}

fn status_of(local: &Rc<LocalArray>) -> ArrayStatus {
    let array = &local.array;
    let superblock = local.coordinator().superblock();
    let slots = (0..array.slots.len()).map(MemberIdx::from_at);
    ArrayStatus {
        name: array.name().to_owned(),
        uuid: superblock.array_uuid,
        geometry: superblock.geometry.to_layout().unwrap_or(*array.geometry()),
        enclosures: superblock.enclosures,
        state: state_of(array),
        taken_over_by: array.taken_over_by().map(str::to_owned),
        read_only: array.read_only.why(),
        pause: array.pause(),
        tolerates: array.tolerated_losses().unwrap_or(0),
        policy: superblock.policy,
        checksums: superblock.checksums,
        checksum_cache: array.checksums.as_ref().map(Checksums::usage),
        kernel: array.layouts.current().code.kernel().name(),
        tuning: array.tuning.get(),
        spare_pools: array.spare_pools.clone(),
        generation: superblock.generation,
        dirty_regions: (to_u64(array.intent.durable_count()), array.intent.region_count()),
        unsynced_regions: to_u64(array.intent.unsynced_count()),
        written_stripes: (array.written.written_count(), array.geometry().stripe_count()),
        last_scrub: superblock.last_scrub,
        scrub_end: array.jobs.last_scrub(),
        replayed: local.coordinator().replayed.get(),
        beginning: local.coordinator().beginning.get(),
        members: slots.map(|slot| member_of(local, &superblock, slot)).collect(),
        lost_members: array.spare_cells.as_ref().map_or_else(Vec::new, |cells| cells.status()),
        exposure: local.coordinator().exposure.status(array, local.worker.handle.turn_now()),
        jobs: crate::background::status(&local.array),
        ended_jobs: array.jobs.ends(),
        counts: array.counts(),
        read_latency: array.latency(|local| &local.read_latency),
        write_latency: array.latency(|local| &local.write_latency),
        flush_latency: array.latency(|local| &local.flush_latency),
        write_stages: stages_of(array),
    }
}

fn stages_of(array: &Array) -> Vec<(&'static str, LatencySummary)> {
    let stage = |(stage, name): (WriteStage, &'static str)| {
        let mut sum = LatencySummary::default();
        for counters in &array.counters {
            counters.stages[stage as usize].add_to(&mut sum);
        }
        (name, sum)
    };
    WriteStage::NAMES.into_iter().map(stage).collect()
}

fn member_of(local: &LocalArray, superblock: &Superblock, member: MemberIdx) -> MemberStatus {
    let slot = local.array.slot(member);
    let (mut read_latency, mut write_latency) =
        (LatencySummary::default(), LatencySummary::default());
    let (mut in_flight, mut in_flight_max) = (0, 0);
    for tally in local.array.tallies(member) {
        tally.read_latency.add_to(&mut read_latency);
        tally.write_latency.add_to(&mut write_latency);
        in_flight += tally.depth();
        in_flight_max += tally.depth_max();
    }
    let [own, replacing] = local.array.silences(member);
    let silence = own.or(replacing);
    let device = local.device(member);
    let facts = device.as_ref().map(|device| device.facts());
    let replacement = local.replacement(member);
    let entry = superblock.joining_device(member).or_else(|| superblock.holder(member));
    MemberStatus {
        slot: member,
        state: slot.state(),
        path: facts.map_or_else(String::new, |facts| facts.path.clone()),
        exclusion: facts.and_then(|facts| facts.exclusion),
        replacement: replacement.as_ref().map(|device| device.facts().path.clone()),
        serial: facts.and_then(|facts| facts.serial.clone()),
        model: facts.and_then(|facts| facts.model.clone()),
        bay: facts.map(|facts| facts.bay.clone()).unwrap_or_default(),
        last_device: if facts.is_none() {
            last_device(&local.array, superblock, member)
        } else {
            None
        },
        device_bytes: facts.map_or(0, |facts| facts.size_bytes),
        is_parity_only: slot.state() == SlotState::InSync
            && replacement.is_none()
            && slot.writes_whole(),
        is_whole_by_report: facts.is_some_and(|facts| facts.takes_whole_blocks),
        stated_atomic_bytes: entry.map_or(0, |entry| entry.stated_atomic_bytes),
        silent: silence.time(),
        slow: local.coordinator().slow.figures(member, &local.array.tuning.get().slow),
        in_flight,
        in_flight_max,
        counts: local.array.member_counts(member),
        read_latency,
        write_latency,
    }
}

/// What is known of the device that filled the slot last. The superblocks know its serial also
/// after a start without it.
fn last_device(
    array: &Array,
    superblock: &Superblock,
    member: MemberIdx,
) -> Option<DeviceIdentity> {
    let known = array.identities.last(member);
    if !known.path.is_empty() {
        return Some(known);
    }
    let serial = superblock.holder(member).map(|entry| entry.serial.as_str().to_owned());
    let serial = serial.filter(|serial| !serial.is_empty())?;
    Some(DeviceIdentity { serial: Some(serial), ..DeviceIdentity::default() })
}

fn state_of(array: &Array) -> ArrayState {
    if array.tolerated_losses().is_none() {
        ArrayState::Failed
    } else if array.is_read_only() {
        ArrayState::ReadOnly
    } else if array.missing_slots() != 0 {
        ArrayState::Degraded
    } else if array.intent.unsynced_count() != 0 {
        ArrayState::Resyncing
    } else {
        ArrayState::Clean
    }
}
