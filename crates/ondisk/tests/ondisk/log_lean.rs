//! Lean records: how they are encoded, and what a restart makes of them by what it finds in the
//! place of their block.

use ashlar_layout::RowRange;
use ashlar_ondisk::log::{
    Batch, BatchEncoder, BatchFault, DeviceLog, Found, FoundBlock, Holder, Home, HomeBlock,
    Judgement, LaneSummary, LoggedRecord, LostBlock, MemberLog, NewRecord, Part, Record,
    RecordKind, homes, judge,
};
use ashlar_units::{MemberIdx, StripIdx, StripeNo};

use crate::log::{block, holder, identity, limits, part};
use crate::samples::geometry;
use crate::superblock::reseal;

const BLOCK: usize = 4096;
const HOME: Home = Home { strip: StripIdx(1), old: 0x0102_0304, new: 0x0506_0708 };
/// A third content.
const NEITHER: u32 = 9;
const ROW: RowRange = RowRange { start: 3, end: 4 };
/// Where the record's home lies: behind 24 bytes, two holders, one part.
const HOME_AT: usize = 72 + 24 + 2 * 10 + 6;

/// A batch on the device of the first parity of an array of 4+2.
fn lean_batch() -> Vec<u8> {
    let holders = [holder(7, 4), holder(9, 5)];
    let parts = [part(4, 3, 4)];
    let (stripe, kind) = (StripeNo(14), RecordKind::Lean(HOME));
    let record =
        NewRecord { sequence: 40, stripe, kind, rows: ROW, holders: &holders, parts: &parts };
    let mut bytes = vec![0; 2 * BLOCK];
    let mut encoder = BatchEncoder::new(&mut bytes, BLOCK, identity(7));
    assert!(encoder.fits(kind, (2, 1), 1));
    encoder.push(&record, [&block(3)[..]]);
    assert_eq!(encoder.finish(3, 1000, 38), 2 * BLOCK);
    bytes
}

#[test]
fn a_lean_record_comes_back_with_its_home() {
    let batch = Batch::decode(&lean_batch(), &limits()).expect("whole");
    let [record] = &batch.records[..] else { panic!("one record") };
    assert_eq!((record.kind, record.rows), (RecordKind::Lean(HOME), ROW));
    assert_eq!(record.placed_parts().collect::<Vec<_>>(), [(part(4, 3, 4), 4096)]);
}

#[test]
fn impossible_homes_are_named_although_the_checksum_is_right() {
    type Change = fn(&mut [u8]);
    let cases: [(&str, Change); 6] = [
        ("home.strip", |b| b[HOME_AT] = 6),
        ("reserved", |b| b[HOME_AT + 1] = 1),
        ("home.new_checksum", |b| b.copy_within(HOME_AT + 4..HOME_AT + 8, HOME_AT + 8)),
        ("row_count", |b| b[72 + 18] = 2),
        ("holders.strip", |b| b[HOME_AT] = 5),
        // Without its part there is something else where the home should be.
        ("reserved", |b| b[72 + 22] = 0),
    ];
    for (name, change) in cases {
        let mut bytes = lean_batch();
        change(&mut bytes);
        reseal(&mut bytes);
        assert_eq!(Batch::decode(&bytes, &limits()), Err(BatchFault::Field { name }));
    }
}

/// What is found in the place of every block.
struct Finds(FoundBlock);

impl Found for Finds {
    fn is_written(&self, _: StripeNo) -> bool {
        true
    }

    fn block(&self, block: HomeBlock) -> FoundBlock {
        assert_eq!(block, HomeBlock { stripe: StripeNo(0), strip: HOME.strip, row: 3 });
        self.0
    }
}

/// An update of stripe 0 of an array of 2+2: its kind, and the strips that hold it.
type Update<'a> = (RecordKind, &'a [u8]);

/// Strip and row of each block that is to be written, with the update it is from, and what else is
/// to be done.
type Verdict = (Vec<(u8, u64)>, Judgement);

