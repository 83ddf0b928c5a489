//! A growth begins in an array that runs: its clients wait for a moment, and nothing else.
//!
//! What must stay true: no request ends in an error for it. A power cut at any step leaves the
//! array as it was, or growing, with all data. What is refused is refused before a request waits.

use crate::grown::{map_of, salvaged, small, superblock_of, written_all_over};
use crate::growth::{growth_runs, until_grown};
use crate::world::jobs::{audit, ms, raid6, started, status, steps};
use crate::world::{
    DISK_BYTES, Model, assemble_dirty, assemble_spec, create_spec, declustered, engine,
    in_enclosures, names, read, spared_enclosures, submit,
};
use ashlar_engine::{
    ArrayVolume, Engine, GrowReport, GrowSpec, Refusal, SlotState, event_names as events,
};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::JobKind;
use ashlar_ring::Handle;
use ashlar_sim::{DiskImage, DiskOptions, SimDisk, SimWorld, Stop};
use ashlar_units::{Extent, MemberIdx, to_u64, to_usize};
use ashlar_volume::{Command, Volume};
use std::cell::RefCell;
use std::rc::Rc;

/// Members that it grows by.
const ADDED: usize = 2;

fn spec() -> GrowSpec {
    let first = small().members;
    let devices = names(first + ADDED).split_off(first);
    GrowSpec { array: "tank".to_owned(), devices, ..GrowSpec::default() }
}

/// A world with the disks of an array and of its new members.
fn new_world(seed: u64) -> (SimWorld, Vec<SimDisk>) {
    world_for(seed, small().members + ADDED)
}

/// A world with so many disks, and one more.
fn world_for(seed: u64, count: usize) -> (SimWorld, Vec<SimDisk>) {
    let mut world = SimWorld::new(seed);
    let mut disks: Vec<SimDisk> = Vec::new();
    for name in names(count) {
        disks.push(world.add_disk(&name, DiskOptions::sized(DISK_BYTES)));
    }
    world.add_disk("new0", DiskOptions::sized(DISK_BYTES));
    (world, disks)
}

async fn filled_pool(opener: ashlar_sim::SimOpener, handle: &Handle, seed: u64) -> (Engine, Model) {
    filled(started(opener, handle, small()).await, seed).await
}

async fn filled(engine: Engine, seed: u64) -> (Engine, Model) {
    let size_bytes = status(&engine).await.geometry.volume_bytes();
    let model = written_all_over(&engine, Model::new(seed, size_bytes), 0).await;
    (engine, model)
}

type Outcome = Rc<RefCell<Option<Result<GrowReport, Refusal>>>>;

/// The growth begins soon, in a task of its own.
fn begin(engine: &Engine, handle: &Handle, spec: GrowSpec) -> Outcome {
    let (engine, outcome) = (engine.clone(), Outcome::default());
    let own = Rc::clone(&outcome);
    handle.spawn(async move {
        let grown = engine.grow(spec).await;
        *own.borrow_mut() = Some(grown);
    });
    outcome
}

async fn ended(handle: &Handle, outcome: &Outcome) -> Result<GrowReport, Refusal> {
    for _ in 0..100_000 {
        if let Some(result) = outcome.borrow_mut().take() {
            return result;
        }
        handle.sleep(ms(1)).await;
    }
    panic!("the command does not end");
}

#[test]
fn a_pool_takes_drives_while_its_clients_write_and_read() {
    let (mut world, disks) = new_world(1501);
    let opener = world.opener();
    let model = world
        .run(async move |handle| {
            let (engine, model) = filled_pool(opener, &handle, 1501).await;
            let old_bytes = to_u64(model.bytes.len());
            let outcome = begin(&engine, &handle, spec());
            // Volumes that were opened before the array starts again, on two workers.
            let other = engine.clone();
            let size = Rc::new(RefCell::new(Vec::new()));
            let seen = Rc::clone(&size);
            handle.spawn(async move {
                let look = async move |volume: ArrayVolume| {
                    let before = volume.facts();
                    volume.handle().sleep(ms(20_000)).await;
                    let after = volume.facts();
                    assert_eq!(before.uuid, after.uuid);
                    [before.size_bytes, after.size_bytes]
                };
                let sizes = other.with_volume(1, "tank", look).await.expect("it runs");
                seen.borrow_mut().extend(sizes);
            });
            let model = steps(&engine, 0, model, 400).await;
            let report = ended(&handle, &outcome).await.expect("it grows");
            assert_eq!((report.members_before, report.members), (7, 9));
            assert_eq!(report.volume_bytes_before, old_bytes);
            let model = until_grown(&engine, &handle, model).await;
            assert_eq!(to_u64(model.bytes.len()), report.volume_bytes);
            let model = audit(&engine, model).await;
            let model = written_all_over(&engine, model, old_bytes).await;
            handle.sleep(ms(20_000)).await;
            assert_eq!(*size.borrow(), [old_bytes, report.volume_bytes]);
            let states = status(&engine).await.members;
            assert!(states.len() == 9 && states.iter().all(|it| it.state == SlotState::InSync));
            let told: Vec<_> = engine.events().since(0).into_iter().map(|it| it.name).collect();
            for event in [events::ARRAY_GROWING, events::ARRAY_GROWN] {
                assert!(told.contains(&event), "{told:?}");
            }
            engine.stop("tank").await.expect("stopped");
            model
        })
        .done();
    salvaged(&disks, &model);
    assert_eq!(map_of(&superblock_of(&disks[8])).growth(), None);
}

