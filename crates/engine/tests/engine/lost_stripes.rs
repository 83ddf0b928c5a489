//! A rebuild that meets a block which nobody can give back.
//!
//! What must stay true: the block does not come back as garbage once the rebuild has passed it, and
//! the rebuild does not end before its stripe is written anew.

use crate::world::jobs::{
    Rig, audit, begin_rebuild, count, filled, find, job, last, ms, on_array, raid5, restarted,
    started, status, until_all_in_sync, world_for,
};
use crate::world::{Model, assemble_dirty, read};
use ashlar_engine::{ArrayTuning, SlotState, event_names as names};
use ashlar_ondisk::JobKind;
use ashlar_sim::{SimDisk, Stop};
use ashlar_units::Extent;
use ashlar_volume::VolumeErrorKind;

/// First byte of stripe 2, which is 48 KiB.
const STRIPE_2: usize = 2 * 3 * (16 << 10);

/// Break a row of stripe 2 on another disk than disk0; the volume's offset of disk0's block in that
/// row.
fn lose_a_block(disks: &[SimDisk], model: &Model) -> u64 {
    let (mut lost, mut broken) = (None, false);
    for strip in 0..3 {
        let at = STRIPE_2 + strip * (16 << 10) + 4096;
        let (disk, offset) = find(disks, &model.bytes[at..at + 4096]);
        if disk == 0 {
            lost = Some(u64::try_from(at).expect("small"));
        } else if !broken {
            disks[disk].break_media(Extent::new(offset, 4096));
            broken = true;
        }
    }
    lost.expect("parity of stripe 2 is on another disk")
}

#[test]
fn a_rebuild_with_a_lost_block_is_not_believed_there_after_a_kill() {
    let (mut world, disks, _) = world_for(810, &raid5());
    let (opener, again) = (world.opener(), world.opener());
    let (lost, model) = world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid5()).await;
            let model = filled(&engine, 10).await;
            let lost = lose_a_block(&disks, &model);
            begin_rebuild(&engine).await;
            handle.sleep(ms(3000)).await;
            assert_eq!(count(&engine, names::JOB_BLOCKED), 1, "all else is done and recorded");
            (lost, model)
        })
        .done();
    world.stop(Stop::Kill);
    world
        .run(async move |handle| {
            let engine = restarted(again, &handle, assemble_dirty(4)).await;
            let run = engine.with_volume(1, "tank", async move |volume| {
                let refused = read(&volume, Extent::new(lost, 4096)).await;
                assert_eq!(refused, Err(VolumeErrorKind::Io));
                model.read(&volume, Extent::new(lost + 4096, 4096)).await;
            });
            run.await.expect("runs");
            handle.sleep(ms(3000)).await;
            let job = job(&engine, JobKind::Rebuild).await.expect("it cannot end");
            assert_eq!((job.unrepairable, job.lost_stripes[0].0), (1, 2), "{job:?}");
        })
        .done();
}

#[test]
fn a_rebuild_with_a_lost_block_never_serves_garbage_and_ends_when_it_is_written_anew() {
    on_array(800, &raid5(), async move |Rig { engine, handle, disks, .. }| {
        let model = filled(&engine, 10).await;
        let lost = lose_a_block(&disks, &model);
        begin_rebuild(&engine).await;
        handle.sleep(ms(3000)).await;
        let job = job(&engine, JobKind::Rebuild).await.expect("it cannot end");
        assert_eq!((job.unrepairable, job.lost_stripes[0].0), (1, 2), "{job:?}");
        assert_eq!(count(&engine, names::JOB_BLOCKED), 1);
        assert_eq!(last(&engine, names::BLOCK_LOST, "blocks").as_deref(), Some("1"));
        assert_eq!(status(&engine).await.members[0].state, SlotState::Rebuilding);
        let run = engine.with_volume(1, "tank", async move |volume| {
            let refused = read(&volume, Extent::new(lost, 4096)).await;
            assert_eq!(refused, Err(VolumeErrorKind::Io));
            // The next row of the same strip can be had from the survivors.
            model.read(&volume, Extent::new(lost + 4096, 4096)).await;
            let mut model = model;
            let extent = Extent::new(u64::try_from(STRIPE_2).expect("small"), 48 << 10);
            model.write(&volume, extent).await;
            model.audit(&volume).await;
            model
        });
        let model = run.await.expect("runs");
        until_all_in_sync(&engine, &handle).await;
        disks[3].vanish();
        audit(&engine, model).await;
    });
}

/// Each try to read the block is an error of its member. When there had been as many as a member
/// may have, the array failed, for nobody could stand in for it.
#[test]
fn a_rebuild_that_waits_for_a_lost_block_does_not_wear_out_the_member_that_has_it() {
    on_array(820, &raid5(), async move |Rig { engine, handle, disks, .. }| {
        let model = filled(&engine, 10).await;
        lose_a_block(&disks, &model);
        let tuning = ArrayTuning { read_errors_max: 60, ..ArrayTuning::default() };
        engine.set_tuning("tank", tuning).await.expect("runs");
        begin_rebuild(&engine).await;
        handle.sleep(ms(2 * 3600 * 1000)).await;
        assert_eq!(count(&engine, names::ARRAY_FAILED), 0);
        assert_eq!(job(&engine, JobKind::Rebuild).await.expect("it waits").unrepairable, 1);
    });
}
