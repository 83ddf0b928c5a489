//! The kept map: first writes are answered without a flush, and a killed process loses none of
//! them.
//!
//! What must stay true: the map counts only for the start that made it, only whole, and only until
//! the power goes. A start that needs it and lacks it is refused. The disks carry a byte that no
//! client writes: a power cut never brings it back.

use crate::world::jobs::until_all_in_sync;
use crate::world::kept::TestMemory;
use crate::world::{DISK_BYTES, assemble_spec, create_spec, engine, policy, read};
use ashlar_engine::{ArrayVolume, Engine, Refusal, SlotState, event_names};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::examine::{examine_ranges, split_copies};
use ashlar_ondisk::{ConsistencyPolicy, ForcedActions, Superblock, SuperblockCopies};
use ashlar_sim::{Ended, Random, SimDisk, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent};
use ashlar_volume::{Command, Request, Volume};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MEMBERS: usize = 6;
/// Four data strips of 16 KiB.
const STRIPE_BYTES: u64 = 64 << 10;
const OLD: u8 = 0xEE;
const NEW: u8 = 0x11;

fn shape() -> Shape {
    crate::world::shape(Level::Raid6, MEMBERS, None, None)
}

/// A world with an array on disks full of old data, and the memory beside it.
fn world_of(seed: u64) -> (SimWorld, Vec<SimDisk>, TestMemory) {
    let mut world = SimWorld::new(seed);
    let disks = crate::world::add_disks(&mut world, MEMBERS);
    disks.iter().for_each(|disk| disk.poke(2 << 20, &vec![OLD; 5 << 20]));
    let (opener, memory) = (world.opener(), TestMemory::new(world.memory()));
    world
        .run(async move |handle| {
            engine(opener, &handle, 2).create(create_spec(shape())).await.expect("created");
        })
        .done();
    world.stop(Stop::Kill);
    (world, disks, memory)
}

fn superblock(disk: &SimDisk) -> Superblock {
    let [head, tail] = examine_ranges(DISK_BYTES).expect("large enough");
    let (head, tail) = (disk.peek(head), disk.peek(tail));
    let choice = SuperblockCopies::choose(&split_copies(Some(&head), Some(&tail)));
    choice.superblock().expect("a member").clone()
}

async fn submit(volume: &ArrayVolume, command: Command, extent: Extent) {
    volume.submit(Request { command, extent, fua: false }).await.expect("healthy");
}

/// Write the first block of a stripe.
async fn write(volume: &ArrayVolume, stripe: u64) {
    let mut buffer = volume.buffer(4096).await;
    buffer.fill(NEW);
    let extent = Extent::new(stripe * STRIPE_BYTES, BLOCK_BYTES);
    submit(volume, Command::Write(buffer.freeze()), extent).await;
}

/// A life that starts the array, does this and is stopped in this way.
fn live<F: Future<Output = ()> + 'static>(
    (world, memory): (&mut SimWorld, &TestMemory),
    stop: Stop,
    work: impl FnOnce(ArrayVolume) -> F + Send + 'static,
) {
    let (opener, memory) = (world.opener(), memory.clone());
    world
        .run(async move |handle| {
            let engine = memory.engine(opener, &handle);
            engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
            engine.with_volume(0, "tank", work).await.expect("runs");
        })
        .done();
    world.stop(stop);
}

/// What the first block of a stripe must be.
async fn holds(volume: &ArrayVolume, stripe: u64, byte: u8) {
    let extent = Extent::new(stripe * STRIPE_BYTES, BLOCK_BYTES);
    let bytes = read(volume, extent).await.expect("readable");
    assert_eq!(bytes, [byte; 4096], "stripe {stripe}");
}

