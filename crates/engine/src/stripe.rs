//! What a worker says of stripes: rows of one strip, and the locks of rows while requests are under
//! way; `work` has what is to be done to them.

pub(crate) mod lock;
pub(crate) mod work;

use ashlar_layout::{RowRange, Stripe};
use ashlar_units::StripIdx;

/// Rows of one strip of a stripe.
#[derive(Clone, Copy)]
pub(crate) struct StripRun {
    pub(crate) stripe: Stripe,
    pub(crate) strip: StripIdx,
    pub(crate) rows: RowRange,
}
