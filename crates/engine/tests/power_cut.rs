//! Power cuts at seeded moments: after the next start every block holds what was last flushed or something
//! written since, nothing else; after the resync any losses within the parity change nothing.
//!
//! What must stay true: a seed decides everything; a failure prints it. Blocks are written whole, and the
//! disks do not tear within 4 KiB: torn blocks are the intent log's business. Members that are lost
//! *together* with the power are its business too: with the bitmap policy an array that is degraded and
//! unclean starts read-only, and one of these tests says so.

mod world;

use ashlar_engine::{ArrayVolume, Engine};
use ashlar_layout::{Level, Shape};
use ashlar_sim::{DiskOptions, Ended, Random, SimDisk, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, to_usize};
use ashlar_volume::{Command, Request, Volume};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use world::{assemble_spec, create_spec, engine, names, read};

/// Blocks of the volume that the clients write.
const BLOCKS: u64 = 256;
/// Clients that write at the same time, each its own blocks.
const CLIENTS: u64 = 4;

/// What may be found in a block.
#[derive(Clone, Default)]
struct BlockHistory {
    /// The write that a flush made durable; 0 for none yet.
    durable: u64,
    /// Writes submitted since, oldest first.
    since: Vec<u64>,
    /// The last write that was answered.
    answered: u64,
}

/// What a client or the auditor knows of all blocks.
type Ledger = Arc<Mutex<Vec<BlockHistory>>>;

/// The content that write `id` puts into a block: names the write and the block.
fn content(block: u64, id: u64) -> Vec<u8> {
    if id == 0 {
        return vec![0; 4096];
    }
    let tag = [block.to_le_bytes(), id.to_le_bytes()].concat();
    tag.iter().copied().cycle().take(4096).collect()
}

fn who_wrote(block: u64, bytes: &[u8]) -> Option<u64> {
    let id = u64::from_le_bytes(bytes[8..16].try_into().expect("8 bytes"));
    (bytes == content(block, id)).then_some(id)
}

/// One client: writes runs of its blocks, flushes now and then, until the power goes.
async fn client(volume: ArrayVolume, ledger: Ledger, seed: u64, client: u64) {
    let mut random = Random::stream(seed, client);
    let own = BLOCKS / CLIENTS;
    for round in 1.. {
        if random.percent(10) {
            flush(&volume, &ledger).await;
            continue;
        }
        let count = if random.percent(20) { random.below(24) + 1 } else { 1 };
        let first = client * own + random.below(own - count + 1);
        let id = round * CLIENTS + client;
        let extent = Extent::new(first * BLOCK_BYTES, count * BLOCK_BYTES);
        let bytes = usize::try_from(extent.bytes).expect("small");
        let mut buffer = volume.buffer(bytes).await;
        for (block, part) in (first..).zip(buffer.chunks_mut(4096)) {
            part.copy_from_slice(&content(block, id));
            ledger.lock().expect("one thread")[to_usize(block)].since.push(id);
        }
        let request = Request { command: Command::Write(buffer.freeze()), extent, fua: false };
        volume.submit(request).await.expect("healthy");
        let mut ledger = ledger.lock().expect("one thread");
        (first..first + count).for_each(|block| ledger[to_usize(block)].answered = id);
    }
}

async fn flush(volume: &ArrayVolume, ledger: &Ledger) {
    let answered: Vec<u64> =
        ledger.lock().expect("one thread").iter().map(|block| block.answered).collect();
    let request = Request { command: Command::Flush, extent: Extent::default(), fua: false };
    volume.submit(request).await.expect("healthy");
    let mut ledger = ledger.lock().expect("one thread");
    for (block, id) in ledger.iter_mut().zip(answered) {
        // Flushes of several clients may be answered in any order: durability never goes back.
        if let Some(at) = block.since.iter().position(|since| *since == id) {
            block.durable = id;
            block.since.drain(..=at);
        }
    }
}

/// Read every block: it must be one of those that may be found. What is found is final from then on.
async fn audit(volume: &ArrayVolume, ledger: &Ledger, seed: u64) {
    for block in 0..BLOCKS {
        let extent = Extent::new(block * BLOCK_BYTES, BLOCK_BYTES);
        let bytes = read(volume, extent).await;
        let bytes = bytes.unwrap_or_else(|kind| panic!("seed {seed}: block {block}: {kind:?}"));
        let mut ledger = ledger.lock().expect("one thread");
        let history = &mut ledger[to_usize(block)];
        let found = who_wrote(block, &bytes);
        let is_allowed =
            found.is_some_and(|id| id == history.durable || history.since.contains(&id));
        assert!(
            is_allowed,
            "seed {seed}: block {block} holds {found:?}, allowed: {} or one of {:?}",
            history.durable, history.since
        );
        *history = BlockHistory { durable: found.expect("allowed"), ..BlockHistory::default() };
        history.answered = history.durable;
    }
}

