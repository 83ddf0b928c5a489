//! Devices that come after others in the same slot: what is known of one says nothing about the next.
//!
//! What must stay true: where a copy or a rebuild was is believed of the device it wrote to and of no other, also when
//! that device is lost, another takes its place, and the array is stopped in between.

use crate::world::jobs::{
    filled_to_the_brim, is_as_filled, job, ms, raid6, started, until_all_in_sync, world_for,
};
use crate::world::{DISK_BYTES, assemble_spec, engine};
use ashlar_engine::Engine;
use ashlar_ondisk::JobKind;
use ashlar_sim::{DiskOptions, Latency};
use ashlar_units::MemberIdx;

/// Stands still when some of its stripes are done, with a checkpoint that says so.
async fn pause_in_the_middle(engine: &Engine, handle: &ashlar_ring::Handle, kind: JobKind) {
    // Long before a checkpoint is due by itself.
    handle.sleep(ms(1000)).await;
    engine.pause("tank", JobKind::Rebuild).await.expect("it runs");
    handle.sleep(ms(2000)).await;
    let paused = job(engine, kind).await.expect("it stands still");
    assert!(paused.is_paused && paused.done_stripes > 0, "{paused:?}");
}

/// A copy is far on when its device is lost with the array stopped. Then the slot's own device goes, another takes the
/// slot, and the array is stopped before that one has anything.
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
