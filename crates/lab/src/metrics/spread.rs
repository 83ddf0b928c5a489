//! How a load lies over the cores: the notation "9x100%", and two numbers for
//! unevenness.
//!
//! What must stay true: an average is never given without the spread beside it; a core that is idle
//! counts as a core.

use serde::{Deserialize, Serialize};

/// Points by which the busiest core must stand out of the middle one to be called a spike.
pub const SPIKE_POINTS: f64 = 10.0;

/// A load over cores.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Spread {
    /// `9x100%`: so many cores stand out, at so many percent on average; or `No spikes`.
    pub words: String,
    pub hot_cores: usize,
    /// Their mean load, percent; the mean of all when none stands out.
    pub hot_percent: f64,
    /// Mean load of all cores, percent.
    pub mean_percent: f64,
    /// Load of the busiest core over the mean: 1 is even.
    pub max_over_mean: f64,
    /// Jain's index: 1 is even, 1 / cores is all on one.
    pub jain: f64,
}

impl Spread {
    /// The spread of `percents`, one load for each core. A spike stands `spike_points` or more
    /// above the median; the hot cores are then those above the largest gap. `None` without cores.
    pub fn of(percents: &[f64], spike_points: f64) -> Option<Spread> {
        let mut sorted = percents.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let (&max, cores) = (sorted.first()?, to_f64(sorted.len()));
        let mean = sorted.iter().sum::<f64>() / cores;
        let hot_cores = match max - median(&sorted) < spike_points {
            true => 0,
            false => above_largest_gap(&sorted),
        };
        let hot_percent = match hot_cores {
            0 => mean,
            hot => sorted[..hot].iter().sum::<f64>() / to_f64(hot),
        };
        let words = match hot_cores {
            0 => "No spikes".to_owned(),
            hot => format!("{hot}x{hot_percent:.0}%"),
        };
        let squares: f64 = sorted.iter().map(|load| load * load).sum();
        let jain = if squares > 0.0 { (mean * cores).powi(2) / (cores * squares) } else { 1.0 };
        let max_over_mean = if mean > 0.0 { max / mean } else { 1.0 };
        Some(Spread { words, hot_cores, hot_percent, mean_percent: mean, max_over_mean, jain })
    }
}

fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[half],
        _ => sorted[half - 1].midpoint(sorted[half]),
    }
}

/// How many of the loads, largest first, lie above the largest gap between neighbours.
fn above_largest_gap(sorted: &[f64]) -> usize {
    let gaps = sorted.windows(2).map(|pair| pair[0] - pair[1]).enumerate();
    gaps.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
        .map_or(sorted.len(), |(at, _)| at + 1)
}

fn to_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::{SPIKE_POINTS, Spread};

    fn words(percents: &[f64]) -> String {
        Spread::of(percents, SPIKE_POINTS).expect("cores").words
    }

    #[test]
    fn one_pinned_core_is_one_at_a_hundred_percent() {
        let mut cores = [0.4; 64];
        cores[40] = 99.8;
        let spread = Spread::of(&cores, SPIKE_POINTS).expect("cores");
        assert_eq!(spread.words, "1x100%");
        // The average that top shows says two percent.
        assert!(spread.mean_percent < 2.0 && spread.max_over_mean > 50.0 && spread.jain < 0.03);
    }

    #[test]
    fn hot_cores_are_those_above_the_largest_gap() {
        let mut cores = vec![100.0; 9];
        cores.extend([30.0; 3]);
        cores.extend([20.0; 52]);
        assert_eq!(words(&cores), "9x100%");
        assert_eq!(words(&[100.0, 0.0]), "1x100%");
        assert_eq!(words(&[60.0, 52.0, 2.0, 1.0, 0.0]), "2x56%");
    }

    #[test]
    fn an_even_load_has_no_spikes_however_high() {
        assert_eq!(words(&[97.0; 8]), "No spikes");
        assert_eq!(words(&[14.0, 12.0, 13.0, 20.0]), "No spikes");
        assert_eq!(words(&[0.0; 4]), "No spikes");
        assert_eq!(words(&[100.0]), "No spikes");
        let even = Spread::of(&[50.0; 4], SPIKE_POINTS).expect("cores");
        assert!((even.jain - 1.0).abs() < 1e-12 && (even.max_over_mean - 1.0).abs() < 1e-12);
        assert_eq!(Spread::of(&[], SPIKE_POINTS), None);
    }

    #[test]
    fn with_a_lower_threshold_the_seed_s_eight_at_eleven_stand_out() {
        let mut cores = vec![11.0; 8];
        cores.extend([9.0; 56]);
        assert_eq!(words(&cores), "No spikes");
        assert_eq!(Spread::of(&cores, 1.5).expect("cores").words, "8x11%");
    }
}
