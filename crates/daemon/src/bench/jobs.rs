//! How fast a background job is: while no client asks for anything, or beside clients.
//!
//! What must stay true: a member comes back into its own place as a new device, so that all written
//! stripes are rebuilt. Memory that a member in memory needs was taken before. A resync follows a
//! start after a crash. Clients are counted only while the job runs.

use super::clients::{cpu_time, flush};
use super::figures::Look;
use super::{
    BenchSpec, Home, Members, NAME, devices, done, fill_span, on_own_engine, start, start_clients,
    stop,
};
use crate::convert;
use ashlar_api::v1::array::Policy;
use ashlar_api::{ApiError, codes};
use ashlar_engine::{ArrayStatus, Engine, JobStatus, LatencySummary, SlotState};
use ashlar_ondisk::JobKind;
use ashlar_units::MemberIdx;
use rustix::time::ClockId;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time between two looks whether it has ended.
const POLL: Duration = Duration::from_millis(1);
/// Time for the job to find its pace beside clients, before they are counted.
const SETTLE: Duration = Duration::from_secs(1);

/// A job to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BenchJob {
    /// Of the members that are to be lost, of one at least.
    Rebuild,
    /// Of all that was written, after a crash.
    Resync,
    /// Of all that was written.
    Scrub,
}

/// What a job took.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct JobResult {
    /// What it was.
    pub job: &'static str,
    /// Members that were rebuilt, side by side; for other jobs all members.
    pub members: u16,
    /// Bytes that each of them got; for other jobs, that each of them was read, in the mean.
    pub member_bytes: u64,
    /// Time that it took, or was measured beside clients.
    pub seconds: f64,
    /// CPU time of the whole process, in seconds.
    pub cpu_seconds: f64,
    /// Those bytes of a member in a second.
    pub member_bytes_per_second: f64,
    /// Bytes that it read and wrote on all members in a second.
    pub moved_bytes_per_second: f64,
    /// Reads of members.
    pub member_reads: u64,
    /// Writes of members.
    pub member_writes: u64,
    /// The clients beside it, if there were some.
    pub clients: Option<ClientsBeside>,
    /// Workers that were used.
    pub workers: usize,
    /// The parity kernel.
    pub kernel: String,
}

/// What clients got beside a job, and alone before it.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct ClientsBeside {
    /// Requests a second alone.
    pub requests_per_second_alone: f64,
    /// Time of 95 of 100 requests alone, in microseconds.
    pub us_p95_alone: f64,
    /// Requests a second beside the job.
    pub requests_per_second: f64,
    /// Time of 95 of 100 requests beside the job, in microseconds.
    pub us_p95: f64,
}

/// Measure a job. With `has_clients` clients work meanwhile as the spec says, for its run time.
///
/// # Errors
/// As [`super::run`], and if the job ends before its clients.
pub fn run_job(spec: &BenchSpec, job: BenchJob, has_clients: bool) -> Result<JobResult, ApiError> {
    if spec.members == Members::Null && job != BenchJob::Rebuild {
        let message = "null members forget their parity: all of it would be wrong";
        return Err(ApiError::new(codes::REQUEST_MALFORMED, message, "leave --null out"));
    }
    if job == BenchJob::Resync {
        return run_resync(spec, has_clients);
    }
    on_own_engine(spec, async |engine, spec| {
        let bench = JobBench { engine, spec, job, span: fill_span(engine, spec).await? };
        let alone = bench.clients_alone(has_clients).await?;
        bench.measure(alone).await
    })
}

/// The array runs when its first engine ends, so the next one finds it as after a crash.
fn run_resync(spec: &BenchSpec, has_clients: bool) -> Result<JobResult, ApiError> {
    let spec = BenchSpec { policy: spec.policy.or(Some(Policy::None)), ..spec.clone() };
    let home = Home::new(&spec)?;
    let (span, alone) = home.on_engine(&spec, async |engine| {
        home.start_new(engine, &spec).await?;
        let span = fill_span(engine, &spec).await?;
        let bench = JobBench { engine, spec: &spec, job: BenchJob::Resync, span };
        let alone = bench.clients_alone(has_clients).await?;
        // What was written is known to be.
        let flushed = engine.with_volume(0, NAME, async |volume| flush(&volume).await);
        done(flushed.await.map_err(convert::refusal)?)?;
        Ok((span, alone))
    })?;
    home.on_engine(&spec, async |engine| {
        let bench = JobBench { engine, spec: &spec, job: BenchJob::Resync, span };
        let measured = bench.measure(alone).await;
        stop(engine).await.and(measured)
    })
}

/// A job on an engine.
#[derive(Clone, Copy)]
struct JobBench<'b> {
    engine: &'b Engine,
    spec: &'b BenchSpec,
    job: BenchJob,
    span: u64,
}

/// Requests since a look, and the time.
type Asked = (LatencySummary, f64);

