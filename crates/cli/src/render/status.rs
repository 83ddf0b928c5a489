//! The screen of `ashlar status`: what is wrong stands out, what is right takes one line.

use super::rate::progress;
use super::table;
use super::{domains, exposure};
use ashlar_api::v1::array::{ArrayState, ArrayStatus, LostMember, Policy, Replayed};
use ashlar_api::v1::export::ExportStatus;
use ashlar_api::v1::job::{JobKind, JobStatus};
use ashlar_api::v1::latency::Latency;
use ashlar_api::v1::member::{DriveHealth, LastDevice, MemberState, MemberStatus, Slow};
use ashlar_api::v1::spare::Spare;
use ashlar_api::v1::status::{
    AbsentArray, FoundArray, MemoryDevice, MemoryStatus, MissingService, RepeatedEvent, Status,
};
use ashlar_api::words::{grouped, span};
use ashlar_units::ByteSize;

/// A device that has not answered for so long is told of.
const SILENT_MS: u64 = 2000;

/// Everything, as lines.
pub fn screen(status: &Status, members: bool, limits: bool) -> String {
    let mut lines = Vec::new();
    for array in &status.arrays {
        array_lines(array, &status.exports, &mut lines);
        if members {
            lines.extend(member_table(array).lines().map(|line| format!("  {line}")));
        }
        lines.push(String::new());
    }
    lines.extend(status.absent.iter().map(absent));
    lines.extend(status.found.iter().map(found));
    if status.arrays.is_empty() && status.absent.is_empty() && status.found.is_empty() {
        lines.push(
            "no array is running; start one with 'ashlar assemble' or 'ashlar create'".to_owned(),
        );
    }
    for pool in &status.spare_pools {
        let spare = |spare: &Spare| {
            format!("{}{}", spare.path, spare.atomic_write_bytes.map_or_else(String::new, whole))
        };
        let spares: Vec<String> = pool.spares.iter().map(spare).collect();
        let spares = if spares.is_empty() { "empty".to_owned() } else { spares.join(" ") };
        lines.push(format!("pool   {:<8} {spares}", pool.name));
    }
    lines.extend(repeated(&status.repeated_events));
    lines.extend(status.missing.iter().map(missing));
    lines.extend(untold(status));
    lines.extend(status.health_unknown.iter().filter(|_| members).cloned());
    lines.extend(memory(&status.memory));
    if limits {
        lines.push(limits_table(status));
    }
    lines.join("\n")
}

/// An array that should run.
fn absent(absent: &AbsentArray) -> String {
    let AbsentArray { name, reason, starting, .. } = absent;
    if *starting {
        return format!("array  {name:<8} STARTING: {reason}");
    }
    format!("array  {name:<8} ABSENT: it should run and does not: {reason}")
}

/// An array that nobody starts.
fn found(found: &FoundArray) -> String {
    let FoundArray { name, reason, .. } = found;
    format!("array  {name:<8} NOT STARTED: {reason}")
}

/// What the daemon cannot do beside running arrays.
fn missing(missing: &MissingService) -> String {
    let MissingService { name, reason, .. } = missing;
    format!("MISSING {name}: {reason}")
}

/// Ways of events out of the daemon that fail.
fn untold(status: &Status) -> Vec<String> {
    let ways = status.notify.iter().filter_map(|way| {
        let error = way.error.as_ref()?;
        let waiting = way.waiting;
        Some(format!("notify {} FAILS, {waiting} messages wait: {error}", way.way))
    });
    let history = status.history.iter().filter_map(|history| history.error.as_ref());
    ways.chain(history.map(|error| format!("history FAILS: {error}"))).collect()
}

/// The memory devices, of which stopped arrays may have some.
fn memory(memory: &MemoryStatus) -> Option<String> {
    let sum = |bytes: fn(&MemoryDevice) -> u64| memory.devices.iter().map(bytes).sum();
    let (size, used) = (ByteSize(sum(|it| it.size_bytes)), ByteSize(sum(|it| it.used_bytes)));
    let free: Vec<&str> =
        memory.devices.iter().filter(|it| it.array.is_none()).map(|it| &*it.path).collect();
    let free = match free.is_empty() {
        true => String::new(),
        false => format!("; no running array has {}", free.join(" ")),
    };
    (!memory.devices.is_empty()).then(|| {
        format!(
            "memory devices: {}, {size} of at most {}, {used} in use{free}",
            memory.devices.len(),
            ByteSize(memory.limit_bytes)
        )
    })
}

