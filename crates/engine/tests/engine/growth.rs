//! Arrays that grow while they serve: copy, flush, record, flip, and then more stripes at the end.
//!
//! What must stay true: nothing wrong is ever read, at no frontier, whatever dies when. The growth
//! begins by hand while the array stands still, with all members in the table and nothing moved.

use crate::grown::{
    begin_by_hand, flushed, map_of, salvaged, small, superblock_of, until, written_all_over,
};
use crate::world::jobs::{audit, job, last, ms, started, status, steps};
use crate::world::{DISK_BYTES, Model, assemble_dirty, assemble_spec, engine, names};
use ashlar_engine::{ArrayVolume, AssembleSpec, Engine, SlotState};
use ashlar_ondisk::{JobKind, JobRecord, Superblock};
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, SimDisk, SimWorld, Stop};
use ashlar_units::{Extent, MemberIdx, to_u64, to_usize};
use ashlar_volume::{Volume, VolumeErrorKind};
use std::time::Duration;

/// Members that it grows by.
const ADDED: usize = 2;
/// The new members, and an old one.
const GOING: [usize; 3] = [7, 8, 3];

fn note_job(_: &[SimDisk], grown: &mut Superblock) {
    grown.jobs.push(JobRecord::new(JobKind::Grow));
}

/// A world whose array was written all over, and is to grow at its next start.
pub fn growing_world(seed: u64) -> (SimWorld, Vec<SimDisk>, Model) {
    growing_after(seed, async |engine: &Engine, model| written_all_over(engine, model, 0).await)
}

/// The same after this was written.
fn growing_after(
    seed: u64,
    write: impl AsyncFnOnce(&Engine, Model) -> Model,
) -> (SimWorld, Vec<SimDisk>, Model) {
    let mut world = SimWorld::new(seed);
    let count = small().members + ADDED;
    let mut disks: Vec<SimDisk> = Vec::new();
    for name in names(count) {
        disks.push(world.add_disk(&name, DiskOptions::sized(DISK_BYTES)));
    }
    world.add_disk("new0", DiskOptions::sized(DISK_BYTES));
    let opener = world.opener();
    let model = world
        .run(async move |handle| {
            let engine = started(opener, &handle, small()).await;
            let size_bytes = status(&engine).await.geometry.volume_bytes();
            let model = write(&engine, Model::new(seed, size_bytes)).await;
            engine.stop("tank").await.expect("stopped clean");
            model
        })
        .done();
    begin_by_hand(&disks, note_job);
    (world, disks, model)
}

pub async fn growth_runs(engine: &Engine) -> bool {
    status(engine).await.jobs.iter().any(|job| job.kind == JobKind::Grow)
}

/// The model with the stripes that opened.
fn with_new_end(mut model: Model, size_bytes: u64) -> Model {
    assert!(size_bytes > to_u64(model.bytes.len()), "the volume grew");
    model.bytes.resize(to_usize(size_bytes), 0);
    model
}

/// Serve clients until the growth has ended.
pub async fn until_grown(engine: &Engine, handle: &Handle, mut model: Model) -> Model {
    for _ in 0..3_000 {
        if !growth_runs(engine).await {
            let size_bytes = status(engine).await.geometry.volume_bytes();
            return with_new_end(model, size_bytes);
        }
        model = steps(engine, 0, model, 3).await;
        handle.sleep(ms(50)).await;
    }
    panic!("never: {:?}", status(engine).await);
}

/// Wait until some member says that cells have moved.
async fn until_told(disks: &[SimDisk], handle: &Handle) {
    let is_told =
        |disk: &SimDisk| map_of(&superblock_of(disk)).growth().is_none_or(|it| it.moved_cells > 0);
    while !disks.iter().any(is_told) {
        handle.sleep(Duration::from_micros(10)).await;
    }
}

async fn until_ended(engine: &Engine, handle: &Handle, kind: JobKind) {
    while job(engine, kind).await.is_some() {
        handle.sleep(ms(10)).await;
    }
}

async fn size_of(engine: &Engine) -> u64 {
    let size = engine.with_volume(1, "tank", async |volume: ArrayVolume| volume.facts().size_bytes);
    size.await.expect("runs")
}

pub fn spec() -> AssembleSpec {
    assemble_spec(small().members + ADDED)
}

