//! The x86-64 backends, one file each, fastest first.
//!
//! What must stay true: the files have the same order of functions and differ only in instructions.
//!
//! - `avx512_gfni`: Ice Lake, Sapphire Rapids, Zen 4 and later
//! - `avx2_gfni`: Alder Lake and its like
//! - `avx512_bw`: Skylake-SP, Cascade Lake
//! - `avx2`: Haswell, Zen 1 to 3
//! - `ssse3`: what came before

pub(crate) mod avx2;
pub(crate) mod avx2_gfni;
pub(crate) mod avx512_bw;
pub(crate) mod avx512_gfni;
pub(crate) mod ssse3;