fn add_disks(world: &mut SimWorld, count: usize) -> Vec<SimDisk> {
    let options = DiskOptions { atomic_write_bytes: 4096, ..DiskOptions::sized(world::DISK_BYTES) };
    names(count).iter().map(|name| world.add_disk(name, options.clone())).collect()
}

/// Create, write until the power goes at a seeded moment. True if it went while clients were writing.
fn write_until_power_cut(world: &mut SimWorld, shape: &Shape, seed: u64, ledger: &Ledger) {
    let (opener, shape) = (world.opener(), shape.clone());
    let members = shape.members;
    let begin = world.run(async move |handle| {
        let engine = engine(opener, &handle, 2);
        engine.create(create_spec(shape)).await.expect("created");
        engine.assemble(assemble_spec(members)).await.expect("assembled");
        engine
    });
    let engine = begin.done();
    let operations = 200 + Random::stream(seed, 99).below(3000);
    world.stop_at(world.operations() + operations, Stop::PowerCut);
    let ledger = Arc::clone(ledger);
    let ended: Ended<()> = world.run(async move |handle| {
        for number in 0..CLIENTS {
            let ledger = Arc::clone(&ledger);
            let worker = usize::try_from(number % 2).expect("small");
            let write = engine.with_volume(worker, "tank", async move |volume| {
                volume.handle().spawn(client(volume, ledger, seed, number));
            });
            write.await.expect("runs");
        }
        loop {
            handle.sleep(Duration::from_secs(1)).await;
        }
    });
    assert_eq!(ended, Ended::Stopped(Stop::PowerCut));
}

async fn wait_for_resync(engine: &Engine, handle: &ashlar_ring::Handle) {
    for _ in 0..10_000 {
        let status = engine.status().await.expect("runs");
        if status.arrays[0].unsynced_regions == 0 && status.arrays[0].jobs.is_empty() {
            return;
        }
        handle.sleep(Duration::from_millis(50)).await;
    }
    panic!("the resync does not end");
}

fn survive(shape: &Shape, losses: usize, seed: u64) {
    let mut world = SimWorld::new(seed);
    let disks = add_disks(&mut world, shape.members);
    let ledger: Ledger = Arc::new(Mutex::new(vec![BlockHistory::default(); to_usize(BLOCKS)]));
    write_until_power_cut(&mut world, shape, seed, &ledger);
    let (opener, members) = (world.opener(), shape.members);
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(members)).await.expect("assembled after the cut");
            look(&engine, &ledger, seed).await;
            wait_for_resync(&engine, &handle).await;
            look(&engine, &ledger, seed).await;
            let mut random = Random::stream(seed, 7);
            let first = usize::try_from(random.below(members as u64)).expect("small");
            for loss in 0..losses {
                disks[(first + loss) % members].vanish();
            }
            look(&engine, &ledger, seed).await;
        })
        .done();
}

async fn look(engine: &Engine, ledger: &Ledger, seed: u64) {
    let ledger = Arc::clone(ledger);
    let looked = engine.with_volume(0, "tank", async move |volume| {
        audit(&volume, &ledger, seed).await;
    });
    looked.await.expect("runs");
}

#[test]
fn flushed_blocks_survive_a_power_cut_on_every_level() {
    let shapes = [
        (world::shape(Level::Raid1, 2, None, None), 1),
        (world::shape(Level::Raid5, 4, None, None), 1),
        (world::shape(Level::Raid6, 6, None, None), 2),
        (world::shape(Level::Raid7, 7, None, None), 3),
        (world::shape(Level::Raid10, 4, None, None), 1),
        (world::shape(Level::Raid60, 10, Some(5), None), 2),
    ];
    for seed in 0..120 {
        let (shape, losses) = &shapes[seed % shapes.len()];
        survive(shape, *losses, seed as u64);
    }
}

#[test]
fn a_degraded_array_that_lost_power_starts_read_only_under_the_bitmap_policy() {
    let shape = world::shape(Level::Raid6, 6, None, None);
    let mut world = SimWorld::new(9);
    let disks = add_disks(&mut world, 6);
    let ledger: Ledger = Arc::new(Mutex::new(vec![BlockHistory::default(); to_usize(BLOCKS)]));
    write_until_power_cut(&mut world, &shape, 9, &ledger);
    disks[2].vanish();
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(6)).await.expect("starts read-only");
            let status = engine.status().await.expect("runs");
            assert_eq!(status.arrays[0].state, ashlar_engine::ArrayState::ReadOnly);
            let refused = engine.with_volume(0, "tank", async |volume: ArrayVolume| {
                let bytes = volume.buffer(4096).await.freeze();
                let extent = Extent::new(0, 4096);
                let request = Request { command: Command::Write(bytes), extent, fua: false };
                volume.submit(request).await.map(drop)
            });
            let kind = refused.await.expect("runs").expect_err("read-only").kind;
            assert_eq!(kind, ashlar_volume::VolumeErrorKind::ReadOnly);
        })
        .done();
}
