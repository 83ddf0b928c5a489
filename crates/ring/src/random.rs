//! A small deterministic generator (SplitMix64): the same seed gives the same numbers on every
//! machine.
//!
//! For schedules, jitter and hash salts. Not for secrets.

use std::hash::{BuildHasher, Hasher, RandomState};

/// SplitMix64: one add and three xor-shift-multiplies a number, period 2^64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn from_seed(seed: u64) -> Self {
        Random(seed)
    }

    /// Seeded by the process's own entropy (what the standard library salts its hash maps with).
    pub(crate) fn from_entropy() -> Self {
        Random(RandomState::new().build_hasher().finish())
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`. The bias of at most `bound` in 2^64 does not matter to a schedule.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.next_u64()) * u128::try_from(bound).expect("usize fits u128");
        usize::try_from(wide >> 64).expect("below the bound")
    }
}