/// Judge updates 1, 2 and so on; the devices of `lacking` have none of the last.
fn judged(updates: &[Update<'_>], lacking: &[u8], found: FoundBlock) -> Verdict {
    let geometry = geometry(2, 2, 1).to_layout().expect("an array");
    let strip_of = |slot: u16| {
        geometry.strip_on(geometry.stripe(StripeNo(0)), MemberIdx(slot)).expect("a strip").0
    };
    let record = |(at, (kind, strips)): (usize, &Update<'_>), own: u8| {
        let sequence = at as u64 + 1;
        let name = |strip: &u8| Holder {
            log_tag: 100 + u64::from(*strip),
            strip: StripIdx(*strip),
            is_filled: false,
        };
        let record = Record {
            sequence,
            stripe: StripeNo(0),
            kind: *kind,
            rows: ROW,
            holders: strips.iter().map(name).collect(),
            parts: Box::new([Part { strip: StripIdx(own), rows: ROW }]),
            payload_offset: 4096,
        };
        let lacks = at + 1 == updates.len() && lacking.contains(&own);
        let holds = strips.contains(&own) && !lacks;
        holds.then_some(LoggedRecord { lane: 3, batch_offset: sequence << 20, record })
    };
    let log = |slot: u16| MemberLog {
        lanes: [(3, LaneSummary::default())].into(),
        records: updates
            .iter()
            .enumerate()
            .filter_map(|update| record(update, strip_of(slot)))
            .collect(),
        ..MemberLog::default()
    };
    let logs: Vec<(u16, MemberLog)> = (0..4).map(|slot| (slot, log(slot))).collect();
    let mut devices: Vec<DeviceLog<'_>> = Vec::new();
    for (slot, log) in &logs {
        let is_lean = |update: &Update<'_>| update.0.home().is_some();
        assert!(homes(log).count() <= updates.iter().filter(|update| is_lean(update)).count());
        let log_tag = 100 + u64::from(strip_of(*slot));
        devices.push(DeviceLog { log_tag, slot: MemberIdx(*slot), log });
    }
    let judgement = judge(&devices, &geometry, &Finds(found)).expect("no contradiction");
    let writes = judgement.stripes.iter().flat_map(|replay| &replay.writes);
    let mut writes: Vec<(u8, u64)> =
        writes.map(|write| (write.strip.0, write.log_offset >> 20)).collect();
    writes.sort_unstable();
    (writes, judgement)
}

const LEAN: Update<'static> = (RecordKind::Lean(HOME), &[2, 3]);

fn lost(judgement: &Judgement) -> Vec<LostBlock> {
    judgement.stripes.iter().flat_map(|replay| replay.lost.clone()).collect()
}

#[test]
fn parity_of_a_lean_update_is_written_unless_its_block_is_the_old_one() {
    let both = vec![(2, 1), (3, 1)];
    for found in [FoundBlock::Gone, FoundBlock::Holds(HOME.new)] {
        let (writes, judgement) = judged(&[LEAN], &[], found);
        assert_eq!((writes, judgement.tally.rolled_forward), (both.clone(), 1), "{found:?}");
        assert_eq!(lost(&judgement), [], "{found:?}");
    }
    let (writes, judgement) = judged(&[LEAN], &[], FoundBlock::Holds(HOME.old));
    assert_eq!((writes, judgement.tally.dropped, lost(&judgement)), (vec![], 1, vec![]));
}

#[test]
fn a_block_that_is_neither_or_cannot_be_read_is_computed_anew() {
    for (found, is_readable) in
        [(FoundBlock::Holds(NEITHER), true), (FoundBlock::Unreadable, false)]
    {
        let (writes, judgement) = judged(&[LEAN], &[], found);
        assert_eq!(writes, [(2, 1), (3, 1)], "{found:?}");
        assert_eq!(lost(&judgement), [LostBlock { row: 3, home: HOME, is_readable }]);
    }
}

#[test]
fn a_lean_update_that_one_holder_lacks_is_dropped_whatever_is_found() {
    for found in [FoundBlock::Holds(HOME.old), FoundBlock::Unreadable, FoundBlock::Gone] {
        let (writes, judgement) = judged(&[LEAN], &[3], found);
        assert_eq!((writes, judgement.tally.dropped, lost(&judgement)), (vec![], 1, vec![]));
    }
}

/// Its block may have become another while its device was out: of that only parity was written.
#[test]
fn nothing_is_asked_of_a_lean_update_under_a_later_one_of_its_row() {
    let later: Update<'_> = (RecordKind::Full, &[2, 3]);
    for found in [FoundBlock::Holds(NEITHER), FoundBlock::Holds(HOME.old), FoundBlock::Unreadable] {
        let (writes, judgement) = judged(&[LEAN, later], &[], found);
        assert_eq!((writes, lost(&judgement)), (vec![(2, 2), (3, 2)], vec![]), "{found:?}");
        let (writes, judgement) = judged(&[LEAN, LEAN], &[], FoundBlock::Holds(HOME.old));
        assert_eq!((writes, judgement.tally.dropped), (vec![(2, 1), (3, 1)], 1));
    }
}

#[test]
fn an_older_copy_is_not_written_over_the_block_of_a_lean_update() {
    let older: Update<'_> = (RecordKind::Full, &[1, 2, 3]);
    let (writes, _) = judged(&[older, LEAN], &[], FoundBlock::Holds(HOME.new));
    assert_eq!(writes, [(2, 2), (3, 2)]);
    // The lean one came to nothing: its block is that of the older one, or the older one is under
    // way.
    let (writes, _) = judged(&[older, LEAN], &[2], FoundBlock::Holds(HOME.old));
    assert_eq!(writes, [(1, 1), (2, 1), (3, 1)]);
}
