//! A connection of an NVMe/TCP host: `hostile.rs` of `nvme-protocol` says what is right.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    ashlar_nvme_protocol::hostile::hear(input);
});
