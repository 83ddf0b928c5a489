//! The only source of chance: the same seed, the same numbers, on every machine. Nothing here is
//! secret.

/// SplitMix64, with its state.
pub struct Chance(pub u64);

impl Chance {
    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `count`, or 0.
    pub fn below(&mut self, count: usize) -> usize {
        let high = (u128::from(self.bits()) * count as u128) >> 64;
        usize::try_from(high).unwrap_or(0)
    }

    /// True this often.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// `count` different numbers below `of`, rising.
    pub fn pick(&mut self, count: usize, of: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..of).collect();
        for at in 0..count {
            let other = at + self.below(of - at);
            all.swap(at, other);
        }
        all.truncate(count);
        all.sort_unstable();
        all
    }
}
