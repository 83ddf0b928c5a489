//! Results: L28, L29.

use super::super::Case;
use crate::fio::Job;
use crate::fio::result::{JobResult, Side};
use crate::metrics::plausible;
use crate::validity::Severity::Info;

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
