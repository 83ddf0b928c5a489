//! `ashlar bench`: load on the engine itself, in this process, without any export in between.
//!
//! What must stay true: all blocks that are read were written first, because unwritten space costs
//! nothing to read. Figures include their CPU time and their member I/Os. A request that fails
//! fails the bench.
//!
//! - `clients` who asks
//! - `figures` what is reported
//! - `hollow`  members that forget
//! - `late`    members that answer as late as a drive
//! - `jobs`    a background job instead of a load, or beside one
//! - `places`  where requests go
//! - [`via`]   the same through an export

mod clients;
mod figures;
mod hollow;
mod jobs;
mod late;
mod places;
pub mod via;

pub use figures::{BenchResult, BusiestOverMean, Percentiles, StripeWrites, WorkerShare};
pub use jobs::{BenchJob, ClientsBeside, JobResult, run_job};
pub use late::AnswerTimes;

use crate::{config, convert};
use ashlar_api::v1::array::{Policy, Switch};
use ashlar_api::{ApiError, codes};
use ashlar_device::{Opener, PathOpener};
use ashlar_engine::{AssembleSpec, CreateSpec, Engine, EngineConfig, Refusal};
use ashlar_layout::{DeclusteredShape, Level, Shape};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_ring::affinity;
use ashlar_units::{MemberIdx, to_u64};
use ashlar_volume::VolumeError;
use clients::{ClientEffort, FILL_BYTES, Part, drive, fill};
use figures::{Look, Looks, summary};
use hollow::HollowOpener;
use late::LateOpener;
use std::sync::Arc;
use std::time::Duration;

/// The array that the load is on.
const NAME: &str = "bench";

/// Memory that requests in flight may take on each worker, bytes.
const PAYLOAD_BYTES_MAX: usize = 4 << 30;

/// How much larger than the span a member in memory is, in MiB.
const MEMBER_MIB_MORE: u64 = 8 << 10;

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
    /// How late members that are no devices answer; `None`: at once.
    pub times: Option<AnswerTimes>,
    /// How many; for devices as many as there are.
    pub member_count: usize,
    /// The level.
    pub level: Level,
    /// Parity strips, for n+m.
    pub parity: Option<u8>,
    /// Members of a group, for levels with groups.
    pub group_members: Option<u16>,
    /// Strips of a stripe of a declustered array; `None`: the array is not declustered.
    pub stripe_width: Option<u16>,
    /// Strip size in bytes.
    pub strip_bytes: u64,
    /// How the array is to stay consistent over a crash; `None` is the default of the level.
    pub policy: Option<Policy>,
    /// Whether it keeps checksums of its blocks; `None` is the default.
    pub checksums: Option<Switch>,
    /// State that its members write blocks of 4 KiB whole.
    pub writes_whole: bool,
    /// Members to take out before measuring.
    pub lost: u16,
    /// What each task asks for, one request after the other.
    pub load: Load,
    /// How long a piece of a stream may wait for others; `None` is the default.
    pub merge_wait: Option<Duration>,
    /// Workers that have clients; 0 means all.
    pub clients_on: usize,
    /// Size of a member in memory; `None`: much larger than the span.
    pub member_bytes: Option<u64>,
    /// Bytes of the volume that are touched.
    pub span_bytes: u64,
    /// How long to measure.
    pub run_time: Duration,
    /// Workers; 0 means one for each core.
    pub workers: usize,
    /// Devices whose foreign signatures may be overwritten.
    pub destroy: Vec<String>,
}

impl BenchSpec {
    /// Size of a member in memory, in bytes.
    ///
    /// Room for the span and for the areas of the member itself. Larger than that, because areas
    /// are parts of the member: the log of one as small as the span would be full all the time.
    /// What is not touched takes no memory.
    pub(crate) fn member_bytes(&self) -> u64 {
        let mib = (self.span_bytes >> 20) + MEMBER_MIB_MORE;
        self.member_bytes.map_or(mib << 20, |bytes| bytes >> 20 << 20)
    }

    /// Size of all members in memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.member_bytes().saturating_mul(to_u64(self.member_count))
    }

    /// How many workers there will be.
    pub(crate) fn worker_count(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if self.workers > 0 { self.workers } else { cores }
    }
}

