//! A record of the stripe intent log: the update, its rows, its holders, and the blocks behind it.
//!
//! What must stay true: the records of one update are equal on all holders except for their parts.
//! A record that is encoded decodes. Every number of a decoded record lies within the array's
//! geometry.

use ashlar_layout::RowRange;
use ashlar_units::{BLOCK_BYTES, StripIdx, StripeNo};
use zerocopy::{FromBytes, IntoBytes};

use super::batch::BatchFault;
use crate::format::{
    HOLDER_FLAG_FILLED, LOG_HOLDERS_MAX, LOG_PARTS_MAX, LOG_RECORD_ALIGN, RawBlockChange,
    RawHolder, RawPart, RawRecord,
};
use crate::geometry::GeometryRecord;
use crate::seal::is_zero;

/// What a record means for its rows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RecordKind {
    /// New blocks lie behind it: they are written in place again after a crash.
    Full,
    /// All data of its rows was being written, and is not in the log: parity is to be generated
    /// anew from the data as found. Outdates older records of its rows.
    InDoubt,
    /// The first write of a stripe, without data. Outdates older records of its rows, and nothing
    /// more: the stripe counts as written only once the write is durable in place.
    FirstWrite,
    /// One block of data of one row: new parity lies behind it, on the devices of parity alone. The
    /// block itself is written whole or not at all, and durable before parity goes in place; so
    /// what is found in its place says whether parity is to follow.
    ParityOnly(BlockChange),
}

/// The block of data that a parity-only record is about. Its row is that of the record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockChange {
    /// The strip it lies on.
    pub strip: StripIdx,
    /// CRC-32C of the block before the update.
    pub old: u32,
    /// CRC-32C of the block after it; never the same.
    pub new: u32,
}

/// The checksum of a block in the change of a parity-only record: CRC-32C.
pub fn block_checksum(block: &[u8]) -> u32 {
    let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, block);
    u32::try_from(checksum).expect("a CRC-32 has 32 bits")
}

/// The code on disk of a parity-only record.
const PARITY_ONLY: u8 = 4;

impl RecordKind {
    /// The code on disk.
    pub fn code(self) -> u8 {
        match self {
            RecordKind::Full => 1,
            RecordKind::InDoubt => 2,
            RecordKind::FirstWrite => 3,
            RecordKind::ParityOnly(_) => PARITY_ONLY,
        }
    }

    /// The kind with this code, if it is not that of a parity-only record.
    fn from_code(code: u8) -> Option<Self> {
        let kinds = [RecordKind::Full, RecordKind::InDoubt, RecordKind::FirstWrite];
        kinds.into_iter().find(|kind| kind.code() == code)
    }

    /// The words for people, in the order of the codes.
    pub const NAMES: [&'static str; 4] = ["full", "in doubt", "first write", "parity-only"];

    /// The word for people.
    pub fn name(self) -> &'static str {
        Self::NAMES[usize::from(self.code()) - 1]
    }

    /// Whether new blocks lie behind a record of this kind.
    pub fn has_payload(self) -> bool {
        matches!(self, RecordKind::Full | RecordKind::ParityOnly(_))
    }

    /// The block that a parity-only record is about.
    pub fn change(self) -> Option<BlockChange> {
        match self {
            RecordKind::ParityOnly(change) => Some(change),
            RecordKind::Full | RecordKind::InDoubt | RecordKind::FirstWrite => None,
        }
    }
}

/// A device that an update writes in place, and that therefore holds its record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Holder {
    /// The device, by the log tag of its member table entry. Never zero.
    pub log_tag: u64,
    /// The strip of the stripe that it stores.
    pub strip: StripIdx,
    /// It is being filled to take its slot: a replacement, or a member that is rebuilt.
    pub is_filled: bool,
}

/// Rows of one strip, with their new content behind the record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    /// The strip.
    pub strip: StripIdx,
    /// The rows. Not empty.
    pub rows: RowRange,
}

/// A record to be encoded.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// Number of the update in its log ring; rises from update to update. Never zero.
    pub sequence: u64,
    /// The stripe.
    pub stripe: StripeNo,
    /// What it means.
    pub kind: RecordKind,
    /// The rows it is about; of a full record exactly from the first row of its update to the last.
    /// Parts lie within.
    pub rows: RowRange,
    /// All holders of the update's record, this device included; no tag twice.
    pub holders: &'a [Holder],
    /// What lies behind it in this batch, strips rising and in a strip rows rising, apart from each
    /// other. Empty exactly if the kind has no payload.
    pub parts: &'a [Part],
}

/// A record as read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Number of the update in its log ring.
    pub sequence: u64,
    /// The stripe.
    pub stripe: StripeNo,
    /// What it means.
    pub kind: RecordKind,
    /// The rows it is about.
    pub rows: RowRange,
    /// All holders of the update's record.
    pub holders: Box<[Holder]>,
    /// What lies behind it, in this order.
    pub parts: Box<[Part]>,
    /// Where its payload begins, in bytes from the start of the batch.
    pub payload_offset: u64,
}

