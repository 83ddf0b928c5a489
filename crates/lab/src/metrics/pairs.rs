//! F17: A against B, in turns, with an interval; "no difference shown" when the interval spans 1.
//!
//! What must stay true: only figures taken in turns in one run are compared; the interval is of the
//! median of per-pair ratios, by bootstrap from a fixed seed, so that the same run gives the same
//! answer.

use super::slow_member::median;

/// Resamples of the bootstrap.
const RESAMPLES: usize = 4000;
/// Drift of A between its first and its last third that makes a comparison doubtful.
const DRIFT_MAX: f64 = 0.10;

/// How A compares with B.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Comparison {
    /// Median of A/B over the pairs.
    pub ratio: f64,
    /// 95 % interval of it.
    pub low: f64,
    /// 95 % interval of it.
    pub high: f64,
    /// Pairs.
    pub pairs: usize,
    /// A's last third over its first third: 1 is no drift.
    pub drift: f64,
}

impl Comparison {
    /// The interval does not contain 1.
    pub fn shows_a_difference(self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }

    /// The machine changed while the pairs were taken.
    pub fn drifted(self) -> bool {
        (self.drift - 1.0).abs() > DRIFT_MAX
    }

    /// One sentence.
    pub fn sentence(self) -> String {
        let said = if self.shows_a_difference() {
            format!("A is {:.3} times B", self.ratio)
        } else {
            "no difference shown".to_owned()
        };
        let drift = if self.drifted() {
            format!("; the machine drifted by {:.0} % meanwhile", (self.drift - 1.0) * 100.0)
        } else {
            String::new()
        };
        format!(
            "{said} (95 % interval {:.3} to {:.3}, {} pairs){drift}",
            self.low, self.high, self.pairs
        )
    }
}

/// Compare figures taken in turns A, B, A, B. `None` below three pairs or if a figure is not
/// above 0.
pub fn compare(a: &[f64], b: &[f64]) -> Option<Comparison> {
    let pairs = a.len().min(b.len());
    let all_positive = a.iter().chain(b).all(|figure| figure.is_finite() && *figure > 0.0);
    if pairs < 3 || !all_positive {
        return None;
    }
    let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| (a / b).ln()).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut medians: Vec<f64> =
        (0..RESAMPLES).map(|_| median((0..pairs).map(|_| logs[draw(&mut state, pairs)]))).collect();
    medians.sort_by(f64::total_cmp);
    let third = (pairs / 3).max(1);
    let ends =
        (median(a[..third].iter().copied()), median(a[pairs - third..pairs].iter().copied()));
    Some(Comparison {
        ratio: median(logs.iter().copied()).exp(),
        low: medians[RESAMPLES / 40].exp(),
        high: medians[RESAMPLES - 1 - RESAMPLES / 40].exp(),
        pairs,
        drift: ends.1 / ends.0,
    })
}

/// An index below `count`: splitmix64, whose bias at such counts is nothing.
fn draw(state: &mut u64, count: usize) -> usize {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(count).unwrap_or(1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::compare;

    /// Ten noisy pairs around `ratio`.
    fn pairs(ratio: f64) -> (Vec<f64>, Vec<f64>) {
        let b: Vec<f64> = (0..10).map(|at| 100.0 + f64::from((at * 37) % 11)).collect();
        let a =
            b.iter().enumerate().map(|(at, b)| b * ratio * if at % 2 == 0 { 1.02 } else { 0.98 });
        (a.collect(), b)
    }

    #[test]
    fn the_same_against_itself_shows_no_difference() {
        let (a, b) = pairs(1.0);
        let comparison = compare(&a, &b).expect("pairs");
        assert!(!comparison.shows_a_difference(), "{comparison:?}");
        assert!(comparison.sentence().starts_with("no difference shown"));
    }

    #[test]
    fn a_difference_larger_than_the_noise_is_shown_and_always_the_same() {
        let (a, b) = pairs(1.2);
        let comparison = compare(&a, &b).expect("pairs");
        assert!(comparison.shows_a_difference() && (comparison.ratio - 1.2).abs() < 0.03);
        assert_eq!(compare(&a, &b), Some(comparison));
    }

    #[test]
    fn a_machine_that_slows_down_is_said() {
        let a: Vec<f64> = (0..9).map(|at| 100.0 - f64::from(at) * 3.0).collect();
        let comparison = compare(&a, &a).expect("pairs");
        assert!(comparison.drifted() && comparison.sentence().contains("drifted"));
    }

    #[test]
    fn two_pairs_or_a_zero_are_not_compared() {
        assert_eq!(compare(&[1.0, 1.0], &[1.0, 1.0]), None);
        assert_eq!(compare(&[1.0, 0.0, 1.0], &[1.0; 3]), None);
    }
}