/// What clients ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Write, or read.
    pub is_write: bool,
    /// Of a hundred requests of a writing load, so many are reads.
    pub reads_percent: u8,
    /// Writes are to be durable when they are answered.
    pub is_fua: bool,
    /// In random order, or one after the other.
    pub is_random: bool,
    /// How many sequences there are on each worker, if the order is not random.
    pub streams: usize,
    /// Bytes of the volume before the first request.
    pub start_bytes: u64,
    /// Bytes of each request.
    pub bytes: u64,
    /// Requests in flight on each worker.
    pub depth: usize,
}

/// Measure the load.
///
/// # Errors
/// The array cannot be, a device is refused, or a request failed.
pub fn run(spec: &BenchSpec) -> Result<BenchResult, ApiError> {
    on_own_engine(spec, async |engine, spec| {
        let span = fill_span(engine, spec).await?;
        measure(engine, spec, span).await
    })
}

/// Do something with the array on an engine in this process.
fn on_own_engine<T>(
    spec: &BenchSpec,
    act: impl AsyncFnOnce(&Engine, &BenchSpec) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let home = Home::new(spec)?;
    home.on_engine(spec, async |engine| {
        home.start_new(engine, spec).await?;
        let measured = act(engine, spec).await;
        stop(engine).await.and(measured)
    })
}

/// What engines share that run on the same members one after the other.
struct Home {
    runtime: tokio::runtime::Runtime,
    hollow: Arc<HollowOpener>,
    paths: PathOpener,
    opener: Arc<dyn Opener>,
}

fn system_fault(what: &str, error: &std::io::Error) -> ApiError {
    ApiError::new(codes::SYSTEM_FAULT, format!("{what}: {error}"), "see limits of this user")
}

impl Home {
    fn new(spec: &BenchSpec) -> Result<Home, ApiError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| system_fault("no resources for an event loop", &error))?;
        let hollow = Arc::new(HollowOpener::new());
        let paths = PathOpener::new();
        let opener: Arc<dyn Opener> = match &spec.members {
            Members::Null => Arc::<HollowOpener>::clone(&hollow),
            Members::Memory | Members::Devices(_) => Arc::new(paths.clone()),
        };
        let opener = match spec.times {
            Some(times) => Arc::new(LateOpener::new(opener, times)),
            None => opener,
        };
        Ok(Home { runtime, hollow, paths, opener })
    }

    /// An engine for as long as `act` runs. Arrays that run then are left as after a crash.
    fn on_engine<T>(
        &self,
        spec: &BenchSpec,
        act: impl AsyncFnOnce(&Engine) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let mut config = EngineConfig::new(Arc::clone(&self.opener));
        config.cores = affinity::cores().ok().filter(|cores| cores.len() > 1).unwrap_or_default();
        config.signatures = Some(config::foreign_signatures());
        config.wiper = config::wiper();
        if spec.workers > 0 {
            config.worker_count = spec.workers;
        }
        if let Some(wait) = spec.merge_wait {
            config.tuning.merge_wait_max = wait;
        }
        make_room(&mut config, spec.load)?;
        let engine = Engine::start(config)
            .map_err(|error| system_fault("the workers cannot be started", &error))?;
        let result = self.runtime.block_on(act(&engine));
        engine.shut_down();
        result
    }

    /// Create the array, and start it.
    async fn start_new(&self, engine: &Engine, spec: &BenchSpec) -> Result<(), ApiError> {
        let created = engine.create(create_spec(spec)).await.map_err(convert::refusal)?;
        self.hollow.forget_from(created.data_offset);
        if convert::policy(spec.policy, spec.level) == ConsistencyPolicy::Log {
            self.take_memory(spec, created.data_offset);
        }
        start(engine, spec).await
    }

    /// Members in memory have that of their log from the start. It would else come with the first
    /// pass through the log, and be measured: in virtual machines it is slow.
    fn take_memory(&self, spec: &BenchSpec, bytes: u64) {
        let of_paths = (0..spec.member_count).filter_map(|at| self.paths.memory(&format!("m{at}")));
        of_paths.chain(self.hollow.kept()).for_each(|device| device.take_memory(bytes));
    }
}

async fn start(engine: &Engine, spec: &BenchSpec) -> Result<(), ApiError> {
    let assemble = AssembleSpec { devices: devices(spec), ..AssembleSpec::default() };
    engine.assemble(assemble).await.map(drop).map_err(convert::refusal)
}

async fn stop(engine: &Engine) -> Result<(), ApiError> {
    engine.stop(NAME).await.map(drop).map_err(convert::refusal)
}

