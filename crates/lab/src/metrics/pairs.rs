//! A against B, in turns: the median ratio with an exact interval, and what may be said of it.
//!
//! What must stay true: only figures taken in turns in one run are compared. The interval is that
//! of the sign test: two order statistics of the ratios of pairs. It holds at least 95 % of the
//! time whatever the noise, because a coin decides who begins (`compare::turns`). With fewer than
//! six pairs no such interval exists, and nothing is decided. Nothing is decided either if a side
//! drifted beyond the limit, however much the sides differ.
//!
//! Source: Conover, Practical Nonparametric Statistics, 3.2 (intervals of quantiles).

use super::slow_member::median;

/// With fewer pairs the widest interval, from the lowest to the highest ratio, holds less often
/// than 95 % of the time.
pub const PAIRS_MIN: usize = 6;
const CONFIDENCE: f64 = 0.95;
/// Drift of a side between its first and its last third that is no noise.
const DRIFT_MAX: f64 = 0.10;
/// What is said of a case without an interval.
pub const TOO_FEW: &str = "too few rounds: six decide";

#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Comparison {
    pub ratio: f64,
    /// 95 % interval of it.
    pub low: f64,
    pub high: f64,
    pub pairs: usize,
    /// Last third over first third of the side that changed more: 1 is no drift.
    pub drift: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    Faster,
    Slower,
    /// The interval contains 1.
    Open,
    Drifted,
}

impl Decision {
    pub fn word(self) -> &'static str {
        match self {
            Decision::Faster => "faster",
            Decision::Slower => "slower",
            Decision::Open => "no difference shown",
            Decision::Drifted => "not decided: it drifted",
        }
    }
}

impl Comparison {
    pub fn decision(self) -> Decision {
        match self {
            _ if self.has_drifted() => Decision::Drifted,
            _ if self.low > 1.0 => Decision::Faster,
            _ if self.high < 1.0 => Decision::Slower,
            _ => Decision::Open,
        }
    }

    pub fn has_drifted(self) -> bool {
        (self.drift - 1.0).abs() > DRIFT_MAX
    }

    /// Its interval, and its drift if that is beyond the limit.
    pub fn shown(self) -> String {
        let drift = match self.has_drifted() {
            true => format!("; a side drifted by {:.0} %", (self.drift - 1.0) * 100.0),
            false => String::new(),
        };
        format!("95 % interval {:.3} to {:.3}, {} pairs{drift}", self.low, self.high, self.pairs)
    }

    pub fn sentence(self) -> String {
        let said = match self.decision() {
            Decision::Faster | Decision::Slower => format!("A is {:.3} times B", self.ratio),
            Decision::Open => "no difference shown".to_owned(),
            Decision::Drifted => "not decided".to_owned(),
        };
        format!("{said} ({})", self.shown())
    }
}

/// Compare figures taken in turns, those of a pair at the same place. `None` below [`PAIRS_MIN`]
/// pairs or if a figure is not above 0.
pub fn compare(a: &[f64], b: &[f64]) -> Option<Comparison> {
    let pairs = a.len().min(b.len());
    let all_positive = a.iter().chain(b).all(|figure| figure.is_finite() && *figure > 0.0);
    if pairs < PAIRS_MIN || !all_positive {
        return None;
    }
    let mut ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
    ratios.sort_by(f64::total_cmp);
    let from = left_out(pairs);
    Some(Comparison {
        // Of two in the middle the mean of their logarithms: A/B and B/A say the same.
        ratio: median(ratios.iter().map(|ratio| ratio.ln())).exp(),
        low: ratios[from],
        high: ratios[pairs - 1 - from],
        pairs,
        drift: [drift(&a[..pairs]), drift(&b[..pairs])]
            .into_iter()
            .max_by(|one, other| one.ln().abs().total_cmp(&other.ln().abs()))?,
    })
}

/// How many of the lowest and of the highest ratios lie outside of the interval: the most that
/// leave it [`CONFIDENCE`]. At least [`PAIRS_MIN`] pairs.
fn left_out(pairs: usize) -> usize {
    let mut chance = 0.5f64.powi(i32::try_from(pairs).unwrap_or(i32::MAX));
    let (mut below, mut count) = (0.0, 0);
    loop {
        // The chance of at most `count` heads in so many throws, twice.
        below += chance;
        if 2.0 * below > 1.0 - CONFIDENCE {
            return count.max(1) - 1;
        }
        count += 1;
        chance *= as_f64(pairs + 1 - count) / as_f64(count);
    }
}

fn as_f64(count: usize) -> f64 {
    super::latency::to_f64(u64::try_from(count).unwrap_or(u64::MAX))
}

fn drift(figures: &[f64]) -> f64 {
    let third = (figures.len() / 3).max(1);
    median(figures[figures.len() - third..].iter().copied())
        / median(figures[..third].iter().copied())
}

#[cfg(test)]
mod tests;
