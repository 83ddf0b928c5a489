//! Plain 64-bit integers, eight bytes at a time: runs everywhere and needs no feature.
//!
//! What must stay true: nothing here depends on the CPU or on byte order; a word is eight
//! independent bytes. A vector is four words, which compilers turn into whatever vectors the base
//! CPU has.

use super::generic::{Action, pass_loop};
use super::lanes::Lanes;
use crate::pass::Pass;

/// Proof of nothing: every machine has integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Portable(());

const WORDS: usize = 4;
type Words = [u64; WORDS];

const TOP_BITS: u64 = 0x8080_8080_8080_8080;

impl Portable {
    pub(crate) const fn detect() -> Portable {
        Portable(())
    }
}

/// Twice each byte: shift all, and add 0x1D to those whose top bit fell out.
#[inline(always)]
fn double_word(x: u64) -> u64 {
    let carries = (x & TOP_BITS) >> 7;
    ((x & !TOP_BITS) << 1) ^ (carries * 0x1D)
}

#[inline(always)]
fn double(x: Words) -> Words {
    x.map(double_word)
}

impl Lanes for Portable {
    type Vector = Words;
    type Prepared = u8;
    type Factor = u8;

    const BYTES: usize = 8 * WORDS;
    const REGISTERS: usize = 8;

    unsafe fn enter<A: Action, const XOR: bool, const HORNER: bool, const REST: usize>(
        self,
        pass: &Pass<'_>,
    ) -> bool {
        // SAFETY: the caller guarantees the contract of `Pass`.
        unsafe { pass_loop::<Self, A, XOR, HORNER, REST>(self, pass) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> Words {
        // SAFETY: the caller guarantees a readable vector; any bytes are valid words.
        unsafe { from.cast::<Words>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8, value: Words) {
        // SAFETY: the caller guarantees a writable vector.
        unsafe { to.cast::<Words>().write_unaligned(value) }
    }

    #[inline(always)]
    fn zero(self) -> Words {
        [0; WORDS]
    }

    #[inline(always)]
    fn xor(self, a: Words, b: Words) -> Words {
        std::array::from_fn(|n| a[n] ^ b[n])
    }

    #[inline(always)]
    fn or(self, a: Words, b: Words) -> Words {
        std::array::from_fn(|n| a[n] | b[n])
    }

    #[inline(always)]
    fn is_zero(self, value: Words) -> bool {
        value == [0; WORDS]
    }

    #[inline(always)]
    fn prepare(self, coefficient: u8) -> u8 {
        coefficient
    }

    #[inline(always)]
    fn factor(self, prepared: u8) -> u8 {
        prepared
    }

    /// Horner's rule over the bits of the coefficient, from the top: double, and add where a bit is
    /// set.
    #[inline(always)]
    fn mul(self, value: Words, factor: u8) -> Words {
        let mut product = [0; WORDS];
        for bit in (0..8).rev() {
            let mask = u64::from(factor >> bit & 1) * u64::MAX;
            product = double(product);
            product = std::array::from_fn(|n| product[n] ^ (value[n] & mask));
        }
        product
    }

    #[inline(always)]
    fn horner(self, sum: Words, a: Words, b: Words) -> Words {
        self.xor(double(self.xor(double(sum), a)), b)
    }
}
