//! Clients that connect again and again while an array starts, is looked at by a dry run, or stops,
//! as QEMU and NVMe hosts do.
//!
//! What must stay true: nobody gets to an array before its start is recorded and its log applied.
//! What the first client reads is what was answered. A dry run changes no member, whoever comes.
//! Who holds the volume of an array that has stopped keeps no member of it.

use crate::world::ledger::{CLIENTS, Ledger, answered_counts, audit, blank, client, look};
use crate::world::{add_disks, assemble_spec, create_spec, engine, load, read, shape, submit};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::{ArrayVolume, CreateSpec, Engine};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_sim::{Latency, Random, SimDisk, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx};
use ashlar_volume::{Command, Request, Volume, VolumeErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Time between two attempts of a client.
const AGAIN: Duration = Duration::from_micros(50);

/// A client on each worker that asks for the volume from now on, and does this with it as soon as
/// it is found. How many have found it, and how many are through.
fn come_early<F: Future<Output = ()> + 'static>(
    engine: &Engine,
    act: impl Fn(ArrayVolume) -> F + Clone + Send + 'static,
) -> Arc<(AtomicUsize, AtomicUsize)> {
    let counts = Arc::<(AtomicUsize, AtomicUsize)>::default();
    for worker in 0..engine.worker_count() {
        let (act, counts) = (act.clone(), Arc::clone(&counts));
        engine.run_on(worker, move |context| {
            let context = context.again();
            context.handle().spawn(async move {
                let volume = loop {
                    if let Some(volume) = context.volume("tank") {
                        break volume;
                    }
                    context.handle().sleep(AGAIN).await;
                };
                counts.0.fetch_add(1, Ordering::Relaxed);
                act(volume).await;
                counts.1.fetch_add(1, Ordering::Relaxed);
            });
        });
    }
    counts
}

fn shapes() -> Vec<Shape> {
    vec![
        shape(Level::Raid6, 6, None, None),
        shape(Level::Raid10, 4, None, None),
        shape(Level::Raid60, 10, Some(5), None),
        crate::world::declustered(Level::Raid6, 8, 5, 1),
    ]
}

fn spec(shape: &Shape) -> CreateSpec {
    CreateSpec { policy: ConsistencyPolicy::Log, ..create_spec(shape.clone()) }
}

/// Create, perhaps lose a member, and write until the process is killed at a seeded moment.
fn write_until_killed(world: &mut SimWorld, shape: &Shape, seed: u64, ledger: &Ledger) {
    let engine = load::start(world, spec(shape));
    if seed % 2 == 1 {
        let own = engine.clone();
        let fail = async move |_| own.fail("tank", MemberIdx(1)).await.expect("one may go");
        world.run(fail).done();
    }
    let operations = 50 + Random::stream(seed, 99).below(2000);
    let ledger = Arc::clone(ledger);
    load::run_until(world, engine, (Stop::Kill, operations), CLIENTS, move |volume, number| {
        client(volume, Arc::clone(&ledger), (seed, number), 24)
    });
}

/// Clients got in before the log was applied: they read blocks older than what was answered, and
/// what had been decoded from half an update.
#[test]
fn who_waits_for_a_start_after_a_kill_reads_what_was_answered() {
    for seed in 0..32 {
        let shapes = shapes();
        let shape = &shapes[usize::try_from(seed).expect("small") % shapes.len()];
        let mut world = SimWorld::new(seed);
        add_disks(&mut world, shape.members);
        let ledger = blank();
        write_until_killed(&mut world, shape, seed, &ledger);
        answered_counts(&ledger);
        let (opener, members) = (world.opener(), shape.members);
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 2);
                let own = Arc::clone(&ledger);
                let counts = come_early(&engine, move |volume| {
                    let ledger = Arc::clone(&own);
                    async move {
                        submit(&volume, Command::Flush, Extent::default(), false).await;
                        audit(&volume, &ledger, seed).await;
                    }
                });
                engine.assemble(assemble_spec(members)).await.expect("assembled after the kill");
                while counts.1.load(Ordering::Relaxed) < 2 {
                    handle.sleep(AGAIN).await;
                }
                look(&engine, &ledger, seed).await;
                engine.stop("tank").await.expect("stopped");
            })
            .done();
    }
}

fn changes(disks: &[SimDisk]) -> Vec<u64> {
    disks.iter().map(SimDisk::changes).collect()
}

