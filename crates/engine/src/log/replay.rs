//! Replays the logs of the members at a start: updates that were under way when the array stopped
//! are rolled forward before the first request, and before the start itself is recorded.
//!
//! What must stay true: nothing is written before the logs were read and there is a way to go on.
//! Nothing is written in place before every absent member is recorded as out on the others: it was
//! not found, or its log cannot be read. The record is under the incarnation of the logs, so that a
//! repeated restart does not count such a member. Only the start's own update ends these logs, so a
//! start that is cut off anywhere is simply repeated.
//!
//! The rules are in `ashlar_ondisk::log`; this module carries them out. `found` reads what they
//! need besides the logs, `apply` writes, and `prove` restores blocks of rows in doubt that their
//! checksums prove.

mod apply;
mod found;
mod prove;
pub(crate) mod summary;

use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::coordinator;
use crate::coordinator::record;
use crate::coordinator::record::SuperblockTarget;
use crate::error::Refusal;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::log::replay::summary::ReplaySummary;
use crate::member::SlotState;
use crate::read_only::WhyReadOnly;
use crate::slot::MemberDevice;
use ashlar_device::{Command, Outcome};
use ashlar_iobuf::BufMut;
use ashlar_ondisk::Superblock;
use ashlar_ondisk::bitmap::array_tag;
use ashlar_ondisk::log::{
    ChangedBlock, DeviceLog, Judgement, LogIdentity, LogLimits, LogScan, MemberLog, Places,
    ReplayTally, StripeReplay, changed_blocks, judge,
};
use ashlar_units::{Extent, Nanos, to_usize};
use found::InPlace;
use std::collections::BTreeSet;
use std::rc::Rc;
use uuid::Uuid;

/// A device in service and what its log says.
struct Source {
    target: SuperblockTarget,
    log_tag: u64,
    /// Or why it cannot be read.
    log: Result<MemberLog, String>,
    /// The operator takes it although it may lack writes: it stays in service all the same.
    may_lack: bool,
}

/// The logs, as they were read.
pub(crate) struct Logs {
    sources: Vec<Source>,
    began: Nanos,
}

/// Read the logs of all devices in service as `superblock` has them: of the members as found, with
/// those that were not found recorded as lost. Nothing is written before this says that there is a
/// way to go on. `may_lack`: members that the operator takes although they may lack writes.
///
/// # Errors
/// If the logs contradict each other, or those of more members cannot be relied on than the parity
/// replaces; if the array is not to be written and there is something to write.
pub(crate) async fn look(
    local: &Rc<LocalArray>,
    superblock: &Superblock,
    (read_only, may_lack): (Option<WhyReadOnly>, &[Uuid]),
) -> Result<Logs, Refusal> {
    let began = local.worker.handle.now();
    let mut sources = read_logs(local, superblock).await;
    for source in &mut sources {
        source.may_lack = may_lack.contains(&source.target.uuid);
    }
    let found = found::read(local, blocks_of(&sources)).await;
    let (mut judgement, kept) = judge_reliable(&local.array, &sources, &found)?;
    let array = &local.array;
    leave_clean(&local.array, &mut judgement);
    if let (Some(why), false) = (read_only, judgement.stripes.is_empty()) {
        return Err(to_be_written(&local.array, judgement.stripes.len(), why));
    }
    if read_only.is_none() && is_beyond(&local.array, &sources, &kept) {
        let what = format!(
            "array '{}' stopped with updates under way, and the logs of more members cannot be \
             relied on than the parity can replace; nothing was written",
            array.name()
        );
        let next =
            "look at the logs with `ashlar examine`, and attach the members that are missing";
        return Err(Refusal::new("array.not_started", what, next));
    }
    Ok(Logs { sources, began })
}

/// Whether some stripe would lack more strips than its parity replaces, were those members put out
/// that are not `kept`.
fn is_beyond(array: &Array, sources: &[Source], kept: &[bool]) -> bool {
    let mut out: Vec<bool> =
        array.slots.iter().map(|slot| slot.state() != SlotState::InSync).collect();
    for (source, is_kept) in sources.iter().zip(kept) {
        if !is_kept && !source.may_lack && !source.target.is_replacement {
            out[source.target.slot.at()] = true;
        }
    }
    array.tolerates(|member| out[member.at()]).is_none()
}

