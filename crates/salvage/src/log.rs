//! Batches of the stripe intent log out of a member's log area.
//!
//! What must stay true: a batch counts whole or not at all; what is left of an older one means
//! nothing. Payload stays where it is: only its place is kept. An area that makes more work than an
//! honest one can is taken as unreadable, and one in which batches are missing that were whole is
//! no better.

use crate::bytes::{Uuid, array_at, array_tag, checksum, index, is_blank, u16_at, u32_at, u64_at};
use crate::image::ReadAt;
use crate::superblock::Area;
use std::collections::BTreeSet;

const BLOCK: usize = 4096;
const HEAD_BYTES: usize = 72;
const RECORD_BYTES: usize = 24;
const HOLDER_BYTES: usize = 10;
const PART_BYTES: usize = 6;
const CHANGE_BYTES: usize = 12;
const HEADER_BYTES_MAX: usize = 64 << 10;
const BATCH_BYTES_MAX: usize = 16 << 20;
/// How often the bytes of an area may be looked at, at most, before it is given up: an honest log
/// is read twice, and torn batches once more.
const LOOKS_MAX: u64 = 16;

/// Whose batches count.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// The array.
    pub array_uuid: Uuid,
    /// The device that they lie on.
    pub log_tag: u64,
    /// The start of the array that wrote them.
    pub incarnation: Uuid,
}

/// What a record is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It has the blocks that go in place.
    Full,
    /// Parity of its rows is to be made anew.
    InDoubt,
    /// The first write of a stripe.
    FirstWrite,
    /// It has parity that goes in place if this block of data is found new.
    ParityOnly(BlockChange),
}

/// A block of data that went in place before its parity did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockChange {
    /// The strip it lies on; its row is that of the record.
    pub strip: u8,
    /// CRC-32C of it before.
    pub old: u32,
    /// CRC-32C of it afterwards.
    pub new: u32,
}

/// A device that must have a record for it to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The device.
    pub log_tag: u64,
    /// The strip of the stripe that it stores.
    pub strip: u8,
    /// 1: it is being filled to take its slot.
    pub flags: u8,
}

/// One block of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The strip it belongs to.
    pub strip: u8,
    /// Its row in the strip.
    pub row: u16,
    /// Where it lies on the member.
    pub offset: u64,
}

/// What the log of one device says about one update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of the update in its log ring.
    pub sequence: u64,
    /// The stripe.
    pub stripe: u64,
    /// First row it is about.
    pub first_row: u16,
    /// Rows it is about.
    pub row_count: u16,
    /// What it is for.
    pub kind: Kind,
    /// The devices that must have it.
    pub holders: Vec<Holder>,
    /// Its blocks.
    pub payload: Vec<Payload>,
}

/// One batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its log ring.
    pub log_ring: u16,
    /// Number of the batch in its log ring on this device.
    pub sequence: u64,
    /// Updates of the log ring below this one are durable in place.
    pub settled_below: u64,
    /// Its records.
    pub records: Vec<Record>,
    /// Its bytes.
    bytes: u64,
}

/// All batches in a log area, or `None` if part of it cannot be read.
pub fn read(image: &impl ReadAt, area: Area, writer: &Writer) -> Option<Vec<Batch>> {
    let mut batches = Vec::new();
    let mut work = area.bytes.saturating_mul(LOOKS_MAX).saturating_add(1 << 20);
    let end = area.offset.checked_add(area.bytes)?;
    let mut at = area.offset;
    let mut head = [0; BLOCK];
    while at + 4096 <= end {
        image.read_at(at, &mut head).ok()?;
        work = work.checked_sub(4096)?;
        let length = index(u32_at(&head, 12));
        let mut step = 4096;
        let fits = u64::try_from(length).is_ok_and(|length| length <= end - at);
        if fits && is_of(&head, writer) {
            work = work.checked_sub(u64::from(u32_at(&head, 12)))?;
            let mut bytes = vec![0; length];
            image.read_at(at, &mut bytes).ok()?;
            if let Some(batch) = Batch::decode(&bytes, at) {
                step = batch.bytes;
                batches.push(batch);
            }
        }
        at += step;
    }
    Some(batches)
}

/// Whether batches of some log ring are missing that were whole once: then nobody knows what else
/// the device had, and its log is as good as unreadable. Two at most were ever under way, and space
/// was used again from the oldest on; so what a crash explains is that the newest is there and the
/// one before it is not.
pub fn has_hole(batches: &[Batch]) -> bool {
    let log_rings: BTreeSet<u16> = batches.iter().map(|batch| batch.log_ring).collect();
    log_rings.into_iter().any(|log_ring| {
        let own = || batches.iter().filter(move |batch| batch.log_ring == log_ring);
        let settled_below = own().map(|batch| batch.settled_below).max().unwrap_or(0);
        let counts =
            |batch: &&Batch| batch.records.iter().any(|record| record.sequence >= settled_below);
        let newest = own().map(|batch| batch.sequence).max();
        let oldest = own().filter(counts).map(|batch| batch.sequence).min();
        let (Some(oldest), Some(newest)) = (oldest, newest) else { return false };
        let sure = oldest..newest.saturating_sub(1).max(oldest);
        let here: BTreeSet<u64> =
            own().map(|batch| batch.sequence).filter(|number| sure.contains(number)).collect();
        u64::try_from(here.len()).is_ok_and(|here| here < sure.end - sure.start)
    })
}

