//! What is read, what is destroyed, what is durable: L08, L18, L19.

use super::super::machine::{Kind, TargetFacts};
use super::super::{Case, subject};
use crate::fio::Job;
use crate::validity::Severity::Warning;

pub(super) fn unwritten(case: &mut Case<'_>) {
    let jobs = case.jobs();
    for (at, job) in
        jobs.iter().enumerate().filter(|(_, job)| job.reads() && job.engine() != "null")
    {
        if job.get("filename").is_none() {
            let why = "the job names no file; fio makes one up and fills it";
            case.cannot_tell(job, "what is read", why);
            continue;
        }
        for (name, facts) in case.targets_of(job) {
            if case.subject.intent.preconditioned || is_filled_before(&jobs[..at], job, &name) {
                continue;
            }
            never_written(case, job, &name, facts);
        }
    }
}

/// Whether an earlier job writes the target whole and this one waits for it.
fn is_filled_before(before: &[Job], job: &Job, name: &str) -> bool {
    let fills = |earlier: &Job| {
        earlier.mix() == "write" && subject::targets(earlier).iter().any(|target| target == name)
    };
    job.get("stonewall").is_some() && before.iter().any(fills)
}

fn never_written(case: &mut Case<'_>, job: &Job, name: &str, facts: &TargetFacts) {
    const FILL: &str =
        "write it whole first: a job with rw=write bs=1m before it, and stonewall here";
    match (&facts.kind, &facts.unwritten_bytes) {
        // fio lays a missing file out by writing it; a missing device is L18's.
        (Ok(Kind::Missing), _) => {}
        (_, Ok(0)) => {}
        (_, Ok(bytes)) => {
            let whole =
                facts.size_bytes.clone().map_or(String::new(), |size| format!(" of {size}"));
            let reason =
                format!("{bytes}{whole} bytes of {name} were never written or were punched out");
            case.say(job, "filename", reason).better(FILL);
        }
        (_, Err(why)) => match (&facts.reads_zeros, &facts.discarded_sectors) {
            (Ok(true), _) => {
                let reason = format!(
                    "{name} reads as zeros wherever it was sampled: never written, or trimmed"
                );
                case.say(job, "filename", reason).better(FILL);
            }
            (_, Ok(sectors)) if *sectors > 0 => {
                let reason =
                    format!("{sectors} sectors of {name} were discarded since the machine started");
                case.say(job, "filename", reason).better(FILL);
            }
            (Ok(false), Ok(_)) => {
                // Samples with data and no discards seen: likely written, but nobody has said so.
                case.cannot_tell(job, &format!("whether all of {name} was written"), why);
            }
            (Err(why), _) | (_, Err(why)) => {
                case.cannot_tell(job, &format!("whether {name} was written"), why);
            }
        },
    }
}

pub(super) fn occupied(case: &mut Case<'_>) {
    if case.subject.result.is_some() {
        // What is there now is what the run left.
        return;
    }
    for job in case.jobs().iter().filter(|job| job.engine() != "null") {
        for (name, facts) in case.targets_of(job) {
            if name.starts_with("/dev/") && facts.kind == Ok(Kind::Missing) {
                let reason = format!(
                    "there is no {name}: fio would make a plain file of that name, in memory"
                );
                let better = "correct the name, or give --elsewhere for another machine";
                case.say(job, "filename", reason).better(better);
                continue;
            }
            if facts.kind == Ok(Kind::Missing) && !has_size(job) {
                let (reason, better) = missing_file(&name);
                case.say(job, "filename", reason).better(better);
                continue;
            }
            if !job.writes() || is_named(case, &name, facts) {
                continue;
            }
            let why = case.known(job, &facts.occupied, &format!("whether {name} is in use"));
            if let Some(why) = why.filter(|why| !why.is_empty()) {
                let reason = format!("{name} would be destroyed: {}", why.join(", "));
                let serial = facts.serial.clone().unwrap_or_else(|_| name.clone());
                case.say(job, "filename", reason)
                    .better(format!("choose another target, or confirm with --destroy {serial}"));
            }
        }
    }
}

fn has_size(job: &Job) -> bool {
    let is_set = |key: &str| job.get(key).is_some_and(|value| value != "0");
    ["size", "filesize", "fill_device"].into_iter().any(is_set)
}

fn missing_file(name: &str) -> (String, &'static str) {
    if name.contains(['<', '>']) {
        return (format!("{name} is a placeholder and no target"), "name the device");
    }
    let why = "fio would end with \"you need to specify size=\"";
    (
        format!("there is no {name}, and the job has no size: {why}"),
        "correct the name, or add size=",
    )
}

fn is_named(case: &Case<'_>, name: &str, facts: &TargetFacts) -> bool {
    let is_block = facts.kind == Ok(Kind::Block);
    let named = &case.subject.intent.named;
    match &facts.serial {
        Ok(serial) if is_block => named.contains(serial),
        // A device without a serial, and a file, are named by their path.
        _ => named.iter().any(|other| other == name),
    }
}

pub(super) fn durable(case: &mut Case<'_>) {
    const NAMES: [&str; 6] = ["wal", "etcd", "durable", "commit", "journal", "sync"];
    for job in case.jobs().iter().filter(|job| job.writes()) {
        let name = job.name.to_ascii_lowercase();
        let claims = case.subject.intent.durable || NAMES.iter().any(|word| name.contains(word));
        if !claims {
            continue;
        }
        let is_set = |key: &str| job.get(key).is_some_and(|value| !matches!(value, "0" | "none"));
        if !["sync", "fsync", "fdatasync", "end_fsync", "fsync_on_close"].into_iter().any(is_set) {
            case.say(job, "rw", "durable writes are claimed, and nothing is flushed")
                .better("fdatasync=1");
            continue;
        }
        for (target, facts) in case.targets_of(job) {
            let what = format!("whether {target} has a volatile write cache");
            if let Some(true) = case.known(job, &facts.volatile_cache, &what) {
                let reason = format!(
                    "{target} has a volatile write cache on: durability rests on its flushes"
                );
                case.say(job, "rw", reason)
                    .better("say so beside the result, or turn the cache off")
                    .weighs(Warning);
            }
        }
    }
}
