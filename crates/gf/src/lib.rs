//! The field GF(2^8) and the generator matrix of every array: the mathematics, and nothing else.
//!
//! A byte is a polynomial over GF(2) of degree below eight; arithmetic is modulo
//! x^8 + x^4 + x^3 + x^2 + 1 (0x11D), under which 2 generates all 255 non-zero bytes. A stripe of k
//! data strips has parity strip j = sum over i of `PARITY_ROWS[j][i]` * data strip i, byte by byte.
//!
//! What must stay true: the tables here are on-disk format. Row 0 is the XOR (P), row 1 is 2^i (the
//! Q of Linux), column 0 is 1 in every row (so an array of one data strip is a mirror), and any
//! loss of at most m strips can be solved. Not here: SIMD, buffers, allocation, and anything that
//! knows what a member is.
//!
//! Reading order: [`field`] (multiply, divide, invert), then [`matrix`] (rows and small
//! inversions).

#![forbid(unsafe_code)]

pub mod field;
pub mod matrix;

pub use field::{div, inv, mul, pow};
pub use matrix::{PARITY_MAX, PARITY_ROWS, Square};
