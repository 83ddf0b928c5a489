//! What a background job does to one stripe, on the stripe's owner.
//!
//! What must stay true: a step works on each tile of rows under its exclusive row lock. It decides
//! everything from what holds under that lock: whether the stripe is written, and which slots are
//! readable. A write that was planned before the job's device was attached has ended when the step
//! reads. A later write goes to the device itself. The step takes all its buffers at once, under
//! the lock (`scratch.rs`).
//!
//! - here         rebuild and copy
//! - `compare`    scrub and resync

use super::compare;
use crate::blame::take_out_failed;
use crate::canary::{Canary, sings};
use crate::checksums::block_of;
use crate::checksums::pins::{Noted, one, pin};
use crate::coordinator;
use crate::coordinator::writes::DeviceWrites;
use crate::datapath::gather::gather;
use crate::datapath::heal::heal;
use crate::datapath::reconstruct::decode_one;
use crate::datapath::store::Writes;
use crate::local_array::LocalArray;
use crate::log::update::Piece;
use crate::member::SlotState;
use crate::scratch::Leave;
use crate::slot::MemberDevice;
use crate::stripe::StripRun;
use crate::stripe::lock::Hold;
use crate::stripe::work::{RebuildEach, Step, StepReport, Work};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_layout::{Geometry, RowRange, StripIo, Stripe, plan_decode};
use ashlar_units::{BLOCK_BYTES, MemberIdx, StripIdx, StripSet, to_u64, to_usize};
use std::rc::Rc;

/// Bytes of a strip that are worked on at once: long enough for the drives, short enough that a
/// client write to the stripe does not wait for all of a large strip.
pub(super) const TILE_BYTES: u64 = 256 << 10;

/// Do it.
pub(crate) async fn take(local: &Rc<LocalArray>, step: Step) -> StepReport {
    let Step { stripe, work } = step;
    let mut report = StepReport::default();
    for rows in tiles(local.array.geometry_of(stripe)) {
        let _rows = local.locks.lock(stripe.id(), rows, Hold::Exclusive).await;
        if !local.array.written.is_written(stripe) {
            // Never written, or trimmed: its first write stores all of it.
            return report;
        }
        match work {
            Work::Rebuild { slot } | Work::Copy { slot } => {
                if let Some(strip) = local.array.strip_on(stripe, slot) {
                    refill(local, work, StripRun { stripe, strip, rows }, &mut report).await;
                }
            }
            Work::FillCells { strips } | Work::MoveCells { strips } => {
                fill_cells(local, stripe, strips, rows, &mut report).await;
            }
            Work::Resync => compare::resync(local, stripe, rows, &mut report).await,
            Work::Scrub { is_repairing } => {
                compare::scrub(local, stripe, rows, is_repairing, &mut report).await;
            }
        }
        if report.is_target_gone {
            return report;
        }
    }
    report
}

/// Regenerate several strips, each on its slot's device: a report for each, strips rising.
pub(crate) async fn rebuild_each(local: &Rc<LocalArray>, work: RebuildEach) -> Vec<StepReport> {
    let RebuildEach { stripe, strips } = work;
    let mut reports = vec![StepReport::default(); strips.count()];
    for rows in tiles(local.array.geometry_of(stripe)) {
        let _rows = local.locks.lock(stripe.id(), rows, Hold::Exclusive).await;
        if !local.array.written.is_written(stripe) {
            return reports;
        }
        let mut parts = strips.iter().zip(&mut reports).collect::<Vec<_>>();
        parts.retain(|(_, report)| !report.is_target_gone);
        if parts.is_empty() {
            return reports;
        }
        refill_each(local, stripe, rows, &mut parts).await;
    }
    reports
}

