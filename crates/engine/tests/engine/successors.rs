//! Devices that come after others in the same slot: facts about one say nothing about the next.
//!
//! What must stay true: the progress of a copy or a rebuild counts for the device that it wrote to,
//! and for no other. This holds also if that device is lost, another takes its place, and the array
//! is stopped in between.

use crate::world::jobs::{
    count, filled_to_the_brim, is_as_filled, job, ms, raid6, started, until_all_in_sync, world_for,
};
use crate::world::{DISK_BYTES, assemble_spec, create_spec, engine, read, submit};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::{ArrayVolume, CreateSpec, Engine, event_names as names};
use ashlar_ondisk::{ConsistencyPolicy, JobKind};
use ashlar_sim::{DiskOptions, Latency, SimDisk, Stop};
use ashlar_units::{Extent, MemberIdx, StripIdx, StripeNo};
use ashlar_volume::{Command, Volume};

/// Stands still when some of its stripes are done, with a checkpoint that says so.
async fn pause_in_the_middle(engine: &Engine, handle: &ashlar_ring::Handle, kind: JobKind) {
    // Long before a checkpoint is due by itself.
    handle.sleep(ms(1000)).await;
    engine.pause("tank", JobKind::Rebuild).await.expect("it runs");
    handle.sleep(ms(2000)).await;
    let paused = job(engine, kind).await.expect("it stands still");
    assert!(paused.is_paused && paused.done_stripes > 0, "{paused:?}");
}

/// A copy is far on when its device is lost with the array stopped. Then the slot's own device
/// goes, another takes the slot, and the array is stopped before that one has anything. Seed
/// 1001768 of the universes. The new device was believed to be filled as far as the copy had been,
/// and reads gave what lay on it.
#[test]
fn a_rebuild_does_not_begin_where_the_copy_to_a_device_before_was() {
    let (mut world, disks, new) = world_for(820, &raid6());
    let next = world.add_disk("new1", DiskOptions::sized(DISK_BYTES));
    let slow = || Latency::constant(ms(100));
    let (opener, disk) = (world.opener(), new.clone());
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid6()).await;
            filled_to_the_brim(&engine).await;
            disk.set_latency(slow());
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
            pause_in_the_middle(&engine, &handle, JobKind::Replace).await;
            engine.stop("tank").await.expect("stopped clean");
        })
        .done();
    new.vanish();
    next.set_latency(slow());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(6)).await.expect("assembled without the replacement");
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            engine.replace("tank", MemberIdx(0), "new1", true).await.expect("replaced");
            let begun = job(&engine, JobKind::Rebuild).await.expect("it runs");
            assert_eq!(begun.done_stripes, 0);
            engine.stop("tank").await.expect("stopped clean");
        })
        .done();
    next.set_latency(Latency::default());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let mut spec = assemble_spec(6);
            spec.devices.push("new1".to_owned());
            engine.assemble(spec).await.expect("assembled");
            until_all_in_sync(&engine, &handle).await;
            disks[1].vanish();
            disks[2].vanish();
            is_as_filled(&engine).await;
        })
        .done();
}

/// Seed 1174396 of the universes. The last stripes of a copy stand still in a read when both its
/// devices go; they end when another device has the slot, of which nothing is filled yet. Where the
/// copy was is nothing that this one holds: blocks came out that had never been written.
#[test]
pub fn a_copy_that_ends_late_says_nothing_about_the_device_that_came_next() {
    let (mut world, disks, new) = world_for(1_174_396, &raid6());
    let next = world.add_disk("new1", DiskOptions::sized(DISK_BYTES));
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid6()).await;
            filled_to_the_brim(&engine).await;
            new.set_latency(Latency::constant(ms(100)));
            next.set_latency(Latency::constant(ms(100)));
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
            handle.sleep(ms(1000)).await;
            // What the copy reads instead, when its source has gone, takes its time too.
            let slow = Latency { read: ms(4000)..=ms(4000), ..Latency::default() };
            disks.iter().for_each(|disk| disk.set_latency(slow.clone()));
            handle.sleep(ms(500)).await;
            let copy = job(&engine, JobKind::Replace).await.expect("it runs");
            assert!(0 < copy.done_stripes && copy.done_stripes < copy.total_stripes, "{copy:?}");
            new.vanish();
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            handle.sleep(ms(20)).await;
            // What the rebuild has begun when it is paused ends long before.
            disks.iter().for_each(|disk| disk.set_latency(Latency::default()));
            engine.replace("tank", MemberIdx(0), "new1", true).await.expect("replaced");
            engine.pause("tank", JobKind::Rebuild).await.expect("it runs");
            assert!(
                job(&engine, JobKind::Replace).await.is_some(),
                "its last stripes are under way"
            );
            handle.sleep(ms(6000)).await;
            assert!(job(&engine, JobKind::Replace).await.is_none(), "they have ended");
            is_as_filled(&engine).await;
        })
        .done();
}

