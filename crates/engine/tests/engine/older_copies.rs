//! A device that was copied while the array ran, and put in the member's place later, is never
//! believed.
//!
//! It was: a copy lacks writes that were flushed, and the superblock says neither how many nor that
//! there are any. The array came up clean and in sync, and served what the copy held.

use crate::world::jobs::{Rig, on_array, until_all_in_sync};
use crate::world::{Model, add_disks, assemble_spec, create_spec, engine, shape, submit};
use ashlar_engine::{Array, ArrayVolume, Engine, SlotState, event_names};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::{ChecksumKind, ConsistencyPolicy};
use ashlar_ring::Handle;
use ashlar_sim::{Ended, SimDisk, SimWorld, Stop};
use ashlar_units::{Extent, MemberIdx};
use ashlar_volume::{Command, Volume};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is written before the copy is made, and again after it: random requests.
const STEPS: usize = 60;
/// Longer than what is flushed stays unproven.
const PROVEN_AFTER: Duration = Duration::from_millis(500);

/// How the run ends in which the copies are made.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    CleanStop,
    Killed,
    PowerCut,
}

const ENDS: [End; 3] = [End::CleanStop, End::Killed, End::PowerCut];

fn shapes() -> [Shape; 4] {
    [
        shape(Level::Raid1, 2, None, None),
        shape(Level::Raid5, 4, None, None),
        shape(Level::Raid6, 6, None, None),
        shape(Level::Raid10, 4, None, None),
    ]
}

/// Random requests, then a flush.
async fn work(engine: &Engine, model: &Arc<Mutex<Option<Model>>>, seed: u64) {
    let model = Arc::clone(model);
    let done = engine.with_volume(0, "tank", async move |volume: ArrayVolume| {
        let kept = model.lock().expect("one at a time").take();
        let mut own = kept.unwrap_or_else(|| Model::new(seed, volume.facts().size_bytes));
        for _ in 0..STEPS {
            own.step(&volume).await;
        }
        submit(&volume, Command::Flush, Extent::default(), false).await;
        *model.lock().expect("one at a time") = Some(own);
    });
    done.await.expect("runs");
}

/// The same without a look at what is there.
async fn write_and_flush(engine: &Engine, seed: u64) {
    let done = engine.with_volume(0, "tank", async move |volume: ArrayVolume| {
        let mut model = Model::new(seed, volume.facts().size_bytes);
        for _ in 0..8 {
            let extent = model.extent();
            model.write(&volume, extent).await;
        }
        submit(&volume, Command::Flush, Extent::default(), false).await;
    });
    done.await.expect("runs");
}

async fn audit(engine: &Engine, model: &Arc<Mutex<Option<Model>>>) {
    let model = Arc::clone(model);
    let done = engine.with_volume(0, "tank", async move |volume: ArrayVolume| {
        let own = model.lock().expect("one at a time").take().expect("made");
        own.audit(&volume).await;
        *model.lock().expect("one at a time") = Some(own);
    });
    done.await.expect("runs");
}

/// A world in which an array ran, with images of `copied` disks of the middle of its life in their
/// places.
fn with_copies(
    seed: u64,
    shape: &Shape,
    (copied, end): (&[usize], End),
) -> (SimWorld, Vec<SimDisk>, Arc<Mutex<Option<Model>>>) {
    let mut world = SimWorld::new(seed);
    let disks = add_disks(&mut world, shape.members);
    let model = Arc::new(Mutex::new(None));
    let (opener, its) = (world.opener(), Arc::clone(&model));
    let mut spec = create_spec(shape.clone());
    if shape.level == Level::Raid0 {
        (spec.policy, spec.checksums) = (ConsistencyPolicy::None, ChecksumKind::None);
    }
    let (sources, count) = (copied.iter().map(|at| disks[*at].clone()).collect(), shape.members);
    let run = async move |handle: Handle| {
        let sources: Vec<SimDisk> = sources;
        let engine = engine(opener, &handle, 2);
        engine.create(spec).await.expect("created");
        engine.assemble(assemble_spec(count)).await.expect("assembled");
        work(&engine, &its, seed).await;
        let images: Vec<_> = sources.iter().map(SimDisk::image).collect();
        work(&engine, &its, seed).await;
        handle.sleep(PROVEN_AFTER).await;
        if end == End::CleanStop {
            engine.stop("tank").await.expect("stopped");
        }
        images
    };
    let images = world.run(run).done();
    world.stop(if end == End::PowerCut { Stop::PowerCut } else { Stop::Kill });
    for (at, image) in copied.iter().zip(&images) {
        disks[*at].put_image(image);
    }
    (world, disks, model)
}

