//! What clients give back and the members hear of it: when, which of them, and what a crash finds
//! then.
//!
//! What must stay true: clients write one byte, so that blocks which still hold it can be counted
//! on the disks.

use crate::world::jobs::{count, ms, pair, raid6, scrub, started, status, until_idle};
use crate::world::{DISK_BYTES, assemble_spec, engine, names, read, submit};
use ashlar_engine::Engine;
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, SimDisk, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, to_usize};
use ashlar_volume::{Command, Volume};

const OLD: u8 = 0x22;
const WHOLE: Extent = Extent { offset: 0, bytes: 2 << 20 };
const GIVEN_BACK: Extent = Extent { offset: 1 << 20, bytes: 1 << 20 };
/// Data blocks in that.
const BLOCKS: usize = 256;

/// Six disks; those in `without` have nothing to say about what a discarded range reads.
fn disks(world: &mut SimWorld, without: &[usize]) -> Vec<SimDisk> {
    let add = |(at, name): (usize, &String)| {
        let discard_reads_zeros = !without.contains(&at);
        world.add_disk(name, DiskOptions { discard_reads_zeros, ..DiskOptions::sized(DISK_BYTES) })
    };
    names(6).iter().enumerate().map(add).collect()
}

/// Run `test` on an array that clients have written, on disks as above. Gives back world and disks.
fn on_written_array(
    seed: u64,
    without: &[usize],
    test: impl AsyncFnOnce(Engine, Handle, Vec<SimDisk>),
) -> (SimWorld, Vec<SimDisk>) {
    let mut world = SimWorld::new(seed);
    let disks = disks(&mut world, without);
    let (opener, for_test) = (world.opener(), disks.clone());
    world
        .run(async move |handle: Handle| {
            let engine = started(opener, &handle, raid6()).await;
            fill(&engine, WHOLE).await;
            test(engine, handle, for_test).await;
        })
        .done();
    (world, disks)
}

/// Blocks of a disk that hold what clients wrote.
fn held(disk: &SimDisk) -> usize {
    let bytes = disk.peek(Extent::new(0, DISK_BYTES));
    let is_old = |block: &&[u8]| block.iter().all(|byte| *byte == OLD);
    bytes.chunks(to_usize(BLOCK_BYTES)).filter(is_old).count()
}

fn held_by_all(disks: &[SimDisk]) -> usize {
    disks.iter().map(held).sum()
}

async fn ask(engine: &Engine, command: fn() -> Command, extent: Extent) {
    let asked = engine.with_volume(0, "tank", async move |volume| {
        submit(&volume, command(), extent, false).await;
    });
    asked.await.expect("runs");
}

async fn flush(engine: &Engine) {
    ask(engine, || Command::Flush, Extent::default()).await;
}

async fn give_back(engine: &Engine) {
    ask(engine, || Command::Discard, GIVEN_BACK).await;
}

async fn fill(engine: &Engine, extent: Extent) {
    let filled = engine.with_volume(1, "tank", async move |volume| {
        let step = extent.bytes.min(1 << 16);
        for offset in (extent.offset..extent.end()).step_by(to_usize(step)) {
            let mut buffer = volume.buffer(to_usize(step)).await;
            buffer.fill(OLD);
            let extent = Extent::new(offset, step);
            submit(&volume, Command::Write(buffer.freeze()), extent, false).await;
        }
        submit(&volume, Command::Flush, Extent::default(), false).await;
    });
    filled.await.expect("runs");
}

/// Every block is old where it was not given back, and old or zeros where it was; how many are
/// zeros.
async fn zero_blocks(engine: &Engine) -> usize {
    let looked = engine.with_volume(2, "tank", async move |volume| {
        let mut zeros = 0;
        for offset in (WHOLE.offset..WHOLE.end()).step_by(4096) {
            let bytes = read(&volume, Extent::new(offset, 4096)).await.expect("readable");
            let is_zero = offset >= GIVEN_BACK.offset && bytes == [0; 4096];
            assert!(is_zero || bytes == [OLD; 4096], "{offset} begins with {:x?}", &bytes[..4]);
            zeros += usize::from(is_zero);
        }
        zeros
    });
    looked.await.expect("runs")
}

async fn discarded_bytes(engine: &Engine) -> u64 {
    status(engine).await.counts.discarded_bytes
}

#[test]
fn members_hear_of_a_discard_when_a_flush_has_made_it_durable_and_not_before() {
    on_written_array(1, &[], async move |engine, handle, disks| {
        assert_eq!(held_by_all(&disks), 2 * BLOCKS);
        give_back(&engine).await;
        handle.sleep(ms(500)).await;
        assert_eq!((held_by_all(&disks), discarded_bytes(&engine).await), (2 * BLOCKS, 0));
        flush(&engine).await;
        handle.sleep(ms(500)).await;
        assert_eq!(held_by_all(&disks), BLOCKS, "what was not given back is there");
        assert_eq!(discarded_bytes(&engine).await, GIVEN_BACK.bytes / 4 * 6);
        assert_eq!(zero_blocks(&engine).await, BLOCKS);
        // Once is enough.
        flush(&engine).await;
        handle.sleep(ms(500)).await;
        assert_eq!(discarded_bytes(&engine).await, GIVEN_BACK.bytes / 4 * 6);
        // A block of a stripe that was given back: the rest of the stripe is zeros, also to
        // parity.
        fill(&engine, Extent::new(GIVEN_BACK.offset + (5 << 12), 4096)).await;
        assert_eq!(zero_blocks(&engine).await, BLOCKS - 1);
        [1, 4].into_iter().for_each(|at: usize| disks[at].vanish());
        assert_eq!(zero_blocks(&engine).await, BLOCKS - 1);
    });
}

