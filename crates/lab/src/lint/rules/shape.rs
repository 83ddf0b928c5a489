//! Sizes, alignment, depths and jobs: L05, L06, L07, L09, L10, L11, L17, L25, L30.

use super::super::machine::{Kind, TargetFacts};
use super::super::{Case, subject};
use crate::fio::{Job, value};
use crate::metrics::latency::to_f64;
use crate::validity::Severity::{Error, Warning};
use itertools::Itertools;
use std::collections::BTreeMap;

/// What fio takes for `rw`.
const MIXES: &str = "read write trim randread randwrite randtrim rw readwrite randrw trimwrite";

pub(super) fn understood(case: &mut Case<'_>) {
    let mut said = Vec::new();
    for job in case.jobs() {
        let mix = job.mix();
        if value::is_among(MIXES, mix) || mix.starts_with("rand") || mix.contains("${") {
            continue;
        }
        said.push(mix);
        let words =
            mix.split(['/', '|', ',', '(', ')']).filter(|word| value::is_among(MIXES, word));
        let runs: Vec<String> = words.map(|word| format!("rw={word}")).collect();
        let better = match runs.is_empty() {
            true => "rw=read".to_owned(),
            false => format!("{}, each in a run of its own", runs.join(" and ")),
        };
        case.say(job, "rw", format!("rw={mix} is nothing that fio can do")).better(better);
    }
    let Some(first) = case.jobs().first() else { return };
    // What was said above, fio says, too.
    let is_new = |complaint: &&String| {
        said.is_empty()
            || !(complaint.contains("rw") || said.iter().any(|it| complaint.contains(it)))
    };
    for complaint in case.subject.intent.complaints.iter().filter(is_new) {
        case.say(first, "", format!("fio says: {complaint}"))
            .better("correct it; fio --cmdhelp lists all");
    }
}

const PAGE_BYTES: u64 = 4096;
const ETCD_BYTES: u64 = 2300;

pub(super) fn block_size(case: &mut Case<'_>) {
    for job in case.jobs() {
        for bytes in job.block_bytes() {
            let targets = case.targets_of(job);
            let unit = targets
                .iter()
                .filter_map(|(_, facts)| facts.logical_block_bytes.clone().ok())
                .max();
            let rounded = format!("bs={}", bytes.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES));
            if let Some(unit) =
                unit.filter(|unit| *unit > 0 && bytes % unit != 0 && job.is_direct())
            {
                let reason = format!(
                    "bs={bytes} is no multiple of the device's {unit} byte blocks: \
                     it will be refused"
                );
                case.say(job, "bs", reason).better(rounded).weighs(Error);
            } else if bytes == ETCD_BYTES {
                let reason = "bs=2300 is the etcd recipe: it measures appends to a file by \
                              fdatasync in partial pages, and no device's write rate: each block \
                              is written twice, and over an old file read first";
                case.say(job, "bs", reason)
                    .better(format!("{rounded}, or name the result 'etcd recipe'"));
            } else if bytes % PAGE_BYTES != 0 {
                case.say(
                    job,
                    "bs",
                    format!("bs={bytes} is no multiple of 4096: read-modify-write"),
                )
                .better(rounded);
            }
        }
    }
}

pub(super) fn alignment(case: &mut Case<'_>) {
    let intent = &case.subject.intent;
    let units = [Some((PAGE_BYTES, "4 KiB")), intent.strip_bytes.map(|bytes| (bytes, "the strip"))];
    let stripe = intent.stripe_bytes.map(|bytes| (bytes, "the full stripe"));
    let units: Vec<_> =
        units.into_iter().chain([stripe]).flatten().filter(|(bytes, _)| *bytes > 0).collect();
    for job in case.jobs() {
        for key in ["offset", "offset_increment"] {
            // Shares in percent are rounded by fio itself.
            let Some(bytes) = job.bytes(key) else { continue };
            if let Some((unit, name)) = units.iter().find(|(unit, _)| bytes % unit != 0) {
                let correction = format!("{key}={}", bytes.next_multiple_of(*unit));
                case.say(job, key, format!("{key}={bytes} is off {name}")).better(correction);
            }
        }
        for (name, facts) in case.targets_of(job) {
            let what = format!("where {name} begins on its disk");
            let Some(start) = case.known(job, &facts.start_bytes, &what) else { continue };
            if let Some((unit, what)) = units.iter().find(|(unit, _)| start % unit != 0) {
                let reason =
                    format!("{name} begins at byte {start} of its disk: off {what} ({unit} bytes)");
                case.say(job, "filename", reason)
                    .better("use a partition that begins at a multiple, or the whole disk");
            }
        }
    }
}