/// Buffers for all requests in flight: were there fewer, some clients would wait for those of
/// others for ever.
fn make_room(config: &mut EngineConfig, load: Load) -> Result<(), ApiError> {
    let needed = EngineConfig::payload_bytes_for(load.depth, load.bytes);
    if needed.is_none_or(|bytes| bytes > PAYLOAD_BYTES_MAX) {
        let message =
            format!("{} requests of {} bytes at once are too many", load.depth, load.bytes);
        let hint = format!("take fewer: their buffers may take {} GiB", PAYLOAD_BYTES_MAX >> 30);
        return Err(ApiError::new(codes::REQUEST_MALFORMED, message, hint));
    }
    config.payload_bytes = config.payload_bytes.max(needed.unwrap_or(0));
    Ok(())
}

fn create_spec(spec: &BenchSpec) -> CreateSpec {
    let devices = devices(spec);
    CreateSpec {
        enclosures: None,
        name: NAME.to_owned(),
        shape: Shape {
            level: spec.level,
            members: devices.len(),
            parity: spec.parity.map(usize::from),
            group_members: spec.group_members.map(usize::from),
            strip_bytes: spec.strip_bytes,
            declustered: spec.stripe_width.map(|width| DeclusteredShape {
                domain_members: 1,
                stripe_width: width.into(),
                spare_columns: 0,
                cell_bytes: None,
            }),
        },
        devices,
        policy: convert::policy(spec.policy, spec.level),
        checksums: convert::checksums(spec.checksums),
        atomic_write_bytes: if spec.writes_whole { 4096 } else { 0 },
        logical_block_bytes: 4096,
        region_bytes: None,
        member_bytes: None,
        destroy: spec.destroy.clone(),
        is_dry_run: false,
    }
}

fn devices(spec: &BenchSpec) -> Vec<String> {
    let member_mib = spec.member_bytes() >> 20;
    let named = |kind: &str| {
        (0..spec.member_count).map(|at| format!("{kind}{at}:{member_mib}MiB")).collect()
    };
    match &spec.members {
        Members::Memory => named("mem:m"),
        Members::Null => named("null:m"),
        Members::Devices(devices) => devices.clone(),
    }
}

