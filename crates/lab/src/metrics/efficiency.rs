//! Efficiency: an array's rate over its BASELINE, a rate over busy cores, one engine's over
//! another's.
//!
//! What must stay true: both sides are of the same workload point and in the same unit; what cannot
//! be divided is not given.

pub fn ratio(above: f64, below: f64) -> Option<f64> {
    (below > 0.0 && above.is_finite() && below.is_finite()).then(|| above / below)
}
