//! The report of a bench: the requests of the clients, the engine's counters between two looks, and
//! how evenly workers shared the load.
//!
//! What must stay true: figures include their CPU time and their member I/Os.

use super::clients::{ClientEffort, cpu_time};
use super::{BenchSpec, NAME};
use crate::convert;
use ashlar_api::ApiError;
use ashlar_engine::{ArrayCounts, ArrayStatus, Engine, MemberCounts};
use rustix::time::ClockId;
use std::time::Duration;

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
    /// Bytes read from members for each byte of all requests.
    pub member_bytes_read_per_byte: f64,
    /// Bytes written to members for each byte of all requests, without the log's.
    pub member_bytes_written_per_byte: f64,
    /// How stripes were written.
    pub stripe_writes: StripeWrites,
    /// Batches of the stripe intent log for each request.
    pub log_batches_per_request: f64,
    /// Bytes of those for each request.
    pub log_bytes_per_request: f64,
    /// Times that the log had to settle.
    pub log_settles: u64,
    /// Times of requests, one in 16; of a mixed load, of writes.
    pub latency: Percentiles,
    /// Workers that were used.
    pub workers: usize,
    /// What each of them did.
    pub shares: Vec<WorkerShare>,
    /// How evenly that is spread: the worker with the most over the mean of all.
    pub busiest_over_mean: BusiestOverMean,
    /// The parity kernel.
    pub kernel: String,
}

/// Times that so many of the requests did not exceed, in microseconds, of those that were timed.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Percentiles {
    /// 50 of 100.
    pub us_p50: f64,
    /// 99 of 100.
    pub us_p99: f64,
    /// 999 of 1000.
    pub us_p999: f64,
}

impl Percentiles {
    fn of(efforts: &[ClientEffort]) -> Percentiles {
        let mut nanos: Vec<u32> = efforts.iter().flat_map(|effort| effort.nanos.clone()).collect();
        nanos.sort_unstable();
        let last = nanos.len().saturating_sub(1);
        let us = |per_mille| {
            nanos.get(last * per_mille / 1000).map_or(0.0, |nanos| f64::from(*nanos) / 1e3)
        };
        Percentiles { us_p50: us(500), us_p99: us(990), us_p999: us(999) }
    }
}

/// How stripes were written, by bands of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct StripeWrites {
    /// All data was new: nothing was read.
    pub full: u64,
    /// What the write replaces was read.
    pub read_modify: u64,
    /// What the write leaves was read.
    pub reconstruct: u64,
    /// Pieces of requests that went with a piece before them.
    pub merged: u64,
}

impl StripeWrites {
    /// Percent of them that needed no reads; 100 if there were none.
    pub fn full_percent(&self) -> f64 {
        let all = self.full + self.read_modify + self.reconstruct;
        if all == 0 { 100.0 } else { self.full as f64 * 100.0 / all as f64 }
    }

    /// The difference of two such counts.
    #[must_use]
    pub(super) fn since(&self, before: &StripeWrites) -> StripeWrites {
        StripeWrites {
            full: self.full - before.full,
            read_modify: self.read_modify - before.read_modify,
            reconstruct: self.reconstruct - before.reconstruct,
            merged: self.merged - before.merged,
        }
    }
}

impl From<&ArrayCounts> for StripeWrites {
    fn from(counts: &ArrayCounts) -> Self {
        StripeWrites {
            full: counts.full_stripe_writes,
            read_modify: counts.rmw_writes,
            reconstruct: counts.rcw_writes,
            merged: counts.merged_writes,
        }
    }
}

/// What one worker did while it was measured.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct WorkerShare {
    /// Requests of its own clients that were answered.
    pub requests: u64,
    /// Pieces of work on its own stripes, from requests of any worker.
    pub pieces: u64,
    /// CPU time of its thread, in seconds.
    pub cpu_seconds: f64,
}

/// The busiest worker over the mean of all; 1 is even, and where nobody did anything.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct BusiestOverMean {
    /// By requests of its own clients.
    pub requests: f64,
    /// By pieces of work on stripes.
    pub pieces: f64,
    /// By CPU time.
    pub cpu: f64,
}

impl BusiestOverMean {
    fn of(shares: &[WorkerShare]) -> BusiestOverMean {
        let over = |figure: fn(&WorkerShare) -> f64| {
            let (most, sum) = shares
                .iter()
                .map(figure)
                .fold((0.0, 0.0), |(most, sum), next| (f64::max(most, next), sum + next));
            if sum > 0.0 { most * shares.len() as f64 / sum } else { 1.0 }
        };
        BusiestOverMean {
            requests: over(|share| share.requests as f64),
            pieces: over(|share| share.pieces as f64),
            cpu: over(|share| share.cpu_seconds),
        }
    }
}

