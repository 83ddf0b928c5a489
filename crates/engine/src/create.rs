//! Make an array: check the devices, plan the areas, write the superblocks.
//!
//! What must stay true: every check comes before the first write. A device with any signature, one
//! of ours included, is taken only if the operator named it to be overwritten. The superblocks go
//! last, so an interrupted creation leaves no array.

mod cells;

use crate::blank::FRONT_BYTES;
use crate::canary::panic_if_planted;
use crate::control_io::refused;
use crate::engine_state::EngineState;
use crate::error::Refusal;
use crate::event::names;
use crate::joining_device::{JoiningDevice, check_distinct};
use crate::log::shape::least_log_ring_bytes;
use crate::worker::Worker;
use crate::{control_io, joining_device, map_pages, stated};
use ashlar_device::Command;
use ashlar_layout::{Geometry, Shape};
use ashlar_ondisk::format::{PAGE_BYTES, SERIAL_BYTES, SPARE_ENTRIES_MAX, member_bytes};
use ashlar_ondisk::{
    AreaPlan, AreaRequest, ArrayName, ChecksumKind, ConsistencyPolicy, EnclosureRecord, Features,
    ForcedActions, GeometryRecord, MemberEntry, Role, Superblock, Text,
};
use ashlar_units::{ByteSize, Extent, MemberIdx};
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// What array to make.
#[derive(Clone, Debug)]
pub struct CreateSpec {
    /// Its name: 1 to 64 bytes.
    pub name: String,
    /// Level, members and strip.
    pub shape: Shape,
    /// Devices in the order of their slots; as many as the shape has members.
    pub devices: Vec<String>,
    /// Which slots of a declustered array fail together.
    pub enclosures: Option<EnclosureRecord>,
    /// How it stays consistent over a crash.
    pub policy: ConsistencyPolicy,
    /// Which checksums of its blocks it keeps; any but none want the policy `log`.
    pub checksums: ChecksumKind,
    /// Bytes that each device writes whole or not at all at multiples of them, even when power
    /// fails: a power of two, or 0 if nothing is stated. Ashlar trusts this statement.
    pub atomic_write_bytes: u32,
    /// Logical block of the volume, 512 or 4096 bytes.
    pub logical_block_bytes: u32,
    /// Bytes of the volume per write-intent bit; `None` chooses by size.
    pub region_bytes: Option<u64>,
    /// Bytes to use of each device; `None`: as many as the smallest has.
    pub member_bytes: Option<u64>,
    /// Devices whose content may be overwritten although they carry a signature.
    pub destroy: Vec<String>,
    /// Check and report, write nothing.
    pub is_dry_run: bool,
}

/// What was (or would be) made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateReport {
    /// Name of the array.
    pub name: String,
    /// Its UUID.
    pub uuid: Uuid,
    /// Its geometry.
    pub geometry: Geometry,
    /// Size of the volume, bytes.
    pub volume_bytes: u64,
    /// Where the data area begins on every member, bytes.
    pub data_offset: u64,
    /// Bytes a member keeps for itself.
    pub overhead_bytes: u64,
    /// Path and unused bytes of each member that is larger than the smallest.
    pub unused: Vec<(String, u64)>,
    /// Paths of members with a statement that they write blocks whole, but with a volatile cache:
    /// the statement has no effect.
    pub stated_in_vain: Vec<String>,
    /// Nothing was written.
    pub is_dry_run: bool,
}

pub(crate) async fn create(
    worker: &Rc<Worker>,
    engine_state: &Arc<EngineState>,
    spec: CreateSpec,
) -> Result<CreateReport, Refusal> {
    let name = ArrayName::for_new(&spec.name).map_err(|fault| {
        Refusal::new(
            "array.bad_name",
            fault.to_string(),
            "choose another name; nothing was written",
        )
    })?;
    smallest(&spec.shape)?;
    check_devices(&spec)?;
    let candidates = open_all(worker, engine_state, &spec).await?;
    let spec = CreateSpec { shape: cells::chosen(&spec.shape, &candidates), ..spec };
    let shape = smallest(&spec.shape)?;
    let plan = plan(&spec, &shape, &candidates)?;
    check_enclosures(&spec, &plan)?;
    check_policy(&spec, &plan)?;
    stated::check(spec.atomic_write_bytes, spec.policy, &candidates)?;
    let geometry = plan.geometry.to_layout().expect("planned from a valid geometry");
    let new = NewArray { name, spec: &spec, plan: &plan };
    let superblock = first_superblock(worker, engine_state, new, &candidates);
    panic_if_planted("creation", &spec.name);
    if !spec.is_dry_run {
        write(worker, &candidates, &plan, &superblock).await?;
        let fields = vec![("level", geometry.level().to_string())];
        engine_state.events.record(names::ARRAY_CREATED, &spec.name, fields);
    }
    Ok(CreateReport {
        uuid: superblock.array_uuid,
        volume_bytes: geometry.volume_bytes(),
        data_offset: plan.areas.data.offset,
        overhead_bytes: plan.member_bytes - plan.areas.data.bytes,
        // Who asked for less knows that the rest stays unused.
        unused: if spec.member_bytes.is_none() { unused(&candidates, &plan) } else { Vec::new() },
        stated_in_vain: stated::in_vain(spec.atomic_write_bytes, &candidates),
        is_dry_run: spec.is_dry_run,
        name: spec.name,
        geometry,
    })
}