/// Blocks of `content` at `offset`, on their way when this returns.
async fn begin_write(engine: &Engine, offset: u64, (content, bytes): (u8, usize)) {
    let begin = async move |volume: ArrayVolume| {
        volume.handle().clone().spawn(async move {
            let mut buffer = volume.buffer(bytes).await;
            buffer.fill(content);
            let extent = Extent::new(offset, bytes as u64);
            submit(&volume, Command::Write(buffer.freeze()), extent, false).await;
        });
    };
    engine.with_volume(0, "tank", begin).await.expect("runs");
}

/// Seed 1557332 of the universes. A block is written while its slot's device is being replaced, so
/// both hold the record. The device fails, and before the replacement has the slot the block is
/// written again, on the others. The replacement gets it by its rebuild. After a kill the first
/// record was rolled forward on it: an answered and durable write was gone.
#[test]
fn a_restart_undoes_nothing_that_a_replacement_got_by_its_rebuild() {
    let (mut world, disks, _new) = world_for(1_557_332, &raid6());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            let spec = CreateSpec { policy: ConsistencyPolicy::Log, ..create_spec(raid6()) };
            let geometry = engine.create(spec).await.expect("created").geometry;
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            let whole = usize::try_from(geometry.stripe_bytes()).expect("small");
            begin_write(&engine, 0, (1, whole)).await;
            begin_write(&engine, geometry.stripe_bytes(), (1, whole)).await;
            handle.sleep(ms(1000)).await;
            let slot = geometry.place(geometry.stripe(StripeNo(0)), StripIdx(0)).member;
            let in_second = (0..4).find(|strip| {
                geometry.place(geometry.stripe(StripeNo(1)), StripIdx(*strip)).member == slot
            });
            let second = geometry.stripe_bytes()
                + u64::from(in_second.expect("data there, too")) * geometry.strip_bytes();
            engine.replace("tank", slot, "new0", true).await.expect("replaced");
            engine.pause("tank", JobKind::Replace).await.expect("it runs");
            begin_write(&engine, 0, (2, 4096)).await;
            handle.sleep(ms(1000)).await;
            // Recording that the device is out takes its time.
            let parity = geometry.place(geometry.stripe(StripeNo(0)), StripIdx(4)).member.at();
            let flush = ms(300)..=ms(300);
            disks[parity].set_latency(Latency { flush, ..Latency::default() });
            disks[slot.at()].fail(CommandKind::Write, FaultKind::TimedOut, Some(1));
            begin_write(&engine, second, (2, 4096)).await;
            handle.sleep(ms(100)).await;
            begin_write(&engine, 0, (3, 4096)).await;
            until_all_in_sync(&engine, &handle).await;
            assert_eq!(count(&engine, names::MEMBER_FAILED), 1);
        })
        .done();
    world.stop(Stop::Kill);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            let mut spec = assemble_spec(6);
            spec.devices.push("new0".to_owned());
            engine.assemble(spec).await.expect("assembled");
            assert_eq!(count(&engine, names::LOG_REPLAYED), 1);
            let first = engine.with_volume(0, "tank", async move |volume| {
                read(&volume, Extent::new(0, 4096)).await.expect("within the budget")[0]
            });
            assert_eq!(first.await.expect("runs"), 3, "what was answered last");
        })
        .done();
}

/// Universe 263 of those with the aim takeovers: a start could write the superblock neither to a
/// slot's own device nor to its replacement. The replacement was let go and stayed listed, so that
/// nothing could have the slot until the next start.
#[test]
fn a_slot_whose_devices_both_fail_at_a_start_can_be_filled_again() {
    let (mut world, disks, new) = world_for(263, &raid6());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid6()).await;
            filled_to_the_brim(&engine).await;
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
            engine.pause("tank", JobKind::Replace).await.expect("it runs");
            handle.sleep(ms(1000)).await;
        })
        .done();
    world.stop(Stop::Kill);
    for disk in [&disks[0], &new] {
        disk.fail(CommandKind::Write, FaultKind::Media, None);
    }
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let mut spec = assemble_spec(6);
            spec.devices.push("new0".to_owned());
            engine.assemble(spec).await.expect("one may be missing");
            assert_eq!(count(&engine, names::MEMBER_FAILED), 2);
            [&disks[0], &new].into_iter().for_each(SimDisk::stop_failing);
            handle.sleep(ms(1000)).await;
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("the slot is free");
            until_all_in_sync(&engine, &handle).await;
            is_as_filled(&engine).await;
        })
        .done();
}
