//! Two engines at one glance: one line for each case, with the ratio, its interval and where equal
//! would be.
//!
//! What must stay true: the scale is the same to both sides of equal (a half is as far from it as
//! twice); what a colour says stands in words beside it; a case with an INVALID side is named
//! without a place on the scale; what does not fit is counted.

use super::findings::{duels, short};
use super::points::Point;
use crate::metrics::pairs::{Comparison, Decision};

/// Lines that one glance takes in; the table below has all.
const LINES_MAX: usize = 8;
const POWER_MAX: f64 = 4.0;

/// Two engines at one glance.
#[derive(Clone, PartialEq, Debug)]
pub struct Forest {
    pub one: String,
    pub other: String,
    /// What the ends of the scale stand for: `4`.
    pub end: String,
    pub lines: Vec<Line>,
    pub more: usize,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    pub case: String,
    /// `x1.34`, with a sign of multiplication.
    pub ratio: String,
    /// `faster`, `slower`, `no difference shown`, or that it drifted.
    pub word: &'static str,
    /// Its class: `faster`, `slower`, `open`; `none` for one that has no place on the scale.
    pub class: &'static str,
    /// Where the interval begins, the ratio is and how wide the interval is, percent of the scale.
    pub from: f64,
    pub at: f64,
    pub width: f64,
}

pub fn of(points: &[Point], names: &[&str], other: &str) -> Option<Forest> {
    let duels = duels(points, other);
    let told: Vec<Comparison> =
        duels.iter().filter(|duel| duel.is_usable).filter_map(|duel| duel.rate).collect();
    let far = |rate: &Comparison| rate.low.log2().abs().max(rate.high.log2().abs());
    let power = told.iter().map(far).filter(|far| far.is_finite());
    let power = power.fold(1.0, f64::max).ceil().min(POWER_MAX);
    let all = duels.iter().filter_map(|duel| match duel.is_usable {
        true => Some(line(duel.one.case(), &duel.rate?, power)),
        false => Some(invalid(duel.one.case())),
    });
    let lines: Vec<Line> = all.take(LINES_MAX).collect();
    (!told.is_empty()).then(|| Forest {
        one: short(names[0], names).to_owned(),
        other: short(other, names).to_owned(),
        end: format!("{:.0}", power.exp2()),
        more: duels.len() - lines.len(),
        lines,
    })
}

/// A case that takes no part: it is named, so that nobody looks for it in vain.
fn invalid(case: String) -> Line {
    let ratio = "INVALID".to_owned();
    Line { case, ratio, word: "not compared", class: "none", from: 0.0, at: 0.0, width: 0.0 }
}

fn line(case: String, rate: &Comparison, power: f64) -> Line {
    let place = |ratio: f64| ((ratio.log2() / power + 1.0) * 50.0).clamp(0.0, 100.0);
    let decision = rate.decision();
    let class = match decision {
        Decision::Faster => "faster",
        Decision::Slower => "slower",
        Decision::Open | Decision::Drifted => "open",
    };
    let (from, to) = (place(rate.low), place(rate.high));
    Line {
        case,
        ratio: format!("\u{d7}{:.2}", rate.ratio),
        word: decision.word(),
        class,
        from,
        at: place(rate.ratio),
        width: to - from,
    }
}

#[cfg(test)]
mod tests {
    use super::line;
    use crate::metrics::pairs::Comparison;

    fn drawn(ratio: f64, low: f64, high: f64) -> super::Line {
        line("a case".into(), &Comparison { ratio, low, high, pairs: 6, drift: 1.0 }, 2.0)
    }

    #[test]
    fn twice_and_half_are_equally_far_from_equal_and_the_word_follows_the_interval() {
        let (twice, half, same) =
            (drawn(2.0, 1.5, 2.5), drawn(0.5, 0.4, 0.9), drawn(1.0, 0.8, 1.2));
        assert_eq!((twice.at, half.at, same.at), (75.0, 25.0, 50.0));
        assert_eq!([twice.word, half.word, same.word], ["faster", "slower", "no difference shown"]);
        assert!(same.from < 50.0 && same.from + same.width > 50.0);
        let beyond = drawn(64.0, 32.0, 128.0);
        assert_eq!((beyond.at, beyond.from + beyond.width), (100.0, 100.0));
    }
}
