//! fio's logs over time (`write_bw_log`, `write_lat_log`, `log_avg_msec`, `write_hist_log`), one
//! for each job: bandwidth is added into one series, of latency the mean over jobs is taken, and
//! percentiles come from the jobs' histograms, added.
//!
//! What must stay true: values are KiB a second in the log and bytes a second here; samples of
//! different jobs that fall into the same interval are added. fio loses the last, partial interval;
//! it is not made up.

use super::histogram;
use crate::metrics::latency::{self, Bins};
use std::collections::BTreeMap;

/// Bandwidth over time of reads and of writes: interval's end, milliseconds since the start ->
/// bytes a second.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Series {
    pub read: BTreeMap<u64, f64>,
    pub write: BTreeMap<u64, f64>,
    /// Mean completion latency of reads and of writes: interval's end -> sum of the jobs' means in
    /// nanoseconds, and how many.
    means: [BTreeMap<u64, (f64, u32)>; 2],
    /// Completion latencies of reads and of writes: interval's end -> histogram of all jobs.
    histograms: [BTreeMap<u64, Bins>; 2],
    /// Bandwidth of each job, reads and writes: job's number from 1 -> interval's end -> bytes a
    /// second.
    jobs: BTreeMap<u32, [BTreeMap<u64, f64>; 2]>,
    pub unreadable: usize,
}

impl Series {
    /// Add the log of job number `job`, from 1, whose samples are averages over `interval_ms`.
    pub fn add(&mut self, job: u32, log: &str, interval_ms: u64) {
        for (at_ms, kib_per_s, side) in self.samples(log, interval_ms) {
            let series = if side == 0 { &mut self.read } else { &mut self.write };
            let rate = latency::to_f64(kib_per_s) * 1024.0;
            *series.entry(at_ms).or_default() += rate;
            let own = &mut self.jobs.entry(job).or_default()[usize::from(side != 0)];
            *own.entry(at_ms).or_default() += rate;
        }
    }

    /// Bandwidth of reads and of writes over time of the jobs with these numbers together.
    pub fn of_jobs(&self, numbers: &[u32]) -> [Vec<(u64, f64)>; 2] {
        [0, 1].map(|side| {
            let mut sum: BTreeMap<u64, f64> = BTreeMap::new();
            for own in numbers.iter().filter_map(|number| self.jobs.get(number)) {
                for (at_ms, rate) in &own[side] {
                    *sum.entry(*at_ms).or_default() += rate;
                }
            }
            sum.into_iter().collect()
        })
    }

    /// Add the latency log of one job, whose samples are means over `interval_ms` in nanoseconds.
    pub fn add_latency(&mut self, log: &str, interval_ms: u64) {
        for (at_ms, ns, side) in self.samples(log, interval_ms) {
            let means = &mut self.means[usize::from(side != 0)];
            let (sum, count) = means.entry(at_ms).or_default();
            *sum += crate::metrics::latency::to_f64(ns);
            *count = count.saturating_add(1);
        }
    }

    /// Mean completion latency of reads and of writes over time: milliseconds since the start ->
    /// nanoseconds.
    pub fn latency(&self) -> [Vec<(u64, f64)>; 2] {
        let mean = |(at, (sum, count)): (&u64, &(f64, u32))| (*at, sum / f64::from(*count));
        [0, 1].map(|side| self.means[side].iter().map(mean).collect())
    }

    /// Add the histogram log of one job, whose lines are the I/Os of `interval_ms` each.
    pub fn add_histogram(&mut self, log: &str, interval_ms: u64) {
        for line in log.lines().filter(|line| !line.trim().is_empty()) {
            match histogram::read(line) {
                Some(read) if read.side < 2 => {
                    let at_ms = rounded(read.at_ms, interval_ms.max(1));
                    let bins =
                        self.histograms[usize::from(read.side != 0)].entry(at_ms).or_default();
                    latency::merge(bins, &read.bins);
                }
                Some(_) => {}
                None => self.unreadable += 1,
            }
        }
    }

