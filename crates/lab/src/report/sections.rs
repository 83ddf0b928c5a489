//! Every table of a report beside the figures as plain rows: the page, Markdown and CSV show the
//! same.
//!
//! What must stay true: an empty cell stays empty, so that it is missed; an INVALID side is named,
//! never compared.

use super::findings::{duels, rivals};
use super::points::Point;
use super::{cards, tables};
use crate::metrics::pairs;
use crate::record::Record;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    pub word: &'static str,
    pub title: String,
    pub head: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    pub notes: Vec<String>,
}

impl Section {
    /// With these columns, named with `|` between them.
    pub fn new(word: &'static str, title: &str, head: &'static str) -> Section {
        let (title, head) = (title.to_owned(), head.split('|').collect());
        Section { word, title, head, rows: Vec::new(), notes: Vec::new() }
    }

    pub fn rows(self, rows: impl IntoIterator<Item = Vec<String>>) -> Section {
        Section { rows: rows.into_iter().collect(), ..self }
    }

    /// With a sentence under it.
    pub fn note(mut self, note: &str) -> Section {
        self.notes.push(note.to_owned());
        self
    }
}

/// Every table of a run that has rows, in the order of a report.
pub fn all(records: &[Record], points: &[Point]) -> Vec<Section> {
    let before = [cards::one_drive(records), cards::bay(records)];
    let after = [tables::cpu(records), tables::resources(records), tables::checks(records)];
    let all = before.into_iter().chain(duels_of(points)).chain(after);
    all.filter(|section| !section.rows.is_empty()).collect()
}

fn duels_of(points: &[Point]) -> Vec<Section> {
    let names = rivals(points);
    let others = names.iter().skip(1);
    others.map(|other| duel(points, &names, other)).collect()
}

fn duel(points: &[Point], names: &[&str], other: &str) -> Section {
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
