//! Finding batches in a log area, whatever else lies there.

use ashlar_layout::RowRange;
use ashlar_model::chance::Chance;
use ashlar_ondisk::log::{
    Batch, BatchEncoder, LogHole, LogIdentity, LogScan, MemberLog, NewRecord, RecordKind,
};
use ashlar_units::{StripeNo, to_u64, to_usize};
use proptest::prelude::{ProptestConfig, any, proptest};

use crate::log::{block, holder, identity, limits, part, three_records};
use crate::samples::incarnation;

const BLOCK: usize = 4096;

fn scan(area: &[u8], of: LogIdentity) -> MemberLog {
    scan_with(area, LogScan::new(of, limits(), to_u64(area.len())))
}

fn scan_with(area: &[u8], mut scan: LogScan) -> MemberLog {
    let mut reads = 0;
    while let Some(wanted) = scan.wanted() {
        scan.take(&area[to_usize(wanted.offset)..to_usize(wanted.end())]);
        reads += 1;
        assert!(reads < 10 * (1 + area.len() / (1 << 20)), "it comes to an end");
    }
    scan.finish()
}

/// A batch of one update with `blocks` blocks, written to `area` at block `at`; blocks it took.
fn put(area: &mut [u8], at: usize, (of, sequence, blocks): (LogIdentity, u64, u32)) -> usize {
    let holders = [holder(of.log_tag, 4)];
    let record = |rows: RowRange| NewRecord {
        sequence,
        stripe: StripeNo(3),
        kind: RecordKind::Full,
        rows,
        holders: &holders,
        parts: &[],
    };
    let mut encoder = BatchEncoder::new(&mut area[at * BLOCK..], BLOCK, of);
    // A strip has 16 rows here: more blocks are more records.
    let mut left = blocks;
    while left > 0 {
        let rows = RowRange::new(0, left.min(16));
        let parts = [part(4, 0, rows.end)];
        let payload = block(9);
        let pieces = (0..rows.end).map(|_| &payload[..]);
        encoder.push(&NewRecord { parts: &parts, ..record(rows) }, pieces);
        left -= rows.end;
    }
    encoder.finish(u16::try_from(sequence % 3).expect("small"), sequence, 0) / BLOCK
}

fn junk(chance: &mut Chance, area: &mut [u8]) {
    for bytes in area.chunks_exact_mut(8) {
        bytes.copy_from_slice(&chance.bits().to_le_bytes());
    }
}

/// What a reader with the whole area in memory finds: at each place a batch of ours, or one block
/// further.
fn places(area: &[u8], of: LogIdentity) -> Vec<u64> {
    let (mut at, mut found) = (0, Vec::new());
    while at < area.len() {
        match Batch::decode(&area[at..], &limits()) {
            Ok(batch) if batch.head.identity == of => {
                found.push(to_u64(at));
                at += to_usize(batch.bytes);
            }
            _ => at += BLOCK,
        }
    }
    found
}

fn found(log: &MemberLog) -> Vec<u64> {
    let mut offsets: Vec<u64> = log.records.iter().map(|logged| logged.batch_offset).collect();
    offsets.dedup();
    offsets
}

#[test]
fn batches_are_found_among_junk_over_the_ends_of_pieces() {
    for seed in 0..40 {
        let mut chance = Chance(seed);
        let mut area = vec![0; (600 + chance.below(600)) * BLOCK];
        if chance.percent(50) {
            junk(&mut chance, &mut area);
        }
        let mut at = 0;
        for sequence in 1.. {
            at += chance.below(30);
            let blocks = 1 + chance.below(200);
            if at + blocks + 1 > area.len() / BLOCK {
                break;
            }
            let kind = chance.below(5);
            let stranger = LogIdentity { incarnation: incarnation(1), ..identity(7) };
            let of = [identity(7), identity(7), identity(7), identity(8), stranger][kind];
            let count = u32::try_from(blocks).expect("small");
            let took = put(&mut area, at, (of, sequence, count));
            if chance.percent(30) {
                // Torn: a sector of it never came.
                let sector = at * 8 + chance.below(took * 8);
                junk(&mut chance, &mut area[sector * 512..][..512]);
            }
            // What follows may lie in what is torn, or overwrite the end of what was there.
            at += if chance.percent(20) { 1 + chance.below(took) } else { took };
        }
        let log = scan(&area, identity(7));
        let wanted = places(&area, identity(7));
        assert!(!wanted.is_empty(), "seed {seed}");
        assert_eq!(found(&log), wanted, "seed {seed}");
        assert_eq!(log.fault, None);
    }
}

