//! How a load lies over the cores: the notation "9x100%", and two numbers for
//! unevenness.
//!
//! What must stay true: an average is never given without the spread beside it; a core that is idle
//! counts as a core.

use super::slow_member::median;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Points by which the busiest core must stand out of the middle one to be called a spike.
pub const SPIKE_POINTS: f64 = 10.0;

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Spread {
    /// `9x100%`: so many cores stand out, at so many percent on average; or `No spikes`.
    pub words: String,
    pub hot_cores: usize,
    /// Their mean load, percent; the mean of all when none stands out.
    pub hot_percent: f64,
    pub mean_percent: f64,
    /// Load of the busiest core over the mean: 1 is even.
    pub max_over_mean: f64,
    /// Jain's index: 1 is even, 1 / cores is all on one.
    pub jain: f64,
}

impl fmt::Display for Spread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, mean, jain) = (&self.words, self.mean_percent, self.jain);
        let uneven = self.max_over_mean;
        write!(out, "{words}   mean {mean:.1} %, max/mean {uneven:.2}, Jain {jain:.3}")
    }
}

impl Spread {
    /// The spread of `percents`, one load for each core. A spike stands `spike_points` or more
    /// above the median; the hot cores are then those above the largest gap. `None` without cores.
    pub fn of(percents: &[f64], spike_points: f64) -> Option<Spread> {
        let mut sorted = percents.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let (&max, cores) = (sorted.first()?, sorted.len() as f64);
        let mean = sorted.iter().sum::<f64>() / cores;
        let hot_cores = match max - median(sorted.iter().copied()) < spike_points {
            true => 0,
            false => above_largest_gap(&sorted),
        };
        let hot_percent = match hot_cores {
            0 => mean,
            hot => sorted[..hot].iter().sum::<f64>() / hot as f64,
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

/// How many of the loads, largest first, lie above the largest gap between neighbours.
fn above_largest_gap(sorted: &[f64]) -> usize {
    let gaps = sorted.windows(2).map(|pair| pair[0] - pair[1]).enumerate();
    gaps.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
        .map_or(sorted.len(), |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::{SPIKE_POINTS, Spread};

    fn words(percents: &[f64]) -> String {
        Spread::of(percents, SPIKE_POINTS).expect("cores").words
    }

    #[test]
    fn hot_cores_are_those_above_the_largest_gap_and_an_even_load_has_none() {
        let several = |parts: &[(usize, f64)]| -> Vec<f64> {
            parts.iter().flat_map(|(count, percent)| vec![*percent; *count]).collect()
        };
        for (cores, wanted) in [
            (several(&[(1, 99.8), (63, 0.4)]), "1x100%"),
            (several(&[(9, 100.0), (3, 30.0), (52, 20.0)]), "9x100%"),
            (vec![100.0, 0.0], "1x100%"),
            (vec![60.0, 52.0, 2.0, 1.0, 0.0], "2x56%"),
            (several(&[(8, 97.0)]), "No spikes"),
            (vec![14.0, 12.0, 13.0, 20.0], "No spikes"),
            (several(&[(4, 0.0)]), "No spikes"),
            (vec![100.0], "No spikes"),
            (several(&[(8, 11.0), (56, 9.0)]), "No spikes"),
        ] {
            assert_eq!(words(&cores), wanted, "{cores:?}");
        }
        // The average that top shows says two percent.
        let pinned = Spread::of(&several(&[(1, 99.8), (63, 0.4)]), SPIKE_POINTS).expect("cores");
        assert!(pinned.mean_percent < 2.0 && pinned.max_over_mean > 50.0 && pinned.jain < 0.03);
        let even = Spread::of(&[50.0; 4], SPIKE_POINTS).expect("cores");
        assert!((even.jain - 1.0).abs() < 1e-12 && (even.max_over_mean - 1.0).abs() < 1e-12);
        assert_eq!(Spread::of(&[], SPIKE_POINTS), None);
        // With a lower threshold the seed's eight at eleven stand out.
        let seed = several(&[(8, 11.0), (56, 9.0)]);
        assert_eq!(Spread::of(&seed, 1.5).expect("cores").words, "8x11%");
    }
}
