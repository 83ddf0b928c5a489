//! Rebuild, copy, re-add and spares on simulated disks: whatever they leave behind is proved by what the
//! volume returns afterwards, with as many other members gone as parity replaces.

use crate::world::jobs::{
    MODEL_BYTES, audit, count, everything, filled, filled_to_the_brim, find, is_as_filled, job,
    last, ms, others, pair, raid5, raid6, scrub, started, status, steps, until_all_in_sync,
    until_idle, world_for,
};
use crate::world::{
    DISK_BYTES, Model, add_disks, assemble_spec, create_spec, engine, read, shapes,
};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::{AssembleSpec, CreateSpec, Engine, SlotState, event_names as names};
use ashlar_layout::Level;
use ashlar_ondisk::JobKind;
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, Latency, SimDisk, SimWorld, Stop};
use ashlar_units::{Extent, MemberIdx};
use ashlar_volume::VolumeErrorKind;
use std::time::Duration;

/// A rebuild onto a slow disk that is far enough for a checkpoint; how many stripes it began with.
async fn slow_rebuild(engine: &Engine, handle: &Handle, new: &SimDisk) -> u64 {
    engine.fail("tank", MemberIdx(0)).await.expect("one may go");
    engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
    let total = job(engine, JobKind::Rebuild).await.expect("it runs").total_stripes;
    new.set_latency(Latency::constant(ms(1500)));
    // A few windows of stripes, then the checkpoint with its flushes.
    handle.sleep(ms(14_000)).await;
    let now = job(engine, JobKind::Rebuild).await.expect("it is slow");
    assert!(now.done_stripes > 0 && now.done_stripes < total, "{now:?}");
    total
}

#[test]
fn a_rebuilt_member_stands_in_for_any_others_on_every_level() {
    for (at, (shape, losses)) in shapes().into_iter().enumerate() {
        let (mut world, disks, _) = world_for(200 + at as u64, &shape);
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = started(opener, &handle, shape).await;
                let model = filled(&engine, 1).await;
                engine.fail("tank", MemberIdx(0)).await.expect("one may go");
                let model = steps(&engine, 0, model, 60).await;
                engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
                let model = steps(&engine, 2, model, 120).await;
                until_all_in_sync(&engine, &handle).await;
                assert_eq!(
                    last(&engine, names::JOB_FINISHED, "unrepairable").as_deref(),
                    Some("0")
                );
                let model = steps(&engine, 1, model, 40).await;
                others(&disks, losses).for_each(SimDisk::vanish);
                let model = audit(&engine, model).await;
                audit(&engine, steps(&engine, 0, model, 40).await).await;
            })
            .done();
    }
}

#[test]
fn a_copied_replacement_stands_in_for_any_others_on_every_level() {
    for (at, (shape, losses)) in shapes().into_iter().enumerate() {
        let (mut world, disks, _) = world_for(300 + at as u64, &shape);
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = started(opener, &handle, shape).await;
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
            })
            .done();
    }
}

#[test]
fn a_returned_member_is_brought_up_to_date_in_dirty_regions_only() {
    for (at, (shape, losses)) in shapes().into_iter().enumerate() {
        let (mut world, disks, _) = world_for(400 + at as u64, &shape);
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = started(opener, &handle, shape).await;
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
                assert!(
                    visited > 0 && visited * 2 < written,
                    "{visited} of {written}, {dirty} dirty"
                );
                let model = steps(&engine, 0, model, 40).await;
                others(&disks, losses).for_each(SimDisk::vanish);
                audit(&engine, model).await;
            })
            .done();
    }
}

