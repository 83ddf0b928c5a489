//! A simulated host for engine tests: disks, an engine on them, and a model of what the volume
//! holds.
//!
//! What must stay true: everything comes from the seed; a failing test prints it.
#![allow(dead_code, reason = "each of the three test programs uses a part of this")]

pub mod jobs;
pub mod kept;
pub mod ledger;
pub mod load;

use ashlar_engine::{
    ArrayTuning, ArrayVolume, AssembleSpec, CreateSpec, Engine, EngineConfig, KeptMemory,
};
use ashlar_layout::{DeclusteredShape, Level, Shape};
use ashlar_ondisk::{ChecksumKind, ConsistencyPolicy, EnclosureKind, EnclosureRecord};
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, Random, SimDisk, SimWorld};
use ashlar_units::{BLOCK_BYTES, Extent, to_usize};
use ashlar_volume::{Command, Reply, Request, Volume, VolumeErrorKind};
use std::sync::Arc;

/// Size of each simulated disk, bytes.
pub const DISK_BYTES: u64 = 8 << 20;

/// A shape with 4 KiB blocks in small strips, so that little data makes many stripes.
pub fn shape(level: Level, members: usize, group: Option<usize>, parity: Option<usize>) -> Shape {
    let strip_bytes = 16 << 10;
    Shape { level, members, parity, group_members: group, strip_bytes, declustered: None }
}

/// The levels every cycle test runs through, with the losses each survives in one group.
pub fn shapes() -> Vec<(Shape, usize)> {
    vec![
        (shape(Level::Raid1, 2, None, None), 1),
        (shape(Level::Raid1, 3, None, None), 2),
        (shape(Level::Raid5, 4, None, None), 1),
        (shape(Level::Raid6, 6, None, None), 2),
        (shape(Level::Raid7, 7, None, None), 3),
        (shape(Level::NPlusM, 16, None, Some(4)), 4),
        (shape(Level::Raid10, 4, None, None), 1),
        (shape(Level::Raid50, 6, Some(3), None), 1),
        (shape(Level::Raid60, 10, Some(5), None), 2),
        (shape(Level::Raid70, 12, Some(6), None), 3),
        (declustered(Level::Raid5, 5, 3, 0), 1),
        (declustered(Level::Raid6, 9, 5, 1), 2),
        (in_enclosures(), 2),
        (spared_enclosures(), 2),
    ]
}

/// A declustered shape with short cells, so that little data lies on all members. Some columns stay
/// empty.
pub fn declustered(level: Level, members: usize, stripe_width: usize, spare: usize) -> Shape {
    let shape = shape(level, members, None, None);
    let cell_bytes = Some(2 * shape.strip_bytes);
    let declustered =
        DeclusteredShape { domain_members: 1, stripe_width, spare_columns: spare, cell_bytes };
    Shape { declustered: Some(declustered), ..shape }
}

/// 4+2 over twelve members, in three enclosures of two failure domains of two members each.
pub fn in_enclosures() -> Shape {
    let shape = declustered(Level::Raid6, 12, 6, 0);
    let own = shape.declustered.map(|own| DeclusteredShape { domain_members: 2, ..own });
    Shape { declustered: own, ..shape }
}

/// 4+2 over sixteen members, in four such enclosures. Distributed spares take one of them.
pub fn spared_enclosures() -> Shape {
    let shape = declustered(Level::Raid6, 16, 6, 2);
    let own = shape.declustered.map(|own| DeclusteredShape { domain_members: 2, ..own });
    Shape { declustered: own, ..shape }
}

/// The enclosures of such a shape.
fn enclosures(shape: &Shape) -> Option<EnclosureRecord> {
    let own = shape.declustered.filter(|own| own.domain_members != 1);
    own.map(|_| EnclosureRecord { kind: EnclosureKind::Listed, domains: 2 })
}

/// Names of `count` disks.
pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("disk{at}")).collect()
}

/// Add `count` blank disks to the world.
pub fn add_disks(world: &mut SimWorld, count: usize) -> Vec<SimDisk> {
    let names = names(count);
    names.iter().map(|name| world.add_disk(name, DiskOptions::sized(DISK_BYTES))).collect()
}

/// An engine of `workers` workers on the world's executor. It passes discards on, for what a stripe
/// that was given back holds must never show.
pub fn engine(world_opener: ashlar_sim::SimOpener, handle: &Handle, workers: usize) -> Engine {
    engine_with(world_opener, handle, (workers, None))
}

/// The same, with memory that outlives a kill, or without.
pub fn engine_with(
    world_opener: ashlar_sim::SimOpener,
    handle: &Handle,
    (workers, kept_memory): (usize, Option<Arc<dyn KeptMemory>>),
) -> Engine {
    let config = EngineConfig {
        worker_count: workers,
        kept_memory,
        payload_bytes: 4 << 20,
        wall_clock_s: || 1_700_000_000,
        tuning: ArrayTuning { pass_discards: true, ..ArrayTuning::default() },
        ..EngineConfig::new(Arc::new(world_opener))
    };
    Engine::on_executor(config, handle).expect("memory for pools")
}

/// The consistency policy that the tests run under. Modules that are not about one policy are also
/// run by the programs `logged` and `summed`.
pub fn policy() -> ConsistencyPolicy {
    if module_path!().starts_with("logged") || is_summed() {
        ConsistencyPolicy::Log
    } else {
        ConsistencyPolicy::Bitmap
    }
}

/// Whether the tests run once more on arrays that keep checksums.
fn is_summed() -> bool {
    module_path!().starts_with("summed")
}

