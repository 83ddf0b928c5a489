//! Merging: pieces of a sequential stream become full stripes, so that they need no reads.
//!
//! What must stay true: only writes that continue each other are merged. A write waits only while a
//! stream is seen, and for a bounded time. It does not wait once waiting has proved useless, as
//! with a client that keeps one write in flight. A merged write is answered with the result of the
//! write that carried its bytes.
//!
//! The first write of a stripe that continues a stream leads. It waits while others join behind it,
//! until the stripe is full or the longest wait is over. If all changes under way wait like this,
//! their clients may have to be answered before they send more: then a quarter of that wait in
//! which nothing came is enough, and how much there was is remembered. The next time that so much
//! waits, nobody waits any longer. The write that fills the stripe writes all of them as one, while
//! their bytes are in the cache; else the leader does. If who writes is dropped, the others
//! continue on their own.

use super::joined::by_strip;
use super::payload::Payload;
use super::write::write_stripe;
use crate::datapath::streams::{Batch, BatchNews, Merging, StreamAt};
use crate::local_array::LocalArray;
use crate::stripe::work::StripeWrite;
use ashlar_iobuf::Buf;
use ashlar_ring::{Pending, within};
use ashlar_units::{BLOCK_BYTES, Extent, to_u64};
use ashlar_volume::VolumeErrorKind;
use std::pin::pin;
use std::rc::Rc;

/// Stripes with more data are not worth the memory of those who wait: buffers that clients need.
const MERGED_BYTES_MAX: u64 = 4 << 20;

/// How a write is stored.
pub(crate) enum Way {
    /// By itself.
    Alone,
    /// With the batch of its stripe, if it continues that. If not, it may lead, should this stream
    /// be expected to follow it.
    Joins { followed_by: Option<StreamAt> },
    /// First of a batch of this stream.
    Leads(StreamAt),
}

/// The way of a write that comes now.
#[inline]
pub(crate) fn way(local: &LocalArray, write: &StripeWrite) -> Way {
    let merging = &local.merging;
    let stripe_bytes = local.array.geometry_of(write.stripe).stripe_bytes();
    let stream = merging.stream_of(write, stripe_bytes, local.changes_under_way.get());
    let is_mergeable = write.extent.bytes != stripe_bytes
        && write.extent.is_aligned_to(BLOCK_BYTES)
        && stripe_bytes <= MERGED_BYTES_MAX;
    if !is_mergeable {
        return Way::Alone;
    }
    let followed_by = stream.filter(|_| write.extent.end() < stripe_bytes);
    match followed_by {
        _ if merging.has_batches() => Way::Joins { followed_by },
        Some(stream) if merging.may_wait(stream) => Way::Leads(stream),
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
    let followed_by = match way {
        Way::Alone => return pin!(write_alone(local, write)).await,
        Way::Leads(stream) => return Box::pin(lead(local, stream, write)).await,
        Way::Joins { followed_by } => followed_by,
    };
    let (write, leads) = match join(local, write) {
        Joined::Not(write) => (write, followed_by.filter(|stream| local.merging.may_wait(*stream))),
        Joined::Fills(batch) => return Box::pin(write_batch(local, *batch)).await,
        Joined::Waits(result, write) => match result.await {
            Some(result) => return result,
            None => (write, None),
        },
    };
    match leads {
        Some(stream) => Box::pin(lead(local, stream, write)).await,
        None => pin!(write_alone(local, write)).await,
    }
}

/// Store one write by itself.
async fn write_alone(local: &Rc<LocalArray>, write: StripeWrite) -> Result<(), VolumeErrorKind> {
    pin!(write_stripe(local, Payload::new(&local.array, write))).await
}

enum Joined {
    Waits(Pending<Result<(), VolumeErrorKind>>, StripeWrite),
    /// It was the last, and goes with all of these.
    Fills(Box<Batch>),
    Not(StripeWrite),
}

/// Go with the batch of the stripe if this write continues it.
fn join(local: &LocalArray, write: StripeWrite) -> Joined {
    let merging = &local.merging;
    let mut batches = merging.batches.borrow_mut();
    let continues =
        |batch: &Batch| batch.stripe == write.stripe && batch.extent.end() == write.extent.offset;
    let Some(at) = batches.iter().position(continues) else { return Joined::Not(write) };
    let batch = &mut batches[at];
    local.counts().merged_writes.add(1);
    batch.extent.bytes += write.extent.bytes;
    let is_full = batch.extent.end() == local.array.geometry_of(batch.stripe).stripe_bytes();
    if is_full && batch.leader.is_some() {
        batch.last = Some(write.bytes);
        return Joined::Fills(Box::new(batches.swap_remove(at)));
    }
    let (completion, result) = merging.results.pair();
    batch.joined.push((write.bytes.clone(), completion));
    drop(batches);
    merging.note_arrival(local.changes_under_way.get());
    Joined::Waits(result, write)
}

/// Wait for others. Then the write that fills the stripe has written for all, or this one does.
async fn lead(
    local: &Rc<LocalArray>,
    stream: StreamAt,
    write: StripeWrite,
) -> Result<(), VolumeErrorKind> {
    let merging = &local.merging;
    if merging.has_batch_of(write.stripe) {
        return write_alone(local, write).await;
    }
    let (told, mut tells) = merging.tells.pair();
    let number = merging.begin_batch(&write, told);
    merging.note_arrival(local.changes_under_way.get());
    let leader = Leader { merging, number };
    let heard = wait_for_others(local, &mut tells).await;
    if let Some(Some(BatchNews::Go)) = heard {
        // For writes that are here already: there may be more than ever before.
        local.worker.handle.yield_now().await;
    }
    let batch = merging.take_batch(number);
    drop(leader);
    match (batch, heard) {
        (Some(batch), _) => {
            merging.note_wait(stream, !batch.joined.is_empty());
            write_batch(local, batch).await
        }
        (None, heard) => {
            merging.note_wait(stream, true);
            let told = match heard {
                Some(told) => told,
                None => tells.await,
            };
            match told {
                Some(BatchNews::Stored(result)) => result,
                // Who took the batch is gone.
                _ => write_alone(local, write).await,
            }
        }
    }
}

/// A leader that waits for others. It takes its batch away even if it is dropped while waiting.
struct Leader<'m> {
    merging: &'m Merging,
    number: u64,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        drop(self.merging.take_batch(self.number));
    }
}