/// Roll forward what the logs say. On the coordinator.
///
/// # Errors
/// If the array may not be written and there is something to write, the logs contradict each other,
/// or more members fail than the parity replaces.
pub(crate) async fn replay(local: &Rc<LocalArray>, logs: Logs) -> Result<ReplaySummary, Refusal> {
    let Logs { mut sources, began } = logs;
    // Some may have failed since their logs were read.
    let here = record::targets(local, &local.coordinator().superblock());
    sources.retain(|source| here.iter().any(|target| target.uuid == source.target.uuid));
    let mut judgement = judge_all(local, &mut sources).await?;
    leave_clean(&local.array, &mut judgement);
    let mut summary = summary_of(&judgement.tally);
    if !judgement.stripes.is_empty() {
        debug_assert!(!local.array.is_read_only(), "looked at before");
        if !sings(Canary::ReplayBeforeLossRecorded) {
            record::locked_update(local, |_| {}).await.map_err(|_| lost(&local.array))?;
        }
        apply::apply(local, &sources, &judgement.stripes, &mut summary).await?;
    }
    summary.duration = Nanos(local.worker.handle.now().0 - began.0);
    let fields = vec![
        ("rolled_forward", summary.rolled_forward.to_string()),
        ("dropped", summary.dropped.to_string()),
        ("rows_in_doubt", summary.rows_in_doubt.to_string()),
        ("rows_left", summary.rows_left.to_string()),
        ("put_back", summary.put_back.to_string()),
        ("blocks", summary.blocks.to_string()),
        ("duration_us", (summary.duration.0 / 1000).to_string()),
    ];
    local.array.record(names::LOG_REPLAYED, fields);
    Ok(summary)
}

/// Rows of regions that the write-intent bitmap calls clean are not in doubt. Since the last write
/// there all members were flushed, with their checksums, and none was out. So they are a codeword,
/// or a device has damaged it since. Damaged content must not count then, and a member that returns
/// by the same bitmap would not be made to agree with it.
fn leave_clean(array: &Array, judgement: &mut Judgement) {
    let intent = &array.intent;
    for replay in &mut judgement.stripes {
        if !intent.is_durable(intent.region_of(array.layouts.recorded(replay.stripe))) {
            replay.in_doubt.clear();
        }
    }
    let is_left = |replay: &StripeReplay| {
        !(replay.writes.is_empty() && replay.lost.is_empty() && replay.in_doubt.is_empty())
    };
    judgement.stripes.retain(is_left);
}

fn summary_of(tally: &ReplayTally) -> ReplaySummary {
    ReplaySummary {
        rolled_forward: tally.rolled_forward + tally.outdated,
        dropped: tally.dropped,
        ..ReplaySummary::default()
    }
}

/// Read the log areas of all devices in service: all at once, a piece of each at a time.
async fn read_logs(local: &Rc<LocalArray>, superblock: &Superblock) -> Vec<Source> {
    let area = superblock.areas.intent_log;
    let limits = LogLimits::of(&superblock.geometry);
    let mut scans = Vec::new();
    for target in record::targets(local, superblock) {
        let log_tag = superblock.member(target.uuid).map_or(0, |entry| entry.log_tag);
        let identity = LogIdentity {
            array_tag: array_tag(superblock.array_uuid),
            log_tag,
            incarnation: if sings(Canary::OldIncarnationReplayed) {
                superblock.previous_incarnation
            } else {
                superblock.incarnation
            },
        };
        scans.push((target, log_tag, Ok(scan_of(identity, limits, area.bytes))));
    }
    loop {
        let mut started = Vec::new();
        for (at, (target, _, scan)) in scans.iter().enumerate() {
            let wanted = scan.as_ref().ok().and_then(LogScan::wanted);
            if let Some(Extent { offset, bytes }) = wanted {
                let read = Command::Read(BufMut::zeroed(to_usize(bytes)));
                let device = target.device.as_ref();
                started.push((at, local.start_on(device, area.offset + offset, read)));
            }
        }
        if started.is_empty() {
            break;
        }
        for (at, pending) in started {
            let (_, _, scan) = &mut scans[at];
            match pending.await {
                Some(Outcome { result: Ok(()), buffer: Some(piece) }) => {
                    scan.as_mut().expect("it was asked").take(&piece);
                }
                Some(Outcome { result: Err(fault), .. }) => *scan = Err(fault.to_string()),
                _ => *scan = Err("its device is gone".to_owned()),
            }
        }
    }
    let source = |(target, log_tag, scan): (SuperblockTarget, u64, Result<LogScan, String>)| {
        let log = scan.map(LogScan::finish).and_then(|log| match (log.fault, log.hole) {
            (None, None) => Ok(log),
            (Some(fault), _) => Err(format!("its log makes no sense: {fault}")),
            (None, Some(hole)) => Err(format!("its log has a hole: {hole}")),
        });
        Source { target, log_tag, log, may_lack: false }
    };
    scans.into_iter().map(source).collect()
}

