//! Buffers that hold some rows of some strips of one stripe.
//!
//! What must stay true: an entry's bytes are exactly its rows; entries of one set never overlap.

use crate::lists::{List, Lists};
use crate::log::update::Piece;
use ashlar_iobuf::BufMut;
use ashlar_layout::RowRange;
use ashlar_units::{StripIdx, StripSet, to_usize};

/// Some rows of one strip, in memory.
#[derive(Debug)]
pub(crate) struct StripRows {
    pub(crate) strip: StripIdx,
    pub(crate) rows: RowRange,
    pub(crate) bytes: BufMut,
}

/// Some rows of several strips of one stripe.
pub(crate) struct RowSet {
    pub(crate) entries: List<StripRows>,
}

impl RowSet {
    /// An empty set.
    pub(crate) fn new(lists: &Lists<StripRows>) -> RowSet {
        RowSet { entries: lists.list() }
    }

    /// The rows as they are to be stored, strips rising.
    pub(crate) fn freeze(mut self, lists: &Lists<Piece>) -> List<Piece> {
        let mut pieces = lists.list();
        let frozen = |entry: StripRows| Piece::new(entry.strip, entry.rows, entry.bytes.freeze());
        pieces.extend(self.entries.drain(..).map(frozen));
        pieces.sort_unstable_by_key(|piece| (piece.part.strip, piece.part.rows.start));
        pieces
    }

    pub(crate) fn push(&mut self, strip: StripIdx, rows: RowRange, bytes: BufMut) {
        assert_eq!(bytes.len(), to_usize(rows.bytes()), "a buffer is exactly its rows");
        self.entries.push(StripRows { strip, rows, bytes });
    }

    /// The bytes of `rows` of `strip`.
    ///
    /// # Panics
    /// If the set does not hold them: the plan that filled it said it would.
    pub(crate) fn slice(&self, strip: StripIdx, rows: RowRange) -> &[u8] {
        let holds = |entry: &&StripRows| entry.strip == strip && entry.covers(rows);
        let entry = self.entries.iter().find(holds).expect("the plan gathered these rows");
        &entry.bytes[entry.range(rows)]
    }

    /// Take out the entry that is exactly `rows` of `strip`; the others keep their order.
    pub(crate) fn take(&mut self, strip: StripIdx, rows: RowRange) -> Option<BufMut> {
        let is_it = |entry: &StripRows| entry.strip == strip && entry.rows == rows;
        let at = self.entries.iter().position(is_it)?;
        Some(self.entries.remove(at).bytes)
    }

    /// The bytes of `rows` of each of `strips` in the order of the entries, to be changed.
    pub(crate) fn slices_in(
        &mut self,
        strips: StripSet,
        rows: RowRange,
    ) -> impl Iterator<Item = &mut [u8]> {
        self.entries.iter_mut().filter_map(move |entry| {
            let range =
                (strips.contains(entry.strip) && entry.covers(rows)).then(|| entry.range(rows));
            range.map(|range| &mut entry.bytes[range])
        })
    }

    /// The bytes of `rows` of each of `strips`, to be changed; slot `at` of the result is strip
    /// `first + at`, empty for strips not asked for.
    pub(crate) fn slices_mut<const N: usize>(
        &mut self,
        strips: StripSet,
        rows: RowRange,
        first: usize,
    ) -> [Option<&mut [u8]>; N] {
        let mut slices = [const { None }; N];
        for entry in self.entries.iter_mut() {
            if strips.contains(entry.strip) && entry.covers(rows) {
                let range = entry.range(rows);
                slices[entry.strip.at() - first] = Some(&mut entry.bytes[range]);
            }
        }
        slices
    }
}

impl StripRows {
    fn covers(&self, rows: RowRange) -> bool {
        self.rows.start <= rows.start && rows.end <= self.rows.end
    }

    fn range(&self, rows: RowRange) -> std::ops::Range<usize> {
        let start = to_usize(rows.offset_bytes() - self.rows.offset_bytes());
        start..start + to_usize(rows.bytes())
    }
}