/// What the leader of a batch is told, if it is told anything in time.
async fn wait_for_others(
    local: &Rc<LocalArray>,
    tells: &mut Pending<BatchNews>,
) -> Option<Option<BatchNews>> {
    let quarter = local.merging.wait_max.get() / 4;
    let mut seen = local.merging.arrivals();
    for _ in 0..4 {
        if let Some(told) = within(&local.worker.handle, quarter, &mut *tells).await {
            return Some(told);
        }
        let before = std::mem::replace(&mut seen, local.merging.arrivals());
        if before == seen {
            local.merging.note_silence(local.changes_under_way.get());
        }
    }
    None
}

/// Write a batch that was taken, and tell everyone else of it.
async fn write_batch(local: &Rc<LocalArray>, batch: Batch) -> Result<(), VolumeErrorKind> {
    if let Some(together) = together(local, &batch) {
        let result = pin!(write_stripe(local, together)).await;
        let left = local.changes_under_way.get().saturating_sub(batch.writes());
        batch.tell(result);
        local.merging.note_end(left);
        return result;
    }
    let Batch { stripe, extent, first, leader, joined, last, .. } = batch;
    let mut offset = extent.offset;
    let mut next = |bytes: Buf| {
        let extent = Extent::new(offset, to_u64(bytes.len()));
        offset = extent.end();
        write_alone(local, StripeWrite { stripe, extent, bytes })
    };
    let mut result = next(first).await;
    if let Some(leader) = leader {
        leader.complete(BatchNews::Stored(result));
    }
    for (bytes, completion) in joined {
        completion.complete(next(bytes).await);
    }
    if let Some(bytes) = last {
        result = next(bytes).await;
    }
    result
}

/// All of a batch as one; `None` if nobody joined, or there is no memory for it.
fn together(local: &LocalArray, batch: &Batch) -> Option<Payload> {
    if batch.joined.is_empty() && batch.last.is_none() {
        return None;
    }
    let strip_bytes = local.array.geometry_of(batch.stripe).strip_bytes();
    let strips = by_strip(local, batch.extent, strip_bytes, batch.parts())?;
    Some(Payload::of_strips(&local.array, batch.stripe, batch.extent, strips))
}
