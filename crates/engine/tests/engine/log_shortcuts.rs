//! Where the stripe intent log saves a record or writes one early, and why that costs nobody a
//! block: each test is a story in which the saving would be wrong but for one rule
//! (docs/on-disk-format.md, W9, W12 and W14).
//!
//! - *A first write has no record.* All devices call the records that it could outdate settled.
//!   Before its bit is durable, a crash leaves an unwritten stripe, which reads as zeros. After it,
//!   all of the stripe is durable: the map's page is written after the caches. Without the rule a
//!   block from before a trim comes back.
//! - *Whole stripes are written ahead.* No record with data counts, so nothing is outdated that
//!   only a cache holds. A crash before the write comes finds a codeword that nobody was changing:
//!   generating its parity changes nothing. Without the rule a block that was logged and answered
//!   is lost with the cache.
//! - *Their rows stay locked* until the record is durable everywhere. Without that a slow member
//!   looks as if it had lost part of its log, and the start puts it out.
//! - *FLUSH does nothing for logged writes.* A record whose blocks may be in caches only is not
//!   outdated by one without data.
//!
//! What must stay true: each of these fails when its rule is taken out of `log.rs`, `log/ahead.rs`
//! or `log/write_ahead.rs`.

use crate::world::jobs::until_idle;
use crate::world::{add_disks, assemble_spec, create_spec, engine, names, read, submit};
use ashlar_engine::{ArrayCounts, ArrayVolume, CreateSpec, Engine, SlotState};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::examine::{examine_ranges, split_copies};
use ashlar_ondisk::{ConsistencyPolicy, SuperblockCopies};
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, Latency, SimDisk, SimOpener, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, to_usize};
use ashlar_volume::{Command, Volume};
use std::time::Duration;

/// A stripe of the RAID 6 of six disks.
const STRIPE: u64 = 64 << 10;
/// Stripes that are written before a story begins.
const FILLED: u64 = 32;
/// What they hold.
const OLD: u8 = 1;

fn raid6() -> Shape {
    crate::world::shape(Level::Raid6, 6, None, None)
}

async fn put(volume: &ArrayVolume, extent: Extent, byte: u8) {
    let mut buffer = volume.buffer(to_usize(extent.bytes)).await;
    buffer.fill(byte);
    submit(volume, Command::Write(buffer.freeze()), extent, false).await;
}

async fn flush(volume: &ArrayVolume) {
    submit(volume, Command::Flush, Extent::default(), false).await;
}

fn stripe(number: u64) -> Extent {
    Extent::new(number * STRIPE, STRIPE)
}

fn block(stripe: u64, block: u64) -> Extent {
    Extent::new(stripe * STRIPE + block * BLOCK_BYTES, BLOCK_BYTES)
}

/// A running array with a log and one worker, its first stripes filled with [`OLD`] and flushed.
async fn started(opener: SimOpener, handle: &Handle) -> Engine {
    let engine = engine(opener, handle, 1);
    let spec = CreateSpec { policy: ConsistencyPolicy::Log, ..create_spec(raid6()) };
    engine.create(spec).await.expect("created");
    engine.assemble(assemble_spec(6)).await.expect("assembled");
    let fill = engine.with_volume(0, "tank", async |volume| {
        // Backwards: no stream, so nothing is written ahead yet.
        for number in (0..FILLED).rev() {
            put(&volume, stripe(number), OLD).await;
        }
        flush(&volume).await;
    });
    fill.await.expect("runs");
    engine
}

async fn counts(engine: &Engine) -> ArrayCounts {
    engine.status().await.expect("runs").arrays[0].counts
}

