//! Who may start an array that somebody else may be running.
//!
//! What must stay true: the other host is a task of the test that writes heartbeats to the disks as an
//! engine would; what a refused start left on the disks is compared byte by byte.

use crate::world::{add_disks, assemble_spec, create_spec};
use ashlar_engine::{Engine, EngineConfig, Runner, event_names};
use ashlar_layout::Level;
use ashlar_ondisk::{Heartbeat, Text};
use ashlar_ring::Handle;
use ashlar_sim::{SimDisk, SimOpener, SimWorld, Stop};
use ashlar_units::{Extent, Nanos};
use ashlar_volume::{Command, Request, Volume, VolumeErrorKind};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const MEMBERS: usize = 4;
const INTERVAL: Duration = Duration::from_secs(1);
const HEARTBEAT_OFFSET: u64 = 128 << 10;

fn runner(host: &str, boot: u8) -> Runner {
    Runner { host_id: host.to_owned(), boot_id: [boot; 16], interval: INTERVAL }
}

fn engine_of(opener: SimOpener, handle: &Handle, runner: Runner) -> Engine {
    let config = EngineConfig {
        worker_count: 1,
        payload_bytes: 4 << 20,
        wall_clock_s: || 1_700_000_000,
        runner: Some(runner),
        ..EngineConfig::new(Arc::new(opener))
    };
    Engine::on_executor(config, handle).expect("memory for pools")
}

/// A world with an array that host `a`, boot 1, ran until its power went, with some beats written.
fn left_running_by_a() -> (SimWorld, Vec<SimDisk>) {
    let mut world = SimWorld::new(7);
    let disks = add_disks(&mut world, MEMBERS);
    let opener = world.opener();
    let ran = world.run(async move |handle| {
        let engine = engine_of(opener, &handle, runner("a", 1));
        engine
            .create(create_spec(crate::world::shape(Level::Raid6, MEMBERS, None, None)))
            .await
            .expect("created");
        engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
        handle.sleep(INTERVAL * 5).await;
    });
    ran.done();
    world.stop(Stop::PowerCut);
    (world, disks)
}

fn beat_of(disk: &SimDisk) -> Heartbeat {
    let blocks = disk.peek(Extent::new(HEARTBEAT_OFFSET, 8192));
    let (first, second) = blocks.split_at(4096);
    let beats = [first, second].into_iter().filter_map(Heartbeat::decode);
    beats.max_by_key(|beat| beat.sequence).expect("a heartbeat")
}

/// What is on the disks besides the heartbeat blocks.
fn all_but_heartbeats(disks: &[SimDisk]) -> Vec<Vec<u8>> {
    let after = HEARTBEAT_OFFSET + 8192;
    let rest = Extent::new(after, crate::world::DISK_BYTES - after);
    let peek =
        |disk: &SimDisk| [disk.peek(Extent::new(0, HEARTBEAT_OFFSET)), disk.peek(rest)].concat();
    disks.iter().map(peek).collect()
}

/// Go on beating on the disks as their last runner would, or as another one.
async fn beat_on(handle: Handle, disks: Vec<SimDisk>, change: impl Fn(&mut Heartbeat)) {
    loop {
        for disk in &disks {
            let mut beat = beat_of(disk);
            beat.sequence += 1;
            change(&mut beat);
            disk.poke(HEARTBEAT_OFFSET + (beat.sequence % 2) * 4096, &beat.encode());
        }
        handle.sleep(INTERVAL).await;
    }
}

/// Start the array as this runner; how long it took.
fn start_as(world: &mut SimWorld, runner: Runner) -> Result<Duration, String> {
    let opener = world.opener();
    let ran = world.run(async move |handle| {
        let engine = engine_of(opener, &handle, runner);
        let began: Nanos = handle.now();
        let started = engine.assemble(assemble_spec(MEMBERS)).await;
        started.map(|_| handle.now().since(began)).map_err(|refusal| refusal.to_string())
    });
    ran.done()
}

#[test]
fn an_array_whose_heartbeat_goes_on_elsewhere_is_refused_and_nothing_is_written() {
    let (mut world, disks) = left_running_by_a();
    let before = all_but_heartbeats(&disks);
    let (opener, others) = (world.opener(), disks.clone());
    let refused = world.run(async move |handle| {
        handle.spawn(beat_on(handle.clone(), others, |_| ()));
        let engine = engine_of(opener, &handle, runner("b", 2));
        engine.assemble(assemble_spec(MEMBERS)).await.expect_err("a runs it").to_string()
    });
    let line = refused.done();
    assert!(line.contains("running on host 'a'"), "{line}");
    assert!(all_but_heartbeats(&disks) == before, "a refused start wrote to the members");
}

#[test]
fn an_array_whose_heartbeat_stands_still_starts_after_the_watch() {
    let (mut world, _disks) = left_running_by_a();
    let took = start_as(&mut world, runner("b", 2)).expect("a is gone");
    assert!(took >= INTERVAL * 3, "watched {took:?}");
}

#[test]
fn another_boot_of_the_same_host_watches_too_and_the_same_boot_does_not() {
    let (mut world, _disks) = left_running_by_a();
    let took = start_as(&mut world, runner("a", 2)).expect("the boot before is over");
    assert!(took >= INTERVAL * 3, "watched {took:?}");
    let (mut world, _disks) = left_running_by_a();
    let took = start_as(&mut world, runner("a", 1)).expect("the exclusive open is the fence");
    assert!(took < INTERVAL, "waited {took:?} for itself");
}

#[test]
fn a_cleanly_stopped_array_starts_elsewhere_without_a_wait() {
    let (mut world, _disks) = left_running_by_a();
    let opener = world.opener();
    let ran = world.run(async move |handle| {
        let engine = engine_of(opener, &handle, runner("a", 1));
        engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
        handle.sleep(INTERVAL * 3).await;
        engine.stop("tank").await.expect("stopped");
    });
    ran.done();
    let took = start_as(&mut world, runner("b", 2)).expect("stopped cleanly");
    assert!(took < INTERVAL, "waited {took:?}");
}

#[test]
fn a_running_array_that_meets_another_runner_writes_nothing_more() {
    let (mut world, disks) = left_running_by_a();
    let opener = world.opener();
    let ran = world.run(async move |handle| {
        let engine = engine_of(opener, &handle, runner("a", 1));
        engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
        handle.sleep(INTERVAL * 2).await;
        let takes_over = |beat: &mut Heartbeat| {
            beat.incarnation = Uuid::from_u128(42);
            beat.host_id = Text::cut("b");
        };
        handle.spawn(beat_on(handle.clone(), disks.clone(), takes_over));
        handle.sleep(INTERVAL * 3).await;
        let events = engine.events().since(0);
        assert!(events.iter().any(|event| event.name == event_names::ARRAY_TAKEN_OVER));
        let before = all_but_heartbeats(&disks);
        let written = engine.with_volume(0, "tank", async |volume| {
            let bytes = volume.buffer(4096).await.freeze();
            let extent = Extent::new(0, 4096);
            let request = Request { command: Command::Write(bytes), extent, fua: true };
            volume.submit(request).await.map(drop)
        });
        let kind = written.await.expect("runs").expect_err("not ours any more").kind;
        assert_eq!(kind, VolumeErrorKind::Stopped);
        engine.stop("tank").await.expect("stops without a word to the members");
        assert!(all_but_heartbeats(&disks) == before, "it went on writing");
    });
    ran.done();
}
