//! Sizes, alignment, depths and jobs: L05, L06, L07, L09, L10, L11, L17, L25, L30.

use super::super::machine::{Kind, TargetFacts};
use super::super::{Case, Rule, subject};
use crate::fio::{Job, value};
use crate::metrics::latency::to_f64;
use crate::validity::Severity::{Error, Info, Warning};
use std::collections::BTreeMap;

pub(super) static RULES: [Rule; 9] = [
    Rule {
        id: "L05",
        title: "block size off the device's blocks",
        severity: Warning,
        why: "A direct write that is no multiple of the logical block is refused by the device; \
              one that is no multiple of 4096 makes drives and arrays read, modify and write. \
              The etcd recipe (bs=2300) is such a test.",
        bad: "[etcd]\nfilename=f\nrw=write\nbs=2300\nfdatasync=1\n",
        good: "[log]\nfilename=f\nrw=write\nbs=4k\nfdatasync=1\n",
        check: block_size,
    },
    Rule {
        id: "L06",
        title: "offset, increment or partition off 4 KiB, strip or stripe",
        severity: Warning,
        why: "I/O that begins in the middle of a physical block, \
              strip or stripe touches one more of each than its size says, every time.",
        bad: "[a]\nfilename=/dev/sdz\ndirect=1\noffset=1k\n",
        good: "[a]\nfilename=/dev/sdz\ndirect=1\noffset=1m\n",
        check: alignment,
    },
    Rule {
        id: "L07",
        title: "sequential writes smaller than a full stripe",
        severity: Warning,
        why: "On parity RAID a write below a full stripe reads old data first unless the array \
              gathers writes. It is a test worth doing, called 'unaligned', \
              and no test of sequential bandwidth.",
        bad: "[a]\nfilename=/dev/md9\ndirect=1\nrw=write\nbs=128k\n",
        good: "[a]\nfilename=/dev/md9\ndirect=1\nrw=write\nbs=512k\n",
        check: full_stripe,
    },
    Rule {
        id: "L09",
        title: "synchronous engine with iodepth above 1",
        severity: Error,
        why: "psync, sync, pvsync and mmap have one I/O in flight, whatever iodepth says; \
              the result would be filed under a depth that never was.",
        bad: "[a]\nfilename=f\nioengine=psync\niodepth=32\n",
        good: "[a]\nfilename=f\nioengine=io_uring\niodepth=32\n",
        check: synchronous,
    },
    Rule {
        id: "L10",
        title: "several sequential jobs over the same blocks",
        severity: Error,
        why: "Jobs that begin at the same offset read and write the same blocks at nearly the same \
              time: caches and write merging answer for all but the first. \
              Increments beyond 100 % wrap around to the same effect.",
        bad: "[a]\nfilename=/dev/sdz\ndirect=1\nrw=write\nnumjobs=8\n",
        good: "[a]\nfilename=/dev/sdz\ndirect=1\nrw=write\nnumjobs=8\noffset_increment=10%\n",
        check: same_blocks,
    },
    Rule {
        id: "L11",
        title: "several devices in one job",
        severity: Warning,
        why: "One job serves its files in turn: the slow device holds up the others and its own \
              figure is hidden in the sum. For a stress test of all drives it is an error: \
              one job per drive.",
        bad: "[a]\nfilename=/dev/sdy:/dev/sdz\ndirect=1\n",
        good: "[a]\nfilename=/dev/sdy\ndirect=1\n[b]\nfilename=/dev/sdz\ndirect=1\n",
        check: several_devices,
    },
    Rule {
        id: "L17",
        title: "the second run repeats the same random offsets",
        severity: Warning,
        why: "randrepeat=1 is fio's default: a second run asks for the same blocks in the same \
              order, and caches that kept them answer.",
        bad: "[a]\nfilename=f\nrw=randread\n",
        good: "[a]\nfilename=f\nrw=randread\nrandrepeat=0\n",
        check: repeats,
    },
    Rule {
        id: "L25",
        title: "depth beyond what the queues take",
        severity: Warning,
        why: "I/Os beyond nr_requests or the drive's own queue wait in the host: \
              latency grows, nothing else. libaio jobs beyond fs.aio-max-nr do not start.",
        bad: "[a]\nfilename=/dev/sdz\ndirect=1\nioengine=libaio\niodepth=1024\n",
        good: "[a]\nfilename=/dev/sdz\ndirect=1\nioengine=libaio\niodepth=32\n",
        check: depth,
    },
    Rule {
        id: "L30",
        title: "fio does not understand the job",
        severity: Error,
        why: "A misspelt option or value ends fio before it measures anything. If fio is \
              installed, it reads the job itself (--parse-only) and its complaints stand here. \
              Texts that mean two runs ('write/read') are none of fio's values.",
        bad: "[a]\nfilename=f\nrw=write/read\n",
        good: "[a]\nfilename=f\nrw=write\n",
        check: understood,
    },
];

