//! Starts after a crash of an array that keeps a log: updates under way are rolled forward or
//! dropped whole, whatever is lost within the budget, and however often the start itself is cut
//! off.
//!
//! What must stay true: a seed decides everything; a failure prints it. After the start every block
//! at rest is exact, and every block in flight is old or new. It stays as it was read when further
//! members are lost, which proves parity.

use crate::hand_made::{Left, Logged};
use crate::world::{add_disks, assemble_spec, create_spec, engine, read, submit};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::{Engine, ReplaySummary, event_names};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::log::RecordKind;
use ashlar_ring::Handle;
use ashlar_sim::{Ended, Random, SimDisk, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent};
use ashlar_volume::{Command, Volume};
use std::sync::{Arc, Mutex};

/// Stripes that are written before the crash.
const STRIPES: u64 = 6;

fn shapes() -> Vec<Shape> {
    vec![
        crate::world::shape(Level::Raid5, 4, None, None),
        crate::world::shape(Level::Raid6, 6, None, None),
        crate::world::shape(Level::Raid7, 7, None, None),
        crate::world::shape(Level::Raid1, 3, None, None),
        crate::world::shape(Level::Raid60, 10, Some(5), None),
        crate::world::declustered(Level::Raid6, 8, 5, 1),
    ]
}

/// An array of that shape with content, stopped cleanly, and the hand that writes its log.
fn written(world: &mut SimWorld, shape: &Shape, seed: u64) -> (Vec<SimDisk>, Logged) {
    let disks = add_disks(world, shape.members);
    let (opener, spec, members) = (world.opener(), create_spec(shape.clone()), shape.members);
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.create(spec).await.expect("created");
            engine.assemble(assemble_spec(members)).await.expect("assembled");
            let fill = engine.with_volume(0, "tank", async move |volume| {
                let stripe_bytes = u64::from(volume.facts().optimal_bytes);
                let mut model = crate::world::Model::new(seed, STRIPES * stripe_bytes);
                for stripe in 0..STRIPES {
                    let extent = Extent::new(stripe * stripe_bytes, stripe_bytes);
                    model.write(&volume, extent).await;
                }
                submit(&volume, Command::Flush, Extent::default(), false).await;
            });
            fill.await.expect("runs");
            engine.stop("tank").await.expect("stopped");
        })
        .done();
    let logged = Logged::new(&disks, shape, STRIPES, seed);
    (disks, logged)
}

/// Read every block: each must be one of those that it may be.
async fn look(engine: &Engine, logged: &Arc<Mutex<Logged>>, seed: u64) {
    let logged = Arc::clone(logged);
    let looked = engine.with_volume(0, "tank", async move |volume| {
        let blocks = logged.lock().expect("one thread").data_blocks();
        for place in blocks {
            let offset = logged.lock().expect("one thread").volume_offset(place);
            let bytes = read(&volume, Extent::new(offset, BLOCK_BYTES)).await;
            let bytes = bytes.unwrap_or_else(|kind| panic!("seed {seed}: {place:?}: {kind:?}"));
            let is_allowed = logged.lock().expect("one thread").found(place, &bytes);
            assert!(is_allowed, "seed {seed}: stripe, strip, row {place:?} is neither old nor new");
        }
    });
    looked.await.expect("runs");
}

/// Start, look, lose what may still be lost, and look again.
async fn start_and_look(
    handle: Handle,
    (opener, disks): (ashlar_sim::SimOpener, Vec<SimDisk>),
    logged: Logged,
    seed: u64,
) -> ReplaySummary {
    let (members, m) = (disks.len(), logged.geometry.parity_strips());
    let logged = Arc::new(Mutex::new(logged));
    let engine = engine(opener, &handle, 2);
    let started = engine.assemble(assemble_spec(members)).await;
    started.unwrap_or_else(|refusal| panic!("seed {seed}: {refusal:?}"));
    let status = engine.status().await.expect("runs");
    assert_eq!(status.arrays[0].unsynced_regions, 0, "seed {seed}: nothing to resync");
    assert!(status.arrays[0].replayed.is_some(), "seed {seed}: the log was looked at");
    look(&engine, &logged, seed).await;
    let mut random = Random::stream(seed, 7);
    // A member that was away at a start that was cut off may be back, and be out.
    let is_out =
        |slot: &usize| status.arrays[0].members[*slot].state != ashlar_engine::SlotState::InSync;
    let mut missing: Vec<usize> = (0..members).filter(is_out).collect();
    while missing.len() < m {
        let slot = usize::try_from(random.below(members as u64)).expect("few");
        if !missing.contains(&slot) {
            disks[slot].vanish();
            missing.push(slot);
        }
    }
    look(&engine, &logged, seed).await;
    status.arrays[0].replayed.expect("there")
}

