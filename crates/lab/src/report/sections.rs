//! Every table of a report beside the figures as plain rows: the page, Markdown and CSV show the
//! same.
//!
//! What must stay true: an empty cell stays empty, so that it is missed; an INVALID side is named,
//! never compared; every profile that ships says in its own file why it is not production, and of
//! an own profile the report says that its author must.

use super::findings::{duels, rivals};
use super::points::Point;
use super::{cards, tables};
use crate::metrics::pairs;
use crate::plan::profile;
use crate::record::Record;
use std::collections::BTreeMap;
use std::sync::LazyLock;

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
    let after = [
        tables::cpu(records),
        tables::resources(records),
        production(points),
        tables::checks(records),
    ];
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

static OWN_LOADS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    toml::from_str(include_str!("../../templates/production.toml")).unwrap_or_default()
});

/// Why the load called `name` differs from production.
fn why(name: &str) -> Option<&str> {
    let own = || OWN_LOADS.iter().find(|(begin, _)| name.starts_with(*begin));
    profile::production(name).or_else(|| own().map(|(_, why)| why.as_str()))
}

/// Each profile of the run once.
fn production(points: &[Point]) -> Section {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for name in points.iter().map(|point| point.workload.name.as_str()) {
        // `-j4-q32` and what follows belong to the point and not to the profile.
        let load = name.split("-j").next().unwrap_or(name).to_owned();
        let unsaid = "its author must say: an own profile without a line '; production: ...'";
        let row = vec![load, why(name).unwrap_or(unsaid).to_owned()];
        let is_told =
            |known: &Vec<String>| known[1] == row[1] && (known[0] == row[0] || why(name).is_some());
        if !rows.iter().any(is_told) {
            rows.push(row);
        }
    }
    let head = "load|what production does otherwise";
    Section::new("production", "Why is none of this production?", head)
        .rows(rows)
        .note("A benchmark holds everything still but one thing. That is its use and its limit.")
}

#[cfg(test)]
mod tests {
    use super::why;

    #[test]
    fn every_load_that_ships_says_why_it_is_not_production() {
        for name in crate::plan::profile::shipped() {
            let load = format!("{name}-j4-q32");
            assert!(why(&load).is_some_and(|why| why.len() > 40), "{name}");
        }
        for own in ["fill-first", "zone-50", "cache-on-flush-write-4k-j1-q1", "sw-256k-j2-q8"] {
            assert!(why(own).is_some(), "{own}");
        }
        assert_eq!(why("database-j1-q32"), None);
        assert_ne!(why("rr-4k-j1-q1"), why("rw-4k-j1-q1"));
    }
}