/// A start with this memory: how it was refused, and that it changed nothing then.
fn refused((world, memory): (&mut SimWorld, Option<&TestMemory>), disks: &[SimDisk]) -> Refusal {
    let changes = || disks.iter().map(SimDisk::changes).collect::<Vec<_>>();
    let (before, opener, memory) = (changes(), world.opener(), memory.cloned());
    let refusal = world
        .run(async move |handle| {
            let engine = match memory {
                Some(memory) => memory.engine(opener, &handle),
                None => engine(opener, &handle, 2),
            };
            let would = engine.would_assemble(assemble_spec(MEMBERS)).await;
            let would = would.map(drop).expect_err("refused");
            let refusal = engine.assemble(assemble_spec(MEMBERS)).await.expect_err("refused");
            assert_eq!(would, refusal);
            refusal
        })
        .done();
    world.stop(Stop::Kill);
    assert_eq!(changes(), before);
    refusal
}

async fn count_of(engine: &Engine, name: &str) -> u64 {
    let array = engine.array("tank").expect("it runs");
    let counts = array.counts();
    let named = counts.fields().into_iter().find(|(field, _)| *field == name);
    named.expect("a count").1
}

#[test]
fn first_writes_are_answered_without_a_flush_and_outlive_a_kill() {
    let (mut world, _, memory) = world_of(1);
    let (opener, own) = (world.opener(), memory.clone());
    world
        .run(async move |handle| {
            let engine = own.engine(opener, &handle);
            engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
            let before = count_of(&engine, "member_flushes").await;
            let written = engine.with_volume(0, "tank", async |volume| {
                for stripe in [0, 3, 17] {
                    write(&volume, stripe).await;
                }
            });
            written.await.expect("runs");
            assert_eq!(count_of(&engine, "member_flushes").await, before);
            assert_eq!(count_of(&engine, "written_page_writes").await, 0);
        })
        .done();
    world.stop(Stop::Kill);
    // Once more before the members have been asked for anything but a start.
    for _ in 0..2 {
        live((&mut world, &memory), Stop::Kill, async |volume| {
            for (stripe, byte) in [(0, NEW), (3, NEW), (17, NEW), (1, 0), (40, 0)] {
                holds(&volume, stripe, byte).await;
            }
        });
    }
}

/// Killed in the middle of a start that has a kept map of the life before.
#[test]
fn answered_writes_outlive_kills_in_the_starts_that_follow() {
    for operations in 1..90 {
        let (mut world, _, memory) = world_of(operations);
        live((&mut world, &memory), Stop::Kill, async |volume| write(&volume, 5).await);
        world.stop_at(world.operations() + operations, Stop::Kill);
        let (opener, own) = (world.opener(), memory.clone());
        world.run(async move |handle| {
            let engine = own.engine(opener, &handle);
            engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
        });
        world.call_off();
        world.stop(Stop::Kill);
        live((&mut world, &memory), Stop::Kill, async |volume| {
            holds(&volume, 5, NEW).await;
            holds(&volume, 6, 0).await;
        });
    }
}

/// Writes one block of stripe after stripe, and counts those that were answered.
async fn write_firsts(volume: ArrayVolume, answered: Arc<AtomicU64>) {
    for stripe in 0..60 {
        write(&volume, stripe).await;
        answered.store(stripe + 1, Ordering::Relaxed);
    }
    loop {
        volume.handle().sleep(Duration::from_secs(1)).await;
    }
}

/// First writes until the end comes; how many were answered.
fn cut_while_writing((world, memory): (&mut SimWorld, &TestMemory), stop: Stop, seed: u64) -> u64 {
    let answered = Arc::new(AtomicU64::new(0));
    let (opener, own, count) = (world.opener(), memory.clone(), Arc::clone(&answered));
    let switch = world.switch();
    let ended: Ended<()> = world.run(async move |handle| {
        let engine = own.engine(opener, &handle);
        engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
        switch.stop_after(1 + Random::stream(seed, 2).below(420), stop);
        let begun = engine.with_volume(0, "tank", async move |volume| {
            volume.handle().spawn(write_firsts(volume.clone(), count));
        });
        begun.await.expect("runs");
        loop {
            handle.sleep(Duration::from_secs(1)).await;
        }
    });
    assert_eq!(ended, Ended::Stopped(stop));
    answered.load(Ordering::Relaxed)
}

