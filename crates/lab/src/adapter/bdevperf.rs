//! What SPDK's bdevperf prints, as the figures of a measurement: a table with one line for each job and a total.
//!
//! What must stay true: it gives means, a smallest and a largest latency and no histogram, so no percentile is made of it.

use crate::record::Direction;
use crate::refusal::Refusal;

/// What bdevperf measured, over all jobs.
#[derive(Clone, PartialEq, Debug)]
pub struct Perf {
    /// I/Os a second.
    pub iops: f64,
    /// MiB a second, as it is printed.
    pub mib_per_s: f64,
    /// I/Os that failed, a second.
    pub failed_per_s: f64,
    /// Mean latency, nanoseconds.
    pub latency_mean_ns: f64,
}

impl Perf {
    /// The total of what bdevperf printed. Columns are found by their names: they differ by version.
    ///
    /// # Errors
    /// There is no total in it, or no head.
    pub fn parse(text: &str) -> Result<Perf, Refusal> {
        let unreadable = |what: &str| {
            let said = format!("bdevperf: {what}; its output is kept");
            Refusal::cannot_run("bdevperf.unreadable", said, "see whether it ran to its end")
        };
        let heads = text.lines().find(|line| line.contains("IOPS") && line.contains("Average"));
        let heads: Vec<&str> =
            heads.ok_or_else(|| unreadable("no table"))?.split_whitespace().collect();
        let total = text.lines().rfind(|line| {
            line.split_once("Total")
                .is_some_and(|(before, _)| before.trim_matches([' ', '\r']).is_empty())
        });
        let total = total.ok_or_else(|| unreadable("no total"))?;
        let numbers: Vec<f64> = total
            .split([':', ' ', '\t'])
            .filter_map(|part| part.parse().ok())
            .filter(|number: &f64| number.is_finite())
            .collect();
        // The head names the columns of the device and of its run time first; the total has only those from IOPS on.
        let first = heads.iter().position(|head| *head == "IOPS").unwrap_or(0);
        let column = |name: &str| {
            let at = heads.iter().skip(first).position(|head| *head == name)?;
            numbers.get(at).copied()
        };
        Ok(Perf {
            iops: column("IOPS").ok_or_else(|| unreadable("no IOPS"))?,
            mib_per_s: column("MiB/s").ok_or_else(|| unreadable("no MiB/s"))?,
            failed_per_s: column("Fail/s").unwrap_or(0.0),
            latency_mean_ns: column("Average").unwrap_or(0.0) * 1e3,
        })
    }

    /// As one direction of a measurement of `seconds`.
    pub fn direction(&self, seconds: f64) -> Direction {
        let bytes_per_s = self.mib_per_s * f64::from(1 << 20);
        let whole = |value: f64| format!("{:.0}", value.max(0.0)).parse().unwrap_or(0);
        Direction {
            bytes: whole(bytes_per_s * seconds),
            ios: whole(self.iops * seconds),
            bytes_per_s,
            iops: self.iops,
            latency_mean_ns: self.latency_mean_ns,
            ..Direction::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Perf;

    /// In the format of its documentation; the numbers are made up.
    const TABLE: &str = "\
Running I/O for 5 seconds...

                                                                                                Latency(us)
 Device Information                     : runtime(s)       IOPS      MiB/s     Fail/s     TO/s    Average        min        max
 Job: lab (Core Mask 0x1, workload: randread, depth: 32, IO size: 4096)
	 lab                                 :       5.00   81920.00     320.00       0.00       0.00     390.25     101.10    5021.33
 ===================================================================================================================
 Total                                  :              81920.00     320.00       0.00       0.00     390.25     101.10    5021.33
";

    #[test]
    fn the_total_is_read_by_the_names_of_its_columns() {
        let perf = Perf::parse(TABLE).expect("a table");
        assert_eq!((perf.iops, perf.mib_per_s, perf.failed_per_s), (81_920.0, 320.0, 0.0));
        let direction = perf.direction(5.0);
        assert_eq!((direction.ios, direction.bytes), (409_600, (5 * 320) << 20));
        assert!((direction.latency_mean_ns - 390_250.0).abs() < 1e-6);
        assert!(direction.latency_bins.is_empty(), "no histogram, no percentile");
    }

    #[test]
    fn what_has_no_table_or_no_total_is_refused() {
        assert!(Perf::parse("").is_err());
        let cut = TABLE.split(" ====").next().expect("a part");
        assert_eq!(Perf::parse(cut).expect_err("cut off").exit_code(), 2);
    }
}