pub(super) fn full_stripe(case: &mut Case<'_>) {
    for job in case.jobs().iter().filter(|job| job.is_sequential() && job.writes()) {
        let said = |facts: &TargetFacts| {
            facts.optimal_bytes.clone().ok().filter(|bytes| *bytes > PAGE_BYTES)
        };
        let stripe = case.subject.intent.stripe_bytes;
        let stripe =
            stripe.or_else(|| case.targets_of(job).iter().find_map(|(_, facts)| said(facts)));
        let Some(stripe) = stripe else {
            for (name, facts) in case.targets_of(job) {
                let is_device = facts.kind == Ok(Kind::Block)
                    || (facts.kind != Ok(Kind::File) && name.starts_with("/dev/"));
                if let (true, Err(why)) = (is_device, &facts.optimal_bytes) {
                    let why = format!("{why}; give --stripe-data");
                    case.cannot_tell(job, &format!("the full stripe of {name}"), &why);
                }
            }
            continue;
        };
        if let Some(bytes) =
            job.block_bytes().into_iter().find(|bytes| stripe > 0 && bytes % stripe != 0)
        {
            let reason = format!(
                "writes of {bytes} bytes are no full stripes of {stripe} bytes: call it unaligned"
            );
            case.say(job, "bs", reason).better(format!("bs={}", bytes.next_multiple_of(stripe)));
        }
    }
}

pub(super) fn synchronous(case: &mut Case<'_>) {
    const ENGINES: &str = "sync psync vsync pvsync pvsync2 mmap splice";
    for job in case.jobs().iter().filter(|job| value::is_among(ENGINES, job.engine())) {
        let depth = job.count("iodepth", 1);
        if depth > 1 {
            let reason = format!("{} has one I/O in flight, not {depth}", job.engine());
            case.say(job, "iodepth", reason)
                .better(format!("ioengine=io_uring, or numjobs={depth} with iodepth=1"));
        }
    }
}

pub(super) fn same_blocks(case: &mut Case<'_>) {
    let sequential = |job: &&Job| job.is_sequential() && job.get("filename").is_some();
    let mut begun: BTreeMap<String, &Job> = BTreeMap::new();
    for job in case.jobs().iter().filter(sequential) {
        let copies = job.count("numjobs", 1).max(1);
        let share = format!("offset_increment={}%", 100 / copies.min(100));
        match job.get("offset_increment") {
            None if copies > 1 => {
                let reason = format!("{copies} sequential jobs begin at the same offset");
                case.say(job, "numjobs", reason).better(share);
            }
            Some(text) => {
                let percent = value::percent(text).unwrap_or(0.0) * to_f64(copies);
                if percent > 100.0 {
                    let reason = format!(
                        "{copies} jobs, {text} apart, are {percent:.0} % of the target: \
                         the last ones wrap around"
                    );
                    case.say(job, "offset_increment", reason).better(share);
                }
            }
            None => {}
        }
        if job.get("stonewall").is_some() {
            begun.clear();
        }
        for name in subject::targets(job) {
            let place = format!("{name} at {}", job.get("offset").unwrap_or("0"));
            if let Some(other) = begun.insert(place, job) {
                let reason = format!(
                    "it goes over the same blocks of {name} as job {}, at the same time",
                    other.name
                );
                case.say(job, "offset", reason).better("stonewall, or another offset=");
            }
        }
    }
}

pub(super) fn several_devices(case: &mut Case<'_>) {
    let severity = if case.subject.intent.stress { Error } else { Warning };
    for job in case.jobs() {
        let names = job.filenames();
        if names.len() > 1 {
            let reason = format!(
                "{} targets in one job: the slow one is hidden and holds up the others",
                names.len()
            );
            let jobs = names.iter().map(|name| format!("[{name}] filename={name}")).join("; ");
            case.say(job, "filename", reason).better(jobs).weighs(severity);
        }
    }
}

pub(super) fn repeats(case: &mut Case<'_>) {
    for job in case.jobs().iter().filter(|job| !job.is_sequential()) {
        let seeded = job.get("randseed").is_some();
        let repeats = job.get("randrepeat").is_none()
            || job.is_on("randrepeat")
            || job.is_on("allrandrepeat");
        if repeats && !seeded {
            case.say(job, "randrepeat", "a second run asks for the same blocks in the same order");
        }
    }
}

pub(super) fn depth(case: &mut Case<'_>) {
    let mut libaio = 0;
    for job in case.jobs() {
        let (depth, copies) = (job.count("iodepth", 1), job.count("numjobs", 1).max(1));
        let all = depth.saturating_mul(copies);
        if job.engine() == "libaio" {
            libaio = all.saturating_add(libaio);
        }
        let targets = case.targets_of(job).into_iter();
        for (name, facts) in targets.filter(|(_, facts)| facts.kind == Ok(Kind::Block)) {
            let what = format!("how many requests {name} takes");
            let most = case.known(job, &facts.queue_requests, &what);
            let Some(most) = most.filter(|most| all > **most) else { continue };
            let reason = format!(
                "{copies} x {depth} I/Os for {name}, whose queue takes {most}: \
                 the rest waits in the host"
            );
            case.say(job, "iodepth", reason).better(format!("iodepth={}", (most / copies).max(1)));
        }
    }
    let Some(job) = case.jobs().iter().find(|job| job.engine() == "libaio") else { return };
    let most = case.known(job, &case.host.aio_max, "fs.aio-max-nr");
    if let Some(most) = most.filter(|most| libaio > **most) {
        let reason =
            format!("{libaio} libaio requests, fs.aio-max-nr is {most}: jobs will not start");
        case.say(job, "iodepth", reason)
            .better(format!("sysctl fs.aio-max-nr={}", libaio.next_power_of_two()));
    }
}
