//! Power cuts, judged by the reader that shares no code with the engine. What it reads from the
//! disks after the cut must be within the contract, even with members lost at the same moment. With
//! the bitmap policy it must also equal what the engine reads after its next start.
//!
//! With the log policy only the reader is judged: it applies the log itself, as the engine's replay
//! must.
//!
//! What must stay true: a seed decides everything; a failure prints it. Disks do not tear within 4
//! KiB, as in `power_cut`. Blocks that the reader calls in doubt are not judged: it says itself
//! that they may be wrong.

use crate::world::{assemble_spec, create_spec, engine, load, names, read, submit};
use ashlar_engine::{ArrayVolume, CreateSpec};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_salvage::{Choices, How, Salvage};
use ashlar_sim::{DiskOptions, Random, SimDisk, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, to_usize};
use ashlar_volume::{Command, Request, Volume};
use std::sync::{Arc, Mutex};

const BLOCKS: u64 = 192;
const CLIENTS: u64 = 3;

/// For each block the writes that may be found in it, and the last one that was answered.
#[derive(Clone)]
struct History {
    allowed: Vec<u64>,
    answered: u64,
}

type Ledger = Arc<Mutex<Vec<History>>>;

fn content(block: u64, id: u64) -> Vec<u8> {
    let tag = [block.to_le_bytes(), id.to_le_bytes()].concat();
    let tag = if id == 0 { vec![0; 16] } else { tag };
    tag.iter().copied().cycle().take(4096).collect()
}

/// Writes single blocks and runs that cover whole stripes; a client that flushes forgets what was
/// before.
async fn client(volume: ArrayVolume, ledger: Ledger, seed: u64, number: u64) {
    let mut random = Random::stream(seed, number);
    let own = BLOCKS / CLIENTS;
    for round in 1.. {
        if random.percent(8) {
            let mine = number * own..(number + 1) * own;
            let answered =
                |it: &Ledger, block: u64| it.lock().expect("one thread")[to_usize(block)].answered;
            let before: Vec<u64> = mine.clone().map(|block| answered(&ledger, block)).collect();
            submit(&volume, Command::Flush, Extent::default(), false).await;
            for (block, id) in mine.zip(before) {
                let allowed = &mut ledger.lock().expect("one thread")[to_usize(block)].allowed;
                let at = allowed.iter().position(|it| *it == id).expect("written");
                allowed.drain(..at);
            }
            continue;
        }
        let count = if random.percent(25) { random.below(32) + 1 } else { 1 };
        let first = number * own + random.below(own - count + 1);
        let id = round * CLIENTS + number;
        let extent = Extent::new(first * BLOCK_BYTES, count * BLOCK_BYTES);
        let mut buffer = volume.buffer(to_usize(extent.bytes)).await;
        for (block, part) in (first..).zip(buffer.chunks_mut(4096)) {
            part.copy_from_slice(&content(block, id));
            ledger.lock().expect("one thread")[to_usize(block)].allowed.push(id);
        }
        let request = Request { command: Command::Write(buffer.freeze()), extent, fua: false };
        volume.submit(request).await.expect("healthy");
        let mut ledger = ledger.lock().expect("one thread");
        (first..first + count).for_each(|block| ledger[to_usize(block)].answered = id);
    }
}

fn write_until_power_cut(world: &mut SimWorld, spec: CreateSpec, seed: u64, ledger: &Ledger) {
    let engine = load::start(world, spec);
    let operations = 200 + Random::stream(seed, 99).below(2500);
    let ledger = Arc::clone(ledger);
    load::run_until(world, engine, (Stop::PowerCut, operations), CLIENTS, move |volume, number| {
        client(volume, Arc::clone(&ledger), seed, number)
    });
}

