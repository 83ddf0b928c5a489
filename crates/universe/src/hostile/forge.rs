//! Records with false contents under a right checksum, as somebody writes them who knows the
//! format.
//!
//! What must stay true: fields and their places come from the tables of the format, so that none is
//! forgotten.

use ashlar_ondisk::format::{
    AREA_FIELDS, AREAS_MAX, BATCH_FIELDS, FieldAt, HEADER_FIELDS, HOLDER_FIELDS, JOB_FIELDS,
    JOBS_MAX, MEMBER_ENTRY_BYTES, MEMBER_FIELDS, PAGE_FIELDS, PART_FIELDS, RECORD_FIELDS,
    SUPERBLOCK_HEADER_BYTES, SUPERBLOCK_SLOT_BYTES,
};
use ashlar_sim::Random;
use ashlar_units::{to_u64, to_usize};

/// Where the checksum of superblocks and batches lies, and that of pages.
const CHECKSUM_AT: usize = 8;
const PAGE_CHECKSUM_AT: usize = 4;

/// Numbers that break arithmetic.
const EDGES: [u64; 14] = [
    0,
    1,
    2,
    3,
    0x7F,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    1 << 40,
    1 << 62,
    u64::MAX >> 1,
    u64::MAX,
];

fn seal(bytes: &mut [u8], at: usize) {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..at]);
    digest.update(&bytes[at + 4..]);
    bytes[at..at + 4].copy_from_slice(&digest.finalize().to_le_bytes()[..4]);
}

/// The little-endian number in up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Something else in a field: another number of the same size, near the old one or far from it.
fn change(field: &mut [u8], random: &mut Random) {
    let old = number(field);
    let new = match random.below(7) {
        0 | 1 => EDGES[to_usize(random.below(to_u64(EDGES.len())))],
        2 => old.wrapping_add(1 + random.below(4)),
        3 => old.wrapping_sub(1 + random.below(4)),
        4 => old ^ 1 << random.below(8 * to_u64(field.len().min(8))),
        5 => random.below(0x1_0000),
        _ => random.next_u64(),
    };
    // Fields longer than a number (names, UUIDs, reserved bytes): some eight bytes of them.
    let from = match field.len() {
        0..=8 => 0,
        long => to_usize(random.below(to_u64(long - 7))),
    };
    let to = field.len().min(from + 8);
    field[from..to].copy_from_slice(&new.to_le_bytes()[..to - from]);
}

/// One field of the record of these `fields` that begins at `at`.
fn change_one(bytes: &mut [u8], at: usize, fields: &[FieldAt], random: &mut Random) {
    let field = fields[to_usize(random.below(to_u64(fields.len())))];
    if let Some(field) = bytes.get_mut(at + field.offset..at + field.offset + field.bytes) {
        change(field, random);
    }
}

fn field_at(fields: &'static [FieldAt], name: &str) -> usize {
    fields.iter().find(|field| field.name == name).expect("a field of the format").offset
}

/// Other facts in a superblock, in `slot` of a member; its length is kept within the slot.
pub(crate) fn superblock(slot: &mut [u8], random: &mut Random) {
    for _ in 0..=random.below(3) {
        match random.below(10) {
            0..=4 => change_one(slot, 0, HEADER_FIELDS, random),
            5 => {
                let area = random.below(to_u64(AREAS_MAX)) * 16;
                let areas = field_at(HEADER_FIELDS, "areas");
                change_one(slot, areas + to_usize(area), AREA_FIELDS, random);
            }
            6 => {
                let job = random.below(to_u64(JOBS_MAX)) * 64;
                let jobs = field_at(HEADER_FIELDS, "jobs");
                change_one(slot, jobs + to_usize(job), JOB_FIELDS, random);
            }
            _ => {
                let entry = random.below(8) * MEMBER_ENTRY_BYTES;
                let at = to_usize(SUPERBLOCK_HEADER_BYTES + entry);
                change_one(slot, at, MEMBER_FIELDS, random);
            }
        }
    }
    let length = to_usize(number(&slot[12..16])).clamp(4096, to_usize(SUPERBLOCK_SLOT_BYTES));
    seal(&mut slot[..length], CHECKSUM_AT);
}

/// Other facts in a page of a map or of the checksum table: its header, or what it is about.
pub(crate) fn page(page: &mut [u8], random: &mut Random) {
    for _ in 0..=random.below(3) {
        if random.percent(40) {
            change_one(page, 0, PAGE_FIELDS, random);
        } else {
            let near = if random.percent(70) { 64 } else { page.len() - 40 };
            let at = 32 + to_usize(random.below(to_u64(near)));
            change(&mut page[at..at + 8], random);
        }
    }
    seal(page, PAGE_CHECKSUM_AT);
}

/// Other facts in the batch that begins at `batch`: its header, the first records with their
/// holders and parts, or what it is to put in place. False if there is none.
pub(crate) fn batch(batch: &mut [u8], random: &mut Random) -> bool {
    if !batch.starts_with(&ashlar_ondisk::format::LOG_BATCH_MAGIC) {
        return false;
    }
    for _ in 0..=random.below(3) {
        let record = field_end(BATCH_FIELDS);
        let holders = record + field_end(RECORD_FIELDS);
        let holder_count = usize::from(batch[record + field_at(RECORD_FIELDS, "holder_count")]);
        let parts = holders + holder_count * field_end(HOLDER_FIELDS);
        match random.below(10) {
            0 | 1 => change_one(batch, 0, BATCH_FIELDS, random),
            2..=4 => change_one(batch, record, RECORD_FIELDS, random),
            5 | 6 => {
                let holder = to_usize(random.below(4)) * field_end(HOLDER_FIELDS);
                change_one(batch, holders + holder, HOLDER_FIELDS, random);
            }
            7 | 8 => {
                let part = to_usize(random.below(3)) * field_end(PART_FIELDS);
                change_one(batch, parts + part, PART_FIELDS, random);
            }
            _ => {
                let at = to_usize(random.below(to_u64(batch.len() - 8)));
                change(&mut batch[at..at + 8], random);
            }
        }
    }
    let length = to_usize(number(&batch[12..16])).clamp(4096, batch.len());
    seal(&mut batch[..length], CHECKSUM_AT);
    true
}

fn field_end(fields: &[FieldAt]) -> usize {
    fields.last().map_or(0, |last| last.offset + last.bytes)
}