#[test]
fn a_pool_grows_under_load_and_its_volume_grows_at_the_end() {
    let (mut world, disks, model) = growing_world(1401);
    let old_bytes = to_u64(model.bytes.len());
    let opener = world.opener();
    let own = disks.clone();
    let model = world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(spec()).await.expect("assembled");
            assert_eq!(size_of(&engine).await, old_bytes);
            let model = until_grown(&engine, &handle, model).await;
            assert_eq!(size_of(&engine).await, to_u64(model.bytes.len()));
            let model = audit(&engine, model).await;
            let model = written_all_over(&engine, model, old_bytes).await;
            let model = steps(&engine, 1, audit(&engine, model).await, 100).await;
            engine.fail("tank", MemberIdx(8)).await.expect("it may go");
            until(&engine, &handle, |lost, tolerates| lost.len() == 1 && tolerates == 2).await;
            own[0].vanish();
            own[7].vanish();
            let model = audit(&engine, model).await;
            own[0].come_back();
            own[7].come_back();
            engine.stop("tank").await.expect("stopped");
            model
        })
        .done();
    salvaged(&disks, &model);
    let grown = superblock_of(&disks[1]);
    assert!(grown.jobs.iter().all(|job| job.kind != JobKind::Grow));
    assert_eq!(map_of(&grown).growth(), None);
}

#[test]
fn before_the_end_of_a_growth_the_new_stripes_are_no_part_of_the_volume() {
    let (mut world, _, model) = growing_world(1402);
    let old_bytes = to_u64(model.bytes.len());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(spec()).await.expect("assembled");
            engine.pause("tank", JobKind::Grow).await.expect("paused");
            let behind = Extent::new(old_bytes, 4096);
            let read = engine.with_volume(0, "tank", async move |volume: ArrayVolume| {
                crate::world::read(&volume, behind).await
            });
            assert_eq!(read.await.expect("runs").err(), Some(VolumeErrorKind::BadExtent));
            drop(model);
        })
        .done();
}

#[test]
fn a_growth_pauses_and_goes_on_over_a_stop() {
    let (mut world, disks, model) = growing_world(1403);
    let opener = world.opener();
    let model = world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(spec()).await.expect("assembled");
            engine.pause("tank", JobKind::Grow).await.expect("paused");
            handle.sleep(ms(3_000)).await;
            let model = steps(&engine, 0, audit(&engine, model).await, 50).await;
            assert!(growth_runs(&engine).await);
            engine.stop("tank").await.expect("stopped clean");
            model
        })
        .done();
    let before = map_of(&superblock_of(&disks[0])).growth().expect("it grows").moved_cells;
    salvaged(&disks, &model);
    let opener = world.opener();
    let own = disks.clone();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(spec()).await.expect("assembled");
            handle.sleep(ms(3_000)).await;
            let now = map_of(&superblock_of(&own[0])).growth().expect("it grows").moved_cells;
            assert_eq!(now, before, "it is paused");
            engine.unpause("tank", JobKind::Grow).await.expect("it goes on");
            let model = until_grown(&engine, &handle, model).await;
            audit(&engine, model).await;
        })
        .done();
}

/// A member goes while the members are told of a new frontier. Clients then wrote what had moved
/// without it, and the new places once kept old content.
#[test]
fn a_member_that_goes_while_the_frontier_moves_leaves_no_cell_old() {
    for lost in 0..9 {
        let (mut world, disks, model) = growing_world(1408);
        let opener = world.opener();
        let own = disks.clone();
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 2);
                engine.assemble(spec()).await.expect("assembled");
                until_told(&own, &handle).await;
                let (going, member) = (engine.clone(), MemberIdx::from_at(lost));
                handle.spawn(async move { going.fail("tank", member).await.expect("it may go") });
                let model = written_all_over(&engine, model, 0).await;
                until(&engine, &handle, |lost, tolerates| lost.len() == 1 && tolerates == 2).await;
                engine.scrub("tank", false).await.expect("begun");
                until_ended(&engine, &handle, JobKind::Scrub).await;
                let mismatches = last(&engine, "job.finished", "mismatches");
                assert_eq!(mismatches.as_deref(), Some("0"), "without {member}");
                audit(&engine, model).await;
            })
            .done();
    }
}

