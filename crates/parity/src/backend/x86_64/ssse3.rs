//! SSSE3, the oldest x86 with a byte shuffle: 16 bytes a vector. For CPUs before AVX2.
//!
//! What must stay true: a value of [`Ssse3`] proves the feature. The same form as `avx512_bw`.

use std::arch::x86_64::{
    __m128i, _MM_HINT_T0, _mm_add_epi8, _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128,
    _mm_movemask_epi8, _mm_or_si128, _mm_prefetch, _mm_set1_epi8, _mm_setzero_si128,
    _mm_shuffle_epi8, _mm_srli_epi64, _mm_storeu_si128, _mm_stream_si128, _mm_xor_si128,
};

use crate::backend::generic::{Action, pass_loop};
use crate::backend::lanes::Lanes;
use crate::backend::tables::{FIXED_POINT, NIBBLES, Nibbles};
use crate::pass::Pass;

/// Proof that the CPU has SSSE3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ssse3(());

impl Ssse3 {
    pub(crate) fn detect() -> Option<Ssse3> {
        (is_x86_feature_detected!("ssse3")).then_some(Ssse3(()))
    }
}

impl Lanes for Ssse3 {
    type Vector = __m128i;
    type Prepared = &'static Nibbles;
    type Factor = [__m128i; 2];

    const BYTES: usize = 16;
    const REGISTERS: usize = 16;

    #[target_feature(enable = "ssse3")]
    unsafe fn enter<A: Action, const XOR: bool, const HORNER: bool, const REST: usize>(
        self,
        pass: &Pass<'_>,
    ) -> bool {
        // SAFETY: the caller guarantees the contract of `Pass`.
        unsafe { pass_loop::<Self, A, XOR, HORNER, REST>(self, pass) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> __m128i {
        // SAFETY: the caller guarantees a readable vector, `self` the instruction.
        unsafe { _mm_loadu_si128(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8, value: __m128i) {
        // SAFETY: the caller guarantees a writable vector, `self` the instruction.
        unsafe { _mm_storeu_si128(to.cast(), value) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8, value: __m128i) {
        // SAFETY: the caller guarantees a writable aligned vector, `self` the instruction.
        unsafe { _mm_stream_si128(to.cast(), value) }
    }

    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        // SAFETY: a prefetch is a hint and cannot fault at any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }

    #[inline(always)]
    fn zero(self) -> __m128i {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm_setzero_si128() }
    }

    #[inline(always)]
    fn xor(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm_xor_si128(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm_or_si128(a, b) }
    }

    #[inline(always)]
    fn is_zero(self, value: __m128i) -> bool {
        // SAFETY: `self` proves the instruction.
        unsafe { all_zero(value) }
    }

    #[inline(always)]
    fn prepare(self, coefficient: u8) -> &'static Nibbles {
        &NIBBLES[usize::from(coefficient)]
    }

    #[inline(always)]
    fn factor(self, prepared: &'static Nibbles) -> [__m128i; 2] {
        // SAFETY: `self` proves the instruction.
        let low = unsafe { broadcast(&prepared.low) };
        // SAFETY: as above.
        let high = unsafe { broadcast(&prepared.high) };
        [low, high]
    }

    #[inline(always)]
    fn mul(self, value: __m128i, factor: [__m128i; 2]) -> __m128i {
        // SAFETY: `self` proves the instruction.
        unsafe { mul_nibbles(value, factor) }
    }

    #[inline(always)]
    fn horner(self, sum: __m128i, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: `self` proves the instruction.
        let sum = unsafe { horner_step(sum, a) };
        // SAFETY: as above.
        unsafe { horner_step(sum, b) }
    }

    #[inline(always)]
    fn horner_start(self, value: __m128i) -> __m128i {
        // SAFETY: `self` proves the instruction.
        unsafe { toggle_fixed_point(value) }
    }

    #[inline(always)]
    fn horner_finish(self, sum: __m128i) -> __m128i {
        // SAFETY: `self` proves the instruction.
        unsafe { toggle_fixed_point(sum) }
    }
}

/// True when all bytes are zero.
#[inline]
#[target_feature(enable = "ssse3")]
fn all_zero(value: __m128i) -> bool {
    // Every byte equal to zero sets its bit.
    _mm_movemask_epi8(_mm_cmpeq_epi8(value, _mm_setzero_si128())) == 0xFFFF
}

/// A table of sixteen products in a register.
#[inline]
#[target_feature(enable = "ssse3")]
fn broadcast(table: &[u8; 16]) -> __m128i {
    // SAFETY: the table is 16 readable bytes, and the load needs no alignment.
    let register: __m128i = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
    register
}

/// A byte is the sum of its nibbles, so its product is the sum of two looked up.
#[inline]
#[target_feature(enable = "ssse3")]
fn mul_nibbles(value: __m128i, [low, high]: [__m128i; 2]) -> __m128i {
    let mask = _mm_set1_epi8(0x0F);
    let low_products = _mm_shuffle_epi8(low, _mm_and_si128(value, mask));
    let high_nibbles = _mm_and_si128(_mm_srli_epi64::<4>(value), mask);
    _mm_xor_si128(low_products, _mm_shuffle_epi8(high, high_nibbles))
}

/// 2 * sum + source, sum being carried with [`FIXED_POINT`] added. The byte shuffle gives 0 where
/// bit 7 of its index is set and 0x1D elsewhere, the opposite of what doubling must add; so each
/// step adds a stray 0x1D, which the fixed point k = 2 k + 0x1D turns into itself. One shuffle
/// replaces the compare and the mask of the usual form.
#[inline]
#[target_feature(enable = "ssse3")]
fn horner_step(sum: __m128i, source: __m128i) -> __m128i {
    let reduction = _mm_shuffle_epi8(_mm_set1_epi8(0x1D), sum);
    _mm_xor_si128(_mm_xor_si128(_mm_add_epi8(sum, sum), reduction), source)
}

/// Into the carried form, and out of it.
#[inline]
#[target_feature(enable = "ssse3")]
fn toggle_fixed_point(value: __m128i) -> __m128i {
    _mm_xor_si128(value, _mm_set1_epi8(FIXED_POINT.cast_signed()))
}
