//! Arrays with data in them: every level and policy, whole and degraded, stopped cleanly, killed
//! and cut off.
//!
//! What must stay true: a block is exactly what the last write made it, unless its stripe was being
//! written when the host stopped. Each array was started twice, so a copy from the first time is
//! more than one generation behind.

use crate::config::Payload;
use crate::content::{WriteId, fill};
use ashlar_engine::{
    ArrayVolume, AssembleSpec, CreateReport, CreateSpec, Engine, EngineConfig, Refusal,
};
use ashlar_layout::{DeclusteredShape, Geometry, Level, Shape};
use ashlar_ondisk::format::copy_slots;
use ashlar_ondisk::{ChecksumKind, ConsistencyPolicy, Superblock};
use ashlar_ring::Handle;
use ashlar_sim::{DiskImage, DiskOptions, Random, SimDisk, SimOpener, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, BLOCK_BYTES_USIZE, Extent, MemberIdx, to_u64, to_usize};
use ashlar_volume::{Command, Request, Volume};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Size of every member's device, bytes.
pub(crate) const DISK_BYTES: u64 = 5 << 20;
/// Old content that is no zeros and belongs to nobody, so that what was never written is seen if it
/// shows.
const JUNK: Extent = Extent { offset: (2 << 20) + (64 << 10), bytes: 256 << 10 };
/// Blocks at the beginning of the volume that clients write.
pub(crate) const BLOCKS: u64 = 256;
/// Clients that write at once when the host stops, each its own part.
const CLIENTS: u64 = 4;

/// How the host stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Clean,
    Killed,
    PowerCut,
}

/// An array at rest.
pub struct Subject {
    pub(crate) name: String,
    pub(crate) geometry: Geometry,
    pub(crate) superblock: Superblock,
    /// The devices, in the order of their slots.
    pub(crate) now: Vec<DiskImage>,
    /// The same at the end of the first run.
    pub(crate) older: Vec<DiskImage>,
    /// The write that each block at the beginning holds.
    pub(crate) held: Vec<WriteId>,
    /// Stripes that were being written when the host stopped.
    pub(crate) in_flight: BTreeSet<u64>,
    /// Slots whose device is out.
    pub(crate) out: Vec<usize>,
    /// A member of another array.
    pub(crate) other: DiskImage,
    /// It was not stopped.
    pub(crate) is_crashed: bool,
}

/// What clients have written.
struct Books {
    held: Vec<WriteId>,
    in_flight: BTreeSet<u64>,
    next: u64,
    stripe_bytes: u64,
}

type Shared = Arc<Mutex<Books>>;

fn lock(books: &Shared) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names of the devices of an array.
pub(crate) fn names(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("disk{at}")).collect()
}

pub(crate) fn engine(opener: SimOpener, handle: &Handle) -> Engine {
    let config = EngineConfig {
        worker_count: 2,
        payload_bytes: 4 << 20,
        wall_clock_s: || 1_700_000_000,
        ..EngineConfig::new(Arc::new(opener))
    };
    Engine::on_executor(config, handle).expect("memory for pools")
}

pub(crate) async fn write(volume: &ArrayVolume, blocks: std::ops::Range<u64>, id: WriteId) -> bool {
    let extent = Extent::new(blocks.start * BLOCK_BYTES, (blocks.end - blocks.start) * BLOCK_BYTES);
    let mut buffer = volume.buffer(to_usize(extent.bytes)).await;
    for (block, part) in blocks.zip(buffer.chunks_mut(BLOCK_BYTES_USIZE)) {
        fill(Payload::Tags, block, id, part);
    }
    let request = Request { command: Command::Write(buffer.freeze()), extent, fua: false };
    volume.submit(request).await.is_ok()
}

pub(crate) async fn flush(volume: &ArrayVolume) -> bool {
    let request = Request { command: Command::Flush, extent: Extent::default(), fua: false };
    volume.submit(request).await.is_ok()
}

/// Some blocks within `part`: one, a few, or as many as some stripes.
fn some_blocks(random: &mut Random, part: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let most = if random.percent(30) { 48 } else { 4 };
    let count = (1 + random.below(most)).min(part.end - part.start);
    let first = part.start + random.below(part.end - part.start - count + 1);
    first..first + count
}

/// Write a lot, one after the other, and have it durable.
async fn write_settled(volume: &ArrayVolume, books: &Shared, random: &mut Random) {
    for _ in 0..24 {
        let blocks = some_blocks(random, 0..BLOCKS);
        let id = next_id(books);
        assert!(write(volume, blocks.clone(), id).await, "a sound array takes writes");
        let held = &mut lock(books).held;
        blocks.for_each(|block| held[to_usize(block)] = id);
    }
    assert!(flush(volume).await, "a sound array flushes");
}

fn next_id(books: &Shared) -> WriteId {
    let mut books = lock(books);
    books.next += 1;
    WriteId(books.next)
}

