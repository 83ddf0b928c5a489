//! Lines that fit beside each other on a screen: 120 characters in Markdown, 100 in Rust.
//!
//! A line of Markdown without a blank before the limit is no finding: a URL or a row of digits
//! cannot be broken. Pages that are not yet clean are listed in xtask/wide-pages.toml. A page that
//! became clean gets a note, and `cargo xtask tidy --ratchet` takes it from the list; nothing adds
//! one.
//!
//! Every line of Rust has to fit. A long literal continues after a `\` at the end of its line, or
//! `concat!` joins its parts. A long captured output lies in a file beside its test.

use super::{Finding, Report};
use crate::tree::Tree;

const MARKDOWN_MAX: usize = 120;
const RUST_MAX: usize = 100;

const WIDE_PAGES: &str = "xtask/wide-pages.toml";
const WIDE_PAGES_HEAD: &str = "# Pages with lines of more than 120 characters. \
                               The list may shrink, not grow:\n\
                               # cargo xtask tidy --ratchet\n";

pub fn check(tree: &Tree, report: &mut Report) {
    for (path, text) in tree.rust() {
        for (at, _) in text.lines().enumerate().filter(|(_, line)| length(line) > RUST_MAX) {
            let what = format!("more than {RUST_MAX} characters; break the line or its literal");
            report.findings.push(Finding::at(path, at + 1, what));
        }
    }
    let listed = listed(tree);
    for (path, text) in tree.with_extension("md") {
        let is_listed = listed.iter().any(|page| page == path);
        let wide: Vec<usize> = wide_lines(text).collect();
        if is_listed && wide.is_empty() {
            report.notes.push(format!("{path} has no long line any more: run tidy --ratchet"));
        }
        for line in wide.into_iter().filter(|_| !is_listed) {
            let what = format!("more than {MARKDOWN_MAX} characters; break the line");
            report.findings.push(Finding::at(path, line, what));
        }
    }
}

/// The list of wide pages without those that became clean or are gone, if it is shorter now.
pub fn lowered(tree: &Tree) -> Option<(String, String)> {
    let is_wide =
        |page: &String| tree.text(page).is_some_and(|text| wide_lines(text).next().is_some());
    let pages: String = listed(tree)
        .iter()
        .filter(|page| is_wide(page))
        .map(|page| format!("    \"{page}\",\n"))
        .collect();
    let text = format!("{WIDE_PAGES_HEAD}pages = [\n{pages}]\n");
    (tree.text(WIDE_PAGES) != Some(&text)).then(|| (WIDE_PAGES.to_owned(), text))
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

fn listed(tree: &Tree) -> Vec<String> {
    let table: toml::Table =
        tree.text(WIDE_PAGES).and_then(|text| text.parse().ok()).unwrap_or_default();
    let pages = table.get("pages").and_then(toml::Value::as_array).into_iter().flatten();
    pages.filter_map(|page| page.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::{check, lowered};
    use crate::tidy::found;
    use crate::tree::Tree;

    fn line(words: usize) -> String {
        "word ".repeat(words)
    }

    #[test]
    fn a_long_line_of_a_page_is_found_unless_the_page_is_listed() {
        let long = format!("# Title\n{}\n", line(25));
        assert_eq!(
            found(check, &[("docs/a.md", &long)]),
            ["docs/a.md:2: more than 120 characters; break the line"]
        );
        let list = ("xtask/wide-pages.toml", "pages = [\"docs/a.md\"]");
        assert!(found(check, &[("docs/a.md", &long), list]).is_empty());
        assert!(found(check, &[("docs/a.md", &line(24))]).is_empty());
    }

    #[test]
    fn a_line_that_cannot_be_broken_may_be_long() {
        assert!(found(check, &[("docs/a.md", &"0f".repeat(64))]).is_empty());
    }

    #[test]
    fn the_list_loses_pages_that_became_clean_and_gains_none() {
        let long = line(25);
        let list = ("xtask/wide-pages.toml", "pages = [\"a.md\", \"b.md\", \"gone.md\"]");
        let tree = Tree::planted(&[("a.md", &long), ("b.md", "short"), ("c.md", &long), list]);
        let (_, text) = lowered(&tree).expect("a shorter list");
        assert!(text.ends_with("pages = [\n    \"a.md\",\n]\n"), "{text}");
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
