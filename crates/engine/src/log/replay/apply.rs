//! Writes in place what the logs hold, and parity of rows in doubt.
//!
//! What must stay true: memory is bounded whatever the logs hold. The blocks of a stripe from the
//! logs are in place before its parity is generated. When this returns, everything is flushed on
//! every member in service. A device that fails is put out, and the work goes on without it. There
//! are no requests and no jobs yet, so there are no row locks.

use super::found::spoil;
use super::prove::to_put_back;
use super::{Source, lose, lost};
use crate::array::Array;
use crate::blame::block_lost;
use crate::canary::{Canary, sings};
use crate::checksums;
use crate::checksums::block_of;
use crate::checksums::pins::{Noted, note_alone};
use crate::coordinator::{map_writer, record};
use crate::error::Refusal;
use crate::local_array::LocalArray;
use crate::log::replay::summary::ReplaySummary;
use crate::slot::{MemberDevice, WriteTarget};
use crate::stripe::StripRun;
use ashlar_device::{Command, Device, Fault, FaultKind, Outcome};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_layout::{RowRange, Stripe};
use ashlar_ondisk::log::StripeReplay;
use ashlar_ring::Pending;
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, StripIdx, StripSet, to_u64, to_usize};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Bytes copied by one read and one write.
const PIECE_BYTES: u64 = 256 << 10;
/// Pieces under way at once.
const PIECES_MAX: usize = 32;
/// Rows whose parity is generated at once.
const TILE_ROWS: u32 = 64;

/// Blocks to be copied from a device's log to their place on it.
struct LoggedRun {
    source: usize,
    log_offset: u64,
    place: Extent,
}

/// Do what the judgement says.
///
/// # Errors
/// If more members fail than the parity replaces.
pub(super) async fn apply(
    local: &Rc<LocalArray>,
    sources: &[Source],
    stripes: &[StripeReplay],
    summary: &mut ReplaySummary,
) -> Result<(), Refusal> {
    spoil(local, stripes).await?;
    let mut failed = BTreeSet::new();
    let pieces = stripes.iter().flat_map(|stripe| pieces_of(&local.array, sources, stripe));
    let mut pieces = pieces.peekable();
    while pieces.peek().is_some() {
        let window: Vec<LoggedRun> = pieces.by_ref().take(PIECES_MAX).collect();
        let now_failed = copy(local, sources, window, &failed, summary).await;
        for (at, fault) in now_failed {
            if failed.insert(at) {
                lose(local, &sources[at].target, fault.to_string()).await?;
            }
        }
        store_checksums_if_many(local).await?;
    }
    for replay in stripes {
        let stripe = local.array.layouts.recorded(replay.stripe);
        for block in replay.lost.iter().filter(|_| !sings(Canary::ParityOnlyLostLeft)) {
            let rows = RowRange::new(block.row, block.row + 1);
            let strip = StripSet::only(block.change.strip);
            if !generate(local, stripe, rows, strip).await? {
                block_lost(local, stripe);
                summary.rows_left += 1;
            }
        }
        for rows in replay.in_doubt.iter().copied().filter(|_| !sings(Canary::DoubtLeft)) {
            summary.rows_in_doubt += u64::from(rows.blocks());
            for start in (rows.start..rows.end).step_by(to_usize(TILE_ROWS.into())) {
                let tile = RowRange::new(start, rows.end.min(start + TILE_ROWS));
                for (rows, wrong) in to_generate(local, stripe, tile).await? {
                    summary.put_back += u64::from(rows.blocks()) * to_u64(wrong.count());
                    summary.rows_left += generate_or_leave(local, stripe, rows, wrong).await?;
                }
                store_checksums_if_many(local).await?;
            }
        }
    }
    if sings(Canary::ReplayNotFlushed) {
        return Ok(());
    }
    flush(local).await
}

/// Memory is bounded: changed pages of the checksum table go to the members, with what they speak
/// of.
async fn store_checksums_if_many(local: &Rc<LocalArray>) -> Result<(), Refusal> {
    if checksums::are_mostly_dirty(&local.array) { flush(local).await } else { Ok(()) }
}

