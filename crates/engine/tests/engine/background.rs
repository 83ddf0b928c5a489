//! Rebuild, copy and re-add on simulated disks, and devices that go and come meanwhile.
//!
//! What must stay true: whatever they leave behind is proved by what the volume returns afterwards,
//! with as many other members gone as parity replaces. Not here: jobs that are cut off
//! (`jobs_cut_off.rs`), blocks that are lost (`lost_stripes.rs`), spares (`spares.rs`).

use crate::world::jobs::{
    MODEL_BYTES, Rig, audit, begin_rebuild, count, filled, filled_to_the_brim, is_as_filled, job,
    last, ms, on_array, others, raid5, raid6, started, status, steps, until_all_in_sync,
    until_idle, world_for,
};
use crate::world::{DISK_BYTES, Model, assemble_spec, create_spec, engine, shapes};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::{CreateSpec, Engine, SlotState, event_names as names};
use ashlar_ondisk::JobKind;
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, Latency, SimDisk};
use ashlar_units::{Extent, MemberIdx};
use std::time::Duration;

#[test]
fn a_rebuilt_member_stands_in_for_any_others_on_every_level() {
    for (at, (shape, losses)) in shapes().into_iter().enumerate() {
        on_array(200 + at as u64, &shape, async move |Rig { engine, handle, disks, .. }| {
            let model = filled(&engine, 1).await;
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            let model = steps(&engine, 0, model, 60).await;
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
            let model = steps(&engine, 2, model, 120).await;
            until_all_in_sync(&engine, &handle).await;
            assert_eq!(last(&engine, names::JOB_FINISHED, "unrepairable").as_deref(), Some("0"));
            let model = steps(&engine, 1, model, 40).await;
            others(&disks, losses).for_each(SimDisk::vanish);
            let model = audit(&engine, model).await;
            audit(&engine, steps(&engine, 0, model, 40).await).await;
        });
    }
}

/// Neighbouring stripes are one worker's, so a job visits the regions of several side by side.
#[test]
fn a_rebuild_has_stripes_of_every_worker_under_way() {
    const WORKERS: usize = 3;
    let (mut world, disks, _) = world_for(250, &raid6());
    let opener = world.opener();
    let run = async move |handle: Handle| {
        let engine = engine(opener, &handle, WORKERS);
        let spec = CreateSpec { region_bytes: Some(4 << 20), ..create_spec(raid6()) };
        engine.create(spec).await.expect("created");
        engine.assemble(assemble_spec(disks.len())).await.expect("assembled");
        filled_to_the_brim(&engine).await;
        engine.fail("tank", MemberIdx(0)).await.expect("one may go");
        let slow = Latency { read: ms(20)..=ms(20), ..Latency::default() };
        disks.iter().for_each(|disk| disk.set_latency(slow.clone()));
        let before = pieces(&engine).await;
        engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
        loop {
            let rebuild = job(&engine, JobKind::Rebuild).await.expect("it is slow");
            if rebuild.done_stripes * 3 >= rebuild.total_stripes {
                break;
            }
            handle.sleep(ms(5)).await;
        }
        let now = pieces(&engine).await;
        let did: Vec<u64> = now.iter().zip(before).map(|(now, before)| now - before).collect();
        let (least, most) = (did.iter().min().copied(), did.iter().max().copied());
        assert!(least.zip(most).is_some_and(|(least, most)| least * 3 > most * 2), "{did:?}");
        until_all_in_sync(&engine, &handle).await;
        others(&disks, 2).for_each(SimDisk::vanish);
        is_as_filled(&engine).await;
    };
    world.run(run).done();
}

/// Pieces of stripe work that each worker did.
async fn pieces(engine: &Engine) -> Vec<u64> {
    let status = engine.status().await.expect("running");
    status.workers.iter().map(|worker| worker.pieces).collect()
}

