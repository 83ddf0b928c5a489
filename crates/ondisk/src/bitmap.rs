//! Pages of the write-intent bitmap and of the written map: bits with a checksum and an identity.
//!
//! What must stay true: a page names its kind, its number and its array, so a page from elsewhere or a
//! misdirected write is found; 4 KiB of zero bytes (never written) mean "all bits clear", but in a written map whose
//! pages creation made ([`PageIdentity::first`]) they are damage. A page of the write-intent bitmap that does not
//! decode must be taken the safe way by the caller, as if all its regions were dirty; of one of the written map
//! nobody knows which of its stripes are zeros.
//!
//! Bit `n` of the write-intent bitmap is region `n` of the volume, bit `n` of the written map is stripe `n`
//! of the array; a page holds [`BITS_PER_PAGE`] bits, word by word from the least significant bit.

use ashlar_units::{BLOCK_BYTES_USIZE, to_usize};
use uuid::Uuid;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use crate::format::{
    BITS_PER_PAGE, PAGE_CHECKSUM_AT, RawPage, WRITE_INTENT_MAGIC, WRITTEN_MAP_MAGIC,
    checksum_without,
};
use crate::seal::is_zero;

/// 64-bit words of bits in one page.
pub const WORDS_PER_PAGE: usize = 508;
const _: () = assert!(WORDS_PER_PAGE as u64 * 64 == BITS_PER_PAGE);

/// Sequence of the pages of the written map that creation makes, where it makes them
/// ([`Features::WHOLE_MAP`](crate::Features::WHOLE_MAP)). Every later write has a higher one.
pub const FIRST_SEQUENCE: u64 = 1;

/// The bits of one page.
pub type PageBits = [u64; WORDS_PER_PAGE];

/// Which of the two maps a page belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BitmapKind {
    /// A set bit: the region may be inconsistent.
    WriteIntent,
    /// A set bit: the stripe was written since creation or its last discard.
    WrittenMap,
}

/// Where a bit lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BitPlace {
    /// Number of the page.
    pub page: u32,
    /// Index of the 64-bit word in the page's bits.
    pub word: usize,
    /// The bit within the word.
    pub mask: u64,
}

/// Where bit `bit` lies.
///
/// # Panics
/// If the bit lies beyond page 2^32, more than any area can hold.
pub fn locate(bit: u64) -> BitPlace {
    let page = u32::try_from(bit / BITS_PER_PAGE).expect("areas hold fewer than 2^32 pages");
    let in_page = bit % BITS_PER_PAGE;
    BitPlace { page, word: to_usize(in_page / 64), mask: 1 << (in_page % 64) }
}

/// Pages that `bits` bits take.
pub fn page_count(bits: u64) -> u64 {
    bits.div_ceil(BITS_PER_PAGE)
}

/// The identity of an array in its pages: 64 bits of its UUID.
pub fn array_tag(array: Uuid) -> u64 {
    let (high, low) = array.as_u64_pair();
    high ^ low.rotate_left(32)
}

/// Which page of which array this is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageIdentity {
    /// The map.
    pub kind: BitmapKind,
    /// The array, as [`array_tag`] gives it.
    pub array_tag: u64,
    /// Number of the page in its area.
    pub page: u32,
}

/// A page read from a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitmapPage {
    /// Number of the write that made it; the copy with the highest is the newest. Zero: never written.
    pub sequence: u64,
    /// The bits.
    pub bits: PageBits,
}

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
    /// Intact, but the page of another array.
    #[error("a page of another array")]
    OtherArray,
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

impl PageIdentity {
    /// The bytes of the page.
    pub fn encode(&self, sequence: u64, bits: &PageBits) -> [u8; BLOCK_BYTES_USIZE] {
        let mut bytes = [0; BLOCK_BYTES_USIZE];
        let header = RawPage {
            magic: self.magic(),
            checksum: 0.into(),
            page: self.page.into(),
            reserved_0: [0; 4],
            array_tag: self.array_tag.into(),
            sequence: sequence.into(),
        };
        let (head, rest) = bytes.split_at_mut(size_of::<RawPage>());
        head.copy_from_slice(header.as_bytes());
        for (place, word) in rest.chunks_exact_mut(8).zip(bits) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let checksum = checksum_without(&bytes, PAGE_CHECKSUM_AT);
        bytes[PAGE_CHECKSUM_AT..PAGE_CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The page as creation makes it: no bit set.
    pub fn first(&self) -> [u8; BLOCK_BYTES_USIZE] {
        self.encode(FIRST_SEQUENCE, &[0; WORDS_PER_PAGE])
    }

    /// The page in `bytes`, if it is the one this identity names or was never written.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn decode(&self, bytes: &[u8]) -> Result<BitmapPage, PageFault> {
        let page = <[u8; BLOCK_BYTES_USIZE]>::try_from(bytes)
            .map_err(|_| PageFault::Size { bytes: bytes.len() })?;
        if is_zero(&page) {
            return Ok(BitmapPage { sequence: 0, bits: [0; WORDS_PER_PAGE] });
        }
        let (header, rest) =
            RawPage::ref_from_prefix(&page).map_err(|_| PageFault::Size { bytes: bytes.len() })?;
        if header.magic != self.magic() {
            return Err(PageFault::Foreign);
        }
        let stored = header.checksum.get();
        let computed = checksum_without(&page, PAGE_CHECKSUM_AT);
        if stored != computed {
            return Err(PageFault::Checksum { stored, computed });
        }
        if header.array_tag.get() != self.array_tag {
            return Err(PageFault::OtherArray);
        }
        if header.page.get() != self.page {
            return Err(PageFault::Misplaced { found: header.page.get(), wanted: self.page });
        }
        if header.reserved_0 != [0; 4] {
            return Err(PageFault::Reserved);
        }
        let words = <[U64; WORDS_PER_PAGE]>::ref_from_bytes(rest)
            .map_err(|_| PageFault::Size { bytes: bytes.len() })?;
        Ok(BitmapPage { sequence: header.sequence.get(), bits: words.map(U64::get) })
    }

    fn magic(&self) -> [u8; 4] {
        match self.kind {
            BitmapKind::WriteIntent => WRITE_INTENT_MAGIC,
            BitmapKind::WrittenMap => WRITTEN_MAP_MAGIC,
        }
    }
}
