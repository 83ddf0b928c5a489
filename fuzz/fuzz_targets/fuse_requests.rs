//! Requests of a FUSE kernel: `crates/export/fuse/src/hostile.rs` says what is right.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    ashlar_fuse::hostile::hear(input);
});