/// After a power cut: every member takes part again, and these are the bytes of the extent.
fn after_power_cut(world: &mut SimWorld, extent: Extent) -> Vec<u8> {
    world.stop(Stop::PowerCut);
    let opener = world.opener();
    let look = world.run(async move |handle| {
        let engine = engine(opener, &handle, 1);
        engine.assemble(assemble_spec(6)).await.expect("assembled");
        let members = &engine.status().await.expect("runs").arrays[0].members;
        assert!(members.iter().all(|member| member.state == SlotState::InSync), "{members:?}");
        let read = engine.with_volume(0, "tank", async move |volume| {
            let mut got = Vec::new();
            for offset in (extent.offset..extent.end()).step_by(to_usize(STRIPE)) {
                let part = Extent::new(offset, STRIPE.min(extent.end() - offset));
                got.extend(read(&volume, part).await.expect("readable"));
            }
            got
        });
        read.await.expect("runs")
    });
    look.done()
}

/// A first write has no record where there is none to outdate. Here there is one: of a block that
/// was written before the stripe was trimmed.
#[test]
fn a_first_write_after_a_trim_outdates_what_the_log_has_of_the_stripe() {
    let mut world = SimWorld::new(1);
    add_disks(&mut world, 6);
    let opener = world.opener();
    let begin = world.run(async move |handle| {
        let engine = started(opener, &handle).await;
        let run = engine.with_volume(0, "tank", async |volume| {
            put(&volume, block(3, 0), 2).await;
            let zeroes = Command::WriteZeroes { may_unmap: true };
            submit(&volume, zeroes, stripe(3), false).await;
            flush(&volume).await;
            put(&volume, block(3, 0), 3).await;
            flush(&volume).await;
        });
        run.await.expect("runs");
        engine
    });
    let _engine = begin.done();
    let got = after_power_cut(&mut world, block(3, 0));
    assert!(got.iter().all(|byte| *byte == 3), "flushed as 3, found as {}", got[0]);
}

/// A record that is written ahead outdates older ones. Here the log is all that has a block that
/// was flushed: FLUSH has nothing to do for what is logged, and the caches lose it.
#[test]
fn records_written_ahead_stop_before_a_stripe_of_which_the_log_has_a_block() {
    for seed in 0..20 {
        let mut world = SimWorld::new(seed);
        add_disks(&mut world, 6);
        let opener = world.opener();
        let begin = world.run(async move |handle| {
            let engine = started(opener, &handle).await;
            let run = engine.with_volume(0, "tank", async |volume| {
                put(&volume, block(5, 0), 2).await;
                flush(&volume).await;
                for number in 0..5 {
                    put(&volume, stripe(number), 3).await;
                }
            });
            run.await.expect("runs");
            engine
        });
        let _engine = begin.done();
        let got = after_power_cut(&mut world, block(5, 0));
        assert!(got.iter().all(|byte| *byte == 2), "seed {seed}: flushed as 2, found {}", got[0]);
    }
}

/// While a record that is written ahead is on its way to a slow member, nothing is written to its
/// stripe: a later record that is whole above one that is not looks as if the slow member had lost
/// part of its log.
#[test]
fn nobody_writes_a_stripe_whose_record_is_on_its_way() {
    let mut world = SimWorld::new(2);
    let us = Duration::from_micros;
    let quick = Latency { read: us(5)..=us(5), write: us(5)..=us(5), flush: us(5)..=us(5) };
    let slow = Latency { write: us(3000)..=us(3000), ..quick.clone() };
    for (at, name) in names(6).iter().enumerate() {
        let latency = if at == 2 { slow.clone() } else { quick.clone() };
        world.add_disk(
            name,
            DiskOptions { latency, ..DiskOptions::sized(crate::world::DISK_BYTES) },
        );
    }
    let opener = world.opener();
    let begin = world.run(async move |handle| {
        let engine = started(opener, &handle).await;
        let run = engine.with_volume(0, "tank", async move |volume| {
            put(&volume, stripe(0), 3).await;
            let stream = volume.clone();
            volume.handle().spawn(async move { put(&stream, stripe(1), 3).await });
            // By now its own record and those of the stripes behind it are on their way.
            volume.handle().sleep(us(200)).await;
            for number in 2..FILLED {
                let small = volume.clone();
                let write = async move { put(&small, block(number, number % 16), 4).await };
                volume.handle().spawn(write);
            }
        });
        run.await.expect("runs");
        // Every other member would have all of it by now.
        handle.sleep(us(1500)).await;
        engine
    });
    let _engine = begin.done();
    let got = after_power_cut(&mut world, Extent::new(2 * STRIPE, (FILLED - 2) * STRIPE));
    assert!(got.iter().all(|byte| [OLD, 4].contains(byte)), "old or new");
}