/// What the second reader finds in every block, from all disks but those `lost`. Each is one that
/// may be there, or in doubt (`None`).
fn salvaged(
    disks: &[Vec<u8>],
    lost: &[usize],
    ledger: &[History],
    case: &str,
) -> Vec<Option<Vec<u8>>> {
    let here = disks.iter().enumerate().filter(|(at, _)| !lost.contains(at));
    let images: Vec<&[u8]> = here.map(|(_, image)| image.as_slice()).collect();
    let images: Vec<&&[u8]> = images.iter().collect();
    let salvage = Salvage::open(images, &Choices::default()).expect("an array");
    let block = |(number, history): (u64, &History)| {
        let found = salvage.read_block(number);
        let found = found.unwrap_or_else(|_| panic!("{case} {lost:?}: block {number} is lost"));
        if found.how == How::InDoubt {
            return None;
        }
        let is_allowed =
            history.allowed.iter().any(|id| found.bytes.as_slice() == content(number, *id));
        let holds = u64::from_le_bytes(found.bytes[8..16].try_into().expect("8 bytes"));
        assert!(
            is_allowed,
            "{case} {lost:?}: block {number} ({:?}) holds {holds}, allowed {:?}",
            found.how, history.allowed
        );
        Some(found.bytes.to_vec())
    };
    (0..).zip(ledger).map(block).collect()
}

fn survive(shape: &Shape, losses: usize, policy: ConsistencyPolicy, seed: u64) {
    let mut world = SimWorld::new(seed);
    let options =
        DiskOptions { atomic_write_bytes: 4096, ..DiskOptions::sized(crate::world::DISK_BYTES) };
    let disks: Vec<SimDisk> =
        names(shape.members).iter().map(|name| world.add_disk(name, options.clone())).collect();
    let empty = History { allowed: vec![0], answered: 0 };
    let ledger: Ledger = Arc::new(Mutex::new(vec![empty; to_usize(BLOCKS)]));
    let spec = CreateSpec { policy, ..create_spec(shape.clone()) };
    write_until_power_cut(&mut world, spec, seed, &ledger);
    let whole = Extent::new(0, crate::world::DISK_BYTES);
    let images: Vec<Vec<u8>> = disks.iter().map(|disk| disk.peek(whole)).collect();
    let (history, case) =
        (ledger.lock().expect("one thread").clone(), format!("seed {seed}, {policy:?}"));
    let found = salvaged(&images, &[], &history, &case);
    for first in 0..shape.members {
        let lost: Vec<usize> = (first..first + losses).map(|at| at % shape.members).collect();
        salvaged(&images, &lost, &history, &case);
    }
    same_by_the_engine(&mut world, shape.members, &found, &case);
}

/// What the engine reads after its next start is what the second reader found.
fn same_by_the_engine(world: &mut SimWorld, members: usize, found: &[Option<Vec<u8>>], case: &str) {
    let opener = world.opener();
    let read_back = world.run(async move |handle| {
        let engine = engine(opener, &handle, 2);
        engine.assemble(assemble_spec(members)).await.expect("assembled after the cut");
        let all = engine.with_volume(0, "tank", async move |volume| {
            read(&volume, Extent::new(0, BLOCKS * BLOCK_BYTES)).await.expect("readable")
        });
        all.await.expect("runs")
    });
    for (block, (second, first)) in found.iter().zip(read_back.done().chunks(4096)).enumerate() {
        let second = second.as_deref().expect("nothing is in doubt while all members are here");
        assert!(second == first, "{case}: the readers differ in block {block}");
    }
}

fn shapes() -> [(Shape, usize); 7] {
    [
        (crate::world::shape(Level::Raid5, 4, None, None), 1),
        (crate::world::shape(Level::Raid6, 6, None, None), 2),
        (crate::world::shape(Level::Raid7, 7, None, None), 3),
        (crate::world::shape(Level::Raid60, 10, Some(5), None), 2),
        (crate::world::declustered(Level::Raid5, 5, 3, 0), 1),
        (crate::world::declustered(Level::Raid6, 9, 5, 1), 2),
        (crate::world::in_enclosures(), 2),
    ]
}

#[test]
fn after_a_power_cut_both_readers_see_the_same_under_the_bitmap_policy() {
    for seed in 0..24 {
        let (shape, losses) = &shapes()[to_usize(seed) % 7];
        survive(shape, *losses, ConsistencyPolicy::Bitmap, seed);
    }
}

#[test]
fn after_a_power_cut_the_log_gives_every_block_back_with_members_lost_too() {
    for seed in 100..124 {
        let (shape, losses) = &shapes()[to_usize(seed) % 7];
        survive(shape, *losses, ConsistencyPolicy::Log, seed);
    }
}
