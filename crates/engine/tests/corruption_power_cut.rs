//! Power cuts of arrays with checksums while clients write, and blocks that rot while the power is off: the start has
//! to roll its log forward over both, and reads have to tell them apart.
//!
//! What must stay true: a seed decides everything; a failure prints it. In a row at most one block rots, and where
//! the parity is for two a member is lost as well. Every block holds what was last flushed or something written since.
//! Clients write less than stripes here: of whole stripes in flight rot is believed (`docs/adr/0013-checksums-of-blocks.md`).

mod world;

use ashlar_engine::CreateSpec;
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::{ChecksumKind, ConsistencyPolicy};
use ashlar_sim::{DiskOptions, Random, SimDisk, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, to_usize};
use std::sync::Arc;
use world::ledger::{CLIENTS, Ledger, blank, client, look};
use world::{assemble_spec, create_spec, engine, load, names};

/// Longest write of a client, in blocks: less than any stripe.
const BLOCKS_MAX: u64 = 3;
/// Rows of the members that the clients' blocks lie in, in the array with the fewest.
const ROWS: u64 = 40;

/// Create, and write until the power goes at a seeded moment. Where the members' data begins, bytes.
fn write_until_power_cut(world: &mut SimWorld, shape: &Shape, seed: u64, ledger: &Ledger) -> u64 {
    let spec = CreateSpec {
        policy: ConsistencyPolicy::Log,
        checksums: ChecksumKind::Crc32c,
        ..create_spec(shape.clone())
    };
    let (engine, data_offset) = load::start_and(world, spec, async |_, report| report.data_offset);
    let operations = 400 + Random::stream(seed, 99).below(6000);
    let ledger = Arc::clone(ledger);
    load::run_until(world, engine, (Stop::PowerCut, operations), CLIENTS, move |volume, number| {
        client(volume, Arc::clone(&ledger), (seed, number), BLOCKS_MAX)
    });
    data_offset
}

/// A block of every third row or so changes, each on some disk.
fn rot(disks: &[SimDisk], data_offset: u64, random: &mut Random) {
    for row in (0..ROWS).filter(|row| row % 3 == 0) {
        let disk = &disks[to_usize(random.below(disks.len() as u64))];
        disk.corrupt(Extent::new(data_offset + row * BLOCK_BYTES, BLOCK_BYTES));
    }
}

/// One universe: blocks that were found wrong, and updates that were rolled forward.
fn survive(shape: &Shape, m: usize, seed: u64) -> (u64, u64) {
    let mut world = SimWorld::new(seed);
    let options = DiskOptions { atomic_write_bytes: 512, ..DiskOptions::sized(world::DISK_BYTES) };
    let disks: Vec<SimDisk> =
        names(shape.members).iter().map(|name| world.add_disk(name, options.clone())).collect();
    let ledger = blank();
    let data_offset = write_until_power_cut(&mut world, shape, seed, &ledger);
    let mut random = Random::stream(seed, 8);
    rot(&disks, data_offset, &mut random);
    if m > 1 && random.percent(50) {
        disks[to_usize(random.below(disks.len() as u64))].vanish();
    }
    let (opener, members) = (world.opener(), shape.members);
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let started = engine.assemble(assemble_spec(members)).await;
            started.unwrap_or_else(|refusal| panic!("seed {seed}: {refusal:?}"));
            look(&engine, &ledger, seed).await;
            look(&engine, &ledger, seed).await;
            let array = &engine.status().await.expect("runs").arrays[0];
            let wrong = array.members.iter().map(|it| it.counts.checksum_mismatches).sum();
            (wrong, array.replayed.map_or(0, |replayed| replayed.rolled_forward))
        })
        .done()
}

#[test]
fn what_rots_while_the_power_is_off_is_repaired_whatever_was_being_written() {
    let shapes = [
        (world::shape(Level::Raid5, 4, None, None), 1),
        (world::shape(Level::Raid6, 6, None, None), 2),
        (world::shape(Level::Raid7, 7, None, None), 3),
        (world::shape(Level::Raid1, 3, None, None), 2),
        (world::shape(Level::Raid60, 10, Some(5), None), 2),
    ];
    let (mut wrong, mut rolled_forward) = (0, 0);
    for (seed, (shape, m)) in (0..40).zip(shapes.iter().cycle()) {
        let found = survive(shape, *m, seed);
        wrong += found.0;
        rolled_forward += found.1;
    }
    assert!(wrong > 40, "{wrong} blocks found wrong");
    assert!(rolled_forward > 40, "{rolled_forward} updates rolled forward");
}