#[test]
fn a_kill_loses_no_answered_write_and_a_power_cut_shows_nothing_old() {
    let (mut answered_before_kills, mut lost_in_cuts) = (0, 0);
    for seed in 0..120 {
        let (mut world, disks, memory) = world_of(seed);
        let stop = if seed % 2 == 0 { Stop::Kill } else { Stop::PowerCut };
        let answered = cut_while_writing((&mut world, &memory), stop, seed);
        assert!(superblock(&disks[0]).kept_map_boot.is_some());
        assert_eq!(memory.memory.names().is_empty(), stop == Stop::PowerCut);
        let zeros = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&zeros);
        live((&mut world, &memory), Stop::Kill, async move |volume| {
            for stripe in 0..60 {
                let extent = Extent::new(stripe * STRIPE_BYTES, STRIPE_BYTES);
                let bytes = read(&volume, extent).await.expect("readable");
                assert!(!bytes.contains(&OLD), "seed {seed}: stripe {stripe} shows old data");
                let (first, rest) = bytes.split_at(4096);
                let is_new = first == [NEW; 4096];
                assert!(is_new || first == [0; 4096], "seed {seed}: stripe {stripe}");
                assert!(rest.iter().all(|byte| *byte == 0), "seed {seed}: stripe {stripe}");
                let is_lost = stripe < answered && !is_new;
                assert!(!is_lost || stop == Stop::PowerCut, "seed {seed}: stripe {stripe}");
                count.fetch_add(u64::from(is_lost), Ordering::Relaxed);
            }
        });
        match stop {
            Stop::Kill => answered_before_kills += answered,
            _ => lost_in_cuts += zeros.load(Ordering::Relaxed),
        }
    }
    assert!(answered_before_kills > 500 && lost_in_cuts > 100, "the test looks at something");
}

/// What may have become of a map: by its name, from what it held and what the life before it held.
type Spoil = fn(&TestMemory, &str, &[u8], &[u8]);

#[test]
fn a_start_without_its_kept_map_is_refused_until_the_loss_is_accepted() {
    let spoils: [(&str, Spoil); 6] = [
        ("missing", |memory, name, _, _| memory.memory.forget(name)),
        ("cut short", |memory, name, own, _| memory.set(name, &own[..own.len() - 1])),
        ("torn", |memory, name, own, older| {
            // The header of one version, the bits of another.
            memory.set(name, &[&own[..32], &older[32..]].concat());
        }),
        ("blank", |memory, name, own, _| memory.set(name, &vec![0; own.len()])),
        ("of an earlier start", |memory, name, _, older| memory.set(name, older)),
        ("of another array", |memory, name, _, _| {
            let (_, _, others) = {
                let (mut world, disks, others) = world_of(77);
                live((&mut world, &others), Stop::Kill, async |volume| write(&volume, 5).await);
                (world, disks, others)
            };
            memory.set(name, &others.bytes_of(&others.only_name()));
        }),
    ];
    for (what, spoil) in spoils {
        let (mut world, disks, memory) = world_of(3);
        live((&mut world, &memory), Stop::Kill, async |volume| {
            write(&volume, 1).await;
            submit(&volume, Command::Flush, Extent::default()).await;
        });
        let older = memory.bytes_of(&memory.only_name());
        live((&mut world, &memory), Stop::Kill, async |volume| write(&volume, 2).await);
        let name = memory.only_name();
        let own = memory.bytes_of(&name);
        assert_ne!(own, older);
        spoil(&memory, &name, &own, &older);
        let refusal = refused((&mut world, Some(&memory)), &disks);
        assert_eq!(refusal.code, "array.kept_map_missing", "{what}");
        assert!(refusal.next.contains("--accept-lost-map"), "{what}: {refusal}");
        let (opener, memory) = (world.opener(), memory.clone());
        world
            .run(async move |handle| {
                let engine = memory.engine(opener, &handle);
                let mut spec = assemble_spec(MEMBERS);
                spec.request.accept_lost_map = true;
                engine.assemble(spec).await.expect("assembled");
                let events = engine.events().since(0);
                assert!(events.iter().any(|event| event.name == event_names::ARRAY_MAP_LOST));
                let looked = engine.with_volume(0, "tank", async |volume| {
                    // As after a power cut: what was flushed is there, the other is zeros.
                    for (stripe, byte) in [(1, NEW), (2, 0), (3, 0), (5, 0)] {
                        holds(&volume, stripe, byte).await;
                    }
                    write(&volume, 2).await;
                });
                looked.await.expect("runs");
                engine.stop("tank").await.expect("stopped");
            })
            .done();
        let forced = superblock(&disks[0]).forced;
        assert_eq!(forced.flags & ForcedActions::LOST_MAP, ForcedActions::LOST_MAP, "{what}");
    }
}