fn pieces_of(array: &Array, sources: &[Source], replay: &StripeReplay) -> Vec<LoggedRun> {
    let mut pieces = Vec::new();
    let stripe = array.layouts.recorded(replay.stripe);
    let left_out = usize::from(sings(Canary::ReplaySkipsOne));
    for write in replay.writes.iter().skip(left_out) {
        let place = array.place_on(stripe, write.strip, sources[write.device].target.slot);
        let place = array.offset_of(place, write.rows.start);
        let mut done = 0;
        while done < write.rows.bytes() {
            let bytes = PIECE_BYTES.min(write.rows.bytes() - done);
            pieces.push(LoggedRun {
                source: write.device,
                log_offset: write.log_offset + done,
                place: Extent::new(place + done, bytes),
            });
            done += bytes;
        }
    }
    pieces
}

/// Copy the pieces of devices that have not failed; those that fail now come back.
async fn copy(
    local: &Rc<LocalArray>,
    sources: &[Source],
    pieces: Vec<LoggedRun>,
    failed: &BTreeSet<usize>,
    summary: &mut ReplaySummary,
) -> Vec<(usize, Fault)> {
    let area = local.coordinator().superblock().areas.intent_log.offset;
    let mut now_failed = Vec::new();
    let mut reads = Vec::new();
    for piece in pieces.into_iter().filter(|piece| !failed.contains(&piece.source)) {
        let buffer = BufMut::zeroed(to_usize(piece.place.bytes));
        let device = sources[piece.source].target.device.as_ref();
        let read = local.start_on(device, area + piece.log_offset, Command::Read(buffer));
        reads.push((piece, read));
    }
    let mut writes = Vec::new();
    for (piece, read) in reads {
        match content(read).await {
            Ok(bytes) => {
                let device = sources[piece.source].target.device.as_ref();
                let bytes = bytes.freeze();
                let noted = noted(local, &sources[piece.source], piece.place.offset, &bytes);
                let write = local.start_on(device, piece.place.offset, Command::Write(bytes));
                writes.push((piece.source, noted, write));
                summary.blocks += piece.place.bytes / BLOCK_BYTES;
            }
            Err(fault) => now_failed.push((piece.source, fault)),
        }
    }
    for (source, noted, write) in writes {
        let stored = match result(write).await {
            Ok(()) => note_alone(local, noted).await,
            fault => fault,
        };
        if let Err(fault) = stored {
            now_failed.push((source, fault));
        }
    }
    now_failed
}

/// Blocks at `offset` of a source's device.
fn noted(local: &LocalArray, source: &Source, offset: u64, bytes: &Buf) -> Noted {
    let member = source.target.slot;
    let (current, replacement) = local.device_epochs(member);
    let device_epoch = if source.target.is_replacement { replacement } else { current };
    Noted::new(
        MemberDevice { member, device_epoch },
        (offset - local.array.data_offset) / BLOCK_BYTES,
        bytes.clone(),
    )
}

pub(super) async fn result(pending: Pending<Outcome>) -> Result<(), Fault> {
    pending.await.map_or(Err(Fault::GONE), |outcome| outcome.result)
}

async fn content(pending: Pending<Outcome>) -> Result<BufMut, Fault> {
    let outcome = pending.await.ok_or(Fault::GONE)?;
    outcome.result?;
    outcome.buffer.ok_or(Fault::GONE)
}

/// A tile in runs of rows that are generated alike: all rows of a run have the same strips to
/// restore. These strips are not read again, because the device may have lost what was restored.
async fn to_generate(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    tile: RowRange,
) -> Result<Vec<(RowRange, StripSet)>, Refusal> {
    if sings(Canary::ProvenNotPutBack) {
        return Ok(vec![(tile, StripSet::EMPTY)]);
    }
    let mut runs: Vec<(RowRange, StripSet)> = Vec::new();
    for (row, wrong) in (tile.start..).zip(to_put_back(local, stripe, tile).await?) {
        match runs.last_mut() {
            Some((rows, alike)) if *alike == wrong => rows.end = row + 1,
            _ => runs.push((RowRange::new(row, row + 1), wrong)),
        }
    }
    Ok(runs)
}

