//! Merging: pieces of a sequential stream become full stripes, so that they need no reads.
//!
//! What must stay true: only writes that continue each other are merged. A write waits only while a
//! stream is seen, and for a bounded time. It does not wait once waiting has proved useless, as
//! with a client that keeps one write in flight. A merged write is answered with the result of the
//! write that carried its bytes.
//!
//! The first write of a stripe that continues a stream leads. It waits while others join behind it,
//! until the stripe is full, nothing joined for a quarter of the longest wait, or that wait is
//! over. Then it copies the joined bytes together and writes them as one. If the leader is dropped,
//! the joined writes continue on their own.

use super::write::write_stripe;
use crate::datapath::streams::{Batch, Merging};
use crate::local_array::LocalArray;
use crate::stripe::work::StripeWrite;
use ashlar_iobuf::Buf;
use ashlar_layout::Stripe;
use ashlar_ring::{Pending, within};
use ashlar_units::{BLOCK_BYTES, Extent, to_u64, to_usize};
use ashlar_volume::VolumeErrorKind;
use smallvec::SmallVec;
use std::pin::pin;
use std::rc::Rc;

/// How a write is stored.
pub(crate) enum Way {
    /// By itself.
    Alone,
    /// With the batch of its stripe, if it continues that. If not, it may lead, should a stream be
    /// expected to follow it.
    Joins { is_followed: bool },
    /// First of a batch.
    Leads,
}

/// The way of a write that comes now.
#[inline]
pub(crate) fn way(local: &LocalArray, write: &StripeWrite) -> Way {
    let merging = &local.merging;
    let stripe_bytes = local.array.geometry_of(write.stripe).stripe_bytes();
    let is_stream = merging.continues_stream(write, stripe_bytes);
    let is_mergeable = write.extent.bytes != stripe_bytes
        && write.extent.is_aligned_to(BLOCK_BYTES)
        && stripe_bytes <= to_u64(local.worker.zeros.len());
    let is_followed = is_stream && write.extent.end() < stripe_bytes;
    match is_mergeable {
        true if merging.has_batches() => Way::Joins { is_followed },
        true if is_followed && merging.may_wait() => Way::Leads,
        _ => Way::Alone,
    }
}

/// Store a write that goes with others, or others with it.
///
/// # Errors
/// As `write_stripe`.
pub(crate) async fn write(
    local: &Rc<LocalArray>,
    write: StripeWrite,
    way: Way,
) -> Result<(), VolumeErrorKind> {
    let is_followed = match way {
        Way::Alone => return pin!(write_stripe(local, write)).await,
        Way::Leads => return Box::pin(lead(local, write)).await,
        Way::Joins { is_followed } => is_followed,
    };
    let (write, leads) = match join(local, write) {
        Joined::Not(write) => (write, is_followed && local.merging.may_wait()),
        Joined::Waits(result, write) => match result.await {
            Some(result) => return result,
            None => (write, false),
        },
    };
    match leads {
        true => Box::pin(lead(local, write)).await,
        false => pin!(write_stripe(local, write)).await,
    }
}

enum Joined {
    Waits(Pending<Result<(), VolumeErrorKind>>, StripeWrite),
    Not(StripeWrite),
}

/// Go with the batch of the stripe if this write continues it.
fn join(local: &LocalArray, write: StripeWrite) -> Joined {
    let mut batches = local.merging.batches.borrow_mut();
    let continues = |batch: &&mut Batch| {
        batch.stripe == write.stripe && batch.extent.end() == write.extent.offset
    };
    let Some(batch) = batches.iter_mut().find(continues) else { return Joined::Not(write) };
    let (completion, result) = local.merging.results.pair();
    batch.extent.bytes += write.extent.bytes;
    batch.joined.push((write.bytes.clone(), completion));
    if batch.extent.end() == local.array.geometry_of(batch.stripe).stripe_bytes()
        && let Some(full) = batch.full.take()
    {
        full.complete(());
    }
    local.counts().merged_writes.add(1);
    Joined::Waits(result, write)
}

/// Wait for others, then write for all.
async fn lead(local: &Rc<LocalArray>, write: StripeWrite) -> Result<(), VolumeErrorKind> {
    let StripeWrite { stripe, extent, bytes } = write;
    let merging = &local.merging;
    if merging.batch_bytes(stripe) != 0 {
        return write_stripe(local, StripeWrite { stripe, extent, bytes }).await;
    }
    let (full, is_full) = merging.fulls.pair();
    let batch = Batch { stripe, extent, joined: SmallVec::new(), full: Some(full) };
    merging.batches.borrow_mut().push(batch);
    let leader = Leader { merging, stripe, is_done: false };
    wait_for_others(local, stripe, is_full).await;
    let batch = leader.take_batch();
    merging.note_wait(!batch.joined.is_empty());
    write_batch(local, batch, extent, bytes).await
}

/// A leader that waits for others. It takes its batch away even if it is dropped while waiting.
struct Leader<'m> {
    merging: &'m Merging,
    stripe: Stripe,
    is_done: bool,
}

impl Leader<'_> {
    fn take_batch(mut self) -> Batch {
        self.is_done = true;
        self.merging.take_batch(self.stripe)
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            drop(self.merging.take_batch(self.stripe));
        }
    }
}

async fn wait_for_others(local: &Rc<LocalArray>, stripe: Stripe, mut is_full: Pending<()>) {
    let quarter = local.merging.wait_max.get() / 4;
    let mut seen = local.merging.batch_bytes(stripe);
    for _ in 0..4 {
        let was_full = within(&local.worker.handle, quarter, &mut is_full).await.is_some();
        let now = local.merging.batch_bytes(stripe);
        if was_full || now == seen {
            return;
        }
        seen = now;
    }
}

async fn write_batch(
    local: &Rc<LocalArray>,
    batch: Batch,
    first_extent: Extent,
    first: Buf,
) -> Result<(), VolumeErrorKind> {
    let stripe = batch.stripe;
    // Never wait for a buffer here: those who joined hold buffers of the same pool.
    let together = local.worker.payload.try_get(to_usize(batch.extent.bytes));
    if let (Some(mut together), false) = (together, batch.joined.is_empty()) {
        together[..first.len()].copy_from_slice(&first);
        let mut at = first.len();
        for (bytes, _) in &batch.joined {
            together[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        let whole = StripeWrite { stripe, extent: batch.extent, bytes: together.freeze() };
        let result = write_stripe(local, whole).await;
        for (_, completion) in batch.joined {
            completion.complete(result);
        }
        return result;
    }
    let result =
        write_stripe(local, StripeWrite { stripe, extent: first_extent, bytes: first }).await;
    let mut offset = first_extent.end();
    for (bytes, completion) in batch.joined {
        let extent = Extent::new(offset, to_u64(bytes.len()));
        offset = extent.end();
        completion.complete(write_stripe(local, StripeWrite { stripe, extent, bytes }).await);
    }
    result
}