#[test]
fn an_engine_without_such_memory_refuses_what_needs_it() {
    let (mut world, disks, memory) = world_of(4);
    live((&mut world, &memory), Stop::Kill, async |volume| write(&volume, 2).await);
    assert_eq!(refused((&mut world, None), &disks).code, "array.kept_map_missing");
    live((&mut world, &memory), Stop::Kill, async |volume| holds(&volume, 2, NEW).await);
}

#[test]
fn members_say_so_while_the_array_runs_and_a_clean_stop_takes_the_map_away() {
    let (mut world, disks, memory) = world_of(5);
    let (opener, own, disk) = (world.opener(), memory.clone(), disks[0].clone());
    world
        .run(async move |handle| {
            let engine = own.engine(opener, &handle);
            engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
            let running = superblock(&disk);
            // Programs that do not know this bit keep away.
            assert_eq!(running.features.incompatible & 16, 16);
            let named = format!("{}.{}", running.array_uuid, running.incarnation);
            assert_eq!(own.only_name(), named);
            let written = engine.with_volume(0, "tank", async |volume| write(&volume, 7).await);
            written.await.expect("runs");
            engine.stop("tank").await.expect("stopped");
        })
        .done();
    let stopped = superblock(&disks[0]);
    assert_eq!((stopped.features.incompatible & 16, stopped.kept_map_boot), (0, None));
    assert!(memory.memory.names().is_empty());
    // Nobody needs such memory now.
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
            let looked = engine.with_volume(0, "tank", async |volume| holds(&volume, 7, NEW).await);
            looked.await.expect("runs");
        })
        .done();
}

/// Whole stripes are written and not flushed, the process is killed, and these drives lose their
/// power before the next start.
fn killed_and_unplugged(seed: u64, cold: &[usize]) -> (SimWorld, Vec<SimDisk>, TestMemory) {
    let (mut world, disks, memory) = world_of(seed);
    live((&mut world, &memory), Stop::Kill, async |volume: ArrayVolume| {
        for stripe in 0..8 {
            let mut buffer = volume.buffer(usize::try_from(STRIPE_BYTES).expect("small")).await;
            buffer.fill(NEW);
            let extent = Extent::new(stripe * STRIPE_BYTES, STRIPE_BYTES);
            submit(&volume, Command::Write(buffer.freeze()), extent).await;
        }
    });
    cold.iter().for_each(|at| disks[*at].lose_cache());
    (world, disks, memory)
}

/// What eight stripes hold.
async fn first_stripes(volume: &ArrayVolume) -> Vec<u8> {
    read(volume, Extent::new(0, 8 * STRIPE_BYTES)).await.expect("readable")
}

/// How many members were taken although they were away.
fn taken(engine: &Engine) -> usize {
    let told = engine.events().since(0);
    told.iter().filter(|it| it.name == event_names::MEMBER_TAKEN_OLDER).count()
}

