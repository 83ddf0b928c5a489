//! fio's bandwidth logs (`write_bw_log`, `log_avg_msec`), one for each job, added into one series.
//!
//! What must stay true: values are KiB a second in the log and bytes a second here; samples of different jobs that fall
//! into the same interval are added. fio loses the last, partial interval; it is not made up.

use std::collections::BTreeMap;

/// Bandwidth over time of reads and of writes: interval's end, milliseconds since the start -> bytes a second.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Series {
    /// Of reads.
    pub read: BTreeMap<u64, f64>,
    /// Of writes.
    pub write: BTreeMap<u64, f64>,
    /// Lines that could not be read.
    pub unreadable: usize,
}

impl Series {
    /// Add the log of one job, whose samples are averages over `interval_ms`.
    pub fn add(&mut self, log: &str, interval_ms: u64) {
        let interval_ms = interval_ms.max(1);
        for line in log.lines().filter(|line| !line.trim().is_empty()) {
            let mut fields = line.split(',').map(|field| field.trim().parse::<u64>());
            let (Some(Ok(at_ms)), Some(Ok(kib_per_s)), Some(Ok(side))) =
                (fields.next(), fields.next(), fields.next())
            else {
                self.unreadable += 1;
                continue;
            };
            let series = match side {
                0 => &mut self.read,
                1 => &mut self.write,
                _ => continue,
            };
            // Jobs wake up some milliseconds apart: 1001 and 999 are the same second.
            let interval = (at_ms.saturating_add(interval_ms / 2) / interval_ms).max(1);
            *series.entry(interval.saturating_mul(interval_ms)).or_default() +=
                crate::metrics::latency::to_f64(kib_per_s) * 1024.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Series;

    #[test]
    fn jobs_are_added_interval_by_interval_and_kib_become_bytes() {
        let mut series = Series::default();
        series.add("500, 100, 0, 0, 0\n501, 7, 1, 0, 0\n1000, 200, 0, 0, 0\n", 500);
        series.add("499, 50, 0, 0, 0, 0\n1003, 60, 0, 0, 0, 0\ngarbage\n", 500);
        let read: Vec<_> = series.read.into_iter().collect();
        assert_eq!(read, [(500, 153_600.0), (1000, 266_240.0)]);
        assert_eq!(series.write.into_iter().collect::<Vec<_>>(), [(500, 7168.0)]);
        assert_eq!(series.unreadable, 1);
    }
}
