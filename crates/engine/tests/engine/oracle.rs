//! Random requests against a plain vector, on every level, healthy and with as many members lost as
//! it survives, through stops and starts.

use crate::world::{Model, add_disks, assemble_spec, create_spec, engine, shapes};
use ashlar_sim::SimWorld;
use ashlar_units::MemberIdx;

/// Volume bytes that the model covers: the start of the volume, over several stripes and groups.
const MODEL_BYTES: u64 = 2 << 20;

#[test]
fn every_level_returns_what_was_written_through_a_restart() {
    for (at, (shape, _)) in shapes().into_iter().enumerate() {
        let mut world = SimWorld::new(at as u64);
        add_disks(&mut world, shape.members);
        let members = shape.members;
        let (opener, again) = (world.opener(), world.opener());
        let model = world.run(async move |handle| {
            let engine = engine(opener, &handle, 3);
            engine.create(create_spec(shape)).await.expect("created");
            engine.assemble(assemble_spec(members)).await.expect("assembled");
            let model = engine.with_volume(at % 3, "tank", async move |volume| {
                let mut model = Model::new(7, MODEL_BYTES);
                for _ in 0..300 {
                    model.step(&volume).await;
                }
                model.audit(&volume).await;
                model
            });
            let model = model.await.expect("runs");
            engine.stop("tank").await.expect("stopped clean");
            model
        });
        let model = model.done();
        world
            .run(async move |handle| {
                let engine = engine_again(again, &handle);
                engine.assemble(assemble_spec(members)).await.expect("assembled again");
                let audit = engine.with_volume(0, "tank", async move |volume| {
                    model.audit(&volume).await;
                });
                audit.await.expect("runs");
                engine.stop("tank").await.expect("stopped clean");
            })
            .done();
    }
}

fn engine_again(
    opener: ashlar_sim::SimOpener,
    handle: &ashlar_ring::Handle,
) -> ashlar_engine::Engine {
    engine(opener, handle, 2)
}

#[test]
fn losing_as_many_members_as_the_parity_replaces_loses_nothing() {
    for (at, (shape, losses)) in shapes().into_iter().enumerate() {
        let mut world = SimWorld::new(100 + at as u64);
        let disks = add_disks(&mut world, shape.members);
        let members = shape.members;
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 2);
                engine.create(create_spec(shape)).await.expect("created");
                engine.assemble(assemble_spec(members)).await.expect("assembled");
                let run = engine.with_volume(1, "tank", async move |volume| {
                    let mut model = Model::new(8, MODEL_BYTES);
                    for disk in &disks[..losses] {
                        for _ in 0..120 {
                            model.step(&volume).await;
                        }
                        model.audit(&volume).await;
                        disk.vanish();
                    }
                    for _ in 0..120 {
                        model.step(&volume).await;
                    }
                    model.audit(&volume).await;
                });
                run.await.expect("runs");
                engine.stop("tank").await.expect("stopped clean");
            })
            .done();
    }
}

/// A refusal to put out a needed member once said `array.failed`, as if the array had failed.
#[test]
fn a_member_taken_out_by_hand_is_recorded_on_the_others() {
    let shape = crate::world::shape(ashlar_layout::Level::Raid6, 6, None, None);
    let mut world = SimWorld::new(55);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.create(create_spec(shape)).await.expect("created");
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            engine.fail("tank", MemberIdx(4)).await.expect("two may go");
            engine.fail("tank", MemberIdx(1)).await.expect("two may go");
            let refused = engine.fail("tank", MemberIdx(0)).await.expect_err("a third may not");
            assert_eq!(refused.code, "member.needed");
            engine.stop("tank").await.expect("stopped clean");
            let name = engine.assemble(assemble_spec(6)).await.expect("two are out");
            let missing = engine.array(&name).expect("runs").slots_out();
            assert_eq!(missing, [MemberIdx(1), MemberIdx(4)]);
        })
        .done();
}
