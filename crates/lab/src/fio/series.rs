//! fio's logs over time (`write_bw_log`, `write_lat_log`, `log_avg_msec`, `write_hist_log`), one
//! for each job: bandwidth is added into one series, of latency the mean over jobs is taken, and
//! percentiles come from the jobs' histograms, added.
//!
//! What must stay true: values are KiB a second in the log and bytes a second here; samples of
//! different jobs that fall into the same interval are added. fio loses the last, partial interval;
//! it is not made up. No line makes this panic; a histogram with another number of bins than fio 3
//! writes is not guessed at.

use crate::metrics::latency::{self, Bins, to_f64};
use std::collections::BTreeMap;

/// Bins of a full histogram in fio 3: 64 of one nanosecond, then 64 for each doubling.
const BINS: usize = 29 * STEPS;
/// Bins of one doubling.
const STEPS: usize = 64;
/// Coarser than this (`log_hist_coarseness`) fio does not write.
const COARSENESS_MAX: u32 = 6;

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
    /// Completion latencies of all jobs.
    histograms: OverTime<Bins>,
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

    /// Add the histogram log of one job, whose lines are the I/Os of `interval_ms` each:
    /// `1001, 0, 4096, 0, 0, 17, ...`.
    pub fn add_histogram(&mut self, log: &str, interval_ms: u64) {
        for line in log.lines().filter(|line| !line.trim().is_empty()) {
            match histogram(line) {
                Some((at_ms, side, bins)) => {
                    if let Some(own) = self.histograms.get_mut(side) {
                        let at_ms = rounded(at_ms, interval_ms.max(1));
                        latency::merge(own.entry(at_ms).or_default(), &bins);
                    }
                }
                None => self.unreadable += 1,
            }
        }
    }

    /// p99 of completion latency over time, nanoseconds. Intervals with too few I/Os for it are
    /// missing.
    pub fn p99(&self) -> Curves {
        let p99 = |(at, bins): (&u64, &Bins)| Some((*at, to_f64(latency::percentile(bins, 0.99)?)));
        [0, 1].map(|side| self.histograms[side].iter().filter_map(p99).collect())
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

/// Time, side and bins of a line of a histogram log: latency in nanoseconds, the middle of its bin
/// -> I/Os. `None` if it is no such line.
fn histogram(line: &str) -> Option<(u64, usize, Bins)> {
    let mut fields = line.split(',').map(|field| field.trim().parse::<u64>().ok());
    let (at_ms, side, _block) = (fields.next()??, fields.next()??, fields.next()??);
    let counts: Vec<u64> = fields.collect::<Option<_>>()?;
    let coarseness = (0..=COARSENESS_MAX).find(|by| BINS >> by == counts.len())?;
    let middle = |at: usize| {
        let (from, to) = (begin(at << coarseness), begin((at + 1) << coarseness));
        from + (to - from) / 2
    };
    let bins = counts.into_iter().enumerate().filter(|(_, ios)| *ios > 0);
    Some((at_ms, usize::try_from(side).ok()?, bins.map(|(at, ios)| (middle(at), ios)).collect()))
}

/// Where the full histogram's bin `at` begins, nanoseconds.
fn begin(at: usize) -> u64 {
    let doublings = (at / STEPS).saturating_sub(1);
    let steps = if at < STEPS { at } else { STEPS + at % STEPS };
    u64::try_from(steps << doublings).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{BINS, Series, begin, histogram};
    use proptest::prelude::*;

    /// A line with `ios` I/Os in the bin `bin` of so many.
    fn line(at_ms: u64, count: usize, bin: usize, ios: u64) -> String {
        let bins: Vec<String> =
            (0..count).map(|at| if at == bin { ios } else { 0 }.to_string()).collect();
        format!("{at_ms}, 0, 4096, {}\n", bins.join(", "))
    }

    #[test]
    fn bins_begin_where_those_of_json_plus_do_and_coarse_ones_lie_around_them() {
        let read = |count, bin| histogram(&line(2001, count, bin, 7)).unwrap().2;
        // Middles that fio 3.33 printed as keys of its json+ bins.
        for (bin, middle) in [(562, 14_656), (584, 18_560), (599, 22_400)] {
            assert_eq!(read(BINS, bin), [(middle, 7)].into());
        }
        assert!((1..=BINS).all(|at| begin(at) > begin(at - 1)), "no bin is empty or goes back");
        let coarse = read(BINS / 4, 585 / 4).into_iter().next().unwrap();
        assert!((begin(584)..begin(588)).contains(&coarse.0) && coarse.1 == 7, "{coarse:?}");
    }

    #[test]
    fn histograms_of_jobs_are_added_before_a_percentile_is_taken() {
        let mut series = Series::default();
        // 1,980 fast I/Os in one job, 20 slow ones in another: the p99 of both together is still a
        // fast one.
        series.add_histogram(&(line(1001, 464, 100, 1980) + &line(2000, 464, 100, 900)), 1000);
        series.add_histogram(&(line(999, 464, 200, 20) + "1000, 0, 4096, 1, 2\n"), 1000);
        let [read, write] = series.p99();
        assert_eq!(read.len(), 1, "the second interval has too few for a p99: {read:?}");
        assert!(read[0].0 == 1000 && read[0].1 < 5000.0, "{read:?}");
        assert!(write.is_empty() && series.unreadable == 1);
        series.add_histogram(&line(1002, 464, 200, 30), 1000);
        assert!(series.p99()[0][0].1 > 50_000.0, "{:?}", series.p99());
    }

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

    proptest! {
        #[test]
        fn no_line_makes_it_panic(
            text in "([0-9]{0,22},? ?|[a-z,]{0,3}){0,60}",
            count in 0usize..2000,
        ) {
            drop(histogram(&text));
            let whole = format!("1, 0, 1{}", ", 18446744073709551615".repeat(count));
            let is_whole = (0..=6).any(|by| BINS >> by == count);
            prop_assert_eq!(histogram(&whole).is_some(), is_whole);
        }
    }
}
