//! The backends: one algorithm, several instruction sets.
//!
//! What must stay true: a backend value proves its CPU feature (only its `detect` makes one), and
//! all backends give the bytes of `reference`.
//!
//! - `lanes`: the few vector operations an instruction set must offer
//! - `generic`: the loops, once, for all of them
//! - `dispatch`: which of the loops a pass runs
//! - `tables`: coefficients in the forms that instructions want
//! - `portable`: plain 64-bit integers, everywhere
//! - `x86_64`, `aarch64`: one file for each set of CPU features

#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
mod dispatch;
mod generic;
mod lanes;
pub(crate) mod portable;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod tables;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;

pub(crate) use dispatch::run;

/// Orders the stores past the cache that came before it: other cores then see them before anything
/// stored later, as they do for plain stores.
pub(crate) fn fence_streamed() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SFENCE is part of SSE, which every x86-64 CPU has.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    };
}