/// The drive had answered writes, lost its power after the process was killed, and looked as before
/// at the start: what lay there earlier was read as answered blocks (seed 914200859 of the
/// universes). An array with a log can do without it.
#[test]
pub fn a_drive_that_lost_its_power_while_nobody_ran_the_array_takes_no_part() {
    for seed in 0..8 {
        let (mut world, disks, memory) = killed_and_unplugged(540 + seed, &[1]);
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = memory.engine(opener, &handle);
                engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
                let all = async |volume: ArrayVolume| first_stripes(&volume).await;
                let found = engine.with_volume(0, "tank", all).await.expect("runs");
                if policy() != ConsistencyPolicy::Log {
                    assert!(!found.contains(&OLD), "seed {seed}: what lay there before");
                    return assert_eq!(taken(&engine), 1, "seed {seed}");
                }
                assert!(found.iter().all(|byte| *byte == NEW), "seed {seed}: wrong blocks");
                let array = engine.status().await.expect("runs").arrays.remove(0);
                assert_eq!(array.members[1].state, SlotState::Out, "seed {seed}");
                engine.re_add("tank", "disk1").await.expect("it is the same drive");
                until_all_in_sync(&engine, &handle).await;
                disks[2].vanish();
                disks[4].vanish();
                let all = async |volume: ArrayVolume| first_stripes(&volume).await;
                let found = engine.with_volume(0, "tank", all).await.expect("runs");
                assert!(found.iter().all(|byte| *byte == NEW), "seed {seed}: not made to agree");
            })
            .done();
    }
}

/// All was flushed by the stop.
#[test]
fn a_drive_that_was_away_after_a_clean_stop_takes_part() {
    let (mut world, disks, memory) = world_of(550);
    let (opener, first) = (world.opener(), memory.clone());
    world
        .run(async move |handle| {
            let engine = first.engine(opener, &handle);
            engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
            let written = engine.with_volume(0, "tank", async |volume| write(&volume, 1).await);
            written.await.expect("runs");
            engine.stop("tank").await.expect("stopped");
        })
        .done();
    assert_eq!(memory.memory.names(), Vec::<String>::new(), "nothing is held against anybody");
    disks.iter().for_each(SimDisk::lose_cache);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = memory.engine(opener, &handle);
            engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
            let array = engine.status().await.expect("runs").arrays.remove(0);
            assert!(array.members.iter().all(|it| it.state == SlotState::InSync));
            assert_eq!(taken(&engine), 0);
        })
        .done();
}

/// They are missing, the array is read-only, and a client flushes it. Then they are back. What was
/// never flushed on them is not called written: what lay there earlier was read (seed 20261156204
/// of the universes with `--class everything --policy bitmap`).
#[test]
fn a_read_only_array_does_not_store_what_its_kept_map_says() {
    for seed in 0..8 {
        let (mut world, disks, memory) = killed_and_unplugged(570 + seed, &[1, 2]);
        let (opener, without) = (world.opener(), memory.clone());
        let before: Vec<u64> = disks.iter().map(SimDisk::changes).collect();
        world
            .run(async move |handle| {
                let engine = without.engine(opener, &handle);
                let mut spec = assemble_spec(MEMBERS);
                spec.devices.retain(|device| !["disk1", "disk2"].contains(&device.as_str()));
                spec.is_read_only = true;
                engine.assemble(spec).await.expect("assembled");
                let flush = async |volume: ArrayVolume| {
                    let extent = Extent::new(0, 0);
                    volume.submit(Request { command: Command::Flush, extent, fua: false }).await
                };
                let flushed = engine.with_volume(0, "tank", flush).await.expect("runs");
                // A log has on media what the map does not say.
                let is_logged = policy() == ConsistencyPolicy::Log;
                assert!(flushed.is_err() || is_logged, "it promises nothing");
            })
            .done();
        world.stop(Stop::Kill);
        let after: Vec<u64> = disks.iter().map(SimDisk::changes).collect();
        assert_eq!(before, after, "seed {seed}: it was read-only");
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = memory.engine(opener, &handle);
                engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
                let all = async |volume: ArrayVolume| first_stripes(&volume).await;
                let found = engine.with_volume(0, "tank", all).await.expect("runs");
                assert!(!found.contains(&OLD), "seed {seed}: what lay there before");
            })
            .done();
    }
}

