//! Writing in place what the logs hold, and parity of rows in doubt.
//!
//! What must stay true: memory is bounded whatever the logs hold; of a stripe the blocks from the
//! logs are in place before its parity is generated; when this returns everything is flushed on
//! every member that is still in service. A device that fails is put out, and the rest goes on
//! without it. Nobody else writes: there are no requests and no jobs yet, so there are no row
//! locks.

use super::found::spoil;
use super::prove::to_put_back;
use super::{ReplaySummary, Source, lose, lost};
use crate::canary::{Canary, sings};
use crate::checksums::pins::{Noted, note_alone};
use crate::checksums::{self, block_of};
use crate::datapath::settle::block_lost;
use crate::error::Refusal;
use crate::home::{keeper, record};
use crate::shard::Shard;
use ashlar_device::{Command, Device, Fault, FaultKind, Outcome};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_layout::{RowRange, Stripe};
use ashlar_ondisk::log::StripeReplay;
use ashlar_parity::Locality;
use ashlar_ring::Pending;
use ashlar_units::{BLOCK_BYTES, Extent, StripIdx, StripSet, to_u64, to_usize};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Bytes copied by one read and one write.
const PIECE_BYTES: u64 = 256 << 10;
/// Pieces under way at once.
const PIECES_MAX: usize = 32;
/// Rows whose parity is generated at once.
const TILE_ROWS: u32 = 64;

/// Blocks to be copied from a device's log to their place on it.
struct Piece {
    source: usize,
    log_offset: u64,
    place: Extent,
}

/// Do what the judgement says.
///
/// # Errors
/// If more members fail than the parity replaces.
pub(super) async fn mend(
    shard: &Rc<Shard>,
    sources: &[Source],
    stripes: &[StripeReplay],
    summary: &mut ReplaySummary,
) -> Result<(), Refusal> {
    spoil(shard, stripes).await?;
    let mut failed = BTreeSet::new();
    let mut pieces = stripes.iter().flat_map(|stripe| pieces_of(shard, stripe)).peekable();
    while pieces.peek().is_some() {
        let window: Vec<Piece> = pieces.by_ref().take(PIECES_MAX).collect();
        let now_failed = copy(shard, sources, window, &failed, summary).await;
        for (at, fault) in now_failed {
            if failed.insert(at) {
                lose(shard, &sources[at].target, fault.to_string()).await?;
            }
        }
        store_checksums_if_many(shard).await?;
    }
    for replay in stripes {
        let stripe = shard.array.layouts.recorded(replay.stripe);
        for block in replay.lost.iter().filter(|_| !sings(Canary::LeanLostLeft)) {
            let rows = RowRange::new(block.row, block.row + 1);
            let strip = StripSet::only(block.home.strip);
            if !generate(shard, (stripe, rows), strip).await? {
                block_lost(shard, stripe);
                summary.rows_left += 1;
            }
        }
        for rows in replay.in_doubt.iter().copied().filter(|_| !sings(Canary::DoubtLeft)) {
            summary.rows_in_doubt += u64::from(rows.blocks());
            for start in (rows.start..rows.end).step_by(to_usize(TILE_ROWS.into())) {
                let tile = RowRange::new(start, rows.end.min(start + TILE_ROWS));
                for (rows, wrong) in to_generate(shard, (stripe, tile)).await? {
                    summary.put_back += u64::from(rows.blocks()) * to_u64(wrong.count());
                    let run = (stripe, rows);
                    summary.rows_left += generate_or_leave(shard, run, wrong).await?;
                }
                store_checksums_if_many(shard).await?;
            }
        }
    }
    if sings(Canary::ReplayNotFlushed) {
        return Ok(());
    }
    flush(shard).await
}

/// Memory is bounded: changed pages of the checksum table go to the members, with what they speak
/// of.
async fn store_checksums_if_many(shard: &Rc<Shard>) -> Result<(), Refusal> {
    if checksums::are_mostly_dirty(&shard.array) { flush(shard).await } else { Ok(()) }
}

