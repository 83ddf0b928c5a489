//! fio's results as the figures of a measurement.
//!
//! What must stay true: reads come from reads and writes from writes (fio prints both sections
//! always); bins are added over jobs; the generator's own CPU time is its own column.

use super::result::{FioResult, JobResult, Side};
use super::series::Series;
use crate::metrics::latency::{self, to_f64};
use crate::record::Direction;

/// Reads and writes of the jobs that `choose` picks, and the generator's own CPU time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Figures {
    pub read: Direction,
    pub write: Direction,
    /// User and system time of fio's jobs, seconds: never an engine's cost.
    pub client_s: f64,
    /// How long I/Os were counted, seconds: without start, ramp and end.
    pub measured_s: f64,
    /// When that ended, seconds since 1970; 0 if nobody says.
    pub ended_unix_s: f64,
}

pub fn figures(result: &FioResult, choose: impl Fn(&JobResult) -> bool) -> Figures {
    let mut figures =
        Figures { ended_unix_s: to_f64(result.timestamp_ms) / 1000.0, ..Figures::default() };
    for job in result.jobs.iter().filter(|job| choose(job)) {
        add(&mut figures.read, &job.read);
        add(&mut figures.write, &job.write);
        let longest = measured_s(&job.read).max(measured_s(&job.write));
        figures.measured_s = figures.measured_s.max(longest);
        let runtime_s = to_f64(job.job_runtime_ms) / 1000.0;
        figures.client_s += runtime_s * (job.user_percent + job.system_percent) / 100.0;
    }
    figures
}

impl Figures {
    /// The same with what was logged over time by all jobs, or bandwidth by those with these
    /// numbers.
    #[must_use]
    pub fn with_series(mut self, series: &Series, jobs: Option<&[u32]>) -> Figures {
        [self.read.series, self.write.series] =
            series.bandwidth(|job| jobs.is_none_or(|jobs| jobs.contains(&job)));
        if jobs.is_none() {
            [self.read.latency_series, self.write.latency_series] = series.latency();
        }
        self
    }
}

/// How long a side's I/Os were counted: what it prints as run time may be a sum over jobs.
fn measured_s(side: &Side) -> f64 {
    if side.iops > 0.0 { to_f64(side.ios) / side.iops } else { 0.0 }
}

fn add(sum: &mut Direction, side: &Side) {
    // Jobs that measured total latency only have their bins there.
    let measured = if side.completion.samples > 0 { &side.completion } else { &side.total };
    let bins =
        if side.completion.bins.is_empty() { &side.total.bins } else { &side.completion.bins };
    let ios = sum.ios.saturating_add(side.ios);
    if side.ios > 0 {
        let before = sum.latency_mean_ns * to_f64(sum.ios);
        sum.latency_mean_ns = (before + measured.mean_ns * to_f64(side.ios)) / to_f64(ios);
    }
    sum.ios = ios;
    sum.bytes = sum.bytes.saturating_add(side.bytes);
    sum.bytes_per_s += side.bytes_per_s;
    sum.iops += side.iops;
    latency::merge(&mut sum.latency_bins, bins);
}