/// Batches that one whole stripe costs.
async fn batches(engine: &Engine, number: u64) -> u64 {
    let before = counts(engine).await.log_batches;
    let run = engine.with_volume(0, "tank", async move |volume| {
        put(&volume, stripe(number), 3).await;
    });
    run.await.expect("runs");
    counts(engine).await.log_batches - before
}

#[test]
fn what_was_written_ahead_is_not_used_once_a_device_came_or_went() {
    let mut world = SimWorld::new(3);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle).await;
            for number in 0..4 {
                batches(&engine, number).await;
            }
            assert_eq!(batches(&engine, 4).await, 0, "its record is there");
            engine.fail("tank", MemberIdx(3)).await.expect("two may go");
            engine.re_add("tank", "disk3").await.expect("it is the same member");
            until_idle(&engine, &handle).await;
            assert!(batches(&engine, 5).await >= 6, "records of before do not name the device");
            assert_eq!(batches(&engine, 6).await, 0, "these do");
        })
        .done();
}

/// Where the members' data begins, bytes.
fn data_offset(disk: &SimDisk) -> u64 {
    let [head, tail] = examine_ranges(crate::world::DISK_BYTES).expect("large enough");
    let (head, tail) = (disk.peek(head), disk.peek(tail));
    let choice = SuperblockCopies::choose(&split_copies(Some(&head), Some(&tail)));
    choice.superblock().expect("a member").areas.data.offset
}

/// Nobody was writing that row when the power went; all the same it must be readable to be called
/// right. It is not, and that costs its unreadable blocks and not the array.
#[test]
fn a_row_in_doubt_with_more_unreadable_blocks_than_parity_costs_these_blocks_only() {
    let mut world = SimWorld::new(4);
    let disks = add_disks(&mut world, 6);
    let opener = world.opener();
    let begin = world.run(async move |handle| {
        let engine = started(opener, &handle).await;
        let run = engine.with_volume(0, "tank", async |volume| {
            for number in 0..3 {
                put(&volume, stripe(number), 3).await;
            }
            flush(&volume).await;
        });
        run.await.expect("runs");
        engine
    });
    let _engine = begin.done();
    world.stop(Stop::PowerCut);
    // The second row of stripe 9, whose record was written ahead.
    let row = Extent::new(data_offset(&disks[0]) + 9 * (16 << 10) + BLOCK_BYTES, BLOCK_BYTES);
    disks[..3].iter().for_each(|disk| disk.break_media(row));
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            let replayed = engine.status().await.expect("runs").arrays[0].replayed;
            let replayed = replayed.expect("the log was looked at");
            assert_eq!(replayed.rows_left, 1, "{replayed:?}");
            assert!(replayed.rows_in_doubt >= 4 * 8, "{replayed:?}");
            let look = engine.with_volume(0, "tank", async |volume| {
                let mut lost = Vec::new();
                for at in 0..FILLED * 16 {
                    let wanted = if at < 3 * 16 { 3 } else { OLD };
                    match read(&volume, block(0, at)).await {
                        Ok(bytes) => assert!(bytes.iter().all(|byte| *byte == wanted), "{at}"),
                        Err(_) => lost.push(at),
                    }
                }
                lost
            });
            let lost = look.await.expect("runs");
            let is_of_the_row = |at: &u64| at / 16 == 9 && at % 4 == 1;
            assert!(!lost.is_empty() && lost.len() <= 3, "{lost:?}");
            assert!(lost.iter().all(is_of_the_row), "{lost:?}");
        })
        .done();
}
