//! The checksum table: what each block of a member's data area is known to be.
//!
//! What must stay true: a block that has a checksum and is something else was not written there.
//! Nothing is known of a block whose page nobody has intact.

use crate::bytes::{Crc, Uuid, array_tag, checksum, index, is_blank, u32_at, u64_at};
use crate::image::ReadAt;
use crate::superblock::Area;
use std::cell::RefCell;

const PAGE_BYTES: usize = 4096;
const HEADER_BYTES: usize = 32;
/// Checksums in a page.
const SUMS: u64 = 1016;

/// The tables of all members.
#[derive(Debug)]
pub struct Sums {
    array_tag: u64,
    area: Area,
    /// The page of each image that was looked at last.
    latest: RefCell<Vec<Option<Latest>>>,
}

/// A page's number and, if one of its places is intact, its bytes.
type Latest = (u64, Option<Vec<u8>>);

impl Sums {
    /// The tables in `area` of `images` members.
    pub fn new(array: &Uuid, area: Area, images: usize) -> Sums {
        let latest = (0..images).map(|_| None).collect();
        Sums { array_tag: array_tag(array), area, latest: RefCell::new(latest) }
    }

    /// What is known of block `block` of the data area of image number `at`.
    pub fn known<I: ReadAt>(&self, at: usize, image: &I, block: u64) -> Option<u32> {
        let page = block / SUMS;
        let mut latest = self.latest.borrow_mut();
        let kept = latest.get_mut(at)?;
        if kept.as_ref().is_none_or(|(number, _)| *number != page) {
            *kept = Some((page, self.newest(image, page)));
        }
        let (_, bytes) = kept.as_ref()?;
        let entry = HEADER_BYTES + 4 * index(block % SUMS);
        let known = u32_at(bytes.as_ref()?, entry);
        (known != 0).then_some(known)
    }

    fn newest<I: ReadAt>(&self, image: &I, page: u64) -> Option<Vec<u8>> {
        let places = (0..2).filter_map(|place| self.read(image, page, place));
        places.max_by_key(|bytes| u64_at(bytes, 24))
    }

    fn read<I: ReadAt>(&self, image: &I, page: u64, place: u64) -> Option<Vec<u8>> {
        let at = page.checked_mul(2)?.checked_add(place)?.checked_mul(4096)?;
        let offset = self.area.offset.checked_add(Some(at).filter(|at| *at < self.area.bytes)?)?;
        let mut bytes = vec![0; PAGE_BYTES];
        image.read_at(offset, &mut bytes).ok()?;
        let is_ours = bytes[..4] == *b"AWCT"
            && u64::from(u32_at(&bytes, 8)) == page
            && u64_at(&bytes, 16) == self.array_tag
            && u32_at(&bytes, 4) == checksum(&bytes, 4);
        (!is_blank(&bytes) && is_ours).then_some(bytes)
    }
}

/// The checksum of a block: its bytes, then where it belongs.
pub fn sum_of(slot: usize, block: u64, bytes: &[u8]) -> u32 {
    let slot = u64::try_from(slot).unwrap_or(u64::MAX);
    let address = block | slot << 48;
    match Crc::default().over(bytes).over(&address.to_le_bytes()).done() {
        0 => 1,
        sum => sum,
    }
}
