//! What the arrays did in the last hour: totals at moments, and rates between them.
//!
//! What must stay true: totals come from the status that the metrics are made from, so the page and
//! a scrape agree. The ring has a bound. A counter that shrank belongs to an array that was started
//! anew: it counts from zero. Times are handed in.

use ashlar_api::v1::array::ArrayStatus;
use ashlar_api::v1::status::Status;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time between two samples.
pub const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// What the page shows.
pub const SHOWN_MS: u64 = 3_600_000;
/// One more than there are intervals in what is shown.
const SAMPLES_MAX: usize = 361;

/// The ring of samples, oldest first.
#[derive(Debug, Default)]
pub struct History(VecDeque<Sample>);

#[derive(Debug)]
struct Sample {
    at_ms: u64,
    /// By UUID: a name may be another array's later.
    arrays: BTreeMap<String, Totals>,
}

/// What an array did since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Totals {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
    timed_reads: u64,
    read_us: u64,
    timed_writes: u64,
    write_us: u64,
}

/// What an array did between two samples. Figures are those of one second, times are means.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// When it ended.
    pub at_ms: u64,
    /// Client reads.
    pub reads: f64,
    /// Client writes.
    pub writes: f64,
    /// Bytes of client reads.
    pub read_bytes: f64,
    /// Bytes of client writes.
    pub write_bytes: f64,
    /// Microseconds of a read; `None` if there was none.
    pub read_us: Option<f64>,
    /// Microseconds of a write; `None` if there was none.
    pub write_us: Option<f64>,
}

impl Totals {
    fn of(array: &ArrayStatus) -> Totals {
        let counters = &array.counters;
        Totals {
            reads: counters.reads,
            read_bytes: counters.read_bytes,
            writes: counters.writes,
            write_bytes: counters.write_bytes,
            timed_reads: array.read_latency.count,
            read_us: array.read_latency.us_sum,
            timed_writes: array.write_latency.count,
            write_us: array.write_latency.us_sum,
        }
    }

    fn figures(self) -> [u64; 8] {
        [
            self.reads,
            self.read_bytes,
            self.writes,
            self.write_bytes,
            self.timed_reads,
            self.read_us,
            self.timed_writes,
            self.write_us,
        ]
    }

    /// What was added to `before`.
    fn since(self, before: Totals) -> Totals {
        let pairs = self.figures().into_iter().zip(before.figures());
        if pairs.into_iter().any(|(now, before)| now < before) {
            return self;
        }
        Totals {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            writes: self.writes - before.writes,
            write_bytes: self.write_bytes - before.write_bytes,
            timed_reads: self.timed_reads - before.timed_reads,
            read_us: self.read_us - before.read_us,
            timed_writes: self.timed_writes - before.timed_writes,
            write_us: self.write_us - before.write_us,
        }
    }

    /// As rates over so many milliseconds.
    fn over(self, at_ms: u64, span_ms: u64) -> Rates {
        let a_second = |count: u64| figure(count) * 1000.0 / figure(span_ms);
        let mean = |sum: u64, count: u64| (count > 0).then(|| figure(sum) / figure(count));
        Rates {
            at_ms,
            reads: a_second(self.reads),
            writes: a_second(self.writes),
            read_bytes: a_second(self.read_bytes),
            write_bytes: a_second(self.write_bytes),
            read_us: mean(self.read_us, self.timed_reads),
            write_us: mean(self.write_us, self.timed_writes),
        }
    }
}

/// A count for drawing: beyond 53 bits the last ones are lost.
pub fn figure(count: u64) -> f64 {
    count as f64
}

impl History {
    /// Take a sample. Moments only rise.
    pub fn take(&mut self, at_ms: u64, status: &Status) {
        if self.0.back().is_some_and(|last| at_ms <= last.at_ms) {
            return;
        }
        let arrays = status.arrays.iter().map(|it| (it.uuid.clone(), Totals::of(it))).collect();
        self.0.push_back(Sample { at_ms, arrays });
        let oldest_ms = at_ms.saturating_sub(SHOWN_MS);
        while self.0.len() > SAMPLES_MAX || self.0.front().is_some_and(|it| it.at_ms < oldest_ms) {
            self.0.pop_front();
        }
    }

    /// What an array did between every two samples, oldest first; `None` where it did not run.
    pub fn of(&self, uuid: &str) -> Vec<Option<Rates>> {
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        let rates = pairs.map(|(one, next)| {
            let (before, now) = (one.arrays.get(uuid)?, next.arrays.get(uuid)?);
            Some(now.since(*before).over(next.at_ms, next.at_ms - one.at_ms))
        });
        rates.collect()
    }