/// What fio takes for `rw`.
const MIXES: [&str; 10] = [
    "read",
    "write",
    "trim",
    "randread",
    "randwrite",
    "randtrim",
    "rw",
    "readwrite",
    "randrw",
    "trimwrite",
];

fn understood(case: &mut Case<'_>) {
    let mut said = Vec::new();
    for job in case.jobs() {
        let mix = job.mix();
        if MIXES.contains(&mix) || mix.starts_with("rand") || mix.contains("${") {
            continue;
        }
        said.push(mix);
        let words = mix.split(['/', '|', ',', '(', ')']).filter(|word| MIXES.contains(word));
        let runs: Vec<String> = words.map(|word| format!("rw={word}")).collect();
        let better = match runs.is_empty() {
            true => "rw=read".to_owned(),
            false => format!("{}, each in a run of its own", runs.join(" and ")),
        };
        case.say(job, "rw", format!("rw={mix} is nothing that fio can do"), better);
    }
    let Some(first) = case.jobs().first() else { return };
    // What was said above, fio says, too.
    let is_new = |complaint: &&String| {
        said.is_empty()
            || !(complaint.contains("rw") || said.iter().any(|it| complaint.contains(it)))
    };
    for complaint in case.subject.intent.complaints.iter().filter(is_new) {
        case.say(
            first,
            "",
            format!("fio says: {complaint}"),
            "correct it; fio --cmdhelp lists all",
        );
    }
}

/// The unit of drives and page cache, bytes.
const PAGE_BYTES: u64 = 4096;
/// The etcd recipe's block size, bytes.
const ETCD_BYTES: u64 = 2300;

fn block_size(case: &mut Case<'_>) {
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
                case.say_as(Error, job, "bs", (reason, rounded));
            } else if bytes == ETCD_BYTES {
                let reason = "bs=2300 is the etcd recipe: it measures appends to a file by \
                              fdatasync in partial pages, and no device's write rate: each block \
                              is written twice, and over an old file read first";
                case.say(job, "bs", reason, format!("{rounded}, or name the result 'etcd recipe'"));
            } else if bytes % PAGE_BYTES != 0 {
                case.say(
                    job,
                    "bs",
                    format!("bs={bytes} is no multiple of 4096: read-modify-write"),
                    rounded,
                );
            }
        }
    }
}

fn alignment(case: &mut Case<'_>) {
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
                case.say(job, key, format!("{key}={bytes} is off {name}"), correction);
            }
        }
        for (name, facts) in case.targets_of(job) {
            match &facts.start_bytes {
                Ok(start) => {
                    if let Some((unit, what)) = units.iter().find(|(unit, _)| start % unit != 0) {
                        let reason = format!(
                            "{name} begins at byte {start} of its disk: off {what} ({unit} bytes)"
                        );
                        case.say(
                            job,
                            "filename",
                            reason,
                            "use a partition that begins at a multiple, or the whole disk",
                        );
                    }
                }
                Err(why) => case.cannot_tell(job, &format!("where {name} begins on its disk"), why),
            }
        }
    }
}

fn full_stripe(case: &mut Case<'_>) {
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
            case.say(job, "bs", reason, format!("bs={}", bytes.next_multiple_of(stripe)));
        }
    }
}