#[test]
fn a_torn_batch_does_not_hide_a_whole_one_that_lies_before_the_piece_at_hand() {
    let mut area = vec![0; 1200 * BLOCK];
    put(&mut area, 250, (identity(7), 1, 900));
    put(&mut area, 252, (identity(7), 2, 1));
    let log = scan(&area, identity(7));
    assert_eq!(found(&log), [252 * 4096]);
    assert_eq!(log.log_rings[&2].batches, 1);
}

#[test]
fn records_of_other_devices_and_starts_never_count_but_can_be_counted() {
    let mut area = vec![0; 64 * BLOCK];
    let old = LogIdentity { incarnation: incarnation(1), ..identity(7) };
    let foreign = LogIdentity { array_tag: 5, ..identity(7) };
    let mut at = 0;
    for (number, of) in [old, identity(8), foreign, identity(7)].into_iter().enumerate() {
        at += put(&mut area, at, (of, 1 + to_u64(number), 3));
    }
    let log = scan(&area, identity(7));
    assert_eq!(found(&log), [12 * 4096]);
    assert_eq!((log.other_batches, log.records[0].record.sequence), (0, 4));
    let all = LogScan::new(identity(7), limits(), to_u64(area.len())).counting_others();
    let log = scan_with(&area, all);
    assert_eq!((found(&log), log.other_batches, log.other_records), (vec![12 * 4096], 2, 2));
}

#[test]
fn what_the_device_calls_settled_is_left_out_in_any_order_of_places() {
    let mut area = vec![0; 64 * BLOCK];
    let length = three_records(&mut area[8 * BLOCK..]);
    BatchEncoder::new(&mut area[20 * BLOCK..], BLOCK, identity(7)).finish(3, 1001, 42);
    let log = scan(&area, identity(7));
    assert_eq!(log.records.iter().map(|logged| logged.record.sequence).collect::<Vec<_>>(), [42]);
    let parts: Vec<_> = log.records[0].placed_parts().collect();
    assert_eq!(parts, [(part(4, 15, 16), to_u64(8 * BLOCK + length - BLOCK))]);
    let log_ring = log.log_rings[&3];
    assert_eq!((log_ring.batches, log_ring.records, log_ring.newest_batch), (2, 3, 1001));
    assert_eq!((log_ring.settled_below, log_ring.bytes), (42, to_u64(length + BLOCK)));
    // The other way round in the area: the word comes before the records.
    area.copy_within(20 * BLOCK..21 * BLOCK, 0);
    assert_eq!(scan(&area, identity(7)).records.len(), 1);
}

/// An area with batches of log ring 0 that have one update each, by their number, and say what is
/// settled.
fn log_ring(batches: &[(u64, u64)]) -> Vec<u8> {
    let mut area = vec![0; 64 * BLOCK];
    let holders = [holder(7, 4)];
    for (at, (number, settled)) in batches.iter().enumerate() {
        let mut encoder = BatchEncoder::new(&mut area[2 * at * BLOCK..], BLOCK, identity(7));
        let (sequence, rows) = (number.saturating_add(100), RowRange::new(0, 1));
        let (stripe, kind, parts) = (StripeNo(3), RecordKind::Full, [part(4, 0, 1)]);
        let record = NewRecord { sequence, stripe, kind, rows, holders: &holders, parts: &parts };
        encoder.push(&record, [&block(9)[..]]);
        encoder.finish(0, *number, *settled);
    }
    area
}

