//! How latency is measured: L12, L13, L14.

use super::super::{Case, Rule};
use crate::metrics::latency::{BEYOND_MIN, to_f64};
use crate::validity::Severity::{Error, Warning};

pub(super) static RULES: [Rule; 3] = [
    Rule {
        id: "L12",
        title: "several jobs without group_reporting",
        severity: Warning,
        why: "Each job then has its own percentiles, and percentiles cannot be averaged. The lab \
              adds the json+ bins of all jobs; whoever reads fio's own text will be misled.",
        bad: "[a]\nfilename=f\nrw=randread\nnumjobs=8\n",
        good: "[a]\nfilename=f\nrw=randread\nnumjobs=8\ngroup_reporting\n",
        check: grouped,
    },
    Rule {
        id: "L13",
        title: "latency is not measured",
        severity: Error,
        why: "gtod_reduce, disable_lat and disable_clat turn latency off. IOPS without latency \
              cannot be judged: Little's law cannot be checked and p99.9 is not there.",
        bad: "[a]\nfilename=f\ngtod_reduce=1\n",
        good: "[a]\nfilename=f\n",
        check: measured,
    },
    Rule {
        id: "L14",
        title: "no p99.9, or too few I/Os for it",
        severity: Warning,
        why: "Engines are compared by p99.9. It needs to be in percentile_list, \
              and 10,000 I/Os before ten of them lie beyond it.",
        bad: "[a]\nfilename=f\npercentile_list=50:95:99\n",
        good: "[a]\nfilename=f\npercentile_list=50:99:99.9\n",
        check: percentiles,
    },
];

fn grouped(case: &mut Case<'_>) {
    for job in case.jobs() {
        let copies = job.count("numjobs", 1);
        // fio does not repeat the flag in results, but a grouped job is there once.
        let entries = case
            .subject
            .result
            .as_ref()
            .map(|result| result.jobs.iter().filter(|ran| ran.name == job.name).count());
        let grouped = job.is_on("group_reporting") || entries == Some(1);
        if copies > 1 && !grouped {
            let reason = format!(
                "{copies} jobs are reported one by one: their percentiles cannot be averaged"
            );
            case.say(job, "numjobs", reason, "group_reporting");
        }
    }
}

fn measured(case: &mut Case<'_>) {
    for job in case.jobs() {
        for key in ["gtod_reduce", "disable_lat", "disable_clat"] {
            if job.is_on(key) {
                case.say(job, key, format!("{key} turns latency off"), format!("{key}=0"));
            }
        }
    }
}

fn percentiles(case: &mut Case<'_>) {
    for job in case.jobs() {
        let has = |list: &str| {
            list.split(':')
                .filter_map(|part| part.trim().parse::<f64>().ok())
                .any(|p| (p - 99.9).abs() < 1e-6)
        };
        if let Some(list) = job.get("percentile_list").filter(|list| !has(list)) {
            let reason = format!("p99.9 is not among {list}");
            case.say(job, "percentile_list", reason, format!("percentile_list={list}:99.9"));
        }
    }
    let Some(result) = &case.subject.result else { return };
    let ios: u64 = result.jobs.iter().map(|ran| ran.read.ios.max(ran.write.ios)).sum();
    if to_f64(ios) * 0.001 < BEYOND_MIN
        && let Some(job) = case.jobs().first()
    {
        let reason = format!("{ios} I/Os: fewer than ten lie beyond p99.9");
        case.say(job, "runtime", reason, "run longer, or give no p99.9");
    }
}
