//! The tables beside the figures as plain rows, for Markdown and for CSV: CPU accounts, resources,
//! traces, hosts.
//!
//! What must stay true: what the page shows in these tables is here, too; an empty cell stays
//! empty.

use super::{cards, pictures, production, tables};
use crate::record::Record;
use std::path::Path;

/// A table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// One word for the name of a file: `cpu`.
    pub word: &'static str,
    /// What it is called.
    pub title: &'static str,
    /// Names of its columns.
    pub head: Vec<&'static str>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
    /// Sentences under it.
    pub notes: Vec<String>,
}

/// Every table of a run that has rows.
pub fn all(records: &[Record]) -> Vec<Section> {
    let sections = [
        cards::one_drive(records),
        cards::bay(records),
        cpu(records),
        resources(records),
        traces(records),
        production::section(&super::points::of(records)),
    ];
    sections.into_iter().filter(|section| !section.rows.is_empty()).collect()
}

fn cpu(records: &[Record]) -> Section {
    let mut rows = Vec::new();
    // No pictures: a table of text has no place for them.
    let mut none = pictures::Budget::new(0);
    for account in tables::accounts(records, Path::new(""), &mut none) {
        for row in &account.rows {
            rows.push(std::iter::once(account.of.clone()).chain(row.iter().cloned()).collect());
        }
        let threads = format!("busiest threads: {}", account.threads);
        let mut last = vec![account.of.clone(), threads];
        last.resize(6, String::new());
        rows.push(last);
    }
    Section {
        word: "cpu",
        title: "Whose CPU time is it?",
        head: vec![
            "measurement",
            "functions of",
            "of all cores",
            "useful work",
            "overhead",
            "in whose context",
        ],
        rows,
        notes: Vec::new(),
    }
}

fn resources(records: &[Record]) -> Section {
    let rows = tables::resources(records)
        .into_iter()
        .map(|row| {
            let cells = row.cells().map(|cell| cell.unwrap_or_default().to_owned());
            std::iter::once(row.resource.clone()).chain(cells).collect()
        })
        .collect();
    Section {
        word: "use",
        title: "Utilisation, saturation, errors",
        head: vec!["resource", "utilisation", "saturation", "errors"],
        rows,
        notes: vec!["An empty cell is a resource that nobody looked at.".to_owned()],
    }
}

fn traces(records: &[Record]) -> Section {
    let (rows, notes) = tables::traces(records);
    Section {
        word: "trace",
        title: "What became of the I/Os?",
        head: vec![
            "trace",
            "device",
            "direction",
            "submitted",
            "issued to the driver",
            "splits",
            "issued off the strip",
            "issued off the stripe",
        ],
        rows,
        notes,
    }
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::record::{Record, ResourceTable};

    fn made_up() -> Vec<Record> {
        let text = include_str!("../../tests/data/two-engines/records.jsonl");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_run_without_resources_has_no_such_table_and_rows_are_as_wide_as_their_head() {
        let sections = all(&made_up());
        assert!(sections.iter().all(|section| !section.rows.is_empty()));
        for section in &sections {
            assert!(section.rows.iter().all(|row| row.len() == section.head.len()), "{section:?}");
        }
        let none = all(&[Record::Resources(ResourceTable::default())]);
        assert_eq!(none, []);
    }
}