fn scan_of(identity: LogIdentity, limits: LogLimits, bytes: u64) -> LogScan {
    let scan = LogScan::new(identity, limits, bytes);
    if sings(Canary::TornBatchTaken) { taking_torn(scan) } else { scan }
}

#[cfg(feature = "canaries")]
fn taking_torn(scan: LogScan) -> LogScan {
    scan.taking_torn()
}

#[cfg(not(feature = "canaries"))]
fn taking_torn(scan: LogScan) -> LogScan {
    scan
}

/// Judge what was read. Devices whose log cannot be relied on are put out, and are no source any
/// more.
async fn judge_all(
    local: &Rc<LocalArray>,
    sources: &mut Vec<Source>,
) -> Result<Judgement, Refusal> {
    let found = found::read(local, blocks_of(sources)).await;
    let (judgement, kept) = judge_reliable(&local.array, sources, &found)?;
    let all = std::mem::take(sources).into_iter().zip(kept);
    let (reliable, others): (Vec<_>, Vec<_>) = all.partition(|(_, is_kept)| *is_kept);
    *sources = reliable.into_iter().map(|(source, _)| source).collect();
    for (source, _) in others.into_iter().filter(|(source, _)| !source.may_lack) {
        let why = source
            .log
            .err()
            .unwrap_or_else(|| "it lacks a record that it must have had".to_owned());
        lose(local, &source.target, format!("its log could not be read: {why}")).await?;
    }
    Ok(judgement)
}

/// The blocks in place that the logs ask for.
fn blocks_of(sources: &[Source]) -> BTreeSet<ChangedBlock> {
    sources.iter().filter_map(|source| source.log.as_ref().ok()).flat_map(changed_blocks).collect()
}

/// What the logs add up to that can be relied on, and which these are; devices are numbered among
/// them.
fn judge_reliable(
    array: &Array,
    sources: &[Source],
    found: &InPlace<'_>,
) -> Result<(Judgement, Vec<bool>), Refusal> {
    let mut kept: Vec<bool> = sources.iter().map(|source| source.log.is_ok()).collect();
    loop {
        let places: Vec<usize> = (0..sources.len()).filter(|at| kept[*at]).collect();
        let log = |at: &usize| {
            let source = &sources[*at];
            let log = source.log.as_ref().ok()?;
            let slot = source.target.slot;
            Some(DeviceLog { log_tag: source.log_tag, slot, log, may_lack: source.may_lack })
        };
        let logs: Vec<DeviceLog<'_>> = places.iter().filter_map(log).collect();
        let strip_on = |stripe, member| array.strip_on(array.layouts.recorded(stripe), member);
        let strips = match array.spare_cells {
            None => Places::Fixed(array.geometry()),
            Some(_) => Places::Moving(&strip_on),
        };
        let judgement = judge(&logs, strips, found).map_err(|contradiction| {
            Refusal::new(
                "array.log_contradicts",
                format!("array '{}': {contradiction}; nothing was written", array.name()),
                "look at the logs with `ashlar examine`, and keep the members as they are",
            )
        })?;
        if judgement.damaged.is_empty() {
            return Ok((judgement, kept));
        }
        judgement.damaged.iter().for_each(|at| kept[places[*at]] = false);
    }
}

/// A device takes no further part: the others say so when this returns. An array that may not be
/// written goes on without it and says nothing.
async fn lose(
    local: &Rc<LocalArray>,
    target: &SuperblockTarget,
    why: String,
) -> Result<(), Refusal> {
    if local.array.is_read_only() {
        return Ok(());
    }
    let slot = target.slot;
    if target.is_replacement {
        let device_epoch = local.device_epochs(slot).1;
        let device = MemberDevice { member: slot, device_epoch };
        coordinator::replacement_failed(local, device, why).await;
        return Ok(());
    }
    coordinator::take_out(local, slot, why).await.map_err(|_| lost(&local.array))
}

fn lost(array: &Array) -> Refusal {
    Refusal::new(
        "array.not_started",
        format!(
            "array '{}' could not roll its log forward: more members failed than the parity can \
             replace",
            array.name()
        ),
        "attach the members that failed and assemble again; the log is kept until then",
    )
}

fn to_be_written(array: &Array, stripes: usize, why: WhyReadOnly) -> Refusal {
    let (name, why, next) = (array.name(), why.because(), why.way_out(array.name()));
    Refusal::new(
        "array.log_not_replayed",
        format!(
            "array '{name}' stopped with updates under way: \
             {stripes} stripes are to be put right from the log before anything is read, and a \
             read-only start does not write (it is one because {why}); nothing was written and all \
             data is as it was"
        ),
        next,
    )
}
