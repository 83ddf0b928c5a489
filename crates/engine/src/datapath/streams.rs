//! The sequential streams into one array that one worker sees, and the writes that wait to go
//! together (`merge.rs`).
//!
//! What must stay true: writes at random places do not make a worker forget its streams. All that
//! is known here is advice: wrong advice costs time and nothing else.

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
const STREAMS: usize = 64;

/// The last writes that continued no stream: one of them may be the first of one.
const FIRSTS: usize = 16;

/// No write begins there.
const NOWHERE: u64 = u64::MAX;

/// Waits in a row that nobody joined, after which a stream stops waiting for a while.
const USELESS_MAX: u32 = 4;

/// Writes that then go without waiting. Doubles each time, up to 256 times this.
const PAUSE_WRITES: u32 = 64;

/// What one worker knows about the streams into one array.
pub(crate) struct Merging {
    pub(super) wait_max: Cell<Duration>,
    streams: RefCell<Streams>,
    pub(super) batches: RefCell<SmallVec<[Batch; 8]>>,
    pub(super) results: Completions<Result<(), VolumeErrorKind>>,
    pub(super) tells: Completions<BatchNews>,
    next_batch: Cell<u64>,
    /// Writes that began to wait so far.
    arrivals: Cell<u64>,
    /// Bytes of writes since nothing was under way.
    burst: Cell<u64>,
    /// Bytes of all batches when no write came any more although all waited: clients have no more
    /// under way at once.
    window: Learned,
    /// What `burst` was then: clients send so much, and no more before all of it is answered.
    burst_end: Learned,
}

/// Something that holds for a number of writes, each time for twice as many.
#[derive(Default)]
struct Pause {
    left: Cell<u32>,
    doublings: Cell<u32>,
}

impl Pause {
    fn begin(&self) {
        self.left.set(PAUSE_WRITES << self.doublings.get());
        self.doublings.set((self.doublings.get() + 1).min(8));
    }

    /// Whether it still is; one less is left then.
    fn is_on(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left != 0
    }

    fn end(&self) {
        self.left.set(0);
        self.doublings.set(0);
    }
}

/// A number of bytes after which nothing came, as often as it was so.
struct Learned {
    bytes: Cell<u64>,
    /// As long as this is on, it is taken for true.
    believed: Pause,
}

impl Default for Learned {
    fn default() -> Self {
        Learned { bytes: Cell::new(u64::MAX), believed: Pause::default() }
    }
}

impl Learned {
    /// Nothing came after so many.
    fn learn(&self, bytes: u64) {
        if self.bytes.replace(bytes) != bytes {
            self.believed.end();
        }
        self.believed.begin();
    }

    /// Whether nothing is to be expected after so many.
    fn is_reached(&self, bytes: u64) -> bool {
        if bytes > self.bytes.get() {
            self.bytes.set(u64::MAX);
            self.believed.end();
        }
        bytes == self.bytes.get() && self.believed.is_on()
    }
}

/// A stream, by its place in the table. Another may take its place at any time.
#[derive(Clone, Copy)]
pub(crate) struct StreamAt(usize);

/// Where the next write of each stream is expected, as [`place_of`] counts.
struct Streams {
    next: [u64; STREAMS],
    /// So many of them are in use.
    count: usize,
    habits: [Habit; STREAMS],
    /// Which of them is looked at first when one must give way.
    hand: usize,
    firsts: [u64; FIRSTS],
    /// Which of those gives way to the next.
    oldest: usize,
}

/// What is known of one stream.
#[derive(Default)]
struct Habit {
    /// It went on since it was last looked at, and is more than two writes long.
    is_recent: bool,
    /// Waits in a row that nobody joined.
    useless: u32,
    pause: Pause,
}

impl Default for Streams {
    fn default() -> Self {
        Streams {
            next: [NOWHERE; STREAMS],
            count: 0,
            habits: std::array::from_fn(|_| Habit::default()),
            hand: 0,
            firsts: [NOWHERE; FIRSTS],
            oldest: 0,
        }
    }
}

impl Streams {
    /// A write from `begin` to `end`: the stream that it continues.
    #[inline]
    fn note(&mut self, begin: u64, end: u64) -> Option<StreamAt> {
        if let Some(at) = self.next[..self.count].iter().position(|next| *next == begin) {
            self.next[at] = end;
            self.habits[at].is_recent = true;
            return Some(StreamAt(at));
        }
        let Some(first) = self.firsts.iter().position(|next| *next == begin) else {
            self.firsts[self.oldest] = end;
            self.oldest = (self.oldest + 1) % FIRSTS;
            return None;
        };
        self.firsts[first] = NOWHERE;
        let at = self.room();
        self.next[at] = end;
        self.habits[at] = Habit::default();
        Some(StreamAt(at))
    }

