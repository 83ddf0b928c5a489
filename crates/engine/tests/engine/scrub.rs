//! Scrub and resync on simulated disks: planted corruption is found and put right, bad blocks are
//! healed, and after a power cut parity agrees with the data again.

use crate::world::jobs::{
    MODEL_BYTES, Rig, audit, everything, filled, filled_to_the_brim, find, job, last, ms, on_array,
    pair, raid5, raid6, scrub, started, status, until_idle, world_for,
};
use crate::world::{Model, assemble_spec, engine, submit};
use ashlar_engine::{Engine, event_names as names};
use ashlar_layout::Level;
use ashlar_ondisk::{ConsistencyPolicy, JobKind};
use ashlar_sim::{Latency, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, to_usize};
use ashlar_volume::Command;

#[test]
fn a_scrub_finds_silent_corruption_and_repairs_the_block_that_is_wrong() {
    for (seed, shape) in [(600, raid6()), (601, crate::world::shape(Level::Raid1, 3, None, None))] {
        on_array(seed, &shape, async move |Rig { engine, handle, disks, .. }| {
            let model = filled(&engine, 7).await;
            assert_eq!(scrub(&engine, &handle, false).await, pair(0, 0));
            let block = to_usize(1_048_576 + 3 * BLOCK_BYTES);
            let (at, offset) = find(&disks, &model.bytes[block..block + 4096]);
            disks[at].corrupt(Extent::new(offset + 512, 512));
            assert_eq!(scrub(&engine, &handle, false).await, pair(1, 0), "only looked");
            let slot = last(&engine, names::SCRUB_MISMATCH, "wrong_slot");
            assert_eq!(slot, Some(at.to_string()));
            assert_eq!(scrub(&engine, &handle, true).await, pair(1, 1));
            assert_eq!(scrub(&engine, &handle, true).await, pair(0, 0));
            audit(&engine, model).await;
            assert_eq!(status(&engine).await.last_scrub.expect("done").mismatches, 0);
        });
    }
}

#[test]
fn with_one_parity_a_scrub_makes_parity_follow_the_data() {
    on_array(610, &raid5(), async move |Rig { engine, handle, disks, .. }| {
        let model = filled(&engine, 8).await;
        let block = to_usize(5 * BLOCK_BYTES);
        let (at, offset) = find(&disks, &model.bytes[block..block + 4096]);
        disks[at].corrupt(Extent::new(offset, 4096));
        let changed = disks[at].peek(Extent::new(offset, 4096));
        assert_eq!(scrub(&engine, &handle, true).await, pair(1, 1));
        let slot = last(&engine, names::SCRUB_MISMATCH, "wrong_slot");
        assert_eq!(slot.as_deref(), Some("unknown"));
        assert_eq!(scrub(&engine, &handle, true).await, pair(0, 0));
        assert_eq!(disks[at].peek(Extent::new(offset, 4096)), changed, "data was not guessed");
    });
}

#[test]
fn a_scrub_heals_blocks_that_cannot_be_read() {
    on_array(620, &raid6(), async move |Rig { engine, handle, disks, .. }| {
        let model = filled(&engine, 9).await;
        let (mut broken, mut healed) = (0, 0);
        for block in [3, 9, 77, 78, 500] {
            let at = block * 4096;
            let (disk, offset) = find(&disks, &model.bytes[at..at + 4096]);
            disks[disk].break_media(Extent::new(offset, 4096));
            broken += 1;
        }
        let (mismatches, repaired) = scrub(&engine, &handle, false).await;
        assert_eq!((mismatches.as_str(), repaired.parse()), ("0", Ok(broken)));
        for disk in &disks {
            healed += disk.unreadable_sectors();
        }
        assert_eq!(healed, 0, "sectors are left unreadable");
        audit(&engine, model).await;
    });
}

#[test]
fn a_scrub_can_be_paused_over_a_restart_and_cancelled() {
    on_array(630, &raid6(), async move |Rig { engine, handle, disks, .. }| {
        filled_to_the_brim(&engine).await;
        disks[1].set_latency(Latency::constant(ms(100)));
        engine.scrub("tank", false).await.expect("started");
        let again = engine.scrub("tank", false).await.expect_err("one at a time");
        assert_eq!(again.code, "scrub.running");
        // More than the first window of regions, one of each worker.
        handle.sleep(ms(300)).await;
        engine.pause("tank", JobKind::Scrub).await.expect("paused");
        handle.sleep(ms(5000)).await;
        let then = job(&engine, JobKind::Scrub).await.expect("it stands still");
        handle.sleep(ms(5000)).await;
        let now = job(&engine, JobKind::Scrub).await.expect("it stands still");
        assert!(now.is_paused && now.done_stripes == then.done_stripes, "{then:?} {now:?}");
        engine.stop("tank").await.expect("stopped clean");
        engine.assemble(assemble_spec(6)).await.expect("assembled again");
        handle.sleep(ms(1000)).await;
        let later = job(&engine, JobKind::Scrub).await.expect("it stands still");
        assert!(later.is_paused && later.done_stripes == 0, "{later:?}");
        assert!(later.total_stripes < now.total_stripes, "{later:?}");
        engine.unpause("tank", JobKind::Scrub).await.expect("goes on");
        handle.sleep(ms(50)).await;
        engine.cancel_scrub("tank", None).await.expect("cancelled");
        until_idle(&engine, &handle).await;
        assert_eq!(last(&engine, names::JOB_STOPPED, "reason").as_deref(), Some("cancelled"));
        engine.stop("tank").await.expect("stopped clean");
        engine.assemble(assemble_spec(6)).await.expect("assembled again");
        assert!(status(&engine).await.jobs.is_empty(), "cancelled for good");
    });
}

