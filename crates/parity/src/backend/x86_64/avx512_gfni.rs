//! AVX-512 with GFNI: 64 bytes a vector, and one instruction multiplies all of them by a
//! coefficient.
//!
//! What must stay true: a value of [`Avx512Gfni`] proves the features. P and Q cost one affine
//! transform and one three-way XOR for each source: Horner in pairs, Q = 4 Q + 2 a + b, needs two
//! constant matrices, which stay in registers.

use std::arch::x86_64::{
    __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512,
    _mm512_or_si512, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_storeu_si512,
    _mm512_stream_si512, _mm512_ternarylogic_epi64, _mm512_test_epi64_mask, _mm512_xor_si512,
};

use crate::backend::generic::{Action, pass_loop};
use crate::backend::lanes::Lanes;
use crate::backend::tables::AFFINE;
use crate::pass::Pass;

/// Proof that the CPU has AVX-512 F and BW, and GFNI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx512Gfni(());

impl Avx512Gfni {
    pub(crate) fn detect() -> Option<Avx512Gfni> {
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("gfni"))
        .then_some(Avx512Gfni(()))
    }
}

/// The truth table of a three-way XOR for VPTERNLOG.
const XOR3: i32 = 0x96;

impl Lanes for Avx512Gfni {
    type Vector = __m512i;
    type Prepared = u64;
    type Factor = __m512i;

    const BYTES: usize = 64;
    const REGISTERS: usize = 32;

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
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
    fn prepare(self, coefficient: u8) -> u64 {
        AFFINE[usize::from(coefficient)]
    }

    #[inline(always)]
    fn factor(self, prepared: u64) -> __m512i {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm512_set1_epi64(prepared.cast_signed()) }
    }

    #[inline(always)]
    fn mul(self, value: __m512i, factor: __m512i) -> __m512i {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(value, factor) }
    }

    #[inline(always)]
    fn horner(self, sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        let sum = self.mul(sum, self.factor(AFFINE[4]));
        let a = self.mul(a, self.factor(AFFINE[2]));
        self.xor3(sum, a, b)
    }
}
