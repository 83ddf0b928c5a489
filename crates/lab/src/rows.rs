//! Answers in rows: what a row is about, then what is said of it.

use crate::validity::Finding;
use std::fmt::Display;

#[derive(Debug, Default)]
pub struct Rows(String);

impl Rows {
    /// A row more; the next column stands below that of the row before.
    pub fn row(&mut self, about: &str, said: impl Display) {
        self.0.push_str(&format!("{about:<14} {said}\n"));
    }

    pub fn gap(&mut self) {
        self.0.push('\n');
    }

    /// All of it, with what rules say of it at the end.
    pub fn with_notes(mut self, findings: &[Finding]) -> String {
        for finding in findings {
            let next = finding.correction.as_deref().unwrap_or("nothing to do");
            self.row("note", format_args!("{}: {}; {next}", finding.rule, finding.reason));
        }
        self.0
    }
}