impl Record {
    /// The parts, each with where its blocks begin, in bytes from the start of the batch.
    pub fn placed_parts(&self) -> impl Iterator<Item = (Part, u64)> {
        self.parts.iter().scan(self.payload_offset, |at, part| {
            let offset = *at;
            *at += part.rows.bytes();
            Some((*part, offset))
        })
    }
}

/// What the numbers of a record may be: the geometry of the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogLimits {
    /// Stripes of the array.
    pub stripes: u64,
    /// Strips of a stripe: k + m.
    pub strips: u16,
    /// Rows of a strip: blocks of 4 KiB.
    pub strip_rows: u32,
}

impl LogLimits {
    /// What any array may have.
    pub const WIDEST: LogLimits = LogLimits { stripes: u64::MAX, strips: 64, strip_rows: 4096 };

    /// The limits of an array.
    pub fn of(geometry: &GeometryRecord) -> Self {
        let rows = u64::from(geometry.strip_bytes) / BLOCK_BYTES;
        LogLimits {
            stripes: geometry.stripes(),
            strips: geometry.stripe_width(),
            strip_rows: u32::try_from(rows).expect("a strip has at most 4096 rows"),
        }
    }

    /// The name of the field that makes no sense, if there is one.
    pub(super) fn check(&self, record: &NewRecord<'_>, writer: u64) -> Result<(), &'static str> {
        if record.sequence == 0 {
            return Err("sequence");
        }
        if record.stripe.0 >= self.stripes {
            return Err("stripe");
        }
        if record.rows.is_empty() || record.rows.end > self.strip_rows {
            return Err("row_count");
        }
        self.check_holders(record.holders, writer)?;
        self.check_change(record)?;
        self.check_parts(record)
    }

    fn check_change(&self, record: &NewRecord<'_>) -> Result<(), &'static str> {
        let Some(change) = record.kind.change() else { return Ok(()) };
        if u16::from(change.strip.0) >= self.strips {
            return Err("change.strip");
        }
        if change.old == change.new {
            return Err("change.new_checksum");
        }
        if record.rows.blocks() != 1 {
            return Err("row_count");
        }
        let is_holder = record.holders.iter().any(|holder| holder.strip == change.strip);
        if is_holder { Err("holders.strip") } else { Ok(()) }
    }

    fn check_holders(&self, holders: &[Holder], writer: u64) -> Result<(), &'static str> {
        if holders.len() > LOG_HOLDERS_MAX || holders.iter().all(|h| h.log_tag != writer) {
            return Err("holder_count");
        }
        for (at, holder) in holders.iter().enumerate() {
            let is_twice = holders[..at].iter().any(|other| other.log_tag == holder.log_tag);
            if holder.log_tag == 0 || is_twice {
                return Err("holders.log_tag");
            }
            if u16::from(holder.strip.0) >= self.strips {
                return Err("holders.strip");
            }
        }
        Ok(())
    }

    fn check_parts(&self, record: &NewRecord<'_>) -> Result<(), &'static str> {
        let count = record.parts.len();
        if count > LOG_PARTS_MAX || record.kind.has_payload() != (count > 0) {
            return Err("part_count");
        }
        for (at, part) in record.parts.iter().enumerate() {
            if u16::from(part.strip.0) >= self.strips {
                return Err("parts.strip");
            }
            let inside = record.rows.start <= part.rows.start && part.rows.end <= record.rows.end;
            let follows = at.checked_sub(1).is_none_or(|before| {
                let before = record.parts[before];
                before.strip < part.strip
                    || (before.strip == part.strip && before.rows.end <= part.rows.start)
            });
            if part.rows.is_empty() || !inside || !follows {
                return Err("parts.row_count");
            }
        }
        Ok(())
    }
}

/// Bytes that a record of this code with these numbers of holders and parts takes in the header of
/// a batch.
pub(super) fn record_bytes(code: u8, holders: usize, parts: usize) -> usize {
    let bytes =
        size_of::<RawRecord>() + holders * size_of::<RawHolder>() + parts * size_of::<RawPart>();
    let change = if code == PARITY_ONLY { size_of::<RawBlockChange>() } else { 0 };
    (bytes + change).next_multiple_of(LOG_RECORD_ALIGN)
}

/// Blocks of payload behind these parts.
pub(super) fn payload_blocks(parts: &[Part]) -> u64 {
    parts.iter().map(|part| u64::from(part.rows.blocks())).sum()
}

/// Writes a checked record to `bytes`, which are as many as it takes.
pub(super) fn put(record: &NewRecord<'_>, bytes: &mut [u8]) {
    let small = |count: usize| u8::try_from(count).expect("checked");
    let raw = RawRecord {
        sequence: record.sequence.into(),
        stripe: record.stripe.0.into(),
        first_row: row(record.rows.start).into(),
        row_count: row(record.rows.blocks()).into(),
        kind: record.kind.code(),
        holder_count: small(record.holders.len()),
        part_count: small(record.parts.len()),
        reserved_0: 0,
    };
    let (head, mut rest) = bytes.split_at_mut(size_of::<RawRecord>());
    head.copy_from_slice(raw.as_bytes());
    for holder in record.holders {
        let raw = RawHolder {
            log_tag: holder.log_tag.into(),
            strip: holder.strip.0,
            flags: if holder.is_filled { HOLDER_FLAG_FILLED } else { 0 },
        };
        rest = put_next(raw.as_bytes(), rest);
    }
    for part in record.parts {
        let raw = RawPart {
            strip: part.strip.0,
            reserved_0: 0,
            first_row: row(part.rows.start).into(),
            row_count: row(part.rows.blocks()).into(),
        };
        rest = put_next(raw.as_bytes(), rest);
    }
    if let Some(change) = record.kind.change() {
        let raw = RawBlockChange {
            strip: change.strip.0,
            reserved_0: [0; 3],
            old_checksum: change.old.into(),
            new_checksum: change.new.into(),
        };
        rest = put_next(raw.as_bytes(), rest);
    }
    rest.fill(0);
}

fn put_next<'a>(raw: &[u8], place: &'a mut [u8]) -> &'a mut [u8] {
    let (place, rest) = place.split_at_mut(raw.len());
    place.copy_from_slice(raw);
    rest
}

