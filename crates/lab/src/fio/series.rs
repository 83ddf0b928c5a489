//! fio's logs over time (`write_bw_log`, `write_lat_log`, `log_avg_msec`), one for each job:
//! bandwidth is added into one series, of latency the mean over jobs is taken.
//!
//! What must stay true: values are KiB a second in the log and bytes a second here; samples of
//! different jobs that fall into the same interval are added. fio loses the last, partial interval;
//! it is not made up. No line makes this panic.

use crate::metrics::latency::to_f64;
use std::collections::BTreeMap;

/// Interval's end, milliseconds since the start -> what was in it; of reads and of writes.
type OverTime<T> = [BTreeMap<u64, T>; 2];
/// The same as figures.
type Curves = [Vec<(u64, f64)>; 2];

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Series {
    /// Of each job, by its number from 1: bytes a second.
    jobs: BTreeMap<u32, OverTime<f64>>,
    /// Sum of the jobs' mean completion latencies in nanoseconds, and how many.
    means: OverTime<(f64, u32)>,
    /// Lines that could not be read.
    pub unreadable: usize,
}

impl Series {
    /// Add the log of job number `job`, from 1, whose samples are averages over `interval_ms`.
    pub fn add(&mut self, job: u32, log: &str, interval_ms: u64) {
        for (at_ms, side, kib_per_s) in self.samples(log, interval_ms) {
            let own = &mut self.jobs.entry(job).or_default()[side];
            *own.entry(at_ms).or_default() += to_f64(kib_per_s) * 1024.0;
        }
    }

    /// Bandwidth over time of the jobs that `choose` picks, together.
    pub fn bandwidth(&self, choose: impl Fn(u32) -> bool) -> Curves {
        [0, 1].map(|side| {
            let mut sum: BTreeMap<u64, f64> = BTreeMap::new();
            for (_, own) in self.jobs.iter().filter(|(number, _)| choose(**number)) {
                own[side].iter().for_each(|(at, rate)| *sum.entry(*at).or_default() += rate);
            }
            sum.into_iter().collect()
        })
    }

    /// Add the latency log of one job, whose samples are means over `interval_ms` in nanoseconds.
    pub fn add_latency(&mut self, log: &str, interval_ms: u64) {
        for (at_ms, side, ns) in self.samples(log, interval_ms) {
            let (sum, count) = self.means[side].entry(at_ms).or_default();
            *sum += to_f64(ns);
            *count = count.saturating_add(1);
        }
    }

    /// Mean completion latency over time, nanoseconds.
    pub fn latency(&self) -> Curves {
        let mean = |(at, (sum, count)): (&u64, &(f64, u32))| (*at, sum / f64::from(*count));
        [0, 1].map(|side| self.means[side].iter().map(mean).collect())
    }

    /// The samples of reads (0) and writes (1): interval's end, side, value. What cannot be read is
    /// counted.
    fn samples(&mut self, log: &str, interval_ms: u64) -> Vec<(u64, usize, u64)> {
        let mut samples = Vec::new();
        for line in log.lines().filter(|line| !line.trim().is_empty()) {
            let fields: Vec<Option<u64>> =
                line.split(',').take(3).map(|field| field.trim().parse().ok()).collect();
            match fields[..] {
                [Some(at_ms), Some(value), Some(side @ (0 | 1))] => samples.push((
                    rounded(at_ms, interval_ms.max(1)),
                    usize::from(side == 1),
                    value,
                )),
                [Some(_), Some(_), Some(_)] => {}
                _ => self.unreadable += 1,
            }
        }
        samples
    }
}

/// The end of the interval that a sample belongs to. Jobs wake up some milliseconds apart: 1001 and
/// 999 are the same second.
fn rounded(at_ms: u64, interval_ms: u64) -> u64 {
    let interval = (at_ms.saturating_add(interval_ms / 2) / interval_ms).max(1);
    interval.saturating_mul(interval_ms)
}

#[cfg(test)]
mod tests {
    use super::Series;

    #[test]
    fn bandwidth_is_added_interval_by_interval_and_latency_is_the_mean_over_jobs() {
        let mut series = Series::default();
        series.add(1, "500, 100, 0, 0, 0\n501, 7, 1, 0, 0\n1000, 200, 0, 0, 0\n", 500);
        series.add(2, "499, 50, 0, 0, 0, 0\n1003, 60, 0, 0, 0, 0\ngarbage\n", 500);
        let [read, write] = series.bandwidth(|_| true);
        assert_eq!(read, [(500, 153_600.0), (1000, 266_240.0)], "KiB become bytes");
        assert_eq!((write, series.unreadable), (vec![(500, 7168.0)], 1));
        let second = series.bandwidth(|job| job == 2);
        assert_eq!(second, [vec![(500, 51_200.0), (1000, 61_440.0)], Vec::new()], "job 2 alone");
        series.add_latency("1000, 2000, 0, 0, 0\n1000, 9, 1, 0, 0\n1000, 5, 2, 0, 0\n", 1000);
        series.add_latency("1002, 4000, 0, 0, 0\n2000, 1000, 0, 0, 0\n", 1000);
        assert_eq!(series.latency(), [vec![(1000, 3000.0), (2000, 1000.0)], vec![(1000, 9.0)]]);
    }
}
