//! Parity-only records: how they are encoded, and what a restart makes of them by what it finds in
//! the place of their block.

use ashlar_layout::RowRange;
use ashlar_ondisk::log::{
    Batch, BatchEncoder, BatchFault, BlockChange, ChangedBlock, DeviceLog, Found, FoundBlock,
    Holder, Judgement, LogRingSummary, LoggedRecord, LostBlock, MemberLog, NewRecord, Part, Places,
    Record, RecordKind, changed_blocks, judge,
};
use ashlar_units::{MemberIdx, StripIdx, StripeNo};

use crate::log::{block, holder, identity, limits, part};
use crate::samples::geometry;
use crate::superblock::reseal;

const BLOCK: usize = 4096;
const CHANGE: BlockChange = BlockChange { strip: StripIdx(1), old: 0x0102_0304, new: 0x0506_0708 };
/// A third content.
const NEITHER: u32 = 9;
const ROW: RowRange = RowRange { start: 3, end: 4 };
/// Where the record's change lies: behind 24 bytes, two holders, one part.
const CHANGE_AT: usize = 72 + 24 + 2 * 10 + 6;

/// A batch on the device of the first parity of an array of 4+2.
fn parity_only_batch() -> Vec<u8> {
    let holders = [holder(7, 4), holder(9, 5)];
    let parts = [part(4, 3, 4)];
    let (stripe, kind) = (StripeNo(14), RecordKind::ParityOnly(CHANGE));
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
fn a_parity_only_record_comes_back_with_its_change() {
    let batch = Batch::decode(&parity_only_batch(), &limits()).expect("whole");
    let [record] = &batch.records[..] else { panic!("one record") };
    assert_eq!((record.kind, record.rows), (RecordKind::ParityOnly(CHANGE), ROW));
    assert_eq!(record.placed_parts().collect::<Vec<_>>(), [(part(4, 3, 4), 4096)]);
}

#[test]
fn impossible_changes_are_named_although_the_checksum_is_right() {
    type Change = fn(&mut [u8]);
    let cases: [(&str, Change); 6] = [
        ("change.strip", |b| b[CHANGE_AT] = 6),
        ("reserved", |b| b[CHANGE_AT + 1] = 1),
        ("change.new_checksum", |b| b.copy_within(CHANGE_AT + 4..CHANGE_AT + 8, CHANGE_AT + 8)),
        ("row_count", |b| b[72 + 18] = 2),
        ("holders.strip", |b| b[CHANGE_AT] = 5),
        // Without its part there is something else where the change should be.
        ("reserved", |b| b[72 + 22] = 0),
    ];
    for (name, change) in cases {
        let mut bytes = parity_only_batch();
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

    fn block(&self, block: ChangedBlock) -> FoundBlock {
        assert_eq!(block, ChangedBlock { stripe: StripeNo(0), strip: CHANGE.strip, row: 3 });
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
        holds.then_some(LoggedRecord { log_ring: 3, batch_offset: sequence << 20, record })
    };
    let log = |slot: u16| MemberLog {
        log_rings: [(3, LogRingSummary::default())].into(),
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
        let is_parity_only = |update: &Update<'_>| update.0.change().is_some();
        assert!(
            changed_blocks(log).count()
                <= updates.iter().filter(|update| is_parity_only(update)).count()
        );
        let log_tag = 100 + u64::from(strip_of(*slot));
        devices.push(DeviceLog { log_tag, slot: MemberIdx(*slot), log, may_lack: false });
    }
    let judgement =
        judge(&devices, Places::Fixed(&geometry), &Finds(found)).expect("no contradiction");
    let writes = judgement.stripes.iter().flat_map(|replay| &replay.writes);
    let mut writes: Vec<(u8, u64)> =
        writes.map(|write| (write.strip.0, write.log_offset >> 20)).collect();
    writes.sort_unstable();
    (writes, judgement)
}

const PARITY_ONLY: Update<'static> = (RecordKind::ParityOnly(CHANGE), &[2, 3]);

fn lost(judgement: &Judgement) -> Vec<LostBlock> {
    judgement.stripes.iter().flat_map(|replay| replay.lost.clone()).collect()
}

#[test]
fn parity_of_a_parity_only_update_is_written_unless_its_block_is_the_old_one() {
    let both = vec![(2, 1), (3, 1)];
    for found in [FoundBlock::Gone, FoundBlock::Holds(CHANGE.new)] {
        let (writes, judgement) = judged(&[PARITY_ONLY], &[], found);
        assert_eq!((writes, judgement.tally.rolled_forward), (both.clone(), 1), "{found:?}");
        assert_eq!(lost(&judgement), [], "{found:?}");
    }
    let (writes, judgement) = judged(&[PARITY_ONLY], &[], FoundBlock::Holds(CHANGE.old));
    assert_eq!((writes, judgement.tally.dropped, lost(&judgement)), (vec![], 1, vec![]));
}

#[test]
fn a_block_that_is_neither_or_cannot_be_read_is_computed_anew() {
    for (found, is_readable) in
        [(FoundBlock::Holds(NEITHER), true), (FoundBlock::Unreadable, false)]
    {
        let (writes, judgement) = judged(&[PARITY_ONLY], &[], found);
        assert_eq!(writes, [(2, 1), (3, 1)], "{found:?}");
        assert_eq!(lost(&judgement), [LostBlock { row: 3, change: CHANGE, is_readable }]);
    }
}

#[test]
fn a_parity_only_update_that_one_holder_lacks_is_dropped_whatever_is_found() {
    for found in [FoundBlock::Holds(CHANGE.old), FoundBlock::Unreadable, FoundBlock::Gone] {
        let (writes, judgement) = judged(&[PARITY_ONLY], &[3], found);
        assert_eq!((writes, judgement.tally.dropped, lost(&judgement)), (vec![], 1, vec![]));
    }
}

/// Its block may have become another while its device was out: of that only parity was written.
#[test]
fn nothing_is_asked_of_a_parity_only_update_under_a_later_one_of_its_row() {
    let later: Update<'_> = (RecordKind::Full, &[2, 3]);
    for found in [FoundBlock::Holds(NEITHER), FoundBlock::Holds(CHANGE.old), FoundBlock::Unreadable]
    {
        let (writes, judgement) = judged(&[PARITY_ONLY, later], &[], found);
        assert_eq!((writes, lost(&judgement)), (vec![(2, 2), (3, 2)], vec![]), "{found:?}");
        let (writes, judgement) =
            judged(&[PARITY_ONLY, PARITY_ONLY], &[], FoundBlock::Holds(CHANGE.old));
        assert_eq!((writes, judgement.tally.dropped), (vec![(2, 1), (3, 1)], 1));
    }
}

#[test]
fn an_older_copy_is_not_written_over_the_block_of_a_parity_only_update() {
    let older: Update<'_> = (RecordKind::Full, &[1, 2, 3]);
    let (writes, _) = judged(&[older, PARITY_ONLY], &[], FoundBlock::Holds(CHANGE.new));
    assert_eq!(writes, [(2, 2), (3, 2)]);
    // The parity-only one came to nothing: its block is that of the older one, or the older one is
    // under way.
    let (writes, _) = judged(&[older, PARITY_ONLY], &[2], FoundBlock::Holds(CHANGE.old));
    assert_eq!(writes, [(1, 1), (2, 1), (3, 1)]);
}