/// One set of reads serves all of them; if that fails, each is filled by itself.
async fn refill_each(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    rows: RowRange,
    parts: &mut [(StripIdx, &mut StepReport)],
) {
    let strips: StripSet = parts.iter().map(|(strip, _)| *strip).collect();
    let mut reads = StepReport::default();
    let decoded = decode_several(local, stripe, strips, rows, &mut reads).await;
    for (_, report) in parts.iter_mut() {
        // Each has its share of them.
        report.bytes += reads.bytes / to_u64(strips.count());
    }
    let Some((decoded, _leave)) = decoded else {
        for (strip, report) in parts.iter_mut() {
            let slot = local.array.member_of(stripe, *strip);
            let part = StripRun { stripe, strip: *strip, rows };
            refill(local, Work::Rebuild { slot }, part, report).await;
        }
        return;
    };
    let pieces = strips.iter().zip(decoded);
    let mut pieces: Vec<Piece> =
        pieces.map(|(strip, bytes)| Piece::new(strip, rows, bytes.freeze())).collect();
    let left = sings(Canary::RebuiltTogetherLastLeft).then(|| pieces.pop()).flatten();
    let stored = write_rebuilt(local, stripe, pieces).await;
    let stored = left.map_or(stored, |left| stored.with(left.part.strip));
    for (strip, report) in parts.iter_mut() {
        report.bytes += rows.bytes();
        report.is_target_gone |= !stored.contains(*strip);
    }
}

/// The tiles of a stripe.
fn tiles(geometry: &Geometry) -> impl Iterator<Item = RowRange> + use<> {
    let (end, step) = (geometry.strip_blocks(), TILE_BYTES / BLOCK_BYTES);
    let step = u32::try_from(step).expect("a tile has few rows");
    let starts = (0..end).step_by(usize::try_from(step).expect("few"));
    starts.map(move |start| RowRange::new(start, (start + step).min(end)))
}

/// Fill these strips where the spare table wants them. One set of reads serves all that are lost;
/// if that fails, each is filled by itself.
async fn fill_cells(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    strips: StripSet,
    rows: RowRange,
    report: &mut StepReport,
) {
    let lost: StripSet =
        strips.iter().filter(|strip| !local.array.is_readable(stripe, *strip)).collect();
    let mut done = StripSet::EMPTY;
    if lost.count() > 1
        && let Some((decoded, _leave)) = decode_several(local, stripe, lost, rows, report).await
    {
        for (strip, bytes) in lost.iter().zip(decoded) {
            report.bytes += to_u64(bytes.len());
            let part = StripRun { stripe, strip, rows };
            report.is_target_gone |= !write_cell(local, part, bytes.freeze()).await;
        }
        done = lost;
    }
    let work = Work::FillCells { strips };
    for strip in strips.minus(done).iter() {
        refill(local, work, StripRun { stripe, strip, rows }, report).await;
    }
}

/// Rows of several lost strips, rising; `None` if they cannot be had with one set of reads.
async fn decode_several(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    lost: StripSet,
    rows: RowRange,
    report: &mut StepReport,
) -> Option<(Vec<BufMut>, Leave)> {
    // What is being filled is not read, whatever its slot says about the stripe.
    let view = local.array.view(stripe).rebuilding(lost);
    let sources = plan_decode(local.array.geometry_of(stripe), lost, &view).ok()?;
    let bytes = to_usize(rows.bytes());
    let (mut buffers, leave) = local.scratch.take(sources.count() + lost.count(), bytes).await;
    let ios = sources.iter().map(|strip| StripIo { strip, rows });
    report.bytes += to_u64(sources.count()) * rows.bytes();
    local.counts().job_member_reads.add(to_u64(sources.count()));
    let read = gather(local, stripe, ios, &mut buffers).await.ok()?;
    let mut decoded = Vec::new();
    for _ in lost.iter() {
        let mut target = buffers.pop()?;
        target.truncate(bytes);
        decoded.push(target);
    }
    let mut targets: Vec<&mut [u8]> = decoded.iter_mut().map(|target| &mut target[..]).collect();
    let plan = local.decode_plan(stripe, sources, lost);
    plan.run(|strip| read.slice(strip, rows), &mut targets);
    Some((decoded, leave))
}

