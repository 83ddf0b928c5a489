//! First writes of stripes around a power cut, on disks full of foreign old data: a block holds its
//! write or zeros, never the old data.
//!
//! The second test has a device that is being filled meanwhile. It must end with the map of the
//! others. Otherwise written data would read as zeros once the device is alone.
//!
//! What must stay true: a seed decides everything; a failure prints it. The disks' old content is a
//! byte that no client writes.

use crate::world::jobs::until_idle;
use crate::world::{assemble_spec, create_spec, engine, names, read};
use ashlar_engine::{ArrayVolume, Engine};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::examine::{examine_ranges, split_copies};
use ashlar_ondisk::{BitmapKind, JobKind, PageIdentity, SuperblockCopies};
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, Ended, Latency, Random, SimDisk, SimOpener, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx};
use ashlar_volume::{Command, Request, Volume};
use std::time::Duration;

const OLD: u8 = 0xEE;
const NEW: u8 = 0x11;
/// Of the mirror: one block.
const STRIPE_BYTES: u64 = BLOCK_BYTES;
/// Stripes that are written.
const STRIPES: u64 = 64;
const DISK_BYTES: u64 = 22 << 20;

/// Disks that tear writes within a block, also pages of the written map, or not, by the seed.
fn old_disks(world: &mut SimWorld, seed: u64, count: usize) {
    let us = Duration::from_micros;
    // Slow flushes: many first writes end while one runs.
    let latency =
        Latency { read: us(50)..=us(90), write: us(10)..=us(60), flush: us(400)..=us(900) };
    for name in names(count) {
        let options = DiskOptions {
            atomic_write_bytes: if seed.is_multiple_of(2) { 512 } else { BLOCK_BYTES },
            latency: latency.clone(),
            ..DiskOptions::sized(DISK_BYTES)
        };
        let disk = world.add_disk(&name, options);
        disk.poke(1 << 20, &vec![OLD; 20 << 20]);
    }
}

/// The stripe of write `at`: neighbours in time have their bits in different sectors of their page.
fn stripe_of(at: u64) -> u64 {
    at % 2 * 4000 + at * 10
}

/// First writes of one block in each stripe, with pauses, until the power goes.
async fn write_firsts(volume: ArrayVolume, seed: u64) {
    let mut random = Random::stream(seed, 1);
    for stripe in (0..STRIPES).map(stripe_of) {
        let mut buffer = volume.buffer(4096).await;
        buffer.fill(NEW);
        let extent = Extent::new(stripe * STRIPE_BYTES, BLOCK_BYTES);
        let request = Request { command: Command::Write(buffer.freeze()), extent, fua: false };
        volume.submit(request).await.expect("healthy");
        volume.handle().sleep(Duration::from_micros(random.below(100))).await;
    }
}

async fn flush_often(volume: ArrayVolume) {
    for _ in 0..200 {
        let request = Request { command: Command::Flush, extent: Extent::default(), fua: false };
        volume.submit(request).await.expect("healthy");
        volume.handle().sleep(Duration::from_micros(20)).await;
    }
}

/// A world in which the power went while an array of this level was being written.
fn cut_while_writing(seed: u64, level: Level, members: usize) -> SimWorld {
    let mut world = SimWorld::new(seed);
    old_disks(&mut world, seed, members);
    let opener = world.opener();
    let shape = Shape { strip_bytes: 4096, ..crate::world::shape(level, members, None, None) };
    let begin = world.run(async move |handle| {
        let engine = engine(opener, &handle, 1);
        engine.create(create_spec(shape)).await.expect("created");
        engine.assemble(assemble_spec(members)).await.expect("assembled");
        engine
    });
    let engine = begin.done();
    world.stop_at(world.operations() + 30 + Random::stream(seed, 2).below(250), Stop::PowerCut);
    let ended = world.run(async move |handle| {
        let started = engine.with_volume(0, "tank", async move |volume| {
            volume.handle().spawn(flush_often(volume.clone()));
            volume.handle().spawn(write_firsts(volume.clone(), seed));
        });
        started.await.expect("runs");
        handle.sleep(Duration::from_secs(1)).await;
    });
    // Most seeds are cut off in the middle by the count above, the others here, with nothing under
    // way.
    if ended != Ended::Stopped(Stop::PowerCut) {
        world.stop_at(u64::MAX, Stop::PowerCut);
        world.stop(Stop::PowerCut);
    }
    world
}