async fn all_in_sync(handle: &Handle, array: &Arc<Array>) {
    for _ in 0..10_000 {
        if array.slot_states().iter().all(|state| *state == SlotState::InSync) {
            return;
        }
        handle.sleep(Duration::from_millis(100)).await;
    }
    panic!("it is not rebuilt in a thousand seconds");
}

/// The array starts without the copies, serves what was written, takes none of them back as it is,
/// and all of them when they are filled anew.
fn stays_out(seed: u64, shape: &Shape, (copied, end): (&[usize], End)) {
    let (mut world, disks, model) = with_copies(seed, shape, (copied, end));
    let (opener, count) = (world.opener(), shape.members);
    let names: Vec<String> = copied.iter().map(|at| disks[*at].name()).collect();
    let slots = copied.to_vec();
    let run = async move |handle: Handle| {
        let engine = engine(opener, &handle, 2);
        // Without a log an array that was killed is not trusted when it lacks a member; nothing was
        // under way here.
        let mut spec = assemble_spec(count);
        spec.request.accept_dirty_degraded = true;
        engine.assemble(spec).await.expect("within the parity");
        let array = engine.array("tank").expect("runs");
        for (slot, state) in array.slot_states().into_iter().enumerate() {
            let wanted = if slots.contains(&slot) { SlotState::Out } else { SlotState::InSync };
            assert_eq!(state, wanted, "slot {slot} at {end:?}, seed {seed}");
        }
        let told = engine.events().since(0);
        let told = told.iter().filter(|event| event.name == event_names::MEMBER_OLDER).count();
        assert_eq!(told, slots.len());
        audit(&engine, &model).await;
        for name in &names {
            let refusal = engine.re_add("tank", name).await.expect_err("an older copy");
            assert_eq!(refusal.code, "member.not_returned");
            assert!(refusal.what.contains("older copy"), "{}", refusal.what);
        }
        for (slot, name) in slots.iter().zip(&names) {
            engine.replace("tank", MemberIdx::from_at(*slot), name, true).await.expect("it fits");
        }
        all_in_sync(&handle, &array).await;
        audit(&engine, &model).await;
        engine.stop("tank").await.expect("stopped");
        engine.assemble(assemble_spec(count)).await.expect("whole");
        audit(&engine, &model).await;
    };
    world.run(run).done();
}

#[test]
fn an_older_copy_of_a_member_stays_out_of_every_level() {
    for (seed, shape) in (0..).zip(shapes()) {
        for end in ENDS {
            stays_out(seed, &shape, (&[1], end));
        }
    }
}

#[test]
fn two_older_copies_stay_out_of_raid6() {
    for (seed, end) in (10..).zip(ENDS) {
        stays_out(seed, &shape(Level::Raid6, 6, None, None), (&[0, 4], end));
    }
}

/// What is left cannot serve, and says which devices are copies and how to read them all the same.
#[test]
fn more_older_copies_than_parity_are_refused() {
    let raid0 = shape(Level::Raid0, 3, None, None);
    let raid5 = shape(Level::Raid5, 4, None, None);
    for (seed, end) in (20..).zip(ENDS) {
        for (shape, copied) in [(&raid0, &[2][..]), (&raid5, &[0, 3])] {
            let (mut world, disks, _) = with_copies(seed, shape, (copied, end));
            let (opener, count) = (world.opener(), shape.members);
            let before: Vec<u64> = disks.iter().map(SimDisk::changes).collect();
            let run = async move |handle: Handle| {
                let engine = engine(opener, &handle, 2);
                engine.assemble(assemble_spec(count)).await.expect_err("too few are left")
            };
            let refusal = world.run(run).done();
            assert!(refusal.what.contains("is an older copy of it"), "{}", refusal.what);
            assert!(refusal.what.contains("ashlar salvage"), "{}", refusal.what);
            assert_eq!(before, disks.iter().map(SimDisk::changes).collect::<Vec<u64>>());
        }
    }
}

