//! Handshake and transmission of an NBD client: `crates/export/nbd/src/hostile.rs` says what is
//! right.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    ashlar_nbd::hostile::hear(input);
});