/// All counters at one moment.
pub(super) struct Look {
    pub(super) array: ArrayStatus,
    /// Pieces of stripe work that each worker has done.
    pieces: Vec<u64>,
    at: tokio::time::Instant,
    cpu: Duration,
}

impl Look {
    pub(super) async fn at(engine: &Engine) -> Result<Look, ApiError> {
        let (at, cpu) = (tokio::time::Instant::now(), cpu_time(ClockId::ProcessCPUTime));
        let status = engine.status().await.map_err(convert::refusal)?;
        let pieces = status.workers.iter().map(|worker| worker.pieces).collect();
        let mut arrays = status.arrays.into_iter();
        let array = arrays.find(|array| array.name == NAME);
        Ok(Look { array: array.ok_or_else(|| ApiError::no_array(NAME))?, pieces, at, cpu })
    }
}

/// Two looks.
pub(super) struct Looks {
    pub(super) before: Look,
    pub(super) after: Look,
}

/// What the clients did between two looks.
pub(super) fn summary(spec: &BenchSpec, efforts: &[ClientEffort], looks: &Looks) -> BenchResult {
    let Looks { before, after } = looks;
    let requests: u64 = efforts.iter().map(|effort| effort.requests).sum();
    let pieces = after.pieces.iter().zip(&before.pieces).map(|(after, before)| after - before);
    let shares: Vec<WorkerShare> = efforts
        .iter()
        .zip(pieces)
        .map(|(effort, pieces)| WorkerShare {
            requests: effort.requests,
            pieces,
            cpu_seconds: effort.cpu.as_secs_f64(),
        })
        .collect();
    let (wall, cpu) = (after.at - before.at, after.cpu.saturating_sub(before.cpu));
    // Figures for people: more than 52 bits of precision are of no use to them.
    let per_request = |count: u64| count as f64 / requests.max(1) as f64;
    let per_second = |count: u64| count as f64 / wall.as_secs_f64();
    let bytes = requests * spec.load.bytes;
    let (counts, counts_before) = (&after.array.counts, &before.array.counts);
    let grown = |figure: fn(&MemberCounts) -> u64| {
        let sum = |look: &Look| look.array.members.iter().map(|it| figure(&it.counts)).sum::<u64>();
        sum(after).saturating_sub(sum(before)) as f64 / bytes.max(1) as f64
    };
    BenchResult {
        requests,
        bytes,
        seconds: wall.as_secs_f64(),
        cpu_seconds: cpu.as_secs_f64(),
        requests_per_second: per_second(requests),
        bytes_per_second: per_second(bytes),
        member_reads_per_request: per_request(counts.member_reads - counts_before.member_reads),
        member_writes_per_request: per_request(counts.member_writes - counts_before.member_writes),
        member_bytes_read_per_byte: grown(|it| it.read_bytes),
        member_bytes_written_per_byte: grown(|it| it.write_bytes),
        stripe_writes: StripeWrites::from(counts).since(&counts_before.into()),
        log_batches_per_request: per_request(counts.log_batches - counts_before.log_batches),
        log_bytes_per_request: per_request(counts.log_bytes - counts_before.log_bytes),
        log_settles: counts.log_settles - counts_before.log_settles,
        latency: Percentiles::of(efforts),
        workers: shares.len(),
        busiest_over_mean: BusiestOverMean::of(&shares),
        shares,
        kernel: after.array.kernel.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{BusiestOverMean, StripeWrites, WorkerShare};

    #[test]
    fn a_share_of_full_stripes_is_one_of_all_bands() {
        let writes = StripeWrites { full: 3, read_modify: 1, ..StripeWrites::default() };
        assert_eq!(writes.full_percent(), 75.0);
        assert_eq!(StripeWrites::default().full_percent(), 100.0);
        assert_eq!(writes.since(&writes), StripeWrites::default());
    }

    #[test]
    fn the_busiest_worker_is_compared_with_the_mean() {
        let share = |requests| WorkerShare { requests, pieces: 0, cpu_seconds: 1.0 };
        let spread = BusiestOverMean::of(&[share(1), share(2), share(6)]);
        assert_eq!((spread.requests, spread.pieces, spread.cpu), (2.0, 1.0, 1.0));
    }
}