#[test]
fn a_device_that_was_never_the_member_cannot_return() {
    let (mut world, _, _) = world_for(450, &raid6());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid6()).await;
            engine.fail("tank", MemberIdx(2)).await.expect("one may go");
            let refused = engine.re_add("tank", "new0").await.expect_err("it is blank");
            assert_eq!(refused.code, "member.not_returned");
            assert_eq!(status(&engine).await.members[2].state, SlotState::Out);
        })
        .done();
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
            let engine = engine(again, &handle, 2);
            let mut spec = assemble_spec(6);
            spec.devices.push("new0".to_owned());
            // Nothing was being written: parity is right, but the members cannot know.
            spec.request.accept_dirty_degraded = true;
            engine.assemble(spec).await.expect("assembled");
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
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
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
            let engine = engine(again, &handle, 2);
            let mut spec = assemble_spec(6);
            spec.devices.push("new0".to_owned());
            spec.request.accept_dirty_degraded = true;
            engine.assemble(spec).await.expect("assembled");
            let left = job(&engine, JobKind::Rebuild).await.expect("it is still there");
            assert!(left.is_paused);
            assert_eq!(left.total_stripes, total - done, "what was done is not done again");
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
            let engine = engine(again, &handle, 2);
            let mut spec = assemble_spec(6);
            spec.devices.push("new0".to_owned());
            engine.assemble(spec).await.expect("assembled");
            let left = job(&engine, JobKind::Rebuild).await.expect("it goes on").total_stripes;
            assert!(left < total, "{left} of {total} stripes are left");
            until_all_in_sync(&engine, &handle).await;
            disks[1].vanish();
            disks[2].vanish();
            is_as_filled(&engine).await;
        })
        .done();
}

#[test]
fn a_rebuild_survives_the_loss_of_another_member() {
    for seed in 520..526 {
        let (mut world, disks, _) = world_for(seed, &raid6());
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = started(opener, &handle, raid6()).await;
                let model = filled(&engine, seed).await;
                engine.fail("tank", MemberIdx(0)).await.expect("one may go");
                engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
                handle.sleep(Duration::from_micros(300 * (seed - 519))).await;
                disks[4].vanish();
                let model = steps(&engine, 1, model, 60).await;
                until_idle(&engine, &handle).await;
                let members = status(&engine).await.members;
                assert_eq!(members[0].state, SlotState::InSync, "seed {seed}");
                assert_eq!(members[4].state, SlotState::Out, "seed {seed}");
                disks[2].vanish();
                audit(&engine, model).await;
            })
            .done();
    }
}

#[test]
fn a_replacement_whose_source_dies_becomes_a_rebuild() {
    for seed in 530..542 {
        let (mut world, disks, _) = world_for(seed, &raid6());
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = started(opener, &handle, raid6()).await;
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
            })
            .done();
    }
}

/// Many writers at once: while the dying member is being recorded as out, the others' writes reach neither
/// it nor its replacement. They are in dirty regions, which the takeover visits again.
#[test]
fn writes_between_the_death_of_a_source_and_the_takeover_are_not_missed() {
    const LANES: u64 = 8;
    for seed in 840..850 {
        let (mut world, disks, _) = world_for(seed, &raid6());
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = started(opener, &handle, raid6()).await;
                filled(&engine, seed).await;
                engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replacing");
                let mut lanes = Vec::new();
                for lane in 0..LANES {
                    let (sender, back) = futures_channel::oneshot::channel();
                    let writer = engine.clone();
                    let area = MODEL_BYTES / LANES;
                    handle.spawn(async move {
                        let run = writer.with_volume(1, "tank", async move |volume| {
                            let mut model = Model::new(seed + lane, MODEL_BYTES);
                            model.write(&volume, Extent::new(lane * area, 256 << 10)).await;
                            for _ in 0..60 {
                                let offset = model.extent().offset % (256 << 10) / 4096 * 4096;
                                let bytes = 4096.min((256 << 10) - offset);
                                model
                                    .write(&volume, Extent::new(lane * area + offset, bytes))
                                    .await;
                            }
                            model
                        });
                        assert!(sender.send(run.await.expect("runs")).is_ok());
                    });
                    lanes.push((Extent::new(lane * area, 256 << 10), back));
                }
                handle.sleep(Duration::from_micros(400 * (seed - 839))).await;
                disks[0].vanish();
                let mut models = Vec::new();
                for (extent, back) in lanes {
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
            })
            .done();
    }
}

#[test]
fn a_replacement_that_fails_leaves_the_member_as_it_was() {
    let (mut world, disks, new) = world_for(550, &raid6());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid6()).await;
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
        })
        .done();
}

#[test]
fn a_rebuild_target_that_fails_goes_out_again() {
    let (mut world, disks, new) = world_for(560, &raid5());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid5()).await;
            let model = filled(&engine, 5).await;
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
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
        })
        .done();
}