/// The checksums that the tests' arrays keep.
pub fn checksums() -> ChecksumKind {
    if is_summed() { ChecksumKind::Crc32c } else { ChecksumKind::None }
}

/// What to create on the disks of that shape.
pub fn create_spec(shape: Shape) -> CreateSpec {
    CreateSpec {
        enclosures: enclosures(&shape),
        name: "tank".to_owned(),
        devices: names(shape.members),
        shape,
        policy: policy(),
        checksums: checksums(),
        atomic_write_bytes: 0,
        logical_block_bytes: 512,
        region_bytes: None,
        member_bytes: None,
        destroy: Vec::new(),
        is_dry_run: false,
    }
}

/// Look at `count` disks for an array.
pub fn assemble_spec(count: usize) -> AssembleSpec {
    AssembleSpec { devices: names(count), ..AssembleSpec::default() }
}

/// The same after a kill with members out and nothing being written: parity is right, but the
/// members cannot know.
pub fn assemble_dirty(count: usize) -> AssembleSpec {
    let mut spec = assemble_spec(count);
    spec.request.accept_dirty_degraded = true;
    spec
}

/// What the volume must hold, byte by byte.
pub struct Model {
    pub bytes: Vec<u8>,
    random: Random,
}

impl Model {
    pub fn new(seed: u64, size_bytes: u64) -> Self {
        Model { bytes: vec![0; to_usize(size_bytes)], random: Random::new(seed) }
    }

    /// An extent somewhere in the volume: small ones mostly, block-aligned mostly.
    pub fn extent(&mut self) -> Extent {
        let unit = if self.random.percent(15) { 512 } else { BLOCK_BYTES };
        let size = u64::try_from(self.bytes.len()).expect("small");
        let most = if self.random.percent(30) { 256 << 10 } else { 16 << 10 };
        let bytes = (self.random.below(most / unit) + 1) * unit;
        let offset = self.random.below((size - bytes) / unit + 1) * unit;
        Extent::new(offset, bytes)
    }

    /// One random request against volume and model; reads are compared.
    pub async fn step(&mut self, volume: &ArrayVolume) {
        let extent = self.extent();
        match self.random.below(100) {
            0..45 => self.write(volume, extent).await,
            45..85 => self.read(volume, extent).await,
            85..92 => self.zero(volume, extent).await,
            92..96 => self.discard(volume).await,
            _ => submit(volume, Command::Flush, Extent::default(), false).await,
        }
    }

    pub async fn write(&mut self, volume: &ArrayVolume, extent: Extent) {
        let mut buffer = volume.buffer(to_usize(extent.bytes)).await;
        self.random.fill(&mut buffer);
        self.bytes[range(extent)].copy_from_slice(&buffer);
        let fua = self.random.percent(5);
        submit(volume, Command::Write(buffer.freeze()), extent, fua).await;
    }

    pub async fn read(&self, volume: &ArrayVolume, extent: Extent) {
        let got = read(volume, extent).await.expect("readable");
        let wanted = &self.bytes[range(extent)];
        if got != wanted {
            let at = got.iter().zip(wanted).position(|(a, b)| a != b).expect("they differ");
            panic!("wrong byte at {} of a read of {extent}", extent.offset + at as u64);
        }
    }

    async fn zero(&mut self, volume: &ArrayVolume, extent: Extent) {
        self.bytes[range(extent)].fill(0);
        submit(volume, Command::WriteZeroes { may_unmap: true }, extent, false).await;
    }

    /// A discarded range may read as before or as zeros: ask once and expect that from then on.
    async fn discard(&mut self, volume: &ArrayVolume) {
        let size = u64::try_from(self.bytes.len()).expect("small");
        let offset = self.random.below(size / BLOCK_BYTES) * BLOCK_BYTES;
        let extent = Extent::new(offset, (512 << 10).min(size - offset));
        submit(volume, Command::Discard, extent, false).await;
        let now = read(volume, extent).await.expect("readable");
        let old = self.bytes[range(extent)].chunks(512).zip(now.chunks(512)).enumerate();
        for (at, (old, new)) in old.filter(|(_, (old, new))| old != new) {
            let is_right = |(old, new): (&u8, &u8)| old == new || *new == 0;
            let all_are_right = old.iter().zip(new).all(is_right);
            assert!(all_are_right, "discarded sector {at} is neither old nor zero");
        }
        self.bytes[range(extent)].copy_from_slice(&now);
    }

    /// Compare the whole volume.
    pub async fn audit(&self, volume: &ArrayVolume) {
        let size = u64::try_from(self.bytes.len()).expect("small");
        let mut offset = 0;
        while offset < size {
            let extent = Extent::new(offset, (256 << 10).min(size - offset));
            self.read(volume, extent).await;
            offset = extent.end();
        }
    }
}

pub fn range(extent: Extent) -> std::ops::Range<usize> {
    to_usize(extent.offset)..to_usize(extent.end())
}

/// The bytes of `extent`.
pub async fn read(volume: &ArrayVolume, extent: Extent) -> Result<Vec<u8>, VolumeErrorKind> {
    let buffer = volume.buffer(to_usize(extent.bytes)).await;
    let request = Request { command: Command::Read(buffer), extent, fua: false };
    match volume.submit(request).await {
        Ok(Reply::Data(buffer)) => Ok(buffer.to_vec()),
        Ok(Reply::Done) => panic!("a read answers with data"),
        Err(error) => Err(error.kind),
    }
}

/// A request that must go well.
pub async fn submit(volume: &ArrayVolume, command: Command, extent: Extent, fua: bool) {
    let request = Request { command, extent, fua };
    volume.submit(request).await.expect("within the fault budget");
}