fn pieces_of(shard: &Shard, replay: &StripeReplay) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let stripe = shard.array.layouts.recorded(replay.stripe);
    let left_out = usize::from(sings(Canary::ReplaySkipsOne));
    for write in replay.writes.iter().skip(left_out) {
        let place = shard.array.device_offset(stripe, write.strip, write.rows.start);
        let mut done = 0;
        while done < write.rows.bytes() {
            let bytes = PIECE_BYTES.min(write.rows.bytes() - done);
            pieces.push(Piece {
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
    shard: &Rc<Shard>,
    sources: &[Source],
    pieces: Vec<Piece>,
    failed: &BTreeSet<usize>,
    summary: &mut ReplaySummary,
) -> Vec<(usize, Fault)> {
    let area = shard.home().superblock().areas.intent_log.offset;
    let mut now_failed = Vec::new();
    let mut reads = Vec::new();
    for piece in pieces.into_iter().filter(|piece| !failed.contains(&piece.source)) {
        let buffer = BufMut::zeroed(to_usize(piece.place.bytes));
        let device = sources[piece.source].target.device.as_ref();
        let read = shard.start_on(device, area + piece.log_offset, Command::Read(buffer));
        reads.push((piece, read));
    }
    let mut writes = Vec::new();
    for (piece, read) in reads {
        match content(read).await {
            Ok(bytes) => {
                let device = sources[piece.source].target.device.as_ref();
                let bytes = bytes.freeze();
                let noted = noted(shard, &sources[piece.source], piece.place.offset, &bytes);
                let write = shard.start_on(device, piece.place.offset, Command::Write(bytes));
                writes.push((piece.source, noted, write));
                summary.blocks += piece.place.bytes / BLOCK_BYTES;
            }
            Err(fault) => now_failed.push((piece.source, fault)),
        }
    }
    for (source, noted, write) in writes {
        let stored = match result(write).await {
            Ok(()) => note_alone(shard, noted).await,
            fault => fault,
        };
        if let Err(fault) = stored {
            now_failed.push((source, fault));
        }
    }
    now_failed
}

/// Blocks at `offset` of a source's device.
fn noted(shard: &Shard, source: &Source, offset: u64, bytes: &Buf) -> Noted {
    let slot = source.target.slot;
    let (current, replacement) = shard.tenures(slot);
    let tenure = if source.target.is_replacement { replacement } else { current };
    Noted::new((slot, tenure), (offset - shard.array.data_offset) / BLOCK_BYTES, bytes.clone())
}

const GONE: Fault = Fault { kind: FaultKind::Gone, errno: 0 };

pub(super) async fn result(pending: Pending<Outcome>) -> Result<(), Fault> {
    pending.await.map_or(Err(GONE), |outcome| outcome.result)
}

async fn content(pending: Pending<Outcome>) -> Result<BufMut, Fault> {
    let outcome = pending.await.ok_or(GONE)?;
    outcome.result?;
    outcome.buffer.ok_or(GONE)
}

/// A tile in runs of rows that are generated alike: all rows of one have the same strips that are
/// to be put back. What lies there is not read again: whoever did would believe a device that has
/// lost what was put back.
async fn to_generate(
    shard: &Rc<Shard>,
    (stripe, tile): (Stripe, RowRange),
) -> Result<Vec<(RowRange, StripSet)>, Refusal> {
    if sings(Canary::ProvenNotPutBack) {
        return Ok(vec![(tile, StripSet::EMPTY)]);
    }
    let mut runs: Vec<(RowRange, StripSet)> = Vec::new();
    for (row, wrong) in (tile.start..).zip(to_put_back(shard, (stripe, tile)).await?) {
        match runs.last_mut() {
            Some((rows, alike)) if *alike == wrong => rows.end = row + 1,
            _ => runs.push((RowRange::new(row, row + 1), wrong)),
        }
    }
    Ok(runs)
}

/// Make rows of a stripe a codeword, without believing what lies on the strips that are `wrong`.
/// How many of them were left as they are, because the media give back too little of them to
/// compute anything from: their lost blocks are lost, which is no reason to refuse the rest of the
/// array.
async fn generate_or_leave(
    shard: &Rc<Shard>,
    (stripe, run): (Stripe, RowRange),
    wrong: StripSet,
) -> Result<u64, Refusal> {
    if generate(shard, (stripe, run), wrong).await? {
        return Ok(0);
    }
    let mut left = 0;
    for row in run.start..run.end {
        let rows = RowRange::new(row, row + 1);
        if !generate(shard, (stripe, rows), wrong).await? {
            block_lost(shard, stripe);
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
    shard: &Rc<Shard>,
    (stripe, rows): (Stripe, RowRange),
    mut unreadable: StripSet,
) -> Result<bool, Refusal> {
    let array = &shard.array;
    let data_strips = array.geometry_of(stripe).data_strips();
    // Each pass knows of at least one unreadable strip more, so this ends.
    loop {
        let view = array.view(stripe);
        let readable = view.readable.minus(unreadable);
        if readable.count() < data_strips {
            let is_for_media = view.readable.count() >= data_strips;
            return if is_for_media { Ok(false) } else { Err(lost(shard)) };
        }
        let survivors = readable.lowest(data_strips);
        match read_strips(shard, stripe, survivors, rows).await? {
            Err(strips) => unreadable = unreadable.or(strips),
            Ok(read) => {
                let wanted = view.writable.minus(survivors);
                store(shard, (stripe, rows), read, (survivors, wanted)).await?;
                return Ok(true);
            }
        }
    }
}

/// Rows of each strip, rising; else the strips that could not be read. Members that are gone are
/// put out.
pub(super) async fn read_strips(
    shard: &Rc<Shard>,
    stripe: Stripe,
    strips: StripSet,
    rows: RowRange,
) -> Result<Result<Vec<BufMut>, StripSet>, Refusal> {
    let mut started = Vec::new();
    for strip in strips.iter() {
        let buffer = BufMut::zeroed(to_usize(rows.bytes()));
        let (member, offset) = shard.array.place(stripe, strip, rows.start);
        started.push((strip, shard.start(member, offset, Command::Read(buffer))));
    }
    let (mut read, mut unreadable) = (Vec::new(), StripSet::EMPTY);
    for (strip, pending) in started {
        let outcome = match pending {
            Some(pending) => content(pending).await,
            None => Err(GONE),
        };
        match outcome {
            Ok(bytes) => read.push(bytes),
            Err(fault) => {
                unreadable = unreadable.with(strip);
                if fault.kind != FaultKind::Media {
                    lose_holder(shard, stripe, strip, fault).await?;
                }
            }
        }
    }
    Ok(if unreadable.is_empty() { Ok(read) } else { Err(unreadable) })
}

pub(super) async fn lose_holder(
    shard: &Rc<Shard>,
    stripe: Stripe,
    strip: StripIdx,
    fault: Fault,
) -> Result<(), Refusal> {
    let member = shard.array.member_of(stripe, strip);
    let taken = crate::home::take_out(shard, member, fault.to_string()).await;
    taken.map_err(|_| lost(shard))
}

/// Compute the strips `wanted` from the survivors, and store all that is not there.
async fn store(
    shard: &Rc<Shard>,
    (stripe, rows): (Stripe, RowRange),
    read: Vec<BufMut>,
    (survivors, wanted): (StripSet, StripSet),
) -> Result<(), Refusal> {
    let bytes = to_usize(rows.bytes());
    let mut made: Vec<BufMut> = wanted.iter().map(|_| BufMut::zeroed(bytes)).collect();
    if !wanted.is_empty() {
        let cached = shard.decode_plan(stripe, survivors, wanted);
        let sources: Vec<&[u8]> = read.iter().map(|bytes| &bytes[..]).collect();
        let mut targets: Vec<&mut [u8]> = made.iter_mut().map(|bytes| &mut bytes[..]).collect();
        let decoded = cached.plan.run(&sources, &mut targets, Locality::Cached);
        decoded.expect("a slice for each strip, all of the same rows");
    }
    let mut writes: Vec<(StripIdx, bool, Rc<dyn Device>, Buf)> = Vec::new();
    for (strip, content) in survivors.iter().zip(read).chain(wanted.iter().zip(made)) {
        let member = shard.array.member_of(stripe, strip);
        let content = content.freeze();
        note_as_found(shard, (stripe, strip, rows), &content).await?;
        if let Some(device) = shard.replacement(member) {
            writes.push((strip, true, device, content.clone()));
        }
        if let Some(device) = shard.device(member).filter(|_| wanted.contains(strip)) {
            writes.push((strip, false, device, content));
        }
    }
    let start = |(strip, is_replacement, device, content): (_, _, Rc<dyn Device>, _)| {
        let offset = shard.array.device_offset(stripe, strip, rows.start);
        let write = shard.start_on(device.as_ref(), offset, Command::Write(content));
        (strip, is_replacement, write)
    };
    let started: Vec<_> = writes.into_iter().map(start).collect();
    for (strip, is_replacement, write) in started {
        let Err(fault) = result(write).await else { continue };
        if is_replacement {
            let member = shard.array.member_of(stripe, strip);
            let tenure = shard.tenures(member).1;
            crate::home::replacement_failed(shard, (member, tenure), fault.to_string()).await;
        } else {
            lose_holder(shard, stripe, strip, fault).await?;
        }
    }
    Ok(())
}

/// What is in doubt, and not proven otherwise, is taken as it is found; so its checksums are those
/// of what is found.
async fn note_as_found(
    shard: &Rc<Shard>,
    (stripe, strip, rows): (Stripe, StripIdx, RowRange),
    content: &Buf,
) -> Result<(), Refusal> {
    let member = shard.array.member_of(stripe, strip);
    let (current, replacement) = shard.tenures(member);
    let block = block_of(&shard.array, stripe, strip, rows.start);
    if shard.replacement(member).is_some() {
        let noted = Noted::new((member, replacement), block, content.clone());
        if let Err(fault) = note_alone(shard, noted).await {
            let owner = (member, replacement);
            crate::home::replacement_failed(shard, owner, fault.to_string()).await;
        }
    }
    if shard.device(member).is_some() {
        let noted = Noted::new((member, current), block, content.clone());
        if let Err(fault) = note_alone(shard, noted).await {
            lose_holder(shard, stripe, strip, fault).await?;
        }
    }
    Ok(())
}

/// Flush every device in service, with the changed pages of its checksum table; one that cannot is
/// put out.
async fn flush(shard: &Rc<Shard>) -> Result<(), Refusal> {
    let sums = keeper::store_checksums(shard).await;
    if !sums.is_kept {
        return Err(lost(shard));
    }
    let targets = record::targets(shard, &shard.home().superblock());
    let start = |target: &record::Target| shard.start_on(target.device.as_ref(), 0, Command::Flush);
    let started: Vec<_> = targets.iter().map(start).collect();
    for (target, flushed) in targets.iter().zip(started) {
        if let Err(fault) = result(flushed).await {
            lose(shard, target, fault.to_string()).await?;
        }
    }
    sums.end(shard, true);
    Ok(())
}
