//! Descriptors and requests in a guest's memory: `crates/export/vhost-user/src/hostile.rs` says
//! what is right.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    ashlar_vhost_user::hostile::meet(input);
});
