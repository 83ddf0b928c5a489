//! Power cuts of arrays that keep a stripe intent log, while clients write. Blocks tear. Members
//! are lost before the cut, with it, and after the start. The start itself is cut off up to three
//! times.
//!
//! What must stay true: a seed decides everything; a failure prints it. Every block holds its last
//! flushed contents or a later write, whole, and it stays that when further members are lost. Where
//! whole stripes are written without a log (healthy arrays), blocks are written whole here and no
//! member is lost with the power: the contract promises no more. Blocks of mirrors, whose records
//! have no data, do not tear here either.

use crate::world::jobs::scrub;
use crate::world::ledger::{CLIENTS, Ledger, blank, client, look};
use crate::world::{assemble_spec, create_spec, engine, load, names, submit};
use ashlar_engine::{ArrayVolume, SlotState};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_sim::{DiskOptions, Ended, Random, SimDisk, SimWorld, Stop};
use ashlar_units::{Extent, MemberIdx, to_usize};
use ashlar_volume::{Command, Volume};
use std::sync::Arc;

/// What a universe is like.
#[derive(Clone, Copy)]
struct Conditions {
    /// Bytes that a disk writes whole.
    atomic_bytes: u64,
    /// Longest write of a client, in blocks.
    blocks_max: u64,
    /// Members of each group that are out before clients write.
    out_before: usize,
    /// Whether members are lost with the power.
    loses_with_power: bool,
    /// It is stated that disks write blocks whole; only every third has a cache.
    states_whole: bool,
}

fn shapes() -> Vec<Shape> {
    vec![
        crate::world::shape(Level::Raid5, 4, None, None),
        crate::world::shape(Level::Raid6, 6, None, None),
        crate::world::shape(Level::Raid7, 7, None, None),
        crate::world::shape(Level::Raid1, 3, None, None),
        crate::world::shape(Level::Raid60, 10, Some(5), None),
        crate::world::declustered(Level::Raid6, 8, 5, 1),
        crate::world::shape(Level::Raid10, 4, None, None),
    ]
}

/// The slots that are out before clients write: in every group, since whole stripes of a group that
/// lacks nothing are written without a log of their data.
fn out_before(shape: &Shape, conditions: Conditions) -> Vec<usize> {
    let group = shape.group_members.unwrap_or(shape.members);
    (0..shape.members).filter(|slot| slot % group < conditions.out_before).collect()
}

/// Create, write until the power goes at a seeded moment.
fn write_until_power_cut(
    world: &mut SimWorld,
    shape: &Shape,
    (seed, conditions): (u64, Conditions),
    ledger: &Ledger,
) {
    let out = out_before(shape, conditions);
    let spec = create_spec(shape.clone());
    let atomic_write_bytes = if conditions.states_whole { 4096 } else { 0 };
    let policy = ConsistencyPolicy::Log;
    let spec = ashlar_engine::CreateSpec { policy, atomic_write_bytes, ..spec };
    let (engine, ()) = load::start_and(world, spec, async |engine, _| {
        for slot in out {
            engine.fail("tank", MemberIdx::from_at(slot)).await.expect("within the budget");
        }
    });
    let operations = 200 + Random::stream(seed, 99).below(4000);
    let ledger = Arc::clone(ledger);
    load::run_until(world, engine, (Stop::PowerCut, operations), CLIENTS, move |volume, number| {
        client(volume, Arc::clone(&ledger), (seed, number), conditions.blocks_max)
    });
}

/// A start that is cut off at some moment, or, if it is over before, then.
fn cut_start(world: &mut SimWorld, members: usize, random: &mut Random) {
    let opener = world.opener();
    world.stop_at(world.operations() + 20 + random.below(400), Stop::PowerCut);
    let ended: Ended<()> = world.run(async move |handle| {
        let engine = engine(opener, &handle, 2);
        let _started = engine.assemble(assemble_spec(members)).await;
    });
    if let Ended::Done(()) = ended {
        world.stop(Stop::PowerCut);
    }
}

/// Members that are lost until so many of the array are.
fn lose(disks: &[SimDisk], missing: &mut Vec<usize>, (wanted, random): (usize, &mut Random)) {
    while missing.len() < wanted {
        let slot = usize::try_from(random.below(disks.len() as u64)).expect("few");
        if !missing.contains(&slot) {
            disks[slot].vanish();
            missing.push(slot);
        }
    }
}

/// One universe; updates that its last start rolled forward.
fn survive(shape: &Shape, m: usize, (seed, conditions): (u64, Conditions)) -> u64 {
    let mut world = SimWorld::new(seed);
    let is_mirror = matches!(shape.level, Level::Raid1 | Level::Raid10);
    let options = DiskOptions {
        atomic_write_bytes: if is_mirror { 4096 } else { conditions.atomic_bytes },
        ..DiskOptions::sized(crate::world::DISK_BYTES)
    };
    let disk = |(at, name): (usize, &String)| {
        let has_volatile_cache = !conditions.states_whole || at % 3 == 2;
        world.add_disk(name, DiskOptions { has_volatile_cache, ..options.clone() })
    };
    let disks: Vec<SimDisk> = names(shape.members).iter().enumerate().map(disk).collect();
    let ledger = blank();
    write_until_power_cut(&mut world, shape, (seed, conditions), &ledger);
    let mut random = Random::stream(seed, 8);
    let mut missing = out_before(shape, conditions);
    for _ in 0..random.below(4) {
        if conditions.loses_with_power && random.percent(50) {
            let wanted = m.min(missing.len() + 1);
            lose(&disks, &mut missing, (wanted, &mut random));
        }
        cut_start(&mut world, shape.members, &mut random);
    }
    if conditions.loses_with_power && random.percent(70) {
        lose(&disks, &mut missing, (m, &mut random));
    }
    let (opener, members) = (world.opener(), shape.members);
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let started = engine.assemble(assemble_spec(members)).await;
            started.unwrap_or_else(|refusal| panic!("seed {seed}: {refusal:?}"));
            let array = &engine.status().await.expect("runs").arrays[0];
            assert_eq!(array.unsynced_regions, 0, "seed {seed}: nothing to resync");
            look(&engine, &ledger, seed).await;
            let is_out = |slot: &usize| array.members[*slot].state != SlotState::InSync;
            let mut missing: Vec<usize> = (0..members).filter(is_out).collect();
            lose(&disks, &mut missing, (m, &mut random));
            look(&engine, &ledger, seed).await;
            array.replayed.map_or(0, |replayed| replayed.rolled_forward)
        })
        .done()
}

