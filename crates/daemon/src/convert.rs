//! Converts between the engine's types and those of the control interface. A change of one of the
//! two changes only this file.

use crate::arrays::ListenerSeats;
use crate::domains;
use crate::scrape;
use crate::seats::Taken;
use ashlar_api::ApiError;
use ashlar_api::v1::array::{
    self, ArrayCounters, ArrayState, ArrayStatus, CriticalStripes, Exposure, LostMember, Pause,
    Replayed, ScrubResult, Share, StageLatency, WhyReadOnly,
};
use ashlar_api::v1::event::Event;
use ashlar_api::v1::job::{JobEnd, JobKind, JobStatus};
use ashlar_api::v1::latency::Latency;
use ashlar_api::v1::member::{Bay, LastDevice, MemberState, MemberStatus, Slow, SlowCommands};
use ashlar_api::v1::severity::severity_of;
use ashlar_api::v1::spare::{Spare, SparePool};
use ashlar_api::v1::status::{PoolStatus, RepeatedEvent, WorkerStatus};
use ashlar_api::v1::tuning::Tuning;
use ashlar_engine::{ArrayCounts, ArrayTuning, CommandsKind, LatencySummary, Refusal, SlotState};
use ashlar_iobuf::Nodes;
use ashlar_layout::{DeclusteredShape, Level, Shape};
use ashlar_ondisk as ondisk;
use ashlar_ondisk::{ChecksumKind, ConsistencyPolicy};
use ashlar_units::{BLOCK_BYTES, ByteSize, to_u64, to_usize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Strip size when none is asked for, in bytes.
const STRIP_BYTES_DEFAULT: u64 = 64 << 10;

pub fn refusal(refusal: Refusal) -> ApiError {
    ApiError::new(refusal.code, refusal.what, refusal.next)
}

pub fn event(event: ashlar_engine::Event) -> Event {
    let fields = event.fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Event {
        sequence: event.sequence,
        unix_ms: event.at_unix_ms,
        name: event.name.to_owned(),
        severity: severity_of(event.name, &fields),
        array: (!event.array.is_empty()).then_some(event.array),
        fields,
    }
}

/// How often faults that come in crowds happened.
pub fn repeated_events(log: &ashlar_engine::EventLog) -> Vec<RepeatedEvent> {
    let repeated = |it: ashlar_engine::Occurrences| RepeatedEvent {
        name: it.name.to_owned(),
        count: it.count,
        last_unix_ms: it.last_unix_ms,
    };
    log.totals().into_iter().map(repeated).collect()
}

/// The shape that is asked for; `domain_members` of a failure domain.
pub fn shape(create: &array::Create, domain_members: usize) -> Shape {
    Shape {
        level: create.level,
        members: create.devices.len(),
        parity: create.parity.map(usize::from),
        group_members: create.group_members.map(usize::from),
        strip_bytes: create.strip_bytes.unwrap_or(STRIP_BYTES_DEFAULT),
        declustered: create.declustered.map(|wish| DeclusteredShape {
            domain_members,
            stripe_width: wish.stripe_width.into(),
            spare_columns: wish.distributed_spares.into(),
            cell_bytes: wish.cell_bytes,
        }),
    }
}

/// The checksums that are asked for; none, if nothing is said.
pub fn checksums(asked: Option<array::Switch>) -> ChecksumKind {
    match asked {
        Some(array::Switch::On) => ChecksumKind::Crc32c,
        Some(array::Switch::Off) | None => ChecksumKind::None,
    }
}

/// The policy that is asked for; else the default: the log wherever there is parity. A mirror has
/// no write hole (a crash harms no block that nobody was writing), and its log is a second copy of
/// everything, so it has the bitmap. RAID 0 has nothing that could be inconsistent.
pub fn policy(asked: Option<array::Policy>, level: Level) -> ConsistencyPolicy {
    match asked {
        Some(array::Policy::Log) => ConsistencyPolicy::Log,
        Some(array::Policy::Bitmap) => ConsistencyPolicy::Bitmap,
        Some(array::Policy::None) => ConsistencyPolicy::None,
        None => match level {
            Level::Raid0 => ConsistencyPolicy::None,
            Level::Raid1 | Level::Raid10 => ConsistencyPolicy::Bitmap,
            _ => ConsistencyPolicy::Log,
        },
    }
}

/// Writes that wait for space.
pub fn pause(pause: &ashlar_engine::Pause) -> Pause {
    Pause { slots: pause.slots.iter().map(|slot| slot.0).collect(), waiting: to_u64(pause.waiting) }
}

pub fn array_status(array: ashlar_engine::ArrayStatus) -> ArrayStatus {
    let geometry = &array.geometry;
    ArrayStatus {
        uuid: array.uuid.to_string(),
        level: geometry.level(),
        data_strips: small(geometry.data_strips()),
        parity_strips: small(geometry.parity_strips()),
        groups: small(geometry.groups()),
        is_declustered: geometry.declustered().is_some(),
        domains: domains::of(&array),
        strip_bytes: geometry.strip_bytes(),
        volume_bytes: geometry.volume_bytes(),
        state: match array.state {
            ashlar_engine::ArrayState::Clean => ArrayState::Clean,
            ashlar_engine::ArrayState::Resyncing => ArrayState::Resyncing,
            ashlar_engine::ArrayState::Degraded => ArrayState::Degraded,
            ashlar_engine::ArrayState::ReadOnly => ArrayState::ReadOnly,
            ashlar_engine::ArrayState::Failed => ArrayState::Failed,
        },
        read_only: array
            .read_only
            .map(|why| WhyReadOnly { because: why.because(), next: why.way_out(&array.name) }),
        taken_over_by: array.taken_over_by,
        pause: array.pause.as_ref().map(pause),
        tolerates: small(array.tolerates),
        policy: array.policy.name().to_owned(),
        checksums: array.checksums.name().to_owned(),
        forced: Vec::new(),
        replayed: array.replayed.as_ref().map(replayed),
        kernel: array.kernel.to_owned(),
        tuning: tuning(&array.tuning),
        spare_pools: array.spare_pools,
        generation: array.generation,
        intent: share(array.dirty_regions),
        written_stripes: share(array.written_stripes),
        members: array.members.into_iter().map(member_status).collect(),
        lost_members: array.lost_members.into_iter().map(lost_member).collect(),
        exposure: array.exposure.map(exposure),
        jobs: array.jobs.into_iter().map(job_status).collect(),
        ended_jobs: array.ended_jobs.into_iter().map(job_end).collect(),
        last_scrub: scrub_result(array.scrub_end, array.last_scrub),
        counters: counters(&array.counts),
        read_latency: latency(&array.read_latency),
        write_latency: latency(&array.write_latency),
        flush_latency: latency(&array.flush_latency),
        write_stages: array
            .write_stages
            .iter()
            .map(|(stage, summary)| StageLatency {
                stage: (*stage).to_owned(),
                latency: latency(summary),
            })
            .collect(),
        name: array.name,
    }
}

fn exposure(of: ashlar_engine::ArrayExposure) -> Exposure {
    let critical = |it: ashlar_engine::CriticalStripes| CriticalStripes {
        survive: small(it.survive),
        stripes: it.stripes,
        waiting: it.waiting,
        left_seconds: it.time_left.map(|left| left.as_secs()),
    };
    Exposure {
        surviving: of.surviving,
        beyond_parity: of.beyond_parity,
        critical: of.critical.map(critical),
    }
}

fn lost_member(lost: ashlar_engine::LostMember) -> LostMember {
    LostMember {
        slot: lost.slot.0,
        spare_column: lost.spare_column.map(small),
        missing_cells: lost.missing,
        spare_cells: lost.on_spare,
        in_place_cells: lost.in_place,
    }
}

/// All tunables by their names.
fn tuning(own: &ArrayTuning) -> Tuning {
    let millis = |time: Duration| Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    Tuning {
        read_deadline_ms: millis(own.read_deadline),
        silent_flash_ms: millis(own.silence.flash),
        silent_rotational_ms: millis(own.silence.rotational),
        silent_file_ms: millis(own.silence.file),
        slow_member: Some(own.slow.reaction.word().to_owned()),
        slow_times: Some(own.slow.times),
        slow_after_s: Some(own.slow.after.as_secs()),
        merge_wait_us: u64::try_from(own.merge_wait_max.as_micros()).ok(),
        read_errors_max: Some(own.read_errors_max),
        job_latency_target_ms: millis(own.job_latency_target),
        job_floor: Some(own.job_floor_bytes),
        space_wait_s: Some(own.no_room_wait_max.map_or(0, |time| time.as_secs())),
        pass_discards: Some(own.pass_discards),
        read_rate_max: Some(own.limits.reads.bytes),
        write_rate_max: Some(own.limits.writes.bytes),
        read_iops_max: Some(own.limits.reads.requests),
        write_iops_max: Some(own.limits.writes.requests),
    }
}

/// The last scrub since assembly with all that it did, or what the members know of one before.
fn scrub_result(
    end: Option<ashlar_engine::ScrubEnd>,
    record: Option<ondisk::ScrubRecord>,
) -> Option<ScrubResult> {
    let age = |at_s: u64| unix_now().as_secs().saturating_sub(at_s);
    let Some(end) = end else {
        let of_before = |scrub: ondisk::ScrubRecord| ScrubResult {
            mismatches: scrub.mismatches,
            age_seconds: age(scrub.at_s),
            ..ScrubResult::default()
        };
        return record.map(of_before);
    };
    Some(ScrubResult {
        mismatches: end.did.mismatches,
        left: end.did.left,
        repaired: end.did.repaired,
        unrepairable: end.did.unrepairable,
        cancelled: end.is_cancelled,
        done_stripes: end.did.done_stripes,
        total_stripes: end.did.total_stripes,
        age_seconds: age(end.at_s),
    })
}

fn replayed(summary: &ashlar_engine::ReplaySummary) -> Replayed {
    Replayed {
        rolled_forward: summary.rolled_forward,
        dropped: summary.dropped,
        rows_in_doubt: summary.rows_in_doubt,
        rows_left: summary.rows_left,
        put_back: summary.put_back,
        bytes: summary.blocks * BLOCK_BYTES,
        duration_us: summary.duration.0 / 1000,
    }
}

fn stated(atomic_bytes: u32) -> Option<u32> {
    Some(atomic_bytes).filter(|bytes| *bytes != 0)
}

fn member_status(member: ashlar_engine::MemberStatus) -> MemberStatus {
    MemberStatus {
        slot: member.slot.0,
        path: member.path,
        state: match member.state {
            SlotState::InSync if member.replacement.is_some() => MemberState::Replacing,
            SlotState::InSync => MemberState::InSync,
            SlotState::Rebuilding => MemberState::Rebuilding,
            SlotState::Failing => MemberState::Failing,
            SlotState::Out => MemberState::Out,
        },
        replacement: member.replacement,
        serial: member.serial,
        model: member.model,
        bay: bay(member.bay),
        health: None,
        last_device: member.last_device.map(last_device),
        device_bytes: member.device_bytes,
        parity_only_log: member.is_parity_only,
        atomic_writes: member.is_parity_only && member.is_whole_by_report,
        atomic_write_bytes: stated(member.stated_atomic_bytes),
        read_errors: member.counts.read_errors,
        write_errors: member.counts.write_errors,
        repaired_blocks: member.counts.repaired_blocks,
        checksum_mismatches: member.counts.checksum_mismatches,
        located_mismatches: member.counts.located_mismatches,
        slow_reads: member.counts.slow_reads,
        silent_ms: u64::try_from(member.silent.as_millis()).unwrap_or(u64::MAX),
        slow: member.slow.map(slow),
        in_flight: member.in_flight,
        in_flight_max: member.in_flight_max,
        reads: member.counts.reads,
        read_bytes: member.counts.read_bytes,
        writes: member.counts.writes,
        write_bytes: member.counts.write_bytes,
        read_latency: latency(&member.read_latency),
        write_latency: latency(&member.write_latency),
    }
}

fn last_device(device: ashlar_engine::DeviceIdentity) -> LastDevice {
    LastDevice {
        path: device.path,
        serial: device.serial,
        model: device.model,
        bay: bay(device.bay),
        host: device.host,
    }
}

fn bay(bay: ashlar_device::Bay) -> Bay {
    let ashlar_device::Bay { by_path, enclosure, name, node, .. } = bay;
    Bay { by_path, enclosure, name, node: node.filter(|_| Nodes::here().are_there()) }
}

fn slow(figures: ashlar_engine::SlowFigures) -> Slow {
    let us = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    Slow {
        commands: match figures.kind {
            CommandsKind::Reads => SlowCommands::Reads,
            CommandsKind::Writes => SlowCommands::Writes,
        },
        own_us: us(figures.own),
        peers_us: us(figures.peers),
        seconds: figures.lasts.as_secs(),
    }
}

fn kind_of_job(kind: ondisk::JobKind) -> JobKind {
    match kind {
        ondisk::JobKind::Rebuild => JobKind::Rebuild,
        ondisk::JobKind::Replace => JobKind::Replace,
        ondisk::JobKind::Resync => JobKind::Resync,
        ondisk::JobKind::Scrub => JobKind::Scrub,
        ondisk::JobKind::Grow => JobKind::Grow,
    }
}

fn job_end(end: ashlar_engine::JobEnd) -> JobEnd {
    JobEnd {
        id: end.did.id,
        kind: kind_of_job(end.did.kind),
        slot: end.did.slot.map(|slot| slot.0),
        stopped: end.stopped.map(str::to_owned),
        mismatches: end.did.mismatches,
        left: end.did.left,
        unrepairable: end.did.unrepairable,
    }
}

fn job_status(job: ashlar_engine::JobStatus) -> JobStatus {
    JobStatus {
        id: job.id,
        kind: kind_of_job(job.kind),
        slot: job.slot.map(|slot| slot.0),
        done_stripes: job.done_stripes,
        total_stripes: job.total_stripes,
        bytes: job.bytes,
        bytes_per_second: job.bytes_per_s,
        left_seconds: job.eta.map(|eta| eta.as_secs()),
        paused: job.is_paused,
        mismatches: job.mismatches,
        repaired: job.repaired,
        unrepairable: job.unrepairable,
    }
}

/// What the engine calls the kind of job that is meant.
pub fn job_kind(kind: JobKind) -> ondisk::JobKind {
    match kind {
        JobKind::Rebuild => ondisk::JobKind::Rebuild,
        JobKind::Replace => ondisk::JobKind::Replace,
        JobKind::Resync => ondisk::JobKind::Resync,
        JobKind::Scrub => ondisk::JobKind::Scrub,
        JobKind::Grow => ondisk::JobKind::Grow,
    }
}

/// The spares by pool, in the order of the pools.
pub fn spare_pools(spares: Vec<ashlar_engine::SpareStatus>) -> Vec<SparePool> {
    let mut pools: Vec<SparePool> = Vec::new();
    for spare in spares {
        let entry = Spare {
            path: spare.path,
            serial: spare.serial,
            bay: bay(spare.bay),
            health: None,
            device_bytes: spare.bytes,
            atomic_write_bytes: stated(spare.stated_atomic_bytes),
        };
        match pools.iter_mut().find(|pool| pool.name == spare.pool) {
            Some(pool) => pool.spares.push(entry),
            None => pools.push(SparePool { name: spare.pool, spares: vec![entry] }),
        }
    }
    pools
}

pub fn worker_status(worker: ashlar_engine::WorkerStatus) -> WorkerStatus {
    WorkerStatus {
        worker: small(worker.worker),
        core: worker.core.map(small),
        node: worker.node,
        requests: worker.requests,
        pieces: worker.pieces,
        in_flight: to_u64(worker.in_flight),
        in_flight_max: to_u64(worker.in_flight_max),
        hops: worker.hops,
        system_calls: worker.calls.enters,
        sleeps: worker.calls.sleeps,
        wake_ups: worker.calls.bells,
        looks: worker.calls.looks,
        looks_of_use: worker.calls.looks_of_use,
        look_ns: worker.calls.look_nanos,
        operations: worker.calls.operations,
    }
}

/// One line for each size of buffer in the pool.
pub fn pool_status(pool: &ashlar_engine::PoolStatus) -> Vec<PoolStatus> {
    let classes = pool.usage.classes.iter();
    classes
        .map(|class| PoolStatus {
            name: format!("{} {}", pool.name, ByteSize(to_u64(class.buffer_bytes))),
            limit: to_u64(class.count),
            in_use: to_u64(class.in_use),
            high_water: to_u64(class.in_use_max),
            waits: class.waits,
            pages: pool.usage.backing.name().to_owned(),
            node: pool.usage.node,
        })
        .collect()
}

/// What an array has of its table of checksums in memory, as a pool of pages. Nobody waits: what is
/// not there is read.
pub fn checksum_cache(array: &ashlar_engine::ArrayStatus) -> Option<PoolStatus> {
    let usage = array.checksum_cache?;
    Some(PoolStatus {
        name: format!("checksums.{} {}", array.name, ByteSize(BLOCK_BYTES)),
        limit: to_u64(usage.pages_room),
        in_use: to_u64(usage.pages),
        high_water: to_u64(usage.pages_max),
        waits: 0,
        pages: String::new(),
        node: None,
    })
}

/// The connections of the listeners, as pools. Nobody waits: `waits` counts those that made room or
/// were not let in.
pub fn listeners(seats: &ListenerSeats) -> [PoolStatus; 2] {
    let pool = |name: &str, limit: usize, taken: Taken| PoolStatus {
        name: name.to_owned(),
        limit: to_u64(limit),
        in_use: to_u64(taken.now),
        high_water: to_u64(taken.high_water),
        waits: taken.turned_away,
        pages: String::new(),
        node: None,
    };
    [
        pool("control.connections", seats.control.limit(), seats.control.usage()),
        pool("metrics.connections", scrape::CONNECTIONS, seats.metrics.usage()),
    ]
}

pub fn latency(summary: &LatencySummary) -> Latency {
    Latency {
        count: summary.count,
        us_p50: summary.quantile_ns(500).div_ceil(1000),
        us_p99: summary.quantile_ns(990).div_ceil(1000),
        us_max: summary.max_ns.div_ceil(1000),
        us_sum: summary.sum_ns.div_ceil(1000),
        histogram: summary.by_power_of_two_us(),
    }
}

fn counters(counts: &ArrayCounts) -> ArrayCounters {
    ArrayCounters {
        reads: counts.reads,
        read_bytes: counts.read_bytes,
        writes: counts.writes,
        write_bytes: counts.write_bytes,
        flushes: counts.flushes,
        discards: counts.discards,
        discarded_bytes: counts.discarded_bytes,
        errors: counts.errors,
        full_stripe_writes: counts.full_stripe_writes,
        rmw_writes: counts.rmw_writes,
        rcw_writes: counts.rcw_writes,
        decode_writes: counts.decode_writes,
        first_writes: counts.first_writes,
        merged_writes: counts.merged_writes,
        degraded_reads: counts.degraded_reads,
        repaired_blocks: counts.repaired_blocks,
        lost_blocks: counts.lost_blocks,
        member_reads: counts.member_reads.saturating_sub(counts.job_member_reads),
        write_member_reads: counts.write_member_reads,
        member_writes: counts.member_writes.saturating_sub(counts.job_member_writes),
        job_member_reads: counts.job_member_reads,
        job_member_writes: counts.job_member_writes,
        member_flushes: counts.member_flushes,
        intent_page_writes: counts.intent_page_writes,
        written_page_writes: counts.written_page_writes,
        log_records: counts.log_records,
        parity_only_records: counts.parity_only_records,
        log_batches: counts.log_batches,
        log_bytes: counts.log_bytes,
        log_settles: counts.log_settles,
        log_space_waits: counts.log_space_waits,
        limit_waits: counts.limit_waits,
        limit_wait_us: counts.limit_wait_us,
        handed_over: counts.handed_over,
    }
}

fn share((count, of): (u64, u64)) -> Share {
    Share { count, of }
}

/// Strips, groups, slots and workers: none of them comes near 65,535.
pub fn small(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// Wall clock, for ages that people read.
fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Bytes of memory this process has resident; 0 where the kernel does not tell.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib =
        line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse().ok());
    kib.map_or(0, |kib: u64| kib * 1024)
}