/// Two arrays that share a pool, each with one of its own: who takes from where is what was said at the start.
#[test]
fn arrays_take_spares_from_their_pools_in_order_and_from_no_other() {
    let mut world = SimWorld::new(540);
    add_disks(&mut world, 12);
    for name in ["own0", "own1", "shared", "foreign"] {
        world.add_disk(name, DiskOptions::sized(DISK_BYTES));
    }
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            for (at, own) in ["own0", "own1"].into_iter().enumerate() {
                let devices: Vec<String> =
                    (0..6).map(|disk| format!("disk{}", at * 6 + disk)).collect();
                let name = format!("tank{at}");
                let spec = CreateSpec {
                    devices: devices.clone(),
                    name: name.clone(),
                    ..create_spec(raid6())
                };
                engine.create(spec).await.expect("created");
                let spare_pools = vec![own.to_owned(), "both".to_owned()];
                let spec = AssembleSpec { devices, spare_pools, ..AssembleSpec::default() };
                engine.assemble(spec).await.expect("assembled");
                engine.add_spare(own, own, true).await.expect("added");
            }
            engine.add_spare("both", "shared", true).await.expect("added");
            engine.add_spare("spares", "foreign", true).await.expect("added");
            // Both lose one, the second then another, and last the first.
            for (array, slot, taken) in
                [(0, 1, Some("own0")), (1, 1, Some("own1")), (1, 2, Some("shared")), (0, 3, None)]
            {
                let name = format!("tank{array}");
                engine.fail(&name, MemberIdx(slot)).await.expect("it may go");
                handle.sleep(ms(5_000)).await;
                let arrays = engine.status().await.expect("runs").arrays;
                let member = &arrays[array].members[usize::from(slot)];
                match taken {
                    Some(spare) => {
                        assert_eq!((member.path.as_str(), member.state), (spare, SlotState::InSync))
                    }
                    None => assert_eq!(member.state, SlotState::Out),
                }
            }
            assert_eq!(last(&engine, names::SPARE_MISSING, "pools").as_deref(), Some("own0 both"));
            let left = engine.spares();
            assert_eq!((left.len(), left[0].path.as_str()), (1, "foreign"));
        })
        .done();
}

#[test]
fn spares_take_the_slots_of_members_that_die() {
    let mut world = SimWorld::new(570);
    let disks = add_disks(&mut world, 6);
    world.add_disk("small", DiskOptions::sized(DISK_BYTES / 2));
    world.add_disk("spare0", DiskOptions::sized(DISK_BYTES));
    world.add_disk("spare1", DiskOptions::sized(DISK_BYTES * 2));
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid6()).await;
            for spare in ["small", "spare1", "spare0"] {
                engine.add_spare("spares", spare, true).await.expect("added");
            }
            let mut model = filled(&engine, 6).await;
            for (at, taken) in [(1, "spare0"), (3, "spare1")] {
                disks[at].vanish();
                model = steps(&engine, 1, model, 60).await;
                until_all_in_sync(&engine, &handle).await;
                assert_eq!(status(&engine).await.members[at].path, taken);
            }
            assert_eq!(engine.spares().len(), 1);
            disks[0].vanish();
            model = steps(&engine, 1, model, 60).await;
            handle.sleep(ms(100)).await;
            assert_eq!(count(&engine, names::SPARE_MISSING), 1);
            disks[2].vanish();
            audit(&engine, model).await;
        })
        .done();
}

#[test]
fn spares_that_a_start_finds_take_the_slots_of_members_that_it_does_not_find() {
    let mut world = SimWorld::new(571);
    let disks = add_disks(&mut world, 6);
    world.add_disk("spare0", DiskOptions::sized(DISK_BYTES));
    let (opener, again) = (world.opener(), world.opener());
    let filled = world.run(async move |handle| {
        let engine = started(opener, &handle, raid6()).await;
        engine.add_spare("spares", "spare0", true).await.expect("added");
        let model = filled(&engine, 7).await;
        engine.stop("tank").await.expect("stopped clean");
        model
    });
    let model = filled.done();
    world.stop(Stop::Kill);
    world
        .run(async move |handle| {
            disks[1].vanish();
            let engine = engine(again, &handle, 1);
            let mut spec = assemble_spec(6);
            spec.devices.push("spare0".to_owned());
            engine.assemble(spec).await.expect("assembled");
            until_all_in_sync(&engine, &handle).await;
            assert_eq!(status(&engine).await.members[1].path, "spare0");
            let audit =
                engine.with_volume(0, "tank", async move |volume| model.audit(&volume).await);
            audit.await.expect("runs");
        })
        .done();
}

