//! The bytes that a write stores in one stripe, and where each row of them lies.
//!
//! What must stay true: the bytes are shared, never copied.

use crate::array::Array;
use crate::log::update::Piece;
use crate::stripe::work::StripeWrite;
use ashlar_iobuf::Buf;
use ashlar_layout::{RowRange, Stripe};
use ashlar_units::{Extent, StripIdx, to_usize};

/// What is to be stored in one stripe, in whole blocks.
pub(crate) struct Payload {
    stripe: Stripe,
    pub(super) extent: Extent,
    bytes: Buf,
    strip_bytes: u64,
}

impl Payload {
    /// Of a write in whole blocks.
    pub(super) fn new(array: &Array, write: StripeWrite) -> Payload {
        let StripeWrite { stripe, extent, bytes } = write;
        Payload { stripe, extent, bytes, strip_bytes: array.geometry_of(stripe).strip_bytes() }
    }

    /// The stripe.
    pub(super) fn stripe(&self) -> Stripe {
        self.stripe
    }

    /// The new content of `rows` of a data strip.
    pub(super) fn slice(&self, strip: StripIdx, rows: RowRange) -> &[u8] {
        &self.bytes[self.range(strip, rows)]
    }

    /// The same, to be written by a device.
    pub(super) fn shared(&self, strip: StripIdx, rows: RowRange) -> Buf {
        self.bytes.slice(self.range(strip, rows))
    }

    /// The same, as a piece of an update.
    pub(super) fn piece(&self, strip: StripIdx, rows: RowRange) -> Piece {
        Piece::new(strip, rows, self.shared(strip, rows))
    }

    fn range(&self, strip: StripIdx, rows: RowRange) -> std::ops::Range<usize> {
        let offset = u64::from(strip.0) * self.strip_bytes + rows.offset_bytes();
        let start = to_usize(offset - self.extent.offset);
        start..start + to_usize(rows.bytes())
    }
}