/// What happens to an array in memory.
fn lost_with_the_daemon(array: &ArrayStatus) -> Option<String> {
    let is_in_memory = array.members.iter().any(|member| member.path.starts_with("memory:"));
    is_in_memory.then(|| {
        "memory the members are memory of the daemon: all data is lost when the daemon ends"
            .to_owned()
    })
}

/// The limits of the volume, and how often they held a request up.
fn limits(array: &ArrayStatus) -> Option<String> {
    let (own, counters) = (&array.tuning, &array.counters);
    let limit = |kind: &str, rate: Option<u64>, iops: Option<u64>| {
        let rate = rate.filter(|it| *it > 0).map(|it| format!("{}/s", ByteSize(it)));
        let iops = iops.filter(|it| *it > 0).map(|it| format!("{} a second", grouped(it)));
        let both: Vec<String> = rate.into_iter().chain(iops).collect();
        (!both.is_empty()).then(|| format!("{kind} {}", both.join(" and ")))
    };
    let reads = limit("reads", own.read_rate_max, own.read_iops_max);
    let writes = limit("writes", own.write_rate_max, own.write_iops_max);
    let all: Vec<String> = reads.into_iter().chain(writes).collect();
    (!all.is_empty()).then(|| {
        let seconds = counters.limit_wait_us / 1_000_000;
        let waits = grouped(counters.limit_waits);
        format!("limits {}; {waits} requests have waited, {seconds} s in all", all.join(", "))
    })
}

/// Faults that came in crowds, with how many.
fn repeated(events: &[RepeatedEvent]) -> Option<String> {
    let told = |event: &RepeatedEvent| format!("{} {}", event.name, grouped(event.count));
    let told: Vec<String> = events.iter().map(told).collect();
    (!told.is_empty()).then(|| format!("faults {}", told.join("   ")))
}

fn array_lines(array: &ArrayStatus, exports: &[ExportStatus], lines: &mut Vec<String>) {
    lines.push(format!(
        "array  {:<8} {} {}  strip {}   {}",
        array.name,
        array.level,
        array.shape(),
        ByteSize(array.strip_bytes),
        state(array)
    ));
    lines.push(format!(
        "volume {}  {}      kernel {}",
        ByteSize(array.volume_bytes),
        exported(array, exports),
        array.kernel
    ));
    lines.extend(lost_with_the_daemon(array));
    lines.push(summary(array));
    lines.extend(array.domains.iter().flat_map(domains::lines));
    let read_only = array.read_only.iter().filter(|_| array.taken_over_by.is_none());
    lines.extend(read_only.map(|why| format!("read-only because {}; {}", why.because, why.next)));
    lines.extend(array.after_failure().map(|next| format!("failed because {next}")));
    lines.extend(
        array
            .forced
            .iter()
            .map(|accepted| format!("FORCED start, until the next clean stop: {accepted}")),
    );
    lines.extend(array.pause.as_ref().map(|pause| {
        format!("paused {pause} until there is some; 'ashlar stop --force' ends them with errors")
    }));
    lines.extend(limits(array));
    lines.extend(array.replayed.as_ref().map(replayed));
    let is_to_be_seen = |it: &&MemberStatus| {
        it.state != MemberState::InSync
            || it.silent_ms >= SILENT_MS
            || it.slow.is_some()
            || !concerns(it).is_empty()
    };
    for member in array.members.iter().filter(is_to_be_seen) {
        lines.push(member_line(member, array));
    }
    lines.extend(array.lost_members.iter().map(lost_member));
    lines.extend(exposure::line(array));
    for job in array.jobs.iter().filter(|job| !job.is_rebuild() || job.slot.is_none()) {
        let found = match job.kind {
            JobKind::Scrub => format!("  {} mismatches", job.mismatches),
            _ => String::new(),
        };
        lines.push(format!("{:<6} {}{found}", job.kind, progress(job)));
    }
    lines.push(format!(
        "intent {} of {} regions dirty     {}",
        grouped(array.intent.count),
        grouped(array.intent.of),
        last_scrub(array)
    ));
    lines.extend(load(array));
}