/// Write until the host stops.
async fn write_on(volume: ArrayVolume, books: Shared, mut random: Random, number: u64) {
    let own = BLOCKS / CLIENTS;
    loop {
        let blocks = some_blocks(&mut random, number * own..(number + 1) * own);
        let id = next_id(&books);
        {
            let mut books = lock(&books);
            for block in blocks.clone() {
                let stripe = block * BLOCK_BYTES / books.stripe_bytes;
                books.in_flight.insert(stripe);
            }
        }
        write(&volume, blocks, id).await;
    }
}

/// What array, and how it comes to rest.
struct Recipe {
    shape: Shape,
    policy: ConsistencyPolicy,
    checksums: ChecksumKind,
    is_degraded: bool,
    end: End,
    seed: u64,
}

fn add_disks(world: &mut SimWorld, names: &[String]) -> Vec<SimDisk> {
    let junk: Vec<u8> = (0..JUNK.bytes).map(|at| u8::try_from(at % 251).expect("small")).collect();
    let add = |name: &String| {
        let disk = world.add_disk(name, DiskOptions::sized(DISK_BYTES));
        disk.poke(JUNK.offset, &junk);
        disk
    };
    names.iter().map(add).collect()
}

async fn create(engine: &Engine, recipe: &Recipe) -> Result<CreateReport, Refusal> {
    let is_stated = recipe.policy == ConsistencyPolicy::Log && recipe.seed % 2 == 1;
    let spec = CreateSpec {
        enclosures: None,
        name: "tank".to_owned(),
        devices: names(recipe.shape.members),
        shape: recipe.shape.clone(),
        policy: recipe.policy,
        checksums: recipe.checksums,
        atomic_write_bytes: if is_stated { 4096 } else { 0 },
        logical_block_bytes: 512,
        region_bytes: None,
        member_bytes: None,
        destroy: Vec::new(),
        is_dry_run: false,
    };
    engine.create(spec).await
}

fn images(disks: &[SimDisk]) -> Vec<DiskImage> {
    disks.iter().map(SimDisk::image).collect()
}

/// One member of a mirror that has nothing to do with the array.
fn other_array() -> DiskImage {
    let mut world = SimWorld::new(77);
    let disks = add_disks(&mut world, &names(2));
    let opener = world.opener();
    let recipe = Recipe {
        shape: shape(Level::Raid1, 2, None),
        policy: ConsistencyPolicy::Bitmap,
        checksums: ChecksumKind::None,
        is_degraded: false,
        end: End::Clean,
        seed: 77,
    };
    world
        .run(async move |handle| {
            let created = create(&engine(opener, &handle), &recipe).await;
            created.map(drop).expect("an ordinary array");
        })
        .done();
    disks[0].image()
}

impl Recipe {
    fn name(&self) -> String {
        let Shape { level, members, group_members, .. } = &self.shape;
        let groups = group_members.map_or(String::new(), |group| format!(" in groups of {group}"));
        format!(
            "{}{} of {members}{groups}, policy {}, checksums {}, {}, {:?}",
            if self.shape.declustered.is_some() { "declustered " } else { "" },
            level.name(),
            self.policy.name(),
            if self.checksums == ChecksumKind::None { "off" } else { "on" },
            if self.is_degraded { "degraded" } else { "whole" },
            self.end
        )
    }

    fn make(&self, other: &DiskImage) -> Subject {
        let mut world = SimWorld::new(self.seed);
        let disks = add_disks(&mut world, &names(self.shape.members));
        let (geometry, books) = self.first_run(&mut world);
        let older = images(&disks);
        self.second_run(&mut world, &books);
        let now = images(&disks);
        let newest = |disk: &SimDisk| {
            let slots = copy_slots(DISK_BYTES).expect("large enough");
            slots.iter().filter_map(|slot| Superblock::decode(&disk.peek(*slot)).ok()).next()
        };
        let superblocks = disks.iter().filter_map(newest);
        let superblock = superblocks.max_by_key(|it| it.generation).expect("an array");
        let Books { held, in_flight, .. } = std::mem::replace(
            &mut *lock(&books),
            Books { held: Vec::new(), in_flight: BTreeSet::new(), next: 0, stripe_bytes: 1 },
        );
        let out = if self.is_degraded { vec![self.slot_to_lose()] } else { Vec::new() };
        let name = self.name();
        let other = other.clone();
        let is_crashed = self.end != End::Clean;
        Subject { name, geometry, superblock, now, older, held, in_flight, out, other, is_crashed }
    }

    fn slot_to_lose(&self) -> usize {
        to_usize(self.seed) % self.shape.members
    }

