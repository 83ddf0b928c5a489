//! Members of small arrays, built from the offsets in docs/on-disk-format.md and nothing else.
//!
//! What must stay true: numbers here are copied from the page, not from the crate under test.

use std::sync::LazyLock;

/// Where things lie on a forged member.
pub const INTENT: usize = 256 << 10;
pub const MAP: usize = INTENT + 4096;
pub const LOG: usize = MAP + 8192;
pub const LOG_BYTES: usize = 64 << 10;
pub const SUMS: usize = LOG + LOG_BYTES;
pub const DATA: usize = 1 << 20;
pub const STRIP: usize = 8192;
pub const ROWS: usize = 6;
pub const SIZE: usize = DATA + ROWS * STRIP + (128 << 10);

/// Roles of the member table.
pub const ACTIVE: u8 = 1;
pub const REBUILDING: u8 = 2;
pub const REPLACEMENT: u8 = 3;
pub const OUT: u8 = 4;

/// One entry of the member table: who, where, in which role, out since.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub member: u8,
    pub slot: u16,
    pub role: u8,
    pub out_since: u64,
}

/// An array; `superblock` writes down what it is.
#[derive(Clone, Debug)]
pub struct Array {
    pub uuid: u8,
    pub level: u16,
    pub k: u16,
    pub m: u16,
    pub groups: u16,
    pub generation: u64,
    pub incarnation: u8,
    pub previous: u8,
    pub unclean: bool,
    pub resync_dirty: bool,
    /// 1 bitmap, 3 log.
    pub policy: u8,
    /// It keeps checksums.
    pub has_sums: bool,
    /// Its flush marks count.
    pub has_marks: bool,
    pub entries: Vec<Entry>,
    /// Kind, member and checkpoint of one job.
    pub job: Option<(u8, u8, u64)>,
}

impl Array {
    /// All slots active, generation 9, incarnation 0x90 after 0x80.
    pub fn new(level: u16, k: u16, m: u16, groups: u16) -> Array {
        let entry = |slot: u16| Entry {
            member: u8::try_from(slot).expect("few slots"),
            slot,
            role: ACTIVE,
            out_since: 0,
        };
        Array {
            uuid: 7,
            level,
            k,
            m,
            groups,
            generation: 9,
            incarnation: 0x90,
            previous: 0x80,
            unclean: false,
            resync_dirty: false,
            policy: 1,
            has_sums: false,
            has_marks: false,
            entries: (0..(k + m) * groups).map(entry).collect(),
            job: None,
        }
    }

