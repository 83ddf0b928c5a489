//! The stripe intent log as it is written: how many batches of which length each kind of write costs, a ring that
//! goes round and round, a ring that is full, and what FLUSH has left to do.
//!
//! What must stay true: all figures follow from the decision (`docs/adr/0008-stripe-intent-log.md`), none is
//! measured. What a restart makes of the log is tested elsewhere.

use crate::world::jobs::{until_idle, world_for};
use crate::world::{Model, add_disks, assemble_spec, create_spec, engine, names, submit};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::{
    ArrayCounts, ArrayVolume, AssembleSpec, CreateSpec, Engine, NewDevice, SlotState,
};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::examine::{examine_ranges, split_copies};
use ashlar_ondisk::{ConsistencyPolicy, Superblock, SuperblockCopies};
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, Latency, SimDisk, SimOpener, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, StripIdx, StripeNo};
use ashlar_volume::{Command, Volume};
use std::rc::Rc;
use std::time::Duration;

/// Bytes of the volume that are filled before anything is counted.
const SPAN: u64 = 1 << 20;
/// A stripe of the RAID 6 of six disks.
const STRIPE: u64 = 64 << 10;
const BLOCK: u64 = BLOCK_BYTES;

fn raid6() -> Shape {
    crate::world::shape(Level::Raid6, 6, None, None)
}

/// A running array with a log, filled up to [`SPAN`] and flushed.
async fn started(
    opener: SimOpener,
    handle: &Handle,
    (shape, workers): (Shape, usize),
) -> (Engine, Model) {
    let engine = engine(opener, handle, workers);
    let members = shape.members;
    let spec = CreateSpec { policy: ConsistencyPolicy::Log, ..create_spec(shape) };
    engine.create(spec).await.expect("created");
    engine.assemble(assemble_spec(members)).await.expect("assembled");
    let filled = engine.with_volume(0, "tank", async |volume| {
        let mut model = Model::new(3, volume.facts().size_bytes.min(2 * SPAN));
        for offset in (0..SPAN).step_by(64 << 10) {
            model.write(&volume, Extent::new(offset, 64 << 10)).await;
        }
        flush(&volume).await;
        model
    });
    let model = filled.await.expect("runs");
    (engine, model)
}

async fn flush(volume: &ArrayVolume) {
    submit(volume, Command::Flush, Extent::default(), false).await;
}

async fn counts(engine: &Engine) -> ArrayCounts {
    engine.status().await.expect("runs").arrays[0].counts
}

/// Records, batches and bytes of the log that one client write costs.
async fn cost(engine: &Engine, extent: Extent) -> (u64, u64, u64) {
    let before = counts(engine).await;
    let write = engine.with_volume(0, "tank", async move |volume| {
        let buffer = volume.buffer(usize::try_from(extent.bytes).expect("small")).await;
        submit(&volume, Command::Write(buffer.freeze()), extent, false).await;
    });
    write.await.expect("runs");
    let after = counts(engine).await;
    (
        after.log_records - before.log_records,
        after.log_batches - before.log_batches,
        after.log_bytes - before.log_bytes,
    )
}

#[test]
fn each_kind_of_write_costs_exactly_the_batches_of_its_holders() {
    let mut world = SimWorld::new(1);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, _) = started(opener, &handle, (raid6(), 2)).await;
            // One block: at home the block; on both parity members the new parity of its row.
            let one = (2 + 2 + 2) * BLOCK;
            assert_eq!(cost(&engine, Extent::new(BLOCK, BLOCK)).await, (1, 3, one));
            // Three of four strips of four blocks, in full.
            let three = (3 + 2) * (1 + 4) * BLOCK;
            assert_eq!(cost(&engine, Extent::new(0, 48 << 10)).await, (1, 5, three));
            // A whole stripe: nothing but headers.
            assert_eq!(cost(&engine, Extent::new(STRIPE, STRIPE)).await, (1, 6, 6 * BLOCK));
            // A whole stripe of which the log still holds a block: in full, for that block may be nowhere else.
            assert_eq!(cost(&engine, Extent::new(0, STRIPE)).await, (1, 6, 6 * (1 + 4) * BLOCK));
            // A first write: nothing at all. Its flush makes durable what the log held, so that is headers again.
            assert_eq!(cost(&engine, Extent::new(SPAN, BLOCK)).await, (0, 0, 0));
            assert_eq!(cost(&engine, Extent::new(0, STRIPE)).await, (1, 6, 6 * BLOCK));
            // With a member out whole stripes are logged in full: four blocks to each of the five others.
            engine.fail("tank", MemberIdx(3)).await.expect("two may go");
            let (records, batches, bytes) = cost(&engine, Extent::new(STRIPE, STRIPE)).await;
            assert_eq!((records, batches, bytes), (1, 5, 5 * (1 + 4) * BLOCK));
        })
        .done();
}

