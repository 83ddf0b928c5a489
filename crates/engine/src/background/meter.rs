//! Samples for the governor: the latency of clients and the bytes of the job since the last sample.
//! Also says when a checkpoint is due.
//!
//! What must stay true: a sample costs a walk over a few histograms, ten times a second at most.

use super::job::Job;
use super::pace::{Aim, Pace, SAMPLE_EVERY, Sample};
use super::pass;
use super::step::TILE_BYTES;
use crate::array::Array;
use crate::local_array::LocalArray;
use crate::metrics::LatencySummary;
use ashlar_units::{Nanos, to_u64, to_usize};
use std::time::Duration;

/// Time between two checkpoints.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(5);
/// Bytes of stripes that a job has under way at most on the members of one stripe.
const UNDER_WAY_BYTES: u64 = 12 << 20;
/// Stripes under way there at full depth: at least, and at most.
const DEPTH_RANGE: (u64, u64) = (2, 32);
/// The same for each owner that the job's stripes are spread over.
const STRIPES_OF_OWNER: u64 = 2;

/// Samples in a row without a client request after which no client is there. After fewer they may
/// be waiting for drives that are slower than a sample is long, and that is no reason to hurry.
const IDLE_SAMPLES: u32 = 10;

/// Takes samples for the governor, and tells when a checkpoint is due.
pub(super) struct Meter {
    pub(super) pace: Pace,
    aim: Aim,
    sampled_at: Nanos,
    sampled_bytes: u64,
    latency: LatencySummary,
    /// Samples since the last one with a client request.
    idle_samples: u32,
    checkpoint_at: Nanos,
}

impl Meter {
    /// For a job whose stripes lie on so many sets of members side by side.
    pub(super) fn new(local: &LocalArray, job: &Job, side_by_side: usize) -> Meter {
        let (geometry, tuning) = (local.array.geometry(), local.array.tuning.get());
        let tile_bytes = geometry.strip_bytes().min(TILE_BYTES) * to_u64(geometry.stripe_width());
        let depth = (UNDER_WAY_BYTES / tile_bytes).clamp(DEPTH_RANGE.0, DEPTH_RANGE.1);
        // While an owner computes one, the next one is read.
        let depth = (depth * to_u64(side_by_side)).max(STRIPES_OF_OWNER * job.order.regions());
        let aim = Aim {
            latency: tuning.job_latency_target,
            floor_bytes: tuning.job_floor_bytes,
            depth_max: to_usize(depth),
        };
        let now = local.worker.handle.turn_now();
        Meter {
            pace: Pace::full(aim),
            aim,
            sampled_at: now,
            sampled_bytes: u64::MAX,
            latency: client_latency(&local.array),
            idle_samples: 0,
            checkpoint_at: now.after(CHECKPOINT_EVERY),
        }
    }

    pub(super) fn tick(&mut self, local: &LocalArray, job: &Job) {
        let now = local.worker.handle.turn_now();
        let passed = now.since(self.sampled_at);
        if passed < SAMPLE_EVERY {
            return;
        }
        let tuning = local.array.tuning.get();
        (self.aim.latency, self.aim.floor_bytes) =
            (tuning.job_latency_target, tuning.job_floor_bytes);
        let latency = client_latency(&local.array);
        let recent = latency.since(&self.latency);
        let mut progress = job.progress.borrow_mut();
        let bytes = progress.report.bytes;
        let moved = bytes.saturating_sub(self.sampled_bytes);
        let rate = u128::from(moved) * 1_000_000_000 / passed.as_nanos().max(1);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        let sample = Sample {
            latency: self.client_latency_now(&recent),
            bytes_per_s: rate,
            stripe_bytes: bytes / progress.done_stripes.max(1),
        };
        // The first sample after a pause has no bytes to compare with.
        if self.sampled_bytes != u64::MAX {
            self.pace = self.pace.next(sample, self.aim);
            progress.bytes_per_s = match progress.bytes_per_s {
                0 => rate,
                smooth => smooth - smooth / 8 + rate / 8,
            };
        }
        drop(progress);
        let bytes_per_s = job.progress.borrow().bytes_per_s;
        for other in pass::led_by(local, job).iter().filter(|other| other.carried.get() > 0) {
            other.progress.borrow_mut().bytes_per_s = bytes_per_s;
            local.array.jobs.show(other.status());
        }
        (self.sampled_at, self.sampled_bytes, self.latency) = (now, bytes, latency);
        local.array.jobs.show(job.status());
    }

    /// What clients see now, `None` if there are none. As long as that is not known it counts as
    /// just right, so that the pace stays unless the job is below its floor.
    fn client_latency_now(&mut self, recent: &LatencySummary) -> Option<Duration> {
        if recent.count != 0 {
            self.idle_samples = 0;
            return Some(Duration::from_nanos(recent.quantile_ns(950)));
        }
        self.idle_samples = self.idle_samples.saturating_add(1);
        (self.idle_samples < IDLE_SAMPLES).then_some(self.aim.latency)
    }

    pub(super) fn checkpoint_is_due(&mut self, local: &LocalArray) -> bool {
        let now = local.worker.handle.turn_now();
        if now < self.checkpoint_at {
            return false;
        }
        self.checkpoint_at = now.after(CHECKPOINT_EVERY);
        true
    }
}

/// All client reads and writes so far.
fn client_latency(array: &Array) -> LatencySummary {
    let mut sum = LatencySummary::default();
    for counters in &array.counters {
        counters.read_latency.add_to(&mut sum);
        counters.write_latency.add_to(&mut sum);
    }
    sum
}
