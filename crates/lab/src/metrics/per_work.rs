//! CPU time for each I/O and for each MiB, and the load generator's own part of it.
//!
//! What must stay true: the cost with and without the load generator's part are both kept; the part
//! is measured (the same job on fio's null engine), never assumed. fio's own `usr_cpu` and
//! `sys_cpu` are getrusage() of its processes: they miss what runs elsewhere, so they are a column
//! of the client and a cross-check, never the cost.

use crate::metrics::latency::to_f64;
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

#[cfg(test)]
mod tests {
    use super::PerWork;

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