#[test]
fn a_stream_of_whole_stripes_writes_its_records_dozens_at_a_time() {
    let mut world = SimWorld::new(13);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, _) = started(opener, &handle, (raid6(), 1)).await;
            let run = engine.with_volume(0, "tank", async move |volume| {
                let mut model = Model::new(5, 128 * STRIPE);
                for _ in 0..2 {
                    for offset in (0..128 * STRIPE).step_by(64 << 10) {
                        model.write(&volume, Extent::new(offset, STRIPE)).await;
                    }
                    // The second time around nothing is a first write.
                    flush(&volume).await;
                }
                model
            });
            let mut model = run.await.expect("runs");
            let before = counts(&engine).await;
            let run = engine.with_volume(0, "tank", async move |volume| {
                for offset in (0..128 * STRIPE).step_by(64 << 10) {
                    model.write(&volume, Extent::new(offset, STRIPE)).await;
                }
                model.audit(&volume).await;
            });
            run.await.expect("runs");
            let after = counts(&engine).await;
            let batches = after.log_batches - before.log_batches;
            // Alone each stripe takes six. Two do, until it is a stream; then each window of 32 takes two for each
            // member at most, and it may begin anew where a region ends and when the ring is settled.
            assert!(batches <= 128 * 6 / 8, "{batches} batches for 128 stripes");
            assert!(batches >= 6 * 4, "{batches} batches for four windows");
        })
        .done();
}

/// What was promised to be durable is, whatever of the whole stripe that was written over it the caches had.
#[test]
fn a_logged_block_under_an_unflushed_whole_stripe_never_falls_back_behind_a_flush() {
    for seed in 0..40 {
        let mut world = SimWorld::new(seed);
        let disks = add_disks(&mut world, 6);
        let opener = world.opener();
        let begin = world.run(async move |handle| {
            let (engine, _) = started(opener, &handle, (raid6(), 1)).await;
            let run = engine.with_volume(0, "tank", async move |volume| {
                for (byte, bytes) in [(2, BLOCK), (3, STRIPE)] {
                    let mut buffer = volume.buffer(usize::try_from(bytes).expect("small")).await;
                    buffer.fill(byte);
                    let extent = Extent::new(STRIPE, bytes);
                    submit(&volume, Command::Write(buffer.freeze()), extent, false).await;
                    if byte == 2 {
                        flush(&volume).await;
                    }
                }
            });
            run.await.expect("runs");
            engine
        });
        let _engine = begin.done();
        world.stop(Stop::PowerCut);
        drop(disks);
        let opener = world.opener();
        let got = world.run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            let block = engine.with_volume(0, "tank", async |volume| {
                crate::world::read(&volume, Extent::new(STRIPE, BLOCK)).await.expect("readable")
            });
            block.await.expect("runs")
        });
        let block = got.done();
        let is_of = |byte: u8| block.iter().filter(|got| **got == byte).count();
        assert_eq!(is_of(2) + is_of(3), block.len(), "seed {seed}: older than what was flushed");
    }
}

#[test]
fn copies_of_a_mirror_are_logged_without_their_data() {
    let mut world = SimWorld::new(2);
    add_disks(&mut world, 2);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let shape = crate::world::shape(Level::Raid1, 2, None, None);
            let (engine, _) = started(opener, &handle, (shape, 1)).await;
            assert_eq!(cost(&engine, Extent::new(0, BLOCK)).await, (1, 2, 2 * BLOCK));
            let whole = Extent::new(0, 16 << 10);
            assert_eq!(cost(&engine, whole).await, (1, 2, 2 * BLOCK));
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            assert_eq!(cost(&engine, whole).await, (1, 1, BLOCK), "a copy needs no other");
        })
        .done();
}