/// The operator takes what is there: as few copies as it needs, and it is remembered.
#[test]
fn a_start_from_the_freshest_members_can_be_forced() {
    let raid5 = shape(Level::Raid5, 4, None, None);
    for (seed, end) in (40..).zip(ENDS) {
        let (mut world, _, _) = with_copies(seed, &raid5, (&[0, 3], end));
        let opener = world.opener();
        let run = async move |handle: Handle| {
            let engine = engine(opener, &handle, 2);
            let mut spec = assemble_spec(4);
            let refusal = engine.assemble(spec.clone()).await.expect_err("two older copies");
            assert!(refusal.what.contains("--accept-older-members"), "{}", refusal.what);
            spec.request.accept_older_members = true;
            // Without a log, a kill leaves a degraded array read-only.
            spec.request.accept_dirty_degraded = true;
            let would = engine.would_assemble(spec.clone()).await.expect("it would start");
            assert_eq!(would.may_be_old.len(), 1);
            assert_eq!(would.may_be_old[0].within, None, "nobody knows what it lacks");
            engine.assemble(spec).await.expect("forced");
            let states = engine.array("tank").expect("runs").slot_states();
            assert_eq!(states.iter().filter(|state| **state == SlotState::InSync).count(), 3);
            let told = engine.events().since(0);
            let told = told.iter().filter(|it| it.name == event_names::MEMBER_TAKEN_OLDER).count();
            assert_eq!(told, 1);
            let volume = async move |volume: ArrayVolume| {
                let extent = Extent::new(0, 4096);
                crate::world::read(&volume, extent).await.expect("readable")
            };
            engine.with_volume(0, "tank", volume).await.expect("runs");
            // It is an array like any other from now on.
            engine.stop("tank").await.expect("stopped");
            engine.assemble(assemble_spec(4)).await.expect("without being forced");
        };
        world.run(run).done();
    }
}

/// What is proven while members are on their way out, and the others are not told yet, says nothing
/// of these.
#[test]
pub fn a_proof_while_members_go_does_not_make_them_older_copies() {
    const GO: [usize; 4] = [0, 3, 4, 7];
    on_array(60, &shape(Level::Raid10, 8, None, None), async |Rig { engine, handle, .. }| {
        for round in 0..40 {
            // The second flush is proven a while after the first was.
            write_and_flush(&engine, round).await;
            handle.sleep(Duration::from_millis(10)).await;
            write_and_flush(&engine, round).await;
            handle.sleep(Duration::from_micros(35_000 + 250 * round)).await;
            // Three wait for their turn.
            for slot in &GO[1..] {
                let (engine, member) = (engine.clone(), MemberIdx::from_at(*slot));
                handle.spawn(async move { engine.fail("tank", member).await.expect("it may go") });
            }
            engine.fail("tank", MemberIdx(0)).await.expect("it may go");
            handle.sleep(PROVEN_AFTER).await;
            for slot in GO {
                let taken = engine.re_add("tank", &format!("disk{slot}")).await;
                taken.unwrap_or_else(|refusal| panic!("round {round}, slot {slot}: {refusal}"));
            }
            until_all_in_sync(&engine, &handle).await;
        }
    });
}

/// No honest member is ever taken for a copy, wherever the program is killed or power is cut.
#[test]
fn no_crash_makes_an_honest_member_look_older() {
    let shape = shape(Level::Raid5, 4, None, None);
    for seed in 0..20 {
        let mut world = SimWorld::new(seed);
        add_disks(&mut world, shape.members);
        let (opener, spec) = (world.opener(), create_spec(shape.clone()));
        let create = async move |handle: Handle| {
            engine(opener, &handle, 2).create(spec).await.expect("created");
        };
        world.run(create).done();
        let stop = if seed % 2 == 0 { Stop::PowerCut } else { Stop::Kill };
        for life in 0..4 {
            let opener = world.opener();
            world.stop_at(world.operations() + 60 + 97 * (seed + life) % 1500, stop);
            let ended = world.run(async move |handle: Handle| {
                let engine = engine(opener, &handle, 2);
                engine.assemble(assemble_spec(4)).await.expect("after a crash");
                let array = engine.array("tank").expect("runs");
                let is_whole = array.slot_states().iter().all(|state| *state == SlotState::InSync);
                assert!(is_whole, "seed {seed}, life {life}");
                loop {
                    write_and_flush(&engine, seed + life).await;
                    handle.sleep(Duration::from_millis(30)).await;
                }
            });
            assert_eq!(ended, Ended::<()>::Stopped(stop));
        }
    }
}