    /// Create it, write and stop it.
    fn first_run(&self, world: &mut SimWorld) -> (Geometry, Shared) {
        let opener = world.opener();
        let members = self.shape.members;
        world
            .run(async |handle| {
                let engine = engine(opener, &handle);
                let created = create(&engine, self).await.expect("an ordinary array");
                let books = Arc::new(Mutex::new(Books {
                    held: vec![WriteId(0); to_usize(BLOCKS)],
                    in_flight: BTreeSet::new(),
                    next: 0,
                    stripe_bytes: created.geometry.stripe_bytes(),
                }));
                let spec = AssembleSpec { devices: names(members), ..AssembleSpec::default() };
                engine.assemble(spec).await.expect("an ordinary array");
                self.settle(&engine, &books, 1).await;
                engine.stop("tank").await.expect("an ordinary array");
                (created.geometry, books)
            })
            .done()
    }

    async fn settle(&self, engine: &Engine, books: &Shared, purpose: u64) {
        let (books, seed) = (Arc::clone(books), self.seed);
        let write = engine.with_volume(0, "tank", async move |volume| {
            write_settled(&volume, &books, &mut Random::stream(seed, purpose)).await;
        });
        write.await.expect("it runs");
    }

    /// Start it again, write more, and stop or crash.
    fn second_run(&self, world: &mut SimWorld, books: &Shared) {
        let (opener, switch) = (world.opener(), world.switch());
        let (members, seed, end) = (self.shape.members, self.seed, self.end);
        world.run(async |handle| {
            let engine = engine(opener, &handle);
            let spec = AssembleSpec { devices: names(members), ..AssembleSpec::default() };
            // A copy from before a single start cannot be told from a member that a crash kept from
            // hearing of it.
            engine.assemble(spec.clone()).await.expect("an ordinary array");
            engine.stop("tank").await.expect("an ordinary array");
            engine.assemble(spec).await.expect("an ordinary array");
            if self.is_degraded {
                let slot = MemberIdx::from_at(self.slot_to_lose());
                engine.fail("tank", slot).await.expect("it can do without");
            }
            self.settle(&engine, books, 2).await;
            let stop = match end {
                End::Clean => {
                    engine.stop("tank").await.expect("an ordinary array");
                    return;
                }
                End::Killed => Stop::Kill,
                End::PowerCut => Stop::PowerCut,
            };
            switch.stop_after(30 + Random::stream(seed, 3).below(400), stop);
            for number in 0..CLIENTS {
                let (books, random) = (Arc::clone(books), Random::stream(seed, 4 + number));
                let worker = to_usize(number % 2);
                let write = engine.with_volume(worker, "tank", async move |volume| {
                    volume.handle().spawn(write_on(volume.clone(), books, random, number));
                });
                write.await.expect("it runs");
            }
            loop {
                handle.sleep(Duration::from_secs(1)).await;
            }
        });
        world.stop(Stop::Kill);
    }
}

fn shape(level: Level, members: usize, group_members: Option<usize>) -> Shape {
    let strip_bytes = 16 << 10;
    Shape { level, members, parity: None, group_members, strip_bytes, declustered: None }
}

/// A declustered one with short cells, and a column that stays empty.
fn declustered() -> Shape {
    let spread = DeclusteredShape {
        domain_members: 1,
        stripe_width: 4,
        spare_columns: 1,
        cell_bytes: Some(32 << 10),
    };
    Shape { declustered: Some(spread), ..shape(Level::Raid6, 6, None) }
}

/// Arrays of all levels and policies, in every state; the same every time.
pub fn subjects() -> Vec<Subject> {
    let other = other_array();
    let mut recipes = Vec::new();
    for shape in [
        shape(Level::Raid0, 3, None),
        shape(Level::Raid1, 2, None),
        shape(Level::Raid5, 4, None),
        shape(Level::Raid6, 5, None),
        shape(Level::Raid7, 6, None),
        Shape { parity: Some(2), ..shape(Level::NPlusM, 5, None) },
        shape(Level::Raid10, 4, None),
        shape(Level::Raid50, 6, Some(3)),
        declustered(),
    ] {
        for (policy, checksums) in [
            (ConsistencyPolicy::None, ChecksumKind::None),
            (ConsistencyPolicy::Bitmap, ChecksumKind::None),
            (ConsistencyPolicy::Log, ChecksumKind::None),
            (ConsistencyPolicy::Log, ChecksumKind::Crc32c),
        ] {
            let has_parity = shape.level != Level::Raid0;
            if (policy == ConsistencyPolicy::None) == has_parity {
                continue;
            }
            for (is_degraded, end) in [
                (false, End::Clean),
                (false, End::Killed),
                (false, End::PowerCut),
                (true, End::Clean),
                (true, End::PowerCut),
            ] {
                if is_degraded && !has_parity {
                    continue;
                }
                let (shape, seed) = (shape.clone(), 1 + to_u64(recipes.len()));
                recipes.push(Recipe { shape, policy, checksums, is_degraded, end, seed });
            }
        }
    }
    recipes.iter().map(|recipe| recipe.make(&other)).collect()
}
