//! The bytes that a write stores in one stripe, and where each row of them lies.
//!
//! What must stay true: the bytes are shared. Of writes that go together only strips of which
//! several have a part are copied. The bytes of one strip lie one after the other, because a member
//! gets them in one command.

use crate::array::Array;
use crate::lists::List;
use crate::log::update::Piece;
use crate::stripe::work::StripeWrite;
use ashlar_iobuf::Buf;
use ashlar_layout::{RowRange, Stripe};
use ashlar_units::{Extent, StripIdx, to_u64, to_usize};

/// What is to be stored in one stripe.
pub(crate) struct Payload {
    stripe: Stripe,
    pub(super) extent: Extent,
    bytes: Bytes,
    strip_bytes: u64,
}

/// Where the bytes are.
enum Bytes {
    /// All one after the other.
    Whole(Buf),
    /// Strip by strip: the first is the one in which the extent begins.
    Strips(List<Buf>),
}

impl Payload {
    /// Of one write.
    #[inline]
    pub(crate) fn new(array: &Array, write: StripeWrite) -> Payload {
        let StripeWrite { stripe, extent, bytes } = write;
        let strip_bytes = array.geometry_of(stripe).strip_bytes();
        Payload { stripe, extent, bytes: Bytes::Whole(bytes), strip_bytes }
    }

    /// Of several that follow each other: the bytes of each strip from the one on in which the
    /// extent begins.
    ///
    /// # Panics
    /// If the strips are not as long as the extent.
    pub(super) fn of_strips(
        array: &Array,
        stripe: Stripe,
        extent: Extent,
        strips: List<Buf>,
    ) -> Payload {
        let bytes: u64 = strips.iter().map(|strip| to_u64(strip.len())).sum();
        assert_eq!(bytes, extent.bytes, "strips of another extent");
        let strip_bytes = array.geometry_of(stripe).strip_bytes();
        Payload { stripe, extent, bytes: Bytes::Strips(strips), strip_bytes }
    }

    /// The stripe.
    pub(super) fn stripe(&self) -> Stripe {
        self.stripe
    }

    /// All bytes of a write that went alone.
    ///
    /// # Panics
    /// If it is of several: they are whole blocks, and nobody needs more than a strip of them.
    pub(super) fn whole(&self) -> &Buf {
        match &self.bytes {
            Bytes::Whole(bytes) => bytes,
            Bytes::Strips(_) => unreachable!("writes that go together are whole blocks"),
        }
    }

    /// The new content of `rows` of a data strip.
    pub(super) fn slice(&self, strip: StripIdx, rows: RowRange) -> &[u8] {
        let (bytes, range) = self.place(strip, rows);
        &bytes[range]
    }

    /// The same, to be written by a device.
    pub(super) fn shared(&self, strip: StripIdx, rows: RowRange) -> Buf {
        let (bytes, range) = self.place(strip, rows);
        bytes.slice(range)
    }

    /// The same, as a piece of an update.
    pub(super) fn piece(&self, strip: StripIdx, rows: RowRange) -> Piece {
        Piece::new(strip, rows, self.shared(strip, rows))
    }

    #[inline]
    fn place(&self, strip: StripIdx, rows: RowRange) -> (&Buf, std::ops::Range<usize>) {
        let strip_at = u64::from(strip.0) * self.strip_bytes;
        let (bytes, first) = match &self.bytes {
            Bytes::Whole(bytes) => (bytes, self.extent.offset),
            Bytes::Strips(strips) => {
                let first_strip = to_usize(self.extent.offset / self.strip_bytes);
                (&strips[strip.at() - first_strip], strip_at.max(self.extent.offset))
            }
        };
        let start = to_usize(strip_at + rows.offset_bytes() - first);
        (bytes, start..start + to_usize(rows.bytes()))
    }
}
