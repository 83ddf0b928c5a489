//! A killed process loses no write that was answered, flushed or not: a client may live on, connect
//! to the next process, and rely on the answer.
//!
//! What must stay true: a seed decides everything; a failure prints it. The disks keep their
//! caches, and commands under way take effect or not.

use crate::world::ledger::{CLIENTS, Ledger, answered_counts, blank, client, look};
use crate::world::{assemble_spec, create_spec, engine, load, read};
use ashlar_engine::ArrayVolume;
use ashlar_layout::{Level, Shape};
use ashlar_sim::{Ended, Random, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent};
use ashlar_volume::{Command, Request, Volume};
use std::sync::Arc;
use std::time::Duration;

/// Create, write until the process is killed at a seeded moment.
fn write_until_killed(world: &mut SimWorld, shape: &Shape, seed: u64, ledger: &Ledger) {
    let engine = load::start(world, create_spec(shape.clone()));
    let operations = 50 + Random::stream(seed, 99).below(2000);
    let ledger = Arc::clone(ledger);
    load::run_until(world, engine, (Stop::Kill, operations), CLIENTS, move |volume, number| {
        client(volume, Arc::clone(&ledger), (seed, number), 24)
    });
}

fn survive(shape: &Shape, seed: u64) {
    let mut world = SimWorld::new(seed);
    crate::world::add_disks(&mut world, shape.members);
    let ledger = blank();
    write_until_killed(&mut world, shape, seed, &ledger);
    answered_counts(&ledger);
    let (opener, members) = (world.opener(), shape.members);
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(members)).await.expect("assembled after the kill");
            look(&engine, &ledger, seed).await;
        })
        .done();
}

/// An answered write that was the first of its stripe was gone after a kill unless it had been
/// flushed: the map of written stripes reached the members with a flush only.
#[test]
fn answered_writes_survive_a_killed_process_on_every_level() {
    let shapes = [
        crate::world::shape(Level::Raid1, 2, None, None),
        crate::world::shape(Level::Raid5, 4, None, None),
        crate::world::shape(Level::Raid6, 6, None, None),
        crate::world::shape(Level::Raid7, 7, None, None),
        crate::world::shape(Level::Raid60, 10, Some(5), None),
        crate::world::declustered(Level::Raid6, 8, 5, 1),
    ];
    for seed in 0..100 {
        survive(&shapes[seed % shapes.len()], seed as u64);
    }
}

async fn submit(volume: &ArrayVolume, command: Command, extent: Extent) {
    volume.submit(Request { command, extent, fua: false }).await.expect("healthy");
}

/// A stripe is written and flushed, zeroed as a whole, and the process is killed right after the
/// answer.
#[test]
fn answered_zeroes_of_a_whole_stripe_survive_a_killed_process() {
    let mut world = SimWorld::new(5);
    crate::world::add_disks(&mut world, 6);
    let (opener, switch) = (world.opener(), world.switch());
    let ended: Ended<()> = world.run(async move |handle| {
        let engine = engine(opener, &handle, 2);
        let shape = crate::world::shape(Level::Raid6, 6, None, None);
        engine.create(create_spec(shape)).await.expect("created");
        engine.assemble(assemble_spec(6)).await.expect("assembled");
        let zeroed = engine.with_volume(0, "tank", async move |volume| {
            // Four data strips.
            let stripe = Extent::new(0, 4 * (16 << 10));
            let mut buffer = volume.buffer(4096).await;
            buffer.fill(0x77);
            submit(&volume, Command::Write(buffer.freeze()), Extent::new(0, BLOCK_BYTES)).await;
            submit(&volume, Command::Flush, Extent::default()).await;
            submit(&volume, Command::WriteZeroes { may_unmap: true }, stripe).await;
            // With the first operation of whatever comes next.
            switch.stop_after(1, Stop::Kill);
            let next = Extent::new(stripe.end(), BLOCK_BYTES);
            submit(&volume, Command::Write(volume.buffer(4096).await.freeze()), next).await;
        });
        zeroed.await.expect("runs");
        loop {
            handle.sleep(Duration::from_secs(1)).await;
        }
    });
    assert_eq!(ended, Ended::Stopped(Stop::Kill));
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(6)).await.expect("assembled after the kill");
            let found = engine.with_volume(0, "tank", async |volume: ArrayVolume| {
                read(&volume, Extent::new(0, BLOCK_BYTES)).await.expect("healthy")
            });
            let found = found.await.expect("runs");
            assert!(found.iter().all(|byte| *byte == 0), "{:02x?} came back", &found[..8]);
        })
        .done();
}