#[test]
fn an_update_whose_record_would_be_too_long_goes_in_pieces() {
    let mut world = SimWorld::new(3);
    add_disks(&mut world, 4);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let strip_bytes = 128 << 10;
            let shape = Shape { strip_bytes, ..crate::world::shape(Level::Raid5, 4, None, None) };
            let (engine, mut model) = started(opener, &handle, (shape, 4)).await;
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            // Lanes of 256 KiB, records of 64 KiB: a header, and fifteen of the 32 rows of a strip.
            let stripe = 3 * strip_bytes;
            let (records, ..) = cost(&engine, Extent::new(0, stripe)).await;
            assert_eq!(records, (stripe / BLOCK).div_ceil(15));
            let run = engine.with_volume(1, "tank", async move |volume| {
                model.write(&volume, Extent::new(0, stripe)).await;
                model.write(&volume, Extent::new(BLOCK, stripe)).await;
                model.audit(&volume).await;
            });
            run.await.expect("runs");
        })
        .done();
}

#[test]
fn a_whole_stripe_goes_in_one_update_however_many_strips_it_has() {
    let mut world = SimWorld::new(12);
    add_disks(&mut world, 16);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let shape = crate::world::shape(Level::NPlusM, 16, None, Some(4));
            let (engine, _) = started(opener, &handle, (shape, 1)).await;
            engine.fail("tank", MemberIdx(0)).await.expect("four may go");
            // In full, but each device logs its own four rows only.
            let cost = cost(&engine, Extent::new(0, 192 << 10)).await;
            assert_eq!(cost, (1, 15, 15 * (1 + 4) * BLOCK));
        })
        .done();
}

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
            let lane_bytes = 1 << 20;
            let rounds = (after.log_bytes - before.log_bytes) / (6 * lane_bytes);
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
    // Of a mirror every record goes to all members, so all their lanes are full at once.
    let mirror = crate::world::shape(Level::Raid1, 2, None, None);
    let opener = world.opener();
    let ended = world.run(async move |handle| {
        let (engine, _) = started(opener, &handle, (mirror, 1)).await;
        let engine = Rc::new(engine);
        let (timer, watched) = (handle.clone(), Rc::clone(&engine));
        handle.spawn(async move {
            // Until all that had space has ended, and nothing goes on but the flush that is to bring more.
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

#[test]
fn a_flush_has_nothing_to_do_for_what_is_in_the_log() {
    let mut world = SimWorld::new(7);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, _) = started(opener, &handle, (raid6(), 1)).await;
            let flushes = async |extent: Extent| {
                cost(&engine, extent).await;
                let before = counts(&engine).await.member_flushes;
                let run = engine.with_volume(0, "tank", async |volume| flush(&volume).await);
                run.await.expect("runs");
                counts(&engine).await.member_flushes - before
            };
            assert_eq!(flushes(Extent::new(0, BLOCK)).await, 0, "logged in full");
            // The log may be all that has the block: a record that outdates its record would lose it.
            assert_eq!(flushes(Extent::new(0, STRIPE)).await, 0, "a whole stripe over it, too");
            assert_eq!(flushes(Extent::new(2 * STRIPE, STRIPE)).await, 6, "a whole stripe");
            assert_eq!(flushes(Extent::new(0, STRIPE)).await, 6, "and over what was flushed");
            assert_eq!(flushes(Extent::new(0, BLOCK)).await, 0, "again");
            assert_eq!(
                flushes(Extent::new(SPAN, BLOCK)).await,
                0,
                "a first write is answered flushed"
            );
            let trim = engine.with_volume(0, "tank", async |volume| {
                submit(&volume, Command::Discard, Extent::new(STRIPE, STRIPE), false).await;
            });
            trim.await.expect("runs");
            let pages = counts(&engine).await.written_page_writes;
            flushes(Extent::new(0, BLOCK)).await;
            assert_eq!(counts(&engine).await.written_page_writes, pages + 1, "a trim");
        })
        .done();
}

#[test]
fn the_first_write_after_a_trim_waits_until_the_members_call_the_stripe_unwritten() {
    let mut world = SimWorld::new(8);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, _) = started(opener, &handle, (raid6(), 1)).await;
            let stripe = Extent::new(2 * STRIPE, STRIPE);
            let trim = engine.with_volume(0, "tank", async move |volume| {
                submit(&volume, Command::Discard, stripe, false).await;
            });
            trim.await.expect("runs");
            let pages = async || counts(&engine).await.written_page_writes;
            let before = pages().await;
            cost(&engine, Extent::new(stripe.offset, BLOCK)).await;
            assert_eq!(pages().await, before + 2, "before it, and before it is answered");
            cost(&engine, Extent::new(SPAN, BLOCK)).await;
            assert_eq!(
                pages().await,
                before + 3,
                "never written before: only before it is answered"
            );
        })
        .done();
}

