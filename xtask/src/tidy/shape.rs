//! Every Rust file opens by saying what it is, and is short enough to be read.

use super::{Finding, Report};
use crate::tree::Tree;

/// Lines at which a file gets a note.
const LINES_NOTED: usize = 400;
/// Lines above which a file fails.
const LINES_MAX: usize = 800;

pub fn check(tree: &Tree, report: &mut Report) {
    for (path, text) in tree.rust().filter(|(path, _)| !path.contains("/testdata/")) {
        if !text.trim_start_matches("#!/").starts_with("//!") {
            let what = "opens without //!; say what this is, what must stay true, what is not here";
            report.findings.push(Finding::at(path, 1, what));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            let what = format!("{lines} lines; stop at {LINES_MAX}, split it by idea");
            report.findings.push(Finding::file(path, what));
        } else if lines > LINES_NOTED {
            report.notes.push(format!("{path}: {lines} lines; worry at {LINES_NOTED}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LINES_MAX, check};
    use crate::tidy::found;

    #[test]
    fn a_file_without_a_header_is_found() {
        let files = [("a.rs", "//! Good.\n"), ("b.rs", "fn main() {}\n")];
        let found = found(check, &files);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("b.rs:1: opens without //!"), "{found:?}");
    }

    #[test]
    fn a_file_that_is_too_long_is_found() {
        let long = format!("//! Long.\n{}", "\n".repeat(LINES_MAX));
        let found = found(check, &[("a.rs", &long), ("b.rs", &long[1..])]);
        assert!(found.iter().any(|line| line.starts_with("a.rs: 801 lines")), "{found:?}");
    }

    #[test]
    fn test_data_needs_no_header() {
        assert!(found(check, &[("crates/x/tests/testdata/case.rs", "fn broken(")]).is_empty());
    }
}
