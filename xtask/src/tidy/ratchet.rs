//! A count for each package that may fall and not rise.
//!
//! The counts that were reached are in a file, one line a package. A count above its line fails. A
//! count below it gets a note, and `cargo xtask tidy --ratchet` writes it down. A package without a
//! line has the count 0.

use super::{Finding, Report};
use crate::tree::Tree;
use std::collections::BTreeMap;

/// What is counted, and where the counts are recorded.
pub struct Ratchet {
    /// The file of the recorded counts.
    pub path: &'static str,
    /// What is counted, for people.
    pub what: &'static str,
    /// The comment that the file opens with.
    pub head: &'static str,
    /// What to do about a count that rose.
    pub advice: &'static str,
    /// Counts in the text of one Rust file.
    pub count: fn(&str) -> usize,
}

impl Ratchet {
    /// A finding for each package above its recorded count, and a note with all counts.
    pub fn hold(&self, tree: &Tree, report: &mut Report) {
        let recorded = self.recorded(tree);
        let mut line = Vec::new();
        for (package, now) in &self.counts(tree) {
            let limit = recorded.get(package).copied().unwrap_or(0);
            if *now > limit {
                let what =
                    format!("{package} has {now} {}, {limit} allowed; {}", self.what, self.advice);
                report.findings.push(Finding::file(self.path, what));
            }
            let falls = if *now < limit {
                format!(" (was {limit}: run tidy --ratchet)")
            } else {
                String::new()
            };
            if limit > 0 || *now > 0 {
                let name = package.rsplit('/').next().unwrap_or(package);
                line.push(format!("{name} {now}{falls}"));
            }
        }
        let line = if line.is_empty() { "none".to_owned() } else { line.join(", ") };
        report.notes.push(format!("{}: {line}", self.what));
    }

    /// The file with counts that fell, if any did.
    pub fn lowered(&self, tree: &Tree) -> Option<(String, String)> {
        let counted = self.counts(tree);
        let mut text = self.head.to_owned();
        for (package, limit) in self.recorded(tree) {
            let now = counted.get(&package).copied().unwrap_or(0).min(limit);
            if now > 0 {
                text.push_str(&format!("\"{package}\" = {now}\n"));
            }
        }
        (tree.text(self.path) != Some(&text)).then(|| (self.path.to_owned(), text))
    }

    fn counts(&self, tree: &Tree) -> BTreeMap<String, usize> {
        let packages = tree.packages();
        let mut counts = BTreeMap::new();
        for (path, text) in tree.rust() {
            let package = Tree::package_of(&packages, path).unwrap_or("outside any package");
            *counts.entry(package.to_owned()).or_insert(0) += (self.count)(text);
        }
        counts
    }

    fn recorded(&self, tree: &Tree) -> BTreeMap<String, usize> {
        let table: toml::Table =
            tree.text(self.path).and_then(|text| text.parse().ok()).unwrap_or_default();
        let limit = |value: &toml::Value| usize::try_from(value.as_integer()?).ok();
        table.iter().filter_map(|(name, value)| Some((name.clone(), limit(value)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Ratchet;
    use crate::tidy::Report;
    use crate::tree::Tree;

    const STARS: Ratchet = Ratchet {
        path: "stars.toml",
        what: "stars",
        head: "# Stars\n",
        advice: "remove one",
        count: |text| text.matches('*').count(),
    };
    const MANIFEST: (&str, &str) = ("crates/ring/Cargo.toml", "[package]");
    const TWO: (&str, &str) = ("crates/ring/src/a.rs", "**");

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let mut report = Report::default();
        STARS.hold(&Tree::planted(files), &mut report);
        report.findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_count_that_rises_is_found_and_one_that_stays_is_not() {
        assert!(found(&[MANIFEST, TWO, ("stars.toml", "\"crates/ring\" = 2\n")]).is_empty());
        let risen = found(&[MANIFEST, TWO, ("stars.toml", "\"crates/ring\" = 1\n")]);
        assert!(risen[0].contains("crates/ring has 2 stars, 1 allowed"), "{risen:?}");
    }

    #[test]
    fn a_package_without_a_line_may_have_none() {
        assert!(found(&[MANIFEST, TWO])[0].contains("2 stars, 0 allowed"));
    }

    #[test]
    fn the_ratchet_lowers_and_never_raises() {
        let lowered =
            |limit: &str| STARS.lowered(&Tree::planted(&[MANIFEST, TWO, ("stars.toml", limit)]));
        let (_, text) = lowered("\"crates/ring\" = 5\n").expect("a lower count");
        assert_eq!(text, "# Stars\n\"crates/ring\" = 2\n");
        let (_, text) = lowered("\"crates/ring\" = 1\n").expect("the head was missing");
        assert_eq!(text, "# Stars\n\"crates/ring\" = 1\n");
        assert_eq!(lowered("# Stars\n\"crates/ring\" = 1\n"), None);
    }
}