#[test]
fn once_a_member_is_out_whole_stripes_that_only_caches_hold_are_flushed_before_the_next_update() {
    let mut world = SimWorld::new(9);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, _) = started(opener, &handle, (raid6(), 1)).await;
            cost(&engine, Extent::new(0, STRIPE)).await;
            engine.fail("tank", MemberIdx(1)).await.expect("two may go");
            let before = counts(&engine).await.member_flushes;
            cost(&engine, Extent::new(4 * STRIPE, BLOCK)).await;
            assert_eq!(counts(&engine).await.member_flushes - before, 5);
            cost(&engine, Extent::new(4 * STRIPE, STRIPE)).await;
            cost(&engine, Extent::new(4 * STRIPE, BLOCK)).await;
            assert_eq!(counts(&engine).await.member_flushes - before, 5, "it was logged in full");
        })
        .done();
}

#[test]
fn a_member_that_fails_a_batch_is_out_before_the_write_is_answered() {
    let mut world = SimWorld::new(10);
    let disks = add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, mut model) = started(opener, &handle, (raid6(), 2)).await;
            disks[2].fail(CommandKind::WriteDurable, FaultKind::Media, None);
            let run = engine.with_volume(0, "tank", async move |volume| {
                // All members are holders of a whole stripe.
                model.write(&volume, Extent::new(0, STRIPE)).await;
                for (at, disk) in disks.iter().enumerate() {
                    let out =
                        superblock(disk).members.iter().filter(|m| m.role.name() == "out").count();
                    assert_eq!(out, usize::from(at != 2), "as disk {at} has it");
                }
                for _ in 0..200 {
                    model.step(&volume).await;
                }
                model.audit(&volume).await;
            });
            run.await.expect("runs");
            let status = engine.status().await.expect("runs").arrays.remove(0);
            assert_eq!(status.members[2].state, SlotState::Out);
        })
        .done();
}

fn superblock(disk: &SimDisk) -> Superblock {
    let [head, tail] = examine_ranges(crate::world::DISK_BYTES).expect("large enough");
    let (head, tail) = (disk.peek(head), disk.peek(tail));
    let choice = SuperblockCopies::choose(&split_copies(Some(&head), Some(&tail)));
    choice.superblock().expect("a member").clone()
}

#[test]
fn a_write_that_fails_halfway_leaves_word_of_it_on_the_members() {
    let mut world = SimWorld::new(11);
    let disks = add_disks(&mut world, 4);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let shape = crate::world::shape(Level::Raid5, 4, None, None);
            let (engine, mut model) = started(opener, &handle, (shape, 1)).await;
            // The region is dirty already, so the next plain writes are data and parity in place.
            let run = engine.with_volume(0, "tank", async move |volume| {
                model.write(&volume, Extent::new(0, BLOCK)).await;
                let looks = disks.clone();
                disks[0].fail(CommandKind::Write, FaultKind::NoSpace, Some(1));
                disks[1].fail(CommandKind::Write, FaultKind::NoSpace, Some(1));
                let buffer = volume.buffer(48 << 10).await;
                let request = ashlar_volume::Request {
                    command: Command::Write(buffer.freeze()),
                    extent: Extent::new(0, 48 << 10),
                    fua: false,
                };
                volume.submit(request).await.expect_err("two of RAID 5 lack it");
                let told =
                    looks.iter().filter(|disk| superblock(disk).resync_dirty_regions).count();
                assert_eq!(told, 3, "all but the one that could be put out");
            });
            run.await.expect("runs");
            assert!(engine.status().await.expect("runs").arrays[0].unsynced_regions > 0);
        })
        .done();
}

