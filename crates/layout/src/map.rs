//! Volume extents cut at stripes, and extents of one stripe's data cut at strips.
//!
//! What must stay true: the pieces of an extent are in rising order, touch each other, and together
//! are the extent; none is empty. Both iterators are byte-granular and never allocate.

use ashlar_units::{Extent, StripIdx, StripeNo, to_usize};

use crate::geometry::Geometry;
use crate::stripe::Stripe;

/// The part of a volume extent that falls into one stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The stripe. From here on it carries its geometry.
    pub stripe: Stripe,
    /// Bytes within the stripe's data.
    pub extent: Extent,
    /// Where the piece starts, in bytes from the start of the whole extent (the request's buffer).
    pub request_offset: u64,
}

/// The part of a stripe extent that falls into one data strip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripRun {
    /// The data strip.
    pub strip: StripIdx,
    /// Bytes within the strip.
    pub extent: Extent,
    /// Where the run starts, in bytes from the start of the stripe extent.
    pub piece_offset: u64,
}

/// Iterator over the [`Piece`]s of a volume extent; made by [`split`].
#[derive(Clone, Debug)]
pub struct Pieces<'g> {
    geometry: &'g Geometry,
    cuts: Cuts,
}

/// Iterator over the [`StripRun`]s of a stripe extent; made by [`strips_of`].
#[derive(Clone, Debug)]
pub struct StripRuns(Cuts);

/// Cuts a volume extent at stripe boundaries. An empty extent has no pieces.
///
/// # Panics
/// If the extent ends past the volume; requests are checked at the edge.
#[inline]
pub fn split(geometry: &Geometry, extent: Extent) -> Pieces<'_> {
    let volume_bytes = geometry.volume_bytes();
    assert!(extent.end() <= volume_bytes, "{extent} in a volume of {volume_bytes}");
    Pieces { geometry, cuts: Cuts::new(extent, geometry.stripe_bytes()) }
}

/// The stripe of a volume extent and its one run there, if the extent lies in one strip and is not
/// empty: what [`split`] and [`strips_of`] would say, in fewer steps.
///
/// # Panics
/// If the extent begins past the volume.
#[inline]
pub fn only_run(geometry: &Geometry, extent: Extent) -> Option<(Stripe, StripRun)> {
    let (number, in_stripe) = geometry.stripe_at(extent.offset);
    let strip_bytes = geometry.strip_bytes();
    let own = Extent::new(in_stripe % strip_bytes, extent.bytes);
    if own.bytes == 0 || own.end() > strip_bytes {
        return None;
    }
    let strip = StripIdx::from_at(to_usize(in_stripe / strip_bytes));
    Some((geometry.stripe(number), StripRun { strip, extent: own, piece_offset: 0 }))
}

/// Cuts an extent within a stripe's data at strip boundaries. An empty extent has no runs.
///
/// # Panics
/// If the extent ends past the stripe's data.
#[inline]
pub fn strips_of(geometry: &Geometry, extent: Extent) -> StripRuns {
    let stripe_bytes = geometry.stripe_bytes();
    assert!(extent.end() <= stripe_bytes, "{extent} in a stripe of {stripe_bytes}");
    StripRuns(Cuts::new(extent, geometry.strip_bytes()))
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        let cut = self.cuts.next()?;
        let stripe = self.geometry.stripe(StripeNo(cut.unit));
        Some(Piece { stripe, extent: cut.extent, request_offset: cut.from_start })
    }
}

impl Iterator for StripRuns {
    type Item = StripRun;

    #[inline]
    fn next(&mut self) -> Option<StripRun> {
        let cut = self.0.next()?;
        let strip = StripIdx::from_at(to_usize(cut.unit));
        Some(StripRun { strip, extent: cut.extent, piece_offset: cut.from_start })
    }
}

/// An extent cut at multiples of a unit.
#[derive(Clone, Debug)]
struct Cuts {
    start: u64,
    at: u64,
    end: u64,
    unit_bytes: u64,
}

struct Cut {
    unit: u64,
    /// Within the unit.
    extent: Extent,
    from_start: u64,
}

impl Cuts {
    #[inline]
    fn new(extent: Extent, unit_bytes: u64) -> Cuts {
        Cuts { start: extent.offset, at: extent.offset, end: extent.end(), unit_bytes }
    }

    #[inline]
    fn next(&mut self) -> Option<Cut> {
        if self.at == self.end {
            return None;
        }
        let offset = self.at % self.unit_bytes;
        let bytes = (self.unit_bytes - offset).min(self.end - self.at);
        let cut = Cut {
            unit: self.at / self.unit_bytes,
            extent: Extent::new(offset, bytes),
            from_start: self.at - self.start,
        };
        self.at += bytes;
        Some(cut)
    }
}
