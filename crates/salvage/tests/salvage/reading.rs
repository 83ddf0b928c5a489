//! Data where the page says it lies, worked out by hand; members gone, unreadable, or of doubtful
//! standing.

use crate::forge::{Array, DATA, MAP, REBUILDING, STRIP, block, put};
use ashlar_salvage::{Choices, How, Lost, ReadAt, Salvage, Standing, Trust, Unreadable};

/// RAID 5 of 2+1, stripes 0 to 2 written, one byte to a block. By hand, for row r of three members
/// P lies at 2 - r and data follows it: row 0 is D0 D1 P, row 1 is D1 P D0, row 2 is P D0 D1.
fn raid5() -> (Array, Vec<Vec<u8>>) {
    let array = Array::new(5, 2, 1, 1);
    let mut members: Vec<Vec<u8>> = (0..3).map(|slot| array.member(slot, &[0, 1, 2])).collect();
    let rows = [[0x11, 0x21, 0x30], [0x22, 0x30, 0x12], [0x30, 0x13, 0x23]];
    for (row, bytes) in rows.iter().enumerate() {
        for (member, byte) in members.iter_mut().zip(bytes) {
            put(member, DATA + row * STRIP, &block(*byte));
            // The second block of each strip is one more in every data strip, so its parity is the
            // same.
            put(
                member,
                DATA + row * STRIP + 4096,
                &block(if *byte == 0x30 { 0x30 } else { byte ^ 4 }),
            );
        }
    }
    (array, members)
}

/// What the volume of `raid5` holds, block by block.
const VOLUME: [u8; 12] = [0x11, 0x15, 0x21, 0x25, 0x12, 0x16, 0x22, 0x26, 0x13, 0x17, 0x23, 0x27];

fn open(members: Vec<Vec<u8>>) -> Salvage<Vec<u8>> {
    Salvage::open(members, &Choices::default()).expect("an array")
}

fn expect_volume(salvage: &Salvage<impl ReadAt>, hows: &[How]) {
    for (number, byte) in (0..).zip(VOLUME) {
        let found = salvage.read_block(number).expect("readable");
        assert_eq!(found.bytes, block(byte), "block {number}");
        assert!(hows.contains(&found.how), "block {number}: {:?}", found.how);
    }
    let found = salvage.read_block(12).expect("readable");
    assert_eq!((found.bytes, found.how), (block(0), How::Unwritten));
    assert_eq!(salvage.read_block(salvage.geometry().volume_blocks()), Err(Lost));
}

#[test]
fn every_block_is_where_the_page_says() {
    let (_, members) = raid5();
    let salvage = open(members);
    expect_volume(&salvage, &[How::Direct]);
    assert_eq!(salvage.missing_slots(), [0; 0]);
    assert!((0..6).all(|stripe| salvage.check_stripe(stripe).agrees()));
    assert_eq!(salvage.check_stripe(1).rows_compared, 2);
}

#[test]
fn any_one_member_can_be_missing_and_no_two() {
    for gone in 0..3 {
        let (_, mut members) = raid5();
        members.remove(gone);
        expect_volume(&open(members), &[How::Direct, How::Reconstructed]);
    }
    let (_, mut members) = raid5();
    members.truncate(1);
    let salvage = open(members);
    assert_eq!(salvage.missing_slots(), [1, 2]);
    // Member 0 has D0 of stripe 0, D1 of stripe 1 and the parity of stripe 2.
    let readable = (0..12).filter(|number| salvage.read_block(*number).is_ok());
    assert_eq!(readable.collect::<Vec<_>>(), [0, 1, 6, 7]);
    assert!(salvage.read_block(12).is_ok(), "unwritten stripes need no member");
}

/// An image with a range that cannot be read.
struct Scratched {
    image: Vec<u8>,
    from: usize,
    to: usize,
}

impl ReadAt for Scratched {
    fn size_bytes(&self) -> u64 {
        self.image.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let offset_here = usize::try_from(offset).expect("small");
        let hits = offset_here < self.to && self.from < offset_here + buffer.len();
        if hits { Err(Unreadable) } else { self.image.read_at(offset, buffer) }
    }
}

#[test]
fn unreadable_blocks_are_reconstructed_one_by_one() {
    let (_, members) = raid5();
    // Each member has a bad block, each in another row of blocks.
    let places = [DATA + 100, DATA + 4096, DATA + STRIP];
    let scratched = members.into_iter().zip(places).map(|(image, from)| Scratched {
        image,
        from,
        to: from + 1,
    });
    let salvage = Salvage::open(scratched.collect(), &Choices::default()).expect("an array");
    expect_volume(&salvage, &[How::Direct, How::Reconstructed]);
    let how = |number| salvage.read_block(number).map(|found| found.how);
    assert_eq!(how(0), Ok(How::Reconstructed));
    assert_eq!(how(1), Ok(How::Direct));
    let mut strip = vec![0; STRIP];
    let fates = salvage.read_strip(0, 0, &mut strip);
    assert_eq!(fates, [Ok(How::Reconstructed), Ok(How::Direct)]);
    assert_eq!(strip, [block(0x11), block(0x15)].concat());
}

