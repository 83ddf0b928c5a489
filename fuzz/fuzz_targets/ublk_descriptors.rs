//! Descriptors of requests to a ublk device: `crates/export/ublk/src/hostile.rs` says what is
//! right.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    ashlar_ublk::hostile::meet(input);
});
