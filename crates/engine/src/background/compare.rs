//! Scrub and resync: read all strips of a tile, compare parity with data, make them agree.
//!
//! What must stay true: a scrub rewrites data only if two or more parities point at the same strip.
//! Otherwise it rewrites parity. A resync never computes data from old parity, unless the operator
//! accepted that at the start. It takes the data as found (of a mirror the lowest readable copy)
//! and generates parity from it. If data is missing and parity is not trusted, the job can only
//! compare the stripe with a parity that is left over. If that fails or none is left over, the job
//! leaves the stripe unchanged and reports it.
//!
//! The caller holds the rows' exclusive lock.

use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::datapath::gather::gather_each;
use crate::datapath::heal::heal;
use crate::datapath::reconstruct::{decode_one, write_back};
use crate::datapath::store::{Stored, repair};
use crate::event::names;
use crate::local_array::LocalArray;
use crate::log::update::Piece;
use crate::rows::RowSet;
use crate::scratch::StripeBuffers;
use crate::stripe::StripRun;
use crate::stripe::work::StepReport;
use ashlar_iobuf::BufMut;
use ashlar_layout::{Geometry, RowRange, StripIo, Stripe};
use ashlar_parity::Verdict;
use ashlar_units::{
    BLOCK_BYTES, BLOCK_BYTES_USIZE, STRIPS_MAX, StripIdx, StripSet, to_u64, to_usize,
};
use std::rc::Rc;

/// Parity strips a stripe has at most.
const PARITIES_MAX: usize = 32;
/// How often a block of an array with checksums is repaired before it is called lost.
const REPAIRS_MAX: usize = 2;

/// Rows of a stripe that are looked at together.
#[derive(Clone, Copy)]
struct StripeRows {
    stripe: Stripe,
    rows: RowRange,
}

/// A tile as far as it could be read.
struct Tile {
    stripe: Stripe,
    rows: RowRange,
    /// What was read, and data that was decoded from it.
    content: RowSet,
    /// Strips whose content was read.
    present: StripSet,
    /// Data strips that are not there and were decoded from the others.
    decoded: StripSet,
}

/// Compare one tile; put right what is wrong if that is asked for. Blocks that cannot be read are
/// reconstructed and written back in any case.
pub(super) async fn scrub(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    rows: RowRange,
    is_repairing: bool,
    report: &mut StepReport,
) {
    let view = local.array.view(stripe);
    if local.array.intent.is_unsynced(local.array.intent.region_of(stripe)) {
        // A resync comes here first; what it leaves is not for a scrub to judge.
        return;
    }
    let (mut buffers, _leave) = buffers_for(local, stripe, rows).await;
    let (tile, unreadable) =
        read(local, StripeRows { stripe, rows }, view.readable, &mut buffers, report).await;
    let (mut tile, unread) = healed(local, tile, unreadable, report).await;
    read_by_block(local, &mut tile, unread, report).await;
    complete(local, &mut tile, &mut buffers);
    let Some(verdict) = check(&local.array, &tile) else { return };
    let geometry = local.array.geometry_of(stripe);
    for row in verdict.rows().iter() {
        let wrong = locate(&local.array, &tile, row);
        let is_fixed = is_repairing && tile.decoded.is_empty();
        if is_fixed {
            let strips = wrong.map_or_else(|| disagreeing(geometry, &verdict, row), StripSet::only);
            rewrite(local, &tile, strips, one_row(rows, row), report).await;
        } else {
            report.left += 1;
        }
        report.mismatches += 1;
        say_mismatch(local, &tile, row, wrong, is_fixed);
    }
}

