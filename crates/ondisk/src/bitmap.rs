//! Pages of the write-intent bitmap and of the written map: bits with a checksum and an identity.
//!
//! What must stay true: a page names its kind, its number and its array, so a foreign page or a
//! misdirected write is found. 4 KiB of zero bytes (never written) mean "all bits clear". In a
//! written map whose pages creation made ([`PageIdentity::first`]) they are damage. If a page of
//! the write-intent bitmap does not decode, the caller must treat all its regions as dirty. If a
//! page of the written map does not decode, it is unknown which of its stripes are zeros.
//!
//! Bit `n` of the write-intent bitmap is region `n` of the volume, bit `n` of the written map is
//! stripe `n` of the array. A page holds [`BITS_PER_PAGE`] bits, word by word from the least
//! significant bit.

use ashlar_units::{BLOCK_BYTES_USIZE, to_usize};
use uuid::Uuid;
use zerocopy::little_endian::U64;
use zerocopy::transmute_ref;

use crate::format::{BITS_PER_PAGE, SPARE_STATES_MAGIC, WRITE_INTENT_MAGIC, WRITTEN_MAP_MAGIC};
use crate::page::{PageFault, PageLabel};

/// 64-bit words of bits in one page.
pub const WORDS_PER_PAGE: usize = 508;
const _: () = assert!(WORDS_PER_PAGE as u64 * 64 == BITS_PER_PAGE);

/// Sequence of the pages of the written map that creation makes, where it makes them
/// ([`Features::WHOLE_MAP`](crate::Features::WHOLE_MAP)). Every later write has a higher one.
pub const FIRST_SEQUENCE: u64 = 1;

/// The bits of one page.
pub type PageBits = [u64; WORDS_PER_PAGE];

/// Which of the maps a page belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BitmapKind {
    /// A set bit: the region may be inconsistent.
    WriteIntent,
    /// A set bit: the stripe was written since creation or its last discard.
    WrittenMap,
    /// Two bits for each cell of a lost member: where it is (`spare_table.rs`).
    SpareStates,
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

/// The identity of a page: its kind, number and array.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageIdentity {
    /// The map.
    pub kind: BitmapKind,
    /// The array and the member it lies on, as
    /// [`Superblock::page_tag`](crate::Superblock::page_tag) gives them.
    pub owner_tag: u64,
    /// Number of the page in its area.
    pub page: u32,
}

/// A page read from a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitmapPage {
    /// Number of the write that made it; the copy with the highest is the newest. Zero: never
    /// written.
    pub sequence: u64,
    /// The bits.
    pub bits: PageBits,
}

impl PageIdentity {
    /// The bytes of the page.
    pub fn encode(&self, sequence: u64, bits: &PageBits) -> [u8; BLOCK_BYTES_USIZE] {
        self.label().seal(sequence, |body| {
            for (place, word) in body.chunks_exact_mut(8).zip(bits) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        })
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
        let (sequence, body) = self.label().open(bytes)?;
        let words: &[U64; WORDS_PER_PAGE] = transmute_ref!(body);
        Ok(BitmapPage { sequence, bits: words.map(U64::get) })
    }

    fn label(&self) -> PageLabel {
        PageLabel { magic: self.magic(), owner_tag: self.owner_tag, page: self.page }
    }

    fn magic(&self) -> [u8; 4] {
        match self.kind {
            BitmapKind::WriteIntent => WRITE_INTENT_MAGIC,
            BitmapKind::WrittenMap => WRITTEN_MAP_MAGIC,
            BitmapKind::SpareStates => SPARE_STATES_MAGIC,
        }
    }
}
