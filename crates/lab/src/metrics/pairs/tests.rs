//! Comparisons of identical sides (A/A) must rarely show a difference, whatever the noise.

use super::{Comparison, Decision, PAIRS_MIN, compare, left_out};
use crate::plan::points::begins_with_second;
use std::fmt::Write;
use std::hash::{BuildHasher, DefaultHasher, Hasher};

/// Ten noisy pairs around `ratio`.
fn pairs(ratio: f64) -> (Vec<f64>, Vec<f64>) {
    let b: Vec<f64> = (0..10).map(|at| 100.0 + f64::from((at * 37) % 11 % 5)).collect();
    let a = b.iter().enumerate().map(|(at, b)| b * ratio * if at % 2 == 0 { 1.02 } else { 0.98 });
    (a.collect(), b)
}

fn compared(ratio: f64) -> Comparison {
    let (a, b) = pairs(ratio);
    compare(&a, &b).expect("pairs")
}

#[test]
fn what_is_larger_than_the_noise_decides_and_nothing_else() {
    assert_eq!(compared(1.0).decision(), Decision::Open);
    assert!(compared(1.0).sentence().starts_with("no difference shown"));
    assert_eq!(compared(1.2).decision(), Decision::Faster);
    assert_eq!(compared(0.8).decision(), Decision::Slower);
    assert!((compared(1.2).ratio - 1.2).abs() < 0.03);
    let (a, b) = pairs(1.3);
    let (there, back) = (compare(&a, &b).expect("pairs"), compare(&b, &a).expect("pairs"));
    assert!((there.ratio * back.ratio - 1.0).abs() < 1e-9);
    assert!((there.low * back.high - 1.0).abs() < 1e-9);
}

/// However much the sides differ: what changed one of them meanwhile may be all of it.
#[test]
fn a_side_that_drifted_beyond_the_limit_forbids_faster_and_slower() {
    let falling = |step: f64, factor: f64| -> Vec<f64> {
        (0..9).map(|at| (100.0 - f64::from(at) * step) * factor).collect()
    };
    for (step, decided) in [(1.0, true), (3.0, false)] {
        for factor in [0.1, 1.0, 10.0] {
            for (a, b) in [(step, step), (step, 0.0), (0.0, step)] {
                let comparison = compare(&falling(a, factor), &falling(b, 1.0)).expect("pairs");
                assert_eq!(comparison.decision() != Decision::Drifted, decided, "{comparison:?}");
                assert_eq!(comparison.sentence().contains("drifted"), !decided);
            }
        }
    }
}

#[test]
fn fewer_than_six_pairs_or_a_zero_are_not_compared() {
    for count in 0..PAIRS_MIN {
        assert_eq!(compare(&vec![2.0; count], &vec![1.0; count]), None, "{count}");
    }
    assert_eq!(compare(&[1.0, 0.0, 1.0, 1.0, 1.0, 1.0], &[1.0; 6]), None);
}

/// Table of the sign test: for so many pairs, how many leave at each end (Conover, table A3).
#[test]
fn the_interval_is_that_of_the_sign_test() {
    for (pairs, out) in
        [(6, 0), (7, 0), (8, 0), (9, 1), (10, 1), (12, 2), (15, 3), (20, 5), (25, 7), (30, 9)]
    {
        assert_eq!(left_out(pairs), out, "{pairs}");
    }
}

/// A source of noise: splitmix64.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let bits = u32::try_from((mixed ^ (mixed >> 31)) >> 32).expect("32 bits");
        (f64::from(bits) + 0.5) / 4_294_967_296.0
    }

    fn normal(&mut self) -> f64 {
        let (radius, turn) = (-2.0 * self.uniform().ln(), std::f64::consts::TAU * self.uniform());
        radius.sqrt() * turn.cos()
    }
}

/// Figures of one thing, measured again and again.
fn measured(kind: &str, noise: &mut Noise, count: usize) -> Vec<f64> {
    let mut before = noise.normal();
    let mut at = 0.0;
    (0..count)
        .map(|_| {
            at += 1.0;
            let own = noise.normal();
            before = 0.9 * before + 0.4 * own;
            match kind {
                "normal" => 100.0 + 5.0 * own,
                // Now and then a stall: a long tail below.
                "skewed" => 100.0 * (-0.05 * own.abs().powi(3)).exp(),
                "autocorrelated" => 100.0 + 5.0 * before,
                _ => 100.0 + 0.1 * at + own,
            }
        })
        .collect()
}

/// A coin that falls the same way for the same seed.
struct Coin(u64);

impl BuildHasher for Coin {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

/// How often two identical sides, in the very turns that the lab takes, are called different.
fn called_different(kind: &str, pairs: usize, times: u32) -> f64 {
    let mut noise = Noise(u64::try_from(pairs).expect("few"));
    let mut wrong = 0;
    for _ in 0..times {
        let figures = measured(kind, &mut noise, 2 * pairs);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let coin = Coin(noise.uniform().to_bits());
        for (round, two) in (0..).zip(figures.chunks(2)) {
            let begins_with_b = usize::from(begins_with_second(&coin, round));
            a.push(two[begins_with_b]);
            b.push(two[1 - begins_with_b]);
        }
        let decision = compare(&a, &b).map(Comparison::decision);
        wrong += u32::from(matches!(decision, Some(Decision::Faster | Decision::Slower)));
    }
    f64::from(wrong) / f64::from(times)
}

/// `cargo test -p ashlar-lab identical_sides -- --nocapture` prints the table of
/// `docs/results/lab.md`.
#[test]
fn identical_sides_are_called_different_in_at_most_one_of_twenty_cases() {
    let kinds = ["normal", "skewed", "autocorrelated", "drifting"];
    let mut table = format!("| pairs | {} |\n", kinds.join(" | "));
    for pairs in [3, 4, 5, 6, 7, 10, 20, 30] {
        let _ = write!(table, "| {pairs} |");
        for kind in kinds {
            let share = called_different(kind, pairs, 4000);
            // Three standard deviations of 4000 draws above 5 %.
            assert!(share <= 0.0604, "{kind}, {pairs} pairs: {share}");
            assert!(pairs >= PAIRS_MIN || share == 0.0, "{kind}, {pairs} pairs: {share}");
            let _ = write!(table, " {:.1} % |", share * 100.0);
        }
        table.push('\n');
    }
    println!("{table}");
}
