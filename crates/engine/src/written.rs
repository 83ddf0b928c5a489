//! The written map in memory: one bit for each stripe, set when the stripe was first written.
//!
//! - here           the bits
//! - `pages`        the way of the bits to the members and back
//! - `given_back`   stripes that clients gave back and whose blocks are still there
//! - `kept`         the bits in memory that survives a killed process
//!
//! What must stay true: a stripe whose bit is clear reads as zeros without touching a member, and
//! counts as zeros in parity. Its first write stores all its strips. A bit is set only after those
//! strips are stored, and reaches the members only after they are flushed. So a crash leaves the
//! stripe either unwritten (zeros) or whole. Bits change under the stripe's row lock, by its owner.
//! Every worker reads them. Pages of all-clear bits take no memory.

mod given_back;
pub(crate) mod kept;
mod pages;

use crate::canary::{Canary, sings};
use ashlar_layout::{Geometry, LayoutEpoch, Stripe};
use ashlar_units::{StripeNo, to_u64, to_usize};
use kept::KeptMap;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// Words of bits that a worker looks at in one turn: some microseconds of it.
pub(crate) const WORDS_PER_TURN: u64 = 4096;

/// What is left of a turn, in words of bits.
pub(crate) struct Stint {
    words: u64,
}

impl Stint {
    /// It has just begun.
    pub(crate) fn new() -> Stint {
        Stint { words: WORDS_PER_TURN }
    }

    /// Something took as long as it takes to look at so many words.
    pub(crate) fn spend(&mut self, words: u64) {
        self.words = self.words.saturating_sub(words);
    }

    /// Others are to have theirs.
    pub(crate) fn is_over(&self) -> bool {
        self.words == 0
    }
}

/// What a look in one turn comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// The first stripe that is looked for.
    Found(StripeNo),
    /// There is none.
    Nothing,
    /// There is none before this one, where the next turn goes on.
    GoesOn(StripeNo),
}

/// One bit for each stripe of one geometry, in pages as they lie on the members. Numbers here are
/// numbers of that geometry.
///
/// On the members there is one map for the one geometry. A second geometry needs an area of its own
/// for its bits.
pub(crate) struct WrittenMap {
    epoch: LayoutEpoch,
    pages: Box<[Page]>,
    bits_per_page: u64,
    stripe_count: u64,
    dirty_pages: AtomicUsize,
    /// Pages with the newest bits in only one place.
    single_pages: AtomicUsize,
    /// Stripes whose blocks the members still hold though clients gave them back.
    given_back: AtomicUsize,
    /// The same bits where a killed process does not lose them.
    kept: OnceLock<KeptMap>,
}

#[derive(Default)]
struct Page {
    words: OnceLock<Box<[AtomicU64]>>,
    /// Bits that may be set on the members.
    stored: OnceLock<Box<[AtomicU64]>>,
    /// Bits of stripes that clients gave back and members were not told of.
    given_back: OnceLock<Box<[AtomicU64]>>,
    /// Bits that are set on the members in both places of the page.
    sure: OnceLock<Box<[AtomicU64]>>,
    is_dirty: AtomicBool,
    /// Which of its places on the members is written next: 0 or 1.
    next_place: AtomicU8,
    /// The bits on their way to the members are those that the other place has.
    is_repeat: AtomicBool,
    /// Not all members have its newest bits.
    is_partial: AtomicBool,
    /// Its newest bits lie in one place only: damage there would bring back older ones.
    is_single: AtomicBool,
}

impl WrittenMap {
    /// A map of all stripes of the geometry, unwritten; `bits_per_page` is a multiple of 64.
    pub(crate) fn new(geometry: &Geometry, bits_per_page: u64) -> Self {
        let stripe_count = geometry.stripe_count();
        assert!(bits_per_page.is_multiple_of(64), "pages hold whole words");
        let page_count = to_usize(stripe_count.div_ceil(bits_per_page));
        let pages = (0..page_count).map(|_| Page::default()).collect();
        WrittenMap {
            epoch: geometry.epoch(),
            pages,
            bits_per_page,
            stripe_count,
            dirty_pages: AtomicUsize::new(0),
            single_pages: AtomicUsize::new(0),
            given_back: AtomicUsize::new(0),
            kept: OnceLock::new(),
        }
    }

