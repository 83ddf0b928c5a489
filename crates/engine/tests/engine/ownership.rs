//! Starts of arrays that another host or process may be running.
//!
//! What must stay true: the other host is a task of the test that writes heartbeats to the disks as
//! an engine would. The disks are compared byte by byte after a refused start.

use crate::world::{DISK_BYTES, add_disks, assemble_spec, create_spec, names};
use ashlar_engine::{AssembleSpec, Engine, EngineConfig, ProcessState, Runner, event_names};
use ashlar_layout::Level;
use ashlar_ondisk::{Heartbeat, ProcessName, Text};
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, Latency, SimDisk, SimOpener, SimWorld, Stop};
use ashlar_units::{Extent, Nanos};
use ashlar_volume::{Command, Request, Volume, VolumeErrorKind};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const MEMBERS: usize = 4;
const INTERVAL: Duration = Duration::from_secs(1);
const HEARTBEAT_OFFSET: u64 = 128 << 10;

/// A process of that host and boot, and what is known there of all others.
fn process(host: &str, (boot, id): (u8, u32), others: ProcessState) -> Runner {
    Runner {
        host_id: host.to_owned(),
        boot_id: [boot; 16],
        process: Some(ProcessName { id, started: 1000 + u64::from(id), namespaces: 1 }),
        interval: INTERVAL,
        look: Arc::new(move |_| others),
    }
}

fn runner(host: &str, boot: u8) -> Runner {
    process(host, (boot, 1), ProcessState::Unknown)
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
    assert!(line.contains("running in process 1 on host 'a'; stop it there first"), "{line}");
    assert!(all_but_heartbeats(&disks) == before, "a refused start wrote to the members");
}

#[test]
fn an_array_whose_heartbeat_stands_still_starts_after_the_watch() {
    let (mut world, _disks) = left_running_by_a();
    let took = start_as(&mut world, runner("b", 2)).expect("a is gone");
    assert!(took >= INTERVAL * 3, "watched {took:?}");
}

#[test]
fn another_boot_of_the_same_host_watches_too() {
    let (mut world, _disks) = left_running_by_a();
    let took = start_as(&mut world, runner("a", 2)).expect("the boot before is over");
    assert!(took >= INTERVAL * 3, "watched {took:?}");
}

#[test]
fn a_process_that_has_ended_is_not_waited_for_and_one_that_lives_is_refused_at_once() {
    let (mut world, _disks) = left_running_by_a();
    let next = process("a", (1, 2), ProcessState::Ended);
    let took = start_as(&mut world, next).expect("it is gone");
    assert!(took < INTERVAL, "waited {took:?} for nobody");
    world.stop(Stop::Kill);
    let took = start_as(&mut world, process("a", (1, 2), ProcessState::Unknown)).expect("itself");
    assert!(took < INTERVAL, "waited {took:?} for itself");
    world.stop(Stop::Kill);
    // Its heartbeat stands still, as that of a process which was stopped by a signal.
    let line = start_as(&mut world, process("a", (1, 3), ProcessState::Lives)).expect_err("lives");
    assert!(line.contains("is running in process 2 on host 'a'"), "{line}");
    let took = start_as(&mut world, process("a", (1, 3), ProcessState::Unknown)).expect("watched");
    assert!(took >= INTERVAL * 3, "watched {took:?}");
}

/// The world of [`left_running_by_a`], with a second path to each disk.
fn with_second_paths() -> (SimWorld, Vec<SimDisk>) {
    let (mut world, disks) = left_running_by_a();
    disks.iter().for_each(|disk| world.add_path(&disk.name(), &other_path(&disk.name())));
    (world, disks)
}

fn other_path(name: &str) -> String {
    format!("{name}-again")
}

fn by_second_paths() -> AssembleSpec {
    let mut spec = assemble_spec(MEMBERS);
    spec.devices.iter_mut().for_each(|device| *device = other_path(device));
    spec
}