/// Both new members and an old one go while the members are told of a new frontier. So far the new
/// ones hold nothing that counts; behind the frontier some stripe would lack three strips. Whoever
/// asked the old map alone had all three recorded as out, and a kill left that with the new map.
#[test]
fn members_that_go_while_the_frontier_moves_are_judged_by_both_maps() {
    let mut kills = 0;
    for operations in (0..).map(|at| 1 + at * 7) {
        let (mut world, disks, model) = growing_world(1421);
        let (opener, switch) = (world.opener(), world.switch());
        let own = disks.clone();
        let ended = world.run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(spec()).await.expect("assembled");
            until_told(&own, &handle).await;
            switch.stop_after(operations, Stop::Kill);
            GOING.into_iter().for_each(|at| own[at].vanish());
            handle.sleep(ms(10_000)).await;
            let states = status(&engine).await.members;
            let out = states.iter().filter(|it| it.state == SlotState::Out).count();
            assert!(out < GOING.len(), "{states:?}");
        });
        let is_over = matches!(ended, ashlar_sim::Ended::Done(()));
        if is_over {
            world.call_off();
            world.stop(Stop::Kill);
        }
        GOING.into_iter().for_each(|at| disks[at].come_back());
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 2);
                let assembled = engine.assemble(spec()).await;
                assembled.unwrap_or_else(|refused| panic!("after {operations}: {refused}"));
                audit(&engine, model).await;
            })
            .done();
        if is_over {
            break;
        }
        kills += 1;
    }
    assert!(kills > 3, "{kills} kills");
}

/// Records name devices, and cells change theirs: when a frontier moves, none may count that is
/// older. Arrays without a log have none (`logged.rs`).
#[test]
fn no_older_record_counts_when_a_frontier_has_moved() {
    let (mut world, disks, model) = growing_world(1409);
    let opener = world.opener();
    let model = world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(spec()).await.expect("assembled");
            engine.pause("tank", JobKind::Grow).await.expect("paused");
            let model = written_all_over(&engine, model, 0).await;
            engine.unpause("tank", JobKind::Grow).await.expect("it goes on");
            until_told(&disks, &handle).await;
            model
        })
        .done();
    world.stop(Stop::PowerCut);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(spec()).await.expect("assembled");
            for field in ["rolled_forward", "rows_in_doubt"] {
                let count = last(&engine, "log.replayed", field);
                assert_eq!(count.as_deref().unwrap_or("0"), "0", "{field}");
            }
            audit(&engine, model).await;
        })
        .done();
}

/// Before a frontier moves, every log ring says what is settled. The ring of a device that joined
/// meanwhile was never told to, and without writes of clients the growth waited for it for ever.
#[test]
fn a_device_that_joins_while_the_log_settles_holds_up_no_growth() {
    for after in 0..40 {
        let (mut world, _disks, model) = growing_world(1420);
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 2);
                engine.assemble(spec()).await.expect("assembled");
                let model = steps(&engine, 0, model, 5).await;
                handle.sleep(Duration::from_micros(after * 500)).await;
                if engine.replace("tank", MemberIdx(3), "new0", true).await.is_err() {
                    return;
                }
                for _ in 0..3_000 {
                    if !growth_runs(&engine).await {
                        return;
                    }
                    handle.sleep(ms(100)).await;
                }
                panic!("{after}: never: {:?} {}", status(&engine).await.jobs, model.bytes.len());
            })
            .done();
    }
}

/// A member in service gets another device in the middle: what moved to it, and what moved away, is
/// not where the map of the creation has it. The copy once left such cells out.
#[test]
fn a_member_replaced_in_the_middle_of_a_growth_has_all_its_cells() {
    for slot in [0, 3, 7, 8] {
        let (mut world, disks, model) = growing_world(1407);
        let opener = world.opener();
        let own = disks.clone();
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 2);
                engine.assemble(spec()).await.expect("assembled");
                let frontier = || map_of(&superblock_of(&own[1])).growth().map(|it| it.moved_cells);
                while frontier() == Some(0) {
                    handle.sleep(ms(1)).await;
                }
                engine.pause("tank", JobKind::Grow).await.expect("paused");
                let slot = MemberIdx::from_at(slot);
                engine.replace("tank", slot, "new0", true).await.expect("a copy begins");
                let model = steps(&engine, 0, model, 50).await;
                until_ended(&engine, &handle, JobKind::Replace).await;
                assert!(frontier().is_some(), "it is in the middle");
                engine.scrub("tank", false).await.expect("begun");
                until_ended(&engine, &handle, JobKind::Scrub).await;
                let mismatches = last(&engine, "job.finished", "mismatches");
                assert_eq!(mismatches.as_deref(), Some("0"));
                own[2].vanish();
                own[5].vanish();
                audit(&engine, model).await;
            })
            .done();
    }
}

