//! Write plans: what to read, decode, generate and write for one write within one stripe.
//!
//! A write extent that starts in row ra of strip a and ends in row rb of strip b is cut at ra and
//! rb into at most three bands of rows. In each band a fixed set of data strips is wholly
//! overwritten, so each band is planned by itself.
//!
//! # When a band can be written
//! R is what can be read, W what can be written, both per strip; a strip outside W counts as
//! outside R, since the write makes its content stale. Three things must hold after the write:
//! 1. every overwritten strip is on its member, or carried by parity;
//! 2. every parity strip in W agrees with the data, none is left stale;
//! 3. what could be read or decoded before still can.
//!
//! Point 1 is a matter of counting: overwritten strips outside W, each needs a parity strip in W of
//! its own. Point 2 is met by one of four ways, and point 3 follows from 1 and 2:
//! - *full stripe*: all data is new (or no parity is in W, so there is nothing to keep in
//!   agreement);
//! - *read-modify-write*: overwritten strips and parity in W are all in R and parity is valid. It
//!   works whatever else is lost, because it carries the contribution of lost strips along;
//! - *reconstruct-write*: the data strips not overwritten are all in R. It needs no old parity, so
//!   it is the way after an unclean stop, for parity being rebuilt and for overwritten strips that
//!   are lost;
//! - *decode-then-write*: some data strip not overwritten is lost and read-modify-write is not
//!   possible. Any k strips in R give it back, if parity is valid; point 1 then holds of itself.
//!
//! If none applies, the band is unreachable: with valid parity that means more than m strips are
//! lost; without, that the only way would have been to trust parity.
//!
//! # Which way is chosen
//! Between read-modify-write and reconstruct-write the one that reads fewer strips; on a tie
//! read-modify-write: it reads the places that it writes and no others, so half as many members are
//! busy with the write and half as much memory is touched. Decode-then-write comes last.

use ashlar_units::{BLOCK_BYTES, Extent, StripSet, to_usize};

use crate::geometry::Geometry;
use crate::rows::{RowRange, row_at};
use crate::strip_io::StripIos;
use crate::view::{StripeView, Unreachable};

/// Bands a plan can have.
pub const BANDS_MAX: usize = 3;

/// How parity of a band is made right.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WriteKind {
    /// No reads: every data strip is new, or there is no parity to write.
    FullStripe,
    /// Parity is updated by the difference of old and new data.
    ReadModifyWrite,
    /// Parity is generated from new data and the data strips that stay.
    ReconstructWrite,
    /// As reconstruct-write, after decoding data strips that stay but cannot be read.
    DecodeThenWrite,
}

/// Rows in which a fixed set of data strips is overwritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Band {
    /// The rows.
    pub rows: RowRange,
    /// Data strips wholly overwritten in these rows, from the request. Those that are not writable
    /// take part in parity and are not written.
    pub written: StripSet,
    /// Data strips to be written as zeros (first write of a stripe); not writable ones as above.
    pub zeroed: StripSet,
    /// How parity is made right.
    pub kind: WriteKind,
    /// Strips whose old rows are read. For read-modify-write `written` and `parity`; for
    /// reconstruct-write the data strips that stay; for decode-then-write k survivors.
    pub gather: StripSet,
    /// Data strips that are computed from `gather` before parity is generated. Not written.
    pub decoded: StripSet,
    /// Parity strips to compute and write: all writable ones.
    pub parity: StripSet,
}

/// Everything one write does to one stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WritePlan {
    bands: [Band; BANDS_MAX],
    band_count: usize,
    writable: StripSet,
}

/// Plans a write of `extent`, within the stripe's data, to a stripe that has been written before.
///
/// # Errors
/// If too many strips are lost; see the head of this file. Nothing may then be written, other bands
/// of the extent included.
///
/// # Panics
/// If the extent is empty, not a multiple of 4 KiB at both ends, or ends past the stripe's data.
pub fn plan_write(
    geometry: &Geometry,
    extent: Extent,
    view: &StripeView,
) -> Result<WritePlan, Unreachable> {
    let mut plan = WritePlan::empty(geometry, view);
    for cut in cuts(geometry, extent) {
        if !cut.rows.is_empty() && !cut.covered.is_empty() {
            plan.push(plan_band(geometry, cut, view)?);
        }
    }
    Ok(plan)
}

/// Plans the first write to a stripe, `extent` being within its data: all rows of all strips, no
/// reads. What the request does not cover becomes zeros, and all writable parity is generated.
///
/// # Errors
/// If more strips cannot be written than the stripe has parity: zeros that nobody can read back
/// would be lost data like any other, since an unwritten stripe reads as zeros.
///
/// # Panics
/// As [`plan_write`].
pub fn plan_first_write(
    geometry: &Geometry,
    extent: Extent,
    view: &StripeView,
) -> Result<WritePlan, Unreachable> {
    let mut plan = WritePlan::empty(geometry, view);
    let (data, parity) = (geometry.data(), plan.writable.and(geometry.parity()));
    if !is_carried(data, parity, plan.writable) {
        return Err(too_few_writable(geometry, plan.writable));
    }
    for cut in cuts(geometry, extent) {
        if !cut.rows.is_empty() {
            let zeroed = data.minus(cut.covered);
            plan.push(Band { zeroed, parity, ..cut.band(WriteKind::FullStripe) });
        }
    }
    Ok(plan)
}

impl WritePlan {
    /// The bands, rows rising.
    pub fn bands(&self) -> &[Band] {
        &self.bands[..self.band_count]
    }

    /// Strips of the stripe that take new content; `written` and `zeroed` of a band may hold
    /// others.
    pub fn writable(&self) -> StripSet {
        self.writable
    }