fn smallest(shape: &Shape) -> Result<Geometry, Refusal> {
    Geometry::smallest(shape)
        .map_err(|error| Refusal::new("array.bad_shape", error.to_string(), "nothing was written"))
}

/// What can be told from the paths alone.
fn check_devices(spec: &CreateSpec) -> Result<(), Refusal> {
    if spec.devices.len() != spec.shape.members {
        return Err(Refusal::new(
            "array.device_count",
            format!("{} devices given for {} members", spec.devices.len(), spec.shape.members),
            "name one device for each member; nothing was written",
        ));
    }
    for (at, path) in spec.devices.iter().enumerate() {
        if spec.devices[..at].contains(path) {
            return Err(Refusal::new(
                "device.given_twice",
                format!("{path} is given twice"),
                "each member needs a device of its own; nothing was written",
            ));
        }
    }
    Ok(())
}

/// A stripe has at most as many strips in an enclosure as parity replaces.
fn check_enclosures(spec: &CreateSpec, plan: &AreaPlan) -> Result<(), Refusal> {
    let domain_members = spec.shape.declustered.map_or(1, |wish| wish.domain_members);
    let is_possible = match spec.enclosures {
        Some(own) => own.check(&plan.geometry).is_ok(),
        None => domain_members == 1,
    };
    if is_possible {
        return Ok(());
    }
    let what = "the devices cannot be in such failure domains";
    Err(Refusal::new("array.bad_shape", what, "nothing was written"))
}

/// A log needs redundancy to log for, and room; checksums need a log.
fn check_policy(spec: &CreateSpec, plan: &AreaPlan) -> Result<(), Refusal> {
    let entries = plan.geometry.spare_entries();
    if has_spares(spec) && entries > SPARE_ENTRIES_MAX {
        return Err(Refusal::new(
            "array.too_many_spares",
            format!(
                "{entries} drives may be lost together: distributed spares and parity strips, each \
                 times the drives of a failure domain; at most {SPARE_ENTRIES_MAX} can be"
            ),
            "take fewer distributed spares or smaller domains; nothing was written",
        ));
    }
    if spec.policy != ConsistencyPolicy::Log && spec.checksums != ChecksumKind::None {
        return Err(Refusal::new(
            "array.checksums_need_log",
            format!(
                "checksums are kept with the policy 'log' only, not with '{}': after a crash \
                 nothing else could tell a block that was being written from one that is damaged",
                spec.policy.name()
            ),
            "use the policy 'log', or no checksums; nothing was written",
        ));
    }
    if spec.policy != ConsistencyPolicy::Log {
        return Ok(());
    }
    let geometry = plan.geometry.to_layout().expect("planned from a valid geometry");
    if geometry.parity_strips() == 0 {
        return Err(Refusal::new(
            "array.no_redundancy",
            format!("{} keeps no redundancy, so there is nothing to log", geometry.level()),
            "use the policy 'none'; nothing was written",
        ));
    }
    if plan.areas.intent_log.bytes < least_log_ring_bytes(&geometry) {
        return Err(Refusal::new(
            "array.log_too_small",
            format!(
                "the members have {} bytes for the stripe intent log, and {} are needed",
                plan.areas.intent_log.bytes,
                least_log_ring_bytes(&geometry)
            ),
            "use larger devices, or --policy bitmap; nothing was written",
        ));
    }
    Ok(())
}

async fn open_all(
    worker: &Rc<Worker>,
    engine_state: &EngineState,
    spec: &CreateSpec,
) -> Result<Vec<JoiningDevice>, Refusal> {
    let mut joining_devices = Vec::new();
    for path in &spec.devices {
        joining_devices.push(
            joining_device::open(worker, engine_state, path, spec.destroy.contains(path)).await?,
        );
    }
    Ok(joining_devices)
}

