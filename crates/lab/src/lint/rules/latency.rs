//! How latency is measured: L12, L13, L14.

use super::super::Case;
use crate::metrics::latency::{BEYOND_MIN, to_f64};

pub(super) fn grouped(case: &mut Case<'_>) {
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
            case.say(job, "numjobs", reason).better("group_reporting");
        }
    }
}

pub(super) fn measured(case: &mut Case<'_>) {
    for job in case.jobs() {
        for key in ["gtod_reduce", "disable_lat", "disable_clat"] {
            if job.is_on(key) {
                case.say(job, key, format!("{key} turns latency off")).better(format!("{key}=0"));
            }
        }
    }
}

pub(super) fn percentiles(case: &mut Case<'_>) {
    for job in case.jobs() {
        let has = |list: &str| {
            list.split(':')
                .filter_map(|part| part.trim().parse::<f64>().ok())
                .any(|p| (p - 99.9).abs() < 1e-6)
        };
        if let Some(list) = job.get("percentile_list").filter(|list| !has(list)) {
            let reason = format!("p99.9 is not among {list}");
            case.say(job, "percentile_list", reason).better(format!("percentile_list={list}:99.9"));
        }
    }
    let Some(result) = &case.subject.result else { return };
    let ios: u64 = result.jobs.iter().map(|ran| ran.read.ios.max(ran.write.ios)).sum();
    if to_f64(ios) * 0.001 < BEYOND_MIN
        && let Some(job) = case.jobs().first()
    {
        let reason = format!("{ios} I/Os: fewer than ten lie beyond p99.9");
        case.say(job, "runtime", reason).better("run longer, or give no p99.9");
    }
}
