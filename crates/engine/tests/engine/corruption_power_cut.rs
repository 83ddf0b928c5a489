//! Power cuts of arrays with checksums while clients write, and blocks that rot while the power is off: the start has
//! to roll its log forward over both, and reads have to tell them apart.
//!
//! What must stay true: a seed decides everything; a failure prints it. In a row at most one block rots, and where
//! the parity is for two a member is lost as well. Every block holds what was last flushed or something written since.
//! These clients write less than stripes: of whole stripes in flight rot is believed (`docs/adr/0013-checksums-of-blocks.md`).
//! What rots in whole stripes that nobody was writing is not, though the log still has their records.

use crate::world::jobs::{pair, scrub, until_all_in_sync};
use crate::world::ledger::{CLIENTS, Ledger, blank, client, look};
use crate::world::{assemble_spec, create_spec, engine, load, names, read, submit};
use ashlar_engine::ArrayVolume;
use ashlar_engine::CreateSpec;
use ashlar_layout::{Geometry, Level, Shape};
use ashlar_ondisk::{ChecksumKind, ConsistencyPolicy};
use ashlar_sim::{DiskOptions, Random, SimDisk, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, BLOCK_BYTES_USIZE, Extent, StripIdx, StripeNo, to_usize};
use ashlar_volume::{Command, Volume, VolumeErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// Longest write of a client, in blocks: less than any stripe.
const BLOCKS_MAX: u64 = 3;
/// Rows of the members that the clients' blocks lie in, in the array with the fewest.
const ROWS: u64 = 40;

fn summed(shape: &Shape) -> CreateSpec {
    CreateSpec {
        policy: ConsistencyPolicy::Log,
        checksums: ChecksumKind::Crc32c,
        ..create_spec(shape.clone())
    }
}

/// Create, and write until the power goes at a seeded moment. Where the members' data begins, bytes.
fn write_until_power_cut(world: &mut SimWorld, shape: &Shape, seed: u64, ledger: &Ledger) -> u64 {
    let spec = summed(shape);
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
    let options =
        DiskOptions { atomic_write_bytes: 512, ..DiskOptions::sized(crate::world::DISK_BYTES) };
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
        (crate::world::shape(Level::Raid5, 4, None, None), 1),
        (crate::world::shape(Level::Raid6, 6, None, None), 2),
        (crate::world::shape(Level::Raid7, 7, None, None), 3),
        (crate::world::shape(Level::Raid1, 3, None, None), 2),
        (crate::world::shape(Level::Raid60, 10, Some(5), None), 2),
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

/// Stripes that are written whole, twice, before the crash.
const STRIPES: u64 = 4;

/// What every block holds.
fn content(block: u64) -> Vec<u8> {
    let mut random = Random::stream(0xF0, block);
    (0..BLOCK_BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect()
}

async fn write_stripes(volume: &ArrayVolume) {
    let stripe_bytes = u64::from(volume.facts().optimal_bytes);
    for stripe in 0..STRIPES {
        let extent = Extent::new(stripe * stripe_bytes, stripe_bytes);
        let mut buffer = volume.buffer(to_usize(stripe_bytes)).await;
        let first = extent.offset / BLOCK_BYTES;
        for (block, part) in (first..).zip(buffer.chunks_mut(BLOCK_BYTES_USIZE)) {
            part.copy_from_slice(&content(block));
        }
        submit(volume, Command::Write(buffer.freeze()), extent, false).await;
    }
    submit(volume, Command::Flush, Extent::default(), false).await;
}

/// Create an array, write stripes whole and whole again, flush, and leave them alone until the write-intent bitmap has
/// been cleared; then the power goes. Geometry, and where the members' data begins, bytes.
fn written_long_ago(world: &mut SimWorld, shape: &Shape) -> (Geometry, u64) {
    let (opener, members, spec) = (world.opener(), shape.members, summed(shape));
    let written = world.run(async move |handle| {
        let engine = engine(opener, &handle, 1);
        let report = engine.create(spec).await.expect("created");
        engine.assemble(assemble_spec(members)).await.expect("assembled");
        let write = engine.with_volume(0, "tank", async |volume| {
            write_stripes(&volume).await;
            write_stripes(&volume).await;
        });
        write.await.expect("runs");
        handle.sleep(Duration::from_secs(10)).await;
        (engine, report.geometry, report.data_offset)
    });
    let (_engine, geometry, data_offset) = written.done();
    world.stop(Stop::PowerCut);
    (geometry, data_offset)
}

/// Blocks that read back right, and those answered with an error; nothing else is to be had.
async fn right_and_refused(volume: &ArrayVolume) -> (u64, u64) {
    let stripe_bytes = u64::from(volume.facts().optimal_bytes);
    let (mut right, mut refused) = (0, 0);
    for block in 0..STRIPES * stripe_bytes / BLOCK_BYTES {
        match read(volume, Extent::new(block * BLOCK_BYTES, BLOCK_BYTES)).await {
            Ok(bytes) => {
                assert!(bytes == content(block), "block {block} is wrong");
                right += 1;
            }
            Err(kind) => {
                assert_eq!(kind, VolumeErrorKind::Io, "block {block}");
                refused += 1;
            }
        }
    }
    (right, refused)
}

/// A block of a whole stripe rots and another member of it is away, at the start after a crash and until it is back: how many
/// blocks were answered with an error meanwhile.
fn rot_with_a_member_away(shape: &Shape) -> u64 {
    let mut world = SimWorld::new(17);
    // A cache may lose that the bitmap was cleared: then they are in doubt again.
    let options =
        DiskOptions { has_volatile_cache: false, ..DiskOptions::sized(crate::world::DISK_BYTES) };
    let disks: Vec<SimDisk> =
        names(shape.members).iter().map(|name| world.add_disk(name, options.clone())).collect();
    let (geometry, data_offset) = written_long_ago(&mut world, shape);
    let place = |strip: u8| geometry.place(StripeNo(1), StripIdx(strip));
    let (rotten, away) = (place(0), place(1).member.at());
    let row = Extent::new(data_offset + rotten.offset, BLOCK_BYTES);
    disks[rotten.member.at()].corrupt(row);
    disks[away].vanish();
    let (opener, members, gone) = (world.opener(), shape.members, disks[away].clone());
    let started = world.run(async move |handle| {
        let engine = engine(opener, &handle, 1);
        engine.assemble(assemble_spec(members)).await.expect("assembled");
        let look = engine.with_volume(0, "tank", async |volume| right_and_refused(&volume).await);
        let (_, refused) = look.await.expect("runs");
        gone.come_back();
        engine.re_add("tank", &format!("disk{away}")).await.expect("it is the same member");
        until_all_in_sync(&engine, &handle).await;
        let look = engine.with_volume(0, "tank", async |volume| right_and_refused(&volume).await);
        assert_eq!(look.await.expect("runs").1, 0, "all that is needed is there again");
        assert_eq!(scrub(&engine, &handle, false).await, pair(0, 0));
        let array = &engine.status().await.expect("runs").arrays[0];
        let replayed = array.replayed.expect("it stopped with a crash");
        assert_eq!(replayed.rows_in_doubt, 0, "nobody was writing them");
        let wrong = array.members.iter().map(|member| member.counts.checksum_mismatches > 0);
        let named: Vec<usize> = wrong.enumerate().filter(|found| found.1).map(|it| it.0).collect();
        assert_eq!(named, [rotten.member.at()]);
        refused
    });
    started.done()
}

/// The log of a start has records of whole stripes long after they were durable: it believed what it found, made parity
/// of a block that had rotted since, and with a member away what was to be had of that came out wrong; and as the bitmap
/// said that nothing had been written there, the member was not made to agree when it came back.
#[test]
fn what_rots_in_a_stripe_that_nobody_was_writing_is_not_believed_though_its_record_is_in_the_log() {
    let raid6 = crate::world::shape(Level::Raid6, 6, None, None);
    assert_eq!(rot_with_a_member_away(&raid6), 0, "two faults are within the budget");
    let raid5 = crate::world::shape(Level::Raid5, 4, None, None);
    assert_eq!(rot_with_a_member_away(&raid5), 2, "the block that rotted and the one that is away");
}
