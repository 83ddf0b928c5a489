//! The governor under load, in the world's time: what a rebuild costs clients, and what clients
//! cost a rebuild.
//!
//! The disks here do one command at a time, as drives with one actuator do; commands wait in line.
//! So a rebuild at full depth makes clients wait, and a rebuild that gives way does not. Every
//! figure comes from the seed.

use crate::world::jobs::{filled_to_the_brim, job, ms, raid6};
use crate::world::{DISK_BYTES, add_disks, assemble_spec, create_spec, read, submit};
use ashlar_device::{
    Access, Command, Device, DeviceFacts, OpenRefusal, Opened, Opener, Outcome, Owed, PathOpener,
};
use ashlar_engine::{
    ArrayTuning, ArrayVolume, AssembleSpec, CreateSpec, Engine, EngineConfig, SlotState,
};
use ashlar_ondisk::JobKind;
use ashlar_ring::{Completion, Executor, Handle, Schedule, VirtualReactor};
use ashlar_sim::{DiskOptions, Latency, Random, SimOpener, SimWorld};
use ashlar_units::{Extent, MemberIdx, Nanos};
use ashlar_volume::{Command as Ask, Volume};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time that a disk spends on each command, and then on each byte.
const COMMAND_TIME: Duration = Duration::from_millis(20);
const BYTES_PER_SECOND: u64 = 8 << 20;
/// Clients, each with one request at a time and a pause after it.
const CLIENTS: u64 = 4;
const THINK: Duration = Duration::from_millis(100);
/// Time for the governor to find its pace, and then to be measured.
const SETTLE: Duration = Duration::from_secs(2);
const MEASURE: Duration = Duration::from_secs(6);

/// Disks of the world behind a line each.
struct QueuedOpener {
    disks: SimOpener,
    lines: Mutex<Vec<(String, Arc<AtomicU64>)>>,
}

struct QueuedOpened {
    disk: Arc<dyn Opened>,
    free_at_ns: Arc<AtomicU64>,
}

struct QueuedDevice {
    disk: Rc<dyn Device>,
    free_at_ns: Arc<AtomicU64>,
    handle: Handle,
}

impl Opener for QueuedOpener {
    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn Opened>, OpenRefusal> {
        let disk = self.disks.open(path, access)?;
        let mut lines = self.lines.lock().expect("whole");
        if !lines.iter().any(|(name, _)| name == path) {
            lines.push((path.to_owned(), Arc::default()));
        }
        let line = lines.iter().find(|(name, _)| name == path).expect("just there");
        Ok(Arc::new(QueuedOpened { disk, free_at_ns: Arc::clone(&line.1) }))
    }
}

impl Opened for QueuedOpened {
    fn facts(&self) -> &DeviceFacts {
        self.disk.facts()
    }

    fn attach(&self, handle: &Handle) -> Rc<dyn Device> {
        Rc::new(QueuedDevice {
            disk: self.disk.attach(handle),
            free_at_ns: Arc::clone(&self.free_at_ns),
            handle: handle.clone(),
        })
    }
}

impl Device for QueuedDevice {
    fn facts(&self) -> &DeviceFacts {
        self.disk.facts()
    }

    fn look_at_commands(&self) -> Owed {
        self.disk.look_at_commands()
    }

    fn give_up(&self) {
        self.disk.give_up();
    }

    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>) {
        let transfer = Duration::from_micros(command.bytes() * 1_000_000 / BYTES_PER_SECOND);
        let now = self.handle.now();
        let begins = Nanos(self.free_at_ns.load(Ordering::Relaxed).max(now.0));
        self.free_at_ns.store(begins.after(COMMAND_TIME + transfer).0, Ordering::Relaxed);
        let (disk, handle) = (Rc::clone(&self.disk), self.handle.clone());
        self.handle.spawn(async move {
            handle.sleep(begins.since(now) + COMMAND_TIME + transfer).await;
            disk.submit(offset, command, done);
        });
    }
}

/// Clients that ask until told to stop, and how long they waited.
#[derive(Clone, Default)]
struct Clients {
    is_over: Arc<AtomicBool>,
    waits: Arc<Mutex<Vec<Duration>>>,
}

