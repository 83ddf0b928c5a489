//! Log areas of all members of an array: `crates/ondisk/tests/ondisk/hostile/decode.rs` says what
//! is right.

#![no_main]

#[path = "../../crates/ondisk/tests/ondisk/hostile/decode.rs"]
mod decode;
#[path = "../../crates/ondisk/tests/ondisk/hostile/logged.rs"]
mod logged;
#[path = "../../crates/ondisk/tests/ondisk/samples.rs"]
mod samples;

use ashlar_ondisk::Superblock;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static ARRAY: LazyLock<Superblock> = LazyLock::new(|| logged::logged(samples::array(2, 1, 1)));

fuzz_target!(|input: &[u8]| {
    decode::logs(&ARRAY, input);
});