#[test]
fn a_copied_replacement_stands_in_for_any_others_on_every_level() {
    for (at, (shape, losses)) in shapes().into_iter().enumerate() {
        on_array(300 + at as u64, &shape, async move |Rig { engine, handle, disks, .. }| {
            let model = filled(&engine, 2).await;
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replacing");
            let model = steps(&engine, 1, model, 150).await;
            until_idle(&engine, &handle).await;
            assert_eq!(status(&engine).await.members[0].path, "new0");
            let model = steps(&engine, 0, model, 40).await;
            disks[0].vanish();
            others(&disks, losses).for_each(SimDisk::vanish);
            let model = audit(&engine, model).await;
            audit(&engine, steps(&engine, 2, model, 40).await).await;
            let failed = count(&engine, names::MEMBER_FAILED);
            assert_eq!(failed, losses, "the old device has left the array");
        });
    }
}

#[test]
fn a_returned_member_is_brought_up_to_date_in_dirty_regions_only() {
    for (at, (shape, losses)) in shapes().into_iter().enumerate() {
        on_array(400 + at as u64, &shape, async move |Rig { engine, handle, disks, .. }| {
            let mut model = filled(&engine, 3).await;
            // Every region is clean before the member goes.
            handle.sleep(ms(10_000)).await;
            assert_eq!(status(&engine).await.dirty_regions.0, 0);
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            let run = engine.with_volume(1, "tank", async move |volume| {
                for at in [0, 40 << 10, 70 << 10] {
                    model.write(&volume, Extent::new(at, 12 << 10)).await;
                }
                model
            });
            let model = run.await.expect("runs");
            let dirty = status(&engine).await.dirty_regions.0;
            engine.re_add("tank", "disk0").await.expect("it is the same member");
            until_all_in_sync(&engine, &handle).await;
            let visited = last(&engine, names::JOB_FINISHED, "stripes").expect("it finished");
            let written = status(&engine).await.written_stripes.0;
            let visited: u64 = visited.parse().expect("a number");
            assert!(visited > 0 && visited * 2 < written, "{visited} of {written}, {dirty} dirty");
            let model = steps(&engine, 0, model, 40).await;
            others(&disks, losses).for_each(SimDisk::vanish);
            audit(&engine, model).await;
        });
    }
}

#[test]
fn a_device_that_was_never_the_member_cannot_return() {
    on_array(450, &raid6(), async move |Rig { engine, .. }| {
        engine.fail("tank", MemberIdx(2)).await.expect("one may go");
        let refused = engine.re_add("tank", "new0").await.expect_err("it is blank");
        assert_eq!(refused.code, "member.not_returned");
        assert_eq!(status(&engine).await.members[2].state, SlotState::Out);
    });
}

#[test]
fn a_rebuild_survives_the_loss_of_another_member() {
    for seed in 520..526 {
        on_array(seed, &raid6(), async move |Rig { engine, handle, disks, .. }| {
            let model = filled(&engine, seed).await;
            begin_rebuild(&engine).await;
            handle.sleep(Duration::from_micros(300 * (seed - 519))).await;
            disks[4].vanish();
            let model = steps(&engine, 1, model, 60).await;
            until_idle(&engine, &handle).await;
            let members = status(&engine).await.members;
            assert_eq!(members[0].state, SlotState::InSync, "seed {seed}");
            assert_eq!(members[4].state, SlotState::Out, "seed {seed}");
            disks[2].vanish();
            audit(&engine, model).await;
        });
    }
}

#[test]
fn a_replacement_whose_source_dies_becomes_a_rebuild() {
    for seed in 530..542 {
        on_array(seed, &raid6(), async move |Rig { engine, handle, disks, .. }| {
            let model = filled(&engine, seed).await;
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replacing");
            handle.sleep(Duration::from_micros(150 * (seed - 529))).await;
            disks[0].vanish();
            let model = steps(&engine, 2, model, 120).await;
            until_all_in_sync(&engine, &handle).await;
            assert_eq!(status(&engine).await.members[0].path, "new0", "seed {seed}");
            disks[2].vanish();
            disks[3].vanish();
            audit(&engine, model).await;
        });
    }
}

