//! The host stops during a start, and again during the next one.
//!
//! The story: superblock update N was cut off, so some members know N and others N-1. The next start took N as the
//! newest, wrote N+1 and was cut off as well: some members knew N+1 and others still N-1, two generations apart, which
//! no start believes. The array did not start any more, with all members there and well. Found by a universe that cut
//! starts at random.

mod world;

use ashlar_engine::ArrayState;
use ashlar_layout::Level;
use ashlar_sim::{Ended, SimWorld, Stop};
use std::sync::Arc;
use world::{add_disks, assemble_spec, create_spec, engine, shape};

/// Device operations of a start, or a few more.
const START: u64 = 40;

fn start_twice_and_once_more(first: (u64, Stop), second: (u64, Stop)) {
    let mut world = SimWorld::new(first.0 * 100 + second.0);
    add_disks(&mut world, 3);
    let opener = world.opener();
    let shape = shape(Level::Raid5, 3, None, None);
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            engine.create(create_spec(shape)).await.expect("created");
        })
        .done();
    for (operations, stop) in [first, second] {
        let opener = world.opener();
        world.stop_at(world.operations() + operations, stop);
        let ended = world.run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            engine.assemble(assemble_spec(3)).await.expect("starts");
        });
        if let Ended::Done(()) = ended {
            world.stop(stop);
        }
    }
    let opener = world.opener();
    let state = world.run(async move |handle| {
        let engine = engine(opener, &handle, 1);
        let started = engine.assemble(assemble_spec(3)).await;
        started.unwrap_or_else(|refusal| panic!("{first:?}, {second:?}: {refusal}"));
        engine.status().await.expect("runs").arrays[0].state
    });
    assert_ne!(state.done(), ArrayState::ReadOnly, "{first:?}, {second:?}");
}

#[test]
fn a_start_cut_off_twice_leaves_an_array_that_starts() {
    for one in (1..START).step_by(2) {
        for other in (1..START).step_by(2) {
            for stop in [Stop::PowerCut, Stop::Kill] {
                start_twice_and_once_more((one, stop), (other, Stop::PowerCut));
            }
        }
    }
}

/// Universes run by the thousand in one process: what each stopped host left behind would fill the machine.
#[test]
fn an_executor_that_ends_under_a_running_array_frees_it() {
    let mut world = SimWorld::new(7);
    add_disks(&mut world, 3);
    let opener = world.opener();
    let array = world.run(async |handle| {
        let engine = engine(opener, &handle, 2);
        engine.create(create_spec(shape(Level::Raid5, 3, None, None))).await.expect("created");
        engine.assemble(assemble_spec(3)).await.expect("starts");
        Arc::downgrade(&engine.array("tank").expect("runs"))
    });
    let array = array.done();
    assert!(array.upgrade().is_some(), "it runs on without its engine's handle");
    world.stop(Stop::PowerCut);
    assert!(array.upgrade().is_none(), "something holds the array still");
}