#[test]
fn a_member_that_is_being_rebuilt_counts_up_to_its_checkpoint() {
    let (mut array, members) = raid5();
    array.entries[1].role = REBUILDING;
    array.job = Some((1, 1, 2));
    let mut forged: Vec<Vec<u8>> = (0..3).map(|slot| array.member(slot, &[0, 1, 2])).collect();
    for (new, old) in forged.iter_mut().zip(&members) {
        put(new, DATA, &old[DATA..DATA + 3 * STRIP]);
    }
    let all = open(forged.clone());
    assert_eq!(all.judged()[1].standing, Standing::Until(2));
    expect_volume(&all, &[How::Direct, How::Reconstructed]);
    // Stripe 2 has D0 on member 1, which is not there yet.
    assert_eq!(all.read_block(8).map(|found| found.how), Ok(How::Reconstructed));
    forged.remove(0);
    let fewer = open(forged);
    assert!((0..8).all(|number| fewer.read_block(number).is_ok()));
    assert_eq!((fewer.read_block(8), fewer.has_enough(2, Trust::ByHand)), (Err(Lost), false));
}

#[test]
fn q_finds_the_member_that_lies() {
    // 1+2 as n+m: every strip of a row holds the same, because column 0 of the matrix is 1.
    let array = Array::new(100, 1, 2, 1);
    let mut members: Vec<Vec<u8>> = (0..3).map(|slot| array.member(slot, &[0])).collect();
    members.iter_mut().for_each(|member| put(member, DATA, &block(0x77)));
    assert!(open(members.clone()).check_stripe(0).agrees());
    // Row 0 of three members: P on member 2, Q on member 0, D0 on member 1.
    members[1][DATA + 9] ^= 1;
    let check = open(members.clone()).check_stripe(0);
    assert_eq!((check.suspect, check.rows_disagreeing), (Some(0), vec![1, 1]));
    members[1][DATA + 9] ^= 1;
    members[0][DATA + 9] ^= 1;
    let check = open(members).check_stripe(0);
    assert_eq!((check.suspect, check.rows_disagreeing), (Some(2), vec![0, 1]));
}

#[test]
fn reconstructing_where_writes_were_in_flight_is_in_doubt() {
    // After a clean stop bits are set only for members that were away.
    for (unclean, how) in [(true, How::InDoubt), (false, How::Reconstructed)] {
        reconstructs_in_a_dirty_region(unclean, how);
    }
}

fn reconstructs_in_a_dirty_region(unclean: bool, how: How) {
    let (mut array, members) = raid5();
    array.unclean = unclean;
    let mut forged: Vec<Vec<u8>> = (0..3).map(|slot| array.member(slot, &[0, 1, 2])).collect();
    for (new, old) in forged.iter_mut().zip(&members) {
        put(new, DATA, &old[DATA..DATA + 3 * STRIP]);
        put(new, crate::forge::INTENT, &array.page(*b"AWIB", 3, &[0]));
    }
    expect_volume(&open(forged.clone()), &[How::Direct]);
    forged.remove(0);
    expect_volume(&open(forged), &[How::Direct, how]);
}

#[test]
fn a_map_page_that_nobody_has_intact_counts_as_written() {
    let (_, mut members) = raid5();
    for member in &mut members {
        // Both places were in use.
        put(member, MAP + 4096, &[0xEE; 4096]);
    }
    for member in &mut members[..2] {
        member[MAP + 50] ^= 1;
    }
    assert_eq!(open(members.clone()).lost_map_pages(), 0);
    members[2][MAP + 2] ^= 1;
    let salvage = open(members);
    assert_eq!(salvage.lost_map_pages(), 1);
    assert_eq!(salvage.read_block(12).map(|found| found.how), Ok(How::Direct));
}

#[test]
fn the_newest_map_page_counts_and_a_wiped_one_does_not() {
    let (array, mut members) = raid5();
    let newer = array.page(*b"AWRM", 6, &[0]);
    put(&mut members[1], MAP, &newer);
    let how = |members: &Vec<Vec<u8>>, number| {
        open(members.clone()).read_block(number).map(|found| found.how)
    };
    assert_eq!(how(&members, 4), Ok(How::Unwritten));
    // Of the two places of a page the newer one counts, and a torn one leaves the other.
    let newest = array.page(*b"AWRM", 7, &[0, 2]);
    put(&mut members[0], MAP + 4096, &newest);
    assert_eq!(how(&members, 8), Ok(How::Direct));
    members[0][MAP + 4096 + 100] ^= 1;
    assert_eq!(how(&members, 8), Ok(How::Unwritten));
    // A head of zeros on every member is no map that says "nothing was written".
    members.iter_mut().for_each(|member| member[..MAP + 8192].fill(0));
    assert_eq!(how(&members, 4), Ok(How::Direct));
}
