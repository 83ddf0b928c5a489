//! `ashlar bench`: load on the engine itself, in this process, without any export in between.
//!
//! What must stay true: what is read was written first, because unwritten space costs nothing to read;
//! figures come with the CPU time that they cost and with the member I/Os that they took; a request that
//! fails fails the bench.

mod hollow;

use crate::{config, convert};
use ashlar_api::v1::array::Level;
use ashlar_api::v1::status::Latency;
use ashlar_api::{ApiError, codes};
use ashlar_device::{Opener, PathOpener};
use ashlar_engine::{ArrayStatus, ArrayVolume, AssembleSpec, CreateSpec, Engine, EngineConfig};
use ashlar_layout::Shape;
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_ring::local::Signal;
use ashlar_ring::{Handle, affinity};
use ashlar_units::{Extent, MemberIdx, Nanos, to_u64, to_usize};
use ashlar_volume::{Command, Reply, Request, Volume, VolumeError};
use hollow::HollowOpener;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The array that the load is on.
const NAME: &str = "bench";
/// Piece in which the span is filled before anything is measured, in bytes.
const FILL_BYTES: u64 = 1 << 20;

/// What the members are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Members {
    /// Memory of this process.
    Memory,
    /// Nothing: they keep their metadata and forget data at once.
    Null,
    /// These devices; everything on them is lost.
    Devices(Vec<String>),
}

/// What to measure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BenchSpec {
    /// What the members are.
    pub members: Members,
    /// How many; for devices as many as there are.
    pub member_count: usize,
    /// The level.
    pub level: Level,
    /// Parity strips, for n+m.
    pub parity: Option<u8>,
    /// Members of a group, for levels with groups.
    pub group_members: Option<u16>,
    /// Strip size in bytes.
    pub strip_bytes: u64,
    /// Members to take out before measuring.
    pub lost: u16,
    /// What each task asks for, one request after the other.
    pub load: Load,
    /// Bytes of the volume that are touched.
    pub span_bytes: u64,
    /// How long to measure.
    pub run_time: Duration,
    /// Workers; 0 means one for each core.
    pub workers: usize,
    /// Devices whose foreign signatures may be overwritten.
    pub destroy: Vec<String>,
}

/// What clients ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Write, or read.
    pub is_write: bool,
    /// In random order, or one after the other.
    pub is_random: bool,
    /// Bytes of each request.
    pub bytes: u64,
    /// Requests in flight on each worker.
    pub depth: usize,
}

/// What was measured.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct BenchResult {
    /// Requests that were answered.
    pub requests: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Time that it took.
    pub seconds: f64,
    /// CPU time of the whole process, in seconds.
    pub cpu_seconds: f64,
    /// Requests a second.
    pub requests_per_second: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Member reads for each request.
    pub member_reads_per_request: f64,
    /// Member writes for each request.
    pub member_writes_per_request: f64,
    /// Time of each request.
    pub latency: Latency,
    /// Workers that were used.
    pub workers: usize,
    /// The parity kernel.
    pub kernel: String,
}

/// Measure.
///
/// # Errors
/// The array cannot be, a device is refused, or a request failed.
pub fn run(spec: &BenchSpec) -> Result<BenchResult, ApiError> {
    let fault = |what: &str, error: std::io::Error| {
        ApiError::new(codes::SYSTEM_FAULT, format!("{what}: {error}"), "see limits of this user")
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| fault("no resources for an event loop", error))?;
    let hollow = Arc::new(HollowOpener::new());
    let opener: Arc<dyn Opener> = match &spec.members {
        Members::Null => Arc::<HollowOpener>::clone(&hollow),
        Members::Memory | Members::Devices(_) => Arc::new(PathOpener::new()),
    };
    let mut config = EngineConfig::new(opener);
    config.pin_cores = affinity::cores().is_ok_and(|cores| cores.len() > 1);
    config.signatures = config::foreign_signatures();
    if spec.workers > 0 {
        config.worker_count = spec.workers;
    }
    let engine =
        Engine::start(config).map_err(|error| fault("the workers cannot be started", error))?;
    let result = runtime.block_on(on_engine(&engine, spec, &hollow));
    engine.shut_down();
    result
}

async fn on_engine(
    engine: &Engine,
    spec: &BenchSpec,
    hollow: &HollowOpener,
) -> Result<BenchResult, ApiError> {
    let devices = devices(spec);
    let create = CreateSpec {
        name: NAME.to_owned(),
        shape: Shape {
            level: convert::level(spec.level),
            members: devices.len(),
            parity: spec.parity.map(usize::from),
            group_members: spec.group_members.map(usize::from),
            strip_bytes: spec.strip_bytes,
        },
        devices: devices.clone(),
        policy: ConsistencyPolicy::Bitmap,
        logical_block_bytes: 4096,
        region_bytes: None,
        destroy: spec.destroy.clone(),
        is_dry_run: false,
    };
    let created = engine.create(create).await.map_err(convert::refusal)?;
    hollow.forget_from(created.data_offset);
    let assemble = AssembleSpec { devices, ..AssembleSpec::default() };
    engine.assemble(assemble).await.map_err(convert::refusal)?;
    let measured = measure(engine, spec).await;
    let stopped = engine.stop(NAME).await.map_err(convert::refusal);
    stopped.and(measured)
}