    /// p99 of completion latency of reads and of writes over time: milliseconds since the start ->
    /// nanoseconds. Intervals with too few I/Os for it are missing.
    pub fn p99(&self) -> [Vec<(u64, f64)>; 2] {
        let p99 = |(at, bins): (&u64, &Bins)| {
            latency::percentile(bins, 0.99).map(|ns| (*at, latency::to_f64(ns)))
        };
        [0, 1].map(|side| self.histograms[side].iter().filter_map(p99).collect())
    }

    /// The samples of reads (0) and writes (1): interval's end, value, side. What cannot be read is
    /// counted.
    fn samples(&mut self, log: &str, interval_ms: u64) -> Vec<(u64, u64, u64)> {
        let interval_ms = interval_ms.max(1);
        let mut samples = Vec::new();
        for line in log.lines().filter(|line| !line.trim().is_empty()) {
            let mut fields = line.split(',').map(|field| field.trim().parse::<u64>());
            let (Some(Ok(at_ms)), Some(Ok(value)), Some(Ok(side))) =
                (fields.next(), fields.next(), fields.next())
            else {
                self.unreadable += 1;
                continue;
            };
            if side < 2 {
                samples.push((rounded(at_ms, interval_ms), value, side));
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

    /// A line with `ios` I/Os in the bin `bin` of 464.
    fn histogram(at_ms: u64, side: u64, bin: usize, ios: u64) -> String {
        let bins: Vec<String> =
            (0..464).map(|at| if at == bin { ios } else { 0 }.to_string()).collect();
        format!("{at_ms}, {side}, 4096, {}\n", bins.join(", "))
    }

    #[test]
    fn histograms_of_jobs_are_added_before_a_percentile_is_taken() {
        let mut series = Series::default();
        // 1,980 fast I/Os in one job, 20 slow ones in another: the p99 of both together is still a
        // fast one.
        series
            .add_histogram(&(histogram(1001, 0, 100, 1980) + &histogram(2000, 0, 100, 900)), 1000);
        series.add_histogram(&(histogram(999, 0, 200, 20) + "1000, 0, 4096, 1, 2\n"), 1000);
        let [read, write] = series.p99();
        assert_eq!(read.len(), 1, "the second interval has too few for a p99: {read:?}");
        assert!(read[0].0 == 1000 && read[0].1 < 5000.0, "{read:?}");
        assert!(write.is_empty() && series.unreadable == 1);
        series.add_histogram(&histogram(1002, 0, 200, 30), 1000);
        assert!(series.p99()[0][0].1 > 50_000.0, "{:?}", series.p99());
    }

    #[test]
    fn jobs_are_added_interval_by_interval_and_kib_become_bytes() {
        let mut series = Series::default();
        series.add(1, "500, 100, 0, 0, 0\n501, 7, 1, 0, 0\n1000, 200, 0, 0, 0\n", 500);
        series.add(2, "499, 50, 0, 0, 0, 0\n1003, 60, 0, 0, 0, 0\ngarbage\n", 500);
        let read: Vec<_> = series.read.clone().into_iter().collect();
        assert_eq!(read, [(500, 153_600.0), (1000, 266_240.0)]);
        assert_eq!(series.write.clone().into_iter().collect::<Vec<_>>(), [(500, 7168.0)]);
        assert_eq!(series.unreadable, 1);
        let second = series.of_jobs(&[2]);
        assert_eq!(second, [vec![(500, 51_200.0), (1000, 61_440.0)], Vec::new()], "job 2 alone");
        assert_eq!(series.of_jobs(&[1, 2])[0], [(500, 153_600.0), (1000, 266_240.0)]);
        assert_eq!(series.of_jobs(&[3]), [const { Vec::new() }; 2]);
    }

    #[test]
    fn latency_is_the_mean_over_jobs_and_never_their_sum() {
        let mut series = Series::default();
        series.add_latency("1000, 2000, 0, 0, 0\n1000, 9, 1, 0, 0\n1000, 5, 2, 0, 0\n", 1000);
        series.add_latency("1002, 4000, 0, 0, 0\n2000, 1000, 0, 0, 0\n", 1000);
        let [read, write] = series.latency();
        assert_eq!(read, [(1000, 3000.0), (2000, 1000.0)]);
        assert_eq!(write, [(1000, 9.0)]);
    }
}