/// Make parity agree with the data in one tile.
pub(super) async fn resync(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    rows: RowRange,
    report: &mut StepReport,
) {
    let geometry = local.array.geometry_of(stripe);
    let view = local.array.view(stripe);
    let (mut buffers, _leave) = buffers_for(local, stripe, rows).await;
    let (tile, unreadable) =
        read(local, StripeRows { stripe, rows }, view.readable, &mut buffers, report).await;
    let (mut tile, unread) = healed(local, tile, unreadable, report).await;
    complete(local, &mut tile, &mut buffers);
    // Any copy of a mirror is data. Elsewhere what was decoded came out of parity that is not
    // trusted, unless the operator believes it.
    let is_believed = geometry.data_strips() == 1 || view.is_parity_valid;
    let data = if is_believed { tile.present.or(tile.decoded) } else { tile.present };
    let has_data = geometry.data().is_subset_of(data);
    let verdict = check(&local.array, &tile);
    if !has_data {
        // Decoded data is right if parity is left over that agrees with it.
        let disagreeing = verdict.map(|verdict| verdict.rows().iter().count());
        let blocks = disagreeing.map_or(u64::from(rows.blocks()), to_u64);
        if blocks != 0 {
            report.lost_blocks += blocks;
            return;
        }
    } else if let Some(verdict) = verdict {
        for row in verdict.rows().iter() {
            let strips = disagreeing(geometry, &verdict, row);
            rewrite(local, &tile, strips, one_row(rows, row), report).await;
            report.mismatches += 1;
        }
    }
    // What could not be read was not compared: it is stored anew, which also heals its bad blocks.
    rewrite(local, &tile, unread.strips, rows, report).await;
}

async fn buffers_for(
    local: &LocalArray,
    stripe: Stripe,
    rows: RowRange,
) -> (StripeBuffers, crate::scratch::Leave) {
    let geometry = local.array.geometry_of(stripe);
    // All strips, and as many decoded ones as can be missing.
    let count = geometry.stripe_width() + geometry.parity_strips();
    local.scratch.take(count, to_usize(rows.bytes())).await
}

async fn read(
    local: &Rc<LocalArray>,
    StripeRows { stripe, rows }: StripeRows,
    strips: StripSet,
    buffers: &mut StripeBuffers,
    report: &mut StepReport,
) -> (Tile, StripSet) {
    let ios = strips.iter().map(|strip| StripIo { strip, rows });
    local.counts().job_member_reads.add(to_u64(strips.count()));
    let (content, unreadable) = gather_each(local, stripe, ios, buffers).await;
    report.bytes += to_u64(strips.count()) * rows.bytes();
    let present = strips.minus(unreadable);
    (Tile { stripe, rows, content, present, decoded: StripSet::EMPTY }, unreadable)
}

/// The tile as it is after blocks that do not match their checksums were put right, if there were
/// any: with it the strips that are still not to be read, and the blocks that nothing can be proven
/// about. A device may acknowledge the repair and not store it: what was repaired and is still
/// wrong is repaired once more.
async fn healed(
    local: &Rc<LocalArray>,
    mut tile: Tile,
    mut unreadable: StripSet,
    report: &mut StepReport,
) -> (Tile, Unread) {
    let mut unproven = Vec::new();
    for _ in 0..REPAIRS_MAX {
        if unreadable.is_empty() {
            break;
        }
        let Some(healed) = heal(local, tile.stripe, tile.rows).await else { break };
        report.mismatches += healed.mismatches;
        report.repaired += healed.repaired;
        unproven = healed.lost;
        let present = unreadable.or(tile.present);
        let mut buffers = blank_buffers(local, present.count(), to_usize(tile.rows.bytes()));
        let again = StripeRows { stripe: tile.stripe, rows: tile.rows };
        (tile, unreadable) = read(local, again, present, &mut buffers, report).await;
        if healed.repaired == 0 {
            break;
        }
    }
    (tile, Unread { strips: unreadable, unproven })
}

/// What of a tile could not be read, or is not what was written.
struct Unread {
    strips: StripSet,
    /// With checksums: by strip and row.
    unproven: Vec<(StripIdx, u32)>,
}

