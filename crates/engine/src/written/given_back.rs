//! Discarded stripes whose blocks the members still hold.
//!
//! What must stay true: blocks are discarded only while their stripe is unwritten, also after a
//! crash, and once for each discard of a client. A stripe that is written again keeps its blocks.
//!
//! Not here: telling the members (`background/discard.rs`).

use super::{Look, Page, Stint, WrittenMap};
use ashlar_layout::Stripe;
use ashlar_units::{StripeNo, to_u64};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

impl WrittenMap {
    /// A client gave the stripe back, which is unwritten now: its blocks may go once that is
    /// durable.
    pub(crate) fn give_back(&self, stripe: Stripe) {
        let (page, word, bit) = self.bit_of(stripe);
        let new = || (0..self.words_per_page()).map(|_| AtomicU64::new(0)).collect();
        let words = self.pages[page].given_back.get_or_init(new);
        if words[word].fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            self.given_back.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The members keep the stripe's blocks, or have been told of it. Whether they still were to
    /// go.
    pub(super) fn keep(&self, stripe: Stripe) -> bool {
        let (page, word, bit) = self.bit_of(stripe);
        let Some(words) = self.pages[page].given_back.get() else { return false };
        let was_to_go = words[word].fetch_and(!bit, Ordering::AcqRel) & bit != 0;
        if was_to_go {
            self.given_back.fetch_sub(1, Ordering::AcqRel);
        }
        was_to_go
    }

    /// Whether blocks of some stripe are to go, now or after a flush.
    pub(crate) fn has_given_back(&self) -> bool {
        self.given_back.load(Ordering::Acquire) != 0
    }

    /// The first stripe of `range` whose blocks may go, as far as the turn gets: it is unwritten,
    /// also after a crash.
    pub(crate) fn look_for_given_back(&self, range: Range<u64>, turn: &mut Stint) -> Look {
        let (mut at, end) = (range.start, range.end.min(self.stripe_count));
        while at < end {
            if turn.is_over() {
                return Look::GoesOn(StripeNo(at));
            }
            turn.spend(1);
            let (page, word, _) = self.locate(StripeNo(at));
            let Page { words, stored, given_back, .. } = &self.pages[page];
            let Some(given_back) = given_back.get() else {
                at = (to_u64(page) + 1) * self.bits_per_page;
                continue;
            };
            let bits = |words: &OnceLock<Box<[AtomicU64]>>| {
                words.get().map_or(0, |words| words[word].load(Ordering::Acquire))
            };
            let may_go = given_back[word].load(Ordering::Acquire) & !bits(words) & !bits(stored);
            let rest = may_go >> (at % 64);
            if rest != 0 {
                let found = at + u64::from(rest.trailing_zeros());
                return if found < end { Look::Found(StripeNo(found)) } else { Look::Nothing };
            }
            at = (at / 64 + 1) * 64;
        }
        Look::Nothing
    }

    /// The stripe's blocks go now, if they still may; the caller holds its rows. Only once for each
    /// time it was given back.
    pub(crate) fn take_given_back(&self, stripe: Stripe) -> bool {
        !self.is_written(stripe) && !self.may_be_durable(stripe) && self.keep(stripe)
    }
}
