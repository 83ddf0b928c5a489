//! Where a working set stops fitting into a cache: a lasting fall of the rate from one size to the
//! next.
//!
//! What must stay true: a knee is a change of level that lasts to the largest size; one low size
//! among high ones is none.

use super::latency::to_f64;

/// A fall between two neighbouring sizes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Knee {
    /// The largest size that still fits, bytes.
    pub fits: u64,
    /// The smallest that does not.
    pub beyond: u64,
    /// Mean rate of the sizes that fit.
    pub before: f64,
    /// Mean rate of those that do not.
    pub after: f64,
}

impl Knee {
    /// What is left beyond it.
    pub fn ratio(self) -> f64 {
        self.after / self.before
    }
}

/// Falls smaller than this are called noise.
const RATIO_MAX: f64 = 0.7;

/// Look for the knee in rates of sizes, smallest first: the split that explains most of the
/// variance, if all sizes beyond it are below all that fit.
pub fn find(rates: &[(u64, f64)]) -> Option<Knee> {
    let split = (1..rates.len()).min_by(|one, other| {
        let cost = |at: usize| spread(&rates[..at]) + spread(&rates[at..]);
        cost(*one).total_cmp(&cost(*other))
    })?;
    let (fit, rest) = rates.split_at(split);
    let knee =
        Knee { fits: fit.last()?.0, beyond: rest.first()?.0, before: mean(fit), after: mean(rest) };
    let lowest = fit.iter().map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min);
    let lasts = rest.iter().all(|(_, rate)| *rate < lowest);
    (knee.before > 0.0 && lasts && knee.ratio() < RATIO_MAX).then_some(knee)
}

fn mean(rates: &[(u64, f64)]) -> f64 {
    let count = to_f64(u64::try_from(rates.len().max(1)).unwrap_or(u64::MAX));
    rates.iter().map(|(_, rate)| rate).sum::<f64>() / count
}

/// Sum of squared distances from the mean.
fn spread(rates: &[(u64, f64)]) -> f64 {
    let middle = mean(rates);
    rates.iter().map(|(_, rate)| (rate - middle).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::find;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_knee_lies_between_the_last_size_that_fits_and_the_first_that_does_not() {
        let rates = [(GIB, 2.0e9), (4 * GIB, 2.1e9), (16 * GIB, 0.5e9), (64 * GIB, 0.3e9)];
        let knee = find(&rates).expect("a knee");
        assert_eq!((knee.fits, knee.beyond), (4 * GIB, 16 * GIB));
        assert!((knee.ratio() - 0.4 / 2.05).abs() < 1e-9);
    }

    #[test]
    fn even_rates_a_dip_and_a_rise_have_no_knee() {
        assert_eq!(find(&[(1, 1.0), (2, 0.95), (4, 1.0), (8, 0.9)]), None);
        assert_eq!(find(&[(1, 1.0), (2, 0.2), (4, 1.0), (8, 1.0)]), None, "a dip does not last");
        let late = [(1, 1.0), (2, 1.0), (4, 0.1), (8, 1.0), (16, 0.1), (32, 0.1)];
        assert_eq!(find(&late), None, "a size that is fast again lies beyond it");
        assert_eq!(find(&[(1, 0.2), (2, 1.0), (4, 1.0)]), None);
        assert_eq!(find(&[(1, 1.0)]), None);
        assert_eq!(find(&[]), None);
    }
}
