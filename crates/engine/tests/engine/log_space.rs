//! Space of the stripe intent log: a ring that goes round and round, a ring that is full, and a
//! device that fails when others wait for it.
//!
//! What must stay true: whoever waits for space gets it or is told; nobody waits for ever.

use crate::log::{BLOCK, SPAN, counts, raid6, started};
use crate::world::{add_disks, names, submit};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::{Engine, SlotState};
use ashlar_layout::Level;
use ashlar_sim::{DiskOptions, Latency, SimDisk, SimWorld};
use ashlar_units::Extent;
use ashlar_volume::{Command, Volume};
use std::rc::Rc;
use std::time::Duration;

#[test]
fn the_ring_goes_round_many_times_and_settles_as_it_goes() {
    let mut world = SimWorld::new(4);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, mut model) = started(opener, &handle, (raid6(), 1)).await;
            let before = counts(&engine).await;
            let run = engine.with_volume(0, "tank", async move |volume| {
                for _ in 0..4000 {
                    let at = model.extent().offset % SPAN / BLOCK * BLOCK;
                    model.write(&volume, Extent::new(at, BLOCK)).await;
                }
                model.audit(&volume).await;
            });
            run.await.expect("runs");
            let after = counts(&engine).await;
            let log_ring_bytes = 1 << 20;
            let rounds = (after.log_bytes - before.log_bytes) / (6 * log_ring_bytes);
            let settles = after.log_settles - before.log_settles;
            assert!(rounds >= 15, "{rounds} rounds");
            assert!(settles >= rounds && settles <= 4 * rounds, "{settles} in {rounds} rounds");
        })
        .done();
}

/// Disks on which a flush takes a hundred times as long as a write.
fn slow_to_flush(world: &mut SimWorld, count: usize) -> Vec<SimDisk> {
    let us = Duration::from_micros;
    let latency = Latency { read: us(5)..=us(9), write: us(5)..=us(9), flush: us(900)..=us(999) };
    let options = DiskOptions { latency, ..DiskOptions::sized(crate::world::DISK_BYTES) };
    names(count).iter().map(|name| world.add_disk(name, options.clone())).collect()
}

/// As many clients as there are, each with its own rows, all on one worker.
async fn clients(engine: &Engine, count: u64, writes: u64) {
    let run = engine.with_volume(0, "tank", async move |volume| {
        let left = Rc::new(std::cell::Cell::new(count));
        for client in 0..count {
            let (own, left) = (volume.clone(), Rc::clone(&left));
            volume.handle().spawn(async move {
                let rows = SPAN / count / BLOCK;
                for write in 0..writes {
                    let mut buffer = own.buffer(4096).await;
                    buffer.fill(u8::try_from((client + write) % 251).expect("below 251"));
                    let at = (client * rows + write % rows) * BLOCK;
                    let command = Command::Write(buffer.freeze());
                    submit(&own, command, Extent::new(at, BLOCK), false).await;
                }
                left.set(left.get() - 1);
            });
        }
        let mut waited_ms = 0;
        while left.get() > 0 {
            volume.handle().sleep(Duration::from_millis(1)).await;
            waited_ms += 1;
            assert!(waited_ms < 60_000, "{} clients wait for ever", left.get());
        }
        let rows = SPAN / count / BLOCK;
        for (client, row) in (0..count).flat_map(|client| (0..rows).map(move |row| (client, row))) {
            let last =
                (0..writes).rev().find(|write| write % rows == row).expect("all were written");
            let wanted = u8::try_from((client + last) % 251).expect("below 251");
            let extent = Extent::new((client * rows + row) * BLOCK, BLOCK);
            let got = crate::world::read(&volume, extent).await.expect("readable");
            assert!(got.iter().all(|byte| *byte == wanted), "client {client} row {row}");
        }
    });
    run.await.expect("runs");
}

#[test]
fn updates_wait_for_space_when_the_ring_is_full_and_all_of_them_end() {
    let mut world = SimWorld::new(5);
    slow_to_flush(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, _) = started(opener, &handle, (raid6(), 4)).await;
            clients(&engine, 128, 64).await;
            let counts = counts(&engine).await;
            assert!(counts.log_space_waits > 100, "{} waits", counts.log_space_waits);
            assert!(counts.log_settles > 10);
            engine.stop("tank").await.expect("stopped clean");
        })
        .done();
}

/// Whether the member was still needed for space when its batches began to fail, and so went out.
fn fails_batches_when_the_ring_is_full(seed: u64) -> bool {
    let mut world = SimWorld::new(seed);
    let disks = slow_to_flush(&mut world, 2);
    // Of a mirror every record goes to all members, so all their log rings are full at once.
    let mirror = crate::world::shape(Level::Raid1, 2, None, None);
    let opener = world.opener();
    let ended = world.run(async move |handle| {
        let (engine, _) = started(opener, &handle, (mirror, 1)).await;
        let engine = Rc::new(engine);
        let (timer, watched) = (handle.clone(), Rc::clone(&engine));
        handle.spawn(async move {
            // Until all that had space has ended, and nothing goes on but the flush that is to
            // bring more.
            let mut batches = 0;
            loop {
                timer.sleep(Duration::from_micros(60)).await;
                let now = counts(&watched).await;
                if now.log_space_waits > 0 && now.log_batches == batches {
                    break;
                }
                batches = now.log_batches;
            }
            disks[1].fail(CommandKind::WriteDurable, FaultKind::TimedOut, None);
        });
        clients(&engine, 128, 64).await;
        let status = engine.status().await.expect("runs").arrays.remove(0);
        engine.stop("tank").await.expect("stopped clean");
        status.members[1].state == SlotState::Out
    });
    ended.done()
}

/// Seed 272 of the universes. A batch without records failed, nobody was blamed, and its space
/// never came back: client requests never ended.
#[test]
fn a_member_that_fails_a_batch_without_records_is_out_and_nobody_waits_for_its_space() {
    // With some seeds nothing is left to log when the ring stands still, and no batch fails.
    let out = (12..24).filter(|seed| fails_batches_when_the_ring_is_full(*seed)).count();
    assert!(out >= 4, "the member went out in {out} of 12 runs");
}

#[test]
fn records_of_many_clients_go_together() {
    let mut world = SimWorld::new(6);
    slow_to_flush(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, _) = started(opener, &handle, (raid6(), 1)).await;
            let before = counts(&engine).await;
            clients(&engine, 64, 32).await;
            let after = counts(&engine).await;
            let records = after.log_records - before.log_records;
            let batches = after.log_batches - before.log_batches;
            // Now and then two that wait for the same rows go as one.
            assert!((64 * 30..=64 * 32).contains(&records), "{records} records");
            // Three holders each: alone it would be three batches a record.
            assert!(2 * batches < 3 * records, "{batches} batches of {records} records");
        })
        .done();
}
