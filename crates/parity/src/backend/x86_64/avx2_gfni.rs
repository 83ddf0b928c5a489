//! AVX2 with GFNI, for CPUs that have GFNI but no AVX-512: 32 bytes a vector.
//!
//! What must stay true: a value of [`Avx2Gfni`] proves the features. The same form as `avx512_gfni`
//! with two XORs in place of a three-way one. (Only the VEX forms are used; AVX-512VL is not
//! needed.)

use std::arch::x86_64::{
    __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256,
    _mm256_or_si256, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_storeu_si256,
    _mm256_stream_si256, _mm256_testz_si256, _mm256_xor_si256,
};

use crate::backend::generic::{Action, pass_loop};
use crate::backend::lanes::Lanes;
use crate::backend::tables::AFFINE;
use crate::pass::Pass;

/// Proof that the CPU has AVX2 and GFNI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2Gfni(());

impl Avx2Gfni {
    pub(crate) fn detect() -> Option<Avx2Gfni> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni"))
            .then_some(Avx2Gfni(()))
    }
}

impl Lanes for Avx2Gfni {
    type Vector = __m256i;
    type Prepared = u64;
    type Factor = __m256i;

    const BYTES: usize = 32;
    const REGISTERS: usize = 16;

    #[target_feature(enable = "avx2,gfni")]
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
    fn prepare(self, coefficient: u8) -> u64 {
        AFFINE[usize::from(coefficient)]
    }

    #[inline(always)]
    fn factor(self, prepared: u64) -> __m256i {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm256_set1_epi64x(prepared.cast_signed()) }
    }

    #[inline(always)]
    fn mul(self, value: __m256i, factor: __m256i) -> __m256i {
        // SAFETY: `self` proves the instruction.
        unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(value, factor) }
    }

    #[inline(always)]
    fn horner(self, sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
        let sum = self.mul(sum, self.factor(AFFINE[4]));
        let a = self.mul(a, self.factor(AFFINE[2]));
        self.xor3(sum, a, b)
    }
}