/// Fill `part` on the target of the job. If it cannot be had as a whole, block by block: what is
/// lost is then only what really is.
async fn refill(local: &Rc<LocalArray>, work: Work, part: StripRun, report: &mut StepReport) {
    let Err(Lost) = refill_rows(local, work, part, report).await else { return };
    for row in part.rows.start..part.rows.end {
        let one = StripRun { rows: RowRange::new(row, row + 1), ..part };
        let is_lost =
            part.rows.blocks() == 1 || refill_rows(local, work, one, report).await.is_err();
        report.lost_blocks += u64::from(is_lost);
        if report.is_target_gone {
            return;
        }
    }
}

async fn refill_rows(
    local: &Rc<LocalArray>,
    work: Work,
    part: StripRun,
    report: &mut StepReport,
) -> Result<(), Lost> {
    // What a rebuild fills is not read, whatever the slot says about the stripe.
    let avoid = match work {
        Work::Rebuild { .. } => StripSet::only(part.strip),
        // What is lost is not read either, and the table says so.
        _ => StripSet::EMPTY,
    };
    let (bytes, _leave) = obtain(local, part, avoid, report).await?;
    report.bytes += to_u64(bytes.len());
    let is_stored = match work {
        Work::Copy { slot } => write_replacement(local, slot, part, bytes.freeze()).await,
        Work::FillCells { .. } => write_cell(local, part, bytes.freeze()).await,
        _ => {
            let piece = Piece::new(part.strip, part.rows, bytes.freeze());
            write_rebuilt(local, part.stripe, vec![piece]).await.contains(part.strip)
        }
    };
    report.is_target_gone |= !is_stored;
    Ok(())
}

/// Too many strips cannot be read.
struct Lost;

/// Rows of a strip: from its own member if that may be read, else from the survivors.
async fn obtain(
    local: &Rc<LocalArray>,
    part: StripRun,
    avoid: StripSet,
    report: &mut StepReport,
) -> Result<(BufMut, Leave), Lost> {
    let StripRun { stripe, strip, rows } = part;
    let (array, bytes) = (&local.array, to_usize(rows.bytes()));
    // Each pass knows of at least one unreadable strip more, so this ends.
    let mut unreadable = avoid;
    let mut was_healed = false;
    loop {
        let view = array.view(stripe).rebuilding(unreadable);
        let is_direct = view.readable.contains(strip);
        let sources = if is_direct {
            StripSet::only(strip)
        } else {
            plan_decode(array.geometry_of(stripe), StripSet::only(strip), &view)
                .map_err(|_| Lost)?
        };
        let (mut buffers, leave) = local.scratch.take(sources.count() + 1, bytes).await;
        let ios = sources.iter().map(|strip| StripIo { strip, rows });
        report.bytes += to_u64(sources.count()) * rows.bytes();
        local.counts().job_member_reads.add(to_u64(sources.count()));
        match gather(local, stripe, ios, &mut buffers).await {
            Err(strips) => {
                let healed = match std::mem::replace(&mut was_healed, true) {
                    true => None,
                    false => heal(local, stripe, rows).await,
                };
                unreadable = unreadable.or(healed.map_or(strips, |healed| healed.unusable()));
            }
            Ok(mut read) if is_direct => {
                return Ok((read.entries.pop().expect("one strip was read").bytes, leave));
            }
            Ok(read) => {
                let decoded = decode_one(local, part, sources, &read, &mut buffers);
                return Ok((decoded, leave));
            }
        }
    }
}