/// Strips of the tile that could not be read at once: block by block, and what cannot be read even
/// so is reconstructed and written back. A strip that is whole afterwards counts as read.
async fn read_by_block(
    local: &Rc<LocalArray>,
    tile: &mut Tile,
    unread: Unread,
    report: &mut StepReport,
) {
    let array = &local.array;
    let is_there = |strip: &StripIdx| array.is_readable(tile.stripe, *strip);
    let broken: StripSet = unread.strips.iter().filter(is_there).collect();
    let mut whole = broken;
    for row in tile.rows.start..tile.rows.end {
        if broken.is_empty() {
            return;
        }
        let one = RowRange::new(row, row + 1);
        let ios = broken.iter().map(|strip| StripIo { strip, rows: one });
        let mut blocks = blank_buffers(local, broken.count(), BLOCK_BYTES_USIZE);
        local.counts().job_member_reads.add(to_u64(broken.count()));
        let (mut read, bad) = gather_each(local, tile.stripe, ios, &mut blocks).await;
        let sources = tile.present.or(broken.minus(bad));
        tile.content.entries.append(&mut read.entries);
        for strip in bad.iter() {
            let has_checksums = local.array.checksums.is_some();
            match regenerate(local, tile, sources, StripIo { strip, rows: one }) {
                // Stored already, and not to be had back: the device fails, or is going.
                Some(block) if has_checksums && !unread.unproven.contains(&(strip, row)) => {
                    tile.content.push(strip, one, block);
                }
                Some(block) if !has_checksums => {
                    local.counts().job_member_writes.add(1);
                    write_back(local, StripRun { stripe: tile.stripe, strip, rows: one }, &block)
                        .await;
                    report.repaired += 1;
                    tile.content.push(strip, one, block);
                }
                _ => {
                    report.lost_blocks += 1;
                    whole = whole.without(strip);
                }
            }
        }
    }
    for strip in broken.iter() {
        join_rows(tile, strip, whole.contains(strip));
    }
    tile.present = tile.present.or(whole);
}

/// Block `strip` of one row from the strips that were read; `None` if they are too few.
fn regenerate(
    local: &LocalArray,
    tile: &Tile,
    sources: StripSet,
    StripIo { strip, rows }: StripIo,
) -> Option<BufMut> {
    let needed = local.array.geometry_of(tile.stripe).data_strips();
    let sources = sources.without(strip);
    if sources.count() < needed {
        return None;
    }
    let survivors = sources.lowest(needed);
    let mut target = blank_buffers(local, 1, to_usize(rows.bytes()));
    let run = StripRun { stripe: tile.stripe, strip, rows };
    Some(decode_one(local, run, survivors, &tile.content, &mut target))
}

/// The single rows of a strip become one run, or go if some of them are lost.
fn join_rows(tile: &mut Tile, strip: StripIdx, is_whole: bool) {
    let mut run = BufMut::zeroed(to_usize(tile.rows.bytes()));
    for entry in tile.content.entries.iter().filter(|entry| entry.strip == strip) {
        let start = to_usize(u64::from(entry.rows.start - tile.rows.start) * BLOCK_BYTES);
        run[start..start + entry.bytes.len()].copy_from_slice(&entry.bytes);
    }
    tile.content.entries.retain(|entry| entry.strip != strip);
    if is_whole {
        tile.content.push(strip, tile.rows, run);
    }
}

/// Decode the data strips that are missing, if enough others are there to do that.
fn complete(local: &LocalArray, tile: &mut Tile, buffers: &mut StripeBuffers) {
    let geometry = local.array.geometry_of(tile.stripe);
    let missing = geometry.data().minus(tile.present);
    if tile.present.count() < geometry.data_strips() {
        return;
    }
    let survivors = tile.present.lowest(geometry.data_strips());
    for strip in missing.iter() {
        let run = StripRun { stripe: tile.stripe, strip, rows: tile.rows };
        let bytes = decode_one(local, run, survivors, &tile.content, buffers);
        tile.content.push(strip, tile.rows, bytes);
        tile.decoded = tile.decoded.with(strip);
    }
}

/// What parity says about the data; `None` if there is nothing to compare: no parity is left over
/// beyond what the data was decoded from.
fn check(array: &Array, tile: &Tile) -> Option<Verdict> {
    let geometry = array.geometry_of(tile.stripe);
    if tile.present.count() <= geometry.data_strips() {
        return None;
    }
    with_slices(array, tile, |data, parity| {
        array
            .layout_of(tile.stripe)
            .code
            .check(data, parity)
            .expect("slices of one tile are equally long")
    })
    .into()
}

/// The one strip whose being wrong explains the row, if there is such a one.
fn locate(array: &Array, tile: &Tile, row: usize) -> Option<StripIdx> {
    if !tile.decoded.is_empty() {
        // Parities that the data was decoded from agree with it by construction and prove nothing.
        return None;
    }
    let found = with_slices(array, tile, |data, parity| {
        array
            .layout_of(tile.stripe)
            .code
            .locate(data, parity, row)
            .expect("slices of one tile are equally long")
    });
    found.map(StripIdx::from_at)
}

