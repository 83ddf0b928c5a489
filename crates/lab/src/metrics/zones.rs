//! How a spinning drive's rate falls from the outer edge to the inner one, and what that means for
//! all of it.
//!
//! A platter turns at one speed and holds about as many bits in each centimetre of track, so the
//! rate is proportional to the radius, and the bytes outside a radius to the area there. After a
//! share x of the bytes, from the outer edge with rate o to the inner with rate i: rate(x) =
//! sqrt(o^2 - x (o^2 - i^2)). The time for all bytes is the integral of dx / rate(x), which is 2 /
//! (o + i): a whole pass runs at the mean of both edges.
//!
//! What must stay true: means over bytes are harmonic: the slow part takes longer.

/// Rate of a pass over all bytes. None if an edge is not positive or the inner one is faster.
pub fn mean_of(outer: f64, inner: f64) -> Option<f64> {
    (inner > 0.0 && outer >= inner).then(|| f64::midpoint(outer, inner))
}

/// Rate of a pass over all bytes, of rates measured at places, `(place, rate)`, outermost first.
/// None if there are fewer than two places, they do not go on, or a rate is not positive.
pub fn mean(points: &[(f64, f64)]) -> Option<f64> {
    let goes_on = points.windows(2).all(|pair| pair[1].0 > pair[0].0);
    let (first, last) = (points.first()?, points.last()?);
    if points.len() < 2 || !goes_on || points.iter().any(|point| point.1 <= 0.0) {
        return None;
    }
    // From place to place the rate changes evenly: each stretch runs at the mean of its ends.
    let time = |pair: &[(f64, f64)]| (pair[1].0 - pair[0].0) / f64::midpoint(pair[0].1, pair[1].1);
    Some((last.0 - first.0) / points.windows(2).map(time).sum::<f64>())
}

#[cfg(test)]
mod tests {
    use super::{mean, mean_of};

    #[test]
    fn a_whole_pass_runs_at_the_mean_of_both_edges_and_the_slow_part_counts_for_more() {
        // The story's drive: 265 MB/s outside, 145 inside.
        assert_eq!(mean_of(265.0, 145.0), Some(205.0));
        let at =
            |part: f64| (265.0_f64.powi(2) - part * (265.0_f64.powi(2) - 145.0_f64.powi(2))).sqrt();
        let places = (0..=1_000).map(|it| f64::from(it) / 1_000.0);
        let pass = mean(&places.map(|it| (it, at(it))).collect::<Vec<_>>()).expect("rates");
        assert!((pass - 205.0).abs() < 0.01, "{pass}");
        // Half of the bytes lie outside the point where half of them are behind: not at 205.
        assert!((at(0.5) - 213.6).abs() < 0.1);
        let falling = mean(&[(0.0, 300.0), (50.0, 200.0), (100.0, 100.0)]).expect("rates");
        // A short stretch counts for little.
        let short = mean(&[(0.0, 200.0), (99.0, 200.0), (100.0, 100.0)]).expect("rates");
        assert!(falling < 200.0 && (198.0..200.0).contains(&short), "{falling} {short}");
        assert_eq!((mean_of(145.0, 265.0), mean_of(265.0, 0.0)), (None, None));
        for none in [&[(0.0, 5.0)][..], &[(0.0, 5.0), (1.0, 0.0)], &[(1.0, 5.0), (1.0, 5.0)]] {
            assert_eq!(mean(none), None, "{none:?}");
        }
    }
}