/// Store on the devices of the slots, rising. Which strips were stored: not those whose slot is not
/// being rebuilt any more, or whose device fails.
async fn write_rebuilt(local: &Rc<LocalArray>, stripe: Stripe, pieces: Vec<Piece>) -> StripSet {
    let mut stored = StripSet::EMPTY;
    let ios = pieces.iter().map(|piece| StripIo { strip: piece.part.strip, rows: piece.part.rows });
    // A device whose checksums cannot be had goes.
    let pins = match pin(local, stripe, ios).await {
        Ok(pins) => pins,
        Err(_) if pieces.len() == 1 => return stored,
        Err(_) => {
            // The others of them stay.
            for piece in pieces {
                stored = stored.or(Box::pin(write_rebuilt(local, stripe, vec![piece])).await);
            }
            return stored;
        }
    };
    let mut writes = Writes::noting(local, pins);
    for piece in pieces {
        let member = local.array.member_of(stripe, piece.part.strip);
        if local.array.slot(member).state() == SlotState::Rebuilding {
            local.counts().job_member_writes.add(1);
            stored = stored.with(piece.part.strip);
            writes.start(local, stripe, piece);
        }
    }
    let failed = writes.finish(local).await;
    let is_stored = |strip: &StripIdx| {
        let member = local.array.member_of(stripe, *strip);
        failed.iter().all(|(device, _)| device.member != member)
    };
    let stored = stored.iter().filter(is_stored).collect();
    // Whether it can be put out or not: the stripe is not done.
    let _recorded = take_out_failed(local, failed).await;
    stored
}

/// Store where the spare table wants the strip: on the target of a lost cell, else on the devices
/// that it is copied back to. What is whole is not written again. False if there is nowhere to
/// store it any more, or a device fails.
async fn write_cell(local: &Rc<LocalArray>, part: StripRun, content: Buf) -> bool {
    let Ok(pins) = pin(local, part.stripe, one(part.strip, part.rows)).await else { return false };
    let is_there = local.array.is_readable(part.stripe, part.strip);
    let (place, copies) = local.array.write_places(part.stripe, part.strip);
    let targets = if is_there { copies } else { std::iter::once(place).collect() };
    let mut writes = Writes::noting(local, pins);
    for target in &targets {
        local.counts().job_member_writes.add(1);
        let piece = Piece::new(part.strip, part.rows, content.clone());
        if !writes.start_in(local, *target, piece) {
            return false;
        }
    }
    let failed = writes.finish(local).await;
    let is_stored = failed.is_empty() && !targets.is_empty();
    // Whether it can be put out or not: the stripe is not done.
    let _recorded = take_out_failed(local, failed).await;
    is_stored
}

/// Store on the device that is to replace the slot's. False if there is none any more, or it fails.
async fn write_replacement(
    local: &Rc<LocalArray>,
    slot: MemberIdx,
    part: StripRun,
    content: Buf,
) -> bool {
    let Ok(pins) = pin(local, part.stripe, one(part.strip, part.rows)).await else { return false };
    let Some(target) = local.replacement(slot) else { return false };
    let device = MemberDevice { member: slot, device_epoch: local.device_epochs(slot).1 };
    let offset = local.array.device_offset(part.stripe, part.strip, part.rows.start);
    local.counts().member_writes.add(1);
    local.counts().job_member_writes.add(1);
    let mut write = DeviceWrites::new(slot, &target);
    write.start(local, offset, content.clone());
    let why = match write.finish(local).await {
        Ok(()) => {
            let block = block_of(&local.array, part.stripe, part.strip, part.rows.start);
            let noted = Noted::new(device, block, content);
            pins.inspect(|pins| pins.note(&local.array, &noted));
            return true;
        }
        Err(fault) => fault.to_string(),
    };
    coordinator::replacement_failed(local, device, why).await;
    false
}

#[cfg(test)]
mod tests {
    use super::tiles;
    use ashlar_layout::{Geometry, Level, RowRange, Shape};

    #[test]
    fn tiles_cover_every_row_once_for_every_strip_size() {
        for log2 in 12..=20 {
            let shape = Shape {
                level: Level::Raid6,
                members: 6,
                parity: None,
                group_members: None,
                strip_bytes: 1 << log2,
                declustered: None,
            };
            let geometry = Geometry::new(&shape, 4).unwrap();
            let mut next = 0;
            for RowRange { start, end } in tiles(&geometry) {
                assert_eq!(start, next);
                assert!(start < end && end - start <= 64);
                next = end;
            }
            assert_eq!(next, geometry.strip_blocks());
        }
    }
}
