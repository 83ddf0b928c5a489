//! The stripe intent log as bytes: batches there and back, and whatever is not a batch.

use ashlar_layout::RowRange;
use ashlar_ondisk::log::{
    Batch, BatchEncoder, BatchFault, BatchHead, Holder, LogIdentity, LogLimits, NewRecord, Part,
    Record, RecordKind,
};
use ashlar_units::{StripIdx, StripeNo};
use proptest::prelude::{ProptestConfig, any, proptest};

use crate::samples::{array_uuid, geometry, incarnation};
use crate::superblock::reseal;

const BLOCK: usize = 4096;

pub fn identity(log_tag: u64) -> LogIdentity {
    LogIdentity {
        array_tag: ashlar_ondisk::bitmap::array_tag(array_uuid()),
        log_tag,
        incarnation: incarnation(2),
    }
}

pub fn holder(log_tag: u64, strip: u8) -> Holder {
    Holder { log_tag, strip: StripIdx(strip), is_filled: false }
}

pub fn part(strip: u8, start: u32, end: u32) -> Part {
    Part { strip: StripIdx(strip), rows: RowRange::new(start, end) }
}

/// 4+2 with strips of 64 KiB, 15 stripes.
pub fn limits() -> LogLimits {
    LogLimits::of(&ashlar_ondisk::GeometryRecord { rows: 15, ..geometry(4, 2, 1) })
}

/// A block of payload that can be told from others.
pub fn block(number: u8) -> Vec<u8> {
    (0..BLOCK).map(|at| number ^ u8::try_from(at % 251).expect("small")).collect()
}

fn holders() -> [Holder; 3] {
    [holder(7, 4), holder(9, 1), Holder { is_filled: true, ..holder(11, 5) }]
}

/// Two data blocks and one of parity, then a record without payload, then one block; four blocks in
/// all.
pub fn three_records(buffer: &mut [u8]) -> usize {
    let (holders, parts) = (holders(), [part(1, 3, 5), part(4, 3, 4)]);
    let full = NewRecord {
        sequence: 40,
        stripe: StripeNo(14),
        kind: RecordKind::Full,
        rows: RowRange::new(3, 5),
        holders: &holders,
        parts: &parts,
    };
    let payload: Vec<Vec<u8>> = (0..4).map(block).collect();
    let mut encoder = BatchEncoder::new(buffer, BLOCK, identity(7));
    encoder.push(&full, payload[..3].iter().map(Vec::as_slice));
    let doubt = NewRecord {
        sequence: 41,
        kind: RecordKind::InDoubt,
        parts: &[],
        stripe: StripeNo(0),
        ..full
    };
    encoder.push(&doubt, []);
    let last = [part(4, 15, 16)];
    let single = NewRecord { sequence: 42, rows: RowRange::new(15, 16), parts: &last, ..full };
    // Pieces of the payload need not be blocks.
    encoder.push(&single, [&payload[3][..100], &payload[3][100..]]);
    encoder.finish(3, 1000, 38)
}

fn sample_batch() -> Vec<u8> {
    let mut buffer = vec![0xEE; 10 * BLOCK];
    let length = three_records(&mut buffer);
    buffer.truncate(length);
    buffer
}

#[test]
fn a_batch_comes_back_as_it_was() {
    let bytes = sample_batch();
    assert_eq!(bytes.len(), 5 * BLOCK, "a header and four blocks");
    let batch = Batch::decode(&bytes, &limits()).expect("whole");
    let head = BatchHead { identity: identity(7), log_ring: 3, sequence: 1000, settled_below: 38 };
    assert_eq!((batch.head, batch.bytes), (head, 5 * 4096));
    let [full, doubt, single] = batch.records.as_slice() else { panic!("three records") };
    assert_eq!((full.sequence, full.stripe, full.kind), (40, StripeNo(14), RecordKind::Full));
    assert_eq!((&*full.holders, full.rows), (&holders()[..], RowRange::new(3, 5)));
    assert_eq!((doubt.sequence, doubt.kind, doubt.parts.len()), (41, RecordKind::InDoubt, 0));
    let placed = |record: &Record| record.placed_parts().collect::<Vec<_>>();
    assert_eq!(placed(full), [(part(1, 3, 5), 4096), (part(4, 3, 4), 3 * 4096)]);
    assert_eq!(placed(single), [(part(4, 15, 16), 4 * 4096)]);
    for (at, number) in [(1, 0), (2, 1), (3, 2), (4, 3)] {
        assert_eq!(bytes[at * BLOCK..(at + 1) * BLOCK], block(number), "block {at}");
    }
}