/// Writes and flushes of a client went to the members of an array that was only looked at.
#[test]
fn a_dry_run_shows_its_volume_to_nobody() {
    for (seed, shape) in (40..).zip(shapes()) {
        let mut world = SimWorld::new(seed);
        let disks = add_disks(&mut world, shape.members);
        write_until_killed(&mut world, &shape, seed, &blank());
        let before = changes(&disks);
        let (opener, members) = (world.opener(), shape.members);
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 2);
                let counts = come_early(&engine, async |volume: ArrayVolume| {
                    let block = Extent::new(0, BLOCK_BYTES);
                    let buffer = volume.buffer(4096).await;
                    submit(&volume, Command::Write(buffer.freeze()), block, true).await;
                });
                for _ in 0..3 {
                    engine.would_assemble(assemble_spec(members)).await.expect("it would start");
                    assert!(engine.status().await.expect("runs").arrays.is_empty());
                }
                handle.sleep(Duration::from_secs(1)).await;
                assert_eq!(counts.0.load(Ordering::Relaxed), 0, "seed {seed}: somebody got in");
            })
            .done();
        assert_eq!(changes(&disks), before, "seed {seed}: a dry run changed a member");
    }
}

/// The members take nothing: the start fails when it is to be recorded.
#[test]
fn a_start_that_cannot_be_recorded_shows_its_volume_to_nobody() {
    let shape = shape(Level::Raid6, 6, None, None);
    let mut world = SimWorld::new(50);
    let disks = add_disks(&mut world, shape.members);
    let ledger = blank();
    write_until_killed(&mut world, &shape, 50, &ledger);
    answered_counts(&ledger);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let own = Arc::clone(&ledger);
            let counts = come_early(&engine, move |volume| {
                let ledger = Arc::clone(&own);
                async move { audit(&volume, &ledger, 50).await }
            });
            disks.iter().for_each(|it| it.fail(CommandKind::Write, FaultKind::Media, None));
            engine.assemble(assemble_spec(6)).await.expect_err("nothing can be recorded");
            assert_eq!(counts.0.load(Ordering::Relaxed), 0, "somebody got in");
            disks.iter().for_each(SimDisk::stop_failing);
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            while counts.1.load(Ordering::Relaxed) < 2 {
                handle.sleep(AGAIN).await;
            }
            look(&engine, &ledger, 50).await;
        })
        .done();
}

async fn names(engine: &Engine) -> Vec<String> {
    let found = Arc::new(std::sync::Mutex::new(Vec::new()));
    let own = Arc::clone(&found);
    engine.run_on(1, move |context| own.lock().expect("one thread").extend(context.names()));
    engine.status().await.expect("it came after that");
    let found = found.lock().expect("one thread");
    found.clone()
}

/// A client that was let in while the array stopped, or had let its volume lie, kept the devices
/// open: the next start met them in use.
#[test]
fn who_holds_the_volume_of_a_stopped_array_keeps_no_device() {
    let shape = shape(Level::Raid6, 6, None, None);
    let mut world = SimWorld::new(60);
    let disks = add_disks(&mut world, shape.members);
    let engine = load::start(&mut world, spec(&shape));
    world
        .run(async move |handle| {
            let block = Extent::new(0, BLOCK_BYTES);
            let write = async move |volume: ArrayVolume| {
                let mut buffer = volume.buffer(4096).await;
                buffer.fill(7);
                submit(&volume, Command::Write(buffer.freeze()), block, false).await;
            };
            engine.with_volume(0, "tank", write).await.expect("runs");
            assert_eq!(names(&engine).await, ["tank"]);
            let answers = Arc::<(AtomicUsize, AtomicUsize)>::default();
            let told = Arc::clone(&answers);
            engine.run_on(0, move |context| {
                let (volume, handle) = (context.volume("tank").expect("runs"), context.handle());
                context.handle().spawn(async move {
                    handle.sleep(Duration::from_secs(5)).await;
                    let command = Command::Read(volume.buffer(4096).await);
                    let request = Request { command, extent: block, fua: false };
                    let answer = volume.submit(request).await.map(drop).map_err(|it| it.kind);
                    assert_eq!(answer, Err(VolumeErrorKind::Stopped));
                    told.0.fetch_add(1, Ordering::Relaxed);
                });
            });
            disks.iter().for_each(|disk| disk.set_latency(Latency::constant(AGAIN * 1000)));
            let stopping = engine.clone();
            let told = Arc::clone(&answers);
            handle.spawn(async move {
                stopping.stop("tank").await.expect("stopped");
                told.1.fetch_add(1, Ordering::Relaxed);
            });
            handle.sleep(AGAIN * 100).await;
            assert_eq!(answers.1.load(Ordering::Relaxed), 0, "it takes a while");
            assert!(names(&engine).await.is_empty(), "it is found while it stops");
            while answers.1.load(Ordering::Relaxed) == 0 {
                handle.sleep(AGAIN).await;
            }
            disks.iter().for_each(|disk| disk.set_latency(Latency::default()));
            engine.assemble(assemble_spec(6)).await.expect("no device is in use");
            let look = async move |volume: ArrayVolume| read(&volume, block).await;
            let found = engine.with_volume(1, "tank", look).await.expect("runs");
            assert!(found.expect("healthy").iter().all(|byte| *byte == 7));
            handle.sleep(Duration::from_secs(10)).await;
            assert_eq!(answers.0.load(Ordering::Relaxed), 1);
        })
        .done();
}