#[test]
fn a_dry_run_says_what_moves_and_writes_nothing() {
    let (mut world, disks) = new_world(1502);
    let opener = world.opener();
    let own = disks.clone();
    world
        .run(async move |handle| {
            let (engine, _) = filled_pool(opener, &handle, 1502).await;
            let before = own[7].changes() + own[8].changes();
            let spec = GrowSpec { is_dry_run: true, ..spec() };
            let report = engine.grow(spec).await.expect("it could grow");
            assert!(report.moved_cells > 0 && report.volume_bytes > report.volume_bytes_before);
            // Two of nine: the least that can be.
            assert!(report.moved_cells * 9 <= report.cells * 2, "{report:?}");
            assert_eq!(report.bytes_to_each_new() * 2, report.moved_cells * report.cell_bytes);
            assert_eq!(own[7].changes() + own[8].changes(), before);
            assert!(!growth_runs(&engine).await);
        })
        .done();
}

/// What is refused, and that the array goes on as if nobody had asked.
#[test]
fn what_cannot_grow_is_refused_and_serves_on() {
    let (mut world, disks) = new_world(1503);
    world.add_disk("short", DiskOptions::sized(DISK_BYTES / 4));
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, model) = filled_pool(opener, &handle, 1503).await;
            let refused = async |spec: GrowSpec| {
                let refusal = engine.grow(spec).await.expect_err("refused");
                assert!(!growth_runs(&engine).await);
                refusal.to_string()
            };
            let with = |names: &[&str]| GrowSpec {
                devices: names.iter().map(|name| (*name).to_owned()).collect(),
                ..spec()
            };
            assert!(refused(with(&["disk7", "disk7"])).await.contains("given twice"));
            assert!(refused(with(&["disk7", "short"])).await.contains("too little"));
            assert!(refused(with(&["disk7", "disk3"])).await.contains("disk3"));
            assert!(refused(with(&[])).await.contains("cannot grow"));
            let unknown = GrowSpec { array: "tan".to_owned(), ..spec() };
            assert!(refused(unknown).await.contains("no running array"));
            engine.fail("tank", MemberIdx(2)).await.expect("it may go");
            let degraded = refused(spec()).await;
            assert!(
                degraded.contains("slot 2") && degraded.contains("ashlar replace"),
                "{degraded}"
            );
            let model = steps(&engine, 0, model, 50).await;
            audit(&engine, model).await;
            drop(disks);
        })
        .done();
}

#[test]
fn a_flat_array_does_not_grow() {
    let (mut world, _) = new_world(1504);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.create(create_spec(raid6())).await.expect("created");
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            let refusal = engine.grow(spec()).await.expect_err("refused").to_string();
            assert!(refusal.contains("only declustered pools grow"), "{refusal}");
        })
        .done();
}

#[test]
fn a_second_growth_waits_for_the_end_of_the_first() {
    let (mut world, _) = new_world(1505);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, model) = filled_pool(opener, &handle, 1505).await;
            engine.grow(spec()).await.expect("it grows");
            engine.pause("tank", JobKind::Grow).await.expect("paused");
            let again = GrowSpec { devices: vec!["new0".to_owned()], ..spec() };
            let refusal = engine.grow(again.clone()).await.expect_err("refused").to_string();
            assert!(refusal.contains("grows already"), "{refusal}");
            engine.unpause("tank", JobKind::Grow).await.expect("it goes on");
            let model = until_grown(&engine, &handle, model).await;
            match engine.grow(again).await {
                Ok(report) => {
                    assert_eq!(report.members, 10);
                    let model = until_grown(&engine, &handle, model).await;
                    audit(&engine, model).await;
                }
                // Members this small have no block that is so large.
                Err(refusal) => assert!(refusal.to_string().contains("at a time"), "{refusal}"),
            }
        })
        .done();
}

