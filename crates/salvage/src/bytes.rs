//! Little-endian numbers at known places of a record, and the checksum over a record.
//!
//! What must stay true: the caller has checked that the record is long enough; a place beyond its
//! end is a bug of this crate and stops it.

/// A UUID in the order of its text.
pub type Uuid = [u8; 16];

/// The `N` bytes at `at`.
pub fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut found = [0; N];
    found.copy_from_slice(&bytes[at..at + N]);
    found
}

pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// Whether every byte is zero.
pub fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// A byte count that is known to be small, as an index.
pub fn index(number: impl TryInto<usize>) -> usize {
    number.try_into().unwrap_or_else(|_| unreachable!("counts of blocks and strips fit an index"))
}

/// `text` up to its padding of zeros; what is not UTF-8 is replaced.
pub fn text(padded: &[u8]) -> String {
    let end = padded.iter().position(|byte| *byte == 0).unwrap_or(padded.len());
    String::from_utf8_lossy(&padded[..end]).into_owned()
}

/// A UUID as people write it.
pub fn uuid_text(uuid: &Uuid) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// An array's UUID in eight bytes, as pages and batches carry it: its first half XOR its second
/// rotated by 32.
pub fn array_tag(uuid: &Uuid) -> u64 {
    let half = |at: usize| u64::from_be_bytes(array_at(uuid, at));
    half(0) ^ half(8).rotate_left(32)
}

/// CRC-32C (Castagnoli, reflected polynomial 82F63B78) of a record without the four bytes at
/// `hole`.
pub fn checksum(record: &[u8], hole: usize) -> u32 {
    Crc::default().over(&record[..hole]).over(&record[hole + 4..]).done()
}

/// The same of a block.
pub fn block_checksum(block: &[u8]) -> u32 {
    Crc::default().over(block).done()
}

/// A CRC-32C of several pieces, one after the other.
pub struct Crc(u32);

impl Default for Crc {
    fn default() -> Crc {
        Crc(u32::MAX)
    }
}

impl Crc {
    /// With these bytes, too.
    pub fn over(self, bytes: &[u8]) -> Crc {
        let step =
            |crc: u32, byte: &u8| TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ (crc >> 8);
        Crc(bytes.iter().fold(self.0, step))
    }

    /// The sum.
    pub fn done(self) -> u32 {
        !self.0
    }
}

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let (mut at, mut byte) = (0, 0_u32);
    while at < 256 {
        let (mut crc, mut bit) = (byte, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{checksum, uuid_text};

    #[test]
    fn the_checksum_is_the_one_of_iscsi() {
        // The check value that every catalogue of CRCs gives, and an example of RFC 3720: 32 bytes
        // of zeros.
        assert_eq!(checksum(b"1234....56789", 4), 0xE306_9283);
        assert_eq!(checksum(&[0; 36], 0), 0x8A91_36AA);
    }

    #[test]
    fn a_uuid_is_written_in_the_order_of_its_bytes() {
        let uuid = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(uuid_text(&uuid), "12345678-9abc-def0-0102-030405060708");
    }
}