/// Where the cells of a lost member are.
fn lost_member(lost: &LostMember) -> String {
    let place = match lost.spare_column {
        Some(column) => format!("distributed spare {column}"),
        None => "no distributed spare free".to_owned(),
    };
    format!(
        "lost   slot {:<3} {place}   cells: {} missing, {} on spares, {} in place",
        lost.slot,
        grouped(lost.missing_cells),
        grouped(lost.spare_cells),
        grouped(lost.in_place_cells)
    )
}

fn state(array: &ArrayStatus) -> String {
    let out = array
        .members
        .iter()
        .filter(|it| it.state != MemberState::InSync && it.state != MemberState::Replacing);
    let out = out.count();
    match (array.state, out) {
        _ if let Some(by) = &array.taken_over_by => format!("taken over: it runs {by}"),
        (ArrayState::Failed, _) => format!("{}; see 'ashlar events'", array.state),
        (_, 0) => array.state.to_string(),
        (_, out) => {
            let members = if out == 1 { "member" } else { "members" };
            let more = array.tolerates;
            format!(
                "{} ({out} {members} out, {more} more tolerated{})",
                array.state,
                where_worst(array)
            )
        }
    }
}

/// Which groups have lost most: what is tolerated is said of those. Nothing where there is but one.
fn where_worst(array: &ArrayStatus) -> String {
    let slots = array.members.len() / usize::from(array.groups).max(1);
    if array.groups < 2 || slots == 0 {
        return String::new();
    }
    let is_missing = |member: &&MemberStatus| {
        !matches!(member.state, MemberState::InSync | MemberState::Replacing)
    };
    let missing = |group: &[MemberStatus]| group.iter().filter(is_missing).count();
    let groups: Vec<usize> = array.members.chunks(slots).map(missing).collect();
    let most = groups.iter().copied().max().unwrap_or(0);
    let is_worst = |(_, missing): &(usize, &usize)| **missing == most;
    let worst: Vec<usize> =
        groups.iter().enumerate().filter(is_worst).map(|(group, _)| group).collect();
    match &*worst {
        [one] => format!(" in group {one}, slots {} to {}", one * slots, one * slots + slots - 1),
        several => {
            let several: Vec<String> = several.iter().map(ToString::to_string).collect();
            format!(" in groups {}", several.join(", "))
        }
    }
}

fn exported(array: &ArrayStatus, exports: &[ExportStatus]) -> String {
    let ways: Vec<String> = exports
        .iter()
        .filter(|export| export.array.as_ref().is_none_or(|name| *name == array.name))
        .map(|export| {
            let devices = export.devices.join(" and ");
            let devices = if devices.is_empty() { devices } else { format!(" on {devices}") };
            format!("{}:{}{devices}", export.protocol, export.address)
        })
        .collect();
    if ways.is_empty() {
        "not exported".to_owned()
    } else {
        format!("exported as {}", ways.join(", "))
    }
}

/// What its device did wrong, as far as it is known.
fn device_errors(it: &MemberStatus) -> u64 {
    it.faults()
}

fn summary(array: &ArrayStatus) -> String {
    let in_sync = array.members.iter().filter(|member| member.state == MemberState::InSync).count();
    let faults = device_errors;
    let errors: u64 = array.members.iter().map(faults).sum();
    format!(
        "slots  {in_sync} of {} in sync, {errors} device errors     policy {}{}{}",
        array.members.len(),
        array.policy,
        promise(array),
        if matches!(&*array.checksums, "" | "none") { "" } else { ", checksums of all blocks" },
    )
}

/// What the policy promises; an array without redundancy can promise nothing.
fn promise(array: &ArrayStatus) -> String {
    if array.parity_strips == 0 {
        return String::new();
    }
    let words = match &*array.policy {
        "bitmap" if array.data_strips == 1 => Policy::MIRROR_PROMISE,
        name => Policy::promise_of(name),
    };
    if words.is_empty() { String::new() } else { format!(": {words}") }
}