/// Stripes that a window of regions did not count as done are visited again after a restart.
#[test]
fn a_mismatch_is_counted_once_when_a_scrub_goes_on_after_a_restart() {
    on_array(640, &raid5(), async move |Rig { engine, handle, disks, .. }| {
        filled_to_the_brim(&engine).await;
        for block in (2 << 20..7 << 20).step_by(64 << 10) {
            disks[1].corrupt(Extent::new(block, 4096));
        }
        let (mismatches, _) = scrub(&engine, &handle, false).await;
        disks[1].set_latency(Latency::constant(ms(100)));
        engine.scrub("tank", false).await.expect("started");
        // In the middle of a window of 96 stripes, of which 32 are under way at once.
        handle.sleep(ms(350)).await;
        engine.stop("tank").await.expect("stopped clean");
        let did = found_by_the_stopped(&engine);
        assert!(did < mismatches.parse().expect("a number"), "{did} of {mismatches}");
        engine.assemble(assemble_spec(disks.len())).await.expect("assembled again");
        let left = job(&engine, JobKind::Scrub).await.expect("it goes on");
        assert!(left.mismatches < did, "{left:?}: {did} had been found");
        until_idle(&engine, &handle).await;
        let last_scrub = status(&engine).await.last_scrub.expect("done");
        assert_eq!(last_scrub.mismatches.to_string(), mismatches);
    });
}

/// Mismatches that the scrub which was stopped last had found.
fn found_by_the_stopped(engine: &Engine) -> u64 {
    let found = last(engine, names::JOB_STOPPED, "mismatches").expect("it was stopped");
    found.parse().expect("a number")
}

#[test]
fn after_a_power_cut_a_resync_makes_parity_agree_with_data() {
    let mut resynced = 0;
    for seed in 700..740 {
        let shape =
            if seed % 2 == 0 { raid6() } else { crate::world::shape(Level::Raid1, 3, None, None) };
        let (mut world, disks, _) = world_for(seed, &shape);
        let (opener, again, members) = (world.opener(), world.opener(), shape.members);
        world
            .run(async move |handle| {
                let engine = started(opener, &handle, shape).await;
                filled(&engine, seed).await;
            })
            .done();
        world.stop(Stop::Kill);
        world.stop_at(world.operations() + 400 + 97 * (seed - 700), Stop::PowerCut);
        let opener = world.opener();
        let cut = world.run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(members)).await.expect("assembled");
            until_idle(&engine, &handle).await;
            let mut model = Model::new(seed, MODEL_BYTES);
            let run = engine.with_volume(1, "tank", async move |volume| {
                for _ in 0..400 {
                    let extent = model.extent();
                    model.write(&volume, extent).await;
                }
            });
            run.await.expect("runs");
        });
        let was_cut = matches!(cut, ashlar_sim::Ended::Stopped(_));
        world
            .run(async move |handle| {
                let engine = engine(again, &handle, 2);
                engine.assemble(assemble_spec(members)).await.expect("assembled");
                until_idle(&engine, &handle).await;
                assert_eq!(status(&engine).await.unsynced_regions, 0, "seed {seed}");
                assert_eq!(scrub(&engine, &handle, false).await, pair(0, 0), "seed {seed}");
                let before = everything(&engine).await;
                disks[1].vanish();
                disks[0].vanish();
                assert!(everything(&engine).await == before, "seed {seed}: parity disagrees");
            })
            .done();
        resynced += usize::from(was_cut);
    }
    assert!(resynced >= 20, "only {resynced} runs were cut while writing");
}

/// The other copy of a mirror has gone: what is left is what there is, and it is trusted again
/// (with a log, at once).
#[test]
fn a_mirror_with_one_copy_left_is_trusted_again_after_a_power_cut() {
    let shape = crate::world::shape(Level::Raid1, 2, None, None);
    for lost in 0..2 {
        let shape = shape.clone();
        let (mut world, _, _) = world_for(750 + lost, &shape);
        let (opener, again) = (world.opener(), world.opener());
        world
            .run(async move |handle| {
                let engine = started(opener, &handle, shape).await;
                let slot = MemberIdx(u16::try_from(lost).expect("0 or 1"));
                engine.fail("tank", slot).await.expect("one may go");
                filled(&engine, 1).await;
                let flush = engine.with_volume(0, "tank", async |volume| {
                    submit(&volume, Command::Flush, Extent::default(), false).await;
                });
                flush.await.expect("runs");
            })
            .done();
        world.stop(Stop::PowerCut);
        world
            .run(async move |handle| {
                let engine = engine(again, &handle, 2);
                engine.assemble(assemble_spec(2)).await.expect("assembled");
                until_idle(&engine, &handle).await;
                let visited = last(&engine, names::JOB_FINISHED, "stripes");
                if crate::world::policy() == ConsistencyPolicy::Log {
                    assert_eq!(visited, None, "a log settles its rows: nothing to resync");
                } else {
                    let visited = visited.expect("a resync").parse::<u64>().expect("a number");
                    assert!(visited > 0, "nothing was dirty");
                    let lost = last(&engine, names::JOB_FINISHED, "unrepairable");
                    assert_eq!(lost.as_deref(), Some("0"));
                }
                assert_eq!(status(&engine).await.unsynced_regions, 0, "slot {lost} is out");
                everything(&engine).await;
            })
            .done();
    }
}