fn row(number: u32) -> u16 {
    u16::try_from(number).expect("checked: a strip has at most 4096 rows")
}

/// The record at the start of `bytes`, checked, and the bytes after it. Its payload begins at
/// `payload_offset`.
pub(super) fn take<'a>(
    bytes: &'a [u8],
    limits: &LogLimits,
    (writer, payload_offset): (u64, u64),
) -> Result<(Record, &'a [u8]), BatchFault> {
    let fault = |name| BatchFault::Field { name };
    let (raw, rest) = RawRecord::ref_from_prefix(bytes).map_err(|_| fault("record_count"))?;
    let (holders, parts) = (usize::from(raw.holder_count), usize::from(raw.part_count));
    let (raw_holders, rest) = <[RawHolder]>::ref_from_prefix_with_elems(rest, holders)
        .map_err(|_| fault("holder_count"))?;
    let (raw_parts, rest) =
        <[RawPart]>::ref_from_prefix_with_elems(rest, parts).map_err(|_| fault("part_count"))?;
    let mut used = size_of::<RawRecord>() + size_of_val(raw_holders) + size_of_val(raw_parts);
    let kind = if raw.kind == PARITY_ONLY {
        used += size_of::<RawBlockChange>();
        RecordKind::ParityOnly(take_change(rest)?)
    } else {
        RecordKind::from_code(raw.kind).ok_or(fault("kind"))?
    };
    let length = record_bytes(raw.kind, holders, parts);
    let (own, rest) = bytes.split_at_checked(length).ok_or(fault("part_count"))?;
    let reserved = raw.reserved_0 == 0 && is_zero(&own[used..]);
    let flags = raw_holders.iter().all(|holder| holder.flags & !HOLDER_FLAG_FILLED == 0);
    if !reserved || !flags || raw_parts.iter().any(|part| part.reserved_0 != 0) {
        return Err(fault("reserved"));
    }
    let holders: Box<[Holder]> = raw_holders.iter().map(holder_of).collect();
    let parts: Box<[Part]> = raw_parts
        .iter()
        .map(|part| Part {
            strip: StripIdx(part.strip),
            rows: rows_of(part.first_row.get(), part.row_count.get()),
        })
        .collect();
    let rows = rows_of(raw.first_row.get(), raw.row_count.get());
    let (sequence, stripe) = (raw.sequence.get(), StripeNo(raw.stripe.get()));
    let new = NewRecord { sequence, stripe, kind, rows, holders: &holders, parts: &parts };
    limits.check(&new, writer).map_err(fault)?;
    Ok((Record { sequence, stripe, kind, rows, holders, parts, payload_offset }, rest))
}

fn take_change(bytes: &[u8]) -> Result<BlockChange, BatchFault> {
    let fault = |name| BatchFault::Field { name };
    let (raw, _) = RawBlockChange::ref_from_prefix(bytes).map_err(|_| fault("part_count"))?;
    if raw.reserved_0 != [0; 3] {
        return Err(fault("reserved"));
    }
    let (old, new) = (raw.old_checksum.get(), raw.new_checksum.get());
    Ok(BlockChange { strip: StripIdx(raw.strip), old, new })
}

fn holder_of(raw: &RawHolder) -> Holder {
    Holder {
        log_tag: raw.log_tag.get(),
        strip: StripIdx(raw.strip),
        is_filled: raw.flags & HOLDER_FLAG_FILLED != 0,
    }
}

fn rows_of(first: u16, count: u16) -> RowRange {
    RowRange::new(first.into(), u32::from(first) + u32::from(count))
}
