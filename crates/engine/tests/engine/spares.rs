//! Spares on simulated disks: which of them takes the slot of which member, while an array runs and
//! at its start.
//!
//! What must stay true: an array takes spares from its own pools, in their order, and none that is
//! too small.

use crate::world::jobs::{
    audit, count, filled, last, ms, raid6, started, status, steps, until_all_in_sync,
};
use crate::world::{DISK_BYTES, add_disks, assemble_spec, create_spec, engine};
use ashlar_engine::{AssembleSpec, CreateSpec, SlotState, event_names as names};
use ashlar_sim::{DiskOptions, SimWorld, Stop};
use ashlar_units::MemberIdx;

/// Two arrays that share a pool, each with one of its own: who takes from where is what was said at
/// the start.
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

/// Seed 40276 of the universes. The start looked for spares before they were in their pools, and
/// the array stayed degraded.
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