#[test]
fn only_members_that_read_zeros_afterwards_hear_of_a_discard() {
    on_written_array(2, &[0, 5], async move |engine, handle, disks| {
        let before: Vec<usize> = disks.iter().map(held).collect();
        give_back(&engine).await;
        flush(&engine).await;
        handle.sleep(ms(500)).await;
        for (at, (disk, before)) in disks.iter().zip(before).enumerate() {
            assert_eq!(held(disk) == before, [0, 5].contains(&at), "disk {at}");
        }
        assert_eq!(zero_blocks(&engine).await, BLOCKS);
        fill(&engine, GIVEN_BACK).await;
        assert_eq!(zero_blocks(&engine).await, 0);
        assert_eq!(scrub(&engine, &handle, false).await, pair(0, 0));
    });
}

#[test]
fn a_stripe_that_is_written_before_its_discard_is_durable_keeps_its_blocks() {
    on_written_array(3, &[], async move |engine, handle, disks| {
        give_back(&engine).await;
        fill(&engine, GIVEN_BACK).await;
        handle.sleep(ms(500)).await;
        assert_eq!((held_by_all(&disks), discarded_bytes(&engine).await), (2 * BLOCKS, 0));
        assert_eq!(zero_blocks(&engine).await, 0);
    });
}

/// Write again what was given back, `after` a flush of that was begun.
fn write_again(seed: u64, after: u64) {
    on_written_array(seed, &[], async move |engine, handle, _| {
        give_back(&engine).await;
        let written = engine.with_volume(0, "tank", async move |volume| {
            let (handle, other) = (volume.handle(), volume.clone());
            handle.spawn(async move {
                submit(&other, Command::Flush, Extent::default(), false).await;
            });
            handle.sleep(std::time::Duration::from_micros(after)).await;
            for offset in (GIVEN_BACK.offset..GIVEN_BACK.end()).step_by(1 << 16) {
                let mut buffer = volume.buffer(1 << 16).await;
                buffer.fill(OLD);
                let extent = Extent::new(offset, 1 << 16);
                submit(&volume, Command::Write(buffer.freeze()), extent, false).await;
            }
        });
        written.await.expect("runs");
        handle.sleep(ms(500)).await;
        assert_eq!(zero_blocks(&engine).await, 0, "written {after} us after the flush began");
        assert_eq!(scrub(&engine, &handle, false).await, pair(0, 0));
    });
}

#[test]
fn a_stripe_that_is_written_while_discards_are_on_their_way_is_not_discarded() {
    (0..20).for_each(|at| write_again(100 + at, at * 400));
}

/// Cut the power `after` so many microseconds, with the flush of a discard to come, under way or
/// done; then look, also with two members out.
fn cut(seed: u64, after: u64) -> usize {
    let (mut world, disks) = on_written_array(seed, &[2], async move |engine, _, _| {
        give_back(&engine).await;
        let flushing = engine.with_volume(0, "tank", async move |volume| {
            let handle = volume.handle();
            let other = volume.clone();
            handle.spawn(async move {
                other.handle().sleep(ms(1)).await;
                submit(&other, Command::Flush, Extent::default(), false).await;
            });
            handle.sleep(std::time::Duration::from_micros(after)).await;
        });
        flushing.await.expect("runs");
    });
    world.stop(Stop::PowerCut);
    let opener = world.opener();
    world
        .run(async move |handle: Handle| {
            let engine = engine(opener, &handle, 3);
            engine.assemble(assemble_spec(6)).await.expect("assembled after the cut");
            let zeros = zero_blocks(&engine).await;
            until_idle(&engine, &handle).await;
            assert_eq!(scrub(&engine, &handle, false).await, pair(0, 0), "cut after {after} us");
            disks[(seed % 3) as usize].vanish();
            disks[4].vanish();
            assert_eq!(zero_blocks(&engine).await, zeros, "cut after {after} us");
            assert_eq!(count(&engine, ashlar_engine::event_names::BLOCK_LOST), 0);
            zeros
        })
        .done()
}

#[test]
fn a_power_cut_finds_what_was_given_back_as_it_was_or_gone_and_parity_right() {
    let zeros: Vec<usize> = (0..40).map(|at| cut(at, at * 250)).collect();
    assert!(zeros.contains(&0) && zeros.contains(&BLOCKS), "both happen: {zeros:?}");
}
