//! Where a level falls for good: a drive's fast cache is full, or a working set stops fitting into
//! a cache.
//!
//! What must stay true: a fall lasts to the end, a dip is none. Least squares with two levels find
//! it: the split that explains most of the variance.

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cliff {
    /// Index of the first point after the fall.
    pub at: usize,
    pub before: f64,
    pub after: f64,
    /// Bytes moved before the fall.
    pub bytes_before: f64,
}

/// A fall between two neighbouring sizes of a working set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Knee {
    /// The largest size that still fits, bytes.
    pub fits: u64,
    pub beyond: u64,
    /// What is left of the rate beyond it.
    pub ratio: f64,
}

/// Smaller falls of a series and of sizes are called noise.
const CLIFF_RATIO_MAX: f64 = 0.8;
const KNEE_RATIO_MAX: f64 = 0.7;
/// Points of a series on each side of its cliff.
const SIDE_MIN: usize = 3;

/// The cliff in bytes a second at equal steps of `step_s` seconds: a fall by a fifth or more that
/// stands out of the noise.
pub fn find(series: &[f64], step_s: f64) -> Option<Cliff> {
    let at = split(series, SIDE_MIN)?;
    let (fast, slow) = series.split_at(at);
    let (before, after) = (mean(fast), mean(slow));
    let noise = spread(fast) + spread(slow);
    let explained = 1.0 - noise / spread(series).max(f64::MIN_POSITIVE);
    let bytes_before = fast.iter().sum::<f64>() * step_s;
    let is_fall = before > 0.0 && after / before < CLIFF_RATIO_MAX && explained > 0.5;
    is_fall.then_some(Cliff { at, before, after, bytes_before })
}

/// The knee in rates of sizes, smallest first: all sizes beyond it are below all that fit.
pub fn knee(sizes: &[(u64, f64)]) -> Option<Knee> {
    let rates: Vec<f64> = sizes.iter().map(|(_, rate)| *rate).collect();
    let at = split(&rates, 1)?;
    let (fit, rest) = rates.split_at(at);
    let lowest = fit.iter().copied().fold(f64::INFINITY, f64::min);
    let ratio = mean(rest) / mean(fit);
    let is_knee = rest.iter().all(|rate| *rate < lowest) && ratio < KNEE_RATIO_MAX;
    is_knee.then(|| Knee { fits: sizes[at - 1].0, beyond: sizes[at].0, ratio })
}

fn split(values: &[f64], side: usize) -> Option<usize> {
    let cost = |at: usize| spread(&values[..at]) + spread(&values[at..]);
    let splits = side..(values.len() + 1).saturating_sub(side);
    splits.min_by(|one, other| cost(*one).total_cmp(&cost(*other)))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn spread(values: &[f64]) -> f64 {
    let middle = mean(values);
    values.iter().map(|value| (value - middle).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::{find, knee};

    #[test]
    fn a_full_cache_is_found_where_it_was_full() {
        // 1,550 MB/s for 25 s, then 414 MB/s, as the 256 GB drive of seed 003 after its erase.
        let rate = |at: u32| if at < 25 { 1550e6 + f64::from(at % 3) * 1e6 } else { 414e6 };
        let series: Vec<f64> = (0..60).map(rate).collect();
        let cliff = find(&series, 1.0).expect("a cliff");
        assert_eq!(cliff.at, 25);
        assert!((cliff.after / cliff.before - 0.267).abs() < 0.01);
        assert!((cliff.bytes_before - 38.775e9).abs() < 0.1e9);
    }

    #[test]
    fn a_dip_a_rise_and_noise_are_no_cliffs() {
        let series = |rate: fn(u32) -> f64| (0..40).map(rate).collect::<Vec<f64>>();
        let dip = series(|at| if (20..22).contains(&at) { 100e6 } else { 500e6 });
        let rise = series(|at| if at < 20 { 100e6 } else { 500e6 });
        let noise = series(|at| 500e6 + f64::from((at * 7919) % 13) * 5e6);
        for none in [dip, rise, noise, vec![1.0; 4], Vec::new()] {
            assert_eq!(find(&none, 1.0), None, "{none:?}");
        }
    }

    #[test]
    fn the_knee_lies_between_the_last_size_that_fits_and_the_first_that_does_not() {
        let found = knee(&[(1, 2.0e9), (4, 2.1e9), (16, 0.5e9), (64, 0.3e9)]).expect("a knee");
        assert_eq!((found.fits, found.beyond), (4, 16));
        assert!((found.ratio - 0.4 / 2.05).abs() < 1e-9);
        for none in [
            &[(1, 1.0), (2, 0.95), (4, 1.0), (8, 0.9)][..],
            &[(1, 1.0), (2, 0.2), (4, 1.0), (8, 1.0)],
            &[(1, 1.0), (2, 1.0), (4, 0.1), (8, 1.0), (16, 0.1), (32, 0.1)],
            &[(1, 0.2), (2, 1.0), (4, 1.0)],
            &[(1, 1.0)],
            &[],
        ] {
            assert_eq!(knee(none), None, "{none:?}");
        }
    }
}