    /// The superblock of one member, with its checksum.
    pub fn superblock(&self, member: u8) -> Vec<u8> {
        let mut bytes = vec![0; 8192];
        bytes[..8].copy_from_slice(b"ASHLARSB");
        put(&mut bytes, 12, &8192_u32.to_le_bytes());
        put(&mut bytes, 16, &1_u32.to_le_bytes());
        put(&mut bytes, 48, &self.generation.to_le_bytes());
        put(&mut bytes, 56, &[self.uuid; 16]);
        put(&mut bytes, 72, &[self.incarnation; 16]);
        put(&mut bytes, 88, &[self.previous; 16]);
        put(&mut bytes, 104, &[member + 1; 16]);
        put(&mut bytes, 120, &number(SIZE).to_le_bytes());
        let slot = self.entries.iter().find(|it| it.member == member).map_or(0, |it| it.slot);
        put(&mut bytes, 128, &slot.to_le_bytes());
        let entries = u16::try_from(self.entries.len()).expect("few");
        put(&mut bytes, 130, &entries.to_le_bytes());
        let flags = u32::from(self.unclean) + 2 * u32::from(self.resync_dirty);
        put(&mut bytes, 132, &flags.to_le_bytes());
        put(&mut bytes, 136, b"forged");
        for (at, field) in [(216, self.level), (218, self.k), (220, self.m), (222, self.groups)] {
            put(&mut bytes, at, &field.to_le_bytes());
        }
        put(&mut bytes, 224, &u32::try_from(STRIP).expect("small").to_le_bytes());
        put(&mut bytes, 228, &1_u32.to_le_bytes());
        put(&mut bytes, 232, &number(ROWS).to_le_bytes());
        put(&mut bytes, 240, &4096_u32.to_le_bytes());
        bytes[244] = self.policy;
        put(&mut bytes, 40, &u64::from(self.policy == 3).to_le_bytes());
        put(&mut bytes, 24, &(2 * u64::from(self.has_marks)).to_le_bytes());
        bytes[245] = u8::from(self.has_sums);
        put(&mut bytes, 32, &u64::from(self.has_sums).to_le_bytes());
        put(&mut bytes, 248, &(1_u64 << 20).to_le_bytes());
        let areas = [
            (0, 0, 128 << 10),
            (1, SIZE - (128 << 10), 128 << 10),
            (2, 128 << 10, 8192),
            (3, INTENT, 4096),
            (4, MAP, 8192),
            (5, LOG, LOG_BYTES),
            (6, SUMS, if self.has_sums { 8192 } else { 0 }),
            (7, DATA, ROWS * STRIP),
        ];
        for (area, offset, length) in areas {
            put(&mut bytes, 288 + 16 * area, &number(offset).to_le_bytes());
            put(&mut bytes, 296 + 16 * area, &number(length).to_le_bytes());
        }
        if let Some((kind, member, checkpoint)) = self.job {
            bytes[544] = kind;
            put(&mut bytes, 552, &[member + 1; 16]);
            put(&mut bytes, 568, &checkpoint.to_le_bytes());
        }
        for (at, entry) in self.entries.iter().enumerate() {
            let at = 4096 + 128 * at;
            put(&mut bytes, at, &[entry.member + 1; 16]);
            put(&mut bytes, at + 16, &entry.slot.to_le_bytes());
            bytes[at + 18] = entry.role;
            put(&mut bytes, at + 24, &entry.out_since.to_le_bytes());
            if entry.out_since > 0 {
                put(&mut bytes, at + 80, &[self.incarnation; 16]);
                put(&mut bytes, at + 96, &[self.previous; 16]);
            } else if self.policy == 3 {
                put(&mut bytes, at + 112, &log_tag(entry.member).to_le_bytes());
            }
        }
        seal(&mut bytes, 8);
        bytes
    }

    /// A member with all four copies, a clean write-intent bitmap, a map with these stripes, and no
    /// data.
    pub fn member(&self, member: u8, written: &[usize]) -> Vec<u8> {
        let mut image = vec![0; SIZE];
        let superblock = self.superblock(member);
        for at in [0, 64 << 10, SIZE - (128 << 10), SIZE - (64 << 10)] {
            put(&mut image, at, &superblock);
        }
        put(&mut image, MAP, &self.page(*b"AWRM", 5, written));
        image
    }

    /// A flush mark: its sequence and the mark that it calls flushed.
    pub fn mark(&self, sequence: u64, flushed: u64) -> Vec<u8> {
        let mut mark = vec![0; 4096];
        mark[..8].copy_from_slice(b"ASHLARFM");
        put(&mut mark, 12, &1_u32.to_le_bytes());
        put(&mut mark, 16, &[self.uuid; 16]);
        put(&mut mark, 48, &sequence.to_le_bytes());
        put(&mut mark, 56, &flushed.to_le_bytes());
        seal(&mut mark, 8);
        mark
    }

    /// The first page of the checksum table, saying what the data area of this member holds in its
    /// first rows.
    pub fn sums(&self, slot: u8, image: &[u8], sequence: u64) -> Vec<u8> {
        let mut page = self.page(*b"AWCT", sequence, &[]);
        for block in 0..ROWS * STRIP / 4096 {
            let mut text = image[DATA + block * 4096..DATA + (block + 1) * 4096].to_vec();
            let address = number(block) | u64::from(slot) << 48;
            text.extend_from_slice(&address.to_le_bytes());
            put(&mut page, 32 + 4 * block, &crc(&text).max(1).to_le_bytes());
        }
        seal(&mut page, 4);
        page
    }

    /// A page of bits with these set.
    pub fn page(&self, magic: [u8; 4], sequence: u64, set: &[usize]) -> Vec<u8> {
        let mut page = vec![0; 4096];
        page[..4].copy_from_slice(&magic);
        let half = u64::from_be_bytes([self.uuid; 8]);
        put(&mut page, 16, &(half ^ half.rotate_left(32)).to_le_bytes());
        put(&mut page, 24, &sequence.to_le_bytes());
        for bit in set {
            page[32 + bit / 8] |= 1 << (bit % 8);
        }
        seal(&mut page, 4);
        page
    }
}