fn cut_and_look(seed: u64) {
    let mut world = cut_while_writing(seed, Level::Raid1, 2);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = crate::world::engine(opener, &handle, 1);
            engine.assemble(assemble_spec(2)).await.expect("assembled after the cut");
            let looked = engine.with_volume(0, "tank", async move |volume| {
                for block in (0..STRIPES).flat_map(|at| [stripe_of(at), stripe_of(at) + 5]) {
                    let extent = Extent::new(block * BLOCK_BYTES, BLOCK_BYTES);
                    let bytes = read(&volume, extent).await.expect("readable");
                    let is_allowed = [0, NEW].iter().any(|byte| bytes == vec![*byte; 4096]);
                    assert!(
                        is_allowed,
                        "seed {seed}: block {block} begins with {:x?}",
                        &bytes[..4]
                    );
                }
            });
            looked.await.expect("runs");
        })
        .done();
}

#[test]
fn a_first_write_that_a_power_cut_interrupts_never_shows_what_lay_on_the_disks() {
    (0..200).for_each(cut_and_look);
}

/// One block of a stripe, durable when this returns.
async fn write_durably(volume: &ArrayVolume, stripe: u64) {
    let mut buffer = volume.buffer(4096).await;
    buffer.fill(NEW);
    let extent = Extent::new(stripe * STRIPE_BYTES, BLOCK_BYTES);
    let request = Request { command: Command::Write(buffer.freeze()), extent, fua: true };
    volume.submit(request).await.expect("healthy");
}

async fn read_always(volume: ArrayVolume) {
    loop {
        let block = Extent::new(4950 * STRIPE_BYTES, BLOCK_BYTES);
        read(&volume, block).await.expect("readable");
    }
}

/// A mirror on old disks whose slot 0 is being copied to `new0`, the copy paused in the beginning.
async fn start_copy(opener: SimOpener, handle: &Handle) -> Engine {
    let engine = engine(opener, handle, 1);
    let shape = Shape { strip_bytes: 4096, ..crate::world::shape(Level::Raid1, 2, None, None) };
    engine.create(create_spec(shape)).await.expect("created");
    engine.assemble(assemble_spec(2)).await.expect("assembled");
    let filled = engine.with_volume(0, "tank", async |volume| {
        for stripe in 4900..5000 {
            write_durably(&volume, stripe).await;
        }
    });
    filled.await.expect("runs");
    engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replacing");
    engine.pause("tank", JobKind::Replace).await.expect("it has hardly begun");
    engine
}

async fn assemble(opener: SimOpener, handle: &Handle, devices: &[&str]) -> Engine {
    let engine = engine(opener, handle, 1);
    let mut spec = assemble_spec(0);
    spec.devices = devices.iter().map(ToString::to_string).collect();
    engine.assemble(spec).await.expect("assembled");
    engine
}

