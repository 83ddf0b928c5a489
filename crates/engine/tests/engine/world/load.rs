//! An array under clients until its host stops at a seeded moment.
//!
//! What must stay true: the host stops while clients write, never because they are through.

use super::{assemble_spec, engine};
use ashlar_engine::{ArrayVolume, CreateReport, CreateSpec, Engine};
use ashlar_sim::{Ended, SimWorld, Stop};
use ashlar_units::to_usize;
use std::time::Duration;

/// Creates the array on the disks of the world and starts it, on two workers.
pub fn start(world: &mut SimWorld, spec: CreateSpec) -> Engine {
    start_and(world, spec, async |_, _| ()).0
}

/// As [`start`], and what `next` finds or does in it before any load.
pub fn start_and<T>(
    world: &mut SimWorld,
    spec: CreateSpec,
    next: impl AsyncFnOnce(&Engine, CreateReport) -> T,
) -> (Engine, T) {
    let (opener, members) = (world.opener(), spec.devices.len());
    let started = world.run(async move |handle| {
        let engine = engine(opener, &handle, 2);
        let report = engine.create(spec).await.expect("created");
        engine.assemble(assemble_spec(members)).await.expect("assembled");
        let found = next(&engine, report).await;
        (engine, found)
    });
    started.done()
}

/// Runs `count` clients on the volume, in turns on the two workers, and stops the host after
/// `operations` more of the members. `client` is given its volume and its number and must not end.
pub fn run_until<F: Future<Output = ()> + 'static>(
    world: &mut SimWorld,
    engine: Engine,
    (stop, operations): (Stop, u64),
    count: u64,
    client: impl Fn(ArrayVolume, u64) -> F + Clone + Send + 'static,
) {
    world.stop_at(world.operations() + operations, stop);
    let ended: Ended<()> = world.run(async move |handle| {
        for number in 0..count {
            let client = client.clone();
            let begun = engine.with_volume(to_usize(number % 2), "tank", async move |volume| {
                volume.handle().spawn(client(volume.clone(), number));
            });
            begun.await.expect("runs");
        }
        loop {
            handle.sleep(Duration::from_secs(1)).await;
        }
    });
    assert_eq!(ended, Ended::Stopped(stop));
}