/// A record as one device has it.
#[derive(Clone, Debug)]
pub struct Record {
    pub sequence: u64,
    pub stripe: u64,
    /// First row and rows.
    pub rows: (u16, u16),
    pub kind: u8,
    /// Members with their strips.
    pub holders: Vec<(u8, u8)>,
    /// Strip, row and byte of each block.
    pub blocks: Vec<(u8, u16, u8)>,
    /// Of a parity-only record: the strip of its block, its byte before and afterwards.
    pub change: Option<(u8, u8, u8)>,
}

/// A device's name in the log.
pub fn log_tag(member: u8) -> u64 {
    0x7700 + u64::from(member)
}

impl Array {
    /// A batch of log ring 1 for a member.
    pub fn batch(&self, member: u8, settled_below: u64, records: &[Record]) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[..8].copy_from_slice(b"ASHLARLG");
        put(&mut bytes, 16, &4096_u32.to_le_bytes());
        put(&mut bytes, 20, &1_u16.to_le_bytes());
        put(&mut bytes, 22, &u16::try_from(records.len()).expect("few").to_le_bytes());
        let half = u64::from_be_bytes([self.uuid; 8]);
        put(&mut bytes, 24, &(half ^ half.rotate_left(32)).to_le_bytes());
        put(&mut bytes, 32, &log_tag(member).to_le_bytes());
        put(&mut bytes, 40, &[self.incarnation; 16]);
        put(&mut bytes, 56, &1_u64.to_le_bytes());
        put(&mut bytes, 64, &settled_below.to_le_bytes());
        let mut at = 72;
        for record in records {
            put(&mut bytes, at, &record.sequence.to_le_bytes());
            put(&mut bytes, at + 8, &record.stripe.to_le_bytes());
            put(&mut bytes, at + 16, &record.rows.0.to_le_bytes());
            put(&mut bytes, at + 18, &record.rows.1.to_le_bytes());
            let count = |length: usize| u8::try_from(length).expect("few");
            let counts = [record.kind, count(record.holders.len()), count(record.blocks.len()), 0];
            put(&mut bytes, at + 20, &counts);
            at += 24;
            for (holder, strip) in &record.holders {
                put(&mut bytes, at, &log_tag(*holder).to_le_bytes());
                bytes[at + 8] = *strip;
                at += 10;
            }
            for (strip, row, byte) in &record.blocks {
                bytes[at] = *strip;
                put(&mut bytes, at + 2, &row.to_le_bytes());
                put(&mut bytes, at + 4, &1_u16.to_le_bytes());
                bytes.extend_from_slice(&block(*byte));
                at += 6;
            }
            if let Some((strip, old, new)) = record.change {
                bytes[at] = strip;
                put(&mut bytes, at + 4, &crc(&block(old)).to_le_bytes());
                put(&mut bytes, at + 8, &crc(&block(new)).to_le_bytes());
                at += 12;
            }
            at = at.next_multiple_of(8);
        }
        let length = u32::try_from(bytes.len()).expect("small");
        put(&mut bytes, 12, &length.to_le_bytes());
        seal(&mut bytes, 8);
        bytes
    }
}

/// The same batch with another number.
pub fn numbered(mut batch: Vec<u8>, number: u64) -> Vec<u8> {
    put(&mut batch, 56, &number.to_le_bytes());
    seal(&mut batch, 8);
    batch
}

/// Write `field` at `at`.
pub fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// What one byte does to a CRC-32C: one bit at a time.
static STEPS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let step = |byte: u32| {
        (0..8).fold(byte, |crc, _| (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg()))
    };
    (0..256).map(step).collect()
});

/// Compute the checksum of a record into its place.
pub fn seal(record: &mut [u8], at: usize) {
    let sum = crc(&[&record[..at], &record[at + 4..]].concat());
    put(record, at, &sum.to_le_bytes());
}

fn crc(bytes: &[u8]) -> u32 {
    let steps = STEPS.as_slice();
    let step = |crc: u32, byte: &u8| steps[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ (crc >> 8);
    !bytes.iter().fold(u32::MAX, step)
}

/// A place or length as the format has it.
pub fn number(length: usize) -> u64 {
    u64::try_from(length).expect("small")
}

/// A block of one byte.
pub fn block(byte: u8) -> [u8; 4096] {
    [byte; 4096]
}
