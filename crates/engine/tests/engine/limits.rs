//! Limits of a volume: what clients begin in a second, over all workers; and who is not held up.

use crate::world::jobs::{raid6, status};
use crate::world::{add_disks, assemble_spec, create_spec, engine, read, submit};
use ashlar_engine::{ArrayTuning, ArrayVolume, Engine, RateLimit, VolumeLimits};
use ashlar_sim::SimWorld;
use ashlar_units::{Extent, to_usize};
use ashlar_volume::{Command, Transfer, Volume};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const BYTES: u64 = 4096;

/// What clients have done, and whether they are to end.
#[derive(Clone, Default)]
struct Done {
    reads: Arc<AtomicU64>,
    writes: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Done {
    fn counts(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.writes.load(Ordering::Relaxed))
    }
}

/// Run `test` on an array of six members and two workers.
fn on_raid6(seed: u64, test: impl AsyncFnOnce(Engine)) {
    let mut world = SimWorld::new(seed);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.create(create_spec(raid6())).await.expect("created");
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            test(engine).await;
        })
        .done();
}

async fn set(engine: &Engine, limits: VolumeLimits) {
    let tuning = engine.tuning("tank").expect("it runs");
    engine.set_tuning("tank", ArrayTuning { limits, ..tuning }).await.expect("set");
}

/// Clients that read and write one request after the other, on this worker.
fn begin_clients(volume: &ArrayVolume, count: u64, done: &Done) {
    for client in 0..count {
        let (volume, done) = (volume.clone(), done.clone());
        volume.clone().handle().spawn(async move {
            let extent = Extent::new(client * BYTES, BYTES);
            while !done.is_over.load(Ordering::Relaxed) {
                if client % 2 == 0 {
                    volume.turn(Transfer::Read, BYTES).await;
                    read(&volume, extent).await.expect("read");
                    done.reads.fetch_add(1, Ordering::Relaxed);
                } else {
                    volume.turn(Transfer::Write, BYTES).await;
                    let buffer = volume.buffer(to_usize(BYTES)).await;
                    submit(&volume, Command::Write(buffer.freeze()), extent, false).await;
                    done.writes.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
}

/// What clients on both workers did in a time.
async fn in_seconds(seconds: u64, engine: &Engine, done: &Done) -> (u64, u64) {
    let looks = done.clone();
    let run = engine.with_volume(0, "tank", async move |volume| {
        // The buckets and the lines are as the limit has them.
        volume.handle().sleep(Duration::from_secs(1)).await;
        let before = looks.counts();
        volume.handle().sleep(Duration::from_secs(seconds)).await;
        let after = looks.counts();
        (after.0 - before.0, after.1 - before.1)
    });
    run.await.expect("runs")
}

#[test]
fn clients_of_all_workers_share_the_limit_and_a_changed_one_holds_at_once() {
    on_raid6(71, async move |engine| {
        let done = Done::default();
        let limits = VolumeLimits {
            reads: RateLimit { requests: 500, bytes: 0 },
            writes: RateLimit { bytes: 100 * BYTES, requests: 0 },
        };
        set(&engine, limits).await;
        for worker in 0..2 {
            let done = done.clone();
            let run = engine
                .with_volume(worker, "tank", async move |volume| begin_clients(&volume, 8, &done));
            run.await.expect("runs");
        }
        let (reads, writes) = in_seconds(10, &engine, &done).await;
        assert!((4_990..=5_010).contains(&reads), "{reads} reads of 500 a second");
        assert!((995..=1_005).contains(&writes), "{writes} writes of 100 a second");
        let counts = status(&engine).await.counts;
        assert!(counts.limit_waits > 5_000 && counts.limit_wait_us > 10_000_000, "{counts:?}");

        let writes = RateLimit { requests: 300, ..RateLimit::default() };
        set(&engine, VolumeLimits { writes, ..VolumeLimits::default() }).await;
        let (reads, writes) = in_seconds(10, &engine, &done).await;
        assert!(reads > 20_000, "{reads} reads without a limit");
        assert!((2_990..=3_010).contains(&writes), "{writes} writes of 300 a second");
        set(&engine, VolumeLimits::default()).await;
        in_seconds(0, &engine, &done).await;
        let waits = status(&engine).await.counts.limit_waits;
        in_seconds(1, &engine, &done).await;
        assert_eq!(status(&engine).await.counts.limit_waits, waits, "nobody waits");
        done.is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn who_waits_holds_no_buffer_and_does_not_keep_the_array_from_stopping() {
    on_raid6(72, async move |engine| {
        let writes = RateLimit { bytes: 1, requests: 1 };
        set(&engine, VolumeLimits { writes, ..VolumeLimits::default() }).await;
        let waited = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&waited);
        let run = engine.with_volume(0, "tank", async move |volume| {
            let handle = volume.handle();
            for _ in 0..20_000 {
                let (volume, count) = (volume.clone(), Arc::clone(&count));
                handle.spawn(async move {
                    volume.turn(Transfer::Write, 1 << 20).await;
                    count.fetch_add(1, Ordering::Relaxed);
                });
            }
            handle.sleep(Duration::from_secs(5)).await;
            // All of them would need 20 GB.
            volume.turn(Transfer::Read, 1 << 20).await;
            drop(volume.buffer(1 << 20).await);
        });
        run.await.expect("runs");
        assert_eq!(waited.load(Ordering::Relaxed), 1, "the first of them");
        engine.stop("tank").await.expect("stopped");
    });
}
