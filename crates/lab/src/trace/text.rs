//! How a trace's account looks in a terminal: `templates/trace.txt`.

use super::account::{DeviceAccount, Flow, TraceAccount, percent};
use crate::metrics::latency::to_f64;
use crate::validity::Mark;
use askama::Template;
use std::cmp::Reverse;

/// Rows of a histogram; the rest is summed.
const ROWS: usize = 12;

#[derive(Template)]
#[template(path = "trace.txt")]
struct Page<'a> {
    account: &'a TraceAccount,
}

pub fn text(account: &TraceAccount) -> String {
    Page { account }.to_string()
}

impl DeviceAccount {
    fn flows(&self) -> impl Iterator<Item = (&'static str, &Flow)> {
        let flows = [
            ("submitted writes", &self.submitted_writes),
            ("issued writes", &self.issued_writes),
            ("submitted reads", &self.submitted_reads),
            ("issued reads", &self.issued_reads),
        ];
        flows.into_iter().filter(|it| it.1.ios > 0)
    }

    fn submitted(&self) -> u64 {
        self.submitted_writes.ios + self.submitted_reads.ios
    }

    fn split_share(&self) -> f64 {
        percent(self.splits, self.submitted())
    }
}

impl Flow {
    fn mib(&self) -> f64 {
        to_f64(self.bytes) / f64::from(1 << 20)
    }

    fn share(&self, ios: &u64) -> f64 {
        percent(*ios, self.ios)
    }

    fn bar(&self, ios: &u64) -> String {
        let share = self.share(ios);
        "#".repeat((0..50).filter(|at| f64::from(*at) * 2.0 < share).count())
    }

    /// Off which boundaries how many are.
    fn off(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let strips = [("strip", self.off_strip), ("full stripe", self.off_stripe)];
        let known = strips.into_iter().filter_map(|(what, ios)| Some((what, ios?)));
        std::iter::once(("4 KiB", self.off_4k)).chain(known)
    }

    /// Sizes in KiB and how often they came, the most frequent first.
    fn sizes_by_count(&self) -> Vec<(f64, u64)> {
        let mut sizes: Vec<(u64, u64)> =
            self.sizes.iter().map(|(size, ios)| (*size, *ios)).collect();
        sizes.sort_by_key(|it| Reverse(it.1));
        sizes.into_iter().map(|(bytes, ios)| (to_f64(bytes) / 1024.0, ios)).collect()
    }

    fn rest(&self) -> u64 {
        self.sizes_by_count().iter().skip(ROWS).map(|it| it.1).sum()
    }
}