/// Many writers at once: while the dying member is being recorded as out, the others' writes reach
/// neither it nor its replacement. They are in dirty regions, which the takeover visits again.
#[test]
fn writes_between_the_death_of_a_source_and_the_takeover_are_not_missed() {
    const LOG_RINGS: u64 = 8;
    for seed in 840..850 {
        on_array(seed, &raid6(), async move |Rig { engine, handle, disks, .. }| {
            filled(&engine, seed).await;
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replacing");
            let mut log_rings = Vec::new();
            for log_ring in 0..LOG_RINGS {
                let (sender, back) = futures_channel::oneshot::channel();
                let writer = engine.clone();
                let area = MODEL_BYTES / LOG_RINGS;
                handle.spawn(async move {
                    let run = writer.with_volume(1, "tank", async move |volume| {
                        let mut model = Model::new(seed + log_ring, MODEL_BYTES);
                        model.write(&volume, Extent::new(log_ring * area, 256 << 10)).await;
                        for _ in 0..60 {
                            let offset = model.extent().offset % (256 << 10) / 4096 * 4096;
                            let bytes = 4096.min((256 << 10) - offset);
                            model
                                .write(&volume, Extent::new(log_ring * area + offset, bytes))
                                .await;
                        }
                        model
                    });
                    assert!(sender.send(run.await.expect("runs")).is_ok());
                });
                log_rings.push((Extent::new(log_ring * area, 256 << 10), back));
            }
            handle.sleep(Duration::from_micros(400 * (seed - 839))).await;
            disks[0].vanish();
            let mut models = Vec::new();
            for (extent, back) in log_rings {
                models.push((extent, back.await.expect("written")));
            }
            until_all_in_sync(&engine, &handle).await;
            assert_eq!(status(&engine).await.members[0].path, "new0", "seed {seed}");
            disks[2].vanish();
            disks[3].vanish();
            let run = engine.with_volume(0, "tank", async move |volume| {
                for (extent, model) in models {
                    model.read(&volume, extent).await;
                }
            });
            run.await.expect("runs");
        });
    }
}

#[test]
fn a_replacement_that_fails_leaves_the_member_as_it_was() {
    on_array(550, &raid6(), async move |Rig { engine, handle, disks, new }| {
        let model = filled(&engine, 4).await;
        engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replacing");
        let copy = job(&engine, JobKind::Replace).await.expect("it has just begun");
        assert!(copy.done_stripes < copy.total_stripes);
        new.fail(CommandKind::Write, FaultKind::Media, None);
        let model = steps(&engine, 2, model, 60).await;
        until_idle(&engine, &handle).await;
        let member = status(&engine).await.members.remove(0);
        assert_eq!((member.state, member.path.as_str()), (SlotState::InSync, "disk0"));
        assert_eq!(member.replacement, None);
        disks[2].vanish();
        disks[3].vanish();
        audit(&engine, model).await;
    });
}

#[test]
fn a_rebuild_target_that_fails_goes_out_again() {
    on_array(560, &raid5(), async move |Rig { engine, handle, disks, new }| {
        let model = filled(&engine, 5).await;
        begin_rebuild(&engine).await;
        handle.sleep(ms(1)).await;
        new.vanish();
        let model = steps(&engine, 2, model, 60).await;
        until_idle(&engine, &handle).await;
        assert_eq!(status(&engine).await.members[0].state, SlotState::Out);
        // What the first device held is stale now, and it says so: all of it is rebuilt.
        disks[0].come_back();
        engine.replace("tank", MemberIdx(0), "disk0", true).await.expect("replaced again");
        until_all_in_sync(&engine, &handle).await;
        disks[2].vanish();
        audit(&engine, model).await;
    });
}