/// Member set 305871. One flipped bit in an older batch of one member made the record of the last
/// write incomplete. It was dropped, and the write before it was rolled forward over what was in
/// place and flushed.
#[test]
fn a_batch_that_must_have_been_whole_and_is_not_is_a_hole() {
    let hole = |batches: &[(u64, u64)]| scan(&log_ring(batches), identity(7)).hole;
    assert_eq!(hole(&[(1, 0), (2, 0), (4, 0), (5, 0)]), Some(LogHole { log_ring: 0, number: 3 }));
    assert_eq!(hole(&[(1, 0), (2, 0), (5, 0), (4, 0)]), Some(LogHole { log_ring: 0, number: 3 }));
    assert_eq!(hole(&[(1, 0), (u64::MAX, 0)]), Some(LogHole { log_ring: 0, number: 2 }));
    let mut damaged = log_ring(&[(1, 0), (2, 0), (3, 0), (4, 0)]);
    assert_eq!(scan(&damaged, identity(7)).hole, None);
    damaged[2 * BLOCK + 4096 + 7] ^= 1;
    let log = scan(&damaged, identity(7));
    assert_eq!((log.hole, log.fault), (Some(LogHole { log_ring: 0, number: 2 }), None));
}

#[test]
fn what_a_crash_and_space_that_is_used_again_leave_is_no_hole() {
    let hole = |batches: &[(u64, u64)]| scan(&log_ring(batches), identity(7)).hole;
    assert_eq!(hole(&[]), None);
    assert_eq!(hole(&[(9, 0)]), None);
    assert_eq!(hole(&[(u64::MAX, 0)]), None);
    assert_eq!(hole(&[(1, 0), (2, 0), (4, 0)]), None, "3 was under way beside 4");
    assert_eq!(hole(&[(1, 0), (2, 0), (3, 0)]), None, "4 and 5 never came");
    // 2 and 3 were overwritten; 1 was not yet, and all three are settled.
    assert_eq!(hole(&[(5, 104), (6, 104), (1, 0), (4, 0)]), None);
}

#[test]
fn a_batch_that_would_end_beyond_the_area_is_none() {
    let mut area = vec![0; 64 * BLOCK];
    put(&mut area, 60, (identity(7), 1, 3));
    assert_eq!(found(&scan(&area, identity(7))), [60 * 4096]);
    assert!(found(&scan(&area[..63 * BLOCK], identity(7))).is_empty());
    assert!(scan(&[], identity(7)).log_rings.is_empty());
}

#[test]
fn content_that_is_impossible_under_a_right_checksum_is_told() {
    let mut area = vec![0; 8 * BLOCK];
    three_records(&mut area);
    area[72 + 8] = 15;
    crate::superblock::reseal(&mut area[..5 * BLOCK]);
    let log = scan(&area, identity(7));
    assert_eq!(log.fault.map(|fault| fault.to_string().contains("stripe")), Some(true));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn damaged_areas_never_panic(
        changes in proptest::collection::vec((0..32 * 4096usize, any::<u8>()), 0..40),
    ) {
        let mut area = vec![0; 32 * BLOCK];
        let mut at = 0;
        for sequence in 1..6 {
            at += put(&mut area, at, (identity(7), sequence, 3));
        }
        for (at, byte) in changes {
            area[at] = byte;
        }
        assert_eq!(found(&scan(&area, identity(7))), places(&area, identity(7)));
    }
}

/// What `examine` shows of a member's log.
#[test]
fn a_log_is_shown_with_its_log_rings_and_with_what_counts() {
    let mut superblock = crate::samples::started(&crate::samples::raid6(), 2);
    assert!(LogScan::of_member(&superblock).is_none(), "no tag, no log");
    superblock.members[0].log_tag = 7;
    let mut scan = LogScan::of_member(&superblock).expect("it has a part in the log");
    let mut area = vec![0; to_usize(superblock.areas.intent_log.bytes)];
    three_records(&mut area);
    let old = LogIdentity { incarnation: incarnation(1), ..identity(7) };
    put(&mut area, 20, (old, 1, 3));
    while let Some(wanted) = scan.wanted() {
        scan.take(&area[to_usize(wanted.offset)..to_usize(wanted.end())]);
    }
    let text = scan.finish().to_string();
    for line in [
        "log            1 batches of the last start, 3 records",
        "counting       3 of them, 2 full, 1 in doubt, 0 first write",
        "older          1 batches, 1 records: they mean nothing",
        "log ring 3     1 batches, 3 records, 20 KiB; settled below update 38",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