/// One universe; what its last start found.
fn survive(shape: &Shape, seed: u64) -> ReplaySummary {
    let mut world = SimWorld::new(seed);
    let (disks, mut logged) = written(&mut world, shape, seed);
    let mut random = Random::stream(seed, 6);
    let m = u64::try_from(logged.geometry.parity_strips()).expect("few");
    let mut gone: Vec<usize> = Vec::new();
    // Rows in doubt promise less if a member is lost with the crash: universes of their own.
    let has_doubt = logged.geometry.data_strips() > 1 && random.percent(30);
    let updates = 1 + random.below(8);
    let loss_at = if has_doubt { u64::MAX } else { random.below(2 * updates) };
    for number in 0..updates {
        if number == loss_at {
            let slot = usize::try_from(random.below(disks.len() as u64)).expect("few");
            logged.take_out(slot);
            disks[slot].vanish();
            gone.push(slot);
        } else if random.percent(15) {
            logged.settle();
        }
        let is_last = number + 1 == updates;
        let left = if is_last && random.percent(50) { Left::Part } else { Left::All };
        if random.percent(50) && logged.parity_only(left, is_last).is_some() {
            continue;
        }
        let is_doubt = has_doubt && random.percent(40);
        logged.update(if is_doubt { RecordKind::InDoubt } else { RecordKind::Full }, left);
    }
    logged.crash();
    let mut away = Vec::new();
    while !has_doubt
        && (gone.len() + away.len()) as u64 <= random.below(m + 1)
        && gone.len() + away.len() < logged.geometry.parity_strips()
    {
        let slot = usize::try_from(random.below(disks.len() as u64)).expect("few");
        if !gone.contains(&slot) && !away.contains(&slot) {
            disks[slot].vanish();
            away.push(slot);
        }
    }
    for _ in 0..random.below(4) {
        cut_start(&mut world, disks.len(), &mut random);
        if random.percent(30) {
            // It was only unplugged. If the others had begun without it, they know.
            away.drain(..).for_each(|slot| disks[slot].come_back());
        }
    }
    let opener = world.opener();
    world
        .run(async move |handle| start_and_look(handle, (opener, disks), logged, seed).await)
        .done()
}

/// A start that is cut off at some moment, or, if it is over before, then.
fn cut_start(world: &mut SimWorld, members: usize, random: &mut Random) {
    let opener = world.opener();
    world.stop_at(world.operations() + 20 + random.below(220), Stop::PowerCut);
    let ended: Ended<()> = world.run(async move |handle| {
        let engine = engine(opener, &handle, 2);
        let _started = engine.assemble(assemble_spec(members)).await;
    });
    if let Ended::Done(()) = ended {
        world.stop(Stop::PowerCut);
    }
}

#[test]
fn hand_made_logs_are_rolled_forward_whatever_is_lost_and_however_often_the_start_is_cut_off() {
    let (mut rolled_forward, mut dropped, mut rows_in_doubt) = (0, 0, 0);
    for seed in 0..120 {
        let shapes = shapes();
        let summary = survive(&shapes[seed % shapes.len()], seed as u64);
        rolled_forward += summary.rolled_forward;
        dropped += summary.dropped;
        rows_in_doubt += summary.rows_in_doubt;
    }
    let counts = (rolled_forward, dropped, rows_in_doubt);
    assert!(rolled_forward > 100 && dropped > 10 && rows_in_doubt > 20, "{counts:?}");
}

/// A universe with one update that is whole, on a RAID 6.
fn one_update(seed: u64) -> (SimWorld, Vec<SimDisk>, Logged) {
    let mut world = SimWorld::new(seed);
    let shape = crate::world::shape(Level::Raid6, 6, None, None);
    let (disks, mut logged) = written(&mut world, &shape, seed);
    logged.update(RecordKind::Full, Left::All);
    logged.crash();
    (world, disks, logged)
}

#[test]
fn a_read_only_start_with_updates_to_roll_forward_is_refused_and_writes_nothing() {
    let (mut world, disks, _) = one_update(1);
    let before: Vec<Vec<u8>> = disks.iter().map(everything).collect();
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let spec = ashlar_engine::AssembleSpec { is_read_only: true, ..assemble_spec(6) };
            let refusal = engine.assemble(spec).await.expect_err("there is something to do");
            assert_eq!(refusal.code, "array.log_not_replayed", "{refusal:?}");
            assert!(refusal.what.contains("1 stripes"), "{}", refusal.what);
        })
        .done();
    let after: Vec<Vec<u8>> = disks.iter().map(everything).collect();
    assert!(before == after, "nothing was written");
}

fn everything(disk: &SimDisk) -> Vec<u8> {
    disk.peek(Extent::new(0, crate::world::DISK_BYTES))
}

/// Start, and say what became of the start and how many slots are out.
fn start(
    world: &mut SimWorld,
    spoil: impl FnOnce(&[SimDisk]),
    disks: &[SimDisk],
) -> Result<usize, String> {
    spoil(disks);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(6)).await.map_err(|refusal| refusal.what)?;
            let events = engine.events().since(0);
            assert!(events.iter().any(|event| event.name == event_names::LOG_REPLAYED));
            let members = &engine.status().await.expect("runs").arrays[0].members;
            let is_out = |state| state == ashlar_engine::SlotState::Out;
            Ok(members.iter().filter(|member| is_out(member.state)).count())
        })
        .done()
}