/// A new device goes at any moment of the beginning: the array serves on, grown or not, and no
/// client gets an error.
#[test]
fn a_new_device_that_goes_while_it_comes_costs_nothing() {
    let (mut refused, mut grew) = (0, 0);
    for after in (0..160).step_by(3) {
        let (mut world, disks) = new_world(1506);
        let opener = world.opener();
        let is_refused = world
            .run(async move |handle| {
                let (engine, model) = filled_pool(opener, &handle, 1506).await;
                let outcome = begin(&engine, &handle, spec());
                let gone = disks[8].clone();
                let own = handle.clone();
                handle.spawn(async move {
                    own.sleep(ms(after)).await;
                    gone.vanish();
                });
                let model = steps(&engine, 0, model, 300).await;
                let is_refused = ended(&handle, &outcome).await.is_err();
                let model = steps(&engine, 1, audit(&engine, model).await, 50).await;
                engine.stop("tank").await.expect("stopped");
                drop(model);
                is_refused
            })
            .done();
        if is_refused { refused += 1 } else { grew += 1 }
    }
    assert!(refused > 3 && grew > 3, "{refused} refused, {grew} grew");
}

/// Operations from one power cut to the next.
const STEP: u64 = 7;

/// The power goes so many operations after the command, and with it a member.
fn survives(shape: &Shape, operations: u64, gone: Option<usize>) -> bool {
    let seed = 1507;
    let (mut world, disks) = new_world(seed);
    let (opener, own) = (world.opener(), shape.clone());
    let (running, model) = world
        .run(async move |handle| {
            let (engine, model) = filled(started(opener, &handle, own).await, seed).await;
            crate::grown::flushed(&engine).await;
            (engine, model)
        })
        .done();
    world.stop_at(world.operations() + operations, Stop::PowerCut);
    let ended = world.run(async move |_| {
        running.grow(spec()).await.expect("it grows");
        drop(running);
    });
    let is_over = matches!(ended, ashlar_sim::Ended::Done(()));
    if is_over {
        world.call_off();
        world.stop(Stop::PowerCut);
    }
    gone.into_iter().for_each(|at| disks[at].vanish());
    let case = format!("{operations} operations, {gone:?}");
    let there = |at: &usize| Some(*at) != gone;
    let here: Vec<SimDisk> = (0..disks.len()).filter(there).map(|at| disks[at].clone()).collect();
    salvaged(&here, &model);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let all = assemble_dirty(small().members + ADDED);
            engine.assemble(all).await.unwrap_or_else(|refused| panic!("{case}: {refused}"));
            let model = steps(&engine, 0, audit(&engine, model).await, 5).await;
            let members = status(&engine).await.members.len();
            if gone.is_none() && members == 7 {
                // It never began; the devices may say that it did.
                let again = GrowSpec { destroy: spec().devices, ..spec() };
                engine.grow(again).await.unwrap_or_else(|refused| panic!("{case}: {refused}"));
            }
            if gone.is_none() {
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
fn a_power_cut_at_any_step_of_the_beginning_costs_nothing() {
    // The second one gets a spare table.
    for shape in [small(), declustered(Level::Raid6, 7, 4, 0)] {
        let mut cuts = 0;
        for operations in (0..).map(|at| 1 + at * STEP) {
            let gone = [None, Some(3), Some(8), None, Some(0)][to_usize(operations % 5)];
            if survives(&shape, operations, gone) {
                break;
            }
            cuts += 1;
        }
        assert!(cuts > 40, "{cuts} cuts");
    }
}

/// The members before the growth as they were when power went so many operations after its command,
/// if it did not end earlier.
fn members_at(operations: u64) -> Option<Vec<DiskImage>> {
    let (mut world, disks) = new_world(1510);
    let opener = world.opener();
    let (engine, _) =
        world.run(async move |handle| filled_pool(opener, &handle, 1510).await).done();
    world.stop_at(world.operations() + operations, Stop::PowerCut);
    let ended = world.run(async move |_| drop(engine.grow(spec()).await));
    let is_cut = !matches!(ended, ashlar_sim::Ended::Done(()));
    is_cut.then(|| disks[..small().members].iter().map(SimDisk::image).collect())
}

/// An operator puts all older members back, to before the growth: what the new ones know is not
/// served, and what was put back is not the array.
#[test]
fn older_copies_of_all_members_but_the_new_ones_are_refused() {
    let (mut world, disks) = new_world(1510);
    let opener = world.opener();
    let running = world.run(async move |handle| {
        let (engine, _) = filled_pool(opener, &handle, 1510).await;
        engine.grow(spec()).await.expect("it grows");
        engine
    });
    drop(running.done());
    world.stop(Stop::PowerCut);
    let mut refused = 0;
    for members in (0..).map_while(|at| members_at(1 + at * STEP)) {
        disks.iter().zip(&members).for_each(|(disk, image)| disk.put_image(image));
        if disks[..members.len()].iter().any(|it| superblock_of(it).geometry.is_growing()) {
            continue;
        }
        let before: Vec<u64> = disks.iter().map(SimDisk::changes).collect();
        let opener = world.opener();
        let started = world.run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_dirty(small().members + ADDED)).await.map(drop)
        });
        assert!(started.done().is_err(), "after {refused} that were refused");
        assert_eq!(before, disks.iter().map(SimDisk::changes).collect::<Vec<u64>>());
        refused += 1;
    }
    assert!(refused > 20, "{refused} copies");
}