    /// The geometry whose stripes it has bits for.
    pub(crate) fn epoch(&self) -> LayoutEpoch {
        self.epoch
    }

    /// Number of pages.
    pub(crate) fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Whether the stripe was ever written (and not given back since).
    #[inline]
    pub(crate) fn is_written(&self, stripe: Stripe) -> bool {
        let (page, word, bit) = self.bit_of(stripe);
        let Some(words) = self.pages[page].words.get() else { return false };
        words[word].load(Ordering::Acquire) & bit != 0
    }

    /// Set or clear the stripe's bit. Its page then waits to be stored.
    pub(crate) fn set(&self, stripe: Stripe, is_written: bool) {
        let (page, word, bit) = self.bit_of(stripe);
        let words = self.words(page);
        if is_written {
            words[word].fetch_or(bit, Ordering::AcqRel);
            self.keep(stripe);
        } else {
            words[word].fetch_and(!bit, Ordering::AcqRel);
        }
        if !is_written && sings(Canary::TrimNotStored) {
            return;
        }
        if !self.pages[page].is_dirty.swap(true, Ordering::AcqRel) {
            self.dirty_pages.fetch_add(1, Ordering::AcqRel);
        }
        self.put_changed(page);
    }

    /// The first stripe of `range` that is written, or that is not, as far as the turn gets: 64
    /// stripes are one step, and a page without bits is one.
    pub(crate) fn look_for(&self, is_written: bool, range: Range<u64>, turn: &mut Stint) -> Look {
        let (mut at, end) = (range.start, range.end.min(self.stripe_count));
        while at < end {
            if turn.is_over() {
                return Look::GoesOn(StripeNo(at));
            }
            turn.spend(1);
            let (page, word, _) = self.locate(StripeNo(at));
            let bits = match self.pages[page].words.get() {
                None if is_written => {
                    at = (to_u64(page) + 1) * self.bits_per_page;
                    continue;
                }
                None => 0,
                Some(words) => words[word].load(Ordering::Acquire),
            };
            let rest = if is_written { bits } else { !bits } >> (at % 64);
            if rest != 0 {
                let found = at + u64::from(rest.trailing_zeros());
                return if found < end { Look::Found(StripeNo(found)) } else { Look::Nothing };
            }
            at = (at / 64 + 1) * 64;
        }
        Look::Nothing
    }

