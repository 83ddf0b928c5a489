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

    /// The first written stripe at or after `from`.
    pub(crate) fn next_written(&self, from: StripeNo) -> Option<StripeNo> {
        self.next_written_in(from.0..self.stripe_count)
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
    use super::WrittenMap;
    use crate::layouts::geometry_of;
    use ashlar_layout::Stripe;
    use ashlar_units::StripeNo;

    fn at(number: u64) -> Stripe {
        geometry_of(1000).stripe(StripeNo(number))
    }

    #[test]
    fn set_bits_are_found_in_order_across_pages() {
        let map = WrittenMap::new(&geometry_of(1000), 128);
        for stripe in [3, 127, 128, 640, 999] {
            map.set(at(stripe), true);
        }
        let mut found = Vec::new();
        let mut from = StripeNo(0);
        while let Some(stripe) = map.next_written(from) {
            found.push(stripe.0);
            from = StripeNo(stripe.0 + 1);
        }
        assert_eq!(found, [3, 127, 128, 640, 999]);
        assert_eq!(map.written_count(), 5);
        for (range, count) in [(0..1000, 5), (4..127, 0), (3..4, 1), (127..641, 3), (900..2000, 1)]
        {
            assert_eq!(map.count_in(range.clone()), count, "{range:?}");
            assert_eq!(map.next_written_in(range.clone()).is_some(), count != 0, "{range:?}");
        }
        map.set(at(128), false);
        assert!(!map.is_written(at(128)));
        for number in 0..1000 {
            let one = map.is_settled(at(number));
            assert_eq!(one, map.is_settled_in(number..number + 1), "stripe {number}");
            assert_eq!(one, !map.is_written(at(number)), "nothing was stored");
        }
    }
}
