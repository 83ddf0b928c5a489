//! Bytes of members from a seed: sound records with some of their bytes changed, most under a
//! checksum that is right again.
//!
//! What must stay true: most inputs go through the first checks and many are refused, and both are
//! counted. How many of each kind: `MUTATIONS`, or some seconds' worth. `fuzz/` hands the same
//! functions to libFuzzer.

#[path = "../../../../fuzz/corpus.rs"]
mod corpus;
mod decode;
mod logged;

use crate::samples;
use ashlar_ondisk::bitmap::array_tag;
use ashlar_ondisk::checksums::SumPageIdentity;
use ashlar_ondisk::{BitmapKind, PageIdentity};
use decode::{checksum_page, logs, map_page, superblock};
use fastrand::Rng;

fn mutations() -> u64 {
    let wanted = std::env::var("MUTATIONS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(4000)
}

/// A number that breaks arithmetic, or any.
fn number(chance: &mut Rng) -> u64 {
    const EDGES: [u64; 9] = [0, 1, 2, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 1 << 62, u64::MAX];
    let near = chance.u64(..70_000);
    let at = chance.usize(..EDGES.len() + 2);
    EDGES.get(at).copied().unwrap_or(if at.is_multiple_of(2) { near } else { chance.u64(..) })
}

/// `sound` behind a first byte that has its checksum made right in 7 of 8 cases, with up to eight
/// changes before `end`.
fn changed(sound: &[u8], end: usize, chance: &mut Rng) -> Vec<u8> {
    let mut input = vec![u8::from(chance.usize(..8) > 0)];
    input.extend(sound);
    for _ in 0..chance.usize(..8) {
        let at = 1 + chance.usize(..end.min(sound.len()));
        match chance.usize(..3) {
            0 => input[at] ^= 1 << chance.usize(..8),
            1 => {
                let bytes = 1 << chance.usize(..4);
                let to = input.len().min(at + bytes);
                input[at..to].copy_from_slice(&number(chance).to_le_bytes()[..to - at]);
            }
            _ => input[at] = chance.u8(..),
        }
    }
    if chance.usize(..20) == 0 {
        input.truncate(chance.usize(..=input.len()));
    }
    input
}

/// Inputs of `sound` to a target of that name: how many of so many it made something of.
fn tried(
    seed: u64,
    (sound, end): (&[u8], usize),
    (name, target): (&str, impl Fn(&[u8]) -> bool),
) -> (u64, u64) {
    let mut taken = 0;
    for number in 0..mutations() {
        let mut chance = Rng::with_seed(seed << 32 | number);
        let input = changed(sound, end, &mut chance);
        corpus::keep(name, (seed, number), &input);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| target(&input)));
        let done = done.unwrap_or_else(|_| panic!("seed {seed}, input {number}"));
        taken += u64::from(done);
    }
    (taken, mutations())
}

#[test]
fn hostile_superblocks_are_refused_or_understood() {
    let plain = logged::logged(samples::array(2, 1, 2));
    let (pool, growing) = (crate::declustered::declustered(), crate::growth::half_way());
    for (seed, sound) in [(1, samples::raid6()), (2, plain), (3, pool), (4, growing)] {
        let bytes = sound.encode().expect("sound");
        // Reserved bytes change little: the fields and the member table.
        let header = tried(seed, (&bytes, 1120), ("superblock", superblock));
        let members = tried(seed + 10, (&bytes, 4096 + 5 * 128), ("superblock", superblock));
        for (taken, of) in [header, members] {
            assert!(taken > of / 20 && taken < of, "{taken} of {of}");
        }
    }
}

#[test]
fn hostile_pages_are_refused_or_understood() {
    let tag = array_tag(uuid::Uuid::from_u128(7));
    let map = PageIdentity { kind: BitmapKind::WrittenMap, owner_tag: tag, page: 0 };
    let (taken, of) = tried(3, (&map.encode(5, &[0x0F0F; 508]), 64), ("map_page", map_page));
    assert!(taken > of / 20 && taken < of, "{taken} of {of}");
    let sums = SumPageIdentity { array_tag: tag, page: 0 };
    let (taken, of) = tried(4, (&sums.encode(5, &[7; 1016]), 64), ("checksum_page", checksum_page));
    assert!(taken > of / 20 && taken < of, "{taken} of {of}");
}

#[test]
fn hostile_logs_are_refused_or_understood() {
    let array = logged::logged(samples::array(2, 1, 1));
    let sound = logged::batches(&array);
    assert!(logs(&array, &[&[0], &sound[..]].concat()), "there is something to judge");
    let (taken, of) = tried(5, (&sound, 300), ("log", |input| logs(&array, input)));
    assert!(taken > of / 2, "{taken} of {of}: the other members' logs are sound");
    let alone = &sound[..64 << 10];
    let (taken, of) = tried(6, (alone, 300), ("log", |input| logs(&array, input)));
    assert!(taken > of / 20 && taken < of, "{taken} of {of}");
}
