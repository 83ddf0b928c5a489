//! Discard and write zeroes: a whole stripe goes back to the unwritten state, a part is written as
//! zeros.
//!
//! What must stay true: a stripe that is unwritten reads as zeros; its bit is cleared under its row
//! lock, and is durable only with the next flush, so that until then a crash leaves the old
//! content. The members hear of it after that flush (`background/discard.rs`).

use super::merge;
use super::write::{StripeWrite, enter_region};
use crate::shard::Shard;
use crate::stripe::lock::Hold;
use ashlar_layout::{RowRange, Stripe};
use ashlar_units::{Extent, to_usize};
use ashlar_volume::VolumeErrorKind;
use std::rc::Rc;

/// Part of a stripe that is to read as zeros. `extent` is within the stripe's data.
pub(crate) struct StripeZero {
    pub(crate) stripe: Stripe,
    pub(crate) extent: Extent,
}

/// Whether there is nothing to do: the stripe was never written.
pub(super) fn is_zero_already(shard: &Shard, zero: &StripeZero) -> bool {
    !shard.array.written.is_written(zero.stripe)
}

/// Make it so.
///
/// # Errors
/// As a write of zeros.
pub(super) async fn zero_stripe(
    shard: &Rc<Shard>,
    zero: StripeZero,
) -> Result<(), VolumeErrorKind> {
    if zero.extent.bytes == shard.array.geometry_of(zero.stripe).stripe_bytes() {
        return unwrite(shard, zero.stripe).await;
    }
    // A part of a stripe longer than the run of zeros is written in several goes.
    let step = ashlar_units::to_u64(shard.worker.zeros.len());
    let mut offset = zero.extent.offset;
    while offset < zero.extent.end() {
        let extent = Extent::new(offset, step.min(zero.extent.end() - offset));
        let bytes = shard.worker.zeros.slice(0..to_usize(extent.bytes));
        merge::write(shard, StripeWrite { stripe: zero.stripe, extent, bytes }).await?;
        offset = extent.end();
    }
    Ok(())
}

async fn unwrite(shard: &Rc<Shard>, stripe: Stripe) -> Result<(), VolumeErrorKind> {
    let all = RowRange::new(0, shard.array.geometry_of(stripe).strip_blocks());
    let _rows = shard.locks.lock(stripe.id(), all, Hold::Exclusive).await;
    if !shard.array.written.is_written(stripe) {
        return Ok(());
    }
    // A member that is out must learn of the change when it comes back: the region is marked.
    let _intent = enter_region(shard, stripe).await?;
    shard.array.written.set(stripe, false);
    // With checksums the table would speak of content that is gone.
    if shard.array.tuning.pass_discards && shard.array.checksums.is_none() {
        shard.array.written.give_back(stripe);
    }
    shard.array.caches.note_unlogged();
    Ok(())
}