fn plan(
    spec: &CreateSpec,
    shape: &Geometry,
    candidates: &[JoiningDevice],
) -> Result<AreaPlan, Refusal> {
    let request = AreaRequest {
        region_bytes: spec.region_bytes,
        keeps_checksums: spec.checksums != ChecksumKind::None,
        ..AreaRequest::new(GeometryRecord::from_layout(shape))
    };
    let sizes: Vec<u64> = candidates.iter().map(|c| c.opened.facts().size_bytes).collect();
    let sizes = used(spec, candidates, sizes)?;
    AreaPlan::for_members(&request, &sizes).map_err(|fault| {
        let smallest = candidates.iter().min_by_key(|c| c.opened.facts().size_bytes);
        let path = smallest.map_or("", |candidate| &candidate.path);
        let next = match spec.member_bytes {
            Some(_) => "use more of each device, or smaller strips; nothing was written",
            None => "use larger devices or smaller strips; nothing was written",
        };
        Refusal::new("member.too_small", format!("{path}: {fault}"), next)
    })
}

/// What is to be used of devices of these sizes, bytes.
fn used(
    spec: &CreateSpec,
    candidates: &[JoiningDevice],
    sizes: Vec<u64>,
) -> Result<Vec<u64>, Refusal> {
    let Some(wanted) = spec.member_bytes else { return Ok(sizes) };
    if let Some(at) = sizes.iter().position(|bytes| *bytes < wanted) {
        let (path, has) = (&candidates[at].path, ByteSize(sizes[at]));
        return Err(Refusal::new(
            "member.too_small",
            format!("{path} has {has}, and {} of each device were to be used", ByteSize(wanted)),
            "use larger devices, or less of each; nothing was written",
        ));
    }
    Ok(vec![wanted; sizes.len()])
}

/// An array that is to be: its name, what was asked for, and where everything lies.
struct NewArray<'a> {
    name: ArrayName,
    spec: &'a CreateSpec,
    plan: &'a AreaPlan,
}

fn first_superblock(
    worker: &Worker,
    engine_state: &EngineState,
    NewArray { name, spec, plan }: NewArray<'_>,
    candidates: &[JoiningDevice],
) -> Superblock {
    let now = (engine_state.config.wall_clock_s)();
    let entry = |(slot, candidate): (usize, &JoiningDevice)| {
        let facts = candidate.opened.facts();
        let serial = Text::<SERIAL_BYTES>::cut(facts.serial.as_deref().unwrap_or(""));
        let entry = MemberEntry::new(worker.draw_uuid(), MemberIdx::from_at(slot), Role::Active)
            .on_device(member_bytes(facts.size_bytes), serial);
        let log_tag = worker.draw_log_tag();
        MemberEntry { log_tag, stated_atomic_bytes: spec.atomic_write_bytes, ..entry }
    };
    let members: Vec<MemberEntry> = candidates.iter().enumerate().map(entry).collect();
    let incarnation = worker.draw_uuid();
    Superblock {
        features: features_of(spec, plan),
        enclosures: spec.enclosures,
        generation: 1,
        array_uuid: worker.draw_uuid(),
        incarnation,
        previous_incarnation: incarnation,
        member_uuid: members[0].uuid,
        member_bytes: members[0].bytes,
        slot: MemberIdx(0),
        unclean: false,
        resync_dirty_regions: false,
        array_name: name,
        created_at_s: now,
        updated_at_s: now,
        geometry: plan.geometry,
        logical_block_bytes: spec.logical_block_bytes,
        policy: spec.policy,
        checksums: spec.checksums,
        region_bytes: plan.region_bytes,
        forced: forced(spec),
        areas: plan.on_device(members[0].bytes).areas,
        members,
        jobs: Vec::new(),
        spares: Vec::new(),
        last_scrub: None,
        kept_map_boot: None,
    }
}

/// Whether cells of lost members may lie on distributed spares.
fn has_spares(spec: &CreateSpec) -> bool {
    spec.shape.declustered.is_some_and(|spread| spread.spare_columns > 0)
}

