//! The reads and writes of a plan, one per strip and run of rows.
//!
//! What must stay true: every (strip, row) a band asks for is in exactly one I/O, and two I/Os of one
//! strip never touch: neighbouring bands are merged, so a device sees the fewest, longest requests.

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
    /// Strips not yet finished; the lowest is the current one.
    strips: StripSet,
    /// First band of the current strip not yet looked at.
    band: usize,
}

impl StripIos {
    /// The I/Os of these strips in these rows; bands in rising order, unused ones without strips.
    pub(crate) fn new(bands: [(RowRange, StripSet); BANDS_MAX]) -> StripIos {
        let strips = bands.iter().fold(StripSet::EMPTY, |union, band| union.or(band.1));
        StripIos { bands, strips, band: 0 }
    }

    /// The rows of `strip` from the next band on that has it, with all bands that continue them.
    fn next_rows(&mut self, strip: StripIdx) -> Option<RowRange> {
        let mut found: Option<RowRange> = None;
        while let Some((rows, strips)) = self.bands.get(self.band) {
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

    fn next(&mut self) -> Option<StripIo> {
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