    /// One range that covers the rows of all bands.
    pub fn rows(&self) -> RowRange {
        self.bands().iter().fold(RowRange::default(), |union, band| union.union(band.rows))
    }

    /// The reads, strip by strip, rows of neighbouring bands merged.
    pub fn reads(&self) -> StripIos {
        StripIos::new(self.bands.map(|band| (band.rows, band.gather)), self.band_count)
    }

    /// The writes, strip by strip, rows of neighbouring bands merged; writable strips only.
    pub fn writes(&self) -> StripIos {
        StripIos::new(
            self.bands.map(|band| (band.rows, band.stored(self.writable))),
            self.band_count,
        )
    }

    /// Number of reads.
    pub fn read_count(&self) -> usize {
        self.reads().count()
    }

    /// Number of writes.
    pub fn write_count(&self) -> usize {
        self.writes().count()
    }

    /// Bytes read.
    pub fn read_bytes(&self) -> u64 {
        self.reads().map(|io| io.rows.bytes()).sum()
    }

    /// Bytes written.
    pub fn write_bytes(&self) -> u64 {
        self.writes().map(|io| io.rows.bytes()).sum()
    }

    fn empty(geometry: &Geometry, view: &StripeView) -> WritePlan {
        let nothing = Cut { rows: RowRange::default(), covered: StripSet::EMPTY };
        WritePlan {
            bands: [nothing.band(WriteKind::FullStripe); BANDS_MAX],
            band_count: 0,
            writable: view.writable.and(geometry.all_strips()),
        }
    }

    fn push(&mut self, band: Band) {
        self.bands[self.band_count] = band;
        self.band_count += 1;
    }
}

impl Band {
    /// The strips this band writes when `writable` strips take content.
    pub fn stored(&self, writable: StripSet) -> StripSet {
        self.written.or(self.zeroed).or(self.parity).and(writable)
    }
}

/// Rows in which a request covers `covered`, before anything is decided.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) rows: RowRange,
    pub(crate) covered: StripSet,
}

impl Cut {
    /// A band that only stores what is written.
    fn band(self, kind: WriteKind) -> Band {
        Band {
            rows: self.rows,
            written: self.covered,
            zeroed: StripSet::EMPTY,
            kind,
            gather: StripSet::EMPTY,
            decoded: StripSet::EMPTY,
            parity: StripSet::EMPTY,
        }
    }
}

/// All rows of the stripe cut where the set of covered strips changes; some cuts may be empty.
pub(crate) fn cuts(geometry: &Geometry, extent: Extent) -> [Cut; BANDS_MAX] {
    let stripe_bytes = geometry.stripe_bytes();
    assert!(extent.bytes > 0, "a request has bytes");
    assert!(extent.is_aligned_to(BLOCK_BYTES), "{extent} is not whole blocks");
    assert!(extent.end() <= stripe_bytes, "{extent} in a stripe of {stripe_bytes}");
    let last = extent.end() - BLOCK_BYTES;
    let first_strip = to_usize(extent.offset / geometry.strip_bytes());
    let last_strip = to_usize(last / geometry.strip_bytes());
    let (from, to) = (row_at(geometry, extent.offset), row_at(geometry, last) + 1);
    let edges = [0, from.min(to), from.max(to), geometry.strip_blocks()];
    std::array::from_fn(|at| {
        let rows = RowRange::new(edges[at], edges[at + 1]);
        // The first strip is covered from its row `from` on, the last one up to row `to`.
        let skips_first = usize::from(rows.start < from);
        let keeps_last = usize::from(rows.end <= to);
        let (start, end) = (first_strip + skips_first, last_strip + keeps_last);
        Cut { rows, covered: StripSet::range(start.min(end), end) }
    })
}

fn plan_band(geometry: &Geometry, cut: Cut, view: &StripeView) -> Result<Band, Unreachable> {
    let writable = view.writable.and(geometry.all_strips());
    let readable = view.readable.and(writable);
    let parity = writable.and(geometry.parity());
    let kept = geometry.data().minus(cut.covered);
    if !is_carried(cut.covered, parity, writable) {
        return Err(too_few_writable(geometry, writable));
    }
    let band = Band { parity, ..cut.band(WriteKind::FullStripe) };
    if kept.is_empty() || parity.is_empty() {
        return Ok(band);
    }
    let modify = cut.covered.or(parity);
    let can_modify = view.is_parity_valid && modify.is_subset_of(readable);
    let can_reconstruct = kept.is_subset_of(readable);
    if can_reconstruct && !(can_modify && modify.count() <= kept.count()) {
        return Ok(Band { kind: WriteKind::ReconstructWrite, gather: kept, ..band });
    }
    if can_modify {
        return Ok(Band { kind: WriteKind::ReadModifyWrite, gather: modify, ..band });
    }
    if view.is_parity_valid && readable.count() >= geometry.data_strips() {
        return Ok(Band {
            kind: WriteKind::DecodeThenWrite,
            // Lowest first: all readable data, then as many parities as data strips are lost.
            gather: readable.lowest(geometry.data_strips()),
            decoded: kept.minus(readable),
            ..band
        });
    }
    Err(Unreachable {
        lost: geometry.all_strips().minus(readable),
        tolerated: if view.is_parity_valid { geometry.parity_strips() } else { 0 },
    })
}

/// Whether each of the `stored` strips that cannot be written has a parity strip to carry it.
fn is_carried(stored: StripSet, parity: StripSet, writable: StripSet) -> bool {
    stored.minus(writable).count() <= parity.count()
}

fn too_few_writable(geometry: &Geometry, writable: StripSet) -> Unreachable {
    let lost = geometry.all_strips().minus(writable);
    Unreachable { lost, tolerated: geometry.parity_strips() }
}