/// More of them than the array can do without: it is as after a power cut, and nothing old shows.
#[test]
fn where_too_many_drives_lost_their_power_no_kept_map_counts() {
    for seed in 0..8 {
        let (mut world, _disks, memory) = killed_and_unplugged(560 + seed, &[0, 2, 3]);
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = memory.engine(opener, &handle);
                engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
                let all = async |volume: ArrayVolume| first_stripes(&volume).await;
                let found = engine.with_volume(0, "tank", all).await.expect("runs");
                assert!(!found.contains(&OLD), "seed {seed}: what lay there before");
                assert_eq!(taken(&engine), 3, "seed {seed}");
            })
            .done();
    }
}

/// Members still call the stripe written, and the kept map does not.
#[test]
fn a_discard_that_no_flush_followed_outlives_a_kill() {
    for command in [Command::Discard, Command::WriteZeroes { may_unmap: true }] {
        let (mut world, _, memory) = world_of(6);
        live((&mut world, &memory), Stop::Kill, async move |volume| {
            for stripe in [2, 3, 4] {
                write(&volume, stripe).await;
            }
            submit(&volume, Command::Flush, Extent::default()).await;
            let stripes = Extent::new(2 * STRIPE_BYTES, 2 * STRIPE_BYTES);
            submit(&volume, command, stripes).await;
            write(&volume, 3).await;
            holds(&volume, 2, 0).await;
        });
        for _ in 0..2 {
            live((&mut world, &memory), Stop::Kill, async |volume| {
                for (stripe, byte) in [(2, 0), (3, NEW), (4, NEW)] {
                    holds(&volume, stripe, byte).await;
                }
            });
        }
        // The start has brought it to the members.
        world.stop(Stop::PowerCut);
        live((&mut world, &memory), Stop::Kill, async |volume| holds(&volume, 2, 0).await);
    }
}

#[test]
fn the_map_reaches_the_members_in_its_own_time() {
    let (mut world, _, memory) = world_of(7);
    live((&mut world, &memory), Stop::PowerCut, async |volume| {
        write(&volume, 9).await;
        volume.handle().sleep(Duration::from_secs(5)).await;
    });
    live((&mut world, &memory), Stop::Kill, async |volume| holds(&volume, 9, NEW).await);
}

#[test]
fn where_a_bit_cannot_be_kept_writes_wait_for_flushes_and_the_map_is_not_expected() {
    let (mut world, disks, memory) = world_of(8);
    let fails = Arc::clone(&memory.fails);
    live((&mut world, &memory), Stop::Kill, async move |volume| {
        write(&volume, 1).await;
        fails.store(true, Ordering::Relaxed);
        write(&volume, 2).await;
        volume.handle().sleep(Duration::from_secs(5)).await;
        write(&volume, 3).await;
    });
    let maps = memory.memory.names().into_iter().filter(|name| !name.ends_with(".drives"));
    assert_eq!(maps.count(), 0);
    assert_eq!(superblock(&disks[0]).kept_map_boot, None);
    memory.fails.store(false, Ordering::Relaxed);
    live((&mut world, &memory), Stop::Kill, async |volume| {
        for stripe in 1..4 {
            holds(&volume, stripe, NEW).await;
        }
    });
}

#[test]
fn a_start_that_gets_no_memory_brings_what_was_kept_to_the_members_first() {
    for operations in 1..90 {
        let (mut world, disks, memory) = world_of(9);
        live((&mut world, &memory), Stop::Kill, async |volume| write(&volume, 2).await);
        memory.is_full.store(true, Ordering::Relaxed);
        world.stop_at(world.operations() + operations, Stop::Kill);
        let (opener, own) = (world.opener(), memory.clone());
        let ended = world.run(async move |handle| {
            let engine = own.engine(opener, &handle);
            engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
        });
        world.call_off();
        world.stop(Stop::Kill);
        if ended == Ended::Done(()) {
            assert_eq!(superblock(&disks[0]).kept_map_boot, None);
        }
        live((&mut world, &memory), Stop::Kill, async |volume| holds(&volume, 2, NEW).await);
    }
}
