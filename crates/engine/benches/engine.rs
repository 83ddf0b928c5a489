//! What the engine itself costs: one worker, members that are memory or nothing at all.
//!
//! What must stay true: figures are the worker thread's CPU time next to wall time, so that a busy
//! machine shows; counts of member I/Os come with each figure; `--test` runs each case for a moment and
//! checks that it did its work.
//!
//! Run: `cargo bench -p ashlar-engine -- [--test] [FILTER]`

use ashlar_device::{Access, MemDevice, NullDevice, OpenRefusal, Opened, Opener};
use ashlar_engine::{ArrayCounts, ArrayVolume, AssembleSpec, CreateSpec, Engine, EngineConfig};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_ring::{Executor, Handle, Park, Reactor, Schedule, Unpark};
use ashlar_units::{Extent, MemberIdx, Nanos, to_usize};
use ashlar_volume::{Command, Reply, Request, Volume};
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Members by name: `null*` keep nothing, all others are memory.
#[derive(Default)]
struct BenchOpener {
    memory: Mutex<HashMap<String, MemDevice>>,
    member_bytes: u64,
}

/// A null device that keeps its head and tail, so that superblocks and maps work.
struct Hollow {
    edges: MemDevice,
    middle: NullDevice,
}

struct HollowDevice {
    edges: Rc<dyn ashlar_device::Device>,
    middle: Rc<dyn ashlar_device::Device>,
}

impl Opened for Hollow {
    fn facts(&self) -> &ashlar_device::DeviceFacts {
        self.edges.facts()
    }

    fn attach(&self, handle: &Handle) -> Rc<dyn ashlar_device::Device> {
        let (edges, middle) = (self.edges.attach(handle), self.middle.attach(handle));
        Rc::new(HollowDevice { edges, middle })
    }
}

/// Below this offset, and in the last MiB, a hollow device keeps what it is given.
const HEAD_BYTES: u64 = 64 << 20;

impl ashlar_device::Device for HollowDevice {
    fn facts(&self) -> &ashlar_device::DeviceFacts {
        self.edges.facts()
    }

    fn submit(
        &self,
        offset: u64,
        command: ashlar_device::Command,
        done: ashlar_ring::Completion<ashlar_device::Outcome>,
    ) {
        let is_edge = offset < HEAD_BYTES || offset + (1 << 20) >= self.facts().size_bytes;
        if is_edge { &self.edges } else { &self.middle }.submit(offset, command, done);
    }
}

impl Opener for BenchOpener {
    fn open(&self, path: &str, _: Access) -> Result<Arc<dyn Opened>, OpenRefusal> {
        let mut memory = self.memory.lock().expect("not poisoned");
        let make = || MemDevice::new(path, self.member_bytes);
        let edges = memory.entry(path.to_owned()).or_insert_with(make).clone();
        if path.starts_with("null") {
            let middle = NullDevice::new(path, self.member_bytes);
            return Ok(Arc::new(Hollow { edges, middle }));
        }
        Ok(Arc::new(edges))
    }
}

/// A reactor without events: the members complete at once, so nothing is ever waited for.
struct Spinning(std::time::Instant);

struct Nobody;

impl Unpark for Nobody {
    fn unpark(&self) {}
}

impl Reactor for Spinning {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn turn(&mut self, _: Park) {}

    fn unparker(&self) -> Arc<dyn Unpark> {
        Arc::new(Nobody)
    }
}

/// One measured case.
struct Case {
    name: &'static str,
    members: &'static str,
    shape: Shape,
    load: Load,
    lost: usize,
    aim: &'static str,
}

/// What is asked of the volume.
#[derive(Clone, Copy)]
struct Load {
    is_write: bool,
    is_random: bool,
    bytes: u64,
    depth: usize,
}

fn shape(level: Level, members: usize) -> Shape {
    Shape { level, members, parity: None, group_members: None, strip_bytes: 64 << 10 }
}