/// Cells are on their way to a new member, and another device takes its slot before they are there.
/// What clients wrote to them meanwhile went to the device that left, and was read old from the
/// other one when they counted as moved; with checksums blocks were lost (seed 914302721 of the
/// universes).
#[test]
fn what_was_moving_when_a_device_took_the_slot_moves_again() {
    for after in 0..40 {
        // So little that a copy of it ends before the batch.
        let little = async |engine: &Engine, model| steps(engine, 0, model, 4).await;
        let (mut world, disks, model) = growing_after(1408, little);
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 2);
                engine.assemble(spec()).await.expect("assembled");
                let model = steps(&engine, 0, model, 3).await;
                handle.sleep(Duration::from_micros(after * 300)).await;
                if engine.replace("tank", MemberIdx(8), "new0", true).await.is_err() {
                    return;
                }
                let mut model = model;
                while job(&engine, JobKind::Replace).await.is_some() {
                    model = steps(&engine, 0, model, 1).await;
                }
                let model = until_grown(&engine, &handle, model).await;
                engine.scrub("tank", false).await.expect("begun");
                until_ended(&engine, &handle, JobKind::Scrub).await;
                let mismatches = last(&engine, "job.finished", "mismatches");
                assert_eq!(mismatches.as_deref(), Some("0"), "{after}");
                let model = audit(&engine, model).await;
                disks[2].vanish();
                disks[5].vanish();
                audit(&engine, model).await;
            })
            .done();
    }
}

/// A member goes in the middle: an old one, or a new one. It is rebuilt into the spare and comes
/// anew, and the growth goes on.
#[test]
fn a_member_lost_in_the_middle_of_a_growth_costs_nothing() {
    for lost in [0, 3, 7, 8] {
        let (mut world, disks, model) = growing_world(1404);
        let opener = world.opener();
        let own = disks.clone();
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 2);
                engine.assemble(spec()).await.expect("assembled");
                let frontier = || map_of(&superblock_of(&own[1])).growth().map(|it| it.moved_cells);
                while frontier() == Some(0) {
                    handle.sleep(ms(1)).await;
                }
                own[lost].vanish();
                let model = steps(&engine, 0, model, 50).await;
                assert!(growth_runs(&engine).await, "it was too fast");
                until(&engine, &handle, |lost, tolerates| lost.len() == 1 && tolerates == 2).await;
                let model = steps(&engine, 1, audit(&engine, model).await, 50).await;
                // It may have moved back: the member went while the first cells came into service.
                assert!(frontier().is_some());
                engine.replace("tank", MemberIdx::from_at(lost), "new0", true).await.expect("new");
                until(&engine, &handle, |lost, _| lost.is_empty()).await;
                let model = until_grown(&engine, &handle, model).await;
                let model = steps(&engine, 1, audit(&engine, model).await, 50).await;
                let states = status(&engine).await.members;
                assert!(states.iter().all(|member| member.state == SlotState::InSync));
                own[2].vanish();
                own[5].vanish();
                audit(&engine, model).await;
            })
            .done();
    }
}

/// The power goes, and with it a member, so many operations after a growth began.
fn survives(seed: u64, operations: u64, gone: Option<usize>) -> bool {
    let (mut world, disks, model) = growing_world(seed);
    let opener = world.opener();
    let (running, model) = world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(spec()).await.expect("assembled");
            flushed(&engine).await;
            (engine, model)
        })
        .done();
    world.stop_at(world.operations() + operations, Stop::PowerCut);
    let ended = world.run(async move |handle| {
        handle.sleep(ms(60_000)).await;
        drop(running);
    });
    let is_over = matches!(ended, ashlar_sim::Ended::Done(()));
    if is_over {
        world.call_off();
        world.stop(Stop::PowerCut);
    }
    let case = format!("{operations} operations, {gone:?}");
    let there = |at: &usize| Some(*at) != gone;
    let here: Vec<SimDisk> = (0..disks.len()).filter(there).map(|at| disks[at].clone()).collect();
    gone.into_iter().for_each(|at| disks[at].vanish());
    let opener = world.opener();
    salvaged(&here, &model);
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let spec = assemble_dirty(small().members + ADDED);
            engine.assemble(spec).await.unwrap_or_else(|refused| panic!("{case}: {refused}"));
            let model = steps(&engine, 0, audit(&engine, model).await, 5).await;
            if gone.is_none() && growth_runs(&engine).await {
                let model = until_grown(&engine, &handle, model).await;
                audit(&engine, model).await;
            } else {
                handle.sleep(ms(20_000)).await;
                audit(&engine, model).await;
            }
        })
        .done();
    is_over
}

#[test]
fn a_power_cut_at_any_step_of_a_growth_costs_nothing() {
    let mut cuts = 0;
    for operations in (0..).map(|at| 1 + at * 13) {
        let gone = [None, Some(3), Some(8)][to_usize(operations % 3)];
        if survives(1405, operations, gone) {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 40, "{cuts} cuts");
}
