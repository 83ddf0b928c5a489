//! Which survivors reconstruct strips that cannot be read.
//!
//! Any k strips of a stripe determine the other m (the code is maximum distance separable), so the plan
//! is only a choice: data strips before parity, P before Q before R. Data strips cost nothing to use,
//! and the lower parities have the cheaper coefficients.

use ashlar_units::StripSet;

use crate::geometry::Geometry;
use crate::view::{StripeView, Unreachable};

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
