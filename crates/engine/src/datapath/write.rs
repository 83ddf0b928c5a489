//! The story of one stripe write.
//!
//! What must stay true: the order of the steps below. Nothing on a member changes before the
//! region's intent is durable and, on an array with a log, before the log has the record. Parity is
//! computed from data that was read under the row lock. The client is answered only when every
//! member that lacks the write is recorded as out on the others.

use super::clock::StageClock;
use super::gather::gather;
use super::store::store;
use super::{block, edges, log, parity, parity_only};
use crate::array::Array;
use crate::blame::{FailedMembers, block_lost, take_out_failed};
use crate::canary::{Canary, sings};
use crate::checksums::{are_mostly_dirty, pins};
use crate::coordinator;
use crate::coordinator::{map_writer, proof};
use crate::datapath::heal::heal;
use crate::datapath::payload::Payload;
use crate::intent::RegionNo;
use crate::local_array::LocalArray;
use crate::log::updates::Update;
use crate::metrics::WriteStage;
use crate::stripe::lock::{Hold, RowGuard};
use ashlar_layout::{
    RowRange, Stripe, StripeView, Unreachable, WriteKind, WritePlan, plan_first_write, plan_write,
    rows_touched,
};
use ashlar_ondisk::log::RecordKind;
use ashlar_units::{BLOCK_BYTES, Extent, StripSet, to_u64, to_usize};
use ashlar_volume::VolumeErrorKind;
use std::pin::pin;
use std::rc::Rc;

/// One write to one stripe, start to finish.
///
/// 1. `lock_rows`     nobody else may touch these rows
/// 2. `enter_region`  the region is dirty on the members before any of them changes
/// 3. `widen`         a write that is not whole blocks gets the rest of its blocks
/// 4. `before_plan`   what parity will rest on is durable, pages of checksums have room, and (with
///    `before_first_write`) it is durable that a stripe without data is unwritten
/// 5. `plan`          only now: members can fail while we wait for 1 to 4
/// 6. `gather`        read what the plan asks for (nothing, for a full stripe)
/// 7. `heal`          if a read failed: put right what can be, once, and plan again without the
///    rest
/// 8. `kind_of`       the record holds parity alone, if the device writes a block whole
/// 9. `compute`       parity, in memory
/// 10. `log`          the record is durable on every holder, if the array keeps a log; before that,
///     if it keeps checksums, `pin` brings the pages into memory that will learn of the new ones
/// 11. `store`        data and parity strips, in parallel; if the record holds parity alone, parity
///     follows when the block is in place
/// 12. `take_out_failed`  if a member failed, the others record that before we acknowledge
///
/// # Errors
/// `Io` if more strips of the stripe are lost than its parity replaces, or a failed member could
/// not be recorded; `NoSpace` if the members have none.
pub(crate) async fn write_stripe(
    local: &Rc<LocalArray>,
    payload: Payload,
) -> Result<(), VolumeErrorKind> {
    let stripe = payload.stripe();
    // What the widened write covers besides is nobody's to lose: a stripe is whole only if clients
    // wrote all of it.
    let asked = payload.extent;
    let mut clock = StageClock::start(local);
    let (_rows, is_written) = lock_rows(local, stripe, asked).await;
    clock.lap(local, WriteStage::Lock);
    let (_intent, is_durable) = begin_in_region(local, stripe);
    if !is_durable {
        Box::pin(make_durable(local, stripe)).await?;
    }
    clock.lap(local, WriteStage::Intent);
    let payload = if asked.is_aligned_to(BLOCK_BYTES) {
        payload
    } else {
        // Boxed, as all that is rare: futures are moved when awaited, so a large one slows every
        // write.
        Box::pin(edges::widen(local, payload)).await?
    };
    // What failed of a gather that was before the general way's, as in it.
    let mut unread = None;
    // Before the plan: members can fail while we wait.
    if are_mostly_dirty(&local.array) {
        Box::pin(pins::before_write(local)).await?;
    }
    if let Some(update) = block::plan(local, &payload, is_written) {
        let written = {
            // Pinned where it is: what is awaited by value is moved first.
            let writing = pin!(block::write(local, update, &payload, &mut clock));
            writing.await
        };
        match written {
            block::Written::Unread(missing) => unread = Some(missing.all()),
            block::Written::Refused(error) => return Err(error),
            block::Written::Unrecorded(error) => {
                return done_or_distrust(local, stripe, Err(error)).await;
            }
            block::Written::Stored(failed, recorded) => {
                if failed.is_some() || local.array.has_failing_slots() {
                    let failed = failed.map_or_else(FailedMembers::new, |failed| *failed);
                    settle(local, stripe, failed).await?;
                }
                return end_block(local, stripe, recorded, &mut clock);
            }
        }
    }
    let kind = log::record_kind(local, stripe, asked);
    let step = kind.and_then(|kind| log::piece_blocks(local, kind, payload.extent));
    match step {
        None => {
            let part = Part { kind, extent: payload.extent, unread };
            pin!(write_extent(local, part, &payload, &mut clock)).await
        }
        // Its record would be too long: piece by piece, each an update of its own.
        Some(blocks) => Box::pin(write_pieces(local, kind, &payload, blocks)).await,
    }
}