impl Clients {
    fn start(engine: &Engine, count: u64) -> Clients {
        let clients = Clients::default();
        for seed in 0..count {
            let own = clients.clone();
            engine.run_on(usize::try_from(seed % 2).expect("small"), move |context| {
                let (handle, volume) = (context.handle(), context.volume("tank").expect("runs"));
                let size = volume.facts().size_bytes;
                context.handle().spawn(async move {
                    let mut random = Random::new(900 + seed);
                    while !own.is_over.load(Ordering::Relaxed) {
                        let extent = Extent::new(random.below(size / 4096) * 4096, 4096);
                        let began = handle.now();
                        if random.percent(30) {
                            let buffer = volume.buffer(4096).await;
                            submit(&volume, Ask::Write(buffer.freeze()), extent, false).await;
                        } else {
                            read(&volume, extent).await.expect("readable");
                        }
                        own.waits.lock().expect("whole").push(handle.now().since(began));
                        handle.sleep(THINK).await;
                    }
                });
            });
        }
        clients
    }

    /// The wait that 95 of 100 requests since the last call did not exceed; nothing if there were
    /// none.
    fn p95(&self) -> Option<Duration> {
        let mut waits = std::mem::take(&mut *self.waits.lock().expect("whole"));
        waits.sort();
        waits.get((waits.len() * 95 / 100).min(waits.len().saturating_sub(1))).copied()
    }
}

/// Members that answer within the call leave a rebuild nothing to wait for.
#[test]
fn others_have_a_turn_after_each_stripe_of_a_rebuild_in_memory() {
    const STRIPES: u64 = 64;
    let mut executor = Executor::new(Box::new(VirtualReactor::new()), Schedule::InOrder);
    let handle = executor.handle();
    let config = EngineConfig { worker_count: 1, ..EngineConfig::new(Arc::new(PathOpener::new())) };
    let engine = Engine::on_executor(config, &handle).expect("memory for pools");
    let devices: Vec<String> = (0..6).map(|at| format!("mem:turns{at}:64MiB")).collect();
    let turns = executor.block_on(async {
        let create = CreateSpec { devices: devices.clone(), ..create_spec(raid6()) };
        engine.create(create).await.expect("created");
        let name = engine.assemble(AssembleSpec { devices, ..assemble_spec(6) }).await;
        let name = name.expect("assembled");
        let fill = async move |volume: ArrayVolume| {
            for stripe in 0..STRIPES {
                let bytes = u64::from(volume.facts().optimal_bytes);
                let mut buffer = volume.buffer(usize::try_from(bytes).expect("small")).await;
                buffer.fill(7);
                let extent = Extent::new(stripe * bytes, bytes);
                submit(&volume, Ask::Write(buffer.freeze()), extent, false).await;
            }
        };
        engine.with_volume(0, &name, fill).await.expect("filled");
        engine.fail(&name, MemberIdx(1)).await.expect("one can be lost");
        engine.replace(&name, MemberIdx(1), "mem:turns6:64MiB", true).await.expect("replaced");
        let mut turns = 0;
        let array = engine.array(&name).expect("runs");
        while array.slot_states().iter().any(|state| *state != SlotState::InSync) {
            handle.yield_now().await;
            turns += 1;
        }
        engine.stop(&name).await.expect("stopped");
        turns
    });
    assert!(turns >= STRIPES / 2, "{turns} turns for {STRIPES} stripes");
}

/// What was measured in one world.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Of the clients before the rebuild began.
    p95_alone: Option<Duration>,
    /// Of the clients beside the rebuild.
    p95_beside: Option<Duration>,
    /// Bytes that the rebuild moved each second meanwhile.
    bytes_per_s: u64,
}

