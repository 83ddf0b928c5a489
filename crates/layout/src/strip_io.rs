//! The reads and writes of a plan, one per strip and run of rows.
//!
//! What must stay true: every (strip, row) a band asks for is in exactly one I/O, and two I/Os of
//! one strip never touch: neighbouring bands are merged, so a device sees the fewest, longest
//! requests.

use ashlar_units::{StripIdx, StripSet};

use crate::rows::RowRange;
use crate::write_plan::BANDS_MAX;

/// One read or write of one strip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripIo {
    /// The strip.
    pub strip: StripIdx,
    /// Its rows.
    pub rows: RowRange,
}

/// Iterator over the I/Os of a plan, strip by strip in rising order, rows rising within a strip.
#[derive(Clone, Debug)]
pub struct StripIos {
    bands: [(RowRange, StripSet); BANDS_MAX],
    band_count: usize,
    /// Strips not yet finished; the lowest is the current one.
    strips: StripSet,
    /// First band of the current strip not yet looked at.
    band: usize,
}

impl StripIos {
    /// The I/Os of these strips in these rows; the first `band_count` bands count, in rising order.
    #[inline]
    pub(crate) fn new(bands: [(RowRange, StripSet); BANDS_MAX], band_count: usize) -> StripIos {
        let used = &bands[..band_count];
        let strips = used.iter().fold(StripSet::EMPTY, |union, band| union.or(band.1));
        StripIos { bands, band_count, strips, band: 0 }
    }

    /// The rows of `strip` from the next band on that has it, with all bands that continue them.
    fn next_rows(&mut self, strip: StripIdx) -> Option<RowRange> {
        let mut found: Option<RowRange> = None;
        while let Some((rows, strips)) = self.bands[..self.band_count].get(self.band) {
            let has = strips.contains(strip);
            found = match found {
                None => has.then_some(*rows),
                Some(before) if has && before.end == rows.start => Some(before.union(*rows)),
                Some(before) => return Some(before),
            };
            self.band += 1;
        }
        found
    }
}

impl Iterator for StripIos {
    type Item = StripIo;

    #[inline]
    fn next(&mut self) -> Option<StripIo> {
        if let [(rows, _)] = self.bands[..self.band_count] {
            // Nearly every write: one I/O for each strip.
            let strip = self.strips.iter().next()?;
            self.strips = self.strips.without(strip);
            return Some(StripIo { strip, rows });
        }
        while let Some(strip) = self.strips.iter().next() {
            if let Some(rows) = self.next_rows(strip) {
                return Some(StripIo { strip, rows });
            }
            self.strips = self.strips.without(strip);
            self.band = 0;
        }
        None
    }
}