    /// The first written stripe of `range`.
    pub(crate) fn next_written_in(&self, range: Range<u64>) -> Option<StripeNo> {
        let mut at = range.start;
        let end = range.end.min(self.stripe_count);
        while at < end {
            let (page, word, _) = self.locate(StripeNo(at));
            let Some(words) = self.pages[page].words.get() else {
                at = (to_u64(page) + 1) * self.bits_per_page;
                continue;
            };
            let bits = words[word].load(Ordering::Acquire) >> (at % 64);
            if bits != 0 {
                let found = at + u64::from(bits.trailing_zeros());
                return (found < end).then_some(StripeNo(found));
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Number of written stripes in `range`.
    pub(crate) fn count_in(&self, range: Range<u64>) -> u64 {
        let (mut at, mut count) = (range.start, 0);
        let end = range.end.min(self.stripe_count);
        while at < end {
            let (page, word, _) = self.locate(StripeNo(at));
            let Some(words) = self.pages[page].words.get() else {
                at = (to_u64(page) + 1) * self.bits_per_page;
                continue;
            };
            let stop = ((at / 64 + 1) * 64).min(end);
            let mask = u64::MAX >> (64 - (stop - at));
            let bits = words[word].load(Ordering::Relaxed) >> (at % 64);
            count += u64::from((bits & mask).count_ones());
            at = stop;
        }
        count
    }

    /// Number of written stripes.
    pub(crate) fn written_count(&self) -> u64 {
        let words = self.pages.iter().filter_map(|page| page.words.get());
        let bits = words.flat_map(|words| words.iter());
        bits.map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }

    fn words(&self, page: usize) -> &[AtomicU64] {
        let make = || (0..self.words_per_page()).map(|_| AtomicU64::new(0)).collect();
        self.pages[page].words.get_or_init(make)
    }

    fn words_per_page(&self) -> usize {
        to_usize(self.bits_per_page / 64)
    }

    #[inline]
    fn bit_of(&self, stripe: Stripe) -> (usize, usize, u64) {
        assert!(stripe.epoch() == self.epoch, "{stripe:?} has no bit here");
        self.locate(stripe.number())
    }

    #[inline]
    fn locate(&self, stripe: StripeNo) -> (usize, usize, u64) {
        assert!(stripe.0 < self.stripe_count, "stripe {stripe} of {}", self.stripe_count);
        let (page, bit) = (stripe.0 / self.bits_per_page, stripe.0 % self.bits_per_page);
        (to_usize(page), to_usize(bit / 64), 1 << (bit % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::{Look, Stint, WORDS_PER_TURN, WrittenMap};
    use crate::layouts::geometry_of;
    use ashlar_layout::Stripe;
    use ashlar_ondisk::format::BITS_PER_PAGE;
    use ashlar_units::{StripeNo, to_usize};

    fn at(number: u64) -> Stripe {
        geometry_of(1000).stripe(StripeNo(number))
    }

    /// Turns until the whole map was looked at.
    fn turns(map: &WrittenMap, is_written: bool) -> (usize, Look) {
        let (mut turns, mut from) = (1, 0);
        loop {
            match map.look_for(is_written, from..u64::MAX, &mut Stint::new()) {
                Look::GoesOn(next) => {
                    assert!(next.0 > from && next.0 - from <= 64 * WORDS_PER_TURN);
                    (turns, from) = (turns + 1, next.0);
                }
                end => return (turns, end),
            }
        }
    }

    #[test]
    fn a_turn_has_a_bound_however_many_stripes_are_alike() {
        const STRIPES: u64 = 100_000_000;
        let map = WrittenMap::new(&geometry_of(STRIPES), BITS_PER_PAGE);
        // Nothing of it was ever in memory: pages are skipped whole.
        assert_eq!(turns(&map, true), (1, Look::Nothing));
        assert_eq!(turns(&map, false), (1, Look::Found(StripeNo(0))));
        let all = vec![u64::MAX; to_usize(BITS_PER_PAGE / 64)];
        (0..map.page_count()).for_each(|page| map.load_page(page, &all));
        let all_turns = to_usize(STRIPES.div_ceil(64 * WORDS_PER_TURN));
        assert_eq!(turns(&map, false), (all_turns, Look::Nothing));
        let last = geometry_of(STRIPES).stripe(StripeNo(STRIPES - 1));
        map.set(last, false);
        assert_eq!(turns(&map, false), (all_turns, Look::Found(last.number())));
    }

    #[test]
    fn set_bits_are_found_in_order_across_pages() {
        let map = WrittenMap::new(&geometry_of(1000), 128);
        for stripe in [3, 127, 128, 640, 999] {
            map.set(at(stripe), true);
        }
        let mut found = Vec::new();
        let mut from = 0;
        let look = |is_written, range| map.look_for(is_written, range, &mut Stint::new());
        while let Look::Found(stripe) = look(true, from..1000) {
            found.push(stripe.0);
            from = stripe.0 + 1;
        }
        assert_eq!(found, [3, 127, 128, 640, 999]);
        assert_eq!(map.written_count(), 5);
        for (range, count) in [(0..1000, 5), (4..127, 0), (3..4, 1), (127..641, 3), (900..2000, 1)]
        {
            assert_eq!(map.count_in(range.clone()), count, "{range:?}");
            assert_eq!(map.next_written_in(range.clone()).is_some(), count != 0, "{range:?}");
            let is_found = look(true, range.clone()) != Look::Nothing;
            assert_eq!(is_found, count != 0, "{range:?}");
        }
        assert_eq!(look(false, 127..1000), Look::Found(StripeNo(129)));
        assert_eq!(look(false, 127..129), Look::Nothing);
        assert_eq!(look(false, 640..1000), Look::Found(StripeNo(641)));
        assert_eq!(look(true, 641..999), Look::Nothing);
        map.set(at(128), false);
        assert!(!map.is_written(at(128)));
        for number in 0..1000 {
            let one = map.is_settled(at(number));
            assert_eq!(one, map.is_settled_in(number..number + 1), "stripe {number}");
            assert_eq!(one, !map.is_written(at(number)), "nothing was stored");
        }
    }
}
