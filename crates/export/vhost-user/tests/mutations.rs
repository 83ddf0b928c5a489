//! What guests put into their memory, from a seed: honest requests with some of their bytes
//! changed, and descriptors at random.
//!
//! What must stay true: of many, some are admitted, some refused and some break the device; all are
//! counted. How many: `MUTATIONS`, or some seconds' worth. `fuzz/` hands the same function to
//! libFuzzer.

use ashlar_vhost_user::hostile::{ENTRIES, MEMORY_AT, Met, descriptor, meet};
use fastrand::Rng;

#[path = "../../../../fuzz/corpus.rs"]
mod corpus;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// Where head, other table, status and data are in a memory of so many bytes.
const HEAD: usize = 0x400;
const TABLE: usize = 0x600;
const STATUS: usize = 0x800;
const DATA: usize = 0x1000;
const BYTES: usize = 0x4000;

fn mutations() -> u64 {
    let wanted = std::env::var("MUTATIONS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(100_000)
}

fn at(place: usize) -> u64 {
    MEMORY_AT + u64::try_from(place).expect("small")
}

/// An honest request of some kind, directly or through another table.
fn honest(rng: &mut Rng) -> Vec<u8> {
    let mut memory = vec![0; BYTES];
    let kind = *rng.choice(&[0_u32, 1, 4, 8, 11, 13]).expect("some");
    memory[HEAD..HEAD + 4].copy_from_slice(&kind.to_le_bytes());
    memory[HEAD + 8] = rng.u8(0..16) * 8;
    memory[DATA + 8] = 8;
    let (bytes, flags) = match kind {
        0 | 8 => (4096, WRITE | NEXT),
        1 => (4096, NEXT),
        _ => (16, NEXT),
    };
    let chain = [
        descriptor(at(HEAD), 16, (NEXT, 1)),
        descriptor(at(DATA), bytes, (flags, 2)),
        descriptor(at(STATUS), 1, (WRITE, 0)),
    ];
    if rng.bool() {
        memory[..48].copy_from_slice(&chain.concat());
    } else {
        memory[..16].copy_from_slice(&descriptor(at(TABLE), 48, (INDIRECT, 0)));
        memory[TABLE..TABLE + 48].copy_from_slice(&chain.concat());
    }
    [vec![0], memory].concat()
}

/// Change some of it: bytes near where descriptors and heads are, or a whole descriptor.
fn change(rng: &mut Rng, input: &mut [u8]) {
    for _ in 0..rng.usize(0..4) {
        let start = *rng.choice(&[0, HEAD, TABLE, DATA]).expect("some");
        let place = 1 + start + rng.usize(0..48);
        match rng.u8(0..4) {
            0 => input[place] = rng.u8(..),
            1 => input[place] ^= 1 << rng.u32(0..8),
            2 => input[0] = rng.u8(..),
            _ => {
                let slot = 1 + start + rng.usize(0..3) * 16;
                let length = *rng.choice(&[0, 1, 16, 48, 4096, u32::MAX]).expect("some");
                let address = at(rng.usize(0..BYTES + 64));
                let made = descriptor(address, length, (rng.u16(0..8), rng.u16(0..ENTRIES + 2)));
                input[slot..slot + 16].copy_from_slice(&made);
            }
        }
    }
}

#[test]
fn hostile_guests_break_nothing_but_their_device() {
    let mut rng = Rng::with_seed(0);
    let (mut broken, mut refused, mut admitted) = (0_u64, 0_u64, 0_u64);
    for number in 0..mutations() {
        let mut input = honest(&mut rng);
        change(&mut rng, &mut input);
        corpus::keep("vhost_chain", (0, number), &input);
        match meet(&input) {
            Met::Broken(_) => broken += 1,
            Met::Refused => refused += 1,
            Met::Admitted => admitted += 1,
        }
    }
    let tenth = mutations() / 10;
    let counts = (broken, refused, admitted);
    assert!(broken > tenth && admitted > tenth && refused > tenth / 5, "{counts:?}");
}
