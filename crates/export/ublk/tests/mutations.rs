//! Descriptors that might come from a driver, from a seed: honest requests with some of their bytes
//! changed, and bytes at random.
//!
//! What must stay true: of many, some are carried out and some refused; all are counted. How many:
//! `MUTATIONS`, or some seconds' worth. `fuzz/` hands the same function to libFuzzer.

use ashlar_ublk::hostile::{LARGE_BLOCKS, Met, READ_ONLY, descriptor, meet};
use fastrand::Rng;

#[path = "../../../../fuzz/corpus.rs"]
mod corpus;

/// Descriptors of one input at most.
const MOST: usize = 8;
/// The last flag that the driver knows.
const FLAG_BITS: u32 = 16;

fn mutations() -> u64 {
    let wanted = std::env::var("MUTATIONS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(100_000)
}

/// Within a volume of 64 sectors, mostly.
fn honest(rng: &mut Rng) -> [u8; 24] {
    let kind = u32::from(*rng.choice(&[0_u8, 0, 1, 1, 2, 3, 5]).expect("some"));
    let flags = if rng.bool() { 1 << rng.u32(8..FLAG_BITS) } else { 0 };
    descriptor(kind | flags, rng.u64(0..8) * 8, rng.u32(1..3) * 8)
}

/// Changes one field, or some of the bytes.
fn change(rng: &mut Rng, bytes: &mut [u8; 24]) {
    let hard = [0, 1, 7, 63, 64, 1 << 31, u64::MAX / 512, u64::MAX / 512 + 1, u64::MAX];
    let hard = *rng.choice(&hard).expect("some");
    match rng.u8(0..4) {
        0 => bytes[8..16].copy_from_slice(&hard.to_ne_bytes()),
        1 => bytes[4..8].copy_from_slice(&hard.to_ne_bytes()[..4]),
        2 => bytes[rng.usize(0..24)] ^= 1 << rng.u32(0..8),
        _ => bytes.fill_with(|| rng.u8(..)),
    }
}

fn input(rng: &mut Rng) -> Vec<u8> {
    let mut input = vec![*rng.choice(&[0, 0, LARGE_BLOCKS, READ_ONLY]).expect("some")];
    for _ in 0..rng.usize(1..=MOST) {
        let mut bytes = honest(rng);
        if rng.u8(0..3) == 0 {
            change(rng, &mut bytes);
        }
        input.extend(bytes);
    }
    input
}

#[test]
fn hostile_descriptors_move_what_they_name_and_nothing_else() {
    let honest = [&[0_u8][..], &descriptor(1, 8, 16), &descriptor(0, 0, 16), &descriptor(2, 9, 0)];
    assert_eq!(meet(&honest.concat()), Met { done: 3, refused: 0 });
    let (mut sum, mut inputs) = (Met::default(), 0_u64);
    let mut rng = Rng::with_seed(0);
    while sum.done + sum.refused < mutations() {
        let input = input(&mut rng);
        corpus::keep("ublk_descriptors", (0, inputs), &input);
        let met = std::panic::catch_unwind(|| meet(&input));
        let met = met.unwrap_or_else(|_| panic!("input {inputs}: {input:02x?}"));
        sum.done += met.done;
        sum.refused += met.refused;
        inputs += 1;
    }
    let tenth = mutations() / 10;
    assert!(sum.done > 3 * tenth && sum.refused > tenth, "{sum:?}");
}
