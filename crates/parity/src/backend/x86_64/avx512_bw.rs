//! AVX-512 with byte instructions but no GFNI (Skylake-SP, Cascade Lake): doubling by a byte
//! shuffle.
//!
//! What must stay true: a value of [`Avx512Bw`] proves the features. Q costs an addition, a shuffle
//! and a three-way XOR for each source; any other coefficient two table look-ups by nibble.

use std::arch::x86_64::{
    __m128i, __m512i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm512_add_epi8,
    _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_loadu_si512, _mm512_or_si512,
    _mm512_set1_epi8, _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_srli_epi64,
    _mm512_storeu_si512, _mm512_stream_si512, _mm512_ternarylogic_epi64, _mm512_test_epi64_mask,
    _mm512_xor_si512,
};

use crate::backend::generic::{Action, pass_loop};
use crate::backend::lanes::Lanes;
use crate::backend::tables::{FIXED_POINT, NIBBLES, Nibbles};
use crate::pass::Pass;

/// Proof that the CPU has AVX-512 F and BW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx512Bw(());

impl Avx512Bw {
    pub(crate) fn detect() -> Option<Avx512Bw> {
        (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"))
            .then_some(Avx512Bw(()))
    }
}

/// The truth table of a three-way XOR for VPTERNLOG.
const XOR3: i32 = 0x96;

impl Lanes for Avx512Bw {
    type Vector = __m512i;
    type Prepared = &'static Nibbles;
    type Factor = [__m512i; 2];

    const BYTES: usize = 64;
    const REGISTERS: usize = 32;

    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn enter<A: Action, const XOR: bool, const HORNER: bool, const REST: usize>(
        self,
        pass: &Pass<'_>,
    ) -> bool {
        // SAFETY: the caller guarantees the contract of `Pass`.
        unsafe { pass_loop::<Self, A, XOR, HORNER, REST>(self, pass) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> __m512i {
        // SAFETY: the caller guarantees a readable vector, `self` the instruction.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8, value: __m512i) {
        // SAFETY: the caller guarantees a writable vector, `self` the instruction.
        unsafe { _mm512_storeu_si512(to.cast(), value) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8, value: __m512i) {
        // SAFETY: the caller guarantees a writable aligned vector, `self` the instruction.
        unsafe { _mm512_stream_si512(to.cast(), value) }
    }

    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        // SAFETY: a prefetch is a hint and cannot fault at any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }

    #[inline(always)]
    fn zero(self) -> __m512i {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn is_zero(self, value: __m512i) -> bool {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm512_test_epi64_mask(value, value) == 0 }
    }

    #[inline(always)]
    fn xor3(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm512_ternarylogic_epi64::<XOR3>(a, b, c) }
    }

    #[inline(always)]
    fn prepare(self, coefficient: u8) -> &'static Nibbles {
        &NIBBLES[usize::from(coefficient)]
    }

    #[inline(always)]
    fn factor(self, prepared: &'static Nibbles) -> [__m512i; 2] {
        // SAFETY: `self` proves the instruction.
        let low = unsafe { broadcast(&prepared.low) };
        // SAFETY: as above.
        let high = unsafe { broadcast(&prepared.high) };
        [low, high]
    }

    #[inline(always)]
    fn mul(self, value: __m512i, factor: [__m512i; 2]) -> __m512i {
        // SAFETY: `self` proves the instruction.
        unsafe { mul_nibbles(value, factor) }
    }

    #[inline(always)]
    fn horner(self, sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the instruction.
        let sum = unsafe { horner_step(sum, a) };
        // SAFETY: as above.
        unsafe { horner_step(sum, b) }
    }

    #[inline(always)]
    fn horner_start(self, value: __m512i) -> __m512i {
        // SAFETY: `self` proves the instruction.
        unsafe { toggle_fixed_point(value) }
    }

    #[inline(always)]
    fn horner_finish(self, sum: __m512i) -> __m512i {
        // SAFETY: `self` proves the instruction.
        unsafe { toggle_fixed_point(sum) }
    }
}

/// A table of sixteen products in every 128-bit part.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn broadcast(table: &[u8; 16]) -> __m512i {
    // SAFETY: the table is 16 readable bytes, and the load needs no alignment.
    let register: __m128i = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
    _mm512_broadcast_i32x4(register)
}

/// A byte is the sum of its nibbles, so its product is the sum of two looked up.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn mul_nibbles(value: __m512i, [low, high]: [__m512i; 2]) -> __m512i {
    let mask = _mm512_set1_epi8(0x0F);
    let low_products = _mm512_shuffle_epi8(low, _mm512_and_si512(value, mask));
    let high_nibbles = _mm512_and_si512(_mm512_srli_epi64::<4>(value), mask);
    _mm512_xor_si512(low_products, _mm512_shuffle_epi8(high, high_nibbles))
}

/// 2 * sum + source, sum being carried with [`FIXED_POINT`] added. The byte shuffle gives 0 where
/// bit 7 of its index is set and 0x1D elsewhere, the opposite of what doubling must add; so each
/// step adds a stray 0x1D, which the fixed point k = 2 k + 0x1D turns into itself. One shuffle
/// replaces the compare and the mask of the usual form.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn horner_step(sum: __m512i, source: __m512i) -> __m512i {
    let reduction = _mm512_shuffle_epi8(_mm512_set1_epi8(0x1D), sum);
    _mm512_ternarylogic_epi64::<XOR3>(_mm512_add_epi8(sum, sum), reduction, source)
}

/// Into the carried form, and out of it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn toggle_fixed_point(value: __m512i) -> __m512i {
    _mm512_xor_si512(value, _mm512_set1_epi8(FIXED_POINT.cast_signed()))
}