/// Make rows of a stripe a codeword without the content of the `wrong` strips. Returns how many of
/// them were left unchanged, because the media return too little to compute them. Their lost blocks
/// are lost, which is no reason to refuse the rest of the array.
async fn generate_or_leave(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    run: RowRange,
    wrong: StripSet,
) -> Result<u64, Refusal> {
    if generate(local, stripe, run, wrong).await? {
        return Ok(0);
    }
    let mut left = 0;
    for row in run.start..run.end {
        let rows = RowRange::new(row, row + 1);
        if !generate(local, stripe, rows, wrong).await? {
            block_lost(local, stripe);
            left += 1;
        }
    }
    Ok(left)
}

/// Make rows of a stripe a codeword: from its data, where that can be read, else from the first
/// parities besides. A device that is being filled gets its strip, too, so that it is no older than
/// the one it replaces. False, and nothing is written: members are there that should do, but too
/// many of their blocks cannot be read. What lies on the strips that are `unreadable` from the
/// beginning is not to be believed.
async fn generate(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    rows: RowRange,
    mut unreadable: StripSet,
) -> Result<bool, Refusal> {
    let array = &local.array;
    let data_strips = array.geometry_of(stripe).data_strips();
    // Each pass knows of at least one unreadable strip more, so this ends.
    loop {
        let view = array.view(stripe);
        let readable = view.readable.minus(unreadable);
        if readable.count() < data_strips {
            let is_for_media = view.readable.count() >= data_strips;
            return if is_for_media { Ok(false) } else { Err(lost(&local.array)) };
        }
        let survivors = readable.lowest(data_strips);
        match read_strips(local, stripe, survivors, rows).await? {
            Err(strips) => unreadable = unreadable.or(strips),
            Ok(content) => {
                let read = ReadStrips { strips: survivors, content };
                store(local, stripe, rows, read, view.writable.minus(survivors)).await?;
                return Ok(true);
            }
        }
    }
}

/// Rows of each strip, rising; else the strips that could not be read. Members that are gone are
/// put out.
pub(super) async fn read_strips(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    strips: StripSet,
    rows: RowRange,
) -> Result<Result<Vec<BufMut>, StripSet>, Refusal> {
    let mut started = Vec::new();
    for strip in strips.iter() {
        let buffer = BufMut::zeroed(to_usize(rows.bytes()));
        let place = local.array.readable_place(stripe, strip, rows.start);
        let read =
            |(member, offset)| Some((member, local.start(member, offset, Command::Read(buffer))?));
        started.push((strip, place.and_then(read)));
    }
    let (mut read, mut unreadable) = (Vec::new(), StripSet::EMPTY);
    for (strip, begun) in started {
        let Some((member, pending)) = begun else {
            // Its member has just been put out.
            unreadable = unreadable.with(strip);
            continue;
        };
        match content(pending).await {
            Ok(bytes) => read.push(bytes),
            Err(fault) => {
                unreadable = unreadable.with(strip);
                if fault.kind != FaultKind::Media {
                    lose_holder(local, member, fault).await?;
                }
            }
        }
    }
    Ok(if unreadable.is_empty() { Ok(read) } else { Err(unreadable) })
}

pub(super) async fn lose_holder(
    local: &Rc<LocalArray>,
    member: MemberIdx,
    fault: Fault,
) -> Result<(), Refusal> {
    let taken = crate::coordinator::take_out(local, member, fault.to_string()).await;
    taken.map_err(|_| lost(&local.array))
}

/// The content of some strips, rising.
struct ReadStrips {
    strips: StripSet,
    content: Vec<BufMut>,
}

