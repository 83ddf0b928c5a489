//! Writes that are not whole blocks: the longest there can be, and many at once while clients hold
//! every buffer.

use crate::world::{assemble_spec, create_spec, engine, names, submit};
use ashlar_engine::{ArrayVolume, Engine};
use ashlar_layout::{Level, Shape};
use ashlar_ring::Handle;
use ashlar_ring::local::Signal;
use ashlar_sim::{DiskOptions, SimOpener, SimWorld};
use ashlar_units::{Extent, to_usize};
use ashlar_volume::{Command, Volume};
use std::cell::Cell;
use std::rc::Rc;

const SECTOR: u64 = 512;
const MIB: u64 = 1 << 20;
const MEMBERS: usize = 3;

/// Stripes of 2 MiB, so that the longest request lies in one.
fn wide_stripes() -> Shape {
    let shape = crate::world::shape(Level::Raid5, MEMBERS, None, None);
    Shape { strip_bytes: MIB, ..shape }
}

fn world_for(seed: u64) -> SimWorld {
    let mut world = SimWorld::new(seed);
    for name in names(MEMBERS) {
        world.add_disk(&name, DiskOptions::sized(64 << 20));
    }
    world
}

async fn started(opener: SimOpener, handle: &Handle) -> Engine {
    let engine = engine(opener, handle, 1);
    engine.create(create_spec(wide_stripes())).await.expect("created");
    engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
    engine
}

fn byte_of(at: u64) -> u8 {
    u8::try_from(at % 251).expect("below 251")
}

#[test]
fn the_longest_request_is_stored_also_when_it_begins_off_a_block() {
    let mut world = world_for(900);
    let opener = world.opener();
    let ran = world.run(async move |handle| {
        let engine = started(opener, &handle).await;
        let asked = engine.with_volume(0, "tank", async |volume: ArrayVolume| {
            // Once on a stripe that was never written, once on one that was.
            for start in [SECTOR, 7 * SECTOR] {
                let extent = Extent::new(start, MIB);
                let mut buffer = volume.buffer(to_usize(MIB)).await;
                for (at, byte) in (0..).zip(buffer.iter_mut()) {
                    *byte = byte_of(start + at);
                }
                submit(&volume, Command::Write(buffer.freeze()), extent, false).await;
                let got = crate::world::read(&volume, extent).await.expect("readable");
                let wanted = (start..start + MIB).map(byte_of);
                assert!(wanted.eq(got), "what was written at {start}");
            }
            let before =
                crate::world::read(&volume, Extent::new(0, SECTOR)).await.expect("readable");
            assert!(before.iter().all(|byte| *byte == 0), "what lies before it is as it was");
        });
        asked.await.expect("runs");
        engine.stop("tank").await.expect("stopped");
    });
    ran.done();
}

/// Buffers for requests of this length that the engine of these tests has: see
/// `crate::world::engine`.
const BUFFERS: u64 = 8;

#[test]
fn writes_off_a_block_are_done_though_clients_hold_every_buffer() {
    let mut world = world_for(901);
    let opener = world.opener();
    let ran = world.run(async move |handle| {
        let engine = started(opener, &handle).await;
        let asked = engine.with_volume(0, "tank", async |volume: ArrayVolume| {
            let bytes = 200 << 10;
            let mut writes = Vec::new();
            for at in 0..BUFFERS {
                let mut buffer = volume.buffer(to_usize(bytes)).await;
                buffer.fill(u8::try_from(at + 1).expect("few"));
                writes.push((Extent::new(at * 256 * 1024 + SECTOR, bytes), buffer.freeze()));
            }
            let ended = Signal::new();
            let running = Rc::new(Cell::new(writes.len()));
            for (extent, bytes) in writes {
                let (volume, ended, running) = (volume.clone(), ended.clone(), Rc::clone(&running));
                volume.handle().spawn(async move {
                    submit(&volume, Command::Write(bytes), extent, false).await;
                    running.set(running.get() - 1);
                    ended.notify_all();
                });
            }
            // If one waits for a buffer of the others, nobody is left to wake anybody: the world
            // says so.
            while running.get() > 0 {
                ended.changed().await;
            }
            for at in 0..BUFFERS {
                let got =
                    crate::world::read(&volume, Extent::new(at * 256 * 1024, 256 << 10)).await;
                let wrong = (0..).zip(got.expect("readable")).find(|(place, byte)| {
                    let is_within = (SECTOR..SECTOR + bytes).contains(place);
                    u64::from(*byte) != if is_within { at + 1 } else { 0 }
                });
                assert_eq!(wrong, None, "write {at}");
            }
        });
        asked.await.expect("runs");
        engine.stop("tank").await.expect("stopped");
    });
    ran.done();
}
