//! What the documents point at exists: every relative link leads to a file, and every link to a
//! Rust file with a `#name` leads to that function or type in it.
//!
//! docs/write-path.md is held to more: each of its links into code must name a function or type,
//! and the path must be told in at least ten of them.

use super::{Finding, Report};
use crate::lexer::{code_only, words};
use crate::tree::Tree;

const WRITE_PATH: &str = "docs/write-path.md";
const STATIONS: usize = 10;

pub fn check(tree: &Tree, report: &mut Report) {
    for (path, text) in tree.with_extension("md") {
        let mut code_links = 0;
        for (line, what) in missing_parts(tree, path, text) {
            report.findings.push(Finding::at(path, line, what));
        }
        for (line, target) in targets(text) {
            if let Err(what) = resolve(tree, path, target) {
                report.findings.push(Finding::at(path, line, what));
            }
            code_links += usize::from(target.contains(".rs#"));
        }
        if path == WRITE_PATH && code_links < STATIONS {
            let what = format!("{code_links} links to functions; the path has {STATIONS} stations");
            report.findings.push(Finding::file(path, what));
        }
    }
}

/// Parts of other pages that this one takes in, `{{#include PAGE:PART}}`, and that are not there.
fn missing_parts(tree: &Tree, path: &str, text: &str) -> Vec<(usize, String)> {
    let mut missing = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let Some(wanted) = line.strip_prefix("{{#include ") else { continue };
        let (page, part) = wanted.trim_end_matches("}}").split_once(':').unwrap_or((wanted, ""));
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let from = tree.with_extension("md").find(|(own, _)| *own == format!("{folder}/{page}"));
        let marks = [format!("ANCHOR: {part} "), format!("ANCHOR_END: {part} ")];
        if from.is_none_or(|(_, from)| marks.iter().any(|mark| !from.contains(mark.as_str()))) {
            missing.push((at + 1, format!("{page} has no part {part}")));
        }
    }
    missing
}

/// The targets of inline links, with their lines; links to elsewhere and within the page left out.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (at, line) in text.lines().enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        let parts = line.split("](").skip(1).filter(|_| !in_code);
        let inside = parts.filter_map(|part| part.split(')').next());
        found.extend(
            inside
                .filter(|target| !target.contains("://") && !target.starts_with(['#', '<']))
                .map(|target| (at + 1, target)),
        );
    }
    found
}

fn resolve(tree: &Tree, from: &str, target: &str) -> Result<(), String> {
    let (file, name) = target.split_once('#').unwrap_or((target, ""));
    let path = join(from, file).ok_or_else(|| format!("link to {target} leaves the repository"))?;
    if !tree.holds(&path) {
        return Err(format!("link to {target}: there is no {path}"));
    }
    if !path.ends_with(".rs") {
        return Ok(());
    }
    if name.is_empty() {
        let bare = from == WRITE_PATH;
        return if bare { Err(format!("link to {target} names no function")) } else { Ok(()) };
    }
    let text = tree.text(&path).unwrap_or("");
    if defines(text, name) {
        Ok(())
    } else {
        Err(format!("link to {target}: {path} defines no {name}"))
    }
}

/// `target` seen from the file `from`, as a path from the root.
fn join(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn defines(text: &str, name: &str) -> bool {
    let code = code_only(text);
    let mut before = "";
    words(&code).any(|(_, word)| {
        let is_here = word == name && matches!(before, "fn" | "struct" | "enum" | "trait");
        before = word;
        is_here
    })
}

#[cfg(test)]
mod tests {
    use super::{STATIONS, WRITE_PATH, check};
    use crate::tidy::found;

    const CODE: (&str, &str) = ("crates/x/src/a.rs", "pub async fn write() {}\nstruct Request;\n");

    #[test]
    fn a_link_to_nothing_is_found() {
        let page =
            ("docs/a.md", "[here](b.md) [code](../crates/x/src/a.rs) [web](https://example.org/)");
        assert_eq!(
            found(check, &[page, CODE]),
            ["docs/a.md:1: link to b.md: there is no docs/b.md"]
        );
    }

    #[test]
    fn a_link_to_a_function_that_is_gone_is_found() {
        let page =
            ("docs/a.md", "[w](../crates/x/src/a.rs#write)\n[r](../crates/x/src/a.rs#read)\n");
        let found = found(check, &[page, CODE]);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("docs/a.md:2:") && found[0].ends_with("defines no read"),
            "{found:?}"
        );
    }

    #[test]
    fn the_write_path_needs_ten_links_with_names() {
        let named = "[w](../crates/x/src/a.rs#write)\n".repeat(STATIONS);
        assert!(found(check, &[(WRITE_PATH, &named), CODE]).is_empty());
        let short = found(check, &[(WRITE_PATH, &named[1..named.len() / 2]), CODE]);
        assert!(short[0].contains("the path has 10 stations"), "{short:?}");
        let bare = format!("{named}[w](../crates/x/src/a.rs)\n");
        assert!(found(check, &[(WRITE_PATH, &bare), CODE])[0].contains("names no function"));
    }

    #[test]
    fn a_link_out_of_the_repository_is_found() {
        assert_eq!(found(check, &[("README.md", "[x](../other/a.md)")]).len(), 1);
    }
}