fn cases() -> Vec<Case> {
    let read = |bytes| Load { is_write: false, is_random: true, bytes, depth: 32 };
    let write = |bytes| Load { is_write: true, is_random: true, bytes, depth: 32 };
    let six = shape(Level::Raid6, 6);
    let ten = shape(Level::Raid6, 10);
    let case =
        |name, members, shape, load, lost, aim| Case { name, members, shape, load, lost, aim };
    vec![
        case("null 8+2 read 4K", "null", ten.clone(), read(4 << 10), 0, "1 M/s, target 3 M/s"),
        case("null 8+2 write 512K", "null", ten.clone(), write(512 << 10), 0, "10 GB/s, target 16"),
        case("null 8+2 write 4K", "null", ten, write(4 << 10), 0, ""),
        case("mem 4+2 read 4K", "mem", six.clone(), read(4 << 10), 0, "md 250 k/s"),
        case("mem 4+2 write 4K", "mem", six.clone(), write(4 << 10), 0, "250 k/s; md 48.5 k/s"),
        case(
            "mem 4+2 write 256K",
            "mem",
            six.clone(),
            write(256 << 10),
            0,
            "5 GB/s; md 1.1, raid5f 7.0",
        ),
        case("mem 4+2 read 1M", "mem", six.clone(), read(1 << 20), 0, "md 9.4 GB/s"),
        case("mem 4+2 read 1M, 1 out", "mem", six.clone(), read(1 << 20), 1, "6 GB/s; md 1.4"),
        case("mem 4+2 read 1M, 2 out", "mem", six.clone(), read(1 << 20), 2, ""),
        case("mem 4+2 write 4K, 1 out", "mem", six, write(4 << 10), 1, ""),
    ]
}

/// Bytes of the volume that the load touches; all written before anything is measured.
const SPAN_BYTES: u64 = 256 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_test = arguments.iter().any(|argument| argument == "--test");
    let filter = arguments.iter().find(|argument| !argument.starts_with("--")).cloned();
    let run_time = Duration::from_millis(if is_test { 20 } else { 1000 });
    println!(
        "{:<26} {:>10} {:>8} {:>8} {:>9}  {:<22} aim",
        "case", "per s", "GB/s", "ns CPU", "CPU/wall", "member r+w per op"
    );
    for case in cases() {
        if filter.as_ref().is_none_or(|filter| case.name.contains(filter.as_str())) {
            run_case(&case, run_time);
        }
    }
}

fn run_case(case: &Case, run_time: Duration) {
    let reactor = Spinning(std::time::Instant::now());
    let mut executor = Executor::new(Box::new(reactor), Schedule::InOrder);
    let handle = executor.handle();
    let opener = BenchOpener { member_bytes: 1 << 30, ..BenchOpener::default() };
    let config = EngineConfig { worker_count: 1, ..EngineConfig::new(Arc::new(opener)) };
    let devices: Vec<String> =
        (0..case.shape.members).map(|at| format!("{}{at}", case.members)).collect();
    let outcome = executor.block_on(async {
        let engine = Engine::on_executor(config, &handle).expect("memory");
        let create = CreateSpec {
            name: "bench".to_owned(),
            shape: case.shape.clone(),
            devices: devices.clone(),
            policy: ConsistencyPolicy::Bitmap,
            logical_block_bytes: 4096,
            region_bytes: None,
            destroy: Vec::new(),
            is_dry_run: false,
        };
        engine.create(create).await.expect("created");
        let assemble = AssembleSpec { devices, ..AssembleSpec::default() };
        engine.assemble(assemble).await.expect("assembled");
        prepare(&engine).await;
        for lost in 0..case.lost {
            engine.fail("bench", MemberIdx::from_at(lost)).await.expect("within the parity");
        }
        measure(&engine, &handle, case.load, run_time).await
    });
    print(case, &outcome);
}

/// Write the whole span once.
async fn prepare(engine: &Engine) {
    let fill = engine.with_volume(0, "bench", async |volume: ArrayVolume| {
        for offset in (0..SPAN_BYTES).step_by(1 << 20) {
            let mut buffer = volume.buffer(1 << 20).await;
            buffer.fill(u8::try_from(offset >> 20 & 0xff).expect("masked"));
            one(&volume, Command::Write(buffer.freeze()), Extent::new(offset, 1 << 20)).await;
        }
    });
    fill.await.expect("filled");
}

