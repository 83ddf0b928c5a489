//! The plan of the most frequent small write: one block of a healthy stripe, by read-modify-write.
//!
//! What must stay true: it says what [`plan_write`](crate::plan_write) says of the same write, or
//! nothing. So it needs no proof of its own, and whoever has no use for it asks `plan_write`.

use ashlar_units::{BLOCK_BYTES, Extent, StripIdx, StripSet, to_usize};

use crate::geometry::Geometry;
use crate::rows::{RowRange, row_at};
use crate::view::StripeView;

/// Reads and writes the same row of one data strip and of all parity strips.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockUpdate {
    /// The data strip that is overwritten.
    pub strip: StripIdx,
    /// The parity strips.
    pub parity: StripSet,
    /// One row.
    pub rows: RowRange,
}

/// Plans a write of one block to a stripe that has been written before. `None` if that is no update
/// of one block and of all parity: the write is of more, strips are missing, parity is not valid,
/// or reading the other data strips takes fewer reads.
///
/// # Panics
/// If the extent ends past the stripe's data.
#[inline]
pub fn plan_block(geometry: &Geometry, extent: Extent, view: &StripeView) -> Option<BlockUpdate> {
    assert!(extent.end() <= geometry.stripe_bytes(), "{extent} is not in the stripe");
    let all = geometry.all_strips();
    let is_healthy = view.is_parity_valid && view.readable == all && view.writable == all;
    let is_block = extent.bytes == BLOCK_BYTES && extent.offset.is_multiple_of(BLOCK_BYTES);
    let (data_strips, parity_strips) = (geometry.data_strips(), geometry.parity_strips());
    // As many reads as this, or fewer, on a tie too.
    let is_modified = parity_strips > 0 && 1 + parity_strips < data_strips;
    if !(is_healthy && is_block && is_modified) {
        return None;
    }
    let row = row_at(geometry, extent.offset);
    Some(BlockUpdate {
        strip: StripIdx::from_at(to_usize(extent.offset / geometry.strip_bytes())),
        parity: geometry.parity(),
        rows: RowRange::new(row, row + 1),
    })
}
