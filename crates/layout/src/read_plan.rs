//! Read plans: which strips to read for a part of a stripe's data, and which of them reconstruct
//! unreadable ones.
//!
//! Any k strips of a stripe determine the other m (the code is maximum distance separable), so the
//! plan is only a choice: data strips before parity, P before Q before R. Data strips cost nothing
//! to use, and the lower parities have the cheaper coefficients.
//!
//! What must stay true of a plan: no row of a strip is read twice. Requested strips that can be
//! read are among the sources of the lost strips. So a whole stripe costs k reads, whatever is
//! lost.

use ashlar_units::{BLOCK_BYTES, Extent, StripIdx, StripSet};

use crate::geometry::Geometry;
use crate::rows::RowRange;
use crate::strip_io::StripIos;
use crate::view::{StripeView, Unreachable};
use crate::write_plan::{BANDS_MAX, cuts};

/// Rows in which a fixed set of strips is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadBand {
    /// The rows.
    pub rows: RowRange,
    /// Strips that are asked for.
    pub wanted: StripSet,
    /// Those of them that are computed from `sources`.
    pub decoded: StripSet,
    /// Strips to read: `wanted` if nothing is decoded, else k survivors, the rest of `wanted` among
    /// them.
    pub sources: StripSet,
}

/// Everything one read of a part of one stripe does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadPlan {
    bands: [ReadBand; BANDS_MAX],
    band_count: usize,
}

/// Plans a read of `extent`, within the data of a stripe that has been written. Rows are whole
/// blocks: an extent that is not is widened.
///
/// Strips in `doubted` are not read though the view may call them readable. Of a mirror, whose
/// copies all hold the whole extent, the lowest doubted one is asked for (so that it can be
/// repaired), else the first.
///
/// # Errors
/// If a strip that is asked for cannot be read and fewer than k others can, or parity would have to
/// be trusted that is not valid.
///
/// # Panics
/// If the extent is empty or ends past the stripe's data.
pub fn plan_read(
    geometry: &Geometry,
    extent: Extent,
    view: &StripeView,
    doubted: StripSet,
) -> Result<ReadPlan, Unreachable> {
    let view = view.rebuilding(doubted);
    let is_mirror = geometry.data_strips() == 1;
    let copy = StripSet::only(doubted.iter().next().unwrap_or(StripIdx(0)));
    let mut plan = ReadPlan { bands: [ReadBand::NONE; BANDS_MAX], band_count: 0 };
    for cut in cuts(geometry, extent.widened_to(BLOCK_BYTES)) {
        if cut.rows.is_empty() || cut.covered.is_empty() {
            continue;
        }
        let wanted = if is_mirror { copy } else { cut.covered };
        let decoded = wanted.minus(view.readable);
        let sources =
            if decoded.is_empty() { wanted } else { plan_decode(geometry, decoded, &view)? };
        plan.bands[plan.band_count] = ReadBand { rows: cut.rows, wanted, decoded, sources };
        plan.band_count += 1;
    }
    Ok(plan)
}

impl ReadPlan {
    /// The bands, rows rising.
    pub fn bands(&self) -> &[ReadBand] {
        &self.bands[..self.band_count]
    }

    /// One range that covers the rows of all bands.
    pub fn rows(&self) -> RowRange {
        self.bands().iter().fold(RowRange::default(), |union, band| union.union(band.rows))
    }

    /// The reads, strip by strip, rows of neighbouring bands merged.
    pub fn reads(&self) -> StripIos {
        StripIos::new(self.bands.map(|band| (band.rows, band.sources)), self.band_count)
    }

    /// What is asked for, strip by strip: one run of rows each.
    pub fn wanted(&self) -> StripIos {
        StripIos::new(self.bands.map(|band| (band.rows, band.wanted)), self.band_count)
    }

    /// Strips that are computed, in any band. A strip is computed in all rows that are asked of it
    /// or in none.
    pub fn decoded(&self) -> StripSet {
        self.bands().iter().fold(StripSet::EMPTY, |union, band| union.or(band.decoded))
    }
}

impl ReadBand {
    const NONE: ReadBand = ReadBand {
        rows: RowRange { start: 0, end: 0 },
        wanted: StripSet::EMPTY,
        decoded: StripSet::EMPTY,
        sources: StripSet::EMPTY,
    };
}

/// The k strips to read in order to reconstruct the `wanted` strips, data or parity.
///
/// Strips in `wanted` are never among them, readable or not: the caller has a reason to doubt them.
/// A mirror needs one copy and gets the lowest readable one, always the same, so that readers of a
/// mirror whose copies may differ after an unclean stop agree with each other.
///
/// When parity is not valid, only data is used: parity can still be generated, data not decoded.
///
/// # Errors
/// If fewer than k strips are left to read.
pub fn plan_decode(
    geometry: &Geometry,
    wanted: StripSet,
    view: &StripeView,
) -> Result<StripSet, Unreachable> {
    let all = geometry.all_strips();
    let needed = geometry.data_strips();
    let is_mirror = needed == 1;
    let is_parity_usable = view.is_parity_valid || is_mirror;
    let usable = if is_parity_usable { all } else { geometry.data() };
    let survivors = view.readable.and(usable).minus(wanted);
    if survivors.count() < needed {
        return Err(Unreachable {
            lost: all.minus(view.readable.minus(wanted)),
            tolerated: if is_parity_usable { geometry.parity_strips() } else { 0 },
        });
    }
    Ok(survivors.lowest(needed))
}
