//! Messages of a vhost-user frontend, its guest's rings and its memory of requests under way:
//! `crates/export/vhost-user/src/hostile/frontend.rs` says what is right.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    ashlar_vhost_user::hostile::hear(input);
});