/// A killed process may have writes under way by the path that it used. By another one nobody waits
/// for them.
#[test]
fn a_process_that_has_ended_is_waited_for_where_it_had_the_devices_open_by_other_paths() {
    let (mut world, _disks) = with_second_paths();
    let opener = world.opener();
    let ran = world.run(async move |handle| {
        let engine = engine_of(opener, &handle, process("a", (1, 2), ProcessState::Ended));
        let began: Nanos = handle.now();
        engine.assemble(by_second_paths()).await.expect("it is gone");
        handle.now().since(began)
    });
    let took = ran.done();
    assert!(took >= INTERVAL * 3, "watched {took:?}");
}

/// The second one started within 0.15 s, and replayed its log under the first.
#[test]
fn an_array_that_runs_is_not_started_again_by_second_paths_to_its_devices() {
    let (mut world, disks) = with_second_paths();
    let opener = world.opener();
    let ran = world.run(async move |handle| {
        let first = engine_of(opener.clone(), &handle, process("a", (1, 1), ProcessState::Ended));
        first.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
        for others in [ProcessState::Lives, ProcessState::Unknown] {
            let before = all_but_heartbeats(&disks);
            let second = engine_of(opener.clone(), &handle, process("a", (1, 2), others));
            let refused = second.assemble(by_second_paths()).await.expect_err("it runs");
            let line = refused.to_string();
            assert!(line.contains("is running in process 1 on host 'a'"), "{line}");
            assert!(all_but_heartbeats(&disks) == before, "a refused start wrote to the members");
        }
        handle.sleep(INTERVAL * 3).await;
        let events = first.events().since(0);
        assert!(events.iter().all(|event| event.name != event_names::ARRAY_TAKEN_OVER));
        first.stop("tank").await.expect("stopped");
    });
    ran.done();
}

/// Both see that nobody runs it. Whichever steps follow each other, at most one goes on, and
/// whoever comes later can start it.
#[test]
fn of_two_starts_at_the_same_moment_at_most_one_goes_on() {
    let (mut both_refused, mut one_started) = (0, 0);
    for seed in 0..200 {
        let mut world = SimWorld::new(seed);
        let disks = add_disks(&mut world, MEMBERS);
        disks.iter().for_each(|disk| world.add_path(&disk.name(), &other_path(&disk.name())));
        let opener = world.opener();
        let ran = world.run(async move |handle| {
            let shape = crate::world::shape(Level::Raid6, MEMBERS, None, None);
            let of = |id| process("a", (1, id), ProcessState::Lives);
            let first = engine_of(opener.clone(), &handle, of(1));
            let second = engine_of(opener.clone(), &handle, of(2));
            first.create(create_spec(shape)).await.expect("created");
            let (sender, mut receiver) = ashlar_ring::mailbox::mailbox(&handle);
            let late = Duration::from_micros(seed * 7 % 1500);
            let (engine, timer) = (second.clone(), handle.clone());
            handle.spawn(async move {
                timer.sleep(late).await;
                sender.send(engine.assemble(by_second_paths()).await.is_ok());
            });
            let started =
                [first.assemble(assemble_spec(MEMBERS)).await.is_ok(), receiver.receive().await];
            handle.sleep(INTERVAL * 5).await;
            for engine in [&first, &second] {
                let events = engine.events().since(0);
                let is_over = events.iter().any(|it| it.name == event_names::ARRAY_TAKEN_OVER);
                assert!(!is_over, "seed {seed}: stopped after it had started");
            }
            let count = started.iter().filter(|is_started| **is_started).count();
            assert!(count <= 1, "seed {seed}: both started");
            match started {
                [true, _] => drop(first.stop("tank").await.expect("stopped")),
                [_, true] => drop(second.stop("tank").await.expect("stopped")),
                _ => {}
            }
            second.assemble(by_second_paths()).await.expect("nobody runs it");
            count
        });
        match ran.done() {
            0 => both_refused += 1,
            _ => one_started += 1,
        }
    }
    assert!(one_started > 50, "{one_started} started, {both_refused} times neither");
}