/// Bytes of pool for each worker, from those for all of them.
pub fn payload_bytes(pool: ByteSize, worker_count: usize) -> usize {
    to_usize(pool.0 / to_u64(worker_count.max(1)))
}

#[cfg(test)]
mod tests {
    use super::{policy, resident_bytes};
    use ashlar_api::v1::array::Policy;
    use ashlar_layout::Level;
    use ashlar_ondisk::ConsistencyPolicy;

    #[test]
    fn who_asks_for_no_policy_gets_the_log_wherever_there_is_parity() {
        for level in Level::all() {
            let wanted = match level.name() {
                "raid0" => ConsistencyPolicy::None,
                "raid1" | "raid10" => ConsistencyPolicy::Bitmap,
                _ => ConsistencyPolicy::Log,
            };
            assert_eq!(policy(None, level), wanted, "{level}");
            assert_eq!(policy(Some(Policy::Bitmap), level), ConsistencyPolicy::Bitmap);
        }
    }

    #[test]
    fn both_sides_mean_the_same_pool_by_default() {
        assert_eq!(ashlar_api::v1::spare::default_pool(), ashlar_ondisk::DEFAULT_POOL);
    }

    #[test]
    fn a_process_has_some_memory() {
        assert!(resident_bytes() > 100_000);
    }
}
