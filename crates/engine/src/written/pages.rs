//! The written map on its way to the members and from them: which pages wait to be stored, in which
//! of their two places, and what a start would find.
//!
//! What must stay true: a page has two places on each member, written in turns. So a write that
//! tears on all members at once leaves the page before it. Once the array is quiet, and before a
//! clean stop, the other place gets the same bits (*single* pages wait for that). Then damage to
//! one place does not bring back an older page.
//!
//! A write is answered only when a start would find its stripes as they are (*settled*). A killed
//! process loses its memory, and the client may live on.
//!
//! Not here: writing and reading pages (`coordinator/map_writer.rs`, `map_pages.rs`).

use super::{Page, WrittenMap};
use crate::canary::{Canary, sings};
use ashlar_layout::Stripe;
use ashlar_units::{StripeNo, to_u64};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

impl WrittenMap {
    /// Whether a page waits to be stored.
    pub(crate) fn has_dirty_pages(&self) -> bool {
        self.dirty_pages.load(Ordering::Acquire) != 0
    }

    /// The pages that wait to be stored; they count as stored from now on.
    pub(crate) fn take_dirty_pages(&self) -> Vec<usize> {
        let is_taken = |page: &usize| self.pages[*page].is_dirty.swap(false, Ordering::AcqRel);
        let taken: Vec<usize> = (0..self.pages.len()).filter(is_taken).collect();
        self.dirty_pages.fetch_sub(taken.len(), Ordering::AcqRel);
        taken
    }

    /// Pages in which some stripe is written.
    pub(crate) fn pages_with_bits(&self) -> Vec<usize> {
        let has_bits = |page: &usize| {
            let words = self.pages[*page].words.get();
            words.is_some_and(|words| words.iter().any(|word| word.load(Ordering::Acquire) != 0))
        };
        (0..self.pages.len()).filter(has_bits).collect()
    }

