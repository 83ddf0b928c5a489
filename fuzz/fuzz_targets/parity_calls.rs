//! Hostile calls of the parity crate, as libFuzzer finds them: `just fuzz 60`.
//!
//! The call itself, and what is right, is in `crates/parity/tests/hostile/call.rs`; the ordinary
//! tests make the same calls from a seed.

#![no_main]

#[path = "../../crates/parity/tests/hostile/call.rs"]
mod call;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    call::call(input);
});
