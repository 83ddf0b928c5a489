//! Bodies of requests to the control socket: `crates/api/tests/hostile/parse.rs` says what is
//! right.

#![no_main]

#[path = "../../crates/api/tests/hostile/parse.rs"]
mod parse;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    parse::body(input);
});
