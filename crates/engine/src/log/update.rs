//! What one update changes, as its records say it.
//!
//! What must stay true: pieces are in the order of the record. Each device's record carries what
//! that device stores, and nothing else.

use super::arrivals::Arrivals;
use crate::lists::List;
use crate::slot::WriteTarget;
use ashlar_device::Fault;
use ashlar_iobuf::Buf;
use ashlar_layout::Stripe;
use ashlar_layout::{RowRange, StripeId};
use ashlar_ondisk::log::{Holder, Part, RecordKind};
use ashlar_units::StripSet;
use ashlar_units::{StripIdx, to_usize};
use std::future::poll_fn;

/// New content of some rows of one strip.
#[derive(Clone)]
pub(crate) struct Piece {
    pub(crate) part: Part,
    pub(crate) bytes: Buf,
}

impl Piece {
    pub(crate) fn new(strip: StripIdx, rows: RowRange, bytes: Buf) -> Piece {
        assert_eq!(bytes.len(), to_usize(rows.bytes()), "a piece is exactly its rows");
        Piece { part: Part { strip, rows }, bytes }
    }

    /// Those of its rows that lie in `rows`, if there are any.
    pub(crate) fn within(&self, rows: RowRange) -> Option<Piece> {
        let own = self.part.rows;
        let (start, end) = (own.start.max(rows.start), own.end.min(rows.end));
        if start >= end {
            return None;
        }
        let cut = RowRange::new(start, end);
        let from = to_usize(cut.offset_bytes() - own.offset_bytes());
        let bytes = self.bytes.slice(from..from + to_usize(cut.bytes()));
        Some(Piece::new(self.part.strip, cut, bytes))
    }
}

/// An update to be recorded.
pub(crate) struct NewUpdate {
    pub(crate) stripe: Stripe,
    pub(crate) kind: RecordKind,
    /// From the first row it touches to the last.
    pub(crate) rows: RowRange,
    /// The strips it writes in place.
    pub(crate) stored: StripSet,
    /// New content, strips rising, data strips not stored included; empty if the kind has none.
    pub(crate) pieces: List<Piece>,
}

/// An update as all its records say it.
pub(super) struct Body {
    pub(super) sequence: u64,
    /// On the members it is its number alone: which geometry counts it, byte 23 of the record is
    /// reserved for.
    pub(super) stripe: StripeId,
    pub(super) kind: RecordKind,
    pub(super) rows: RowRange,
    pub(super) holders: Vec<Holder>,
    /// The same devices, to be blamed if their records fail.
    pub(super) targets: Vec<WriteTarget>,
    pub(super) arrivals: Arrivals,
    /// New content, strips rising; data strips before parity strips. Empty if the kind has no
    /// payload.
    pub(super) pieces: Vec<Piece>,
}

impl Body {
    pub(super) fn empty() -> Body {
        Body {
            sequence: 0,
            stripe: StripeId::default(),
            kind: RecordKind::Full,
            rows: RowRange::default(),
            holders: Vec::new(),
            targets: Vec::new(),
            arrivals: Arrivals::default(),
            pieces: Vec::new(),
        }
    }

    /// Wait until every holder has its record or has failed it. Those that failed.
    pub(super) async fn failed_records(&self) -> impl Iterator<Item = (WriteTarget, Fault)> {
        poll_fn(|context| self.arrivals.poll(context)).await;
        let failed = self.arrivals.take_failed().into_iter();
        failed.map(|(holder, fault)| (self.targets[holder], fault))
    }

    /// What the device that stores `strip` keeps of it.
    pub(super) fn parts_of(&self, strip: StripIdx) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().filter(move |piece| piece.part.strip == strip)
    }

    /// Blocks of payload of the record of the device that stores `strip`.
    pub(super) fn blocks_of(&self, strip: StripIdx) -> usize {
        let blocks: u32 = self.parts_of(strip).map(|piece| piece.part.rows.blocks()).sum();
        usize::try_from(blocks).expect("a stripe has few blocks")
    }
}
