//! Older copies of members: a device that lacks what another member knows to be flushed on it is
//! never believed.

use ashlar_ondisk::assembly::{
    AssemblyRequest, ExtraReason, MemberReading, RefusalKind, SlotState, Start, Verdict, assemble,
};
use ashlar_ondisk::format::FLUSH_MARK_SEQUENCE_END;
use ashlar_ondisk::{Features, FlushMark, MemberEvent, Superblock};

use crate::samples::{array, array_uuid, incarnation, lost, member_uuid, readings, updated};

fn mark(sequence: u64, flushed: u64) -> FlushMark {
    FlushMark { array_uuid: array_uuid(), incarnation: incarnation(1), sequence, flushed }
}

fn with_marks(superblock: Superblock) -> Superblock {
    let mut superblock = superblock;
    superblock.features.compatible |= Features::FLUSH_MARKS;
    superblock
}

/// 4+2, all members with mark 9, which says that 8 is flushed.
fn all() -> Vec<MemberReading> {
    let mut all = readings(&with_marks(array(4, 2, 1)));
    all.iter_mut().for_each(|reading| reading.mark = Some(mark(9, 8)));
    all
}

fn judge(readings: &[MemberReading]) -> Verdict {
    assemble(readings, &AssemblyRequest::default())
}

fn older(has: u64) -> Option<ExtraReason> {
    Some(ExtraReason::Older { has, flushed: 8 })
}

#[test]
fn a_member_that_lacks_what_another_knows_to_be_flushed_is_not_believed() {
    for (its, has) in [(Some(mark(7, 6)), 7), (Some(mark(1, 0)), 1), (None, 0)] {
        let mut all = all();
        all[3].mark = its;
        let verdict = judge(&all);
        assert_eq!(verdict.start, Start::Degraded);
        assert_eq!(verdict.slots[3].state, SlotState::Missing);
        assert_eq!(verdict.extra(3), older(has));
        assert_eq!((verdict.flushed, verdict.newest_mark), (8, 9));
    }
}

#[test]
fn a_member_that_a_crash_left_with_the_flushed_mark_is_believed() {
    let mut all = all();
    all[0].mark = Some(mark(8, 5));
    // Nor does what is newer anywhere count before somebody calls it flushed.
    all[1].mark = Some(mark(12, 8));
    assert_eq!(judge(&all).start, Start::Whole);
}

#[test]
fn one_that_knows_is_enough() {
    let mut all = all();
    all.iter_mut().skip(1).for_each(|reading| reading.mark = Some(mark(7, 6)));
    all.truncate(3);
    let verdict = judge(&all);
    let refusal = verdict.refusal().expect("five of six cannot be believed");
    assert_eq!(refusal.kind, RefusalKind::TooManyMissing);
    assert!(refusal.line.contains("/dev/slot1 is an older copy of it"), "{}", refusal.line);
    assert!(!refusal.line.contains("/dev/slot0"), "{}", refusal.line);
    assert!(refusal.line.contains("--slot 1=/dev/slot1 --slot 2=/dev/slot2`"), "{}", refusal.line);
}

/// The older copy may even have a generation less: the array was stopped, or a member went out,
/// since it was made.
#[test]
fn a_generation_less_is_no_excuse() {
    let mut all = all();
    let newer = with_marks(updated(&array(4, 2, 1)));
    for (at, reading) in readings(&newer).into_iter().enumerate().skip(1) {
        all[at] = MemberReading { mark: Some(mark(9, 8)), ..reading };
    }
    assert_eq!(judge(&all).start, Start::Whole, "a crash in the middle of the update");
    all[0].mark = Some(mark(7, 6));
    assert_eq!(judge(&all).extra(0), older(7));
}

#[test]
fn without_parity_an_older_copy_means_no_start() {
    let mut all = readings(&with_marks(array(3, 0, 1)));
    all.iter_mut().for_each(|reading| reading.mark = Some(mark(9, 8)));
    all[2].mark = Some(mark(7, 6));
    assert_eq!(judge(&all).refusal().map(|it| it.kind), Some(RefusalKind::TooManyMissing));
}

#[test]
fn a_device_that_is_being_filled_is_held_to_the_same() {
    let mut superblock = with_marks(lost(&array(4, 2, 1), &[2]));
    superblock.generation += 1;
    superblock.record(member_uuid(2), MemberEvent::Readded).expect("it is out");
    let mut all = readings(&superblock);
    all.iter_mut().for_each(|reading| reading.mark = Some(mark(9, 8)));
    assert!(
        judge(&all).slots[2]
            .joining_device
            .is_some_and(|joining_device| joining_device.reading == Some(2))
    );
    all[2].mark = Some(mark(7, 6));
    assert!(
        judge(&all).slots[2]
            .joining_device
            .is_some_and(|joining_device| joining_device.reading.is_none())
    );
    assert_eq!(judge(&all).extra(2), older(7));
}

#[test]
fn one_that_is_out_rightly_lacks_what_came_since_and_says_nothing_of_others() {
    let mut all = readings(&with_marks(lost(&array(4, 2, 1), &[2])));
    all.iter_mut().for_each(|reading| reading.mark = Some(mark(9, 8)));
    all[2].mark = Some(mark(3, 2));
    assert_eq!(judge(&all).extra(2), None);
    all[2].mark = Some(mark(50, 49));
    assert_eq!(judge(&all).missing().count(), 1);
}

/// A program that does not know the marks ran it since and took members in that have none.
#[test]
fn marks_count_only_while_the_feature_says_so() {
    let mut all = all();
    let plain = readings(&array(4, 2, 1));
    for (reading, plain) in all.iter_mut().zip(plain) {
        reading.label = plain.label;
    }
    all[3].mark = None;
    let verdict = judge(&all);
    assert_eq!((verdict.start, verdict.flushed, verdict.newest_mark), (Start::Whole, 0, 9));
}

#[test]
fn what_no_engine_says_is_no_mark() {
    let is_read = |mark: FlushMark, change: fn(&mut [u8])| {
        let mut bytes = mark.encode();
        change(&mut bytes);
        let checksum = crc_fast::checksum(
            crc_fast::CrcAlgorithm::Crc32Iscsi,
            &[&bytes[..8], &bytes[12..]].concat(),
        );
        bytes[8..12].copy_from_slice(&u32::try_from(checksum).expect("32 bits").to_le_bytes());
        FlushMark::decode(&bytes).is_some()
    };
    assert!(is_read(mark(9, 8), |_| {}));
    assert!(is_read(mark(FLUSH_MARK_SEQUENCE_END - 1, 0), |_| {}));
    assert!(!is_read(mark(9, 8), |bytes| bytes[56] = 9), "it speaks of an earlier one");
    assert!(!is_read(mark(9, 8), |bytes| bytes[53] = 1), "none gets so far");
    assert!(!is_read(mark(9, 8), |bytes| bytes[4095] = 1), "reserved bytes are zero");
    assert!(FlushMark::decode(&[0; 4096]).is_none());
}
