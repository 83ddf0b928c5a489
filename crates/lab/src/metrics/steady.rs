//! Steady state as SNIA's Performance Test Specification defines it, on both criteria at once.
//!
//! Source: SNIA Solid State Storage Performance Test Specification, "steady state": a window of
//! five rounds in which the range is at most 20 % of the average and the best straight line rises
//! or falls by at most 10 % of the average.

pub const WINDOW: usize = 5;
/// Rounds after which a run gives up.
pub const ROUNDS_MAX: usize = 25;
/// Range allowed, share of the average.
pub const RANGE_MAX: f64 = 0.20;
/// Excursion of the fitted line over the window allowed, share of the average.
pub const EXCURSION_MAX: f64 = 0.10;

#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Window {
    pub average: f64,
    /// Highest minus lowest, share of the average.
    pub range: f64,
    /// |slope| x (rounds - 1), share of the average.
    pub excursion: f64,
}

impl Window {
    pub fn is_steady(self) -> bool {
        self.range <= RANGE_MAX && self.excursion <= EXCURSION_MAX
    }
}

/// Judge the last [`WINDOW`] rounds; `None` if there are fewer, or nothing was done in them.
pub fn judge(rounds: &[f64]) -> Option<Window> {
    let window = rounds.len().checked_sub(WINDOW).map(|from| &rounds[from..])?;
    let count = 5.0;
    let average = window.iter().sum::<f64>() / count;
    if average <= 0.0 {
        return None;
    }
    let highest = window.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let lowest = window.iter().copied().fold(f64::INFINITY, f64::min);
    // Least squares over x = -2, -1, 0, 1, 2, whose squares sum to 10.
    let slope =
        [-2.0, -1.0, 0.0, 1.0, 2.0].iter().zip(window).map(|(x, y)| x * y).sum::<f64>() / 10.0;
    Some(Window {
        average,
        range: (highest - lowest) / average,
        excursion: slope.abs() * (count - 1.0) / average,
    })
}

/// The first round (from 1) at whose end the window was steady.
pub fn reached(rounds: &[f64]) -> Option<usize> {
    let limit = rounds.len().min(ROUNDS_MAX);
    (WINDOW..=limit).find(|end| judge(&rounds[..*end]).is_some_and(Window::is_steady))
}

#[cfg(test)]
mod tests {
    use super::{judge, reached};

    #[test]
    fn both_criteria_must_hold_and_the_first_steady_round_is_found() {
        // Range 16 % of the average, but all of it is slope; and the other way round.
        let falling = judge(&[108.0, 104.0, 100.0, 96.0, 92.0]).expect("five");
        assert!(falling.range <= 0.20 && !falling.is_steady(), "{falling:?}");
        let outlier = judge(&[100.0, 100.0, 130.0, 100.0, 100.0]).expect("five");
        assert!(outlier.excursion <= 0.10 && !outlier.is_steady(), "{outlier:?}");
        let rounds = [400.0, 300.0, 210.0, 150.0, 120.0, 103.0, 101.0, 100.0, 99.0, 100.0];
        assert_eq!(reached(&rounds), Some(10));
        assert_eq!((judge(&rounds[..4]), judge(&[0.0; 5])), (None, None));
    }
}
