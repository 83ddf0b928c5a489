//! The parity-only form of an update: one block of data whose device writes it whole or not at all.
//!
//! The record goes to the devices of parity alone. It has the new parity, and the checksums of the
//! block before and after the update. The block itself goes in place first, durably, and then
//! parity. So after a crash the block says whether parity is to follow
//! (`ashlar_ondisk::log::judge`; rules P1 to P5 of docs/on-disk-format.md).
//!
//! Why leaving the block out of the log loses nothing. Let f members of the stripe be missing
//! before, and at most m - f be lost at the crash or after it:
//! - The block's device is lost: its data follows from the parity of a live holder. Of the rest of
//!   the row at most m - 1 - f strips are missing, as with a full record.
//! - The block is old: parity in place was not touched and agrees with it.
//! - The block is new: the row with the logged parity is a codeword, as with a full record.
//! - All devices of parity are lost: the update is unknown, which does no harm. The block is old or
//!   new, and no other block was being written.
//!
//! What must stay true, each for every update of this form:
//! - It changes one block of one row. With more blocks, some may be new when others are not, and it
//!   would be unknown which parity is right.
//! - Its device is said to write a block whole. It is in service, nothing replaces it, and it has
//!   been there since the start. So after a crash the block's place holds the block from before
//!   this update, or the one that it wrote.
//! - The device has no volatile cache, so that the block is durable when it is written. (A forced
//!   write for each block would cost more than the full form, whose records go together.)
//! - No full record of the stripe counts any more. Otherwise its copy of an older block would be
//!   rolled forward over this one if all devices of parity, which alone have its record, were lost.
//! - Old and new block differ in their checksums.
//! - Parity does not go in place before the block is durable, or its device is recorded as out.
//!
//! Not here: arrays with checksums of blocks, whose records are full.

use super::store::Writes;
use crate::blame::{FailedMembers, take_out_failed};
use crate::canary::{Canary, sings};
use crate::datapath::payload::Payload;
use crate::lists::List;
use crate::local_array::LocalArray;
use crate::log::update::Piece;
use crate::member::SlotState;
use crate::rows::RowSet;
use ashlar_layout::{RowRange, Stripe, WriteKind, WritePlan};
use ashlar_ondisk::log::{BlockChange, RecordKind, block_checksum};
use ashlar_units::StripIdx;
use ashlar_volume::VolumeErrorKind;
use std::rc::Rc;

/// The kind of record of a planned update whose `old` blocks were read: parity-only, if it may be.
pub(super) fn kind_of(
    local: &LocalArray,
    kind: Option<RecordKind>,
    plan: &WritePlan,
    payload: &Payload,
    old: &RowSet,
) -> Option<RecordKind> {
    let may_be = may_be(local)
        && local.log().is_some_and(|log| {
            log.has_no_copies(payload.stripe()) || sings(Canary::ParityOnlyOverCopies)
        });
    if kind != Some(RecordKind::Full) || !may_be {
        return kind;
    }
    change_of(local, plan, payload, old).map(RecordKind::ParityOnly).or(kind)
}

/// Whether the array has members of which this form can be.
pub(super) fn may_be(local: &LocalArray) -> bool {
    local.array.may_be_parity_only() || sings(Canary::ParityOnlyUnstated)
}

fn change_of(
    local: &LocalArray,
    plan: &WritePlan,
    payload: &Payload,
    old: &RowSet,
) -> Option<BlockChange> {
    let [band] = plan.bands() else { return None };
    let strip = band.written.iter().next().filter(|_| band.written.count() == 1)?;
    let is_one_block = band.rows.blocks() == 1 && band.kind == WriteKind::ReadModifyWrite;
    let has_parity = !band.stored(plan.writable()).minus(band.written).is_empty();
    if !(is_one_block && has_parity && is_whole(local, payload.stripe(), strip)) {
        return None;
    }
    let old = block_checksum(old.slice(strip, band.rows));
    let new = block_checksum(payload.slice(strip, band.rows));
    (old != new).then_some(BlockChange { strip, old, new })
}

/// Whether what lies in the strip's place after a crash is a block, old or new.
fn is_whole(local: &LocalArray, stripe: Stripe, strip: StripIdx) -> bool {
    let array = &local.array;
    let (place, copies) = array.write_places(stripe, strip);
    let slot = array.slot(place.member);
    let is_said = slot.writes_whole() || sings(Canary::ParityOnlyUnstated);
    is_said
        && slot.state() == SlotState::InSync
        && local.replacement(place.member).is_none()
        && copies.is_empty()
}

/// Carry out the writes of a parity-only update: the block, and when it is durable, parity.
///
/// # Errors
/// If the block's device failed and the members cannot do without it: then parity is not in place.
pub(super) async fn store(
    local: &Rc<LocalArray>,
    change: BlockChange,
    rows: RowRange,
    payload: &Payload,
    mut parity: List<Piece>,
) -> Result<FailedMembers, VolumeErrorKind> {
    let mut writes = Writes::of_whole_block(local);
    writes.start(local, payload.stripe(), payload.piece(change.strip, rows));
    if !sings(Canary::ParityOnlyParityTooSoon) {
        let failed = writes.finish(local).await;
        if !failed.is_empty() || local.array.has_failing_slots() {
            Box::pin(take_out_failed(local, failed)).await?;
        }
        writes = Writes::noting(local, None);
    }
    for piece in parity.drain(..) {
        writes.start(local, payload.stripe(), piece);
    }
    Ok(writes.finish(local).await)
}
