//! A rebuild or copy that is cut off by a stop, a kill or a power cut, and goes on at the next
//! start.
//!
//! What must stay true: what was recorded as done is not done again, and in the end the new device
//! says what the others say.

use crate::world::jobs::{
    MODEL_BYTES, begin_rebuild, everything, filled, filled_to_the_brim, is_as_filled, job, ms,
    pair, raid6, restarted, scrub, started, status, until_all_in_sync, until_idle, world_for,
};
use crate::world::{Model, assemble_dirty, assemble_spec, engine};
use ashlar_engine::Engine;
use ashlar_layout::Level;
use ashlar_ondisk::JobKind;
use ashlar_ring::Handle;
use ashlar_sim::{Latency, SimDisk, Stop};
use ashlar_units::MemberIdx;

/// Bytes of the volume in a region of so small an array.
const REGION_BYTES: u64 = 1 << 20;

/// A rebuild onto a slow disk that is far enough for a checkpoint; how many stripes it began with.
async fn slow_rebuild(engine: &Engine, handle: &Handle, new: &SimDisk) -> u64 {
    begin_rebuild(engine).await;
    let total = job(engine, JobKind::Rebuild).await.expect("it runs").total_stripes;
    new.set_latency(Latency::constant(ms(1500)));
    // A few windows of stripes, then the checkpoint with its flushes.
    handle.sleep(ms(14_000)).await;
    let now = job(engine, JobKind::Rebuild).await.expect("it is slow");
    assert!(now.done_stripes > 0 && now.done_stripes < total, "{now:?}");
    total
}

#[test]
fn a_rebuild_goes_on_from_its_checkpoint_after_a_kill() {
    let (mut world, disks, new) = world_for(500, &raid6());
    let (opener, again, disk) = (world.opener(), world.opener(), new.clone());
    let total = world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid6()).await;
            filled_to_the_brim(&engine).await;
            slow_rebuild(&engine, &handle, &disk).await
        })
        .done();
    world.stop(Stop::Kill);
    new.set_latency(Latency::default());
    world
        .run(async move |handle| {
            let engine = restarted(again, &handle, assemble_dirty(6)).await;
            let left = job(&engine, JobKind::Rebuild).await.expect("it goes on").total_stripes;
            assert!(left < total, "{left} of {total} stripes are left");
            until_all_in_sync(&engine, &handle).await;
            disks[3].vanish();
            disks[5].vanish();
            is_as_filled(&engine).await;
        })
        .done();
}

#[test]
fn a_rebuild_that_was_paused_goes_on_where_it_was_after_a_kill() {
    let (mut world, _, new) = world_for(505, &raid6());
    let (opener, again, disk) = (world.opener(), world.opener(), new.clone());
    let (total, done) = world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid6()).await;
            filled_to_the_brim(&engine).await;
            disk.set_latency(Latency::constant(ms(100)));
            begin_rebuild(&engine).await;
            let total = job(&engine, JobKind::Rebuild).await.expect("it runs").total_stripes;
            // Long before a checkpoint is due by itself.
            handle.sleep(ms(1000)).await;
            engine.pause("tank", JobKind::Rebuild).await.expect("it runs");
            handle.sleep(ms(2000)).await;
            let paused = job(&engine, JobKind::Rebuild).await.expect("it stands still");
            assert!(paused.is_paused && paused.done_stripes > 0 && paused.done_stripes < total);
            (total, paused.done_stripes)
        })
        .done();
    world.stop(Stop::Kill);
    new.set_latency(Latency::default());
    world
        .run(async move |handle| {
            let engine = restarted(again, &handle, assemble_dirty(6)).await;
            let left = job(&engine, JobKind::Rebuild).await.expect("it is still there");
            assert!(left.is_paused);
            // A region of each of three workers is visited side by side, and counts with the last.
            let stripe_bytes = status(&engine).await.geometry.stripe_bytes();
            let again = left.total_stripes + done - total;
            assert!(again < 3 * REGION_BYTES / stripe_bytes, "{again} are done again");
            assert!(left.total_stripes < total, "of {total}");
        })
        .done();
}

#[test]
fn a_rebuild_goes_on_where_it_was_after_a_stop() {
    let (mut world, disks, new) = world_for(510, &raid6());
    let (opener, again, disk) = (world.opener(), world.opener(), new.clone());
    let total = world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid6()).await;
            filled_to_the_brim(&engine).await;
            let total = slow_rebuild(&engine, &handle, &disk).await;
            engine.stop("tank").await.expect("stopped clean");
            total
        })
        .done();
    new.set_latency(Latency::default());
    world
        .run(async move |handle| {
            let engine = restarted(again, &handle, assemble_spec(6)).await;
            let left = job(&engine, JobKind::Rebuild).await.expect("it goes on").total_stripes;
            assert!(left < total, "{left} of {total} stripes are left");
            until_all_in_sync(&engine, &handle).await;
            disks[1].vanish();
            disks[2].vanish();
            is_as_filled(&engine).await;
        })
        .done();
}

/// Power goes in the middle of a rebuild or copy with writes under way. After the restart the job
/// goes on, and the new device then says what the others say.
#[test]
fn a_rebuild_or_copy_goes_on_after_a_power_cut() {
    let mut was_cut = 0;
    for seed in 760..800 {
        let is_copy = seed % 2 == 0;
        let mirror = crate::world::shape(Level::Raid1, 3, None, None);
        let shape = if seed % 4 == 0 { raid6() } else { mirror };
        let (mut world, disks, _) = world_for(seed, &shape);
        let (opener, again, members) = (world.opener(), world.opener(), shape.members);
        world
            .run(async move |handle| {
                let engine = started(opener, &handle, shape).await;
                filled(&engine, seed).await;
                engine.stop("tank").await.expect("stopped clean");
            })
            .done();
        world.stop(Stop::Kill);
        world.stop_at(world.operations() + 200 + 61 * (seed - 760), Stop::PowerCut);
        let opener = world.opener();
        let ended = world.run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(members)).await.expect("assembled");
            if !is_copy {
                engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            }
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
            let mut model = Model::new(seed, MODEL_BYTES);
            let run = engine.with_volume(1, "tank", async move |volume| {
                for _ in 0..300 {
                    let extent = model.extent();
                    model.write(&volume, extent).await;
                }
            });
            run.await.expect("runs");
        });
        was_cut += usize::from(matches!(ended, ashlar_sim::Ended::Stopped(_)));
        world.stop(Stop::Kill);
        world
            .run(async move |handle| {
                let engine = restarted(again, &handle, assemble_spec(members)).await;
                until_idle(&engine, &handle).await;
                assert_eq!(scrub(&engine, &handle, false).await, pair(0, 0), "seed {seed}");
                let before = everything(&engine).await;
                disks[1].vanish();
                disks[2].vanish();
                assert!(everything(&engine).await == before, "seed {seed}: slot 0 disagrees");
            })
            .done();
    }
    assert!(was_cut >= 20, "only {was_cut} runs were cut while writing");
}
