//! CPU time for each I/O and for each MiB, and the load generator's own part of it.
//!
//! What must stay true: the cost with and without the load generator's part are both kept; the part
//! is measured (the same job on fio's null engine), never assumed. fio's own `usr_cpu` and
//! `sys_cpu` are getrusage() of its processes: they miss what runs elsewhere, so they are a column
//! of the client and a cross-check, never the cost.

use crate::metrics::latency::to_f64;
use crate::rules;
use crate::validity::Finding;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PerWork {
    pub ios: u64,
    pub bytes: u64,
    pub busy_ns: f64,
    /// CPU nanoseconds the load generator takes for an I/O that does nothing, if that was measured.
    pub generator_ns_per_io: Option<f64>,
}

impl PerWork {
    /// CPU nanoseconds for each I/O, load generator included. `None` without I/Os.
    pub fn ns_per_io(&self) -> Option<f64> {
        (self.ios > 0).then(|| self.busy_ns / to_f64(self.ios))
    }

    /// CPU nanoseconds for each MiB, load generator included. `None` without bytes.
    pub fn ns_per_mib(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.busy_ns / (to_f64(self.bytes) / f64::from(1 << 20)))
    }

    /// CPU nanoseconds for each I/O without the load generator's. `None` if that was not measured,
    /// or if it is more than the whole: then the two runs do not belong together.
    pub fn net_ns_per_io(&self) -> Option<f64> {
        let net = self.ns_per_io()? - self.generator_ns_per_io?;
        (net >= 0.0).then_some(net)
    }

    /// The same for each MiB.
    pub fn net_ns_per_mib(&self) -> Option<f64> {
        Some(self.net_ns_per_io()? / self.ns_per_io()? * self.ns_per_mib()?)
    }

    /// I/Os a second and bytes a second that one busy core would give.
    pub fn per_core(&self) -> Option<(f64, f64)> {
        let seconds = self.busy_ns / 1e9;
        (seconds > 0.0).then(|| (to_f64(self.ios) / seconds, to_f64(self.bytes) / seconds))
    }
}

/// What fio says about its own CPU at one point of load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClientCpu {
    pub iops: f64,
    /// fio's `usr_cpu`, percent.
    pub user_percent: f64,
    /// fio's `sys_cpu`, percent.
    pub system_percent: f64,
}

/// Points by which `sys_cpu` must fall for it to be said.
const FALL_POINTS: f64 = 2.0;

/// More I/Os and less system time: then fio's figures miss where
/// the work is done.
pub fn inversion(points: &[ClientCpu]) -> Option<Finding> {
    let mut sorted: Vec<&ClientCpu> = points.iter().filter(|it| it.iops.is_finite()).collect();
    sorted.sort_by(|a, b| a.iops.total_cmp(&b.iops));
    let falls = |pair: &&[&ClientCpu]| {
        let more = pair[1].iops > pair[0].iops * 1.05;
        more && pair[0].system_percent - pair[1].system_percent >= FALL_POINTS
    };
    let pair = sorted.windows(2).find(falls)?;
    let reason = format!(
        "fio's sys_cpu falls from {:.1} % to {:.1} % while the load rises from {:.0} to {:.0} \
         IOPS: it counts fio's own processes only, and work done elsewhere is missing",
        pair[0].system_percent, pair[1].system_percent, pair[0].iops, pair[1].iops
    );
    Some(rules::of("A02").finding(reason))
}

#[cfg(test)]
mod tests {
    use super::{ClientCpu, PerWork, inversion};

    fn point(iops: f64, user_percent: f64, system_percent: f64) -> ClientCpu {
        ClientCpu { iops, user_percent, system_percent }
    }

    #[test]
    fn the_seed_s_pair_is_an_inversion() {
        let seed = [
            point(11_926_703.686_729, 14.391_282, 17.735_540),
            point(8_944_953.451_822, 16.879_827, 30.892_042),
        ];
        let finding = inversion(&seed).expect("found");
        assert!(finding.reason.contains("30.9 % to 17.7 %"), "{}", finding.reason);
        assert_eq!(inversion(&[point(8e6, 14.0, 17.7), point(11e6, 16.0, 30.9)]), None);
        // The same load twice is noise, not an inversion.
        assert_eq!(inversion(&[point(8e6, 14.0, 30.0), point(8.1e6, 16.0, 17.0)]), None);
        assert_eq!(inversion(&[]), None);
    }

    #[test]
    fn the_load_generator_s_part_is_shown_and_taken_off() {
        let work = PerWork { ios: 1000, bytes: 128 << 20, busy_ns: 5e6, ..PerWork::default() };
        let less = |ns| PerWork { generator_ns_per_io: Some(ns), ..work };
        assert_eq!((work.ns_per_io(), work.net_ns_per_io()), (Some(5000.0), None));
        assert_eq!(work.ns_per_mib(), Some(5e6 / 128.0));
        assert_eq!(less(1000.0).net_ns_per_io(), Some(4000.0));
        assert_eq!(less(1000.0).net_ns_per_mib(), Some(4e6 / 128.0));
        assert_eq!((less(6000.0).net_ns_per_io(), PerWork::default().ns_per_io()), (None, None));
    }
}