fn synchronous(case: &mut Case<'_>) {
    const ENGINES: [&str; 7] = ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice"];
    for job in case.jobs().iter().filter(|job| ENGINES.contains(&job.engine())) {
        let depth = job.count("iodepth", 1);
        if depth > 1 {
            let reason = format!("{} has one I/O in flight, not {depth}", job.engine());
            case.say(
                job,
                "iodepth",
                reason,
                format!("ioengine=io_uring, or numjobs={depth} with iodepth=1"),
            );
        }
    }
}

fn same_blocks(case: &mut Case<'_>) {
    let sequential = |job: &&Job| job.is_sequential() && job.get("filename").is_some();
    let mut begun: BTreeMap<String, &Job> = BTreeMap::new();
    for job in case.jobs().iter().filter(sequential) {
        let copies = job.count("numjobs", 1).max(1);
        let share = format!("offset_increment={}%", 100 / copies.min(100));
        match job.get("offset_increment") {
            None if copies > 1 => {
                let reason = format!("{copies} sequential jobs begin at the same offset");
                case.say(job, "numjobs", reason, share);
            }
            Some(text) => {
                let percent = value::percent(text).unwrap_or(0.0) * to_f64(copies);
                if percent > 100.0 {
                    let reason = format!(
                        "{copies} jobs, {text} apart, are {percent:.0} % of the target: \
                         the last ones wrap around"
                    );
                    case.say(job, "offset_increment", reason, share);
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
                case.say(job, "offset", reason, "stonewall, or another offset=");
            }
        }
    }
}

fn several_devices(case: &mut Case<'_>) {
    let severity = if case.subject.intent.stress { Error } else { Warning };
    for job in case.jobs() {
        let names = job.filenames();
        if names.len() > 1 {
            let reason = format!(
                "{} targets in one job: the slow one is hidden and holds up the others",
                names.len()
            );
            let jobs: Vec<String> =
                names.iter().map(|name| format!("[{name}] filename={name}")).collect();
            case.say_as(severity, job, "filename", (reason, jobs.join("; ")));
        }
    }
}

fn repeats(case: &mut Case<'_>) {
    for job in case.jobs().iter().filter(|job| !job.is_sequential()) {
        let seeded = job.get("randseed").is_some();
        let repeats = job.get("randrepeat").is_none()
            || job.is_on("randrepeat")
            || job.is_on("allrandrepeat");
        if repeats && !seeded {
            case.say(
                job,
                "randrepeat",
                "a second run asks for the same blocks in the same order",
                "randrepeat=0",
            );
        }
    }
}

fn depth(case: &mut Case<'_>) {
    let mut libaio = 0;
    for job in case.jobs() {
        let (depth, copies) = (job.count("iodepth", 1), job.count("numjobs", 1).max(1));
        let all = depth.saturating_mul(copies);
        if job.engine() == "libaio" {
            libaio = all.saturating_add(libaio);
        }
        for (name, facts) in
            case.targets_of(job).into_iter().filter(|(_, facts)| facts.kind == Ok(Kind::Block))
        {
            match &facts.queue_requests {
                Ok(most) if all > *most => {
                    let reason = format!(
                        "{copies} x {depth} I/Os for {name}, whose queue takes {most}: \
                         the rest waits in the host"
                    );
                    case.say(job, "iodepth", reason, format!("iodepth={}", (most / copies).max(1)));
                }
                Ok(_) => {}
                Err(why) => case.cannot_tell(job, &format!("how many requests {name} takes"), why),
            }
        }
    }
    let Some(job) = case.jobs().iter().find(|job| job.engine() == "libaio") else { return };
    match &case.host.aio_max {
        Ok(most) if libaio > *most => {
            let reason =
                format!("{libaio} libaio requests, fs.aio-max-nr is {most}: jobs will not start");
            case.say(
                job,
                "iodepth",
                reason,
                format!("sysctl fs.aio-max-nr={}", libaio.next_power_of_two()),
            );
        }
        Ok(_) => {}
        Err(why) => case.say_as(
            Info,
            job,
            "iodepth",
            (format!("cannot tell fs.aio-max-nr: {why}"), String::new()),
        ),
    }
}