    /// Storing `page` failed: it waits again.
    pub(crate) fn put_back(&self, page: usize) {
        if !self.pages[page].is_dirty.swap(true, Ordering::AcqRel) {
            self.dirty_pages.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Which of the page's two places is written next.
    pub(crate) fn next_place(&self, page: usize) -> u64 {
        u64::from(self.pages[page].next_place.load(Ordering::Acquire))
    }

    /// The page was stored: next time its other place is written.
    pub(crate) fn turn_place(&self, page: usize) {
        self.pages[page].next_place.fetch_xor(1, Ordering::AcqRel);
    }

    /// Pages that are to be stored once more, in their other place.
    pub(crate) fn single_pages(&self) -> Vec<usize> {
        if self.single_pages.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let is_single = |page: &usize| self.pages[*page].is_single.load(Ordering::Acquire);
        (0..self.pages.len()).filter(is_single).collect()
    }

    fn set_single(&self, page: usize, is_single: bool) {
        let was_single = self.pages[page].is_single.swap(is_single, Ordering::AcqRel);
        match (was_single, is_single) {
            (false, true) => self.single_pages.fetch_add(1, Ordering::AcqRel),
            (true, false) => self.single_pages.fetch_sub(1, Ordering::AcqRel),
            _ => return,
        };
    }

    /// The newest copy of the page was found in `place`, on every member (`is_everywhere`) or only
    /// on some; its other place says the same everywhere, or not (`is_single`). Where it is not
    /// everywhere the same place is written again first: the other one still holds the page before
    /// it, on every member.
    pub(crate) fn found_in(&self, page: usize, place: u64, is_everywhere: bool, is_single: bool) {
        self.set_single(page, is_single);
        let next = if is_everywhere { 1 - place } else { place };
        let next = u8::try_from(next).expect("0 or 1");
        self.pages[page].next_place.store(next, Ordering::Release);
        if !is_everywhere {
            self.put_back_everywhere(page);
        }
    }

    /// Some device does not have the page: it waits to be stored, whatever its bits.
    pub(crate) fn put_back_everywhere(&self, page: usize) {
        self.pages[page].is_partial.store(true, Ordering::Release);
        self.put_back(page);
    }

    /// The bits of a page as they are to be on the members; from now on those that are set may be
    /// there.
    pub(crate) fn words_to_store(&self, page: usize) -> Vec<u64> {
        let words = self.page_words(page);
        let mut is_repeat = !self.pages[page].is_partial.load(Ordering::Acquire);
        for (stored, word) in self.stored_words(page).iter().zip(&words) {
            is_repeat &= stored.fetch_or(*word, Ordering::AcqRel) == *word;
        }
        for (sure, word) in self.sure_words(page).iter().zip(&words) {
            is_repeat &= sure.fetch_and(*word, Ordering::AcqRel) == *word;
        }
        self.pages[page].is_repeat.store(is_repeat, Ordering::Release);
        words
    }

    /// The members have these bits, and no others: what was set there before and is not now is
    /// gone.
    pub(crate) fn stored(&self, page: usize, words: &[u64]) {
        for (stored, word) in self.stored_words(page).iter().zip(words) {
            stored.store(*word, Ordering::Release);
        }
        for (sure, word) in self.sure_words(page).iter().zip(words) {
            sure.store(*word, Ordering::Release);
        }
        self.pages[page].is_partial.store(false, Ordering::Release);
        self.set_single(page, !self.pages[page].is_repeat.load(Ordering::Acquire));
    }

    /// Whether a start after this process was killed would find the stripe as it is now.
    #[inline]
    pub(super) fn is_settled(&self, stripe: Stripe) -> bool {
        let (page, word, bit) = self.bit_of(stripe);
        let Page { words, stored, sure, .. } = &self.pages[page];
        let has = |bits: &OnceLock<Box<[AtomicU64]>>| {
            bits.get().is_some_and(|words| words[word].load(Ordering::Acquire) & bit != 0)
        };
        words.get().is_none() || if has(words) { has(sure) } else { !has(stored) }
    }

    /// Whether a start after this process was killed would find every stripe of `range` as it is
    /// now.
    pub(crate) fn is_settled_in(&self, range: Range<u64>) -> bool {
        let (mut at, end) = (range.start, range.end.min(self.stripe_count));
        while at < end {
            let (page, word, _) = self.locate(StripeNo(at));
            let next = match self.pages[page].words.get() {
                Some(_) => (at / 64 + 1) * 64,
                None => (to_u64(page) + 1) * self.bits_per_page,
            };
            let stop = next.min(end);
            if let Some(words) = self.pages[page].words.get() {
                let mask = (u64::MAX >> (64 - (stop - at))) << (at % 64);
                let bits = words[word].load(Ordering::Acquire);
                let stored = self.stored_words(page)[word].load(Ordering::Acquire);
                let sure = self.sure_words(page)[word].load(Ordering::Acquire);
                if (bits & !sure | !bits & stored) & mask != 0 {
                    return false;
                }
            }
            at = stop;
        }
        true
    }

    /// Whether the stripe's bit may be set on some member.
    pub(crate) fn may_be_durable(&self, stripe: Stripe) -> bool {
        let (page, word, bit) = self.bit_of(stripe);
        let Some(words) = self.pages[page].stored.get() else { return false };
        words[word].load(Ordering::Acquire) & bit != 0
    }

    /// The bits of a page, lowest stripe first.
    pub(crate) fn page_words(&self, page: usize) -> Vec<u64> {
        match self.pages[page].words.get() {
            Some(words) => words.iter().map(|word| word.load(Ordering::Acquire)).collect(),
            None => vec![0; self.words_per_page()],
        }
    }

    /// Take over the bits of a page that was read from a member; bits beyond the last stripe are
    /// dropped.
    pub(crate) fn load_page(&self, page: usize, bits: &[u64]) {
        if bits.iter().all(|word| *word == 0) || sings(Canary::WrittenMapForgotten) {
            return;
        }
        for ((word, bits), mask) in self.words(page).iter().zip(bits).zip(self.masks(page)) {
            word.fetch_or(bits & mask, Ordering::AcqRel);
        }
        let words = self.words_to_store(page);
        for (sure, word) in self.sure_words(page).iter().zip(words) {
            sure.fetch_or(word, Ordering::AcqRel);
        }
    }

    /// For each word of a page, the bits that have a stripe.
    pub(super) fn masks(&self, page: usize) -> impl Iterator<Item = u64> {
        let first = to_u64(page) * self.bits_per_page;
        (first..).step_by(64).map(|start| {
            let valid = self.stripe_count.saturating_sub(start).min(64);
            if valid == 64 { u64::MAX } else { (1 << valid) - 1 }
        })
    }

    fn stored_words(&self, page: usize) -> &[AtomicU64] {
        let make = || (0..self.words_per_page()).map(|_| AtomicU64::new(0)).collect();
        self.pages[page].stored.get_or_init(make)
    }

    fn sure_words(&self, page: usize) -> &[AtomicU64] {
        let make = || (0..self.words_per_page()).map(|_| AtomicU64::new(0)).collect();
        self.pages[page].sure.get_or_init(make)
    }
}

#[cfg(test)]
mod tests {
    use crate::layouts::geometry_of;
    use crate::written::WrittenMap;
    use ashlar_layout::Stripe;
    use ashlar_units::StripeNo;

    fn at(number: u64) -> Stripe {
        geometry_of(1000).stripe(StripeNo(number))
    }

    #[test]
    fn a_page_is_taken_once_for_each_change() {
        let map = WrittenMap::new(&geometry_of(1000), 128);
        map.set(at(5), true);
        map.set(at(6), true);
        map.set(at(900), true);
        assert!(map.has_dirty_pages());
        assert_eq!(map.take_dirty_pages(), [0, 7]);
        assert!(!map.has_dirty_pages());
        map.put_back(7);
        assert_eq!(map.take_dirty_pages(), [7]);
    }

    #[test]
    fn a_page_found_only_on_some_members_goes_to_the_same_place_again() {
        let map = WrittenMap::new(&geometry_of(1000), 128);
        map.found_in(2, 1, true, false);
        assert_eq!((map.next_place(2), map.has_dirty_pages()), (0, false));
        map.found_in(2, 1, false, false);
        assert_eq!((map.next_place(2), map.take_dirty_pages()), (1, vec![2]));
        map.turn_place(2);
        assert_eq!(map.next_place(2), 0);
    }

    #[test]
    fn a_page_is_to_be_stored_until_both_its_places_have_the_same_bits() {
        let map = WrittenMap::new(&geometry_of(1000), 128);
        let store = || {
            let words = map.words_to_store(0);
            map.stored(0, &words);
            map.single_pages()
        };
        assert_eq!(
            map.single_pages(),
            [0; 0],
            "never written: both places are as creation made them"
        );
        map.set(at(70), true);
        assert_eq!(store(), [0]);
        assert_eq!(store(), [0; 0], "the other place, with the same bits");
        map.set(at(71), true);
        assert_eq!(store(), [0]);
        map.set(at(71), false);
        assert_eq!(store(), [0], "other bits once more");
        map.words_to_store(0);
        assert_eq!(store(), [0; 0], "the store was cut off and made again");
        map.set(at(72), true);
        map.words_to_store(0);
        assert_eq!(store(), [0], "the one that was cut off says nothing about the other place");
        map.found_in(3, 1, true, true);
        assert_eq!(map.single_pages(), [0, 3]);
        assert_eq!(store(), [3]);
        map.put_back_everywhere(0);
        assert_eq!(store(), [0, 3], "a device has joined and has the page once");
        assert_eq!(store(), [3]);
    }

    #[test]
    fn a_bit_may_be_durable_from_when_it_is_to_be_stored_until_it_is_stored_clear() {
        let map = WrittenMap::new(&geometry_of(1000), 128);
        let stripe = at(70);
        map.set(stripe, true);
        assert!(!map.may_be_durable(stripe));
        let words = map.words_to_store(0);
        assert!(map.may_be_durable(stripe) && !map.may_be_durable(at(71)));
        map.set(stripe, false);
        map.stored(0, &words);
        assert!(map.may_be_durable(stripe), "it was stored set");
        let words = map.words_to_store(0);
        assert!(map.may_be_durable(stripe), "the store may have been cut off");
        map.stored(0, &words);
        assert!(!map.may_be_durable(stripe));
        map.load_page(1, &[1, 0]);
        assert!(map.may_be_durable(at(128)));
    }

    #[test]
    fn a_stripe_is_settled_when_every_place_that_a_start_may_believe_says_what_is() {
        let map = WrittenMap::new(&geometry_of(1000), 128);
        assert!(map.is_settled_in(0..1000), "nothing written, nothing stored");
        map.set(at(70), true);
        assert!(
            !map.is_settled_in(70..71) && map.is_settled_in(0..70) && map.is_settled_in(71..1000)
        );
        let words = map.words_to_store(0);
        assert!(!map.is_settled_in(0..1000), "the store may be cut off");
        map.stored(0, &words);
        assert!(map.is_settled_in(0..1000));
        map.set(at(70), false);
        assert!(!map.is_settled_in(64..128), "it is stored set");
        map.set(at(71), true);
        let words = map.words_to_store(0);
        assert!(!map.is_settled_in(70..71) && !map.is_settled_in(71..72));
        map.set(at(70), true);
        assert!(!map.is_settled_in(70..71), "the page on its way says clear");
        map.stored(0, &words);
        assert!(!map.is_settled_in(70..71) && map.is_settled_in(71..1000));
        map.load_page(2, &[1, 0]);
        assert!(map.is_settled_in(256..1000), "it was read from the members");
    }

    #[test]
    fn loaded_bits_beyond_the_last_stripe_are_dropped() {
        let map = WrittenMap::new(&geometry_of(70), 128);
        map.load_page(0, &[u64::MAX, u64::MAX]);
        assert_eq!(map.written_count(), 70);
        assert!(!map.has_dirty_pages());
    }
}
