//! What a start makes of the logs of its members: updates that were under way when the array stopped are
//! rolled forward, before the first request and before the start itself is recorded.
//!
//! What must stay true: nothing is written in place before every member that takes no part (not found, or its log
//! cannot be read) is recorded as out on the others, under the incarnation whose records are read: a
//! restart that begins again must not believe it. Nothing else changes what counts until the start's own
//! update ends it for good; so a start that is cut off anywhere is simply done again.
//!
//! The rules are in `ashlar_ondisk::log`; here is only what carries them out. `mend` writes.

mod mend;

use crate::canary::{Canary, sings};
use crate::error::Refusal;
use crate::event::names;
use crate::home;
use crate::home::record::{self, Target};
use crate::shard::Shard;
use ashlar_device::{Command, Outcome};
use ashlar_iobuf::BufMut;
use ashlar_ondisk::bitmap::array_tag;
use ashlar_ondisk::log::{
    DeviceLog, Judgement, LogIdentity, LogLimits, LogScan, MemberLog, ReplayTally, judge,
};
use ashlar_units::{Extent, Nanos, to_usize};
use std::rc::Rc;

/// What a start found in the logs, and what it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplaySummary {
    /// Updates rolled forward.
    pub rolled_forward: u64,
    /// Updates dropped, of which nothing was in place.
    pub dropped: u64,
    /// Rows whose parity was generated anew.
    pub rows_in_doubt: u64,
    /// Those of them that were left as they are: more of their blocks cannot be read than the parity replaces.
    pub rows_left: u64,
    /// Blocks written in place from the logs.
    pub blocks: u64,
    /// How long it took.
    pub duration: Nanos,
}

/// A device in service and what its log says.
struct Source {
    target: Target,
    log_tag: u64,
    /// Or why it cannot be read.
    log: Result<MemberLog, String>,
}

/// Roll forward what the logs say. On the home worker, whose superblock is the one found on the members, with
/// those that were not found recorded as lost, but not written yet.
///
/// # Errors
/// If the array may not be written and there is something to write, the logs contradict each other, or more
/// members fail than the parity replaces.
pub(crate) async fn replay(shard: &Rc<Shard>) -> Result<ReplaySummary, Refusal> {
    let began = shard.worker.handle.now();
    let mut sources = read_logs(shard).await;
    let judgement = judge_all(shard, &mut sources).await?;
    let mut summary = summary_of(&judgement.tally);
    if !judgement.stripes.is_empty() {
        if shard.array.is_read_only() {
            return Err(read_only(shard, &judgement));
        }
        if !sings(Canary::ReplayBeforeLossRecorded) {
            record::locked_update(shard, |_| {}).await.map_err(|_| lost(shard))?;
        }
        mend::mend(shard, &sources, &judgement.stripes, &mut summary).await?;
    }
    summary.duration = Nanos(shard.worker.handle.now().0 - began.0);
    let fields = vec![
        ("rolled_forward", summary.rolled_forward.to_string()),
        ("dropped", summary.dropped.to_string()),
        ("rows_in_doubt", summary.rows_in_doubt.to_string()),
        ("rows_left", summary.rows_left.to_string()),
        ("blocks", summary.blocks.to_string()),
        ("duration_us", (summary.duration.0 / 1000).to_string()),
    ];
    shard.array.record(names::LOG_REPLAYED, fields);
    Ok(summary)
}

fn summary_of(tally: &ReplayTally) -> ReplaySummary {
    ReplaySummary {
        rolled_forward: tally.rolled_forward + tally.outdated,
        dropped: tally.dropped,
        ..ReplaySummary::default()
    }
}

/// Read the log areas of all devices in service: all at once, a piece of each at a time.
async fn read_logs(shard: &Rc<Shard>) -> Vec<Source> {
    let superblock = shard.home().superblock();
    let area = superblock.areas.intent_log;
    let limits = LogLimits::of(&superblock.geometry);
    let mut scans = Vec::new();
    for target in record::targets(shard, &superblock) {
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
        scans.push((target, log_tag, Ok(LogScan::new(identity, limits, area.bytes))));
    }
    loop {
        let mut started = Vec::new();
        for (at, (target, _, scan)) in scans.iter().enumerate() {
            let wanted = scan.as_ref().ok().and_then(LogScan::wanted);
            if let Some(Extent { offset, bytes }) = wanted {
                let read = Command::Read(BufMut::zeroed(to_usize(bytes)));
                let device = target.device.as_ref();
                started.push((at, shard.start_on(device, area.offset + offset, read)));
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
    let source = |(target, log_tag, scan): (Target, u64, Result<LogScan, String>)| {
        let log = scan.map(LogScan::finish).and_then(|log| match log.fault {
            None => Ok(log),
            Some(fault) => Err(format!("its log makes no sense: {fault}")),
        });
        Source { target, log_tag, log }
    };
    scans.into_iter().map(source).collect()
}

/// Judge what was read. Devices whose log cannot be relied on are put out first.
async fn judge_all(shard: &Rc<Shard>, sources: &mut Vec<Source>) -> Result<Judgement, Refusal> {
    loop {
        let (unreadable, readable) = std::mem::take(sources)
            .into_iter()
            .partition::<Vec<_>, _>(|source| source.log.is_err());
        *sources = readable;
        for source in unreadable {
            let why = source.log.err().unwrap_or_default();
            lose(shard, &source.target, format!("its log could not be read: {why}")).await?;
        }
        let logs: Vec<DeviceLog<'_>> = sources
            .iter()
            .filter_map(|source| {
                let log = source.log.as_ref().ok()?;
                Some(DeviceLog { log_tag: source.log_tag, slot: source.target.slot, log })
            })
            .collect();
        let array = &shard.array;
        let is_written = |stripe| array.written.is_written(stripe);
        let judgement = judge(&logs, &array.geometry, is_written).map_err(|contradiction| {
            Refusal::new(
                "array.log_contradicts",
                format!("array '{}': {contradiction}; nothing was written", array.name()),
                "look at the logs with `ashlar examine`, and keep the members as they are",
            )
        })?;
        if judgement.damaged.is_empty() {
            return Ok(judgement);
        }
        for at in judgement.damaged {
            sources[at].log = Err("it lacks a record that it must have had".to_owned());
        }
    }
}

/// A device takes no further part: the others say so when this returns. An array that may not be written goes
/// on without it and says nothing.
async fn lose(shard: &Rc<Shard>, target: &Target, why: String) -> Result<(), Refusal> {
    if shard.array.is_read_only() {
        return Ok(());
    }
    let slot = target.slot;
    if target.is_replacement {
        home::replacement_failed(shard, (slot, shard.tenures(slot).1), why).await;
        return Ok(());
    }
    home::take_out(shard, slot, why).await.map_err(|_| lost(shard))
}

fn lost(shard: &Shard) -> Refusal {
    Refusal::new(
        "array.not_started",
        format!(
            "array '{}' could not roll its log forward: more members failed than the parity can replace",
            shard.array.name()
        ),
        "attach the members that failed and assemble again; the log is kept until then",
    )
}

fn read_only(shard: &Shard, judgement: &Judgement) -> Refusal {
    Refusal::new(
        "array.log_not_replayed",
        format!(
            "array '{}' stopped with updates under way: {} stripes are to be put right from the log before \
             anything is read, and a read-only start may not; nothing was written",
            shard.array.name(),
            judgement.stripes.len()
        ),
        "assemble it for writing",
    )
}
