//! An array of 2+1 that keeps a log, and batches of its members: what mutations of logs begin with.

use ashlar_layout::RowRange;
use ashlar_ondisk::bitmap::array_tag;
use ashlar_ondisk::log::{BatchEncoder, Holder, LogIdentity, NewRecord, Part, RecordKind};
use ashlar_ondisk::{ConsistencyPolicy, Features, Superblock};
use ashlar_units::{StripIdx, StripeNo};

/// `array` as one that keeps a log.
pub fn logged(mut array: Superblock) -> Superblock {
    array.policy = ConsistencyPolicy::Log;
    array.features.incompatible |= Features::INTENT_LOG;
    array.unclean = true;
    // Enough for what is in it; a scan reads all of it.
    array.areas.intent_log.bytes = 128 << 10;
    for (entry, tag) in array.members.iter_mut().zip(1_u64..) {
        entry.log_tag = tag << 32;
    }
    array
}

/// For each member two batches, 64 KiB apart from those of the next one: a full record, and one of
/// rows in doubt.
pub fn batches(array: &Superblock) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in &array.members {
        let identity = LogIdentity {
            array_tag: array_tag(array.array_uuid),
            log_tag: entry.log_tag,
            incarnation: array.incarnation,
        };
        let strip = StripIdx::from_at(entry.slot.at());
        let holder = |at: usize| Holder {
            log_tag: array.members[at].log_tag,
            strip: StripIdx::from_at(at),
            is_filled: false,
        };
        let holders: Vec<Holder> = (0..array.members.len()).map(holder).collect();
        let rows = RowRange::new(1, 3);
        let parts = [Part { strip, rows }];
        let mut area = vec![0; 64 << 10];
        let mut at = 0;
        for (number, kind) in [(1, RecordKind::Full), (2, RecordKind::InDoubt)] {
            let has_payload = kind == RecordKind::Full;
            let record = NewRecord {
                sequence: number,
                stripe: StripeNo(number),
                kind,
                rows,
                holders: &holders,
                parts: if has_payload { &parts } else { &[] },
            };
            let mut encoder = BatchEncoder::new(&mut area[at..], 4096, identity);
            encoder.push(&record, has_payload.then_some(&[0x5A; 8192][..]));
            at += encoder.finish(0, number, 1);
        }
        all.extend(area);
    }
    all
}
