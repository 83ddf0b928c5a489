//! AVX2 without GFNI: 32 bytes a vector, doubling by a byte shuffle, products by nibble tables.
//!
//! What must stay true: a value of [`Avx2`] proves the feature. The same form as `avx512_bw`.

use std::arch::x86_64::{
    __m128i, __m256i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm256_add_epi8,
    _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256, _mm256_or_si256,
    _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64,
    _mm256_storeu_si256, _mm256_stream_si256, _mm256_testz_si256, _mm256_xor_si256,
};

use crate::backend::generic::{Action, pass_loop};
use crate::backend::lanes::Lanes;
use crate::backend::tables::{FIXED_POINT, NIBBLES, Nibbles};
use crate::pass::Pass;

/// Proof that the CPU has AVX2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Avx2> {
        (is_x86_feature_detected!("avx2")).then_some(Avx2(()))
    }
}

impl Lanes for Avx2 {
    type Vector = __m256i;
    type Prepared = &'static Nibbles;
    type Factor = [__m256i; 2];

    const BYTES: usize = 32;
    const REGISTERS: usize = 16;
    /// Doubling waits for itself: 6 sums of Q are needed to keep Zen 4 busy (8+2 in L1: 78 GB/s, 69
    /// with 4), and 6 of P fit beside them.
    const PARITY_VECTORS: usize = 6;
    const PREFETCHES_IN_CACHE: bool = true;

    #[target_feature(enable = "avx2")]
    unsafe fn enter<A: Action, const XOR: bool, const HORNER: bool, const REST: usize>(
        self,
        pass: &Pass<'_>,
    ) -> bool {
        // SAFETY: the caller guarantees the contract of `Pass`.
        unsafe { pass_loop::<Self, A, XOR, HORNER, REST>(self, pass) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> __m256i {
        // SAFETY: the caller guarantees a readable vector, `self` the instruction.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8, value: __m256i) {
        // SAFETY: the caller guarantees a writable vector, `self` the instruction.
        unsafe { _mm256_storeu_si256(to.cast(), value) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8, value: __m256i) {
        // SAFETY: the caller guarantees a writable aligned vector, `self` the instruction.
        unsafe { _mm256_stream_si256(to.cast(), value) }
    }

    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        // SAFETY: a prefetch is a hint and cannot fault at any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }

    #[inline(always)]
    fn zero(self) -> __m256i {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn is_zero(self, value: __m256i) -> bool {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm256_testz_si256(value, value) == 1 }
    }

    #[inline(always)]
    fn prepare(self, coefficient: u8) -> &'static Nibbles {
        &NIBBLES[usize::from(coefficient)]
    }

    #[inline(always)]
    fn factor(self, prepared: &'static Nibbles) -> [__m256i; 2] {
        // SAFETY: `self` proves the instruction.
        let low = unsafe { broadcast(&prepared.low) };
        // SAFETY: as above.
        let high = unsafe { broadcast(&prepared.high) };
        [low, high]
    }

    #[inline(always)]
    fn mul(self, value: __m256i, factor: [__m256i; 2]) -> __m256i {
        // SAFETY: `self` proves the instruction.
        unsafe { mul_nibbles(value, factor) }
    }

    #[inline(always)]
    fn horner(self, sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the instruction.
        let sum = unsafe { horner_step(sum, a) };
        // SAFETY: as above.
        unsafe { horner_step(sum, b) }
    }

    #[inline(always)]
    fn horner_start(self, value: __m256i) -> __m256i {
        // SAFETY: `self` proves the instruction.
        unsafe { toggle_fixed_point(value) }
    }

    #[inline(always)]
    fn horner_finish(self, sum: __m256i) -> __m256i {
        // SAFETY: `self` proves the instruction.
        unsafe { toggle_fixed_point(sum) }
    }
}

/// A table of sixteen products in every 128-bit part.
#[inline]
#[target_feature(enable = "avx2")]
fn broadcast(table: &[u8; 16]) -> __m256i {
    // SAFETY: the table is 16 readable bytes, and the load needs no alignment.
    let register: __m128i = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
    _mm256_broadcastsi128_si256(register)
}

/// A byte is the sum of its nibbles, so its product is the sum of two looked up.
#[inline]
#[target_feature(enable = "avx2")]
fn mul_nibbles(value: __m256i, [low, high]: [__m256i; 2]) -> __m256i {
    let mask = _mm256_set1_epi8(0x0F);
    let low_products = _mm256_shuffle_epi8(low, _mm256_and_si256(value, mask));
    let high_nibbles = _mm256_and_si256(_mm256_srli_epi64::<4>(value), mask);
    _mm256_xor_si256(low_products, _mm256_shuffle_epi8(high, high_nibbles))
}

/// 2 * sum + source, sum being carried with [`FIXED_POINT`] added. The byte shuffle gives 0 where
/// bit 7 of its index is set and 0x1D elsewhere, the opposite of what doubling must add; so each
/// step adds a stray 0x1D, which the fixed point k = 2 k + 0x1D turns into itself. One shuffle
/// replaces the compare and the mask of the usual form.
#[inline]
#[target_feature(enable = "avx2")]
fn horner_step(sum: __m256i, source: __m256i) -> __m256i {
    let reduction = _mm256_shuffle_epi8(_mm256_set1_epi8(0x1D), sum);
    _mm256_xor_si256(_mm256_xor_si256(_mm256_add_epi8(sum, sum), reduction), source)
}

/// Into the carried form, and out of it.
#[inline]
#[target_feature(enable = "avx2")]
fn toggle_fixed_point(value: __m256i) -> __m256i {
    _mm256_xor_si256(value, _mm256_set1_epi8(FIXED_POINT.cast_signed()))
}