    /// How many minutes to show: 5 at first, an hour in the end.
    pub fn minutes(&self) -> u64 {
        let oldest_ms = self.0.front().map_or(0, |sample| sample.at_ms);
        let taken_ms = self.newest_ms() - oldest_ms;
        let mut steps = [5, 15, 30].into_iter();
        steps.find(|step| taken_ms <= step * 60_000).unwrap_or(SHOWN_MS / 60_000)
    }

    /// When the newest sample was taken.
    pub fn newest_ms(&self) -> u64 {
        self.0.back().map_or(0, |sample| sample.at_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::{History, SAMPLES_MAX, SHOWN_MS};
    use crate::metrics::openmetrics;
    use crate::page::made_up::{array, status};
    use ashlar_api::v1::status::Status;

    fn with(uuid: &str, reads: u64, bytes: u64, us: u64) -> Status {
        let mut one = array("tank0");
        one.uuid = uuid.to_owned();
        one.counters.reads = reads;
        one.counters.read_bytes = bytes;
        one.read_latency.count = reads;
        one.read_latency.us_sum = us;
        status(vec![one])
    }

    #[test]
    fn rates_are_differences_over_the_time_that_passed() {
        let mut history = History::default();
        history.take(1000, &with("u", 100, 4096, 5000));
        history.take(11_000, &with("u", 300, 413_696, 25_000));
        history.take(31_000, &with("u", 300, 413_696, 25_000));
        let rates: Vec<_> = history.of("u").into_iter().map(|it| it.expect("it ran")).collect();
        assert_eq!((rates[0].reads, rates[0].read_bytes), (20.0, 40_960.0));
        assert_eq!((rates[0].read_us, rates[0].write_us), (Some(100.0), None));
        assert_eq!((rates[1].reads, rates[1].read_us), (0.0, None), "20 s without a read");
        assert_eq!(history.newest_ms(), 31_000);
    }

    #[test]
    fn an_array_that_was_started_anew_counts_from_zero() {
        let mut history = History::default();
        history.take(0, &with("u", 1000, 9000, 70));
        history.take(10_000, &with("u", 50, 500, 100));
        let rates = history.of("u")[0].expect("it ran at both");
        assert_eq!((rates.reads, rates.read_bytes, rates.read_us), (5.0, 50.0, Some(2.0)));
    }

    #[test]
    fn where_an_array_did_not_run_there_is_a_gap_and_its_name_gives_it_no_past() {
        let mut history = History::default();
        history.take(0, &with("u", 10, 0, 0));
        history.take(10_000, &with("another", 90, 0, 0));
        history.take(20_000, &with("u", 30, 0, 0));
        history.take(30_000, &with("u", 40, 0, 0));
        let reads: Vec<_> = history.of("u").iter().map(|it| it.map(|it| it.reads)).collect();
        assert_eq!(reads, [None, None, Some(1.0)]);
        assert_eq!(history.of("another"), [None, None, None]);
    }

    #[test]
    fn the_ring_keeps_an_hour_and_no_more() {
        let mut history = History::default();
        for sample in 0..1000 {
            history.take(sample * 10_000, &with("u", sample, 0, 0));
        }
        assert_eq!(history.of("u").len(), SAMPLES_MAX - 1);
        // A clock that stands still adds nothing; after a long sleep the past is gone.
        history.take(9_990_000, &with("u", 0, 0, 0));
        assert_eq!(history.of("u").len(), SAMPLES_MAX - 1);
        assert_eq!(history.minutes(), 60);
        history.take(9_990_000 + SHOWN_MS + 1, &with("u", 0, 0, 0));
        assert_eq!(history.minutes(), 5);
        assert_eq!(history.of("u").len(), 0);
    }

    #[test]
    fn totals_are_those_of_a_scrape() {
        let status = with("u", 77, 315_392, 1_500_000);
        let mut history = History::default();
        history.take(0, &with("u", 0, 0, 0));
        history.take(1000, &status);
        let rates = history.of("u")[0].expect("it ran");
        let scrape = openmetrics(&status);
        for (name, value) in [
            ("ashlar_array_reads_total", rates.reads),
            ("ashlar_array_read_bytes_total", rates.read_bytes),
        ] {
            let line = format!("{name}{{array=\"tank0\"}} {value}\n");
            assert!(scrape.contains(&line), "{line} is not in {scrape}");
        }
    }
}