#[test]
fn a_repair_is_in_the_log_of_the_device_that_is_repaired() {
    let mut world = SimWorld::new(12);
    let disks = add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, model) = started(opener, &handle, (raid6(), 1)).await;
            let data = superblock(&disks[1]).areas.data;
            disks[1].break_media(Extent::new(data.offset, BLOCK));
            let before = counts(&engine).await;
            let run = engine.with_volume(0, "tank", async move |volume| model.audit(&volume).await);
            run.await.expect("runs");
            let after = counts(&engine).await;
            if after.repaired_blocks == before.repaired_blocks {
                // Parity lies there in the first stripe: a scrub reads that, too.
                engine.scrub("tank", false).await.expect("started");
                while !engine.status().await.expect("runs").arrays[0].jobs.is_empty() {
                    handle.sleep(Duration::from_millis(20)).await;
                }
            }
            let after = counts(&engine).await;
            let repaired = after.repaired_blocks - before.repaired_blocks;
            assert!(repaired > 0 && disks[1].unreadable_sectors() == 0);
            assert_eq!(after.log_records - before.log_records, 1);
            assert_eq!(after.log_batches - before.log_batches, 1, "one holder");
            assert_eq!(after.log_bytes - before.log_bytes, (1 + repaired) * BLOCK);
        })
        .done();
}

#[test]
fn a_level_without_redundancy_has_nothing_to_log() {
    let mut world = SimWorld::new(13);
    add_disks(&mut world, 3);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            let shape = crate::world::shape(Level::Raid0, 3, None, None);
            let spec = CreateSpec { policy: ConsistencyPolicy::Log, ..create_spec(shape) };
            let refused = engine.create(spec).await.expect_err("no redundancy");
            assert_eq!(refused.code, "array.no_redundancy");
        })
        .done();
}

/// The same of a write of one byte over and over, and how many lean records there were so far.
async fn cost_of(engine: &Engine, (extent, byte): (Extent, u8)) -> ((u64, u64, u64), u64) {
    let before = counts(engine).await;
    let write = engine.with_volume(0, "tank", async move |volume| {
        let mut buffer = volume.buffer(usize::try_from(extent.bytes).expect("small")).await;
        buffer.fill(byte);
        submit(&volume, Command::Write(buffer.freeze()), extent, false).await;
    });
    write.await.expect("runs");
    let after = counts(engine).await;
    let cost = (
        after.log_records - before.log_records,
        after.log_batches - before.log_batches,
        after.log_bytes - before.log_bytes,
    );
    (cost, after.lean_records)
}

#[test]
fn a_block_whose_device_writes_it_whole_is_logged_by_its_parity_alone() {
    let mut world = SimWorld::new(14);
    for (at, name) in names(6).iter().enumerate() {
        // Of the first stripe: strip 1.
        let has_volatile_cache = at == 2;
        let options =
            DiskOptions { has_volatile_cache, ..DiskOptions::sized(crate::world::DISK_BYTES) };
        world.add_disk(name, options);
    }
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            let spec = create_spec(raid6());
            let (policy, atomic_write_bytes) = (ConsistencyPolicy::Log, 4096);
            let spec = CreateSpec { policy, atomic_write_bytes, ..spec };
            engine.create(spec).await.expect("created");
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            let costs = async |place, byte| cost_of(&engine, (place, byte)).await;
            assert_eq!(costs(Extent::new(0, STRIPE), 1).await, ((0, 0, 0), 0), "a first write");
            let (full, lean) = ((1, 3, (2 + 2 + 2) * BLOCK), (1, 2, (2 + 2) * BLOCK));
            let strip = 16 << 10;
            let block = Extent::new(0, BLOCK);
            assert_eq!(costs(block, 2).await, (lean, 1));
            assert_eq!(costs(block, 2).await, (full, 1), "old and new are the same");
            let two = Extent::new(3 * strip, 2 * BLOCK);
            assert_eq!(costs(two, 3).await, ((1, 3, 3 * 3 * BLOCK), 1), "two rows");
            let with_cache = Extent::new(strip, BLOCK);
            assert_eq!(costs(with_cache, 4).await, (full, 1), "its device has a cache");
            // Another stripe, of which no full record counts; its first strip is out.
            assert_eq!(costs(Extent::new(STRIPE, STRIPE), 1).await, ((0, 0, 0), 1));
            engine.fail("tank", MemberIdx(0)).await.expect("two may go");
            let on_others = Extent::new(STRIPE + 3 * strip, BLOCK);
            assert_eq!(costs(on_others, 5).await, ((1, 2, (2 + 2) * BLOCK), 2), "degraded, too");
        })
        .done();
}