fn with_slices<T>(
    array: &Array,
    tile: &Tile,
    act: impl FnOnce(&[&[u8]], &[Option<&[u8]>]) -> T,
) -> T {
    let geometry = array.geometry_of(tile.stripe);
    let (data_strips, parity_strips) = (geometry.data_strips(), geometry.parity_strips());
    let mut data: [&[u8]; STRIPS_MAX] = [&[]; STRIPS_MAX];
    let mut parity: [Option<&[u8]>; PARITIES_MAX] = [None; PARITIES_MAX];
    for strip in tile.present.or(tile.decoded).iter() {
        let slice = tile.content.slice(strip, tile.rows);
        match strip.at().checked_sub(data_strips) {
            None => data[strip.at()] = slice,
            Some(at) => parity[at] = Some(slice),
        }
    }
    act(&data[..data_strips], &parity[..parity_strips])
}

/// Parity strips that disagree with the data in a row of the tile.
fn disagreeing(geometry: &Geometry, verdict: &Verdict, row: usize) -> StripSet {
    let first = geometry.data_strips();
    let is_wrong = |strip: &StripIdx| verdict.rows_of(strip.at() - first).contains(row);
    geometry.parity().iter().filter(is_wrong).collect()
}

/// Store these strips of these rows anew, as they follow from the other strips of the tile.
async fn rewrite(
    local: &Rc<LocalArray>,
    tile: &Tile,
    strips: StripSet,
    rows: RowRange,
    report: &mut StepReport,
) {
    if sings(Canary::ResyncIdle) {
        return;
    }
    let sources = tile.present.or(tile.decoded).minus(strips);
    let mut pieces = local.pools.pieces.list();
    for strip in strips.iter() {
        let Some(content) = regenerate(local, tile, sources, StripIo { strip, rows }) else {
            report.lost_blocks += u64::from(rows.blocks());
            continue;
        };
        report.bytes += rows.bytes();
        pieces.push(Piece::new(strip, rows, content.freeze()));
    }
    local.counts().job_member_writes.add(to_u64(pieces.len()));
    let blocks = to_u64(pieces.len()) * u64::from(rows.blocks());
    match repair(local, tile.stripe, &pieces).await {
        // A member that could not take it is out; what it should hold is carried by the others.
        Stored::All | Stored::Without => report.repaired += blocks,
        // It could not be done without: what it holds instead must not be trusted.
        Stored::NotAll => report.lost_blocks += blocks,
    }
}

fn one_row(rows: RowRange, row: usize) -> RowRange {
    let start = rows.start + u32::try_from(row).expect("a tile has few rows");
    RowRange::new(start, start + 1)
}

/// Buffers beyond the pool's: a task that holds some of those must not wait for more, and repairs
/// are rare.
fn blank_buffers(local: &LocalArray, count: usize, bytes: usize) -> StripeBuffers {
    let mut buffers = local.scratch.no_buffers();
    buffers.extend((0..count).map(|_| BufMut::zeroed(bytes)));
    buffers
}

fn say_mismatch(
    local: &LocalArray,
    tile: &Tile,
    row: usize,
    wrong: Option<StripIdx>,
    is_fixed: bool,
) {
    let array = &local.array;
    let slot = wrong.map(|strip| array.member_of(tile.stripe, strip));
    let is_mirrored = array.geometry_of(tile.stripe).data_strips() == 1;
    let done = match (is_fixed, wrong) {
        (false, _) => "nothing",
        (true, Some(_)) => "rewrote the block of that slot",
        (true, None) if is_mirrored => "made the copies equal",
        (true, None) => "rewrote parity",
    };
    let mut fields = vec![
        ("stripe", tile.stripe.to_string()),
        ("row", one_row(tile.rows, row).start.to_string()),
        ("wrong_slot", slot.map_or_else(|| "unknown".to_owned(), |slot| slot.to_string())),
        ("done", done.to_owned()),
    ];
    if let Some(slot) = slot {
        local.tally(slot).counters.located_mismatches.add(1);
        let path = local.device(slot).map(|device| device.facts().path.clone());
        fields.push(("slot", slot.to_string()));
        fields.push(("path", path.unwrap_or_default()));
        // It is the only member whose being wrong explains what the others say; two that are wrong
        // may look like one that is not.
        let witness = if is_mirrored { "the other copies" } else { "parity" };
        let found_by = format!("inference from {witness}; only checksums prove it");
        fields.push(("found_by", found_by));
    }
    array.record(names::SCRUB_MISMATCH, fields);
}