/// What the last start made of the stripe intent log.
fn replayed(replayed: &Replayed) -> String {
    let if_any = |count: u64, words: &str| match count {
        0 => String::new(),
        count => format!(", {} {words}", grouped(count)),
    };
    format!(
        "log    {} updates rolled forward ({}), {} dropped, {} rows in doubt{}{}, at the last \
         start in {}.{:03} s",
        grouped(replayed.rolled_forward),
        ByteSize(replayed.bytes),
        grouped(replayed.dropped),
        grouped(replayed.rows_in_doubt),
        if_any(replayed.rows_left, "of them left as they were"),
        if_any(replayed.put_back, "blocks put back by their checksums"),
        replayed.duration_us / 1_000_000,
        replayed.duration_us / 1000 % 1000,
    )
}

/// The drive that somebody has to pull.
fn last_device(last: &LastDevice) -> String {
    let serial = last.serial.as_ref().map(|serial| format!("serial {serial}"));
    let known: Vec<String> = [last.place(), serial, last.model.clone(), last.bay.words()]
        .into_iter()
        .flatten()
        .collect();
    if known.is_empty() { String::new() } else { format!("was {}; ", known.join(", ")) }
}

/// What was stated of a device and makes no difference now.
fn whole(bytes: u32) -> String {
    format!("  stated to write {} whole", ByteSize(bytes.into()))
}

fn member_line(member: &MemberStatus, array: &ArrayStatus) -> String {
    let rebuild = |job: &&JobStatus| job.is_rebuild() && job.slot == Some(member.slot);
    let what = match array.jobs.iter().find(rebuild) {
        Some(job) => format!("{}  {}", member.state, progress(job)),
        None => member.state.to_string(),
    };
    let replacement =
        member.replacement.as_ref().map_or(String::new(), |path| format!(" by {path}"));
    let serial =
        member.serial.as_ref().map_or(String::new(), |serial| format!("  serial {serial}"));
    let parity_only = match (member.parity_only_log, member.atomic_write_bytes) {
        (true, _) if member.atomic_writes => "  parity-only log, atomic writes".to_owned(),
        (true, _) => "  parity-only log".to_owned(),
        (false, Some(bytes)) => whole(bytes),
        (false, None) => String::new(),
    };
    let device = match (member.path.as_str(), member.replacement.is_some()) {
        ("", false) => {
            let next = format!("ashlar replace {} {} DEVICE", array.name, member.slot);
            let last = member.last_device.as_ref().map_or(String::new(), last_device);
            format!("{last}give it a device: {next}")
        }
        (path, _) => path.to_owned(),
    };
    let silent = match member.silent_ms {
        ..SILENT_MS => String::new(),
        ms => format!("  SILENT for {} s", ms / 1000),
    };
    let slow = member.slow.map_or(String::new(), slow);
    let concerns = concerns(member);
    format!(
        "slot {:<2} {what}{silent}{slow}{concerns}     {device}{replacement}{serial}{parity_only}",
        member.slot
    )
}

/// What somebody should see to.
fn concerns(member: &MemberStatus) -> String {
    let Some(health) = &member.health else { return String::new() };
    let words = health.concerns().into_iter().map(|concern| format!("  {}", health.words(concern)));
    words.collect()
}

fn slow(slow: Slow) -> String {
    let Slow { commands, own_us, peers_us, seconds } = slow;
    let (own, peers) = (grouped(own_us), grouped(peers_us));
    format!("  SLOW for {}: {commands} take {own} us, its peers' {peers} us", span(seconds))
}

fn last_scrub(array: &ArrayStatus) -> String {
    let Some(scrub) = array.last_scrub else {
        return "no scrub since it was assembled".to_owned();
    };
    let cancelled = match scrub.cancelled {
        true => format!(
            "cancelled after {} of {} stripes, ",
            grouped(scrub.done_stripes),
            grouped(scrub.total_stripes)
        ),
        false => String::new(),
    };
    format!(
        "last scrub {} ago, {cancelled}{} mismatches",
        span(scrub.age_seconds),
        grouped(scrub.mismatches)
    )
}

