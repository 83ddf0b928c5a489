//! The one source of chance: a SplitMix64 generator, and streams split off it.
//!
//! What must stay true: equal seeds give equal numbers for ever; a stream drawn from does not
//! disturb another one.

/// A seeded generator of numbers. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A generator of its own for `purpose`, the same whatever has been drawn from others with this
    /// seed.
    pub fn stream(seed: u64, purpose: u64) -> Random {
        let mut mixed = Random(seed ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        Random(mixed.next_u64())
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Random bytes: words as [`Random::next_u64`] gives them, little-endian; the last one in part.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.next_u64().to_le_bytes()[..part.len()]);
        }
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("below the bound")
    }

    /// True in `share` of 100 cases.
    pub fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// Puts `items` in an order of chance.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let bound = u64::try_from(last).expect("a length") + 1;
            let other = usize::try_from(self.below(bound)).expect("below the length");
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn equal_seeds_give_equal_numbers_and_streams_differ() {
        let draw = |mut random: Random| -> Vec<u64> { (0..9).map(|_| random.below(50)).collect() };
        assert_eq!(draw(Random::new(7)), draw(Random::new(7)));
        assert_ne!(draw(Random::new(7)), draw(Random::new(8)));
        assert_ne!(draw(Random::stream(7, 1)), draw(Random::stream(7, 2)));
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_every_value() {
        let mut random = Random::new(1);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[usize::try_from(random.below(10)).expect("small")] = true;
        }
        assert_eq!(seen, [true; 10]);
    }

    #[test]
    fn shuffling_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
