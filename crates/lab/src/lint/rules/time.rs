//! Too short, too early, too much else going on: L03, L15, L22, L23.

use super::super::Case;
use crate::fio::Job;
use crate::metrics::latency::to_f64;
use crate::validity::Severity::{Error, Warning};

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
            case.say(job, "ramp_time", "the first seconds are part of the figure")
                .better("ramp_time=10");
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
                let correction = "run a precondition stage first, then give --preconditioned";
                case.say(job, "rw", reason).better(correction).weighs(severity);
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
        case.say(job, "", format!("background work is going on: {work}"))
            .better("wait until it has ended, or name the result after it");
    }
}