/// The write was planned without the new device and to a stripe that looked unwritten, and it is
/// still under way when the device joins and its rebuild passes: the rebuild must wait for it.
#[test]
fn a_first_write_that_was_under_way_when_a_device_joined_reaches_it() {
    on_array(810, &raid6(), async move |Rig { engine, handle, disks, .. }| {
        engine.fail("tank", MemberIdx(0)).await.expect("one may go");
        let mut model = Model::new(11, MODEL_BYTES);
        // The region is entered and durable once; a write to another stripe of it then takes
        // long.
        let run = engine.with_volume(0, "tank", async move |volume| {
            model.write(&volume, Extent::new(0, 64 << 10)).await;
            model
        });
        let model = run.await.expect("runs");
        let slow = |time: Latency| {
            disks[1..].iter().for_each(|disk| disk.set_latency(time.clone()));
        };
        slow(Latency { write: ms(5000)..=ms(5000), ..Latency::default() });
        let (sender, model_back) = futures_channel::oneshot::channel();
        let writer = engine.clone();
        handle.spawn(async move {
            let run = writer.with_volume(1, "tank", async move |volume| {
                let mut model = model;
                model.write(&volume, Extent::new(7 * (64 << 10), 8 << 10)).await;
                model
            });
            assert!(sender.send(run.await.expect("runs")).is_ok());
        });
        handle.sleep(ms(1)).await;
        slow(Latency::default());
        engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
        handle.sleep(ms(1000)).await;
        let state = status(&engine).await.members[0].state;
        assert_eq!(state, SlotState::Rebuilding, "the write is under way, the rebuild waits");
        let model = model_back.await.expect("written");
        until_all_in_sync(&engine, &handle).await;
        disks[1].vanish();
        disks[2].vanish();
        audit(&engine, model).await;
    });
}

/// Commands that hang on a dying device fail long after another device has taken its slot.
#[test]
fn what_fails_on_a_device_that_left_is_not_held_against_its_successor() {
    on_array(820, &raid6(), async move |Rig { engine, handle, disks, .. }| {
        let model = filled(&engine, 12).await;
        disks[0].set_latency(Latency::constant(ms(60_000)));
        let (sender, model_back) = futures_channel::oneshot::channel();
        let writer = engine.clone();
        handle.spawn(async move {
            assert!(sender.send(steps(&writer, 1, model, 40).await).is_ok());
        });
        handle.sleep(ms(50)).await;
        begin_rebuild(&engine).await;
        handle.sleep(ms(2000)).await;
        disks[0].vanish();
        let model = model_back.await.expect("the client goes on");
        until_all_in_sync(&engine, &handle).await;
        assert_eq!(count(&engine, names::MEMBER_FAILED), 1);
        disks[1].vanish();
        disks[2].vanish();
        audit(&engine, model).await;
    });
}

/// Stripes of a rebuild hang on a device that is then put out; they end while its successor is
/// filled.
#[test]
fn stripes_that_end_late_say_nothing_about_the_next_device() {
    let (mut world, _, new) = world_for(830, &raid6());
    let next = world.add_disk("new1", DiskOptions::sized(DISK_BYTES));
    let opener = world.opener();
    world
        .run(async move |handle| {
            let slow_writes = |time| Latency { write: time..=time, ..Latency::default() };
            let engine = started(opener, &handle, raid6()).await;
            filled_to_the_brim(&engine).await;
            begin_rebuild(&engine).await;
            new.set_latency(slow_writes(ms(100)));
            handle.sleep(ms(600)).await;
            new.set_latency(slow_writes(ms(5000)));
            handle.sleep(ms(200)).await;
            let job = job(&engine, JobKind::Rebuild).await.expect("it hangs");
            assert!((100..300).contains(&job.done_stripes), "{job:?}");
            engine.fail("tank", MemberIdx(0)).await.expect("the same may go");
            engine.replace("tank", MemberIdx(0), "new1", true).await.expect("replaced again");
            // Just not slow enough to be put out for it.
            next.set_latency(slow_writes(ms(4000)));
            handle.sleep(ms(8000)).await;
            assert_eq!(status(&engine).await.members[0].state, SlotState::Rebuilding);
            is_as_filled(&engine).await;
        })
        .done();
}