fn measure(clients: u64, target: Duration, floor_bytes: u64) -> Measured {
    let mut world = SimWorld::new(700);
    let disks = add_disks(&mut world, 6);
    let new = world.add_disk("new0", DiskOptions::sized(DISK_BYTES));
    disks.iter().chain([&new]).for_each(|disk| disk.set_latency(Latency::constant(Duration::ZERO)));
    let opener = QueuedOpener { disks: world.opener(), lines: Mutex::default() };
    let run = world.run(async move |handle| {
        let config = EngineConfig {
            worker_count: 2,
            payload_bytes: 4 << 20,
            wall_clock_s: || 1_700_000_000,
            ..EngineConfig::new(Arc::new(opener))
        };
        let engine = Engine::on_executor(config, &handle).expect("memory for pools");
        engine.create(create_spec(raid6())).await.expect("created");
        let tuning = ArrayTuning {
            job_latency_target: target,
            job_floor_bytes: floor_bytes,
            // Waiting in line is not being slow here.
            read_deadline: Duration::from_secs(60),
            ..ArrayTuning::default()
        };
        let spec = AssembleSpec { tuning: Some(tuning), ..assemble_spec(6) };
        engine.assemble(spec).await.expect("assembled");
        filled_to_the_brim(&engine).await;
        engine.fail("tank", MemberIdx(0)).await.expect("one may go");
        let clients = Clients::start(&engine, clients);
        handle.sleep(MEASURE).await;
        let p95_alone = clients.p95();
        engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
        handle.sleep(SETTLE).await;
        let before = job(&engine, JobKind::Rebuild).await.expect("it runs").bytes;
        let (began, _settling) = (handle.now(), clients.p95());
        let mut moved = 0;
        // In steps, so that a rebuild that ends is measured until then.
        while handle.now().since(began) < MEASURE {
            handle.sleep(ms(100)).await;
            let Some(rebuild) = job(&engine, JobKind::Rebuild).await else { break };
            moved = rebuild.bytes - before;
        }
        let millis = u64::try_from(handle.now().since(began).as_millis()).expect("seconds");
        let measured =
            Measured { p95_alone, p95_beside: clients.p95(), bytes_per_s: moved * 1000 / millis };
        clients.is_over.store(true, Ordering::Relaxed);
        handle.sleep(Duration::from_secs(5)).await;
        measured
    });
    run.done()
}

const TARGET: Duration = Duration::from_millis(200);
const FLOOR_BYTES: u64 = 512 << 10;

#[test]
fn a_rebuild_leaves_clients_near_their_target_and_keeps_its_floor() {
    let governed = measure(CLIENTS, TARGET, FLOOR_BYTES);
    let greedy = measure(CLIENTS, Duration::from_secs(3600), FLOOR_BYTES);
    eprintln!("governed {governed:?}\ngreedy {greedy:?}");
    let alone = governed.p95_alone.expect("clients");
    let beside = governed.p95_beside.expect("clients");
    assert!(alone < TARGET, "the target can be met: {governed:?}");
    assert!(beside < TARGET * 3 / 2, "{governed:?}");
    assert!(greedy.p95_beside.expect("clients") > TARGET * 2, "nothing to govern: {greedy:?}");
    assert!(governed.bytes_per_s >= FLOOR_BYTES, "{governed:?}");
}

#[test]
fn a_rebuild_without_clients_runs_as_fast_as_without_a_governor() {
    let governed = measure(0, TARGET, FLOOR_BYTES);
    let greedy = measure(0, Duration::from_secs(3600), FLOOR_BYTES);
    eprintln!("governed {governed:?}\ngreedy {greedy:?}");
    assert_eq!(governed.bytes_per_s, greedy.bytes_per_s);
    assert!(governed.bytes_per_s > 4 * FLOOR_BYTES, "{governed:?}");
}

#[test]
fn a_rebuild_keeps_its_floor_though_the_target_cannot_be_met() {
    let floor_bytes = 1 << 20;
    let hopeless = measure(CLIENTS, ms(1), floor_bytes);
    let lower = measure(CLIENTS, ms(1), floor_bytes / 4);
    eprintln!("floor {floor_bytes}: {hopeless:?}\na quarter of it: {lower:?}");
    assert!(hopeless.bytes_per_s >= floor_bytes * 9 / 10, "{hopeless:?}");
    assert!(lower.bytes_per_s >= floor_bytes / 4 * 9 / 10, "{lower:?}");
    assert!(lower.bytes_per_s < hopeless.bytes_per_s, "the floor decides: {lower:?} {hopeless:?}");
    assert!(lower.p95_beside < hopeless.p95_beside, "and clients feel it: {lower:?} {hopeless:?}");
}