/// Whether this could be the first block of a batch of `writer`.
fn is_of(head: &[u8], writer: &Writer) -> bool {
    let length = index(u32_at(head, 12));
    head[..8] == *b"ASHLARLG"
        && u64_at(head, 24) == array_tag(&writer.array_uuid)
        && u64_at(head, 32) == writer.log_tag
        && head[40..56] == writer.incarnation
        && length.is_multiple_of(BLOCK)
        && (BLOCK..=BATCH_BYTES_MAX).contains(&length)
}

impl Batch {
    /// Decode a whole batch that lies at `offset` of its member; `None` if it is torn or makes no
    /// sense.
    pub fn decode(bytes: &[u8], offset: u64) -> Option<Batch> {
        let header_length = index(u32_at(bytes, 16));
        let sound = checksum(bytes, 8) == u32_at(bytes, 8)
            && header_length.is_multiple_of(BLOCK)
            && (BLOCK..=HEADER_BYTES_MAX).contains(&header_length)
            && header_length <= bytes.len();
        if !sound {
            return None;
        }
        let mut reader = Reader {
            header: &bytes[..header_length],
            at: HEAD_BYTES,
            payload: offset + u64::try_from(header_length).ok()?,
        };
        let records: Option<Vec<Record>> =
            (0..u16_at(bytes, 22)).map(|_| reader.record()).collect();
        let end = offset + u64::try_from(bytes.len()).ok()?;
        let batch = Batch {
            log_ring: u16_at(bytes, 20),
            sequence: u64_at(bytes, 56),
            settled_below: u64_at(bytes, 64),
            records: records?,
            bytes: end - offset,
        };
        (reader.payload <= end && is_blank(&reader.header[reader.at..])).then_some(batch)
    }
}

/// Takes records off a header, one after the other.
struct Reader<'a> {
    header: &'a [u8],
    at: usize,
    /// Place on the member of the next block of payload.
    payload: u64,
}

impl Reader<'_> {
    fn take(&mut self, bytes: usize) -> Option<&[u8]> {
        let taken = self.header.get(self.at..self.at + bytes)?;
        self.at += bytes;
        Some(taken)
    }

    fn change(&mut self) -> Option<BlockChange> {
        let bytes = self.take(CHANGE_BYTES)?;
        let change = BlockChange { strip: bytes[0], old: u32_at(bytes, 4), new: u32_at(bytes, 8) };
        (is_blank(&bytes[1..4]) && change.old != change.new).then_some(change)
    }

    fn record(&mut self) -> Option<Record> {
        let head: [u8; RECORD_BYTES] = array_at(self.take(RECORD_BYTES)?, 0);
        let (holder_count, part_count) = (usize::from(head[21]), usize::from(head[22]));
        let kind = match head[20] {
            1 => Kind::Full,
            2 => Kind::InDoubt,
            3 => Kind::FirstWrite,
            // Filled in below.
            4 => Kind::ParityOnly(BlockChange { strip: 0, old: 0, new: 0 }),
            _ => return None,
        };
        if head[23] != 0 || holder_count > 128 || part_count > 192 {
            return None;
        }
        if matches!(kind, Kind::Full | Kind::ParityOnly(_)) != (part_count > 0) {
            return None;
        }
        let holders = self.take(holder_count * HOLDER_BYTES)?;
        let holder =
            |bytes: &[u8]| Holder { log_tag: u64_at(bytes, 0), strip: bytes[8], flags: bytes[9] };
        let holders = holders.chunks_exact(HOLDER_BYTES).map(holder).collect();
        let parts = self.take(part_count * PART_BYTES)?.to_vec();
        let kind = match kind {
            Kind::ParityOnly(_) => Kind::ParityOnly(self.change()?),
            other => other,
        };
        self.at = self.at.next_multiple_of(8);
        let mut record = Record {
            sequence: u64_at(&head, 0),
            stripe: u64_at(&head, 8),
            first_row: u16_at(&head, 16),
            row_count: u16_at(&head, 18),
            kind,
            holders,
            payload: Vec::new(),
        };
        for part in parts.chunks_exact(PART_BYTES) {
            let rows = Rows { first: u16_at(part, 2), count: u16_at(part, 4) };
            if !rows.are_within(Rows { first: record.first_row, count: record.row_count }) {
                return None;
            }
            for row in rows.first..rows.first + rows.count {
                record.payload.push(Payload { strip: part[0], row, offset: self.payload });
                self.payload = self.payload.checked_add(4096)?;
            }
        }
        Some(record)
    }
}

#[derive(Clone, Copy)]
struct Rows {
    first: u16,
    count: u16,
}

impl Rows {
    fn end(self) -> u32 {
        u32::from(self.first) + u32::from(self.count)
    }

    fn are_within(self, other: Rows) -> bool {
        // A strip has at most 256 rows, so a record that is about more is no record of ours.
        self.count > 0 && self.first >= other.first && self.end() <= other.end().min(4096)
    }
}
