//! What the stripe intent log adds after a crash: complete records count, others do not, and
//! nothing is written.

use crate::forge::{Array, DATA, Entry, INTENT, LOG, OUT, Record, STRIP, block, numbered, put};
use ashlar_salvage::{Choices, How, Salvage};

/// RAID 5 of 2+1 that crashed. Row 0 lies as D0 D1 P on members 0, 1 and 2.
fn crashed() -> (Array, Vec<Vec<u8>>) {
    let array = Array { policy: 3, unclean: true, ..Array::new(5, 2, 1, 1) };
    let mut members: Vec<Vec<u8>> = (0..3).map(|slot| array.member(slot, &[0, 1])).collect();
    for (member, byte) in members.iter_mut().zip([0x11, 0x21, 0x30]) {
        put(member, DATA, &[byte; STRIP]);
    }
    (array, members)
}

/// An update of block 0 of D0 to 0x12, and of P to 0x33.
fn update() -> Record {
    Record {
        sequence: 5,
        stripe: 0,
        rows: (0, 1),
        kind: 1,
        holders: vec![(0, 0), (2, 2)],
        blocks: Vec::new(),
        change: None,
    }
}

fn with_blocks(record: &Record, blocks: &[(u8, u16, u8)]) -> Record {
    Record { blocks: blocks.to_vec(), ..record.clone() }
}

fn log(array: &Array, members: &mut [Vec<u8>], member: u8, at: usize, records: &[Record]) {
    put(&mut members[usize::from(member)], LOG + at, &array.batch(member, 1, records));
}

fn logged(array: &Array, members: &mut [Vec<u8>], holders: &[u8]) {
    for member in holders {
        let blocks: &[_] = if *member == 0 { &[(0, 0, 0x12)] } else { &[(2, 0, 0x33)] };
        log(array, members, *member, 0, &[with_blocks(&update(), blocks)]);
    }
}

fn open(members: Vec<Vec<u8>>) -> Salvage<Vec<u8>> {
    Salvage::open(members, &Choices::default()).expect("an array")
}

fn read(salvage: &Salvage<Vec<u8>>, number: u64) -> (u8, How) {
    let found = salvage.read_block(number).expect("readable");
    assert!(found.bytes == block(found.bytes[0]), "block {number} is mixed");
    (found.bytes[0], found.how)
}

#[test]
fn a_record_that_all_holders_have_is_read_from_the_log() {
    let (array, mut members) = crashed();
    logged(&array, &mut members, &[0, 2]);
    // What lies in place was torn by the crash.
    put(&mut members[0], DATA, &[0xEE; 2048]);
    let salvage = open(members.clone());
    assert_eq!((salvage.log().batches, salvage.log().complete), (2, 1));
    assert_eq!(read(&salvage, 0), (0x12, How::FromLog));
    assert_eq!(read(&salvage, 1), (0x11, How::Direct));
    assert_eq!(read(&salvage, 2), (0x21, How::Direct));
    let mut strip = vec![0; STRIP];
    assert_eq!(salvage.read_strip(0, 0, &mut strip), [Ok(How::FromLog), Ok(How::Direct)]);
    assert!(strip == [block(0x12), block(0x11)].concat());
    assert!(salvage.check_stripe(0).agrees());
    // D1 is lost: the new D0 and the new P say what it was.
    members.remove(1);
    assert_eq!(read(&open(members), 2), (0x21, How::Reconstructed));
}

#[test]
fn a_record_that_a_holder_lacks_is_dropped() {
    for holder in [0, 2] {
        let (array, mut members) = crashed();
        logged(&array, &mut members, &[holder]);
        let salvage = open(members);
        assert_eq!((salvage.log().complete, salvage.log().dropped), (0, 1));
        assert_eq!(read(&salvage, 0), (0x11, How::Direct));
    }
}

#[test]
fn a_holder_that_is_gone_need_not_have_the_record() {
    let (array, mut members) = crashed();
    logged(&array, &mut members, &[2]);
    // Member 0 is not here: its new block follows from the others.
    members.remove(0);
    assert_eq!(read(&open(members), 0), (0x12, How::Reconstructed));
    // Member 2 was out before the crash.
    let (mut array, _) = crashed();
    array.entries[2] = Entry { role: OUT, out_since: 9, ..array.entries[2] };
    let (_, mut members) = crashed();
    for member in 0..3 {
        let superblock = array.superblock(member);
        put(&mut members[usize::from(member)], 0, &superblock);
        put(&mut members[usize::from(member)], 64 << 10, &superblock);
        let end = members[0].len();
        put(&mut members[usize::from(member)], end - (128 << 10), &superblock);
        put(&mut members[usize::from(member)], end - (64 << 10), &superblock);
    }
    logged(&array, &mut members, &[0]);
    assert_eq!(read(&open(members), 0), (0x12, How::FromLog));
}

