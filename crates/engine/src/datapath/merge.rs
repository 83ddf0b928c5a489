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

use super::write::{StripeWrite, write_stripe};
use crate::local_array::LocalArray;
use ashlar_iobuf::Buf;
use ashlar_layout::{Stripe, StripeId};
use ashlar_ring::{Completion, Completions, Pending, within};
use ashlar_units::{BLOCK_BYTES, Extent, StripeNo, to_u64, to_usize};
use ashlar_volume::VolumeErrorKind;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// The most streams that one worker follows at once.
const STREAMS: usize = 16;
/// Writes in sequence after which it is a stream.
const STREAK_MIN: u32 = 2;
/// Waits in a row that nobody joined, after which waiting stops for a while.
const USELESS_MAX: u32 = 4;
/// Stream writes that then go without waiting; doubles each time, up to 256 times this.
const PAUSE_WRITES: u32 = 64;

/// What one worker knows about the streams into one array.
pub(crate) struct Merging {
    wait_max: Duration,
    streams: RefCell<[Stream; STREAMS]>,
    batches: RefCell<SmallVec<[Batch; 8]>>,
    results: Completions<Result<(), VolumeErrorKind>>,
    fulls: Completions<()>,
    next_stream: Cell<usize>,
    useless: Cell<u32>,
    pause: Cell<u32>,
    pause_length: Cell<u32>,
}

/// A place where the next write of a stream is expected.
#[derive(Clone, Copy, Default)]
struct Stream {
    stripe: StripeId,
    offset: u64,
    streak: u32,
}

/// A write that goes with another: its bytes, and whom to tell.
type Joiner = (Buf, Completion<Result<(), VolumeErrorKind>>);

/// Writes that wait to go together.
struct Batch {
    stripe: Stripe,
    extent: Extent,
    joined: SmallVec<[Joiner; 8]>,
    /// Completed when the batch reaches the end of its stripe.
    full: Option<Completion<()>>,
}

impl Merging {
    pub(crate) fn new(wait_max: Duration) -> Self {
        Merging {
            wait_max,
            streams: RefCell::default(),
            batches: RefCell::default(),
            results: Completions::new(),
            fulls: Completions::new(),
            next_stream: Cell::new(0),
            useless: Cell::new(0),
            pause: Cell::new(0),
            pause_length: Cell::new(PAUSE_WRITES),
        }
    }

    /// Note the write; true if it continues a stream.
    fn continues_stream(&self, write: &StripeWrite, stripe_bytes: u64) -> bool {
        let mut streams = self.streams.borrow_mut();
        let (stripe, end) = (write.stripe.id(), write.extent.end());
        // The end of one stripe is the start of the next.
        let after = || stripe.at(StripeNo(stripe.number().0 + 1));
        let next = if end == stripe_bytes { (after(), 0) } else { (stripe, end) };
        let is_here = |s: &&mut Stream| (s.stripe, s.offset) == (stripe, write.extent.offset);
        if let Some(stream) = streams.iter_mut().find(is_here) {
            (stream.stripe, stream.offset) = next;
            stream.streak += 1;
            return stream.streak >= STREAK_MIN;
        }
        let at = self.next_stream.get();
        self.next_stream.set((at + 1) % STREAMS);
        streams[at] = Stream { stripe: next.0, offset: next.1, streak: 1 };
        false
    }

    fn may_wait(&self) -> bool {
        if self.wait_max.is_zero() {
            return false;
        }
        let pause = self.pause.get();
        self.pause.set(pause.saturating_sub(1));
        pause == 0
    }

    fn note_wait(&self, was_joined: bool) {
        if was_joined {
            self.useless.set(0);
            self.pause_length.set(PAUSE_WRITES);
            return;
        }
        self.useless.set(self.useless.get() + 1);
        if self.useless.get() >= USELESS_MAX {
            self.useless.set(0);
            self.pause.set(self.pause_length.get());
            self.pause_length.set((self.pause_length.get() * 2).min(PAUSE_WRITES * 256));
        }
    }

    /// Bytes of the batch of `stripe`; 0 if there is none.
    fn batch_bytes(&self, stripe: Stripe) -> u64 {
        let batches = self.batches.borrow();
        batches.iter().find(|batch| batch.stripe == stripe).map_or(0, |batch| batch.extent.bytes)
    }

    fn take_batch(&self, stripe: Stripe) -> Batch {
        let mut batches = self.batches.borrow_mut();
        let at = batches.iter().position(|batch| batch.stripe == stripe);
        batches.swap_remove(at.expect("the leader's batch is there until it takes it"))
    }
}

/// Store a write, alone or together with those that continue it.
///
/// # Errors
/// As `write_stripe`.
pub(super) async fn write(
    local: &Rc<LocalArray>,
    write: StripeWrite,
) -> Result<(), VolumeErrorKind> {
    let stripe_bytes = local.array.geometry_of(write.stripe).stripe_bytes();
    let is_whole = write.extent.bytes == stripe_bytes;
    let is_stream = local.merging.continues_stream(&write, stripe_bytes);
    let is_mergeable = !is_whole
        && write.extent.is_aligned_to(BLOCK_BYTES)
        && stripe_bytes <= to_u64(local.worker.zeros.len());
    if !is_mergeable {
        return write_stripe(local, write).await;
    }
    match join(local, write) {
        Joined::Waits(result, write) => match result.await {
            Some(result) => result,
            None => write_stripe(local, write).await,
        },
        Joined::Not(write) if is_stream && write.extent.end() < stripe_bytes => {
            if local.merging.may_wait() {
                Box::pin(lead(local, write)).await
            } else {
                write_stripe(local, write).await
            }
        }
        Joined::Not(write) => write_stripe(local, write).await,
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
    let quarter = local.merging.wait_max / 4;
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