/// Member sets 141 and 170. A start that was refused for its logs had already recorded members as
/// out. Now the logs are judged before the first write.
#[test]
fn a_log_that_cannot_be_read_costs_the_member_and_more_than_the_budget_the_start() {
    for (broken, wanted) in [(0, Ok(0)), (1, Ok(1)), (2, Ok(2)), (3, Err(()))] {
        let (mut world, disks, logged) = one_update(2);
        let area = logged.superblock.areas.intent_log;
        let spoil =
            |disks: &[SimDisk]| disks[..broken].iter().for_each(|disk| disk.break_media(area));
        let out = start(&mut world, spoil, &disks);
        assert_eq!(out.clone().map_err(|_| ()), wanted, "{broken} unreadable logs: {out:?}");
        if let Err(line) = out {
            assert!(line.contains("more members cannot be relied on"), "{line}");
            assert!(line.contains("nothing was written"), "{line}");
        }
    }
}

#[test]
fn a_member_that_takes_no_writes_is_out_after_the_start() {
    let (mut world, disks, logged) = one_update(3);
    let spoil = |disks: &[SimDisk]| {
        disks.iter().take(1).for_each(|disk| disk.fail(CommandKind::Write, FaultKind::Media, None));
    };
    assert_eq!(start(&mut world, spoil, &disks), Ok(1));
    drop(logged);
}

#[test]
fn a_record_that_a_member_must_have_had_costs_the_member() {
    let mut world = SimWorld::new(4);
    let shape = crate::world::shape(Level::Raid1, 3, None, None);
    let (disks, mut logged) = written(&mut world, &shape, 4);
    let area = logged.superblock.areas.intent_log;
    // All updates of a mirror have all members as holders; enough of them that some share rows.
    for _ in 0..30 {
        logged.update(RecordKind::Full, Left::All);
    }
    logged.crash();
    disks[1].corrupt(Extent::new(area.offset, BLOCK_BYTES));
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(3)).await.expect("two are enough");
            let members = &engine.status().await.expect("runs").arrays[0].members;
            assert_eq!(members[1].state, ashlar_engine::SlotState::Out);
            let logged = Arc::new(Mutex::new(logged));
            look(&engine, &logged, 4).await;
        })
        .done();
}

/// A record that all holders have but one, and that one is away: the start finds the record whole
/// and is cut off in the middle of rolling it forward. Then the member is back. Were it believed,
/// the record would be found incomplete and dropped half in place.
#[test]
fn a_member_that_comes_back_after_a_start_that_was_cut_off_does_not_undo_half_of_it() {
    let mut half_done = 0;
    for seed in 0..60 {
        let mut world = SimWorld::new(seed);
        let shape = crate::world::shape(Level::Raid6, 6, None, None);
        let (disks, mut logged) = written(&mut world, &shape, seed);
        logged.update(RecordKind::Full, Left::AllButOne);
        logged.crash();
        let away = logged.lacking.expect("one lacks it");
        disks[away].vanish();
        let mut random = Random::stream(seed, 9);
        let data = logged.superblock.areas.data;
        let before: Vec<Vec<u8>> = disks.iter().map(|disk| disk.peek_durable(data)).collect();
        cut_start(&mut world, 6, &mut random);
        let is_changed = |(disk, before): (&SimDisk, &Vec<u8>)| disk.peek_durable(data) != *before;
        half_done += usize::from(disks.iter().zip(&before).any(is_changed));
        disks[away].come_back();
        let opener = world.opener();
        world
            .run(async move |handle| start_and_look(handle, (opener, disks), logged, seed).await)
            .done();
    }
    assert!(half_done > 5, "{half_done} starts were cut off with something in place");
}

/// The block of a parity-only update cannot be read at one start, which is cut off, and can at the
/// next: neither the update nor the row may be half there.
#[test]
fn the_block_of_a_parity_only_update_may_be_unreadable_at_one_start_and_readable_later() {
    let (mut updates, mut half_done) = (0, 0);
    for seed in 0..120 {
        let mut world = SimWorld::new(seed);
        let shape = crate::world::shape(Level::Raid6, 6, None, None);
        let (disks, mut logged) = written(&mut world, &shape, seed);
        let Some((changed, offset)) = logged.parity_only(Left::All, true) else { continue };
        updates += 1;
        logged.crash();
        changed.break_media(Extent::new(offset, BLOCK_BYTES));
        let mut random = Random::stream(seed, 9);
        let data = logged.superblock.areas.data;
        let before: Vec<Vec<u8>> = disks.iter().map(|disk| disk.peek_durable(data)).collect();
        cut_start(&mut world, 6, &mut random);
        let is_changed = |(disk, before): (&SimDisk, &Vec<u8>)| disk.peek_durable(data) != *before;
        half_done += usize::from(disks.iter().zip(&before).any(is_changed));
        changed.repair_media();
        let opener = world.opener();
        world
            .run(async move |handle| start_and_look(handle, (opener, disks), logged, seed).await)
            .done();
    }
    assert!(updates > 100 && half_done > 5, "{half_done} starts were cut off half way");
}
