//! Power cuts at seeded moments: after the next start every block holds what was last flushed or
//! something written since, nothing else; after the resync any losses within the parity change
//! nothing.
//!
//! What must stay true: a seed decides everything; a failure prints it. Blocks are written whole,
//! and the disks do not tear within 4 KiB: torn blocks are the intent log's business. Members that
//! are lost *together* with the power are its business too: with the bitmap policy an array that is
//! degraded and unclean starts read-only, and one of these tests says so.

use crate::world::jobs::{audit, count, filled, find, last, ms, raid5, raid6, started, status};
use crate::world::ledger::{CLIENTS, Ledger, blank, client, look};
use crate::world::{Model, assemble_spec, create_spec, engine, load, names, range};
use ashlar_engine::{ArrayVolume, Engine, event_names};
use ashlar_layout::{Level, Shape};
use ashlar_sim::{DiskOptions, Random, SimDisk, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent};
use ashlar_volume::{Command, Request, Volume};
use std::sync::Arc;
use std::time::Duration;

fn add_disks(world: &mut SimWorld, count: usize) -> Vec<SimDisk> {
    let options =
        DiskOptions { atomic_write_bytes: 4096, ..DiskOptions::sized(crate::world::DISK_BYTES) };
    names(count).iter().map(|name| world.add_disk(name, options.clone())).collect()
}

/// Create, write until the power goes at a seeded moment.
fn write_until_power_cut(world: &mut SimWorld, shape: &Shape, seed: u64, ledger: &Ledger) {
    let engine = load::start(world, create_spec(shape.clone()));
    let operations = 200 + Random::stream(seed, 99).below(3000);
    let ledger = Arc::clone(ledger);
    load::run_until(world, engine, (Stop::PowerCut, operations), CLIENTS, move |volume, number| {
        client(volume, Arc::clone(&ledger), (seed, number), 24)
    });
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
    let ledger = blank();
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

#[test]
fn flushed_blocks_survive_a_power_cut_on_every_level() {
    let shapes = [
        (crate::world::shape(Level::Raid1, 2, None, None), 1),
        (crate::world::shape(Level::Raid5, 4, None, None), 1),
        (crate::world::shape(Level::Raid6, 6, None, None), 2),
        (crate::world::shape(Level::Raid7, 7, None, None), 3),
        (crate::world::shape(Level::Raid10, 4, None, None), 1),
        (crate::world::shape(Level::Raid60, 10, Some(5), None), 2),
    ];
    for seed in 0..120 {
        let (shape, losses) = &shapes[seed % shapes.len()];
        survive(shape, *losses, seed as u64);
    }
}

#[test]
fn a_degraded_array_that_lost_power_starts_read_only_under_the_bitmap_policy() {
    let shape = crate::world::shape(Level::Raid6, 6, None, None);
    let mut world = SimWorld::new(9);
    let disks = add_disks(&mut world, 6);
    let ledger = blank();
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

/// An array is killed while its parity is not trusted, and a block of it cannot be read any more
/// when it starts again and resyncs.
fn resync_beside_a_broken_block(
    shape: &Shape,
    check: impl AsyncFnOnce(&Engine, &[SimDisk], Model, Extent) + 'static,
) {
    let mut world = SimWorld::new(20);
    let disks = add_disks(&mut world, shape.members);
    let (opener, again, members) = (world.opener(), world.opener(), shape.members);
    let shape = shape.clone();
    let filled = world.run(async move |handle| {
        let engine = started(opener, &handle, shape).await;
        filled(&engine, 20).await
    });
    let model = filled.done();
    world.stop(Stop::Kill);
    world
        .run(async move |handle| {
            let block = Extent::new(7 * BLOCK_BYTES, BLOCK_BYTES);
            let (at, offset) = find(&disks, &model.bytes[range(block)]);
            disks[at].break_media(Extent::new(offset, BLOCK_BYTES));
            let engine = engine(again, &handle, 2);
            engine.assemble(assemble_spec(members)).await.expect("assembled");
            while count(&engine, event_names::JOB_BLOCKED) == 0
                && !status(&engine).await.jobs.is_empty()
            {
                handle.sleep(ms(20)).await;
            }
            check(&engine, &disks, model, block).await;
        })
        .done();
}

#[test]
fn a_resync_heals_a_block_that_cannot_be_read_if_a_parity_is_left_over_to_prove_it() {
    resync_beside_a_broken_block(&raid6(), async |engine, disks, model, _| {
        let broken: usize = disks.iter().map(SimDisk::unreadable_sectors).sum();
        assert_eq!(broken, 0, "the block was found to be right and not stored anew");
        assert_eq!(status(engine).await.unsynced_regions, 0);
        audit(engine, model).await;
    });
}

#[test]
fn a_block_that_cannot_be_read_is_not_guessed_from_parity_that_no_resync_could_prove() {
    resync_beside_a_broken_block(&raid5(), async |engine, _, _, block| {
        assert_eq!(status(engine).await.unsynced_regions, 1, "its region stays in doubt");
        let unrepairable = last(engine, event_names::JOB_BLOCKED, "unrepairable");
        assert_eq!(unrepairable.as_deref(), Some("1"));
        let answer = engine.with_volume(0, "tank", async move |volume| {
            let others = crate::world::read(&volume, Extent::new(0, block.offset)).await;
            (crate::world::read(&volume, block).await, others.is_ok())
        });
        let (block, others) = answer.await.expect("runs");
        assert_eq!((block, others), (Err(ashlar_volume::VolumeErrorKind::Io), true));
    });
}
