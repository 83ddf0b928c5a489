//! Choosing among the four copies of one device.

use ashlar_ondisk::{CopyState, Label, Superblock, SuperblockCopies, UPDATE_ORDER};

use crate::samples::{lost, raid6, updated, uuid};
use crate::superblock::{reseal, spare};

/// A 64 KiB slot that begins with these bytes.
pub fn slot(bytes: &[u8]) -> Vec<u8> {
    let mut slot = bytes.to_vec();
    slot.resize(65_536, 0);
    slot
}

fn encoded(superblock: &Superblock) -> Vec<u8> {
    slot(&superblock.encode().expect("valid"))
}

fn choose(copies: [&[u8]; 4]) -> ashlar_ondisk::Choice {
    SuperblockCopies::choose(&copies.map(Some))
}

#[test]
fn one_intact_copy_is_enough_wherever_it_lies() {
    let good = encoded(&raid6());
    let zeros = vec![0; 65_536];
    for intact in 0..4 {
        let mut copies: [Option<&[u8]>; 4] = [Some(&zeros), None, Some(&zeros), None];
        copies[intact] = Some(&good);
        let choice = SuperblockCopies::choose(&copies);
        assert_eq!(choice.superblock(), Some(&raid6()), "copy {intact}");
        assert_eq!(choice.copies[intact], CopyState::Ok);
        for other in (0..4).filter(|&other| other != intact) {
            let expected = if other % 2 == 0 { CopyState::Absent } else { CopyState::Unreadable };
            assert_eq!(choice.copies[other], expected);
        }
    }
}

#[test]
fn any_flipped_byte_spoils_its_copy_only_and_the_field_is_named() {
    let good = encoded(&raid6());
    let length = raid6().encode().expect("valid").len();
    let named =
        [(0, "magic"), (8, "checksum"), (12, "length"), (48, "generation"), (56, "array_uuid")];
    for at in 0..length {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        let choice = choose([&bad, &good, &good, &good]);
        assert_eq!(choice.superblock(), Some(&raid6()), "byte {at}");
        let CopyState::Damaged { field: Some(field) } = choice.copies[0] else {
            panic!("byte {at}: {}", choice.copies[0]);
        };
        if let Some((_, name)) = named.iter().find(|(first, _)| *first == at) {
            assert_eq!(field, *name);
        }
        if (4096..4096 + 16).contains(&at) {
            assert_eq!(field, "members.member_uuid");
        }
    }
}

/// The update rule of the format: after each single write of an update, whole or torn, and with any
/// one further copy lost, the device still has a whole generation, and never an older one than
/// before.
#[test]
fn an_update_cut_anywhere_leaves_the_old_or_the_new_generation() {
    let old = raid6();
    // Changes the header and the member table, so that a cut between them tears.
    let new = lost(&old, &[1]);
    let (old_bytes, new_bytes) = (encoded(&old), encoded(&new));
    let mut copies = [old_bytes.clone(), old_bytes.clone(), old_bytes.clone(), old_bytes.clone()];
    for step in UPDATE_ORDER {
        for cut in (0..=8192).step_by(512) {
            let mut torn = copies.clone();
            for copy in step {
                torn[copy][..cut].copy_from_slice(&new_bytes[..cut]);
            }
            let choice = choose([&torn[0], &torn[1], &torn[2], &torn[3]]);
            let newest = choice.superblock().expect("one generation is whole");
            assert!(newest == &old || newest == &new, "cut at {cut}");
            // In the second step no intact copy is left to prove the tear with: then it counts as
            // damage.
            if cut == 512 {
                let torn = CopyState::Torn { generation: new.generation };
                let damaged = CopyState::Damaged { field: Some("members.role") };
                assert_eq!(choice.copies[step[0]], if step[0] == 0 { torn } else { damaged });
            }
        }
        for copy in step {
            copies[copy].copy_from_slice(&new_bytes);
        }
        let choice = choose([&copies[0], &copies[1], &copies[2], &copies[3]]);
        assert_eq!(choice.superblock(), Some(&new), "after {step:?}");
    }
}

#[test]
fn the_newest_generation_wins_and_the_others_are_stale() {
    let old = raid6();
    let new = updated(&old);
    let (a, b) = (encoded(&old), encoded(&new));
    let choice = choose([&a, &b, &a, &a]);
    assert_eq!(choice.superblock(), Some(&new));
    let stale = CopyState::Stale { generation: 10 };
    assert_eq!(choice.copies, [stale, CopyState::Ok, stale, stale]);
}

#[test]
fn copies_another_array_left_behind_never_mix_in() {
    let here = raid6();
    let mut elsewhere = raid6();
    elsewhere.array_uuid = uuid(0xBB, 0);
    elsewhere.generation = 5000;
    let (a, b) = (encoded(&here), encoded(&elsewhere));
    let other = CopyState::Other { array: uuid(0xBB, 0) };
    let choice = choose([&a, &a, &a, &b]);
    assert_eq!(choice.superblock(), Some(&here));
    assert_eq!(choice.copies[3], other);
    let choice = choose([&b, &a, &a, &a]);
    assert_eq!(choice.superblock(), Some(&here), "three copies outweigh copy 0");
    assert_eq!(choice.copies[0], other);
    // A creation interrupted between its two steps: copy 0 was written first.
    let choice = choose([&a, &b, &a, &b]);
    assert_eq!(choice.superblock(), Some(&here));
    assert_eq!(choice.copies, [CopyState::Ok, other, CopyState::Ok, other]);
}

#[test]
fn one_generation_with_two_contents_is_a_conflict() {
    let one = raid6();
    let two = Superblock { unclean: true, ..raid6() };
    let (a, b) = (encoded(&one), encoded(&two));
    let choice = choose([&a, &a, &b, &a]);
    assert_eq!(choice.copies[2], CopyState::Conflicting);
    assert_eq!(choice.superblock(), Some(&one));
    assert!(!choice.is_whole());
}

#[test]
fn a_spare_is_recognised_and_its_copies_are_checked() {
    let good = slot(&spare().encode().expect("valid"));
    let mut bad = good.clone();
    bad[72] ^= 1;
    let choice = choose([&good, &bad, &good, &good]);
    assert_eq!(choice.newest, Some(Label::Spare(spare())));
    assert_eq!(choice.copies[1], CopyState::Damaged { field: Some("member_bytes") });
    assert_eq!(choice.superblock(), None);
}

#[test]
fn a_spare_on_its_way_into_an_array_is_what_copy_0_says() {
    let member = encoded(&raid6());
    let waiting = slot(&spare().encode().expect("valid"));
    let choice = choose([&member, &waiting, &member, &waiting]);
    assert_eq!(choice.superblock(), Some(&raid6()));
}

#[test]
fn somebody_elses_data_is_foreign_and_not_damage() {
    let theirs: Vec<u8> = (0..65_536u32).map(|at| u8::try_from(at % 251).expect("small")).collect();
    let choice = choose([&theirs, &theirs, &theirs, &theirs]);
    assert_eq!(choice.copies, [CopyState::Foreign; 4]);
    assert_eq!(choice.newest, None);
}

#[test]
fn a_copy_of_a_newer_program_takes_the_decision_away_from_older_copies() {
    let old = encoded(&raid6());
    let mut newer = updated(&raid6()).encode().expect("valid");
    newer[41] = 0x80;
    reseal(&mut newer);
    let newer = slot(&newer);
    let choice = choose([&newer, &old, &newer, &old]);
    let (array, fault) = choice.unsupported().expect("newer than the chosen copy");
    assert_eq!(array, raid6().array_uuid);
    assert!(fault.is_unsupported());
}
