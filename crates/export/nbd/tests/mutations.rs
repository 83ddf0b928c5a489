//! What clients send, from a seed: honest handshakes and requests with some of their bytes changed,
//! parts left out, doubled and swapped.
//!
//! What must stay true: many come as far as the requests, and of these some are admitted and some
//! refused; all are counted. How many: `MUTATIONS`, or some seconds' worth. `fuzz/` hands the same
//! function to libFuzzer.

use ashlar_nbd::hostile::{Heard, hear};
use fastrand::Rng;

#[path = "../../../../fuzz/corpus.rs"]
mod corpus;

fn mutations() -> u64 {
    let wanted = std::env::var("MUTATIONS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(30_000)
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("short");
    [b"IHAVEOPT", &number.to_be_bytes()[..], &length.to_be_bytes(), data].concat()
}

fn request(kind: u16, flags: u16, (offset, bytes): (u64, u32), payload: usize) -> Vec<u8> {
    let mut out = 0x2560_9513_u32.to_be_bytes().to_vec();
    out.extend(flags.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(7_u64.to_be_bytes());
    out.extend(offset.to_be_bytes());
    out.extend(bytes.to_be_bytes());
    out.resize(out.len() + payload, 0x33);
    out
}

fn extended(kind: u16, flags: u16, (offset, bytes): (u64, u64), payload: usize) -> Vec<u8> {
    let mut out = 0x21e4_1c71_u32.to_be_bytes().to_vec();
    out.extend(flags.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(7_u64.to_be_bytes());
    out.extend(offset.to_be_bytes());
    out.extend(bytes.to_be_bytes());
    out.resize(out.len() + payload, 0x33);
    out
}

/// The parts of an honest session in each dialect.
fn sessions() -> [Vec<Vec<u8>>; 3] {
    let flags = vec![0, 0, 0, 3];
    let context = option(10, b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation");
    let go = option(7, b"\0\0\0\x04disk\0\x01\0\x03");
    let requests = [
        request(0, 0, (4096, 8192), 0),
        request(1, 1, (512, 512), 512),
        request(3, 0, (0, 0), 0),
        request(4, 0, (65536, 65536), 0),
        request(6, 2, (0, 1 << 20), 0),
        request(7, 8, (0, 1 << 20), 0),
        request(0, 0, (1 << 20, 512), 0),
        request(2, 0, (0, 0), 0),
    ];
    let long = [
        extended(0, 0, (4096, 8192), 0),
        extended(1, 1 << 5, (512, 512), 512),
        extended(7, 8, (0, 1 << 20), 0),
        extended(4, 0, (0, u64::MAX), 0),
        extended(3, 0, (0, 0), 0),
    ];
    let with =
        |begin: &[Vec<u8>], end: &[Vec<u8>]| [std::slice::from_ref(&flags), begin, end].concat();
    [
        with(&[option(3, b""), option(6, b"\0\0\0\0\0\0"), go.clone()], &requests),
        with(
            &[option(8, b""), option(9, b"\0\0\0\x04disk\0\0\0\0"), context.clone(), go.clone()],
            &requests,
        ),
        with(&[option(11, b""), context, go], &long),
    ]
}

fn changed(mut parts: Vec<Vec<u8>>, chance: &mut Rng) -> Vec<u8> {
    match chance.usize(..6) {
        0 => drop(parts.remove(chance.usize(..parts.len()))),
        1 => {
            let (one, other) = (chance.usize(..parts.len()), chance.usize(..parts.len()));
            parts.swap(one, other);
        }
        2 => parts.insert(chance.usize(..parts.len()), parts[chance.usize(..parts.len())].clone()),
        _ => {}
    }
    let mut bytes = parts.concat();
    for _ in 0..chance.usize(..5) {
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
    if chance.usize(..10) == 0 {
        bytes.truncate(chance.usize(..=bytes.len()));
    }
    bytes
}

#[test]
fn hostile_clients_are_heard_without_harm() {
    let sessions = sessions();
    let heard = sessions.each_ref().map(|parts| hear(&parts.concat()));
    assert!(heard.iter().all(|heard| heard.transmits && heard.admitted >= 3), "{heard:?}");
    let (mut transmitting, mut sum) = (0, Heard::default());
    for number in 0..mutations() {
        let mut chance = Rng::with_seed(number);
        let bytes = changed(sessions[chance.usize(..sessions.len())].clone(), &mut chance);
        corpus::keep("nbd_session", (0, number), &bytes);
        let heard = std::panic::catch_unwind(|| hear(&bytes));
        let heard = heard.unwrap_or_else(|_| panic!("input {number}"));
        transmitting += u64::from(heard.transmits);
        sum.admitted += heard.admitted;
        sum.refused += heard.refused;
    }
    let of = mutations();
    assert!(transmitting > of / 4 && transmitting < of, "{transmitting} of {of}");
    assert!(sum.admitted > sum.refused && sum.refused > 1000, "{sum:?}");
}