fn devices(spec: &BenchSpec) -> Vec<String> {
    // Room for the span and for the areas of the member itself.
    let member_mib = (spec.span_bytes >> 20) + 128;
    let named = |kind: &str| {
        (0..spec.member_count).map(|at| format!("{kind}{at}:{member_mib}MiB")).collect()
    };
    match &spec.members {
        Members::Memory => named("mem:m"),
        Members::Null => named("null:m"),
        Members::Devices(devices) => devices.clone(),
    }
}

async fn measure(engine: &Engine, spec: &BenchSpec) -> Result<BenchResult, ApiError> {
    let volume_bytes = status(engine).await?.geometry.volume_bytes();
    let span = volume_bytes.min(spec.span_bytes) / FILL_BYTES * FILL_BYTES;
    if spec.load.bytes > span {
        let message =
            format!("the volume has {volume_bytes} bytes; a request does not fit the span");
        return Err(ApiError::new(
            codes::REQUEST_MALFORMED,
            message,
            "take larger members or smaller requests",
        ));
    }
    let filled = engine.with_volume(0, NAME, async move |volume| fill(&volume, span).await);
    done(filled.await.map_err(convert::refusal)?)?;
    for slot in 0..spec.lost {
        engine.fail(NAME, MemberIdx(slot)).await.map_err(convert::refusal)?;
    }
    let before = status(engine).await?;
    let (began, cpu) = (tokio::time::Instant::now(), cpu_time());
    let mut running = Vec::new();
    for worker in 0..engine.worker_count() {
        let (engine, load, run_time) = (engine.clone(), spec.load, spec.run_time);
        running.push(tokio::spawn(async move {
            let drive =
                async move |volume| drive(volume, load, Part { worker, span }, run_time).await;
            engine.with_volume(worker, NAME, drive).await
        }));
    }
    let mut requests = 0;
    for worker in running {
        let counted = worker.await.map_err(|error| {
            ApiError::new(codes::SYSTEM_FAULT, format!("a worker stopped: {error}"), "")
        })?;
        requests += done(counted.map_err(convert::refusal)?)?;
    }
    let (wall, cpu) = (began.elapsed(), cpu_time().saturating_sub(cpu));
    let after = status(engine).await?;
    Ok(summary(spec, engine.worker_count(), (requests, wall, cpu), (&before, &after)))
}

fn done<T>(result: Result<T, VolumeError>) -> Result<T, ApiError> {
    let hint = "see 'ashlar examine' on the members";
    result
        .map_err(|error| ApiError::new("bench.failed", format!("a request failed: {error}"), hint))
}

async fn status(engine: &Engine) -> Result<ArrayStatus, ApiError> {
    let status = engine.status().await.map_err(convert::refusal)?;
    let mut arrays = status.arrays.into_iter();
    arrays.find(|array| array.name == NAME).ok_or_else(|| ApiError::no_array(NAME))
}

/// CPU time of this process so far.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

type Effort = (u64, Duration, Duration);

fn summary(
    spec: &BenchSpec,
    workers: usize,
    (requests, wall, cpu): Effort,
    (before, after): (&ArrayStatus, &ArrayStatus),
) -> BenchResult {
    // Figures for people: more than 52 bits of precision are of no use to them.
    let per_request = |count: u64| count as f64 / requests.max(1) as f64;
    let per_second = |count: u64| count as f64 / wall.as_secs_f64();
    let bytes = requests * spec.load.bytes;
    let latency = if spec.load.is_write { &after.write_latency } else { &after.read_latency };
    BenchResult {
        requests,
        bytes,
        seconds: wall.as_secs_f64(),
        cpu_seconds: cpu.as_secs_f64(),
        requests_per_second: per_second(requests),
        bytes_per_second: per_second(bytes),
        member_reads_per_request: per_request(
            after.counts.member_reads - before.counts.member_reads,
        ),
        member_writes_per_request: per_request(
            after.counts.member_writes - before.counts.member_writes,
        ),
        latency: convert::latency(latency),
        workers,
        kernel: after.kernel.to_owned(),
    }
}

/// Write the whole span once.
async fn fill(volume: &ArrayVolume, span: u64) -> Result<(), VolumeError> {
    for offset in (0..span).step_by(to_usize(FILL_BYTES)) {
        let mut buffer = volume.buffer(to_usize(FILL_BYTES)).await;
        let mark = u8::try_from((offset / FILL_BYTES) & 0xFF).unwrap_or(0);
        buffer.fill(mark);
        let extent = Extent::new(offset, FILL_BYTES);
        volume
            .submit(Request { command: Command::Write(buffer.freeze()), extent, fua: false })
            .await?;
    }
    Ok(())
}