/// Write the first block of a stripe; how many lean records that took.
async fn lean_records_of(engine: &Engine, stripe: u64, byte: u8) -> u64 {
    let before = counts(engine).await.lean_records;
    let (_, now) = cost_of(engine, (Extent::new(stripe * STRIPE, BLOCK), byte)).await;
    now - before
}

/// What is stated of a device that comes later counts from the next start on; what is stated of a spare waits with it, also over
/// a start of the program, and is not for arrays that keep no log.
#[test]
fn a_device_that_comes_later_has_lean_records_from_the_next_start_on_if_that_was_stated_of_it() {
    let mut world = SimWorld::new(16);
    let options =
        DiskOptions { has_volatile_cache: false, ..DiskOptions::sized(crate::world::DISK_BYTES) };
    for name in names(6).iter().map(String::as_str).chain(["new0", "new1"]) {
        world.add_disk(name, options.clone());
    }
    world.add_disk("cached", DiskOptions::sized(crate::world::DISK_BYTES));
    let opener = world.opener();
    let stated = |path: &str| NewDevice { atomic_write_bytes: 4096, ..NewDevice::at(path, false) };
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            let spec = CreateSpec { policy: ConsistencyPolicy::Log, ..create_spec(raid6()) };
            let geometry = engine.create(spec).await.expect("created").geometry;
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            for stripe in 0..40 {
                cost_of(&engine, (Extent::new(stripe * STRIPE, STRIPE), 1)).await;
            }
            let on = |stripe| geometry.place(StripeNo(stripe), StripIdx(0)).member;
            let of = |member| (0..40).filter(move |stripe| on(*stripe) == member);
            let (first, second) = (on(0), on((1..40).find(|it| on(*it) != on(0)).expect("many")));
            let lean = async |stripe: u64, byte| lean_records_of(&engine, stripe, byte).await;
            let refused = engine.replace_by(
                "tank",
                first,
                NewDevice { atomic_write_bytes: 5000, ..NewDevice::at("new0", false) },
            );
            assert_eq!(refused.await.expect_err("no power of two").code, "array.bad_atomic_write");
            assert!(engine.look_at_statement(None, &stated("cached")).await.expect("it may be"));
            assert!(!engine.look_at_statement(None, &stated("new0")).await.expect("it may be"));
            engine.replace_by("tank", first, stated("new0")).await.expect("a copy begins");
            until_idle(&engine, &handle).await;
            assert_eq!(lean(of(first).next().expect("many"), 2).await, 0, "not before a start");
            engine.add_spare_device("spares", stated("new1")).await.expect("nobody's");
            assert_eq!(engine.spares()[0].stated_atomic_bytes, 4096);
            engine.stop("tank").await.expect("stopped clean");
            let devices = names(6).into_iter().chain(["new0".to_owned()]).collect::<Vec<_>>();
            let spec = AssembleSpec { devices: devices.clone(), ..assemble_spec(6) };
            engine.assemble(spec).await.expect("starts");
            assert_eq!(lean(of(first).nth(1).expect("many"), 2).await, 1, "stated of this one");
            assert_eq!(lean(of(second).nth(1).expect("many"), 2).await, 0, "and of no other");
            engine.fail("tank", second).await.expect("two may go");
            until_idle(&engine, &handle).await;
            let members = &engine.status().await.expect("runs").arrays[0].members;
            let said = |member: MemberIdx| {
                let member = &members[member.at()];
                (&*member.path, member.stated_atomic_bytes, member.is_lean)
            };
            assert_eq!(said(first), ("new0", 4096, true));
            assert_eq!(said(second), ("new1", 4096, false), "the spare brought it along");
            engine.stop("tank").await.expect("stopped clean");
            let devices = devices.into_iter().chain(["new1".to_owned()]).collect();
            engine.assemble(AssembleSpec { devices, ..assemble_spec(6) }).await.expect("starts");
            assert_eq!(lean(of(second).nth(2).expect("many"), 2).await, 1);
        })
        .done();
}