/// Compute the strips `wanted` from the survivors, and store all that is not there.
async fn store(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    rows: RowRange,
    read: ReadStrips,
    wanted: StripSet,
) -> Result<(), Refusal> {
    let ReadStrips { strips: survivors, content: read } = read;
    let bytes = to_usize(rows.bytes());
    let mut made: Vec<BufMut> = wanted.iter().map(|_| BufMut::zeroed(bytes)).collect();
    if !wanted.is_empty() {
        let source = |strip| survivors.iter().zip(&read).find(|(it, _)| *it == strip);
        let mut targets: Vec<&mut [u8]> = made.iter_mut().map(|bytes| &mut bytes[..]).collect();
        let plan = local.decode_plan(stripe, survivors, wanted);
        plan.run(|strip| &source(strip).expect("a survivor was read").1[..], &mut targets);
    }
    let mut writes: Vec<(StripIdx, WriteTarget, Rc<dyn Device>, Buf)> = Vec::new();
    for (strip, content) in survivors.iter().zip(read).chain(wanted.iter().zip(made)) {
        let member = local.array.member_of(stripe, strip);
        let content = content.freeze();
        note_as_found(local, StripRun { stripe, strip, rows }, &content).await?;
        let (current, replacement) = local.device_epochs(member);
        if let Some(device) = local.replacement(member) {
            let target = MemberDevice { member, device_epoch: replacement };
            writes.push((strip, WriteTarget::replacement(target), device, content.clone()));
        }
        if let Some(device) = local.device(member).filter(|_| wanted.contains(strip)) {
            let target = MemberDevice { member, device_epoch: current };
            writes.push((strip, WriteTarget::current(target), device, content));
        }
    }
    let start = |(strip, target, device, content): (_, _, Rc<dyn Device>, _)| {
        let offset = local.array.device_offset(stripe, strip, rows.start);
        (target, local.start_on(device.as_ref(), offset, Command::Write(content)))
    };
    let started: Vec<(WriteTarget, _)> = writes.into_iter().map(start).collect();
    for (WriteTarget { device, is_replacement }, write) in started {
        let Err(fault) = result(write).await else { continue };
        if is_replacement {
            crate::coordinator::replacement_failed(local, device, fault.to_string()).await;
        } else {
            lose_holder(local, device.member, fault).await?;
        }
    }
    Ok(())
}

/// What is in doubt, and not proven otherwise, is taken as it is found; so its checksums are those
/// of what is found.
async fn note_as_found(
    local: &Rc<LocalArray>,
    StripRun { stripe, strip, rows }: StripRun,
    content: &Buf,
) -> Result<(), Refusal> {
    let member = local.array.member_of(stripe, strip);
    let (current, replacement) = local.device_epochs(member);
    let block = block_of(&local.array, stripe, strip, rows.start);
    if local.replacement(member).is_some() {
        let owner = MemberDevice { member, device_epoch: replacement };
        let noted = Noted::new(owner, block, content.clone());
        if let Err(fault) = note_alone(local, noted).await {
            crate::coordinator::replacement_failed(local, owner, fault.to_string()).await;
        }
    }
    if local.device(member).is_some() {
        let owner = MemberDevice { member, device_epoch: current };
        let noted = Noted::new(owner, block, content.clone());
        if let Err(fault) = note_alone(local, noted).await {
            lose_holder(local, member, fault).await?;
        }
    }
    Ok(())
}

/// Flush every device in service, with the changed pages of its checksum table; one that cannot is
/// put out.
async fn flush(local: &Rc<LocalArray>) -> Result<(), Refusal> {
    let sums = map_writer::store_checksums(local).await;
    if !sums.is_kept {
        return Err(lost(&local.array));
    }
    let targets = record::targets(local, &local.coordinator().superblock());
    let start = |target: &record::SuperblockTarget| {
        local.start_on(target.device.as_ref(), 0, Command::Flush)
    };
    let started: Vec<_> = targets.iter().map(start).collect();
    for (target, flushed) in targets.iter().zip(started) {
        if let Err(fault) = result(flushed).await {
            lose(local, target, fault.to_string()).await?;
        }
    }
    sums.end(&local.array, true);
    Ok(())
}
