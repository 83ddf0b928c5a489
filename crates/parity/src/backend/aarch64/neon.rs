//! NEON, which every 64-bit ARM CPU with vectors has: 16 bytes a vector.
//!
//! What must stay true: a value of [`Neon`] proves the feature. P and Q by Horner's rule with a
//! shift and a compare; rows that multiply look nibbles up with TBL. There is no store past the
//! cache and no prefetch here: the language has neither for this CPU.

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vcltzq_s8, vdupq_n_u8, veorq_u8, vld1q_u8, vmaxvq_u8, vorrq_u8,
    vqtbl1q_u8, vreinterpretq_s8_u8, vshlq_n_u8, vshrq_n_u8, vst1q_u8,
};
use std::arch::is_aarch64_feature_detected;

use crate::backend::generic::{Action, pass_loop};
use crate::backend::lanes::Lanes;
use crate::backend::tables::{NIBBLES, Nibbles};
use crate::pass::Pass;

/// Proof that the CPU has NEON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neon(());

impl Neon {
    pub(crate) fn detect() -> Option<Neon> {
        is_aarch64_feature_detected!("neon").then_some(Neon(()))
    }
}

impl Lanes for Neon {
    type Vector = uint8x16_t;
    type Prepared = &'static Nibbles;
    type Factor = [uint8x16_t; 2];

    const BYTES: usize = 16;
    const REGISTERS: usize = 32;

    #[target_feature(enable = "neon")]
    unsafe fn enter<A: Action, const XOR: bool, const HORNER: bool, const REST: usize>(
        self,
        pass: &Pass<'_>,
    ) -> bool {
        // SAFETY: the caller guarantees the contract of `Pass`.
        unsafe { pass_loop::<Self, A, XOR, HORNER, REST>(self, pass) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> uint8x16_t {
        // SAFETY: the caller guarantees a readable vector, `self` the instruction.
        unsafe { vld1q_u8(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8, value: uint8x16_t) {
        // SAFETY: the caller guarantees a writable vector, `self` the instruction.
        unsafe { vst1q_u8(to, value) }
    }

    #[inline(always)]
    fn zero(self) -> uint8x16_t {
        // SAFETY: `self` proves the instruction.
        unsafe { vdupq_n_u8(0) }
    }

    #[inline(always)]
    fn xor(self, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        // SAFETY: `self` proves the instruction.
        unsafe { veorq_u8(a, b) }
    }

    #[inline(always)]
    fn or(self, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        // SAFETY: `self` proves the instruction.
        unsafe { vorrq_u8(a, b) }
    }

    #[inline(always)]
    fn is_zero(self, value: uint8x16_t) -> bool {
        // SAFETY: `self` proves the instruction.
        unsafe { vmaxvq_u8(value) == 0 }
    }

    #[inline(always)]
    fn prepare(self, coefficient: u8) -> &'static Nibbles {
        &NIBBLES[usize::from(coefficient)]
    }

    #[inline(always)]
    fn factor(self, prepared: &'static Nibbles) -> [uint8x16_t; 2] {
        // SAFETY: the table is 16 readable bytes, and `self` proves the instruction.
        let low = unsafe { vld1q_u8(prepared.low.as_ptr()) };
        // SAFETY: as above.
        let high = unsafe { vld1q_u8(prepared.high.as_ptr()) };
        [low, high]
    }

    #[inline(always)]
    fn mul(self, value: uint8x16_t, factor: [uint8x16_t; 2]) -> uint8x16_t {
        // SAFETY: `self` proves the instructions.
        unsafe { mul_nibbles(value, factor) }
    }

    #[inline(always)]
    fn horner(self, sum: uint8x16_t, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        // SAFETY: `self` proves the instructions.
        let sum = unsafe { horner_step(sum, a) };
        // SAFETY: as above.
        unsafe { horner_step(sum, b) }
    }
}

/// A byte is the sum of its nibbles, so its product is the sum of two looked up.
#[inline]
#[target_feature(enable = "neon")]
fn mul_nibbles(value: uint8x16_t, [low, high]: [uint8x16_t; 2]) -> uint8x16_t {
    let low_products = vqtbl1q_u8(low, vandq_u8(value, vdupq_n_u8(0x0F)));
    veorq_u8(low_products, vqtbl1q_u8(high, vshrq_n_u8::<4>(value)))
}

/// 2 * sum + source: shift, and add 0x1D to the bytes that were negative, whose top bit fell out.
#[inline]
#[target_feature(enable = "neon")]
fn horner_step(sum: uint8x16_t, source: uint8x16_t) -> uint8x16_t {
    let fell_out = vcltzq_s8(vreinterpretq_s8_u8(sum));
    let reduction = vandq_u8(fell_out, vdupq_n_u8(0x1D));
    veorq_u8(veorq_u8(vshlq_n_u8::<1>(sum), reduction), source)
}