/// A statement is for a log: an array without one refuses it, and takes a spare without what was stated of that.
#[test]
fn an_array_without_a_log_takes_a_device_and_no_statement() {
    let (mut world, ..) = world_for(17, &raid6());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            let policy = ConsistencyPolicy::Bitmap;
            engine.create(CreateSpec { policy, ..create_spec(raid6()) }).await.expect("created");
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            let stated = || NewDevice { atomic_write_bytes: 4096, ..NewDevice::at("new0", false) };
            for refused in [
                engine.look_at_statement(Some("tank"), &stated()).await.map(drop),
                engine.replace_by("tank", MemberIdx(1), stated()).await,
            ] {
                let refusal = refused.expect_err("it keeps no log");
                assert_eq!(refusal.code, "array.atomic_write_needs_log");
            }
            engine.add_spare_device("spares", stated()).await.expect("nobody's");
            engine.fail("tank", MemberIdx(1)).await.expect("two may go");
            until_idle(&engine, &handle).await;
            let member = &engine.status().await.expect("runs").arrays[0].members[1];
            assert_eq!((&*member.path, member.stated_atomic_bytes), ("new0", 0));
        })
        .done();
}

/// What was stated of the devices at creation is not true of one that comes later, nor of its slot: a device that is
/// torn by a power cut would cost blocks that nobody was writing.
#[test]
fn a_device_of_which_nothing_was_stated_has_full_records_from_the_moment_it_comes() {
    let mut world = SimWorld::new(15);
    let options =
        DiskOptions { has_volatile_cache: false, ..DiskOptions::sized(crate::world::DISK_BYTES) };
    for name in names(6).iter().map(String::as_str).chain(["new0"]) {
        world.add_disk(name, options.clone());
    }
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            let (policy, atomic_write_bytes) = (ConsistencyPolicy::Log, 4096);
            let spec = CreateSpec { policy, atomic_write_bytes, ..create_spec(raid6()) };
            let geometry = engine.create(spec).await.expect("created").geometry;
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            // Each stripe is written once: a full record would make the next one of its stripe full, too.
            let on = |stripe| geometry.place(StripeNo(stripe), StripIdx(0)).member;
            let replaced = on(0);
            let (here, elsewhere): (Vec<u64>, Vec<u64>) =
                (0..40).partition(|stripe| on(*stripe) == replaced);
            for stripe in 0..40 {
                cost_of(&engine, (Extent::new(stripe * STRIPE, STRIPE), 1)).await;
            }
            let lean = async |stripe: u64, byte| lean_records_of(&engine, stripe, byte).await;
            assert_eq!((lean(here[0], 2).await, lean(elsewhere[0], 2).await), (1, 1));
            engine.replace("tank", replaced, "new0", false).await.expect("a copy begins");
            assert_eq!(lean(here[1], 2).await, 0, "it is on its way");
            until_idle(&engine, &handle).await;
            assert_eq!(lean(here[2], 2).await, 0, "it took over");
            assert_eq!(lean(elsewhere[1], 2).await, 1, "the others are what they were");
            engine.stop("tank").await.expect("stopped clean");
            let devices = names(6).into_iter().chain(["new0".to_owned()]).collect();
            engine.assemble(AssembleSpec { devices, ..assemble_spec(6) }).await.expect("starts");
            assert_eq!(lean(here[3], 2).await, 0, "also after a start");
            assert_eq!(lean(elsewhere[2], 2).await, 1);
            // One that comes back missed what the start looked at: not before the next.
            let away = on(elsewhere[3]);
            let path = format!("disk{}", away.at());
            engine.fail("tank", away).await.expect("two may go");
            engine.re_add("tank", &path).await.expect("it is the same member");
            until_idle(&engine, &handle).await;
            assert_eq!(lean(elsewhere[3], 2).await, 0, "it came back");
        })
        .done();
}