async fn one(volume: &ArrayVolume, command: Command, extent: Extent) -> Reply {
    volume.submit(Request { command, extent, fua: false }).await.expect("healthy enough")
}

struct Measured {
    requests: u64,
    wall: Duration,
    cpu: Duration,
    before: ArrayCounts,
    after: ArrayCounts,
}

fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).expect("positive"),
        u32::try_from(time.tv_nsec).expect("below a second"),
    )
}

async fn counts(engine: &Engine) -> ArrayCounts {
    engine.status().await.expect("runs").arrays[0].counts
}

async fn measure(engine: &Engine, handle: &Handle, load: Load, run_time: Duration) -> Measured {
    let before = counts(engine).await;
    let (wall, cpu) = (handle.now(), thread_cpu());
    let end = wall.after(run_time);
    let run = engine.with_volume(0, "bench", async move |volume: ArrayVolume| {
        let volume_handle = volume.handle();
        let requests = Rc::new(Cell::new(0u64));
        let running = Rc::new(Cell::new(load.depth));
        for task in 0..load.depth {
            let (volume, requests, running) =
                (volume.clone(), Rc::clone(&requests), Rc::clone(&running));
            let handle = volume_handle.clone();
            volume_handle.spawn(async move {
                let done = drive(&volume, &handle, (load, task), end).await;
                requests.set(requests.get() + done);
                running.set(running.get() - 1);
            });
        }
        while running.get() != 0 {
            volume_handle.yield_now().await;
        }
        requests.get()
    });
    let requests = run.await.expect("ran");
    let (wall, cpu) = (handle.now().since(wall), thread_cpu() - cpu);
    Measured { requests, wall, cpu, before, after: counts(engine).await }
}

/// One client task: one request after the other until `end`.
async fn drive(
    volume: &ArrayVolume,
    handle: &Handle,
    (load, task): (Load, usize),
    end: Nanos,
) -> u64 {
    let mut random = 0x9E37_79B9_7F4A_7C15u64.wrapping_mul(task as u64 + 1);
    let places = SPAN_BYTES / load.bytes;
    let mut place = task as u64 * (places / load.depth as u64);
    let source = volume.buffer(to_usize(load.bytes)).await.freeze();
    let mut target = Some(volume.buffer(to_usize(load.bytes)).await);
    let mut done = 0;
    while done % 64 != 0 || handle.now() < end {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        place = if load.is_random { random % places } else { (place + 1) % places };
        let extent = Extent::new(place * load.bytes, load.bytes);
        if load.is_write {
            one(volume, Command::Write(source.clone()), extent).await;
        } else {
            let buffer = target.take().expect("came back");
            match one(volume, Command::Read(buffer), extent).await {
                Reply::Data(buffer) => target = Some(buffer),
                Reply::Done => panic!("a read answers with data"),
            }
        }
        done += 1;
        if done % 16 == 0 {
            handle.yield_now().await;
        }
    }
    done
}

#[expect(clippy::cast_precision_loss, reason = "figures for people, not for arithmetic")]
fn print(case: &Case, measured: &Measured) {
    let requests = measured.requests as f64;
    let (wall, cpu) = (measured.wall.as_secs_f64(), measured.cpu.as_secs_f64());
    let (before, after) = (&measured.before, &measured.after);
    let per = |count: u64| count as f64 / requests;
    println!(
        "{:<26} {:>10.0} {:>8.2} {:>8.0} {:>9.2}  {:<22} {}",
        case.name,
        requests / cpu,
        requests * case.load.bytes as f64 / cpu / 1e9,
        cpu * 1e9 / requests,
        cpu / wall,
        format!(
            "{:.2} + {:.2}",
            per(after.member_reads - before.member_reads),
            per(after.member_writes - before.member_writes)
        ),
        case.aim
    );
    assert!(measured.requests > 0, "nothing was done");
    assert_eq!(after.errors, before.errors, "requests failed");
}
