//! Background work and limits.

use super::{Facts, Found, some_of};
use crate::metrics::latency::to_f64;
use crate::units;

/// Nothing else works on the drives.
pub fn background_activity(facts: &Facts<'_>) -> Found {
    let software = &facts.server.software;
    match &software.background {
        None => Found::cannot_tell(
            "neither /proc/mdstat nor /proc/pressure nor zpool told of work",
            "look with iostat and the engine's own status",
        ),
        Some(work) if work.is_empty() => {
            Found::pass("server", format!("nothing in {}", software.background_asked.join(", ")))
        }
        Some(work) => Found::fail(
            "server",
            work.join("; "),
            "wait until it is done, or measure its impact and say so",
        ),
    }
}

/// Below this share of available memory the kernel is busy taking it back.
const AVAILABLE_MIN: f64 = 0.1;
/// The kernel's own memory may grow by this share of all between two looks.
const KERNEL_GROWTH_MAX: f64 = 0.1;

/// There is memory to work in, and the kernel does not eat it.
pub fn memory_space(facts: &Facts<'_>) -> Found {
    let software = &facts.server.software;
    let Some((available, total)) = software.memory_bytes.filter(|it| it.1 > 0) else {
        return Found::cannot_tell("/proc/meminfo does not tell", "look with free and slabtop");
    };
    let of_all = |bytes: u64| to_f64(bytes) / to_f64(total);
    let size = |bytes: u64| units::bytes(to_f64(bytes));
    let most = software.slabs.iter().max_by_key(|it| it.1);
    let most =
        most.map_or(String::new(), |(name, bytes)| format!(", most {name}: {}", size(*bytes)));
    let kernel = software.kernel_bytes.map_or(String::new(), |bytes| {
        format!("; the kernel holds {} that it cannot give back{most}", size(bytes))
    });
    let found =
        format!("{} of {} available{kernel}", units::percent(of_all(available)), size(total));
    if of_all(available) < AVAILABLE_MIN {
        return Found::fail(
            "memory",
            found,
            "free and slabtop say who holds it; stop that before measuring",
        );
    }
    let before = facts.before.map(|it| &it.software);
    let growth =
        before.and_then(|it| Some(software.kernel_bytes?.saturating_sub(it.kernel_bytes?)));
    if let (Some(growth), Some(before)) = (growth, before)
        && of_all(growth) > KERNEL_GROWTH_MAX
    {
        let grown = |(name, now): (&String, &u64)| {
            let was = before.slabs.get(name).copied().unwrap_or(0);
            (now.saturating_sub(was), name.clone())
        };
        let most = software.slabs.iter().map(grown).max();
        let most =
            most.map_or(String::new(), |(by, name)| format!(", most {name} by {}", size(by)));
        return Found::fail(
            "memory",
            format!("{found}; that grew by {} between the two captures{most}", size(growth)),
            "an engine that keeps what it reads or logs: \
             look at its cache limits, and watch slabtop during a rebuild",
        );
    }
    Found::pass("memory", found)
}

/// Asynchronous requests in flight that each drive may need: 16 jobs of depth 32.
const AIO_PER_DRIVE: u64 = 512;

/// There is room for asynchronous requests to all drives.
pub fn aio_max_nr(facts: &Facts<'_>) -> Found {
    let software = &facts.server.software;
    let Some((max, used)) = software.aio_max.zip(software.aio_used) else {
        return Found::cannot_tell(
            "/proc/sys/fs/aio-max-nr is not there",
            "the kernel may have no AIO; use io_uring",
        );
    };
    let drives = u64::try_from(facts.server.drives.len()).unwrap_or(0);
    let needed = drives * AIO_PER_DRIVE;
    let found = format!(
        "{} of {max} free; {drives} drives with 16 jobs of depth 32 need {needed}",
        max.saturating_sub(used)
    );
    match max.saturating_sub(used) >= needed {
        true => Found::pass("server", found),
        false => Found::fail("server", found, "sysctl fs.aio-max-nr=1048576, or use io_uring"),
    }
}

/// Fast drives have no scheduler in their way.
pub fn scheduler(facts: &Facts<'_>) -> Found {
    let drives = &facts.server.drives;
    let fast: Vec<_> = drives.iter().filter(|it| it.is_rotational == Some(false)).collect();
    if drives.is_empty() || fast.iter().any(|it| it.scheduler.is_none()) {
        return Found::cannot_tell(
            "drives do not tell their scheduler",
            "look into /sys/block/*/queue/scheduler",
        );
    }
    let other: Vec<&str> = fast
        .iter()
        .filter(|it| it.scheduler.as_deref() != Some("none"))
        .map(|it| it.name.as_str())
        .collect();
    match other.len() {
        _ if fast.is_empty() => Found::not_applicable("spinning drives only"),
        0 => Found::pass("drives", format!("none on {} fast drives", fast.len())),
        count => Found::fail(
            some_of(other),
            format!("{count} fast drives have a scheduler"),
            "echo none > /sys/block/NAME/queue/scheduler",
        ),
    }
}

/// Smaller requests than this are not cut by a limit that could be wider.
const REQUEST_KIB: u64 = 512;

/// The kernel does not cut requests smaller than the hardware takes.
pub fn request_size(facts: &Facts<'_>) -> Found {
    let drives = &facts.server.drives;
    let known: Vec<_> =
        drives.iter().filter_map(|it| Some((it.name.as_str(), it.request_kib?))).collect();
    if known.len() < drives.len() || drives.is_empty() {
        return Found::cannot_tell(
            "drives do not tell max_sectors_kb",
            "look into /sys/block/*/queue",
        );
    }
    let cut: Vec<_> = known.iter().filter(|it| it.1.0 < it.1.1.min(REQUEST_KIB)).collect();
    match cut.first() {
        None => Found::pass(
            "drives",
            format!(
                "at least {} KiB in one request",
                known.iter().map(|it| it.1.0).min().unwrap_or(0)
            ),
        ),
        Some((_, (now, could))) => Found::fail(
            some_of(cut.iter().map(|it| it.0)),
            format!("{} drives cut requests at {now} KiB; the hardware takes {could}", cut.len()),
            "echo 1024 > /sys/block/NAME/queue/max_sectors_kb, and trace what is issued",
        ),
    }
}
