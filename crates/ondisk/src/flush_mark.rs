//! Flush marks: they record what every member in service is known to hold, so that an older copy of
//! a member is recognised.
//!
//! What must stay true: marks rise as long as the array lives. A mark says of an earlier one,
//! `flushed`, that it is durable on every device in service: it was written to all of them, and a
//! later flush of all of them went well. If a member's newest mark is below another member's
//! `flushed`, it has lost something durable. It is then an older copy, or its drive forgot. After a
//! power cut no honest member lies below.

use uuid::Uuid;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use ashlar_units::{BLOCK_BYTES_USIZE, to_usize};

use crate::format::{
    CHECKSUM_AT, FLUSH_MARK_MAGIC, FLUSH_MARK_OFFSET, FLUSH_MARK_SEQUENCE_END, FLUSH_MARK_SLOTS,
    FORMAT_VERSION, RawFlushMark, checksum_without, flush_mark_slots,
};
use crate::seal::{is_zero, sealed_block};

/// One flush mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushMark {
    /// The array.
    pub array_uuid: Uuid,
    /// The start that wrote it.
    pub incarnation: Uuid,
    /// Rises by one with every mark; from 1.
    pub sequence: u64,
    /// A mark, always an earlier one, that is durable on every device in service; 0: none is known
    /// to be.
    pub flushed: u64,
}

impl FlushMark {
    /// Which of the two places this mark goes to.
    pub fn slot(&self) -> usize {
        to_usize(self.sequence % FLUSH_MARK_SLOTS as u64)
    }

    /// The 4 KiB for the member.
    ///
    /// # Panics
    /// If readers would reject the mark.
    pub fn encode(&self) -> [u8; BLOCK_BYTES_USIZE] {
        assert!(self.is_possible(), "marks are counted from 1 and speak of earlier ones");
        let raw = RawFlushMark {
            magic: FLUSH_MARK_MAGIC,
            version: FORMAT_VERSION.into(),
            array_uuid: self.array_uuid.into_bytes(),
            incarnation: self.incarnation.into_bytes(),
            sequence: self.sequence.into(),
            flushed: self.flushed.into(),
            ..RawFlushMark::new_zeroed()
        };
        sealed_block(raw.as_bytes())
    }

    /// The mark in a 4 KiB block; `None` if it was never written, is damaged, or says what no
    /// engine says.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let raw = RawFlushMark::ref_from_bytes(bytes).ok()?;
        let intact = raw.magic == FLUSH_MARK_MAGIC
            && raw.version.get() == FORMAT_VERSION
            && raw.checksum.get() == checksum_without(bytes, CHECKSUM_AT)
            && is_zero(&raw.reserved_0);
        let mark = FlushMark {
            array_uuid: Uuid::from_bytes(raw.array_uuid),
            incarnation: Uuid::from_bytes(raw.incarnation),
            sequence: raw.sequence.get(),
            flushed: raw.flushed.get(),
        };
        (intact && mark.is_possible()).then_some(mark)
    }

    /// The newest mark of `array` in the first bytes of a device, as far as they were read.
    pub fn newest_in(head: Option<&[u8]>, array: Uuid) -> Option<Self> {
        Self::newest(head?, 0, array)
    }

    /// The newest mark of `array` in the bytes from [`FLUSH_MARK_OFFSET`] on.
    pub fn newest_of(marks: &[u8], array: Uuid) -> Option<Self> {
        Self::newest(marks, FLUSH_MARK_OFFSET, array)
    }

    fn newest(bytes: &[u8], from: u64, array: Uuid) -> Option<Self> {
        let block = |slot: ashlar_units::Extent| {
            bytes.get(to_usize(slot.offset - from)..to_usize(slot.end() - from))
        };
        flush_mark_slots()
            .into_iter()
            .filter_map(|slot| Self::decode(block(slot)?))
            .filter(|mark| mark.array_uuid == array)
            .max_by_key(|mark| mark.sequence)
    }

    fn is_possible(&self) -> bool {
        self.flushed < self.sequence && self.sequence < FLUSH_MARK_SEQUENCE_END
    }
}
