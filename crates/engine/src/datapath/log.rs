//! The step of a write between parity and store: its record becomes durable on every holder.
//!
//! What must stay true: nothing of the update is in place yet. Members that were failing when the
//! update was planned are recorded as out before its record is written. If this step succeeds,
//! every device that counts after a crash has the record: members that lack it are recorded as out
//! on the others.

use crate::array::Array;
use crate::blame::{FailedMembers, take_out_failed};
use crate::canary::{Canary, sings};
use crate::coordinator::map_writer;
use crate::coordinator::messages::on_coordinator;
use crate::datapath::payload::Payload;
use crate::lists::List;
use crate::local_array::LocalArray;
use crate::log::update::NewUpdate;
use crate::log::update::Piece;
use crate::log::updates::Update;
use ashlar_layout::{RowRange, Stripe, WritePlan};
use ashlar_ondisk::log::RecordKind;
use ashlar_units::{BLOCK_BYTES, Extent, StripSet};
use ashlar_volume::VolumeErrorKind;
use std::rc::Rc;

/// The kind of record that a client's write needs; `None` if the array keeps no log.
pub(super) fn record_kind(local: &LocalArray, stripe: Stripe, asked: Extent) -> Option<RecordKind> {
    let log = local.log()?;
    let array = &local.array;
    if !array.written.is_written(stripe) {
        return Some(RecordKind::FirstWrite);
    }
    // Every copy of a mirror is right by itself: a start has only to make them equal, whatever is
    // lost besides. With checksums it has to know which of them is what was written, too.
    let is_whole = asked.bytes == array.geometry_of(stripe).stripe_bytes();
    let is_relaxed = array.lacks_nothing(stripe) || sings(Canary::RelaxedWhileDegraded);
    let is_copied = is_mirror(&local.array, stripe) && array.checksums.is_none();
    let is_whole = is_whole && !is_mirror(&local.array, stripe) && is_relaxed;
    let needs_no_data = is_copied || is_whole;
    if needs_no_data && !log.is_needed_for(stripe) {
        return Some(RecordKind::InDoubt);
    }
    Some(RecordKind::Full)
}

/// Whether its stripes have no parity: each strip is a copy.
pub(super) fn is_mirror(array: &Array, stripe: Stripe) -> bool {
    array.geometry_of(stripe).data_strips() == 1
}

/// Blocks of the pieces in which a write must go whose record would be too long.
pub(super) fn piece_blocks(local: &LocalArray, kind: RecordKind, extent: Extent) -> Option<u64> {
    let most = local.log()?.piece_blocks_max()?;
    (kind.has_payload() && extent.bytes / BLOCK_BYTES > most).then_some(most)
}

/// What must be durable before the write is planned: on an array that lacks members parity must not
/// come to rest on whole stripes that only caches hold.
pub(super) async fn before_plan(
    local: &Rc<LocalArray>,
    stripe: Stripe,
) -> Result<(), VolumeErrorKind> {
    let array = &local.array;
    // Of a mirror there is no parity.
    let is_at_risk = !is_mirror(&local.array, stripe)
        && array.missing_slots() != 0
        && array.caches.hold_relaxed();
    if array.log.is_some() && is_at_risk && !sings(Canary::DegradedPlanUnsettled) {
        Box::pin(flush(local)).await?;
    }
    Ok(())
}

/// Before the first write of a stripe it must be durable that the stripe is unwritten. Its durable
/// bit may still be set from before a trim, and a restart would then take the old content for
/// written.
pub(super) async fn before_first_write(
    local: &Rc<LocalArray>,
    stripe: Stripe,
) -> Result<(), VolumeErrorKind> {
    if local.array.written.may_be_durable(stripe) && !sings(Canary::FirstWriteTooSoon) {
        Box::pin(flush(local)).await?;
    }
    Ok(())
}

async fn flush(local: &Rc<LocalArray>) -> Result<(), VolumeErrorKind> {
    let flushed =
        on_coordinator(local, async |local: Rc<LocalArray>| map_writer::flush(&local).await).await;
    flushed.unwrap_or(Err(VolumeErrorKind::Stopped))
}

/// The record of a planned write becomes durable on every holder. `None`: it needs none.
///
/// # Errors
/// `Io` if a member that lacks it can be neither done without nor put out, or the log has no space
/// and never will.
pub(super) async fn log(
    local: &Rc<LocalArray>,
    kind: RecordKind,
    plan: &WritePlan,
    payload: &Payload,
    parity: &[Piece],
) -> Result<Option<Update>, VolumeErrorKind> {
    let log = local.log().expect("asked only where there is one");
    let stripe = payload.stripe();
    // There is nothing that it would outdate.
    if kind == RecordKind::FirstWrite && local.array.checksums.is_none() && log.is_settled(stripe) {
        return Ok(None);
    }
    if kind == RecordKind::InDoubt
        && plan.rows() == RowRange::new(0, local.array.geometry_of(stripe).strip_blocks())
        && let Some(update) = log.take_ahead(local, stripe)
    {
        take_out_failing(local).await?;
        return Ok(Some(update));
    }
    let mut pieces = local.pools.pieces.list();
    if kind == RecordKind::Full {
        data_pieces(plan, payload, &mut pieces);
    }
    if kind.has_payload() {
        pieces.extend_from_slice(parity);
    }
    let mut stored =
        plan.bands().iter().fold(StripSet::EMPTY, |all, band| all.or(band.stored(plan.writable())));
    if let Some(change) = kind.change() {
        stored = stored.minus(StripSet::only(change.strip));
    }
    record(local, NewUpdate { stripe, kind, rows: plan.rows(), stored, pieces }).await.map(Some)
}

/// Members that were failing when the update was planned are recorded as out.
async fn take_out_failing(local: &Rc<LocalArray>) -> Result<(), VolumeErrorKind> {
    if local.array.has_failing_slots() {
        Box::pin(take_out_failed(local, FailedMembers::new())).await?;
    }
    Ok(())
}

/// Any update's record becomes durable on every holder, and who lacks it is out.
///
/// # Errors
/// As [`log`].
pub(super) async fn record(
    local: &Rc<LocalArray>,
    new: NewUpdate,
) -> Result<Update, VolumeErrorKind> {
    let log = local.log().expect("asked only where there is one");
    // A member that was failing when the update was planned is not named by the record. If it were
    // in service after a crash, the restart would take the record for complete.
    take_out_failing(local).await?;
    let update = log.begin(local, new).await.map_err(|_| VolumeErrorKind::Io)?;
    if sings(Canary::RecordNotAwaited) {
        return Ok(update);
    }
    let failed = update.failed_holders().await;
    if !failed.is_empty() || local.array.has_failing_slots() {
        Box::pin(take_out_failed(local, failed)).await?;
    }
    Ok(update)
}

/// The new data, strip by strip, rows of neighbouring bands together.
fn data_pieces(plan: &WritePlan, payload: &Payload, pieces: &mut List<Piece>) {
    let written = plan.bands().iter().fold(StripSet::EMPTY, |all, band| all.or(band.written));
    for strip in written.iter() {
        let mut run: Option<RowRange> = None;
        let mut push = |rows: RowRange| pieces.push(payload.piece(strip, rows));
        for band in plan.bands().iter().filter(|band| band.written.contains(strip)) {
            run = match run {
                Some(rows) if rows.end == band.rows.start => Some(rows.union(band.rows)),
                before => {
                    before.map(&mut push);
                    Some(band.rows)
                }
            };
        }
        run.map(&mut push);
    }
}
