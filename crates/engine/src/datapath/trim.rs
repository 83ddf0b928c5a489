//! Discard and write zeroes: a whole stripe returns to the unwritten state, a part is written as
//! zeros.
//!
//! What must stay true: an unwritten stripe reads as zeros. Its bit is cleared under its row lock
//! and becomes durable with the next flush. Until then a crash leaves the old content. The members
//! learn of the discard after that flush (`background/discard.rs`).

use super::merge;
use super::write::enter_region;
use crate::coordinator::proof;
use crate::local_array::LocalArray;
use crate::stripe::lock::Hold;
use crate::stripe::work::{StripeWrite, StripeZero};
use ashlar_layout::{RowRange, Stripe};
use ashlar_units::{Extent, to_usize};
use ashlar_volume::VolumeErrorKind;
use std::rc::Rc;

/// Make it so.
///
/// # Errors
/// As a write of zeros.
pub(crate) async fn zero_stripe(
    local: &Rc<LocalArray>,
    zero: StripeZero,
) -> Result<(), VolumeErrorKind> {
    if zero.extent.bytes == local.array.geometry_of(zero.stripe).stripe_bytes() {
        return unwrite(local, zero.stripe).await;
    }
    // A part of a stripe longer than the run of zeros is written in several goes.
    let step = ashlar_units::to_u64(local.worker.zeros.len());
    let mut offset = zero.extent.offset;
    while offset < zero.extent.end() {
        let extent = Extent::new(offset, step.min(zero.extent.end() - offset));
        let bytes = local.worker.zeros.slice(0..to_usize(extent.bytes));
        let write = StripeWrite { stripe: zero.stripe, extent, bytes };
        let way = merge::way(local, &write);
        merge::write(local, write, way).await?;
        offset = extent.end();
    }
    Ok(())
}

async fn unwrite(local: &Rc<LocalArray>, stripe: Stripe) -> Result<(), VolumeErrorKind> {
    let all = RowRange::new(0, local.array.geometry_of(stripe).strip_blocks());
    let _rows = local.locks.lock(stripe.id(), all, Hold::Exclusive).await;
    if !local.array.written.is_written(stripe) {
        return Ok(());
    }
    // A member that is out must learn of the change when it comes back: the region is marked.
    let _intent = enter_region(local, stripe).await?;
    local.array.written.set(stripe, false);
    proof::ask_for_mark(local);
    // With checksums the table would speak of content that is gone.
    if local.array.tuning.get().pass_discards && local.array.checksums.is_none() {
        local.array.written.give_back(stripe);
    }
    local.array.caches.note_unlogged();
    Ok(())
}
