//! The claims every backend must meet, stated once; each backend's tests hand their kernel to them.
//!
//! What must stay true: what is right is decided here from the definition (coefficients and
//! byte-wise products of `ashlar-gf`), never by a kernel. A claim returns what is wrong instead of
//! panicking, so that a deliberately broken subject can be shown to be caught. Random choices come
//! from fixed seeds that appear in every message.

pub mod alignments;
mod broken;
pub mod claims;
pub mod decode_claims;
mod guard;
mod refusals;
pub mod strips;

use ashlar_parity::{Change, Code, CodeError, DecodePlan, Kernel, Locality, Verdict};
use ashlar_units::StripSet;

/// What a claim says when it does not hold.
pub type Claim = Result<(), String>;

/// A thing under test: normally a kernel, sometimes one that was broken on purpose.
pub trait Subject {
    fn kernel(&self) -> Kernel;

    fn generate(
        &self,
        code: &Code,
        data: &[&[u8]],
        parity: &mut [Option<&mut [u8]>],
        locality: Locality,
    ) -> Result<(), CodeError> {
        code.generate(data, parity, locality)
    }

    fn update(
        &self,
        code: &Code,
        changes: &[Change<'_>],
        parity: &mut [Option<&mut [u8]>],
        locality: Locality,
    ) -> Result<(), CodeError> {
        code.update(changes, parity, locality)
    }

    fn check(
        &self,
        code: &Code,
        data: &[&[u8]],
        parity: &[Option<&[u8]>],
    ) -> Result<Verdict, CodeError> {
        code.check(data, parity)
    }

    fn plan(
        &self,
        code: &Code,
        survivors: StripSet,
        wanted: StripSet,
    ) -> Result<DecodePlan, CodeError> {
        DecodePlan::new(code, survivors, wanted)
    }

    fn code(&self, data_strips: usize, parity_strips: usize) -> Code {
        Code::new(data_strips, parity_strips, self.kernel()).unwrap()
    }
}

impl Subject for Kernel {
    fn kernel(&self) -> Kernel {
        *self
    }
}

/// Fails the claim with a message unless the condition holds.
#[macro_export]
macro_rules! claim {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

/// A small seeded generator (splitmix64): tests need spread and repeatability, not quality.
pub struct Seeded(pub u64);

impl Seeded {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in 0..limit.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % limit
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    /// `count` different numbers in 0..limit.
    pub fn distinct(&mut self, limit: usize, count: usize) -> Vec<usize> {
        let mut left: Vec<usize> = (0..limit).collect();
        (0..count).map(|_| left.swap_remove(self.below(left.len()))).collect()
    }

    /// k >= 1 and m <= 32 with k + m <= 64.
    pub fn shape(&mut self) -> (usize, usize) {
        let m = self.below(33);
        (1 + self.below(64 - m), m)
    }
}
