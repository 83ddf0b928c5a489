//! Lines that fit beside each other on a screen: 120 characters in Markdown, 100 in Rust.
//!
//! A line of Markdown without a blank before the limit is no finding: a URL cannot be broken.
//!
//! Every line of Rust has to fit. A long literal continues after a `\` at the end of its line, or
//! `concat!` joins its parts. A long captured output lies in a file beside its test.

use super::{Finding, Report};
use crate::tree::Tree;

const MARKDOWN_MAX: usize = 120;
const RUST_MAX: usize = 100;

pub fn check(tree: &Tree, report: &mut Report) {
    for (path, text) in tree.rust() {
        for (at, _) in text.lines().enumerate().filter(|(_, line)| length(line) > RUST_MAX) {
            let what = format!("more than {RUST_MAX} characters; break the line or its literal");
            report.findings.push(Finding::at(path, at + 1, what));
        }
    }
    for (path, text) in tree.with_extension("md") {
        for line in wide_lines(text) {
            let what = format!("more than {MARKDOWN_MAX} characters; break the line");
            report.findings.push(Finding::at(path, line, what));
        }
    }
}

/// Characters, not bytes.
fn length(line: &str) -> usize {
    line.chars().count()
}

/// Numbers, from 1, of the lines that are too long and could be broken.
fn wide_lines(text: &str) -> impl Iterator<Item = usize> {
    let is_wide = |line: &str| {
        let fits: String = line.chars().take(MARKDOWN_MAX).collect();
        fits.len() < line.len() && fits.trim_start().contains(' ')
    };
    text.lines().enumerate().filter(move |(_, line)| is_wide(line)).map(|(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::found;

    fn line(words: usize) -> String {
        "word ".repeat(words)
    }

    #[test]
    fn a_long_line_of_a_page_is_found() {
        let long = format!("# Title\n{}\n", line(25));
        assert_eq!(
            found(check, &[("docs/a.md", &long)]),
            ["docs/a.md:2: more than 120 characters; break the line"]
        );
        assert!(found(check, &[("docs/a.md", &line(24))]).is_empty());
    }

    #[test]
    fn a_line_that_cannot_be_broken_may_be_long() {
        assert!(found(check, &[("docs/a.md", &"0f".repeat(64))]).is_empty());
    }

    #[test]
    fn a_long_line_of_rust_is_found_wherever_it_is() {
        let comment = format!("//! Good.\n// {}\n", "x".repeat(98));
        let literal = format!("const A: &str = \"{}\";\n", "x".repeat(100));
        assert_eq!(
            found(check, &[("crates/ring/src/a.rs", &comment), ("tests/b.rs", &literal)]),
            [
                "crates/ring/src/a.rs:2: more than 100 characters; break the line or its literal",
                "tests/b.rs:1: more than 100 characters; break the line or its literal",
            ]
        );
    }

    #[test]
    fn a_hundred_characters_fit_however_many_bytes_they_are() {
        assert!(found(check, &[("a.rs", &"x".repeat(100))]).is_empty());
        assert!(found(check, &[("a.rs", &"\u{b1}".repeat(100))]).is_empty());
        assert_eq!(found(check, &[("a.rs", &"\u{b1}".repeat(101))]).len(), 1);
    }
}
