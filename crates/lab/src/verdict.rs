//! The limiting factor of a measurement, from evidence, and the experiment that would confirm or
//! refute it.
//!
//! What must stay true: without evidence the verdict is "unknown" and names the next experiment; an
//! invalid figure gets no limiting factor at all; a verdict says which observation it rests on.

use crate::metrics::plausible::depth_kept;
use crate::record::Measurement;
use crate::validity::{Mark, Severity};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Factor {
    /// The figure must not be used, so nothing is said of its limit.
    Invalid,
    /// The load generator did not keep the depth that was asked for.
    Client,
    /// One core is saturated while others idle.
    OneCore,
    AllCores,
    /// The drives do no more.
    Drives,
    Link,
    /// No evidence for any of them.
    Unknown,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    pub factor: Factor,
    /// One sentence for people: what limits, and what shows it.
    pub sentence: String,
    /// The experiment that would confirm or refute it.
    pub next: String,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Evidence<'a> {
    /// What the raw drives do at the same point, in the unit of the figure.
    pub baseline: Option<f64>,
    pub figure: f64,
    /// The fullest link under this load, and the share it carried of what it can.
    pub link: Option<(&'a str, f64)>,
    /// Who burns the busiest core, if stacks were taken: `md0_raid6`.
    pub busiest: Option<&'a str>,
}

/// A core is saturated from here on.
const SATURATED: f64 = 0.95;
/// Cores that strangers may burn before a saturated core may be theirs.
const STRANGERS_MAX: f64 = 0.5;
/// From this share of its ceiling on, a resource is what limits.
const AT_CEILING: f64 = 0.90;
/// Above this share of its BASELINE a figure shows that the baseline was not the best the drives
/// can do, and nothing about a limit.
pub const BASELINE_BELIEVED: f64 = 1.10;
/// Below this share of the depth asked for, the client is what limits.
const DEPTH_KEPT: f64 = 0.80;

pub fn judge(measurement: &Measurement, evidence: &Evidence<'_>) -> Verdict {
    if Mark::of(&measurement.findings) == Mark::Invalid {
        let worst = measurement.findings.iter().find(|it| it.severity == Severity::Error);
        let why = worst.map_or(String::new(), |it| format!("{}: {}", it.rule, it.reason));
        let next = worst.and_then(|finding| finding.correction.clone());
        return verdict(
            Factor::Invalid,
            format!("no verdict, the figure is invalid ({why})"),
            next.unwrap_or_else(|| "correct that and measure again".to_owned()),
        );
    }
    let unknown = || {
        verdict(
            Factor::Unknown,
            "unknown: no core is saturated, the drives could do more, and the depth was kept",
            "double the depth; if the rate stays and latency doubles, \
             take stacks of what is waited for",
        )
    };
    by_link(evidence)
        .or_else(|| by_baseline(evidence))
        .or_else(|| by_cores(measurement, evidence))
        .or_else(|| by_depth(measurement))
        .unwrap_or_else(unknown)
}

fn by_link(evidence: &Evidence<'_>) -> Option<Verdict> {
    let (name, share) = evidence.link?;
    (share >= AT_CEILING).then(|| {
        verdict(
            Factor::Link,
            format!("{name}: it carries {:.0} % of what it can", share * 100.0),
            "spread the drives over another link and measure again",
        )
    })
}

fn by_baseline(evidence: &Evidence<'_>) -> Option<Verdict> {
    let share = evidence.figure / evidence.baseline.filter(|baseline| *baseline > 0.0)?;
    (AT_CEILING..=BASELINE_BELIEVED).contains(&share).then(|| {
        verdict(
            Factor::Drives,
            format!("the drives: the array does {:.0} % of what they allow", share * 100.0),
            "add a drive; the rate should rise by its share",
        )
    })
}

fn by_cores(measurement: &Measurement, evidence: &Evidence<'_>) -> Option<Verdict> {
    let cpu = measurement.cpu.as_ref()?;
    let cores = &cpu.per_core;
    let busy = cores.iter().filter(|share| **share >= SATURATED).count();
    let strangers = if cpu.wall_s > 0.0 { cpu.foreign_s / cpu.wall_s } else { 0.0 };
    let all = f64::from(u32::try_from(cores.len()).ok()?.max(1));
    // A core that a stranger burns is no limit of the engine.
    let mean = (cores.iter().sum::<f64>() - strangers).max(0.0) / all;
    if !cores.is_empty() && mean >= AT_CEILING {
        return Some(verdict(
            Factor::AllCores,
            format!("CPU: all {} cores are {:.0} % busy on average", cores.len(), mean * 100.0),
            "see which function group burns them: 'lab cpu' around the same load",
        ));
    }
    let who = evidence.busiest.map_or(String::new(), |name| format!(" by {name}"));
    (busy > 0 && busy < cores.len() && strangers < STRANGERS_MAX).then(|| {
        verdict(
            Factor::OneCore,
            format!(
                "{busy} of {} cores saturated{who} while all together are {:.0} % busy",
                cores.len(),
                mean * 100.0
            ),
            "see whose core it is: 'lab cpu' around the same load; \
             then give that work more threads",
        )
    })
}

fn by_depth(measurement: &Measurement) -> Option<Verdict> {
    let workload = &measurement.workload;
    let (read, write) = (&measurement.read, &measurement.write);
    let iops = measurement.iops();
    let mean = (read.iops * read.latency_mean_ns + write.iops * write.latency_mean_ns) / iops;
    let kept = depth_kept(workload.jobs, workload.depth, iops, mean)?;
    (kept < DEPTH_KEPT).then(|| {
        verdict(
            Factor::Client,
            format!(
                "the load generator: it kept {:.0} % of the depth it was asked for",
                kept * 100.0
            ),
            "more jobs of less depth, or a second load generator",
        )
    })
}

fn verdict(factor: Factor, sentence: impl Into<String>, next: impl Into<String>) -> Verdict {
    Verdict { factor, sentence: sentence.into(), next: next.into() }
}

#[cfg(test)]
mod tests {
    use super::{Evidence, Factor, judge};
    use crate::record::{CpuCost, Direction, Measurement, Workload};
    use crate::rules;
    use crate::validity::Severity;

    fn measurement(per_core: &[f64]) -> Measurement {
        let mix = "randread".into();
        let workload =
            Workload { mix, block_bytes: 4096, jobs: 1, depth: 32, ..Workload::default() };
        let read = Direction { iops: 32_000.0, latency_mean_ns: 1e6, ..Direction::default() };
        let cpu = Some(CpuCost { per_core: per_core.to_vec(), ..CpuCost::default() });
        Measurement { workload, read, cpu, ..Measurement::default() }
    }

    #[test]
    fn what_is_at_its_ceiling_limits_links_and_drives_before_cores() {
        let none = Evidence::default();
        let drives = Evidence { baseline: Some(33_000.0), figure: 32_000.0, ..none };
        let link = Evidence { link: Some(("PCIe 3.0 x4 of c1", 0.94)), ..drives };
        // Far above its BASELINE a figure does not say that the drives limit.
        let beyond = Evidence { baseline: Some(6_000.0), ..drives };
        let foreign = |seconds: f64, per_core: [f64; 2]| {
            let mut it = measurement(&per_core);
            let cpu = it.cpu.as_mut().expect("taken");
            (cpu.foreign_s, cpu.wall_s) = (seconds, 10.0);
            it
        };
        let mut starved = measurement(&[0.5, 0.5]);
        starved.read.latency_mean_ns = 0.4e6;
        for (measured, evidence, factor, said) in [
            (measurement(&[1.0, 0.2]), link, Factor::Link, "PCIe 3.0 x4 of c1: it carries 94 %"),
            (measurement(&[1.0, 0.2]), drives, Factor::Drives, "the array does 97 %"),
            (measurement(&[0.97, 0.95]), none, Factor::AllCores, "all 2 cores are 96 % busy"),
            (measurement(&[0.3, 0.3]), beyond, Factor::Unknown, "unknown"),
            (measurement(&[0.3, 0.3]), none, Factor::Unknown, "the depth was kept"),
            (starved, none, Factor::Client, "it kept 40 %"),
            // A core that a stranger burns is no limit of the engine.
            (foreign(9.0, [1.0, 0.3]), none, Factor::Unknown, "unknown"),
            (foreign(9.0, [0.97, 0.9]), none, Factor::Unknown, "unknown"),
            (foreign(0.2, [1.0, 0.3]), none, Factor::OneCore, "1 of 2 cores saturated"),
        ] {
            let verdict = judge(&measured, &evidence);
            assert_eq!(verdict.factor, factor, "{said}: {verdict:?}");
            assert!(verdict.sentence.contains(said), "{said}: {verdict:?}");
        }
    }

    /// Seed 000: about 1 GB/s, 92.7 % idle overall, one core 93.7 % to 100 % busy with md0_raid6.
    #[test]
    fn one_saturated_thread_is_named_although_the_average_is_low() {
        let mut cores = vec![0.02; 16];
        cores[4] = 1.0;
        let evidence = Evidence { busiest: Some("md0_raid6"), ..Evidence::default() };
        let verdict = judge(&measurement(&cores), &evidence);
        assert_eq!(verdict.factor, Factor::OneCore);
        assert!(verdict.sentence.contains("1 of 16 cores saturated by md0_raid6"), "{verdict:?}");
        assert!(verdict.sentence.contains("8 % busy"), "{verdict:?}");
    }

    #[test]
    fn an_invalid_figure_has_no_limiting_factor() {
        let mut impossible = measurement(&[1.0, 1.0]);
        let above = rules::of("F14").finding_as(Severity::Error, "above the ceiling");
        impossible.findings.push(above);
        let verdict = judge(&impossible, &Evidence::default());
        assert_eq!(verdict.factor, Factor::Invalid);
        assert!(verdict.sentence.contains("F14"));
    }
}
