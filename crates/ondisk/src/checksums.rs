//! The checksum table: the CRC-32C of every 4 KiB block of a member's data area, in pages on the
//! same member but apart from the blocks.
//!
//! What must stay true: a checksum covers the block and its address, so a block in another's place
//! is found. 0 means that no checksum is known, and no block has it. A page names its number and
//! its array. A page that does not decode knows nothing about its blocks, which never counts as
//! "all of them are right".
//!
//! Block `n` of the data area has entry `n mod 1016` of page `n div 1016`. A page has two places,
//! written in turns.

use ashlar_units::{BLOCK_BYTES, BLOCK_BYTES_USIZE, MemberIdx, to_usize};
use zerocopy::little_endian::U32;
use zerocopy::transmute_ref;

use crate::format::{CHECKSUM_MAGIC, CHECKSUM_PLACES, CHECKSUMS_PER_PAGE, PAGE_BYTES};
use crate::geometry::GeometryRecord;
use crate::page::{PageFault, PageLabel};

/// Checksums in one page.
pub const SUMS_PER_PAGE: usize = 1016;
const _: () = assert!(SUMS_PER_PAGE as u64 == CHECKSUMS_PER_PAGE);

/// No checksum is known.
pub const UNKNOWN: u32 = 0;

/// The checksums of one page.
pub type Sums = [u32; SUMS_PER_PAGE];

/// The checksum of a block that lies at block `block` of the data area of the member in `slot`.
pub fn block_sum(slot: MemberIdx, block: u64, bytes: &[u8]) -> u32 {
    let address = (u64::from(slot.0) << 48) | block;
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(bytes);
    digest.update(&address.to_le_bytes());
    let sum = u32::try_from(digest.finalize()).expect("a CRC-32 has 32 bits");
    sum.max(1)
}

/// Pages of the table of one member.
pub fn page_count(geometry: &GeometryRecord) -> u64 {
    (geometry.member_data_bytes() / BLOCK_BYTES).div_ceil(CHECKSUMS_PER_PAGE)
}

/// Bytes of the area of one member, both places of each page.
pub fn table_bytes(geometry: &GeometryRecord) -> u64 {
    page_count(geometry) * CHECKSUM_PLACES * PAGE_BYTES
}

/// The page and the entry of a block of the data area.
///
/// # Panics
/// If the page is beyond page 2^32, more than any area can hold.
pub fn locate(block: u64) -> (u32, usize) {
    let page = u32::try_from(block / CHECKSUMS_PER_PAGE).expect("areas hold fewer than 2^32 pages");
    (page, to_usize(block % CHECKSUMS_PER_PAGE))
}

/// Where a place of a page lies, in bytes from the start of the area.
pub fn place_offset(page: u32, place: u64) -> u64 {
    (u64::from(page) * CHECKSUM_PLACES + place) * PAGE_BYTES
}

/// The identity of a page: its number and array.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SumPageIdentity {
    /// The array, as [`array_tag`](crate::bitmap::array_tag) gives it.
    pub array_tag: u64,
    /// Number of the page in its area.
    pub page: u32,
}

/// A page read from a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SumPage {
    /// Number of the write that made it; the place with the higher one counts. Zero: never written.
    pub sequence: u64,
    /// The checksums.
    pub sums: Sums,
}

impl SumPageIdentity {
    /// The bytes of the page.
    pub fn encode(&self, sequence: u64, sums: &Sums) -> [u8; BLOCK_BYTES_USIZE] {
        self.label().seal(sequence, |body| {
            for (place, sum) in body.chunks_exact_mut(4).zip(sums) {
                place.copy_from_slice(&sum.to_le_bytes());
            }
        })
    }

    /// The page in `bytes`, if it is the one this identity names or was never written.
    ///
    /// # Errors
    /// Why it cannot be used: it knows nothing about its blocks then.
    pub fn decode(&self, bytes: &[u8]) -> Result<SumPage, PageFault> {
        let (sequence, body) = self.label().open(bytes)?;
        let sums: &[U32; SUMS_PER_PAGE] = transmute_ref!(body);
        Ok(SumPage { sequence, sums: sums.map(U32::get) })
    }

    fn label(&self) -> PageLabel {
        PageLabel { magic: CHECKSUM_MAGIC, owner_tag: self.array_tag, page: self.page }
    }

    /// What the two places of a page add up to: the newer one that decodes, and which place it is;
    /// nothing if none does.
    pub fn newest(&self, places: [Option<&[u8]>; 2]) -> Option<(SumPage, u64)> {
        let decoded = |place: Option<&[u8]>| self.decode(place?).ok();
        match places.map(decoded) {
            [Some(first), Some(second)] if second.sequence > first.sequence => Some((second, 1)),
            [Some(first), _] => Some((first, 0)),
            [None, Some(second)] => Some((second, 1)),
            [None, None] => None,
        }
    }
}
