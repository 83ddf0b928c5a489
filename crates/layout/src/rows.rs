//! Row ranges: the unit of locking and of parity work within one stripe.
//!
//! A row of a stripe is one 4 KiB block of each of its strips at the same place. Parity in a row
//! depends on data in that row only, so two requests whose row ranges do not overlap never disturb
//! each other.

use ashlar_units::{BLOCK_BYTES, Extent};

use crate::geometry::Geometry;

/// Rows `start..end` of one stripe, in 4 KiB blocks within a strip.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RowRange {
    /// First row.
    pub start: u32,
    /// First row after the range.
    pub end: u32,
}

impl RowRange {
    /// Rows `start..end`.
    ///
    /// # Panics
    /// If the range is reversed.
    pub fn new(start: u32, end: u32) -> RowRange {
        assert!(start <= end, "rows {start}..{end} are reversed");
        RowRange { start, end }
    }

    /// Number of rows, which is blocks in each strip.
    #[inline]
    pub fn blocks(self) -> u32 {
        self.end - self.start
    }

    /// Bytes the range has in each strip.
    #[inline]
    pub fn bytes(self) -> u64 {
        u64::from(self.blocks()) * BLOCK_BYTES
    }

    /// First byte of the range within each strip.
    #[inline]
    pub fn offset_bytes(self) -> u64 {
        u64::from(self.start) * BLOCK_BYTES
    }

    /// The range as bytes within a strip.
    #[inline]
    pub fn extent(self) -> Extent {
        Extent::new(self.offset_bytes(), self.bytes())
    }

    /// Whether the range has no row.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether some row is in both.
    #[inline]
    pub fn overlaps(self, other: RowRange) -> bool {
        self.start.max(other.start) < self.end.min(other.end)
    }

    /// The smallest range that covers both, including rows between them; an empty range adds
    /// nothing.
    #[must_use]
    #[inline]
    pub fn union(self, other: RowRange) -> RowRange {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        RowRange { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// The rows of a stripe that an extent of its data touches, widened to whole blocks: one range that
/// covers them all, so an extent over two strips or more may include rows it leaves alone.
/// This is what to lock before planning.
///
/// # Panics
/// If the extent is empty or ends past the stripe's data.
#[inline]
pub fn rows_touched(geometry: &Geometry, extent: Extent) -> RowRange {
    let stripe_bytes = geometry.stripe_bytes();
    assert!(extent.bytes > 0, "an extent to touch has bytes");
    assert!(extent.end() <= stripe_bytes, "{extent} in a stripe of {stripe_bytes}");
    let strip_bytes = geometry.strip_bytes();
    let last = extent.end() - 1;
    if last / strip_bytes > extent.offset / strip_bytes {
        // It leaves its first strip over the last row and enters the next one at row 0.
        return RowRange::new(0, geometry.strip_blocks());
    }
    RowRange::new(row_at(geometry, extent.offset), row_at(geometry, last) + 1)
}

/// The row a byte of a stripe's data is in.
#[inline]
pub(crate) fn row_at(geometry: &Geometry, stripe_offset: u64) -> u32 {
    let row = (stripe_offset % geometry.strip_bytes()) / BLOCK_BYTES;
    u32::try_from(row).expect("a strip has at most 256 rows")
}

#[cfg(test)]
mod tests {
    use super::RowRange;

    #[test]
    fn ranges_that_touch_do_not_overlap() {
        let (a, b) = (RowRange::new(0, 4), RowRange::new(4, 6));
        assert!(!a.overlaps(b) && !b.overlaps(a));
        assert!(a.overlaps(RowRange::new(3, 4)) && RowRange::new(3, 9).overlaps(a));
        assert!(!RowRange::new(2, 2).overlaps(a), "an empty range overlaps nothing");
    }

    #[test]
    fn a_union_covers_both_and_the_gap() {
        assert_eq!(RowRange::new(1, 2).union(RowRange::new(6, 8)), RowRange::new(1, 8));
        assert_eq!(RowRange::new(0, 0).union(RowRange::new(6, 8)), RowRange::new(6, 8));
        assert_eq!(RowRange::new(6, 8).bytes(), 8192);
        assert_eq!(RowRange::new(6, 8).offset_bytes(), 24_576);
    }
}
