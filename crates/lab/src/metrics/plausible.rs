//! Whether a figure can be true at all: it keeps its depth (F13) and stays below its ceilings
//! (F14).
//!
//! What must stay true: a figure above a ceiling is never explained away here: it gets an error.

use crate::rules;
use crate::validity::Finding;

/// F13, Little's law: what is in flight on average against what was asked for. A share of 1 is as
/// asked; well below, the client does not keep the depth.
pub fn depth_kept(jobs: u32, depth: u32, iops: f64, latency_mean_ns: f64) -> Option<f64> {
    let asked = f64::from(jobs) * f64::from(depth);
    let in_flight = iops * latency_mean_ns / 1e9;
    (asked > 0.0 && iops > 0.0).then(|| in_flight / asked)
}

/// What F13 has to say about a point.
pub fn little_finding(jobs: u32, depth: u32, iops: f64, latency_mean_ns: f64) -> Option<Finding> {
    let kept = depth_kept(jobs, depth, iops, latency_mean_ns)?;
    let (what, correction) = match kept > 1.0 {
        true => ("rate and latency contradict each other", "measure longer, on an idle machine"),
        false => ("client-limited", "more jobs of less depth, or a faster client core"),
    };
    let rule = rules::of("F13");
    ((kept - 1.0).abs() > rule.limit()).then(|| {
        let (had, asked) = (kept * f64::from(jobs) * f64::from(depth), jobs * depth);
        let said = format!("{had:.0} I/Os were in flight on average, {asked} were asked for");
        rule.finding(format!("{what}: {said}")).but(correction)
    })
}

/// A ceiling and what it is: a link, the media, memory, the layer below.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Ceiling {
    /// `PCIe 3.0 x8 of 0000:3b:00.0`, `raw sum of 10 drives`, `fio on the array`.
    pub name: String,
    pub value: f64,
}

/// Noise that a measured ceiling has, so that a figure at the ceiling is not called impossible.
pub const CEILING_SLACK: f64 = 1.02;

/// F14: what a figure above `ceilings` gets; one finding for the lowest ceiling it breaks.
pub fn ceiling_finding(figure: f64, ceilings: &[Ceiling]) -> Option<Finding> {
    let broken = ceilings
        .iter()
        .filter(|ceiling| figure > ceiling.value * CEILING_SLACK)
        .min_by(|one, other| one.value.total_cmp(&other.value))?;
    Some(rules::of("F14").finding(format!(
        "{:.2} times the ceiling '{}': something else was measured (a cache, a sparse area, \
         compression)",
        figure / broken.value,
        broken.name
    )))
}

#[cfg(test)]
mod tests {
    use super::{Ceiling, ceiling_finding, depth_kept, little_finding};
    use crate::validity::Severity;

    #[test]
    fn a_depth_that_is_kept_says_nothing() {
        assert_eq!(depth_kept(4, 32, 128_000.0, 1e6), Some(1.0));
        assert_eq!(little_finding(4, 32, 128_000.0, 1e6), None);
        let said = |iops| little_finding(4, 32, iops, 1e6).expect("another depth");
        assert_eq!(said(64e3).severity, Severity::Warning);
        assert!(said(64e3).reason.starts_with("client-limited: 64 I/Os were"), "{:?}", said(64e3));
        assert!(!said(256e3).reason.contains("client-limited"), "{:?}", said(256e3));
    }

    #[test]
    fn the_lowest_ceiling_that_is_broken_is_named() {
        let ceilings = [("memory", 70e9), ("link", 8e9), ("media", 40e9)]
            .map(|(name, value)| Ceiling { name: name.to_owned(), value });
        assert!(ceiling_finding(50e9, &ceilings).expect("above").reason.contains("'link'"));
    }
}