/// What a program must know to touch the array.
fn features_of(spec: &CreateSpec, plan: &AreaPlan) -> Features {
    let if_any = |has: bool, feature: u64| if has { feature } else { 0 };
    let has_spares = has_spares(spec);
    Features {
        compatible: Features::WHOLE_MAP
            | if_any(plan.areas.reshape.bytes != 0, Features::RESHAPE_AREA),
        read_only_compatible: match spec.checksums {
            ChecksumKind::Crc32c => Features::CHECKSUM_TABLE,
            ChecksumKind::None => 0,
        },
        incompatible: Features::MEMBER_PAGES
            | if_any(spec.shape.declustered.is_some(), Features::DECLUSTERED)
            | if_any(spec.enclosures.is_some(), Features::FAILURE_DOMAINS)
            | if_any(has_spares, Features::DISTRIBUTED_SPARES)
            | match spec.policy {
                ConsistencyPolicy::Log if spec.atomic_write_bytes != 0 => {
                    Features::INTENT_LOG | Features::PARITY_ONLY_RECORDS
                }
                ConsistencyPolicy::Log => Features::INTENT_LOG,
                ConsistencyPolicy::Bitmap | ConsistencyPolicy::None => 0,
            },
    }
}

/// Overwriting somebody's signature is an action that the array remembers.
fn forced(spec: &CreateSpec) -> ForcedActions {
    if spec.destroy.iter().any(|path| spec.devices.contains(path)) {
        return ForcedActions::default().with(ForcedActions::OVERWROTE_SIGNATURE, 1);
    }
    ForcedActions::default()
}

async fn write(
    worker: &Rc<Worker>,
    candidates: &[JoiningDevice],
    plan: &AreaPlan,
    superblock: &Superblock,
) -> Result<(), Refusal> {
    for (candidate, entry) in candidates.iter().zip(&superblock.members) {
        let device = candidate.device.as_ref();
        candidate.blanking.run(worker, device).await?;
        let zeroed = control_io::zero(worker, device, cleared_area(plan)).await;
        zeroed.map_err(|fault| refused(&candidate.path, "clearing its head area", fault))?;
        let made = map_pages::make(worker, device, superblock, entry.uuid).await;
        made.map_err(|fault| refused(&candidate.path, "making its written map", fault))?;
        // A superblock must not be there before what it says is there.
        let flushed = control_io::run(worker, device, 0, Command::Flush).await.result;
        flushed.map_err(|fault| refused(&candidate.path, "a flush", fault))?;
    }
    check_distinct(worker, candidates, Extent::new(plan.areas.written_map.offset, PAGE_BYTES))
        .await?;
    for (candidate, entry) in candidates.iter().zip(&superblock.members) {
        let own = superblock.for_member(entry.uuid).expect("it lists its members");
        let bytes = own.encode().expect("a new array is valid");
        let device = candidate.device.as_ref();
        let written = control_io::write_copies(worker, device, entry.bytes, &bytes).await;
        written.map_err(|fault| refused(&candidate.path, "writing its superblock", fault))?;
    }
    Ok(())
}

/// What is cleared on a new member beside its ends: its maps. The written map then gets its pages.
/// The intent log and the checksum table are hours of writing on a large disk, and nothing in them
/// counts: batches of the log name the start that wrote them, and a table counts from when it is
/// turned on.
fn cleared_area(plan: &AreaPlan) -> Extent {
    let areas = &plan.areas;
    let begin = FRONT_BYTES.min(areas.data.offset);
    Extent::new(begin, areas.written_map.end().saturating_sub(begin))
}

fn unused(candidates: &[JoiningDevice], plan: &AreaPlan) -> Vec<(String, u64)> {
    let least = candidates.iter().map(|c| c.opened.facts().size_bytes).min().unwrap_or(0);
    let strip = u64::from(plan.geometry.strip_bytes);
    let more = |candidate: &JoiningDevice| {
        let bytes = candidate.opened.facts().size_bytes - least;
        (bytes >= strip).then(|| (candidate.path.clone(), bytes))
    };
    candidates.iter().filter_map(more).collect()
}

impl std::fmt::Display for CreateReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verb = if self.is_dry_run { "would create" } else { "created" };
        let (name, code) = (&self.name, self.geometry.code_name());
        let strip = ByteSize(self.geometry.strip_bytes());
        let volume = ByteSize(self.volume_bytes);
        writeln!(
            f,
            "{verb} array {name}: {code}, strip {strip}, volume {volume}, uuid {}",
            self.uuid
        )?;
        for (path, bytes) in &self.unused {
            let bytes = ByteSize(*bytes);
            writeln!(f, "{path} is larger than the smallest member: {bytes} of it go unused")?;
        }
        Ok(())
    }
}