/// Which part of the load this worker has.
#[derive(Clone, Copy)]
struct Part {
    worker: usize,
    span: u64,
}

/// All tasks of one worker; how many requests they made.
async fn drive(
    volume: ArrayVolume,
    load: Load,
    part: Part,
    run_time: Duration,
) -> Result<u64, VolumeError> {
    let handle = volume.handle();
    let end = handle.now().after(run_time);
    let (total, running, failed) =
        (Rc::new(Cell::new(0)), Rc::new(Cell::new(load.depth)), Rc::new(Cell::new(None)));
    let ended = Signal::new();
    for task in 0..load.depth {
        let seed = to_u64(part.worker * load.depth + task + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let client =
            Client { volume: volume.clone(), handle: handle.clone(), load, span: part.span, seed };
        let (total, running, failed) = (Rc::clone(&total), Rc::clone(&running), Rc::clone(&failed));
        let ended = ended.clone();
        handle.spawn(async move {
            match client.ask_until(end).await {
                Ok(count) => total.set(total.get() + count),
                Err(error) => failed.set(Some(error)),
            }
            running.set(running.get() - 1);
            ended.notify_all();
        });
    }
    while running.get() > 0 {
        ended.changed().await;
    }
    failed.get().map_or(Ok(total.get()), Err)
}

/// One task: one request after the other.
struct Client {
    volume: ArrayVolume,
    handle: Handle,
    load: Load,
    span: u64,
    seed: u64,
}

impl Client {
    async fn ask_until(mut self, end: Nanos) -> Result<u64, VolumeError> {
        let places = self.span / self.load.bytes;
        let mut place = self.seed % places;
        let source = self.volume.buffer(to_usize(self.load.bytes)).await.freeze();
        let mut target = Some(self.volume.buffer(to_usize(self.load.bytes)).await);
        let mut count = 0;
        while self.handle.now() < end {
            place = if self.load.is_random { self.random() % places } else { (place + 1) % places };
            let extent = Extent::new(place * self.load.bytes, self.load.bytes);
            let command = match target.take() {
                Some(buffer) if !self.load.is_write => Command::Read(buffer),
                _ => Command::Write(source.clone()),
            };
            if let Reply::Data(buffer) =
                self.volume.submit(Request { command, extent, fua: false }).await?
            {
                target = Some(buffer);
            }
            count += 1;
            // Members that complete at once must not keep the other tasks waiting.
            if count % 16 == 0 {
                self.handle.yield_now().await;
            }
        }
        Ok(count)
    }

    fn random(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }
}

#[cfg(test)]
mod tests {
    use super::{BenchSpec, Load, Members, run};
    use ashlar_api::v1::array::Level;
    use std::time::Duration;

    fn spec(members: Members) -> BenchSpec {
        BenchSpec {
            members,
            member_count: 6,
            level: Level::Raid6,
            parity: None,
            group_members: None,
            strip_bytes: 64 << 10,
            lost: 0,
            load: Load { is_write: true, is_random: true, bytes: 4096, depth: 4 },
            span_bytes: 16 << 20,
            run_time: Duration::from_millis(20),
            workers: 2,
            destroy: Vec::new(),
        }
    }

    #[test]
    fn a_small_random_write_takes_three_reads_and_three_writes_of_members() {
        for members in [Members::Memory, Members::Null] {
            let result = run(&spec(members)).expect("measured");
            assert!(result.requests > 0);
            // Writes that were merged into one stripe write share their parity.
            assert!(result.member_writes_per_request <= 3.0 + 1e-9, "{result:?}");
            assert!(result.member_writes_per_request > 1.0, "{result:?}");
        }
    }

    #[test]
    fn a_read_takes_one_read_of_a_member_and_more_when_one_is_out() {
        let load = Load { is_write: false, is_random: true, bytes: 4096, depth: 4 };
        let healthy = run(&BenchSpec { load, ..spec(Members::Memory) }).expect("measured");
        assert!((healthy.member_reads_per_request - 1.0).abs() < 1e-9, "{healthy:?}");
        let degraded =
            run(&BenchSpec { load, lost: 2, ..spec(Members::Memory) }).expect("measured");
        assert!(degraded.member_reads_per_request > 1.1, "{degraded:?}");
    }

    #[test]
    fn a_request_that_does_not_fit_is_refused() {
        let load = Load { is_write: false, is_random: true, bytes: 32 << 20, depth: 4 };
        let refusal = run(&BenchSpec { load, ..spec(Members::Memory) }).expect_err("too long");
        assert!(refusal.to_string().contains("does not fit"), "{refusal}");
    }
}