    /// A place for one more: that of a stream that did not go on for a round.
    fn room(&mut self) -> usize {
        if self.count < STREAMS {
            self.count += 1;
            return self.count - 1;
        }
        loop {
            let at = self.hand;
            self.hand = (at + 1) % STREAMS;
            if !std::mem::take(&mut self.habits[at].is_recent) {
                return at;
            }
        }
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

/// What the leader of a batch is told.
pub(super) enum BatchNews {
    /// To wait no longer.
    Go,
    /// The write that filled the stripe has written for all.
    Stored(Result<(), VolumeErrorKind>),
}

/// Writes that wait to go together.
pub(super) struct Batch {
    number: u64,
    pub(super) stripe: Stripe,
    pub(super) extent: Extent,
    /// The bytes of its leader.
    pub(super) first: Buf,
    /// `None`: told to go.
    pub(super) leader: Option<Completion<BatchNews>>,
    pub(super) joined: SmallVec<[Joiner; 8]>,
    /// The bytes of the write that filled the stripe, if that writes for all.
    pub(super) last: Option<Buf>,
}

impl Batch {
    /// All bytes, in order.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Buf> + Clone {
        let joined = self.joined.iter().map(|(bytes, _)| bytes);
        std::iter::once(&self.first).chain(joined).chain(&self.last)
    }

    /// How many writes these are.
    pub(super) fn writes(&self) -> usize {
        1 + self.joined.len() + usize::from(self.last.is_some())
    }

    /// It was written: tell all but the one that wrote it.
    pub(super) fn tell(self, result: Result<(), VolumeErrorKind>) {
        if let Some(leader) = self.leader {
            leader.complete(BatchNews::Stored(result));
        }
        for (_, completion) in self.joined {
            completion.complete(result);
        }
    }
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
            tells: Completions::new(),
            next_batch: Cell::new(0),
            arrivals: Cell::new(0),
            burst: Cell::new(0),
            window: Learned::default(),
            burst_end: Learned::default(),
        }
    }

    /// Note the write, one of so many changes under way; the stream that it continues.
    #[inline]
    pub(super) fn stream_of(
        &self,
        write: &StripeWrite,
        stripe_bytes: u64,
        under_way: usize,
    ) -> Option<StreamAt> {
        let begin = place_of(write.stripe.id(), write.extent.offset, stripe_bytes);
        let before = if under_way <= 1 { 0 } else { self.burst.get() };
        self.burst.set(before + write.extent.bytes);
        self.streams.borrow_mut().note(begin, begin + write.extent.bytes)
    }

    /// Whether a write of this stream may wait for the next.
    pub(super) fn may_wait(&self, stream: StreamAt) -> bool {
        !self.wait_max.get().is_zero() && !self.streams.borrow().habits[stream.0].pause.is_on()
    }

    /// A write of this stream waited.
    pub(super) fn note_wait(&self, stream: StreamAt, was_joined: bool) {
        let habit = &mut self.streams.borrow_mut().habits[stream.0];
        habit.useless = if was_joined { 0 } else { habit.useless + 1 };
        if was_joined {
            habit.pause.end();
        } else if habit.useless >= USELESS_MAX {
            habit.useless = 0;
            habit.pause.begin();
        }
    }

    /// Whether writes wait to go together.
    pub(super) fn has_batches(&self) -> bool {
        !self.batches.borrow().is_empty()
    }

    /// Whether writes to this stripe do.
    pub(super) fn has_batch_of(&self, stripe: Stripe) -> bool {
        self.batches.borrow().iter().any(|batch| batch.stripe == stripe)
    }

    /// This write waits from now on, for others to join it. The number of the batch.
    pub(super) fn begin_batch(&self, write: &StripeWrite, leader: Completion<BatchNews>) -> u64 {
        let number = self.next_batch.get();
        self.next_batch.set(number + 1);
        self.batches.borrow_mut().push(Batch {
            number,
            stripe: write.stripe,
            extent: write.extent,
            first: write.bytes.clone(),
            leader: Some(leader),
            joined: SmallVec::new(),
            last: None,
        });
        number
    }

    /// The batch of that number, unless the write that filled it has taken it.
    pub(super) fn take_batch(&self, number: u64) -> Option<Batch> {
        let mut batches = self.batches.borrow_mut();
        let at = batches.iter().position(|batch| batch.number == number)?;
        Some(batches.swap_remove(at))
    }

    /// One more write waits, of `under_way` changes. If all of them do, and clients
    /// never had more under way, none of them will send another before it has an answer.
    pub(super) fn note_arrival(&self, under_way: usize) {
        self.arrivals.set(self.arrivals.get().wrapping_add(1));
        let Some(bytes) = self.bytes_if_all_wait(under_way) else { return };
        if self.window.is_reached(bytes) || self.burst_end.is_reached(self.burst.get()) {
            self.release_all();
        }
    }

    /// Writes to streams have ended, and so many changes are still under way.
    pub(super) fn note_end(&self, under_way: usize) {
        let all_wait = under_way != 0 && self.bytes_if_all_wait(under_way).is_some();
        if all_wait && self.burst_end.is_reached(self.burst.get()) {
            self.release_all();
        }
    }

    /// How many writes have begun to wait.
    pub(super) fn arrivals(&self) -> u64 {
        self.arrivals.get()
    }

    /// None of them came for a while. If all changes that are under way wait, none will come, and
    /// nobody waits any longer.
    pub(super) fn note_silence(&self, under_way: usize) {
        let Some(bytes) = self.bytes_if_all_wait(under_way) else { return };
        self.window.learn(bytes);
        self.burst_end.learn(self.burst.get());
        self.release_all();
    }

    fn release_all(&self) {
        for batch in self.batches.borrow_mut().iter_mut() {
            if let Some(leader) = batch.leader.take() {
                leader.complete(BatchNews::Go);
            }
        }
    }

    /// Bytes of all batches if these are all changes that are under way.
    fn bytes_if_all_wait(&self, under_way: usize) -> Option<u64> {
        let batches = self.batches.borrow();
        let waiting: usize = batches.iter().map(|batch| 1 + batch.joined.len()).sum();
        (waiting == under_way).then(|| batches.iter().map(|batch| batch.extent.bytes).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::{Merging, PAUSE_WRITES, STREAMS, Streams};
    use std::time::Duration;

    /// Writes of a block: one of each stream in turn.
    fn continued(streams: &mut Streams, count: u64, round: u64) -> usize {
        let place = |stream: u64| (stream << 32) + round * 4096;
        let note = |stream: &u64| streams.note(place(*stream), place(*stream) + 4096).is_some();
        (1..=count).filter(note).count()
    }

    #[test]
    fn a_stream_is_known_from_its_second_write_on() {
        let mut streams = Streams::default();
        assert_eq!(continued(&mut streams, 8, 0), 0);
        assert_eq!(continued(&mut streams, 8, 1), 8);
        assert!(streams.note(7, 8).is_none());
        assert_eq!(continued(&mut streams, 8, 2), 8);
    }

    #[test]
    fn random_writes_do_not_make_it_forget_streams() {
        let mut streams = Streams::default();
        for round in 0..2 {
            continued(&mut streams, 8, round);
        }
        for place in 0..10_000_u64 {
            assert!(
                streams.note((1 << 60) + place * 8192, (1 << 60) + place * 8192 + 4096).is_none()
            );
        }
        assert_eq!(continued(&mut streams, 8, 2), 8);
    }

    #[test]
    fn a_stream_that_ended_gives_way_and_those_that_go_on_stay() {
        let mut streams = Streams::default();
        let full = u64::try_from(STREAMS).expect("small");
        for stream in 1..=full {
            let place = stream << 32;
            streams.note(place, place + 4096);
            assert!(streams.note(place + 4096, place + 8192).is_some());
        }
        for round in 2..100 {
            assert_eq!(continued(&mut streams, full - 1, round), STREAMS - 1, "round {round}");
            let other = round << 50;
            streams.note(other, other + 4096);
            assert!(streams.note(other + 4096, other + 8192).is_some());
        }
    }

    #[test]
    fn a_stream_that_nobody_joins_stops_waiting_and_others_go_on() {
        let merging = Merging::new(Duration::from_micros(500));
        let streams = || {
            let mut streams = merging.streams.borrow_mut();
            [1_u64 << 40, 1 << 41].map(|place| {
                streams.note(place, place + 4096);
                streams.note(place + 4096, place + 8192).expect("it goes on")
            })
        };
        let [lone, joined] = streams();
        for _ in 0..4 {
            assert!(merging.may_wait(lone) && merging.may_wait(joined));
            merging.note_wait(lone, false);
            merging.note_wait(joined, true);
        }
        let waits = (0..2 * PAUSE_WRITES).filter(|_| merging.may_wait(lone)).count();
        assert_eq!(waits, usize::try_from(PAUSE_WRITES).expect("small"));
        assert!(merging.may_wait(joined));
    }
}
