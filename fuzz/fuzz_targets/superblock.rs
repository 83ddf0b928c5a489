//! Superblocks as somebody may have written them: `crates/ondisk/tests/ondisk/hostile/decode.rs`
//! says what is right.

#![no_main]

#[path = "../../crates/ondisk/tests/ondisk/hostile/decode.rs"]
mod decode;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    decode::superblock(input);
});