#[test]
fn one_header_block_holds_the_records_of_55_single_blocks_on_two_parities() {
    let mut buffer = vec![0; 200 * BLOCK];
    let mut encoder = BatchEncoder::new(&mut buffer, BLOCK, identity(7));
    let (holders, parts) = (holders(), [part(1, 3, 4), part(4, 3, 4)]);
    let (one, two) = (block(1), block(2));
    while encoder.fits(RecordKind::Full, (3, 2), 2) {
        let record = NewRecord {
            sequence: 1 + encoder.record_count() as u64,
            stripe: StripeNo(5),
            kind: RecordKind::Full,
            rows: RowRange::new(3, 4),
            holders: &holders,
            parts: &parts,
        };
        encoder.push(&record, [&one[..], &two[..]]);
    }
    assert_eq!(encoder.record_count(), 55);
    assert_eq!(encoder.bytes(), 111 * BLOCK);
    assert!(encoder.fits(RecordKind::InDoubt, (1, 0), 0), "a smaller one still fits");
    let length = encoder.finish(0, 1, 1);
    assert_eq!(Batch::decode(&buffer[..length], &limits()).expect("whole").records.len(), 55);
}

#[test]
fn a_record_fits_exactly_as_far_as_header_and_buffer_go() {
    let mut buffer = vec![0; 3 * BLOCK];
    let encoder = BatchEncoder::new(&mut buffer, BLOCK, identity(7));
    assert!(
        encoder.fits(RecordKind::Full, (1, 1), 2) && !encoder.fits(RecordKind::Full, (1, 1), 3),
        "two blocks of payload"
    );
    // 4024 bytes for records: 24 + 128 * 10 + 192 * 6 is the largest there is.
    assert!(
        encoder.fits(RecordKind::Full, (128, 192), 0)
            && encoder.fits(RecordKind::Full, (400, 0), 0)
            && !encoder.fits(RecordKind::Full, (401, 0), 0)
    );
}

#[test]
fn the_largest_record_comes_back() {
    let holders: Vec<Holder> = (0..128).map(|at| holder(1 + u64::from(at), at % 64)).collect();
    let parts: Vec<Part> =
        (0..192).map(|at| part(at / 3, u32::from(at % 3) * 2, u32::from(at % 3) * 2 + 1)).collect();
    let record = NewRecord {
        sequence: u64::MAX,
        stripe: StripeNo(u64::MAX - 1),
        kind: RecordKind::Full,
        rows: RowRange::new(0, 4096),
        holders: &holders,
        parts: &parts,
    };
    let mut buffer = vec![0; 200 * BLOCK];
    let mut encoder = BatchEncoder::new(&mut buffer, BLOCK, identity(128));
    let payload = vec![0x77; 192 * BLOCK];
    encoder.push(&record, [&payload[..]]);
    let length = encoder.finish(u16::MAX, u64::MAX, u64::MAX);
    let batch = Batch::decode(&buffer[..length], &LogLimits::WIDEST).expect("whole");
    assert_eq!((batch.records[0].holders.len(), batch.records[0].parts.len()), (128, 192));
    assert_eq!((&*batch.records[0].holders, &*batch.records[0].parts), (&holders[..], &parts[..]));
}

#[test]
fn a_batch_without_records_says_what_is_settled() {
    let mut buffer = vec![0xEE; BLOCK];
    let length = BatchEncoder::new(&mut buffer, BLOCK, identity(7)).finish(1, 2, 3);
    let batch = Batch::decode(&buffer[..length], &limits()).expect("whole");
    assert_eq!((batch.records.len(), batch.head.settled_below), (0, 3));
}

#[test]
fn every_flipped_bit_of_a_batch_is_found() {
    let mut bytes = sample_batch();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Batch::decode(&bytes, &limits()).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(Batch::decode(&bytes, &limits()).is_ok());
}

#[test]
fn a_batch_that_is_cut_short_anywhere_is_not_one() {
    let mut bytes = sample_batch();
    for length in 0..bytes.len() {
        assert!(Batch::decode(&bytes[..length], &limits()).is_err(), "{length} bytes");
    }
    // And so is one whose last sectors are still what was there before.
    for sector in (0..bytes.len()).step_by(512) {
        let kept: Vec<u8> = bytes[sector..sector + 512].to_vec();
        bytes[sector..sector + 512].fill(0xEE);
        let fault = Batch::decode(&bytes, &limits()).expect_err("torn");
        let is_torn = matches!(fault, BatchFault::Checksum { .. } | BatchFault::Foreign);
        assert!(is_torn, "sector at {sector}: {fault}");
        bytes[sector..sector + 512].copy_from_slice(&kept);
    }
}

