//! The newest numbers that each stripe was given, in a table of fixed size.
//!
//! What must stay true: the table never returns a lower number than the one noted for a stripe.
//! Stripes that share a place are taken for each other. So a caller must be right with a number
//! that is too high, and pays for it with one more record. (A map of the stripes that were written
//! between two flushes cost more than all the rest of the log when it was full.)
//!
//! Pure.

use ashlar_layout::StripeId;
use ashlar_units::to_usize;

/// Places: some dozen times the stripes that small updates touch between two flushes for space.
const PLACES: usize = 1 << 15;

/// What is numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Numbered {
    /// A record with data, or of a first write.
    Record,
    /// A record with all new blocks.
    Full,
    /// A logged update that is in place, but perhaps in caches only. It has a number of its own.
    InPlace,
}

/// The newest numbers by stripe, those of one stripe side by side. Numbers rise.
pub(super) struct Places(Box<[[u64; 4]]>);

impl Places {
    /// 0 for all.
    pub(super) fn new() -> Places {
        Places(vec![[0; 4]; PLACES].into_boxed_slice())
    }

    /// Where a stripe has its place.
    pub(super) fn of(stripe: StripeId) -> usize {
        to_usize(stripe.word().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % PLACES
    }

    /// The stripe was given a number.
    pub(super) fn note(&mut self, stripe: StripeId, what: Numbered, number: u64) {
        self.0[Places::of(stripe)][what as usize] = number;
    }

    /// The newest that it may have been given; 0 if none.
    pub(super) fn newest(&self, stripe: StripeId, what: Numbered) -> u64 {
        self.0[Places::of(stripe)][what as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::{Numbered, PLACES, Places};
    use ashlar_layout::StripeId;
    use ashlar_units::{StripeNo, to_u64};

    fn at(number: u64) -> StripeId {
        StripeId::default().at(StripeNo(number))
    }

    #[test]
    fn a_number_that_was_noted_never_sinks_whoever_shares_the_place() {
        let mut places = Places::new();
        let stripes = 4 * to_u64(PLACES);
        for stripe in 0..stripes {
            assert!(places.newest(at(stripe), Numbered::Full) <= stripe, "of those before it");
            places.note(at(stripe), Numbered::Full, stripe + 1);
        }
        let newest = |stripe| places.newest(at(stripe), Numbered::Full);
        for stripe in 0..stripes {
            assert!(newest(stripe) > stripe, "{stripe}");
            assert_eq!(places.newest(at(stripe), Numbered::Record), 0, "other numbers stay");
        }
        let own = (0..stripes).filter(|number| newest(*number) == number + 1).count();
        assert!(own > PLACES * 9 / 10, "{own} places are used");
    }
}
