//! Parity kernels: generate, update, check and reconstruct the strips of one stripe, in one pass
//! each.
//!
//! A stripe has k data strips D0..Dk-1 and m parity strips; parity j is the sum over i of
//! `PARITY_ROWS[j][i] * Di` in GF(2^8), byte by byte (see `ashlar-gf`). Parity 0 is P (XOR), parity
//! 1 is Q. Strips of a stripe are numbered 0..k+m, data first. With k = 1 every coefficient is 1
//! and a parity strip is a copy, so a mirror needs nothing of its own.
//!
//! What must stay true: all slices of one call have one length, any length, any alignment; a wrong
//! call gives a [`CodeError`], never a panic and never undefined behaviour. Outputs that alias do
//! not compile:
//!
//! ```compile_fail,E0499
//! # use ashlar_parity::{Code, Kernel, Locality};
//! let (data, mut out) = ([0u8; 64], [0u8; 64]);
//! let mut parity = [Some(&mut out[..]), Some(&mut out[..])];
//! let code = Code::new(1, 2, Kernel::best()).unwrap();
//! code.generate(&[&data], &mut parity, Locality::Cached).unwrap();
//! ```
//!
//! Every backend gives the same bytes as [`reference`](Kernel::by_name). Nothing is allocated. For
//! speed, strips should be multiples of 64 bytes, aligned to 64 and *displaced*: when all strips of
//! a stripe start at the same offset of a 4 KiB page they share a few cache sets.
//!
//! Not here: buffers, members, layouts, anything asynchronous.
//!
//! Reading order: `rows` (the coefficients), `code` (the public verbs), `check`, `decode`,
//! `kernel` (which backend), then `job` (from slices to pointers: lengths, tails, tiles), `groups`
//! (how many passes), `pass` (what a backend is asked to do), `backend` (the loops, once, and the
//! instructions of each CPU) and `reference` (the slow truth).

mod backend;
mod check;
mod code;
mod decode;
mod error;
mod groups;
mod job;
mod kernel;
mod list;
mod pass;
mod reference;
mod rows;

pub use check::{ROW_BYTES, ROWS_MAX, RowMap, Verdict};
pub use code::{Change, Code, Locality};
pub use decode::DecodePlan;
pub use error::{CodeError, KernelError};
pub use kernel::Kernel;