/// What decoding says of the sample with bytes changed and the checksum made right again.
fn forged(change: impl FnOnce(&mut [u8])) -> Result<Batch, BatchFault> {
    let mut bytes = sample_batch();
    change(&mut bytes);
    reseal(&mut bytes);
    Batch::decode(&bytes, &limits())
}

/// Where the records lie: 24 bytes, holders of 10 each, parts of 6 each, to a multiple of 8.
const FIRST: usize = 72;
const SECOND: usize = FIRST + 72;

#[test]
fn impossible_fields_are_named_although_the_checksum_is_right() {
    type Change = fn(&mut [u8]);
    let cases: [(&str, Change); 23] = [
        ("kind", |b| b[22..24].copy_from_slice(&[0xFF, 0xFF])),
        ("reserved", |b| b[22] = 2),
        ("length", |b| b[FIRST + 54 + 4] = 1),
        ("log_tag", |b| b[32..40].fill(0)),
        ("holder_count", |b| b[32] = 8),
        ("settled_below", |b| b[64] = 41),
        ("sequence", |b| (b[FIRST], b[64]) = (0, 0)),
        ("stripe", |b| b[FIRST + 8] = 15),
        ("row_count", |b| b[FIRST + 16] = 15),
        ("row_count", |b| b[SECOND + 18] = 0),
        ("kind", |b| b[FIRST + 20] = 5),
        ("part_count", |b| b[SECOND + 20] = 1),
        ("part_count", |b| b[FIRST + 20] = 2),
        ("holder_count", |b| b[SECOND + 21] = 0),
        ("reserved", |b| b[FIRST + 23] = 1),
        ("holders.log_tag", |b| b[FIRST + 24 + 10] = 7),
        ("holders.log_tag", |b| b[FIRST + 24 + 20] = 0),
        ("holders.strip", |b| b[FIRST + 24 + 8] = 6),
        ("reserved", |b| b[FIRST + 24 + 9] = 2),
        ("parts.strip", |b| b[FIRST + 54 + 6] = 6),
        ("parts.row_count", |b| b[FIRST + 54 + 6] = 1),
        ("parts.row_count", |b| b[FIRST + 54 + 4] = 3),
        ("reserved", |b| b[BLOCK - 1] = 1),
    ];
    for (at, (name, change)) in cases.into_iter().enumerate() {
        assert_eq!(forged(change), Err(BatchFault::Field { name }), "case {at}");
    }
    assert!(forged(|_| ()).is_ok());
}

#[test]
fn lengths_that_cannot_be_are_refused() {
    for (at, value) in [
        (12, 0),
        (12, 100),
        (12, 6 * 4096),
        (12, u32::MAX),
        (16, 0),
        (16, 8192 * 9),
        (16, 6 * 4096),
    ] {
        let fault = forged(|bytes| bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(value)));
        let fault = fault.expect_err("impossible");
        assert!(matches!(fault, BatchFault::Length { .. }), "{value} at {at}: {fault}");
    }
}

#[test]
#[should_panic(expected = "less payload than parts")]
fn a_record_with_too_little_payload_is_not_encoded() {
    let (holders, parts) = (holders(), [part(4, 0, 2)]);
    let record = NewRecord {
        sequence: 1,
        stripe: StripeNo(0),
        kind: RecordKind::Full,
        rows: RowRange::new(0, 2),
        holders: &holders,
        parts: &parts,
    };
    let mut buffer = vec![0; 8 * BLOCK];
    BatchEncoder::new(&mut buffer, BLOCK, identity(7)).push(&record, [&block(1)[..]]);
}

#[test]
#[should_panic(expected = "under way")]
fn a_batch_does_not_call_its_own_records_settled() {
    let mut buffer = vec![0; 8 * BLOCK];
    let mut encoder = BatchEncoder::new(&mut buffer, BLOCK, identity(7));
    let holders = holders();
    let record = NewRecord {
        sequence: 5,
        stripe: StripeNo(0),
        kind: RecordKind::FirstWrite,
        rows: RowRange::new(0, 16),
        holders: &holders,
        parts: &[],
    };
    encoder.push(&record, []);
    encoder.finish(0, 0, 6);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Damage in the header that the checksum does not see, as a broken program would write it.
    #[test]
    fn forged_headers_never_panic(
        changes in proptest::collection::vec((0..400usize, any::<u8>()), 1..6),
    ) {
        let _verdict = forged(|bytes| {
            for (at, byte) in changes {
                bytes[at] = byte;
            }
        });
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..9000)) {
        assert!(Batch::decode(&bytes, &limits()).is_err());
    }
}