#[test]
fn a_holder_whose_log_was_overwritten_is_not_believed_about_the_rows_of_a_complete_record() {
    let (array, mut members) = crashed();
    logged(&array, &mut members, &[2]);
    // Everything before the data of member 0 was wiped; its superblock is at its end.
    members[0][..LOG + 4096].fill(0);
    let salvage = open(members);
    assert_eq!(salvage.log().unreadable_images, [0]);
    assert_eq!(read(&salvage, 0), (0x12, How::Reconstructed));
    assert_eq!(read(&salvage, 1), (0x11, How::Direct));
}

#[test]
fn settled_updates_and_other_starts_are_skipped() {
    let (array, members) = crashed();
    let settled = |below: u64, array: &Array| {
        let mut members = members.clone();
        logged(array, &mut members, &[0, 2]);
        put(&mut members[1], LOG + 8192, &array.batch(1, below, &[]));
        read(&open(members), 0)
    };
    assert_eq!(settled(5, &array), (0x12, How::FromLog));
    assert_eq!(settled(6, &array), (0x11, How::Direct));
    let before = Array { incarnation: 0x80, ..array.clone() };
    assert_eq!(settled(1, &before), (0x11, How::Direct));
    // A clean stop leaves nothing to do.
    let clean = Array { unclean: false, ..array };
    let mut members: Vec<Vec<u8>> = (0..3).map(|slot| clean.member(slot, &[0])).collect();
    logged(&clean, &mut members, &[0, 2]);
    assert_eq!(read(&open(members), 0), (0, How::Direct));
}

#[test]
fn the_later_of_two_updates_counts() {
    let (array, mut members) = crashed();
    let later = Record { sequence: 6, ..update() };
    log(&array, &mut members, 0, 0, &[with_blocks(&later, &[(0, 0, 0x14)])]);
    log(&array, &mut members, 2, 0, &[with_blocks(&later, &[(2, 0, 0x35)])]);
    for (member, block) in [(0, (0, 0, 0x12)), (2, (2, 0, 0x33))] {
        log(&array, &mut members, member, 16 << 10, &[with_blocks(&update(), &[block])]);
    }
    let salvage = open(members);
    assert_eq!((salvage.log().complete, read(&salvage, 0)), (2, (0x14, How::FromLog)));
    assert!(salvage.check_stripe(0).agrees());
}

#[test]
fn rows_in_doubt_outdate_older_records_and_lend_no_certainty() {
    let (array, mut members) = crashed();
    logged(&array, &mut members, &[0, 2]);
    let holders = vec![(0, 0), (1, 1), (2, 2)];
    let doubt = Record { sequence: 6, kind: 2, rows: (0, 1), holders, ..update() };
    for member in 0..3 {
        log(&array, &mut members, member, 16 << 10, std::slice::from_ref(&doubt));
    }
    let salvage = open(members.clone());
    assert_eq!(read(&salvage, 0), (0x11, How::Direct));
    let check = salvage.check_stripe(0);
    assert_eq!((check.rows_in_doubt, check.rows_compared), (1, 1));
    members.remove(0);
    let salvage = open(members);
    assert_eq!(read(&salvage, 0), (0x11, How::InDoubt));
    assert_eq!(read(&salvage, 1), (0x11, How::Reconstructed));
}

#[test]
fn a_torn_batch_and_an_unwritten_stripe_change_nothing() {
    let (array, mut members) = crashed();
    logged(&array, &mut members, &[0, 2]);
    members[2][LOG + 5000] ^= 1;
    assert_eq!(read(&open(members), 0), (0x11, How::Direct));
    let (array, mut members) = crashed();
    let elsewhere = Record { stripe: 4, ..update() };
    log(&array, &mut members, 0, 0, &[with_blocks(&elsewhere, &[(0, 0, 0x12)])]);
    log(&array, &mut members, 2, 0, &[with_blocks(&elsewhere, &[(2, 0, 0x33)])]);
    let salvage = open(members);
    assert_eq!((salvage.log().complete, read(&salvage, 16)), (0, (0, How::Unwritten)));
}

#[test]
fn the_write_intent_bitmap_raises_doubt_only_if_the_superblock_says_so() {
    for (resync_dirty, how) in [(false, How::Reconstructed), (true, How::InDoubt)] {
        let array = Array { resync_dirty, ..crashed().0 };
        let mut members: Vec<Vec<u8>> = (1..3).map(|slot| array.member(slot, &[0])).collect();
        for member in &mut members {
            put(member, INTENT, &array.page(*b"AWIB", 1, &[0]));
        }
        assert_eq!(read(&open(members), 0), (0, how));
    }
}

/// The same update with a parity-only record, when `found` lies in the place of its block.
fn parity_only(found: u8) -> (Array, Vec<Vec<u8>>) {
    let (array, mut members) = crashed();
    let (holders, change) = (vec![(2, 2)], Some((0, 0x11, 0x12)));
    let record = Record { kind: 4, holders, change, ..with_blocks(&update(), &[(2, 0, 0x33)]) };
    log(&array, &mut members, 2, 0, &[record]);
    put(&mut members[0], DATA, &block(found));
    (array, members)
}