/// The block is stored, and who lacks it is recorded as out.
fn end_block(
    local: &LocalArray,
    stripe: Stripe,
    recorded: Option<Update>,
    clock: &mut StageClock,
) -> Result<(), VolumeErrorKind> {
    clock.lap(local, WriteStage::Store);
    note_cached(local, stripe, recorded.as_ref().map(|_| RecordKind::Full));
    local.counts().rmw_writes.add(1);
    Ok(())
}

async fn write_pieces(
    local: &Rc<LocalArray>,
    kind: Option<RecordKind>,
    payload: &Payload,
    blocks: u64,
) -> Result<(), VolumeErrorKind> {
    let whole = payload.extent;
    let mut at = whole.offset;
    while at < whole.end() {
        let extent = Extent::new(at, (blocks * BLOCK_BYTES).min(whole.end() - at));
        let mut untimed = StageClock::off();
        write_extent(local, Part { kind, extent, unread: None }, payload, &mut untimed).await?;
        at = extent.end();
    }
    Ok(())
}

/// A part of the payload, and how it is recorded.
struct Part {
    kind: Option<RecordKind>,
    extent: Extent,
    /// Strips that could not be read just before.
    unread: Option<StripSet>,
}

/// Plan without what could not be read. If that is too much it is asked for once more: a device may
/// have left its slot with the read under way, and its successor was not asked.
fn plan_without(
    local: &LocalArray,
    stripe: Stripe,
    extent: Extent,
    (unreadable, has_asked_again): (&mut StripSet, &mut bool),
) -> Result<WritePlan, VolumeErrorKind> {
    let mut planned = plan(&local.array, stripe, extent, *unreadable);
    *has_asked_again |= sings(Canary::SuccessorNotAsked);
    if planned.is_err() && !unreadable.is_empty() && !std::mem::replace(has_asked_again, true) {
        *unreadable = StripSet::EMPTY;
        planned = plan(&local.array, stripe, extent, *unreadable);
    }
    planned.map_err(|_| block_lost(local, stripe))
}