/// Bytes of the new end read as zeros, and take writes that last.
#[test]
fn what_a_growth_opened_lasts_over_a_start() {
    let (mut world, disks) = new_world(1508);
    let opener = world.opener();
    let (old_bytes, model) = world
        .run(async move |handle| {
            let (engine, model) = filled_pool(opener, &handle, 1508).await;
            let old_bytes = to_u64(model.bytes.len());
            engine.grow(spec()).await.expect("it grows");
            let model = until_grown(&engine, &handle, model).await;
            let write = async move |volume: ArrayVolume| {
                let zeros = read(&volume, Extent::new(old_bytes, 8192)).await.expect("readable");
                assert!(zeros.iter().all(|byte| *byte == 0));
                let bytes = volume.buffer(4096).await;
                let mut bytes = bytes;
                bytes.fill(0x5a);
                submit(&volume, Command::Write(bytes.freeze()), Extent::new(old_bytes, 4096), true)
                    .await;
            };
            engine.with_volume(0, "tank", write).await.expect("runs");
            (old_bytes, model)
        })
        .done();
    world.stop(Stop::PowerCut);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_dirty(9)).await.expect("assembled");
            let look = async move |volume: ArrayVolume| {
                read(&volume, Extent::new(old_bytes, 4096)).await.expect("readable")
            };
            let found = engine.with_volume(1, "tank", look).await.expect("runs");
            assert!(found.iter().all(|byte| *byte == 0x5a));
            drop((model, disks));
        })
        .done();
}

/// What the command says of cells is what moves.
#[test]
fn as_many_cells_move_as_were_foretold() {
    let (mut world, disks) = new_world(1509);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, _) = filled_pool(opener, &handle, 1509).await;
            let report = engine.grow(spec()).await.expect("it grows");
            engine.pause("tank", JobKind::Grow).await.expect("paused");
            engine.stop("tank").await.expect("stopped");
            let map = map_of(&superblock_of(&disks[0]));
            let at = map.growth().expect("it grows");
            let own = ashlar_layout::declustered::Declustered::new(
                map.parts().at_creation().grown_by(ADDED).expect("it can"),
            );
            let all = own.expect("a map").moves(0..at.end_cells);
            assert_eq!(to_u64(all.len()), report.moved_cells);
        })
        .done();
}

/// Pools without distributed spares, in enclosures, and both; and members that each grows by.
fn other_pools() -> [(Shape, usize); 3] {
    [(declustered(Level::Raid6, 7, 4, 0), 2), (in_enclosures(), 4), (spared_enclosures(), 4)]
}

/// A member is lost in the middle, the growth stands still until it is replaced, and the power is
/// cut after that.
#[test]
fn pools_of_every_kind_grow_over_a_loss_and_a_power_cut() {
    for (seed, (shape, added)) in (1510..).zip(other_pools()) {
        let members = shape.members;
        let (mut world, mut disks) = world_for(seed, members + added);
        let opener = world.opener();
        let spec = GrowSpec { devices: names(members + added).split_off(members), ..spec() };
        let model = world
            .run(async move |handle| {
                let (engine, model) = filled(started(opener, &handle, shape).await, seed).await;
                engine.grow(spec).await.unwrap_or_else(|refused| panic!("{seed}: {refused}"));
                let model = steps(&engine, 0, model, 3).await;
                engine.fail("tank", MemberIdx(3)).await.expect("it may go");
                let model = audit(&engine, steps(&engine, 1, model, 50).await).await;
                assert!(growth_runs(&engine).await, "{seed}: it stands still");
                engine.replace("tank", MemberIdx(3), "new0", true).await.expect("replaced");
                let model = steps(&engine, 0, model, 50).await;
                crate::grown::flushed(&engine).await;
                model
            })
            .done();
        world.stop(Stop::PowerCut);
        disks[3] = world.disk("new0").expect("it was added");
        let opener = world.opener();
        let model = world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 2);
                let mut all = assemble_dirty(members + added);
                all.devices[3] = "new0".to_owned();
                engine.assemble(all).await.expect("assembled");
                let old_bytes = to_u64(model.bytes.len());
                let model = until_grown(&engine, &handle, model).await;
                let model = written_all_over(&engine, model, old_bytes).await;
                let model = steps(&engine, 0, audit(&engine, model).await, 100).await;
                engine.stop("tank").await.expect("stopped");
                model
            })
            .done();
        salvaged(&disks, &model);
    }
}