/// Power goes in the middle of a rebuild or copy with writes under way. After the restart the job goes on,
/// and the new device then says what the others say.
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
                let engine = engine(again, &handle, 2);
                let mut spec = assemble_spec(members);
                spec.devices.push("new0".to_owned());
                engine.assemble(spec).await.expect("assembled");
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

/// The write was planned without the new device and to a stripe that looked unwritten, and it is still
/// under way when the device joins and its rebuild passes: the rebuild must wait for it.
#[test]
fn a_first_write_that_was_under_way_when_a_device_joined_reaches_it() {
    let (mut world, disks, _) = world_for(810, &raid6());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid6()).await;
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            let mut model = Model::new(11, MODEL_BYTES);
            // The region is entered and durable once; a write to another stripe of it then takes long.
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
        })
        .done();
}

/// Commands that hang on a dying device fail long after another device has taken its slot.
#[test]
fn what_fails_on_a_device_that_left_is_not_held_against_its_successor() {
    let (mut world, disks, _) = world_for(820, &raid6());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid6()).await;
            let model = filled(&engine, 12).await;
            disks[0].set_latency(Latency::constant(ms(60_000)));
            let (sender, model_back) = futures_channel::oneshot::channel();
            let writer = engine.clone();
            handle.spawn(async move {
                assert!(sender.send(steps(&writer, 1, model, 40).await).is_ok());
            });
            handle.sleep(ms(50)).await;
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
            handle.sleep(ms(2000)).await;
            disks[0].vanish();
            let model = model_back.await.expect("the client goes on");
            until_all_in_sync(&engine, &handle).await;
            assert_eq!(count(&engine, names::MEMBER_FAILED), 1);
            disks[1].vanish();
            disks[2].vanish();
            audit(&engine, model).await;
        })
        .done();
}

/// Stripes of a rebuild hang on a device that is then put out; they end while its successor is filled.
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
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
            new.set_latency(slow_writes(ms(100)));
            handle.sleep(ms(600)).await;
            new.set_latency(slow_writes(ms(5000)));
            handle.sleep(ms(200)).await;
            let job = job(&engine, JobKind::Rebuild).await.expect("it hangs");
            assert!((100..300).contains(&job.done_stripes), "{job:?}");
            engine.fail("tank", MemberIdx(0)).await.expect("the same may go");
            engine.replace("tank", MemberIdx(0), "new1", true).await.expect("replaced again");
            next.set_latency(slow_writes(ms(20_000)));
            handle.sleep(ms(8000)).await;
            assert_eq!(status(&engine).await.members[0].state, SlotState::Rebuilding);
            is_as_filled(&engine).await;
        })
        .done();
}

/// A block that neither the survivors nor anybody else can give back must not come back as garbage once
/// the rebuild has passed it; the rebuild ends when its stripe is written anew.
/// First byte of stripe 2, which is 48 KiB.
const STRIPE_2: usize = 2 * 3 * (16 << 10);

/// Break a row of stripe 2 on another disk than disk0; the volume's offset of disk0's block in that row.
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
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
            handle.sleep(ms(3000)).await;
            assert_eq!(count(&engine, names::JOB_BLOCKED), 1, "all else is done and recorded");
            (lost, model)
        })
        .done();
    world.stop(Stop::Kill);
    world
        .run(async move |handle| {
            let engine = engine(again, &handle, 2);
            let mut spec = assemble_spec(4);
            spec.devices.push("new0".to_owned());
            spec.request.accept_dirty_degraded = true;
            engine.assemble(spec).await.expect("assembled");
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
    let (mut world, disks, _) = world_for(800, &raid5());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid5()).await;
            let model = filled(&engine, 10).await;
            let lost = lose_a_block(&disks, &model);
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
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
        })
        .done();
}
