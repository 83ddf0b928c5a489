//! Every table of a report beside the figures as plain rows: the page, Markdown and CSV show the
//! same.
//!
//! What must stay true: an empty cell stays empty, so that it is missed.

use super::points::Point;
use super::{cards, duels, production, tables};
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
    let after = [
        tables::cpu(records),
        tables::resources(records),
        production::section(points),
        tables::checks(records),
    ];
    let all = before.into_iter().chain(duels::sections(points)).chain(after);
    all.filter(|section| !section.rows.is_empty()).collect()
}
