//! The house style as rules. Each rule is a function from the tree to findings.
//!
//! - shape: every Rust file says what it is, and is short enough to read
//! - safety: unsafe code only where it is allowed, and never more of it; exceptions to lints
//!   likewise
//! - words: one word for one idea, in names and headings
//! - types: in one crate no two visible types have one name
//! - links: what the documents point at exists
//! - width: lines are short, of pages and of Rust
//! - leftovers: no ignored tests, no blanks to fill in, no blobs, no paths of one machine

mod leftovers;
mod links;
mod ratchet;
mod safety;
mod shape;
mod types;
mod width;
mod words;

use crate::tree::Tree;
use std::fmt;

/// One violation.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    path: String,
    /// From 1; 0 when the finding is about the whole file.
    line: usize,
    what: String,
}

impl Finding {
    fn at(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into() }
    }

    fn file(path: &str, what: impl Into<String>) -> Finding {
        Finding::at(path, 0, what)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// What all rules said.
#[derive(Default)]
pub struct Report {
    /// Violations: the check fails.
    pub findings: Vec<Finding>,
    /// Worth knowing: the check passes.
    pub notes: Vec<String>,
}

/// Apply every rule.
pub fn check(tree: &Tree) -> Report {
    let mut report = Report::default();
    shape::check(tree, &mut report);
    safety::check(tree, &mut report);
    types::check(tree, &mut report);
    words::check(tree, &mut report);
    links::check(tree, &mut report);
    width::check(tree, &mut report);
    leftovers::check(tree, &mut report);
    report
}

/// Files of recorded counts and lists that can be lowered, with their new text.
pub fn lowered_ratchets(tree: &Tree) -> Vec<(String, String)> {
    let counts = [safety::UNSAFE, safety::EXCEPTIONS];
    counts.iter().filter_map(|ratchet| ratchet.lowered(tree)).collect()
}

/// The lines of what `rule` finds in a planted tree, for tests of rules.
#[cfg(test)]
fn found(rule: fn(&Tree, &mut Report), files: &[(&str, &str)]) -> Vec<String> {
    let mut report = Report::default();
    rule(&Tree::planted(files), &mut report);
    report.findings.iter().map(ToString::to_string).collect()
}
