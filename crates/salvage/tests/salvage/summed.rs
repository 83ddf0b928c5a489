//! Arrays with checksums: blocks that are not what was written are found, and come from the rest of
//! their row.

use crate::forge::{Array, DATA, STRIP, SUMS, block, put};
use ashlar_salvage::{Choices, How, Lost, Salvage};

/// Which member has D0, D1, P and Q in row 0 of four members: P lies on the last one, Q and the
/// data follow.
const MEMBER: [usize; 4] = [1, 2, 3, 0];

/// RAID 6 of 2+2, stripe 0 written: by hand D0 is 1, D1 is 2, P is 3, and Q is 1 + 2 x 2, which is
/// 5.
fn raid6() -> (Array, Vec<Vec<u8>>) {
    let array = Array { policy: 3, has_sums: true, ..Array::new(6, 2, 2, 1) };
    let mut members: Vec<Vec<u8>> = (0..4).map(|slot| array.member(slot, &[0])).collect();
    for (member, byte) in members.iter_mut().zip([5, 1, 2, 3]) {
        for at in (DATA..DATA + STRIP).step_by(4096) {
            put(member, at, &block(byte));
        }
    }
    for slot in 0..4 {
        let page = array.sums(slot, &members[usize::from(slot)], 7);
        put(&mut members[usize::from(slot)], SUMS, &page);
    }
    (array, members)
}

fn open(members: Vec<Vec<u8>>) -> Salvage<Vec<u8>> {
    Salvage::open(members, &Choices::default()).expect("an array")
}

fn read(salvage: &Salvage<Vec<u8>>, number: u64) -> Result<(u8, How), Lost> {
    let found = salvage.read_block(number)?;
    assert!(found.bytes.iter().all(|byte| *byte == found.bytes[0]), "block {number}");
    Ok((found.bytes[0], found.how))
}

#[test]
fn wrong_blocks_are_repaired_from_right_ones_and_named() {
    let (_, members) = raid6();
    let salvage = open(members.clone());
    assert_eq!(read(&salvage, 0), Ok((1, How::Direct)));
    assert!(salvage.check_stripe(0).agrees() && salvage.check_stripe(0).blocks_wrong.is_empty());
    // Each pair of strips, one of them by a single byte.
    for (one, other) in [(0, 1), (0, 2), (1, 3), (2, 3)] {
        let mut members = members.clone();
        put(&mut members[MEMBER[one]], DATA + 77, &[9]);
        put(&mut members[MEMBER[other]], DATA, &block(8));
        let salvage = open(members);
        for strip in 0..2_u64 {
            let is_wrong = [one, other].iter().any(|it| u64::try_from(*it) == Ok(strip));
            let how = if is_wrong { How::Repaired } else { How::Direct };
            let first = strip * salvage.geometry().strip_blocks();
            let byte = u8::try_from(strip).expect("two") + 1;
            assert_eq!(read(&salvage, first), Ok((byte, how)), "{one} {other}");
            assert_eq!(read(&salvage, first + 1), Ok((byte, How::Direct)));
        }
        let check = salvage.check_stripe(0);
        assert_eq!(check.blocks_wrong, [(one, 0), (other, 0)]);
        assert!(check.agrees(), "what is wrong is not compared");
    }
}

#[test]
fn what_too_few_right_blocks_are_left_for_is_lost_and_the_rest_is_not() {
    let (_, mut members) = raid6();
    for member in &mut members[..3] {
        put(member, DATA, &block(9));
    }
    let salvage = open(members);
    assert_eq!(read(&salvage, 0), Err(Lost));
    assert_eq!(read(&salvage, 1), Ok((1, How::Direct)));
    let strip = &mut [0; STRIP][..];
    let found = salvage.read_strip(0, 0, strip);
    assert_eq!(found[..2], [Err(Lost), Ok(How::Direct)]);
}

#[test]
fn a_right_block_in_a_wrong_place_is_wrong() {
    let (_, mut members) = raid6();
    let other = members[MEMBER[1]][DATA..DATA + 4096].to_vec();
    put(&mut members[MEMBER[0]], DATA, &other);
    assert_eq!(read(&open(members), 0), Ok((1, How::Repaired)));
}

/// A page that tore leaves the one before it, and one that nobody has says nothing.
#[test]
fn the_newer_intact_place_of_a_page_counts() {
    let (array, members) = raid6();
    let stale = |members: &mut [Vec<u8>], sequence| {
        let mut before = members[1].clone();
        put(&mut before, DATA, &block(6));
        let page = array.sums(1, &before, sequence);
        put(&mut members[1], SUMS + 4096, &page);
    };
    let mut older = members.clone();
    stale(&mut older, 6);
    assert_eq!(read(&open(older.clone()), 0), Ok((1, How::Direct)));
    // The newer place is torn: the table is older than the block, which follows from its row all
    // the same.
    put(&mut older[1], SUMS + 100, &[0xEE; 8]);
    assert_eq!(read(&open(older.clone()), 0), Ok((1, How::Direct)));
    put(&mut older[1], DATA, &block(9));
    assert_eq!(read(&open(older.clone()), 0), Err(Lost), "neither is proven");
    put(&mut older[1], SUMS + 4096 + 100, &[0xEE; 8]);
    assert_eq!(read(&open(older), 0), Ok((9, How::Direct)), "nothing is known");
}