/// What clients did and what it cost; nothing before the first request.
fn load(array: &ArrayStatus) -> Option<String> {
    let counters = &array.counters;
    let (reads, writes) = (array.read_latency, array.write_latency);
    if counters.reads + counters.writes == 0 {
        return None;
    }
    let cost = counters.member_writes_per_write_percent().map_or(String::new(), |percent| {
        format!("; {}.{:02} member writes a write", percent / 100, percent % 100)
    });
    Some(format!(
        "load   {} reads {}, {} writes {}\n       \
         stripes {} full, {} rmw, {} rcw, {} decoded{cost}",
        grouped(counters.reads),
        latency(reads),
        grouped(counters.writes),
        latency(writes),
        grouped(counters.full_stripe_writes),
        grouped(counters.rmw_writes),
        grouped(counters.rcw_writes),
        grouped(counters.decode_writes),
    ))
}

fn latency(latency: Latency) -> String {
    format!("(p50 {} us, p99 {} us)", grouped(latency.us_p50), grouped(latency.us_p99))
}

fn member_table(array: &ArrayStatus) -> String {
    let head = [
        "slot",
        "state",
        "device",
        "serial",
        "size",
        "reads",
        "writes",
        "in flight",
        "errors",
        "slow",
        "read us p50/p99/max",
        "write us p50/p99/max",
        "bay",
        "health",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for member in &array.members {
        let times = |it: Latency| format!("{}/{}/{}", it.us_p50, it.us_p99, it.us_max);
        rows.push(vec![
            member.slot.to_string(),
            member.state.to_string(),
            if member.path.is_empty() { "-".to_owned() } else { member.path.clone() },
            member.serial.clone().unwrap_or_else(|| "-".to_owned()),
            match member.device_bytes {
                0 => "-".to_owned(),
                bytes => ByteSize(bytes).to_string(),
            },
            grouped(member.reads),
            grouped(member.writes),
            format!("{} (max {})", member.in_flight, member.in_flight_max),
            device_errors(member).to_string(),
            member.slow_reads.to_string(),
            times(member.read_latency),
            times(member.write_latency),
            member.bay.words().unwrap_or_else(|| "-".to_owned()),
            member.health.as_ref().map_or_else(|| "-".to_owned(), DriveHealth::figures),
        ]);
    }
    table::aligned(&rows)
}

fn limits_table(status: &Status) -> String {
    let head = [
        "worker",
        "core",
        "requests",
        "pieces",
        "in flight",
        "high water",
        "hops",
        "system calls",
        "sleeps",
        "wake-ups",
        "looks",
        "of use",
        "look ms",
        "operations",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for worker in &status.workers {
        let numbers = [
            worker.requests,
            worker.pieces,
            worker.in_flight,
            worker.in_flight_max,
            worker.hops,
            worker.system_calls,
            worker.sleeps,
            worker.wake_ups,
            worker.looks,
            worker.looks_of_use,
            worker.look_ns / 1_000_000,
            worker.operations,
        ]
        .map(grouped);
        let core = worker.core.map(|core| format!("{core}{}", on_node(worker.node)));
        let names = vec![worker.worker.to_string(), core.unwrap_or_else(|| "-".to_owned())];
        rows.push([names, numbers.to_vec()].concat());
    }
    let workers = table::aligned(&rows);
    let mut rows = vec![
        ["pool", "limit", "in use", "high water", "waits", "pages"].map(str::to_owned).to_vec(),
    ];
    for pool in &status.pools {
        let numbers = [pool.limit, pool.in_use, pool.high_water, pool.waits].map(grouped);
        let pages = format!("{}{}", pool.pages, on_node(pool.node));
        rows.push([vec![pool.name.clone()], numbers.to_vec(), vec![pages]].concat());
    }
    let pools = table::aligned(&rows);
    let resident = ByteSize(status.resident_bytes);
    format!("\n{workers}\n{pools}\nresident {resident}, up {}", span(status.uptime_seconds))
}

/// A NUMA node, if there is one to tell.
fn on_node(node: Option<u32>) -> String {
    node.map_or_else(String::new, |node| format!(" (node {node})"))
}

#[cfg(test)]
pub(super) mod tests;
