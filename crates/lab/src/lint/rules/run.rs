//! How long and how it is measured, what else goes on, and what came out: L03, L12 to L15, L22,
//! L23, L28, L29.

use super::super::Case;
use crate::fio::Job;
use crate::fio::result::{JobResult, Side};
use crate::metrics::latency::{BEYOND_MIN, to_f64};
use crate::metrics::plausible;
use crate::validity::Severity::{Error, Info, Warning};

const FLOOR_S: f64 = 60.0;
const PUBLISH_FLOOR_S: f64 = 300.0;

pub(super) fn runtime(case: &mut Case<'_>) {
    let (floor_s, severity) = match case.subject.intent.publish {
        true => (PUBLISH_FLOOR_S, Error),
        false => (FLOOR_S, Warning),
    };
    for job in case.jobs() {
        let correction = format!("time_based\nruntime={floor_s:.0}");
        // fio does not repeat time_based in its results, but says how long it ran.
        let ran_s = case.subject.result.as_ref().map(|result| {
            let own = result.jobs.iter().filter(|ran| ran.name == job.name);
            own.map(|ran| to_f64(ran.read.runtime_ms.max(ran.write.runtime_ms)) / 1000.0)
                .fold(0.0, f64::max)
        });
        let reason = match (ran_s, job.seconds("runtime"), job.is_on("time_based")) {
            (Some(ran_s), ..) if ran_s < floor_s => {
                format!("it ran {ran_s:.1} s; {floor_s:.0} s are the least")
            }
            (Some(_), ..) => continue,
            (None, None, _) => {
                "no runtime: a fast target is measured for a shorter time than a slow one"
                    .to_owned()
            }
            (None, Some(_), false) => {
                "runtime without time_based: the job ends with its size".to_owned()
            }
            (None, Some(s), true) if s < floor_s => {
                format!("runtime of {s} s; {floor_s:.0} s are the least")
            }
            (None, Some(_), true) => continue,
        };
        case.say(job, "runtime", reason).better(correction).weighs(severity);
    }
}

pub(super) fn ramp(case: &mut Case<'_>) {
    for job in case.jobs().iter().filter(|job| job.seconds("ramp_time").unwrap_or(0.0) <= 0.0) {
        let timed = job.is_on("time_based") || job.get("runtime").is_some();
        if timed {
            case.say(job, "ramp_time", "the first seconds are part of the figure");
        }
    }
}

pub(super) fn preconditioning(case: &mut Case<'_>) {
    let intent = &case.subject.intent;
    if intent.preconditioned {
        return;
    }
    let severity = if intent.publish { Error } else { Warning };
    for job in case.jobs().iter().filter(|job| job.writes() && !fills(job)) {
        for (name, facts) in case.targets_of(job) {
            let spins = case.known(job, &facts.rotational, "whether the target is flash");
            if let Some(false) = spins {
                let reason =
                    format!("{name} is flash, and nothing says that it was written whole before");
                case.say(job, "rw", reason).weighs(severity);
            }
        }
    }
}

/// Whether the job is a preconditioning itself: everything, one after the other.
fn fills(job: &Job) -> bool {
    job.mix() == "write"
        && job.seconds("runtime").is_none()
        && matches!(job.get("size"), None | Some("100%"))
}

pub(super) fn background(case: &mut Case<'_>) {
    let Some(job) = case.jobs().first() else { return };
    let going_on = case.known(job, &case.host.background, "whether background work is going on");
    for work in going_on.into_iter().flatten() {
        case.say(job, "", format!("background work is going on: {work}"));
    }
}

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
            case.say(job, "numjobs", reason);
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

/// Share of the time at the asked depth below which it was not kept, percent.
const KEPT_PERCENT: f64 = 90.0;

pub(super) fn errors(case: &mut Case<'_>) {
    let Some(result) = &case.subject.result else { return };
    let jobs = case.jobs();
    for (job, ran) in jobs.iter().zip(&result.jobs) {
        if ran.error != 0 {
            let errno = i32::try_from(ran.error).map(rustix::io::Errno::from_raw_os_error);
            let name =
                errno.map_or_else(|_| format!("error {}", ran.error), |errno| errno.to_string());
            case.say(job, "", format!("fio ended with an error: {name}"))
                .better("find its cause, then measure again");
        }
        for (what, side) in [("reads", &ran.read), ("writes", &ran.write)] {
            if side.short_ios + side.dropped_ios > 0 {
                let reason = format!(
                    "{} {what} were short, {} were given up",
                    side.short_ios, side.dropped_ios
                );
                case.say(job, "", reason)
                    .better("measure an area that exists, with block sizes that fit");
            }
        }
        let entries = result.jobs.iter().filter(|other| other.name == ran.name).count();
        // Copies that are reported one by one have the sums of one job each.
        let copies = if entries > 1 { 1 } else { job.count("numjobs", 1) };
        if let Some(reason) = depth_lost(job, ran, copies) {
            case.say(job, "iodepth", reason)
                .better("more jobs of less depth, direct=1, a faster client core");
        }
    }
}

/// What says that the depth was not kept, if something does. Rates and think time lower it on
/// purpose.
fn depth_lost(job: &Job, ran: &JobResult, copies: u64) -> Option<String> {
    let paced = ["rate", "rate_iops", "thinktime", "latency_target", "iodepth_batch"];
    let depth = u32::try_from(job.count("iodepth", 1)).ok().filter(|depth| *depth > 1)?;
    if paced.iter().any(|key| job.get(key).is_some()) {
        return None;
    }
    // Levels are powers of two; 64 stands for everything above.
    let level = if depth >= 64 { ">=64".to_owned() } else { (1_u32 << depth.ilog2()).to_string() };
    let kept = ran.depth_percent.get(&level).copied();
    if let Some(kept) = kept.filter(|kept| *kept < KEPT_PERCENT) {
        return Some(format!("depth {depth} was kept {kept:.0} % of the time"));
    }
    let copies = u32::try_from(copies).ok()?;
    let only = |one: &Side, other: &Side| {
        (other.ios == 0 && one.total.samples > 0).then_some((one.iops, one.total.mean_ns))
    };
    let (iops, mean_ns) = only(&ran.read, &ran.write).or_else(|| only(&ran.write, &ran.read))?;
    let little = plausible::little_finding(copies, depth, iops, mean_ns)?;
    Some(little.reason)
}

pub(super) fn ceilings(case: &mut Case<'_>) {
    let Some(result) = &case.subject.result else { return };
    let ceilings = &case.subject.intent.ceilings;
    let Some(job) = case.jobs().first() else { return };
    if ceilings.is_empty() {
        let why = "none was given (--ceiling NAME=BYTES)";
        return case.cannot_tell(job, "whether the result is above a ceiling", why);
    }
    let all: f64 = result.jobs.iter().map(|ran| ran.read.bytes_per_s + ran.write.bytes_per_s).sum();
    if let Some(finding) = plausible::ceiling_finding(all, ceilings) {
        let severity = finding.severity.max(Info);
        case.say(job, "", finding.reason)
            .better(finding.correction.unwrap_or_default())
            .weighs(severity);
    }
}