/// Cut the power while `new0` is being filled, let the copy end, and look at that device alone.
fn cut_while_filling(seed: u64) {
    let mut world = SimWorld::new(seed);
    old_disks(&mut world, seed, 2);
    let us = Duration::from_micros;
    // Its flushes take longest: mostly it is the last to have a page.
    let latency = Latency { flush: us(2000)..=us(3000), ..Latency::default() };
    let options = DiskOptions { latency, ..DiskOptions::sized(DISK_BYTES) };
    world.add_disk("new0", options).poke(1 << 20, &vec![OLD; 20 << 20]);
    let opener = world.opener();
    let engine = world.run(async move |handle| start_copy(opener, &handle).await).done();
    world.stop_at(world.operations() + 10 + Random::stream(seed, 3).below(400), Stop::PowerCut);
    let ended = world.run(async move |handle| {
        let written = engine.with_volume(0, "tank", async move |volume| {
            // Operations at all times, so that the power can go at any time.
            volume.handle().spawn(read_always(volume.clone()));
            for at in 0..STRIPES {
                write_durably(&volume, stripe_of(at)).await;
            }
        });
        written.await.expect("runs");
        handle.sleep(Duration::from_secs(1)).await;
    });
    assert_eq!(ended, Ended::Stopped(Stop::PowerCut), "seed {seed}");
    let opener = world.opener();
    let before = world
        .run(async move |handle| {
            let engine = assemble(opener, &handle, &["disk0", "disk1", "new0"]).await;
            let before = written_stripes(&engine).await;
            engine.unpause("tank", JobKind::Replace).await.expect("it goes on");
            until_idle(&engine, &handle).await;
            engine.stop("tank").await.expect("stopped");
            before
        })
        .done();
    // The program ends, too: it closes devices a moment after the stop.
    world.stop(Stop::Kill);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = assemble(opener, &handle, &["new0"]).await;
            let now = written_stripes(&engine).await;
            assert_eq!(now, before, "seed {seed}: what was read is not there any more");
        })
        .done();
}

/// Which of the stripes hold what was written; they are final once they were read.
async fn written_stripes(engine: &Engine) -> Vec<u64> {
    let looked = engine.with_volume(0, "tank", async |volume| {
        let mut written = Vec::new();
        for stripe in (0..STRIPES).map(stripe_of) {
            let extent = Extent::new(stripe * STRIPE_BYTES, BLOCK_BYTES);
            let bytes = read(&volume, extent).await.expect("readable");
            written.extend((bytes == [NEW; 4096]).then_some(stripe));
        }
        written
    });
    looked.await.expect("runs")
}

#[test]
fn a_device_that_was_being_filled_when_the_power_went_has_the_whole_map_once_it_is_alone() {
    (0..60).for_each(cut_while_filling);
}

/// The newest page 0 of the written map on each disk.
fn map_pages(world: &SimWorld, members: usize) -> Vec<Vec<u64>> {
    let disks = names(members).into_iter().map(|name| world.disk(&name).expect("added"));
    let page = |disk: SimDisk| {
        let [head, tail] = examine_ranges(DISK_BYTES).expect("large enough");
        let (head, tail) = (disk.peek(head), disk.peek(tail));
        let choice = SuperblockCopies::choose(&split_copies(Some(&head), Some(&tail)));
        let superblock = choice.superblock().expect("a member").clone();
        let owner_tag = superblock.page_tag(superblock.member_uuid);
        let identity = PageIdentity { kind: BitmapKind::WrittenMap, owner_tag, page: 0 };
        let places = (0..superblock.written_map_places()).filter_map(|place| {
            let offset = superblock.areas.written_map.offset + place * BLOCK_BYTES;
            identity.decode(&disk.peek(Extent::new(offset, BLOCK_BYTES))).ok()
        });
        let newest = places.max_by_key(|page| page.sequence).expect("one place is whole");
        newest.bits.to_vec()
    };
    disks.map(page).collect()
}

/// A crash left pages of the map different on the members, and no start made them equal. Under the
/// policy `log` a start read the map from some members only and did not see it. When the member
/// with the newest pages was lost, flushed stripes read as zeros.
#[test]
fn after_a_start_all_members_say_the_same_of_what_is_written() {
    for seed in 0..40 {
        let members = 5;
        let mut world = cut_while_writing(seed, Level::Raid5, members);
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = crate::world::engine(opener, &handle, 1);
                engine.assemble(assemble_spec(members)).await.expect("assembled after the cut");
                engine.stop("tank").await.expect("stopped");
            })
            .done();
        let pages = map_pages(&world, members);
        let differs = pages.iter().position(|page| *page != pages[0]);
        assert_eq!(differs, None, "seed {seed}: a member's map differs from that of disk0");
    }
}
