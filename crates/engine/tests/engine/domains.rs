//! Arrays with failure domains: all of an enclosure may be lost, and no data is.
//!
//! What must stay true: the array is the one of `world::in_enclosures`, or has distributed spares
//! besides. Slots 2d and 2d + 1 are a failure domain, slots 4e to 4e + 3 an enclosure.

use crate::grown::until;
use crate::world::jobs::{
    MODEL_BYTES, Rig, audit, filled, on_array, status, steps, until_all_in_sync,
};
use crate::world::{
    DISK_BYTES, assemble_dirty, assemble_spec, engine, in_enclosures, jobs, spared_enclosures,
};
use ashlar_engine::ArrayState;
use ashlar_salvage::{Choices, How, Salvage};
use ashlar_sim::SimDisk;
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, to_usize};

/// The slots of each enclosure.
fn enclosures() -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..3).map(|at| at * 4..at * 4 + 4)
}

#[test]
fn an_enclosure_that_vanishes_under_load_costs_no_data() {
    for (seed, gone) in (900..).zip(enclosures()) {
        on_array(seed, &in_enclosures(), async move |Rig { engine, handle, disks, .. }| {
            let model = filled(&engine, seed).await;
            disks[gone.clone()].iter().for_each(SimDisk::vanish);
            let model = audit(&engine, steps(&engine, 0, model, 60).await).await;
            let now = status(&engine).await;
            assert_eq!((now.state, now.tolerates), (ArrayState::Degraded, 0));
            let other = MemberIdx::from_at((gone.start + 4) % 12);
            let refused = engine.fail("tank", other).await.expect_err("it is needed");
            assert!(!refused.what.is_empty());
            disks[gone.clone()].iter().for_each(SimDisk::come_back);
            for slot in gone {
                engine.re_add("tank", &format!("disk{slot}")).await.expect("back");
            }
            until_all_in_sync(&engine, &handle).await;
            audit(&engine, model).await;
        });
    }
}

#[test]
fn members_of_one_domain_count_once() {
    on_array(910, &in_enclosures(), async move |Rig { engine, disks, .. }| {
        let model = filled(&engine, 1).await;
        // Two of one domain, then two of another, then one of a third.
        for (slot, left) in [(0, 1), (1, 1), (7, 0), (6, 0)] {
            engine.fail("tank", MemberIdx(slot)).await.expect("it may go");
            assert_eq!(status(&engine).await.tolerates, left, "without slot {slot}");
        }
        engine.fail("tank", MemberIdx(8)).await.expect_err("a third domain");
        audit(&engine, steps(&engine, 1, model, 60).await).await;
        drop(disks);
    });
}

/// After a clean stop the array starts without any enclosure, and the second reader reads the same.
#[test]
fn a_start_and_the_second_reader_do_without_an_enclosure() {
    for gone in enclosures() {
        let (mut world, disks, _new) = jobs::world_for(920, &in_enclosures());
        let opener = world.opener();
        let first = async move |handle| {
            let engine = jobs::started(opener, &handle, in_enclosures()).await;
            let model = filled(&engine, 3).await;
            engine.stop("tank").await.expect("stopped");
            model
        };
        let model = world.run(first).done();
        let here = |at: &usize| !gone.contains(at);
        let whole = Extent::new(0, DISK_BYTES);
        let images: Vec<Vec<u8>> = (0..12).filter(here).map(|at| disks[at].peek(whole)).collect();
        is_salvaged(&images, &model.bytes);
        disks[gone.clone()].iter().for_each(SimDisk::vanish);
        let opener = world.opener();
        let second = async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(12)).await.expect("without an enclosure");
            audit(&engine, steps(&engine, 0, model, 40).await).await;
        };
        world.run(second).done();
    }
}

/// Distributed spares take all of an enclosure. Then another one may go, and a start does without
/// both.
#[test]
fn a_lost_enclosure_is_rebuilt_on_the_others_and_then_the_next_may_go() {
    let (mut world, disks, _new) = jobs::world_for(940, &spared_enclosures());
    let (opener, own) = (world.opener(), disks.clone());
    let model = world
        .run(async move |handle| {
            let engine = jobs::started(opener, &handle, spared_enclosures()).await;
            let model = filled(&engine, 4).await;
            own[4..8].iter().for_each(SimDisk::vanish);
            let model = audit(&engine, steps(&engine, 0, model, 60).await).await;
            until(&engine, &handle, |lost, tolerates| lost.len() == 4 && tolerates == 2).await;
            let now = status(&engine).await;
            let columns = |slots: [u16; 2]| {
                let of = |slot: u16| {
                    let lost = now.lost_members.iter().find(|it| it.slot == MemberIdx(slot));
                    lost.expect("it is lost").spare_column
                };
                slots.map(of)
            };
            assert_eq!(columns([4, 6]), columns([5, 7]), "members of a domain share a column");
            assert_ne!(columns([4, 5])[0], columns([6, 7])[0]);
            own[12..16].iter().for_each(SimDisk::vanish);
            let model = audit(&engine, steps(&engine, 1, model, 60).await).await;
            assert_eq!(status(&engine).await.tolerates, 0);
            engine.fail("tank", MemberIdx(0)).await.expect_err("it is needed");
            engine.stop("tank").await.expect("stopped");
            model
        })
        .done();
    let here = |at: &usize| !(4..8).contains(at) && !(12..16).contains(at);
    let whole = Extent::new(0, DISK_BYTES);
    let images: Vec<Vec<u8>> = (0..16).filter(here).map(|at| disks[at].peek(whole)).collect();
    is_salvaged(&images, &model.bytes);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(16)).await.expect("without two enclosures");
            let model = audit(&engine, steps(&engine, 0, model, 40).await).await;
            let gone = (4..8).chain(12..16);
            for slot in gone {
                disks[slot].come_back();
                engine.re_add("tank", &format!("disk{slot}")).await.expect("back");
            }
            until_all_in_sync(&engine, &handle).await;
            assert!(status(&engine).await.lost_members.is_empty());
            audit(&engine, model).await;
        })
        .done();
}

/// Every block, from these images alone.
fn is_salvaged(images: &[Vec<u8>], wanted: &[u8]) {
    let images: Vec<&[u8]> = images.iter().map(Vec::as_slice).collect();
    let images: Vec<&&[u8]> = images.iter().collect();
    let salvage = Salvage::open(images, &Choices::default()).expect("an array");
    for number in 0..MODEL_BYTES / BLOCK_BYTES {
        let found = salvage.read_block(number).expect("readable");
        assert!(found.how != How::InDoubt, "block {number}");
        let at = to_usize(number * BLOCK_BYTES);
        assert!(found.bytes.as_slice() == &wanted[at..at + 4096], "block {number}");
    }
}

#[test]
fn a_start_without_members_of_three_domains_is_refused() {
    let (mut world, disks, _new) = jobs::world_for(930, &in_enclosures());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = jobs::started(opener, &handle, in_enclosures()).await;
            engine.stop("tank").await.expect("stopped");
        })
        .done();
    [0, 5, 9].iter().for_each(|at| disks[*at].vanish());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let refused = engine.assemble(assemble_dirty(12)).await.expect_err("three strips");
            assert!(refused.what.contains("of 3 failure domains"), "{}", refused.what);
        })
        .done();
}