impl JobBench<'_> {
    fn kind(self) -> JobKind {
        match self.job {
            BenchJob::Rebuild => JobKind::Rebuild,
            BenchJob::Resync => JobKind::Resync,
            BenchJob::Scrub => JobKind::Scrub,
        }
    }

    async fn status(self) -> Result<ArrayStatus, ApiError> {
        Ok(Look::at(self.engine).await?.array)
    }

    async fn clients_alone(self, has_clients: bool) -> Result<Option<Asked>, ApiError> {
        if !has_clients {
            return Ok(None);
        }
        let (before, began) = (self.status().await?, Instant::now());
        start_clients(self.engine, self.spec, self.span).ended().await?;
        let now = self.status().await?;
        Ok(Some((asked(&now).since(&asked(&before)), began.elapsed().as_secs_f64())))
    }

    /// Begin the job, and measure it to its end or as long as there are clients.
    async fn measure(self, alone: Option<Asked>) -> Result<JobResult, ApiError> {
        let (began, cpu) = (Instant::now(), cpu_time(ClockId::ProcessCPUTime));
        let before = match self.job {
            BenchJob::Resync => {
                start(self.engine, self.spec).await?;
                None
            }
            _ => Some(self.status().await?),
        };
        self.begin().await?;
        match alone {
            Some(alone) => self.beside_clients(alone).await,
            None => self.to_its_end(Passed { began, cpu, before }).await,
        }
    }

    async fn begin(self) -> Result<(), ApiError> {
        match self.job {
            BenchJob::Rebuild => {
                for (slot, path) in (0..self.spec.lost).zip(devices(self.spec)) {
                    let replaced = self.engine.replace(NAME, MemberIdx(slot), &path, true);
                    replaced.await.map_err(convert::refusal)?;
                }
                Ok(())
            }
            BenchJob::Scrub => self.engine.scrub(NAME, false).await.map_err(convert::refusal),
            BenchJob::Resync => Ok(()),
        }
    }

    async fn to_its_end(self, since: Passed) -> Result<JobResult, ApiError> {
        let now = loop {
            let now = self.status().await?;
            if self.has_ended(&now) {
                break now;
            }
            sleep(POLL).await;
        };
        Ok(self.result(&since, &now))
    }

    fn has_ended(self, now: &ArrayStatus) -> bool {
        let is_whole = now.members.iter().all(|member| member.state == SlotState::InSync);
        let is_under_way = now.jobs.iter().any(|job| job.kind == self.kind());
        !is_under_way && (is_whole || self.job != BenchJob::Rebuild)
    }

    async fn beside_clients(self, alone: Asked) -> Result<JobResult, ApiError> {
        let run_time = self.spec.run_time + SETTLE;
        let spec = BenchSpec { run_time, ..self.spec.clone() };
        let clients = start_clients(self.engine, &spec, self.span);
        sleep(SETTLE).await;
        let before = self.status().await?;
        let (began, cpu) = (Instant::now(), cpu_time(ClockId::ProcessCPUTime));
        let served = asked(&before);
        let since = Passed { began, cpu, before: Some(before) };
        clients.ended().await?;
        let now = self.status().await?;
        if !now.jobs.iter().any(|job| job.kind == self.kind()) {
            let message = "the job ended before its clients";
            return Err(ApiError::new("bench.failed", message, "take a larger --span"));
        }
        let result = self.result(&since, &now);
        let (asked, seconds) = (asked(&now).since(&served), result.seconds);
        let us_p95 = |asked: &LatencySummary| asked.quantile_ns(950) as f64 / 1e3;
        let clients = ClientsBeside {
            requests_per_second_alone: alone.0.count as f64 / alone.1,
            us_p95_alone: us_p95(&alone.0),
            requests_per_second: asked.count as f64 / seconds,
            us_p95: us_p95(&asked),
        };
        Ok(JobResult { clients: Some(clients), ..result })
    }

    /// What the job did since then.
    fn result(self, since: &Passed, now: &ArrayStatus) -> JobResult {
        let seconds = since.began.elapsed().as_secs_f64();
        let cpu = cpu_time(ClockId::ProcessCPUTime).saturating_sub(since.cpu);
        let before = since.before.as_ref();
        let done = |count: fn(&JobStatus) -> u64| {
            self.sum(now, count) - before.map_or(0, |before| self.sum(before, count))
        };
        let moved = done(|job| job.bytes);
        let counted = |count: fn(&ArrayStatus) -> u64| count(now) - before.map_or(0, count);
        let member_reads = counted(|array| array.counts.job_member_reads);
        let member_writes = counted(|array| array.counts.job_member_writes);
        let strip_bytes = now.geometry.strip_bytes();
        let (members, member_bytes) = match self.job {
            BenchJob::Rebuild => {
                let strips = done(|job| job.done_stripes);
                (self.spec.lost, strips * strip_bytes / u64::from(self.spec.lost.max(1)))
            }
            _ => {
                let members = u16::try_from(now.members.len()).unwrap_or(u16::MAX);
                (members, moved / u64::from(members.max(1)))
            }
        };
        JobResult {
            job: self.kind().name(),
            members,
            member_bytes,
            seconds,
            cpu_seconds: cpu.as_secs_f64(),
            member_bytes_per_second: member_bytes as f64 / seconds,
            moved_bytes_per_second: moved as f64 / seconds,
            member_reads,
            member_writes,
            clients: None,
            workers: self.engine.worker_count(),
            kernel: now.kernel.to_owned(),
        }
    }

    /// Over all jobs of the kind since the array started.
    fn sum(self, now: &ArrayStatus, count: fn(&JobStatus) -> u64) -> u64 {
        let running = now.jobs.iter();
        let all = running.chain(now.ended_jobs.iter().map(|end| &end.did));
        all.filter(|job| job.kind == self.kind()).map(count).sum()
    }
}

/// Where a measurement began.
struct Passed {
    began: Instant,
    cpu: Duration,
    /// None: when the array started.
    before: Option<ArrayStatus>,
}

/// All reads and writes of clients so far.
fn asked(array: &ArrayStatus) -> LatencySummary {
    array.read_latency.and(&array.write_latency)
}
