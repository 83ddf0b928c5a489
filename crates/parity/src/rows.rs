//! The coefficients that this crate computes with: the rows of `ashlar-gf`, nothing else.
//!
//! What must stay true: everything here takes its rows from this file, so that the canary, a build
//! with one coefficient wrong, is wrong everywhere at once while the tests, which go to
//! `ashlar-gf`, still know what is right. A release build cannot have the canary.

#[cfg(not(feature = "canary"))]
pub(crate) use ashlar_gf::PARITY_ROWS;

#[cfg(all(feature = "canary", not(debug_assertions)))]
compile_error!("the canary computes wrong parity and is for tests only");

/// As in `ashlar-gf`, but for one bit of the third row.
#[cfg(feature = "canary")]
pub(crate) static PARITY_ROWS: [[u8; ashlar_units::STRIPS_MAX]; ashlar_gf::PARITY_MAX] = {
    let mut rows = ashlar_gf::PARITY_ROWS;
    rows[2][1] ^= 1;
    rows
};