#[test]
fn a_parity_only_record_counts_if_its_block_is_the_new_one() {
    let (_, mut members) = parity_only(0x12);
    let salvage = open(members.clone());
    assert_eq!((salvage.log().complete, salvage.log().dropped), (1, 0));
    assert_eq!(read(&salvage, 0), (0x12, How::Direct));
    members.remove(1);
    assert_eq!(read(&open(members), 2), (0x21, How::Reconstructed));
}

#[test]
fn a_parity_only_record_is_dropped_if_its_block_is_the_old_one() {
    let (_, mut members) = parity_only(0x11);
    let salvage = open(members.clone());
    assert_eq!((salvage.log().complete, salvage.log().dropped), (0, 1));
    assert_eq!(read(&salvage, 0), (0x11, How::Direct));
    members.remove(1);
    assert_eq!(read(&open(members), 2), (0x21, How::Reconstructed));
}

#[test]
fn a_block_that_a_parity_only_record_does_not_know_or_that_is_lost_follows_from_the_others() {
    let (_, mut members) = parity_only(0xEE);
    assert_eq!(read(&open(members.clone()), 0), (0x12, How::Reconstructed));
    members.remove(0);
    assert_eq!(read(&open(members), 0), (0x12, How::Reconstructed));
}

#[test]
fn a_later_record_of_the_row_tells_that_the_block_of_a_parity_only_one_became_another() {
    let (array, mut members) = parity_only(0x13);
    let later = Record { sequence: 6, holders: vec![(2, 2)], ..update() };
    let later = with_blocks(&later, &[(2, 0, 0x32)]);
    log(&array, &mut members, 2, 8192, &[later]);
    let salvage = open(members);
    assert_eq!((salvage.log().complete, read(&salvage, 0)), (2, (0x13, How::Direct)));
}

/// Updates 5, 6, 7 and 8, each with a batch of its own on members 0 and 2: 5 and 6 of block 0, the
/// others of block 1. All were in place when the array crashed. The batches of member 0 say what is
/// settled, and each is in its log if `is_here`.
fn four_batches(settled_below: u64, is_here: impl Fn(u64) -> bool) -> Salvage<Vec<u8>> {
    let (array, mut members) = crashed();
    put(&mut members[0], DATA, &[block(0x14), block(0x18)].concat());
    put(&mut members[2], DATA, &[block(0x35), block(0x39)].concat());
    let updates = [(5, 0, 0x12, 0x33), (6, 0, 0x14, 0x35), (7, 1, 0x16, 0x37), (8, 1, 0x18, 0x39)];
    for (number, (sequence, row, data, parity)) in (1..).zip(updates) {
        let record = Record { sequence, rows: (row, 1), ..update() };
        for (member, content) in [(0, (0, row, data)), (2, (2, row, parity))] {
            let at = LOG + usize::try_from(number).expect("few") * (16 << 10) - (16 << 10);
            let settled = if member == 0 { settled_below } else { 1 };
            let batch = array.batch(member, settled, &[with_blocks(&record, &[content])]);
            let batch = numbered(batch, number);
            if member != 0 || is_here(number) {
                put(&mut members[usize::from(member)], at, &batch);
            }
        }
    }
    open(members)
}

/// A batch that was whole is damaged: its update looked as if it had never been complete, and the
/// one before it was read in its place, though what came later was in place and flushed.
#[test]
fn a_log_that_lacks_a_batch_which_it_had_is_not_believed() {
    let whole = four_batches(1, |_| true);
    assert_eq!((whole.log().unreadable_images.len(), whole.log().complete), (0, 4));
    assert_eq!(read(&whole, 0), (0x14, How::FromLog));
    let salvage = four_batches(1, |number| number != 2);
    assert_eq!(salvage.log().unreadable_images, [0]);
    assert_eq!(salvage.log().complete, 4, "as the other member has them");
    assert_eq!(read(&salvage, 0), (0x14, How::Reconstructed));
    assert_eq!(read(&salvage, 1), (0x18, How::Reconstructed));
    assert_eq!(read(&salvage, 2), (0x21, How::Direct));
}

#[test]
fn what_a_crash_and_space_that_is_used_again_leave_of_a_log_is_believed() {
    let believed = |settled_below, wanted: &[u64]| {
        let salvage = four_batches(settled_below, |number| wanted.contains(&number));
        assert_eq!(salvage.log().unreadable_images.len(), 0, "{wanted:?}");
    };
    believed(1, &[]);
    believed(1, &[4]);
    believed(1, &[3, 4]);
    believed(1, &[1, 2]);
    // 3 was under way beside 4.
    believed(1, &[1, 2, 4]);
    // All but the newest is settled, and 2 and 3 were overwritten.
    believed(8, &[1, 4]);
    for settled_below in [1, 5] {
        let salvage = four_batches(settled_below, |number| [1, 4].contains(&number));
        assert_eq!(salvage.log().unreadable_images, [0]);
    }
}
