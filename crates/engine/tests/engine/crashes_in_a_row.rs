//! The host stops during a start, and again during the next one.
//!
//! The story: superblock update N was cut off, so some members knew N and others N-1. The next
//! start took N as the newest, wrote N+1 and was cut off as well. Then some members knew N+1 and
//! others still N-1, two generations apart, which every start refuses. The array did not start any
//! more, although all members were there and well. A universe that cut starts at random found it.
//!
//! Two more: a start was cut off when some members knew of it, these were lost, and the rest
//! started without them. When the lost ones returned, they counted as split brain. And a start
//! lacked a member that was being copied to a replacement. It wrote the superblock of the one to
//! the other, so that two devices were the same member. After an immediate crash, a half-filled
//! device could count as whole.

use crate::world::{add_disks, assemble_spec, create_spec, engine, read, shape, submit};
use ashlar_engine::{ArrayState, ArrayVolume, CreateSpec};
use ashlar_layout::Level;
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_sim::{Ended, SimDisk, SimWorld, Stop};
use ashlar_units::{Extent, MemberIdx, to_usize};
use ashlar_volume::{Command, Volume};
use std::sync::Arc;
use std::time::Duration;

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
pub fn a_start_cut_off_twice_leaves_an_array_that_starts() {
    for one in (1..START).step_by(2) {
        for other in (1..START).step_by(2) {
            for stop in [Stop::PowerCut, Stop::Kill] {
                start_twice_and_once_more((one, stop), (other, Stop::PowerCut));
            }
        }
    }
}

/// Start on `count` disks and stop it after so many operations; if it is through by then, after a
/// little while.
fn start_and_stop(world: &mut SimWorld, count: usize, (operations, stop): (u64, Stop)) {
    let opener = world.opener();
    world.stop_at(world.operations() + operations, stop);
    let ended = world.run(async move |handle| {
        let engine = engine(opener, &handle, 1);
        engine.assemble(assemble_spec(count)).await.expect("starts");
        handle.sleep(Duration::from_millis(20)).await;
    });
    if let Ended::Done(()) = ended {
        world.stop(stop);
    }
}

fn create(world: &mut SimWorld, spec: CreateSpec) {
    let opener = world.opener();
    world
        .run(async move |handle| {
            engine(opener, &handle, 1).create(spec).await.expect("created");
        })
        .done();
}

#[test]
fn members_that_alone_know_of_a_start_may_be_lost_and_come_back() {
    for (operations, lost) in (1..START).step_by(3).flat_map(|at| [(at, 0), (at, 1), (at, 2)]) {
        let mut world = SimWorld::new(operations * 3 + u64::try_from(lost).expect("small"));
        let disks = add_disks(&mut world, 3);
        let shape = shape(Level::Raid5, 3, None, None);
        create(&mut world, CreateSpec { policy: ConsistencyPolicy::Log, ..create_spec(shape) });
        start_and_stop(&mut world, 3, (operations, Stop::PowerCut));
        disks[lost].vanish();
        start_and_stop(&mut world, 3, (1000, Stop::Kill));
        disks[lost].come_back();
        let opener = world.opener();
        let started = world
            .run(async move |handle| engine(opener, &handle, 1).assemble(assemble_spec(3)).await);
        started.done().unwrap_or_else(|refusal| panic!("cut at {operations}: {refusal}"));
    }
}

/// Bytes of data, and what all of them are.
const DATA: Extent = Extent { offset: 0, bytes: 16 << 15 };
const BYTE: u8 = 0xA7;

/// Flushed data on three members, the third of which is being copied to a fourth device when the
/// power goes.
fn cut_in_a_copy(world: &mut SimWorld) -> Vec<SimDisk> {
    let disks = add_disks(world, 4);
    let shape = shape(Level::Raid5, 3, None, None);
    create(world, CreateSpec { policy: ConsistencyPolicy::Log, ..create_spec(shape) });
    let opener = world.opener();
    world
        .run(async |handle| {
            let engine = engine(opener, &handle, 1);
            engine.assemble(assemble_spec(4)).await.expect("starts");
            let write = async |volume: ArrayVolume| {
                let mut buffer = volume.buffer(to_usize(DATA.bytes)).await;
                buffer.fill(BYTE);
                submit(&volume, Command::Write(buffer.freeze()), DATA, true).await;
            };
            engine.with_volume(0, "tank", write).await.expect("runs");
            engine.replace("tank", MemberIdx::from_at(2), "disk3", true).await.expect("begins");
        })
        .done();
    world.stop(Stop::PowerCut);
    disks
}

#[test]
fn a_start_without_the_source_of_a_copy_keeps_the_two_devices_apart() {
    for operations in (1..2 * START).step_by(3) {
        let mut world = SimWorld::new(operations);
        let disks = cut_in_a_copy(&mut world);
        disks[2].vanish();
        start_and_stop(&mut world, 4, (operations, Stop::PowerCut));
        // Once without the source, and once with both of them there.
        for is_back in [false, true] {
            if is_back {
                disks[2].come_back();
            }
            let opener = world.opener();
            let read = world.run(async |handle| {
                let engine = engine(opener, &handle, 1);
                let started = engine.assemble(assemble_spec(4)).await;
                started.unwrap_or_else(|refusal| panic!("cut at {operations}: {refusal}"));
                let read = async |volume: ArrayVolume| read(&volume, DATA).await.expect("readable");
                engine.with_volume(0, "tank", read).await.expect("runs")
            });
            let wrong = read.done().iter().position(|byte| *byte != BYTE);
            assert_eq!(wrong, None, "cut at {operations}, is back: {is_back}");
            world.stop(Stop::PowerCut);
        }
    }
}

/// Universes run by the thousand in one process: what each stopped host left behind would fill the
/// machine.
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