/// Reads took longer than a start waited for them: it took silence for nobody, and both started.
#[test]
fn of_three_starts_on_slow_devices_at_most_one_goes_on() {
    let (mut none_started, mut one_started) = (0, 0);
    let ms = Duration::from_millis;
    let latency = Latency { read: ms(1)..=ms(6000), write: ms(1)..=ms(2000), flush: ms(1)..=ms(5) };
    for seed in 0..60 {
        let mut world = SimWorld::new(seed);
        let options = DiskOptions { latency: latency.clone(), ..DiskOptions::sized(DISK_BYTES) };
        let paths = |number| names(MEMBERS).iter().map(|it| format!("{it}-{number}")).collect();
        for name in names(MEMBERS) {
            world.add_disk(&name, options.clone());
            (0..3).for_each(|number| world.add_path(&name, &format!("{name}-{number}")));
        }
        let opener = world.opener();
        let ran = world.run(async move |handle| {
            let shape = crate::world::shape(Level::Raid6, MEMBERS, None, None);
            let are_apart = seed % 2 == 0;
            let of = |id| match are_apart {
                true => process(&format!("host-{id}"), (id, 1), ProcessState::Unknown),
                false => process("a", (1, u32::from(id)), ProcessState::Lives),
            };
            let engines = [1, 2, 3].map(|id| engine_of(opener.clone(), &handle, of(id)));
            engines[0].create(create_spec(shape)).await.expect("created");
            let mut answers = Vec::new();
            for (number, engine) in engines.iter().enumerate() {
                let (sender, receiver) = ashlar_ring::mailbox::mailbox(&handle);
                let late = seed * 7919 * (1 + u64::try_from(number).expect("few")) % 30_000;
                let late = if seed % 3 == 0 { late / 1000 } else { late };
                let spec = AssembleSpec { devices: paths(number), ..AssembleSpec::default() };
                let (engine, timer) = (engine.clone(), handle.clone());
                handle.spawn(async move {
                    timer.sleep(Duration::from_millis(late)).await;
                    sender.send(engine.assemble(spec).await.is_ok());
                });
                answers.push(receiver);
            }
            let mut count = 0;
            for mut answer in answers {
                count += u32::from(answer.receive().await);
            }
            handle.sleep(INTERVAL * 20).await;
            for engine in &engines {
                let events = engine.events().since(0);
                let is_over = events.iter().any(|it| it.name == event_names::ARRAY_TAKEN_OVER);
                assert!(!is_over, "seed {seed}: stopped after it had started");
            }
            assert!(count <= 1, "seed {seed}: {count} started");
            count
        });
        match ran.done() {
            0 => none_started += 1,
            _ => one_started += 1,
        }
    }
    assert!(one_started > 20, "{one_started} started, {none_started} times none");
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

/// A device that ran elsewhere with the array, and has heartbeats from there, joins anew.
#[test]
fn what_a_device_that_joins_says_of_somebody_else_stops_nobody() {
    let (mut world, disks) = left_running_by_a();
    let opener = world.opener();
    let ran = world.run(async move |handle| {
        let engine = engine_of(opener, &handle, process("a", (1, 2), ProcessState::Ended));
        engine.assemble(assemble_spec(MEMBERS)).await.expect("assembled");
        engine.fail("tank", ashlar_units::MemberIdx(3)).await.expect("put out");
        let mut beat = beat_of(&disks[3]);
        beat.incarnation = Uuid::from_u128(42);
        for _ in 0..2 {
            beat.sequence += 1000;
            disks[3].poke(HEARTBEAT_OFFSET + (beat.sequence % 2) * 4096, &beat.encode());
            beat.sequence += 1;
        }
        let device = assemble_spec(MEMBERS).devices[3].clone();
        engine.replace("tank", ashlar_units::MemberIdx(3), &device, true).await.expect("joins");
        handle.sleep(INTERVAL * 5).await;
        let events = engine.events().since(0);
        assert!(events.iter().all(|event| event.name != event_names::ARRAY_TAKEN_OVER));
        engine.stop("tank").await.expect("stopped");
    });
    ran.done();
}
