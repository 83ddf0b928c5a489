//! What might come from a kernel, from a seed: honest requests with some of their bytes changed.
//!
//! What must stay true: many are taken apart, of these some are done and some refused, and all are
//! counted. How many: `MUTATIONS`, or some seconds' worth. `fuzz/` hands the same function to
//! libFuzzer.

use ashlar_fuse::hostile::{Heard, hear};
use fastrand::Rng;

#[path = "../../../../fuzz/corpus.rs"]
mod corpus;

fn mutations() -> u64 {
    let wanted = std::env::var("MUTATIONS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(20_000)
}

fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(40 + body.len()).expect("short");
    let mut out = bytes.to_ne_bytes().to_vec();
    out.extend(opcode.to_ne_bytes());
    out.extend(9_u64.to_ne_bytes());
    out.extend(2_u64.to_ne_bytes());
    out.extend([0; 16]);
    out.extend(body);
    out
}

/// Body of a read or write: handle, offset, length, and 20 bytes more.
fn at(offset: u64, bytes: u32, payload: &[u8]) -> Vec<u8> {
    let numbers = [0_u64.to_ne_bytes(), offset.to_ne_bytes()].concat();
    [&numbers[..], &bytes.to_ne_bytes(), &[0; 20], payload].concat()
}

fn range(offset: u64, bytes: u64, mode: u32) -> Vec<u8> {
    let numbers = [0_u64, offset, bytes].map(u64::to_ne_bytes).concat();
    [&numbers[..], &mode.to_ne_bytes(), &[0; 4]].concat()
}

fn honest() -> Vec<Vec<u8>> {
    vec![
        request(26, &[7, 0, 0, 0, 31, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        request(1, b"disk\0"),
        request(16, &at(1000, 3000, &[0x44; 3000])),
        request(15, &at(512, 70_000, b"")),
        request(43, &range(4096, 8192, 3)),
        request(46, &range(0, 3, 0)),
        request(20, &[0; 16]),
    ]
}

#[test]
fn hostile_requests_are_heard_without_harm() {
    let whole = hear(&honest().concat());
    assert_eq!((whole.requests, whole.refused), (7, 0), "{whole:?}");
    let mut sum = Heard::default();
    for number in 0..mutations() {
        let mut chance = Rng::with_seed(number);
        let mut parts = honest();
        let one = chance.usize(..parts.len());
        parts.swap(0, one);
        let mut bytes = parts.concat();
        for _ in 0..chance.usize(..6) {
            let at = chance.usize(..bytes.len());
            match chance.usize(..3) {
                0 => bytes[at] ^= 1 << chance.usize(..8),
                1 => bytes[at] = chance.u8(..),
                _ => {
                    let to = bytes.len().min(at + (1 << chance.usize(..4)));
                    bytes[at..to].fill(if chance.usize(..2) == 0 { 0 } else { 0xFF });
                }
            }
        }
        corpus::keep("fuse_requests", (0, number), &bytes);
        let heard = std::panic::catch_unwind(|| hear(&bytes));
        let heard = heard.unwrap_or_else(|_| panic!("input {number}"));
        sum.requests += heard.requests;
        sum.done += heard.done;
        sum.refused += heard.refused;
    }
    assert!(sum.done > sum.refused && sum.refused > 500, "{sum:?}");
}
