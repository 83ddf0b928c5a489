//! More members than parity replaces failed together and are whole again: some are recorded as out,
//! some are in service and lack the updates that say so.
//!
//! The array never started again, although nothing was lost. What must stay true: the second reader
//! takes the same members as the start, and reads the same.

use crate::world::{Model, add_disks, assemble_spec, create_spec, engine, shape, submit};
use ashlar_engine::{ArrayVolume, SlotState};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::format::copy_slots;
use ashlar_ondisk::{MemberEvent, Superblock};
use ashlar_ring::Handle;
use ashlar_salvage::{Choices, Salvage, Standing};
use ashlar_sim::{SimDisk, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx};
use ashlar_volume::{Command, Volume};

/// Random requests before the members fail.
const STEPS: usize = 40;

/// An array that was killed while nothing was under way, and what its volume holds.
fn killed(seed: u64, shape: &Shape) -> (SimWorld, Vec<SimDisk>, Model) {
    let mut world = SimWorld::new(seed);
    let disks = add_disks(&mut world, shape.members);
    let (opener, spec, count) = (world.opener(), create_spec(shape.clone()), shape.members);
    let run = async move |handle: Handle| {
        let engine = engine(opener, &handle, 2);
        engine.create(spec).await.expect("created");
        engine.assemble(assemble_spec(count)).await.expect("assembled");
        let work = async move |volume: ArrayVolume| {
            let mut model = Model::new(seed, volume.facts().size_bytes);
            for _ in 0..STEPS {
                model.step(&volume).await;
            }
            submit(&volume, Command::Flush, Extent::default(), false).await;
            model
        };
        engine.with_volume(0, "tank", work).await.expect("runs")
    };
    let model = world.run(run).done();
    world.stop(Stop::Kill);
    (world, disks, model)
}

fn own(disk: &SimDisk) -> Superblock {
    let slots = copy_slots(disk.size_bytes()).expect("a member");
    Superblock::decode(&disk.peek(slots[0])).expect("intact")
}

/// All members but those of `fail` take an update after the other: the first puts `out` out.
fn fail_together(disks: &[SimDisk], fail: &[usize], out: &[usize]) {
    let mut next = own(&disks[disks.len() - 1]);
    for number in 0..3 {
        next.generation += 1;
        for slot in out.iter().filter(|_| number == 1) {
            let holder = next.holder(MemberIdx::from_at(*slot)).expect("listed").uuid;
            next.record(holder, MemberEvent::Lost).expect("in service");
        }
        for (slot, disk) in disks.iter().enumerate().filter(|(slot, _)| !fail.contains(slot)) {
            let holder = next.holder(MemberIdx::from_at(slot)).expect("listed").uuid;
            let bytes = next.for_member(holder).expect("listed").encode().expect("valid");
            for copy in copy_slots(disk.size_bytes()).expect("a member") {
                disk.poke(copy.offset, &bytes);
            }
        }
    }
}

/// What becomes of the members that failed, without those that are gone for good.
fn starts_again(seed: u64, shape: &Shape, fail: &[usize], (out, gone): (&[usize], &[usize])) {
    let (mut world, disks, model) = killed(seed, shape);
    fail_together(&disks, fail, out);
    let here = |slot: &usize| !gone.contains(slot);
    let slots: Vec<usize> = (0..shape.members).filter(here).collect();
    let images: Vec<Vec<u8>> = slots
        .iter()
        .map(|slot| disks[*slot].peek(Extent::new(0, disks[*slot].size_bytes())))
        .collect();
    let images: Vec<&[u8]> = images.iter().map(Vec::as_slice).collect();
    let images: Vec<&&[u8]> = images.iter().collect();
    let salvage = Salvage::open(images, &Choices::default()).expect("an array");
    let standings: Vec<bool> =
        salvage.judged().iter().map(|judged| judged.standing == Standing::Current).collect();
    let saved = salvage.geometry().volume_blocks();
    let saved: Vec<Vec<u8>> = (0..saved.min(64))
        .map(|block| salvage.read_block(block).expect("not lost").bytes.to_vec())
        .collect();
    let (opener, mut spec) = (world.opener(), assemble_spec(shape.members));
    spec.devices = slots.iter().map(|slot| disks[*slot].name()).collect();
    let run = async move |handle: Handle| {
        let engine = engine(opener, &handle, 2);
        spec.request.accept_dirty_degraded = true;
        engine.assemble(spec).await.expect("nothing is lost");
        let states = engine.array("tank").expect("runs").slot_states();
        let in_sync: Vec<bool> =
            slots.iter().map(|slot| states[*slot] == SlotState::InSync).collect();
        assert_eq!(in_sync, standings, "the two readers take other members: seed {seed}");
        let look = async move |volume: ArrayVolume| {
            model.audit(&volume).await;
            for (block, saved) in (0..).zip(&saved) {
                let extent = Extent::new(block * BLOCK_BYTES, BLOCK_BYTES);
                let read = crate::world::read(&volume, extent).await.expect("readable");
                assert!(read == *saved, "the two readers see another block {block}");
            }
        };
        engine.with_volume(0, "tank", look).await.expect("runs");
        engine.stop("tank").await.expect("stopped");
    };
    world.run(run).done();
}

#[test]
fn an_array_starts_again_after_more_members_failed_together_than_parity_replaces() {
    let raid5 = shape(Level::Raid5, 4, None, None);
    starts_again(1, &raid5, &[0, 1], (&[0], &[]));
    let raid6 = shape(Level::Raid6, 6, None, None);
    starts_again(2, &raid6, &[0, 1, 2], (&[0, 1], &[]));
    starts_again(3, &raid6, &[0, 1, 2, 3], (&[0, 1], &[]));
    let raid10 = shape(Level::Raid10, 4, None, None);
    starts_again(4, &raid10, &[0, 1], (&[0], &[]));
}

/// The members that are in service and lack the update prove that nothing was answered since.
#[test]
fn a_member_that_dies_for_good_then_costs_nothing() {
    let raid6 = shape(Level::Raid6, 6, None, None);
    starts_again(5, &raid6, &[0, 1, 2, 3], (&[0, 1], &[5]));
    starts_again(6, &raid6, &[0, 1, 2], (&[0, 1], &[4, 5]));
    let raid5 = shape(Level::Raid5, 4, None, None);
    starts_again(7, &raid5, &[0, 1], (&[0], &[3]));
}
