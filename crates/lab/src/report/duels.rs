//! The first engine against each other one that took turns with it, case by case.
//!
//! What must stay true: an INVALID side is named, never compared.

use super::findings::{duels, rivals};
use super::points::Point;
use super::sections::Section;
use crate::metrics::pairs;

pub fn sections(points: &[Point]) -> Vec<Section> {
    let names = rivals(points);
    let others = names.iter().skip(1);
    others.map(|other| section(points, &names, other)).collect()
}

fn section(points: &[Point], names: &[&str], other: &str) -> Section {
    let ratio = |value: Option<f64>| {
        value.map_or_else(|| "not known".to_owned(), |value| format!("{value:.2}"))
    };
    let rows = duels(points, other).into_iter().map(|duel| {
        let rate = match (duel.is_usable, duel.rate) {
            (false, _) => duel.not_compared(names),
            (true, None) => pairs::TOO_FEW.to_owned(),
            (true, Some(rate)) => rate.sentence(),
        };
        vec![duel.one.case(), rate, ratio(duel.relative_cpu), ratio(duel.relative_latency)]
    });
    let head = "workload|rate|relative CPU efficiency|relative latency efficiency (p99.9)";
    Section::new("compare", &format!("A: {} \u{2014} B: {other}", names[0]), head).rows(rows).note(
        "Rounds were taken in turns; the interval is of the median ratio of pairs. Above 1 is \
         better for A in every column.",
    )
}
