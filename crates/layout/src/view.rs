//! What may be done with each strip of a stripe right now, and the error when that is too little.
//!
//! A view is a plain value made by the engine from member states, rebuild progress and the intent
//! log; this crate never asks where it came from. A view that says too much is a bug that loses
//! data; one that says too little only costs reads.

use ashlar_units::StripSet;

use crate::geometry::Geometry;

/// What may be done with each strip of one stripe right now.
///
/// | readable | writable | the strip |
/// |---|---|---|
/// | yes | yes | in sync |
/// | no | yes | being rebuilt (or a bad block): its old content is unknown, new content sticks |
/// | no | no | its member is out |
/// | yes | no | for reads in sync; for writes counted as out, since a write makes it stale |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripeView {
    /// Strips whose content on the member is right.
    pub readable: StripSet,
    /// Strips that take new content.
    pub writable: StripSet,
    /// Whether readable parity strips agree with the data. `false` after an unclean stop, until the
    /// stripe is resynced: parity is then neither modified nor used to decode. Copies of a mirror
    /// are complete by themselves and are used all the same.
    pub is_parity_valid: bool,
}

impl StripeView {
    /// Everything readable and writable, parity valid.
    #[inline]
    pub fn healthy(geometry: &Geometry) -> StripeView {
        let all = geometry.all_strips();
        StripeView { readable: all, writable: all, is_parity_valid: true }
    }

    /// The view with these strips gone: neither readable nor writable.
    #[must_use]
    #[inline]
    pub fn without(self, out: StripSet) -> StripeView {
        StripeView {
            readable: self.readable.minus(out),
            writable: self.writable.minus(out),
            ..self
        }
    }

    /// The view with these strips writable only.
    #[must_use]
    #[inline]
    pub fn rebuilding(self, strips: StripSet) -> StripeView {
        StripeView {
            readable: self.readable.minus(strips),
            writable: self.writable.or(strips),
            ..self
        }
    }
}

/// Too many strips of a stripe are lost for what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("strips {lost:?} of the stripe are lost, its parity can stand in for {tolerated}")]
pub struct Unreachable {
    /// Strips that cannot take part.
    pub lost: StripSet,
    /// How many lost strips could have been tolerated; 0 when parity must not be trusted.
    pub tolerated: usize,
}
