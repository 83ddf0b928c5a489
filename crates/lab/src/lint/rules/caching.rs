//! What does not reach the device: L01, L02, L04, L16, L31.

use super::super::Case;
use super::super::machine::Kind;
use crate::fio::{Job, value};

/// Share of a device below which its caches may hold what is touched.
const SHARE_MIN_PERCENT: u64 = 10;

pub(super) fn direct(case: &mut Case<'_>) {
    for job in case.jobs().iter().filter(|job| !job.is_direct() && !is_idle_engine(job)) {
        for (name, facts) in case.targets_of(job) {
            match &facts.kind {
                Ok(Kind::Block) => {}
                // A name that is not there yet is judged by where it is.
                Ok(Kind::Missing) | Err(_) if name.starts_with("/dev/") => {}
                _ => continue,
            }
            let reason = format!(
                "{name} is a block device and I/O goes through the page cache: memory is measured"
            );
            case.say(job, "direct", reason);
        }
    }
}

pub(super) fn engine(case: &mut Case<'_>) {
    for job in case.jobs() {
        let reason = match job.engine() {
            "null" | "cpuio" => "does no I/O: the figure is what the load generator can do",
            "mmap" => "answers from the page cache: the figure is the memory's",
            _ => continue,
        };
        let reason = format!("{} {reason}", job.engine());
        case.say(job, "ioengine", reason);
    }
}

pub(super) fn libaio(case: &mut Case<'_>) {
    for job in case.jobs().iter().filter(|job| job.engine() == "libaio" && !job.is_direct()) {
        let reason =
            "libaio with buffered I/O waits in io_submit: it is synchronous whatever iodepth says";
        case.say(job, "ioengine", reason);
    }
}

pub(super) fn size(case: &mut Case<'_>) {
    for job in case.jobs().iter().filter(|job| !is_idle_engine(job)) {
        let targets = case.targets_of(job);
        let whole: Option<u64> =
            targets.iter().map(|(_, facts)| facts.size_bytes.clone().ok()).sum();
        let Some(touched) = touched_bytes(job, whole.filter(|bytes| *bytes > 0)) else {
            let why = "neither size= nor the size of its target is known";
            case.cannot_tell(job, "how much is touched", why);
            continue;
        };
        let is_device = targets.iter().any(|(_, facts)| facts.kind == Ok(Kind::Block));
        if is_device
            && let Some(whole) = whole.filter(|whole| touched < *whole / 100 * SHARE_MIN_PERCENT)
        {
            let reason = format!(
                "{} of {} are touched: caches of the drive or controller may hold it",
                gib(touched),
                gib(whole)
            );
            case.say(job, "size", reason).better("size=100%");
        }
        if is_device && job.is_direct() {
            continue;
        }
        let what = "whether memory holds what is touched";
        let memory = case.known(job, &case.host.memory_bytes, what);
        if let Some(memory) = memory.filter(|memory| touched < memory.saturating_mul(2)) {
            let (touched, all) = (gib(touched), gib(*memory));
            let reason = format!("{touched} are touched, the machine has {all} of memory");
            let least = memory.saturating_mul(2).div_ceil(1 << 30);
            case.say(job, "size", reason).better(format!("size={least}g, or more"));
        }
    }
}

pub(super) fn buffers(case: &mut Case<'_>) {
    for job in case.jobs().iter().filter(|job| job.writes() && !is_idle_engine(job)) {
        let pattern = job.get("buffer_pattern").or(job.get("verify_pattern")).unwrap_or_default();
        if job.is_on("zero_buffers") || matches!(pattern, "0" | "0x0" | "0x00") {
            let reason =
                "zeros are written: whatever compresses or deduplicates stores nothing of them";
            case.say(job, "zero_buffers", reason).better("refill_buffers instead of zero_buffers");
            continue;
        }
        if job.is_on("refill_buffers") || job.get("buffer_compress_percentage").is_some() {
            continue;
        }
        for (name, facts) in case.targets_of(job) {
            if let Some(true) = case.known(job, &facts.compresses, "whether the target compresses")
            {
                let reason = format!(
                    "{name} compresses or deduplicates, and buffers are written again and again"
                );
                case.say(job, "refill_buffers", reason).better("refill_buffers");
            }
        }
    }
}

fn is_idle_engine(job: &Job) -> bool {
    matches!(job.engine(), "null" | "cpuio")
}

/// Bytes a job's copies touch together; `whole` is the size of their targets.
fn touched_bytes(job: &Job, whole: Option<u64>) -> Option<u64> {
    let share = |percent: f64| whole.map(|whole| whole / 1000 * tenths(percent));
    let one = match job.get("size") {
        Some(text) => value::bytes(text).or_else(|| value::percent(text).and_then(share))?,
        None => whole?,
    };
    let limited = job.bytes("io_size").map_or(one, |most| most.min(one));
    let copies = job.count("numjobs", 1).max(1);
    // Copies on one named target share it unless their offsets differ.
    let apart = job.get("filename").is_none() || job.get("offset_increment").is_some();
    let all = if apart { limited.saturating_mul(copies) } else { limited };
    Some(whole.map_or(all, |whole| all.min(whole.max(limited))))
}

fn tenths(percent: f64) -> u64 {
    format!("{:.0}", percent * 10.0).parse().unwrap_or(0)
}

fn gib(bytes: u64) -> String {
    if bytes < 1 << 30 {
        return format!("{} MiB", bytes.div_ceil(1 << 20));
    }
    let number = crate::metrics::latency::to_f64(bytes) / crate::metrics::latency::to_f64(1 << 30);
    format!("{number:.1} GiB")
}