/// Plan and carry out a part of the payload: steps 4 to 12.
async fn write_extent(
    local: &Rc<LocalArray>,
    Part { kind, extent, mut unread }: Part,
    payload: &Payload,
    clock: &mut StageClock,
) -> Result<(), VolumeErrorKind> {
    let stripe = payload.stripe();
    log::before_plan(local, stripe).await?;
    pins::before_write(local).await?;
    if kind == Some(RecordKind::FirstWrite) {
        log::before_first_write(local, stripe).await?;
    }
    // A failed gather leaves one strip fewer to plan with, so this ends.
    let mut unreadable = StripSet::EMPTY;
    let (mut was_healed, mut has_asked_again) = (false, false);
    let data_strips = local.array.geometry_of(stripe).data_strips();
    loop {
        let asked = (&mut unreadable, &mut has_asked_again);
        let plan = plan_without(local, stripe, extent, asked)?;
        let count = plan.read_count() + parity::buffers_needed(&plan, data_strips);
        let bytes = to_usize(plan.rows().bytes());
        let (mut buffers, _leave) = pin!(local.scratch.take(count, bytes)).await;
        let gathered = match unread.take() {
            Some(strips) => Err(strips),
            None => {
                local.counts().write_member_reads.add(to_u64(plan.read_count()));
                pin!(gather(local, stripe, plan.reads(), &mut buffers)).await
            }
        };
        match gathered {
            Err(strips) => {
                let healed = match std::mem::replace(&mut was_healed, true) {
                    true => None,
                    false => Box::pin(heal(local, stripe, plan.rows())).await,
                };
                unreadable = unreadable.or(healed.map_or(strips, |healed| healed.unusable()));
            }
            Ok(old) => {
                clock.lap(local, WriteStage::Gather);
                let kind = parity_only::kind_of(local, kind, &plan, payload, &old);
                let parity = parity::compute(local, &plan, payload, old, &mut buffers);
                let parity = parity.freeze(&local.pools.pieces);
                clock.lap(local, WriteStage::Parity);
                let pins = pins::pin(local, stripe, plan.writes()).await?;
                let _update = match kind {
                    None => None,
                    Some(kind) => {
                        let logged = log::log(local, kind, &plan, payload, &parity);
                        done_or_distrust(local, stripe, logged.await).await?
                    }
                };
                clock.lap(local, WriteStage::Log);
                let failed = match kind.and_then(RecordKind::change) {
                    None => pin!(store(local, &plan, payload, parity, pins)).await,
                    Some(change) => {
                        let rows = plan.rows();
                        let stored = parity_only::store(local, change, rows, payload, parity);
                        done_or_distrust(local, stripe, Box::pin(stored).await).await?
                    }
                };
                settle(local, stripe, failed).await?;
                clock.lap(local, WriteStage::Store);
                mark_written(local, stripe);
                note_cached(local, stripe, kind);
                count_kinds(local, &plan);
                return Ok(());
            }
        }
    }
}

/// Hold the rows the write touches; all of them if it will be the stripe's first. Whether the
/// stripe is written, which does not change while they are held.
async fn lock_rows(local: &LocalArray, stripe: Stripe, extent: Extent) -> (RowGuard, bool) {
    let geometry = local.array.geometry_of(stripe);
    let all = RowRange::new(0, geometry.strip_blocks());
    loop {
        let was_written = local.array.written.is_written(stripe);
        let rows = if was_written { rows_touched(geometry, extent) } else { all };
        let hold = if sings(Canary::RowsShared) { Hold::Shared } else { Hold::Exclusive };
        let (guard, is_granted) = local.locks.enter(stripe.id(), rows, hold);
        if is_granted {
            return (guard, was_written);
        }
        guard.granted().await;
        // A trim may have come between: then part of the stripe is not enough.
        let is_written = local.array.written.is_written(stripe);
        if rows == all || is_written {
            return (guard, is_written);
        }
    }
}

/// The region of a write under way; its intent stays dirty at least until this drops.
pub(crate) struct RegionEntry<'s> {
    local: &'s LocalArray,
    region: RegionNo,
}

impl Drop for RegionEntry<'_> {
    fn drop(&mut self) {
        self.local.array.intent.leave(self.region);
    }
}

