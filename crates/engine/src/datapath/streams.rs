//! The sequential streams into one array that one worker sees, and the writes that wait to go
//! together (`merge.rs`).

use crate::stripe::work::StripeWrite;
use ashlar_iobuf::Buf;
use ashlar_layout::{Stripe, StripeId};
use ashlar_ring::{Completion, Completions};
use ashlar_units::Extent;
use ashlar_volume::VolumeErrorKind;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
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
    pub(super) wait_max: Cell<Duration>,
    streams: RefCell<Streams>,
    pub(super) batches: RefCell<SmallVec<[Batch; 8]>>,
    pub(super) results: Completions<Result<(), VolumeErrorKind>>,
    pub(super) fulls: Completions<()>,
    useless: Cell<u32>,
    pause: Cell<u32>,
    pause_length: Cell<u32>,
}

/// Where the next write of each stream is expected.
#[derive(Default)]
struct Streams {
    /// As [`place_of`] counts.
    next: [u64; STREAMS],
    /// Writes in sequence.
    streaks: [u32; STREAMS],
    /// Which of them gives way to the next stream.
    oldest: usize,
}

impl Streams {
    /// A write from `begin` to `end`: how many there were in sequence.
    #[inline]
    fn note(&mut self, begin: u64, end: u64) -> u32 {
        let known = self.next.iter().position(|next| *next == begin);
        let at = known.unwrap_or(self.oldest);
        if known.is_none() {
            self.streaks[at] = 0;
            self.oldest = (at + 1) % STREAMS;
        }
        self.next[at] = end;
        self.streaks[at] = self.streaks[at].saturating_add(1);
        self.streaks[at]
    }
}

/// A byte of a stripe, counted over all stripes of its geometry: the end of one stripe is the start
/// of the next. An array has two geometries at most, one after the other, and less than 2^62 bytes.
fn place_of(stripe: StripeId, offset: u64, stripe_bytes: u64) -> u64 {
    let of_geometry = u64::from(stripe.epoch().0 & 1) << 63;
    of_geometry | (stripe.number().0 * stripe_bytes + offset)
}

/// A write that goes with another: its bytes, and whom to tell.
pub(super) type Joiner = (Buf, Completion<Result<(), VolumeErrorKind>>);

/// Writes that wait to go together.
pub(super) struct Batch {
    pub(super) stripe: Stripe,
    pub(super) extent: Extent,
    pub(super) joined: SmallVec<[Joiner; 8]>,
    /// Completed when the batch reaches the end of its stripe.
    pub(super) full: Option<Completion<()>>,
}

impl Merging {
    /// From now on a write waits so long at most.
    pub(crate) fn set_wait_max(&self, wait_max: Duration) {
        self.wait_max.set(wait_max);
    }

    pub(crate) fn new(wait_max: Duration) -> Self {
        Merging {
            wait_max: Cell::new(wait_max),
            streams: RefCell::default(),
            batches: RefCell::default(),
            results: Completions::new(),
            fulls: Completions::new(),
            useless: Cell::new(0),
            pause: Cell::new(0),
            pause_length: Cell::new(PAUSE_WRITES),
        }
    }

    /// Note the write; true if it continues a stream.
    pub(super) fn continues_stream(&self, write: &StripeWrite, stripe_bytes: u64) -> bool {
        let begin = place_of(write.stripe.id(), write.extent.offset, stripe_bytes);
        let streak = self.streams.borrow_mut().note(begin, begin + write.extent.bytes);
        streak >= STREAK_MIN
    }

    pub(super) fn may_wait(&self) -> bool {
        if self.wait_max.get().is_zero() {
            return false;
        }
        let pause = self.pause.get();
        self.pause.set(pause.saturating_sub(1));
        pause == 0
    }

    pub(super) fn note_wait(&self, was_joined: bool) {
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

    /// Whether writes wait to go together.
    pub(super) fn has_batches(&self) -> bool {
        !self.batches.borrow().is_empty()
    }

    /// Bytes of the batch of `stripe`; 0 if there is none.
    pub(super) fn batch_bytes(&self, stripe: Stripe) -> u64 {
        let batches = self.batches.borrow();
        batches.iter().find(|batch| batch.stripe == stripe).map_or(0, |batch| batch.extent.bytes)
    }

    pub(super) fn take_batch(&self, stripe: Stripe) -> Batch {
        let mut batches = self.batches.borrow_mut();
        let at = batches.iter().position(|batch| batch.stripe == stripe);
        batches.swap_remove(at.expect("the leader's batch is there until it takes it"))
    }
}
