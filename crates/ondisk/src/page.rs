//! What pages of bits and pages of checksums have in common: 4 KiB behind a header with a checksum
//! and an identity.
//!
//! What must stay true: nothing of a page is used before its checksum is right. Nothing is used of
//! a page that belongs to another kind, array or place. 4 KiB of zero bytes were never written.

use ashlar_units::BLOCK_BYTES_USIZE;
use zerocopy::{FromBytes, IntoBytes};

use crate::format::{PAGE_CHECKSUM_AT, RawPage, checksum_without};
use crate::seal::{is_zero, seal_at};

/// Bytes of a page behind its header.
pub(crate) const BODY_BYTES: usize = BLOCK_BYTES_USIZE - size_of::<RawPage>();

/// Why a page cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PageFault {
    /// Fewer or more than 4 KiB were handed in.
    #[error("a page is 4096 bytes, not {bytes}")]
    Size {
        /// Bytes handed in.
        bytes: usize,
    },
    /// The magic is not that of this map.
    #[error("not a page of this map")]
    Foreign,
    /// The checksum does not match.
    #[error("damaged: checksum {stored:08x} stored, {computed:08x} computed")]
    Checksum {
        /// As stored.
        stored: u32,
        /// Over what was read.
        computed: u32,
    },
    /// Intact, but the page of another array or another member.
    #[error("a page of another array or another member")]
    OtherOwner,
    /// Intact, but another page: a write went to the wrong place.
    #[error("page {found} in the place of page {wanted}")]
    Misplaced {
        /// Number it carries.
        found: u32,
        /// Number its place has.
        wanted: u32,
    },
    /// The checksum is right, the reserved bytes are not zero.
    #[error("reserved bytes are not zero")]
    Reserved,
}

/// What a page says it is.
pub(crate) struct PageLabel {
    pub(crate) magic: [u8; 4],
    /// Whose it is: see [`Superblock::page_tag`](crate::Superblock::page_tag).
    pub(crate) owner_tag: u64,
    pub(crate) page: u32,
}

/// The sequence of a page, 0 if it was never written, and what lies behind its header.
pub(crate) type Opened<'a> = (u64, &'a [u8; BODY_BYTES]);

impl PageLabel {
    /// The bytes of the page, with what `fill` puts behind the header.
    pub(crate) fn seal(
        &self,
        sequence: u64,
        fill: impl FnOnce(&mut [u8]),
    ) -> [u8; BLOCK_BYTES_USIZE] {
        let mut bytes = [0; BLOCK_BYTES_USIZE];
        let header = RawPage {
            magic: self.magic,
            checksum: 0.into(),
            page: self.page.into(),
            reserved_0: [0; 4],
            owner_tag: self.owner_tag.into(),
            sequence: sequence.into(),
        };
        let (head, body) = bytes.split_at_mut(size_of::<RawPage>());
        head.copy_from_slice(header.as_bytes());
        fill(body);
        seal_at(&mut bytes, PAGE_CHECKSUM_AT);
        bytes
    }

    /// What lies behind the header of `bytes`, if it is the page that this label names or was never
    /// written.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(crate) fn open<'a>(&self, bytes: &'a [u8]) -> Result<Opened<'a>, PageFault> {
        let size = |_| PageFault::Size { bytes: bytes.len() };
        let page = <&[u8; BLOCK_BYTES_USIZE]>::try_from(bytes).map_err(size)?;
        let (header, body) =
            RawPage::ref_from_prefix(page).expect("a page is longer than its header");
        let body = body.try_into().expect("what is left of a page");
        if is_zero(page) {
            return Ok((0, body));
        }
        if header.magic != self.magic {
            return Err(PageFault::Foreign);
        }
        let stored = header.checksum.get();
        let computed = checksum_without(page, PAGE_CHECKSUM_AT);
        if stored != computed {
            return Err(PageFault::Checksum { stored, computed });
        }
        if header.owner_tag.get() != self.owner_tag {
            return Err(PageFault::OtherOwner);
        }
        if header.page.get() != self.page {
            return Err(PageFault::Misplaced { found: header.page.get(), wanted: self.page });
        }
        if header.reserved_0 != [0; 4] {
            return Err(PageFault::Reserved);
        }
        Ok((header.sequence.get(), body))
    }
}