/// Write all that will be touched once, and take out the members that are to be lost. How many
/// bytes were written.
async fn fill_span(engine: &Engine, spec: &BenchSpec) -> Result<u64, ApiError> {
    let volume_bytes = Look::at(engine).await?.array.geometry.volume_bytes();
    let span = volume_bytes.min(spec.span_bytes) / FILL_BYTES * FILL_BYTES;
    if spec.load.start_bytes.saturating_add(spec.load.bytes) > span {
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
    Ok(span)
}

async fn measure(engine: &Engine, spec: &BenchSpec, span: u64) -> Result<BenchResult, ApiError> {
    let before = Look::at(engine).await?;
    let clients = start_clients(engine, spec, span);
    let efforts = clients.ended().await?;
    let after = Look::at(engine).await?;
    Ok(summary(spec, &efforts, &Looks { before, after }))
}

/// Clients at work: for each worker its own.
struct Clients(Vec<tokio::task::JoinHandle<Result<Effort, Refusal>>>);

type Effort = Result<ClientEffort, VolumeError>;

/// Have clients ask for as long as the spec says.
fn start_clients(engine: &Engine, spec: &BenchSpec, span: u64) -> Clients {
    let clients_on = if spec.clients_on == 0 { usize::MAX } else { spec.clients_on };
    let workers = engine.worker_count().min(clients_on);
    let start = |worker| {
        let (engine, load, run_time) = (engine.clone(), spec.load, spec.run_time);
        tokio::task::spawn(async move {
            let part = Part { worker, workers, span };
            let drive = async move |volume| drive(volume, load, part, run_time).await;
            engine.with_volume(worker, NAME, drive).await
        })
    };
    Clients((0..workers).map(start).collect())
}

impl Clients {
    async fn ended(self) -> Result<Vec<ClientEffort>, ApiError> {
        let mut efforts = Vec::new();
        for worker in self.0 {
            let effort = worker.await.map_err(|error| {
                ApiError::new(codes::SYSTEM_FAULT, format!("a worker stopped: {error}"), "")
            })?;
            efforts.push(done(effort.map_err(convert::refusal)?)?);
        }
        Ok(efforts)
    }
}

fn done<T>(result: Result<T, VolumeError>) -> Result<T, ApiError> {
    let hint = "see 'ashlar examine' on the members";
    result
        .map_err(|error| ApiError::new("bench.failed", format!("a request failed: {error}"), hint))
}

#[cfg(test)]
mod tests {
    use super::{AnswerTimes, BenchJob, BenchSpec, Load, Members, run, run_job};
    use ashlar_layout::Level;
    use std::num::NonZeroU64;
    use std::time::Duration;

    fn spec(members: Members) -> BenchSpec {
        BenchSpec {
            members,
            times: None,
            member_count: 6,
            level: Level::Raid6,
            parity: None,
            group_members: None,
            stripe_width: None,
            strip_bytes: 64 << 10,
            policy: None,
            checksums: None,
            writes_whole: false,
            lost: 0,
            load: Load {
                is_write: true,
                is_random: true,
                bytes: 4096,
                depth: 4,
                ..Load::default()
            },
            merge_wait: None,
            clients_on: 0,
            member_bytes: None,
            span_bytes: 16 << 20,
            run_time: Duration::from_millis(500),
            workers: 2,
            destroy: Vec::new(),
        }
    }

    #[test]
    fn a_mixed_load_reads_and_writes_in_the_share_that_was_asked_for() {
        let load = Load {
            is_write: true,
            reads_percent: 50,
            is_fua: true,
            is_random: true,
            bytes: 4096,
            depth: 4,
            ..Load::default()
        };
        let result = run(&BenchSpec { load, ..spec(Members::Memory) }).expect("measured");
        assert!(result.requests > 0);
        // Three of each for a write, one for a read.
        let (reads, writes) = (result.member_reads_per_request, result.member_writes_per_request);
        assert!(reads > writes && writes > 0.0, "{reads} reads, {writes} writes");
    }

    #[test]
    fn a_rebuild_reads_four_strips_of_each_stripe_and_writes_one_for_each_lost_member() {
        for members in [Members::Memory, Members::Null] {
            for lost in [1, 2] {
                let spec = BenchSpec { lost, workers: 1, ..spec(members.clone()) };
                let result = run_job(&spec, BenchJob::Rebuild, false).expect("measured");
                let strips = (16 << 20) / (4 * spec.strip_bytes);
                assert_eq!(result.member_bytes, strips * spec.strip_bytes, "{result:?}");
                assert_eq!(result.member_writes, u64::from(lost) * strips, "{result:?}");
                // The second may come when the first has begun.
                let reads = 4 * strips..=4 * strips * u64::from(lost);
                assert!(reads.contains(&result.member_reads), "{result:?}");
                assert!(result.seconds > 0.0 && result.cpu_seconds > 0.0);
            }
        }
    }

    #[test]
    fn a_scrub_and_a_resync_read_all_strips_and_write_none() {
        for job in [BenchJob::Scrub, BenchJob::Resync] {
            let spec = BenchSpec { workers: 1, ..spec(Members::Memory) };
            let result = run_job(&spec, job, false).expect("measured");
            let strips = (16 << 20) / (4 * spec.strip_bytes);
            assert_eq!(result.member_bytes, strips * spec.strip_bytes, "{result:?}");
            assert_eq!((result.member_reads, result.member_writes), (6 * strips, 0), "{result:?}");
            let null = BenchSpec { members: Members::Null, ..spec };
            let refusal = run_job(&null, job, false).expect_err("nothing is kept");
            assert!(refusal.to_string().contains("forget"), "{refusal}");
        }
    }

    #[test]
    fn members_of_a_rate_pass_no_more_bytes_a_second() {
        let times =
            AnswerTimes { bytes_per_second: NonZeroU64::new(50_000_000), ..AnswerTimes::default() };
        for (job, lost) in [(BenchJob::Rebuild, 2), (BenchJob::Scrub, 0), (BenchJob::Resync, 0)] {
            let spec = BenchSpec { times: Some(times), lost, ..spec(Members::Memory) };
            let result = run_job(&spec, job, false).expect("measured");
            assert!(result.member_bytes_per_second <= 50e6, "{result:?}");
        }
    }

    #[test]
    fn clients_beside_a_job_are_measured_alone_before() {
        let rate = NonZeroU64::new(20_000_000);
        let times = AnswerTimes { bytes_per_second: rate, ..AnswerTimes::default() };
        let late = BenchSpec { times: Some(times), ..spec(Members::Memory) };
        let spec = BenchSpec { span_bytes: 192 << 20, workers: 1, ..late };
        let result = run_job(&spec, BenchJob::Scrub, true).expect("measured");
        let beside = result.clients.expect("there were clients");
        assert!(beside.requests_per_second_alone > 0.0 && beside.us_p95_alone > 0.0, "{beside:?}");
        assert!(beside.requests_per_second > 0.0 && beside.us_p95 > 0.0, "{beside:?}");
        // The job had its turns while they were counted.
        assert!(result.member_reads > 0, "{result:?}");
        let few = BenchSpec { span_bytes: 4 << 20, times: None, ..spec };
        let refusal = run_job(&few, BenchJob::Scrub, true).expect_err("it ends at once");
        assert!(refusal.to_string().contains("ended before"), "{refusal}");
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
        let load =
            Load { is_write: false, is_random: true, bytes: 4096, depth: 4, ..Load::default() };
        let healthy = run(&BenchSpec { load, ..spec(Members::Memory) }).expect("measured");
        assert!((healthy.member_reads_per_request - 1.0).abs() < 1e-9, "{healthy:?}");
        let degraded =
            run(&BenchSpec { load, lost: 2, ..spec(Members::Memory) }).expect("measured");
        assert!(degraded.member_reads_per_request > 1.1, "{degraded:?}");
    }

    #[test]
    fn a_request_takes_as_long_as_the_members_that_it_waits_for() {
        let (read, write) = (Duration::from_millis(3), Duration::from_millis(1));
        let times = AnswerTimes { read, write, bytes_per_second: None };
        let late = BenchSpec { times: Some(times), ..spec(Members::Memory) };
        let read = Load { is_write: false, is_random: true, ..late.load };
        let read = run(&BenchSpec { load: read, ..late.clone() }).expect("measured");
        assert!(read.latency.us_p50 >= 3_000.0, "{read:?}");
        // Three are read side by side, then logged, then written.
        let written = run(&late).expect("measured");
        assert!(written.latency.us_p50 >= 5_000.0, "{written:?}");
        // Members that answer within the call take time, too.
        let at_once = run(&spec(Members::Memory)).expect("measured");
        assert!(at_once.latency.us_p50 > 0.1, "{at_once:?}");
    }

    #[test]
    fn what_each_worker_did_adds_up_to_all_that_was_done() {
        let result = run(&spec(Members::Memory)).expect("measured");
        assert_eq!(result.shares.len(), 2);
        let requests: u64 = result.shares.iter().map(|share| share.requests).sum();
        let pieces: u64 = result.shares.iter().map(|share| share.pieces).sum();
        // A write of one block is one piece of work of its stripe's owner.
        assert_eq!((requests, pieces), (result.requests, result.requests), "{result:?}");
        let cpu: f64 = result.shares.iter().map(|share| share.cpu_seconds).sum();
        assert!(cpu > 0.0 && cpu <= result.cpu_seconds, "{result:?}");
    }

    #[test]
    fn more_requests_at_once_than_a_pool_usually_has_buffers_are_all_served() {
        let load = Load {
            is_write: false,
            is_random: true,
            bytes: 128 << 10,
            depth: 80,
            ..Load::default()
        };
        for is_write in [true, false] {
            let load = Load { is_write, ..load };
            let result = run(&BenchSpec { load, workers: 1, ..spec(Members::Null) });
            assert!(result.expect("measured").requests > 0);
        }
    }

    #[test]
    fn a_depth_beyond_all_memory_is_refused_with_what_to_do() {
        for depth in [1 << 20, usize::MAX] {
            let load =
                Load { is_write: true, is_random: true, bytes: 1 << 20, depth, ..Load::default() };
            let refusal = run(&BenchSpec { load, ..spec(Members::Null) }).expect_err("too many");
            assert!(refusal.to_string().contains("too many"), "{refusal}");
        }
    }

    #[test]
    fn a_request_that_does_not_fit_is_refused() {
        let load =
            Load { is_write: false, is_random: true, bytes: 32 << 20, depth: 4, ..Load::default() };
        let refusal = run(&BenchSpec { load, ..spec(Members::Memory) }).expect_err("too long");
        assert!(refusal.to_string().contains("does not fit"), "{refusal}");
    }
}