/// Enter the stripe's region: its intent is durable on the members when this returns.
pub(crate) async fn enter_region(
    local: &Rc<LocalArray>,
    stripe: Stripe,
) -> Result<RegionEntry<'_>, VolumeErrorKind> {
    let (entry, is_durable) = begin_in_region(local, stripe);
    if !is_durable {
        Box::pin(make_durable(local, stripe)).await?;
    }
    Ok(entry)
}

/// Enter the stripe's region, and whether its intent is durable.
#[inline]
fn begin_in_region(local: &LocalArray, stripe: Stripe) -> (RegionEntry<'_>, bool) {
    let region = local.array.intent.region_of(stripe);
    let is_durable = local.array.intent.enter(region);
    (RegionEntry { local, region }, is_durable)
}

async fn make_durable(local: &Rc<LocalArray>, stripe: Stripe) -> Result<(), VolumeErrorKind> {
    let region = local.array.intent.region_of(stripe);
    map_writer::make_durable(local, region).await.map_err(|_| VolumeErrorKind::Io)
}

fn plan(
    array: &Array,
    stripe: Stripe,
    extent: Extent,
    unreadable: StripSet,
) -> Result<WritePlan, Unreachable> {
    let view: StripeView = array.view(stripe).rebuilding(unreadable);
    if array.written.is_written(stripe) {
        plan_write(array.geometry_of(stripe), extent, &view)
    } else {
        plan_first_write(array.geometry_of(stripe), extent, &view)
    }
}

/// The writes have ended: who lacks them is recorded as out before the client hears of it.
async fn settle(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    failed: FailedMembers,
) -> Result<(), VolumeErrorKind> {
    if failed.is_empty() && !local.array.has_failing_slots() {
        return Ok(());
    }
    let recorded = Box::pin(take_out_failed(local, failed)).await;
    done_or_distrust(local, stripe, recorded).await
}

/// Pass a failure on, having said what it means for the stripe: some strips of the write, or its
/// records, are stored and others are not, and no member could be put out for it. Parity may
/// disagree with the data. Nothing is decoded from it until a resync was there, and an array that
/// stops like this is not called clean.
///
/// With a log the members say so before the rows are given up: a restart would roll this update
/// forward, and a later one whose parity was computed without it.
async fn done_or_distrust<T>(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    result: Result<T, VolumeErrorKind>,
) -> Result<T, VolumeErrorKind> {
    let array = &local.array;
    if result.is_err() && array.geometry_of(stripe).parity_strips() > 0 {
        array.intent.distrust(array.intent.region_of(stripe));
        if array.log.is_some() {
            Box::pin(coordinator::record_doubt(local)).await;
        }
    }
    result
}

/// What FLUSH must still see to, what the log is still needed for, and what parity must not rest on
/// once a member is out.
fn note_cached(local: &LocalArray, stripe: Stripe, kind: Option<RecordKind>) {
    match kind {
        Some(RecordKind::Full | RecordKind::ParityOnly(_)) => {
            local.log().expect("it has records").note_in_place(stripe)
        }
        Some(RecordKind::InDoubt) => local.array.caches.note_relaxed(),
        Some(RecordKind::FirstWrite) | None => local.array.caches.note_unlogged(),
    }
}

fn mark_written(local: &LocalArray, stripe: Stripe) {
    if !local.array.written.is_written(stripe) {
        local.array.written.set(stripe, true);
        proof::ask_for_mark(local);
        local.counts().first_writes.add(1);
    }
}

fn count_kinds(local: &LocalArray, plan: &WritePlan) {
    let counts = local.counts();
    for band in plan.bands() {
        let counter = match band.kind {
            WriteKind::FullStripe => &counts.full_stripe_writes,
            WriteKind::ReadModifyWrite => &counts.rmw_writes,
            WriteKind::ReconstructWrite => &counts.rcw_writes,
            WriteKind::DecodeThenWrite => &counts.decode_writes,
        };
        counter.add(1);
    }
}