/// Universes of all shapes; there must have been something to roll forward.
fn survive_all(universes: u64, conditions: impl Fn(usize) -> Conditions) {
    let mut rolled_forward = 0;
    for seed in 0..universes {
        let shapes = shapes();
        let at = usize::try_from(seed).expect("few") % shapes.len();
        let m = [1, 2, 3, 2, 2, 2, 1][at];
        rolled_forward += survive(&shapes[at], m, (seed, conditions(m)));
    }
    assert!(rolled_forward > universes, "{rolled_forward} updates rolled forward");
}

#[test]
fn torn_blocks_and_members_lost_with_the_power_cost_nothing() {
    survive_all(60, |_| Conditions {
        atomic_bytes: 512,
        blocks_max: 3,
        out_before: 0,
        loses_with_power: true,
        states_whole: false,
    });
}

#[test]
fn degraded_arrays_lose_nothing_with_the_power_whatever_is_written() {
    survive_all(60, |m| Conditions {
        atomic_bytes: 512,
        blocks_max: 24,
        out_before: m.div_ceil(2),
        loses_with_power: true,
        states_whole: false,
    });
}

/// A flushed block came back as it was before the flush. The record of a whole stripe without data
/// had outdated the record that alone held the block.
#[test]
fn whole_stripes_of_healthy_arrays_survive_a_power_cut_without_a_log_of_their_data() {
    survive_all(80, |_| Conditions {
        atomic_bytes: 4096,
        blocks_max: 24,
        out_before: 0,
        loses_with_power: false,
        states_whole: false,
    });
}

/// Records of single blocks have parity only, of the block no more than what it was and is to be.
#[test]
fn parity_only_updates_cost_nothing_with_the_power_where_blocks_are_written_whole() {
    for out_before in [false, true] {
        survive_all(60, |m| Conditions {
            atomic_bytes: 4096,
            blocks_max: 2,
            out_before: if out_before { m / 2 } else { 0 },
            loses_with_power: true,
            states_whole: true,
        });
    }
}

/// Write a whole stripe.
async fn write_stripe(volume: &ArrayVolume, stripe: u64, content: u8) {
    let bytes = u64::from(volume.facts().optimal_bytes);
    let mut buffer = volume.buffer(to_usize(bytes)).await;
    buffer.fill(content);
    let extent = Extent::new(stripe * bytes, bytes);
    submit(volume, Command::Write(buffer.freeze()), extent, false).await;
}

/// The power goes so many operations after two members were put out under a client that writes
/// whole stripes. Rows that do not match after the next start.
fn mismatches_after_a_cut(operations: u64) -> String {
    const STRIPES: u8 = 4;
    let mut world = SimWorld::new(operations);
    for name in names(6) {
        world.add_disk(&name, DiskOptions::sized(crate::world::DISK_BYTES));
    }
    let spec = create_spec(crate::world::shape(Level::Raid6, 6, None, None));
    let spec = ashlar_engine::CreateSpec { policy: ConsistencyPolicy::Log, ..spec };
    let (running, ()) = load::start_and(&mut world, spec, async |engine, _| {
        let filled = engine.with_volume(0, "tank", async |volume: ArrayVolume| {
            for stripe in 0..STRIPES {
                write_stripe(&volume, stripe.into(), u8::MAX).await;
            }
        });
        filled.await.expect("runs");
    });
    world.stop_at(world.operations() + operations, Stop::PowerCut);
    let ended: Ended<()> = world.run(async move |handle| {
        // While the first is recorded, the second waits.
        for slot in [MemberIdx(4), MemberIdx(2)] {
            let engine = running.clone();
            handle.spawn(async move {
                let _cut_off = engine.fail("tank", slot).await;
            });
        }
        let written = running.with_volume(0, "tank", async |volume: ArrayVolume| {
            for content in 0.. {
                write_stripe(&volume, (content % STRIPES).into(), content).await;
            }
        });
        written.await.expect("runs");
    });
    assert_eq!(ended, Ended::Stopped(Stop::PowerCut));
    let opener = world.opener();
    let found = world.run(async move |handle| {
        let engine = engine(opener, &handle, 2);
        engine.assemble(assemble_spec(6)).await.expect("assembled");
        scrub(&engine, &handle, false).await.0
    });
    found.done()
}

/// The record of an update does not name a member that is failing. It was once written before the
/// others had recorded that this member is out: the next start had all members, took the record for
/// complete, and left the member with old content.
#[test]
fn a_power_cut_while_a_member_is_put_out_leaves_no_update_on_the_others_alone() {
    for operations in 1..150 {
        assert_eq!(mismatches_after_a_cut(operations), "0", "{operations} operations");
    }
}
