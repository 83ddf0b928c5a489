//! Latency percentiles from histogram bins.
//!
//! What must stay true: bins of several jobs are added before a percentile is taken; a percentile
//! that rests on fewer than ten I/Os beyond it is not given.

use std::collections::BTreeMap;

/// Latency in nanoseconds -> number of I/Os.
pub type Bins = BTreeMap<u64, u64>;

/// I/Os that must lie beyond a percentile for it to be given.
pub const BEYOND_MIN: f64 = 10.0;

pub fn merge(bins: &mut Bins, more: &Bins) {
    for (latency_ns, count) in more {
        *bins.entry(*latency_ns).or_default() += count;
    }
}

pub fn count(bins: &Bins) -> u64 {
    bins.values().sum()
}

/// The latency in nanoseconds that a share `fraction` (0 to 1) of all I/Os does not exceed.
///
/// `None` if fewer than [`BEYOND_MIN`] I/Os lie beyond it: then it says more about chance than
/// about the device.
pub fn percentile(bins: &Bins, fraction: f64) -> Option<u64> {
    let all = count(bins);
    let wanted = to_f64(all) * fraction;
    // A hair of slack: 0.999 of 10,000 leaves 9.99999 beyond it in binary fractions.
    if to_f64(all) - wanted < BEYOND_MIN - 1e-6 {
        return None;
    }
    let mut seen = 0;
    bins.iter().find_map(|(latency_ns, count)| {
        seen += count;
        (to_f64(seen) >= wanted - 1e-9).then_some(*latency_ns)
    })
}

/// A count as a number to calculate with: exact to 2^53, far beyond what a run counts.
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::{Bins, merge, percentile};
    use proptest::prelude::*;

    fn bins_of(samples: &[u64]) -> Bins {
        let mut bins = Bins::new();
        samples.iter().for_each(|sample| *bins.entry(*sample).or_default() += 1);
        bins
    }

    #[test]
    fn a_percentile_with_too_few_beyond_it_is_not_given() {
        let bins = bins_of(&(1..=1000).collect::<Vec<_>>());
        assert_eq!(percentile(&bins, 0.5), Some(500));
        assert_eq!(percentile(&bins, 0.99), Some(990));
        assert_eq!(percentile(&bins, 0.999), None);
        assert_eq!(percentile(&Bins::new(), 0.5), None);
    }

    proptest! {
        #[test]
        fn merged_percentiles_are_those_of_the_concatenated_samples(
            one in prop::collection::vec(1u64..5000, 0..400),
            other in prop::collection::vec(1u64..5000, 0..400),
        ) {
            let mut merged = bins_of(&one);
            merge(&mut merged, &bins_of(&other));
            let mut all: Vec<u64> = one.into_iter().chain(other).collect();
            all.sort_unstable();
            for per_mille in [500usize, 900, 950] {
                let at = (all.len() * per_mille).div_ceil(1000);
                let expected = (all.len() * (1000 - per_mille) >= 10_000).then(|| all[at - 1]);
                let share = f64::from(u32::try_from(per_mille).unwrap()) / 1000.0;
                prop_assert_eq!(percentile(&merged, share), expected);
            }
        }
    }
}
