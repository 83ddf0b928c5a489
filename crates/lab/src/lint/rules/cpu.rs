//! Polling, coalescing, pinning, environment, versions: L20, L21, L24, L26, L27.

use super::super::Case;
use super::super::machine::Known;
use crate::fio::Job;
use crate::inspect::server::cpu::list as cpu_list;
use crate::validity::Severity::{Error, Warning};
use std::collections::{BTreeMap, BTreeSet};

/// I/Os in flight from which coalescing is acceptable, in depth and in jobs.
const COALESCING_MIN: u64 = 16;

pub(super) fn polling(case: &mut Case<'_>) {
    for job in case.jobs() {
        if job.is_on("hipri")
            || job.get("ioengine") == Some("pvsync2") && job.get("hipri_percentage").is_some()
        {
            for (name, facts) in case.targets_of(job) {
                let what = format!("whether {name} has poll queues");
                if let Some(false) = case.known(job, &facts.polls, &what) {
                    let reason = format!("{name} has no poll queues: nothing is polled");
                    case.say(job, "hipri", reason).better("remove hipri");
                }
            }
        }
        if job.is_on("sqthread_poll") {
            let reason = "its kernel thread polls all the time: count its CPU time";
            case.say(job, "sqthread_poll", reason)
                .better("measure with 'lab cpu', which counts it");
        }
    }
}

pub(super) fn coalescing(case: &mut Case<'_>) {
    for job in case.jobs() {
        let (depth, copies) = (job.count("iodepth", 1), job.count("numjobs", 1));
        if depth >= COALESCING_MIN && copies >= COALESCING_MIN {
            continue;
        }
        let single = depth == 1 || copies <= 1;
        match case.subject.intent.coalescing {
            Some(true) => {
                let severity = if single { Error } else { Warning };
                let reason =
                    format!("interrupts are coalesced, and depth is {depth} in {copies} jobs");
                case.say(job, "iodepth", reason)
                    .better("turn coalescing off, or measure at 16 x 16")
                    .weighs(severity);
            }
            Some(false) => {}
            None => {
                let coalesces =
                    |name: &String| name.starts_with("/dev/nvme") || name.starts_with("/dev/sd");
                if let Some((name, _)) =
                    case.targets_of(job).iter().find(|(name, _)| coalesces(name))
                {
                    let why = if name.starts_with("/dev/nvme") {
                        "ask the drive (nvme get-feature -f 8) and give --coalescing on or off"
                    } else {
                        "its controller may: look into its driver's settings, \
                         and give --coalescing on or off"
                    };
                    case.cannot_tell(job, &format!("whether {name} coalesces interrupts"), why);
                }
            }
        }
    }
}

pub(super) fn pinning(case: &mut Case<'_>) {
    for job in case.jobs() {
        let Some(list) = job.get("cpus_allowed") else { continue };
        let nodes = case.known(job, &case.host.nodes, "which sockets the CPUs belong to");
        let Some(nodes) = nodes.map(|nodes| nodes_of(&cpu_list(list), nodes)) else { continue };
        if nodes.len() > 1 {
            let reason = format!("cpus_allowed={list} spans NUMA nodes {nodes:?}");
            case.say(job, "cpus_allowed", reason)
                .better("CPUs of one node, or say that the interconnect is part of the test");
        }
        for (name, facts) in case.targets_of(job) {
            if let Ok(node) = &facts.node
                && nodes.iter().all(|own| own != node)
            {
                let reason =
                    format!("{name} is attached to node {node}, the job runs on {nodes:?}");
                case.say(job, "cpus_allowed", reason)
                    .better("CPUs of the target's node, or say so");
            }
        }
    }
}

fn nodes_of(cpus: &BTreeSet<u64>, nodes: &BTreeMap<u64, BTreeSet<u64>>) -> BTreeSet<u64> {
    nodes.iter().filter(|(_, own)| !own.is_disjoint(cpus)).map(|(node, _)| *node).collect()
}

pub(super) fn environment(case: &mut Case<'_>) {
    let intent = &case.subject.intent;
    let finished = case.subject.result.is_some();
    if intent.environment_recorded || !(finished || intent.publish) {
        return;
    }
    if let Some(job) = case.jobs().first() {
        let reason =
            "nothing says which governor, turbo, C-states, SMT and mitigations were in force";
        case.say(job, "", reason);
    }
}

pub(super) fn version(case: &mut Case<'_>) {
    for job in case.jobs() {
        let Some((least, what)) = needs(job) else { continue };
        let own = case.subject.result.as_ref().and_then(|result| parse_version(&result.version));
        let own = own.map_or_else(|| case.host.fio.clone(), Known::Ok);
        let own = case.known(job, &own, &format!("whether this fio has {what}"));
        if let Some(own) = own.filter(|own| **own < least) {
            let [least, own] = [least, *own].map(|(major, minor)| format!("{major}.{minor}"));
            case.say(job, "ioengine", format!("{what} needs fio {least}, this is {own}"));
        }
    }
}

/// The first fio that has what the job asks for.
fn needs(job: &Job) -> Option<((u32, u32), &'static str)> {
    match job.engine() {
        "io_uring" => Some(((3, 13), "ioengine=io_uring")),
        "io_uring_cmd" => Some(((3, 31), "ioengine=io_uring_cmd")),
        "libblkio" => Some(((3, 34), "ioengine=libblkio")),
        _ if job.get("sprandom").is_some() => Some(((3, 34), "sprandom")),
        _ if job.get("ss").is_some_and(|ss| ss.starts_with("lat")) => {
            Some(((3, 34), "steady state by latency"))
        }
        _ => None,
    }
}

/// `fio-3.33` as (3, 33).
pub(in crate::lint) fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().strip_prefix("fio-")?.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
