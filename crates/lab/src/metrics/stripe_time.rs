//! How long a stripe takes when it waits for the slowest of its members, from the members' own
//! latencies.
//!
//! The distribution of the slowest of independent members is the product of their distributions.

use super::latency::{Bins, to_f64};
use std::collections::BTreeSet;

/// Latency in nanoseconds that a share `fraction` of all stripes does not exceed. `None` if a
/// member has no I/Os.
pub fn percentile(members: &[Bins], fraction: f64) -> Option<u64> {
    let cumulated: Vec<Vec<(u64, f64)>> =
        members.iter().map(distribution).collect::<Option<_>>()?;
    let latencies: BTreeSet<u64> = members.iter().flat_map(Bins::keys).copied().collect();
    latencies.into_iter().find(|latency_ns| {
        let share: f64 = cumulated.iter().map(|member| at(member, *latency_ns)).product();
        share >= fraction - 1e-12
    })
}

/// Shares of I/Os that are done by each latency.
fn distribution(bins: &Bins) -> Option<Vec<(u64, f64)>> {
    let all = to_f64(super::latency::count(bins));
    let mut seen = 0;
    (all > 0.0).then(|| {
        bins.iter()
            .map(|(latency_ns, count)| {
                seen += count;
                (*latency_ns, to_f64(seen) / all)
            })
            .collect()
    })
}

fn at(member: &[(u64, f64)], latency_ns: u64) -> f64 {
    let after = member.partition_point(|(bin, _)| *bin <= latency_ns);
    after.checked_sub(1).map_or(0.0, |before| member[before].1)
}

#[cfg(test)]
mod tests {
    use super::percentile;
    use crate::metrics::latency::Bins;

    #[test]
    fn ten_members_that_are_fast_nine_times_of_ten_make_a_stripe_that_is_mostly_slow() {
        let member: Bins = [(100, 90), (1000, 10)].into();
        // 0.9^10 = 0.349: the median stripe waits for a slow member.
        assert_eq!(percentile(&vec![member.clone(); 10], 0.34), Some(100));
        assert_eq!(percentile(&vec![member.clone(); 10], 0.35), Some(1000));
        assert_eq!(percentile(&[member], 0.9), Some(100));
    }

    #[test]
    fn a_member_without_ios_gives_no_prediction() {
        assert_eq!(percentile(&[Bins::new()], 0.5), None);
    }
}
