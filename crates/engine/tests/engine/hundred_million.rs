//! Requests about all of a volume with a hundred million stripes: its worker does other work in
//! between.
//!
//! What must stay true: turns are counted, never time.

use crate::world::{create_spec, engine, shape, submit};
use ashlar_engine::{ArrayVolume, AssembleSpec};
use ashlar_layout::Level;
use ashlar_ondisk::format::BITS_PER_PAGE;
use ashlar_sim::{DiskOptions, SimWorld};
use ashlar_units::{BLOCK_BYTES, Extent, to_usize};
use ashlar_volume::{AllocationRun, Command, Volume};
use std::future::poll_fn;
use std::pin::pin;

const STRIPES: u64 = 100_000_000;
const STRIP_BYTES: u64 = 4096;
/// Of two data strips.
const STRIPE_BYTES: u64 = 2 * STRIP_BYTES;
/// Of so many pages of the written map one is in memory: one stripe of it was written.
const PAGES_APART: u64 = 8;
/// The pages in memory have more words than this many turns look at.
const TURNS_MIN: usize = 40;

/// What came of `work`, and in how many turns.
async fn turns<T>(work: impl Future<Output = T>) -> (usize, T) {
    let (mut work, mut turns) = (pin!(work), 0);
    let done = poll_fn(|context| {
        turns += 1;
        work.as_mut().poll(context)
    });
    let done = done.await;
    (turns, done)
}

/// The first stripe of each page in memory is written.
async fn write_some(volume: &ArrayVolume) -> u64 {
    let mut written = 0;
    for stripe in (0..STRIPES).step_by(to_usize(PAGES_APART * BITS_PER_PAGE)) {
        let mut buffer = volume.buffer(4096).await;
        buffer.fill(1);
        let block = Extent::new(stripe * STRIPE_BYTES, BLOCK_BYTES);
        submit(volume, Command::Write(buffer.freeze()), block, false).await;
        written += 1;
    }
    written
}

async fn runs(volume: &ArrayVolume, all: Extent) -> Vec<AllocationRun> {
    volume.allocation(all, usize::MAX).await.expect("it runs")
}

/// One request stalled its worker for seconds, and the heartbeat of all its arrays with it.
#[test]
fn a_request_about_all_of_them_lets_others_have_their_turns() {
    let mut world = SimWorld::new(70);
    let bytes = STRIPES * STRIP_BYTES + (1 << 30);
    let names: Vec<String> = (0..3).map(|at| format!("disk{at}")).collect();
    names.iter().for_each(|name| drop(world.add_disk(name, DiskOptions::sized(bytes))));
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            let shape = ashlar_layout::Shape {
                strip_bytes: STRIP_BYTES,
                ..shape(Level::Raid5, 3, None, None)
            };
            engine.create(create_spec(shape)).await.expect("created");
            let spec = AssembleSpec { devices: names, ..AssembleSpec::default() };
            engine.assemble(spec).await.expect("assembled");
            let asked = engine.with_volume(0, "tank", async |volume: ArrayVolume| {
                let all = Extent::new(0, volume.facts().size_bytes);
                assert!(all.bytes >= STRIPES * STRIPE_BYTES);
                let written = write_some(&volume).await;
                let (looked, found) = turns(runs(&volume, all)).await;
                assert!(looked >= TURNS_MIN, "{looked} turns");
                let of_written = found.iter().filter(|run| run.is_written);
                assert!(of_written.clone().all(|run| run.bytes == STRIPE_BYTES));
                assert_eq!(ashlar_units::to_u64(of_written.count()), written);
                assert_eq!(found.iter().map(|run| run.bytes).sum::<u64>(), all.bytes);
                let one = volume.allocation(all, 1).await.expect("it runs");
                assert_eq!(one, found[..1]);
                for command in [Command::Discard, Command::WriteZeroes { may_unmap: true }] {
                    write_some(&volume).await;
                    let (trimmed, ()) = turns(submit(&volume, command, all, false)).await;
                    assert!(trimmed >= TURNS_MIN, "{trimmed} turns");
                    let (looked, found) = turns(runs(&volume, all)).await;
                    assert!(looked >= TURNS_MIN, "{looked} turns");
                    let nothing = AllocationRun { bytes: all.bytes, is_written: false };
                    assert_eq!(found, [nothing]);
                }
            });
            asked.await.expect("runs");
            engine.stop("tank").await.expect("stopped");
        })
        .done();
}
