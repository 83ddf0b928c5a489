//! Where a bandwidth series falls off a cliff, as when a drive's fast cache is full.
//!
//! What must stay true: a cliff is a change of level that lasts to the end of the series, not a
//! dip.

/// A lasting fall.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Cliff {
    /// Index of the first point after the fall.
    pub at: usize,
    /// Mean before, in the unit of the series.
    pub before: f64,
    /// Mean after.
    pub after: f64,
    /// Bytes moved before the fall.
    pub bytes_before: f64,
}

impl Cliff {
    /// Sustained over burst rate.
    pub fn ratio(self) -> f64 {
        self.after / self.before
    }
}

/// Falls smaller than this are called noise.
const RATIO_MAX: f64 = 0.8;
/// Points on each side.
const SIDE_MIN: usize = 3;

/// Look for the cliff in bytes a second at equal steps of `step_s` seconds: the change-point that
/// explains most of the variance (least squares with two levels), if it is a fall by a fifth or
/// more and stands out of the noise.
pub fn find(series: &[f64], step_s: f64) -> Option<Cliff> {
    let splits = SIDE_MIN..series.len().saturating_sub(SIDE_MIN) + 1;
    let best = splits.min_by(|one, other| {
        let cost = |at: usize| spread(&series[..at]) + spread(&series[at..]);
        cost(*one).total_cmp(&cost(*other))
    })?;
    let (before, after) = (mean(&series[..best]), mean(&series[best..]));
    let noise = spread(&series[..best]) + spread(&series[best..]);
    let explained = 1.0 - noise / spread(series).max(f64::MIN_POSITIVE);
    let cliff = Cliff {
        at: best,
        before,
        after,
        bytes_before: series[..best].iter().sum::<f64>() * step_s,
    };
    (before > 0.0 && cliff.ratio() < RATIO_MAX && explained > 0.5).then_some(cliff)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / super::latency::to_f64(values.len().max(1) as u64)
}

/// Sum of squared distances from the mean.
fn spread(values: &[f64]) -> f64 {
    let middle = mean(values);
    values.iter().map(|value| (value - middle).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn a_full_cache_is_found_where_it_was_full() {
        // 1,550 MB/s for 25 s, then 414 MB/s, as the 256 GB drive of seed 003 after its secure
        // erase.
        let series: Vec<f64> = (0..60)
            .map(|at| if at < 25 { 1550e6 + f64::from(at % 3) * 1e6 } else { 414e6 })
            .collect();
        let cliff = find(&series, 1.0).expect("a cliff");
        assert_eq!(cliff.at, 25);
        assert!((cliff.ratio() - 0.267).abs() < 0.01);
        assert!((cliff.bytes_before - 38.775e9).abs() < 0.1e9);
    }

    #[test]
    fn a_dip_a_rise_and_noise_are_no_cliffs() {
        let mut dip = vec![500e6; 40];
        dip[20..22].fill(100e6);
        assert_eq!(find(&dip, 1.0), None);
        let rise: Vec<f64> = (0..40).map(|at| if at < 20 { 100e6 } else { 500e6 }).collect();
        assert_eq!(find(&rise, 1.0), None);
        let noise: Vec<f64> = (0..40).map(|at| 500e6 + f64::from((at * 7919) % 13) * 5e6).collect();
        assert_eq!(find(&noise, 1.0), None);
        assert_eq!(find(&[1.0; 4], 1.0), None);
    }
}
