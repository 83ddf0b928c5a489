//! Unsafe code and exceptions to lints: only where they are allowed, and never more than before.
//!
//! The counts that were reached are in xtask/unsafe-count.toml and xtask/exception-count.toml, one
//! line a package. A count above its line fails; one below gets a note, and `cargo xtask tidy
//! --ratchet` writes it down. A package without a line has the count 0.

use super::{Finding, Report};
use crate::lexer::{code_only, words};
use crate::tree::Tree;
use std::collections::BTreeMap;

/// Packages that may hold unsafe code; all others forbid it in their root module.
const UNSAFE_ALLOWED: [&str; 4] =
    ["crates/parity", "crates/iobuf", "crates/ring", "crates/export/ublk"];

struct Ratchet {
    path: &'static str,
    what: &'static str,
    head: &'static str,
    count: fn(&str) -> usize,
}

const RATCHETS: [Ratchet; 2] = [
    Ratchet {
        path: "xtask/unsafe-count.toml",
        what: "uses of unsafe",
        head: "# Uses of `unsafe` in each package. May fall, not rise: cargo xtask tidy --ratchet\n",
        count: count_unsafe,
    },
    Ratchet {
        path: "xtask/exception-count.toml",
        what: "exceptions to lints",
        head: "# Lint exceptions (expect and allow attributes) in each package. May fall, not rise:\n\
               # cargo xtask tidy --ratchet\n",
        count: count_exceptions,
    },
];

pub fn check(tree: &Tree, report: &mut Report) {
    forbidden_elsewhere(tree, report);
    for ratchet in &RATCHETS {
        hold(tree, ratchet, report);
    }
}

/// Ratchet files whose recorded counts can be lowered, with their new text.
pub fn lowered_ratchets(tree: &Tree) -> Vec<(String, String)> {
    let lowered = RATCHETS.iter().map(|ratchet| {
        let counted = counts(tree, ratchet.count);
        let mut text = ratchet.head.to_owned();
        for (package, limit) in recorded(tree, ratchet) {
            let now = counted.get(&package).copied().unwrap_or(0).min(limit);
            if now > 0 {
                text.push_str(&format!("\"{package}\" = {now}\n"));
            }
        }
        (ratchet.path.to_owned(), text)
    });
    lowered.filter(|(path, text)| tree.text(path) != Some(text)).collect()
}

fn forbidden_elsewhere(tree: &Tree, report: &mut Report) {
    for package in tree.packages() {
        if UNSAFE_ALLOWED.contains(&package) {
            continue;
        }
        for root in ["src/lib.rs", "src/main.rs"] {
            let path = format!("{package}/{root}");
            let Some(text) = tree.text(&path) else { continue };
            if !code_only(text).contains("#![forbid(unsafe_code)]") {
                let what = "lacks #![forbid(unsafe_code)]; only parity, iobuf, ring and ublk may go without";
                report.findings.push(Finding::file(&path, what));
            }
        }
    }
}

fn hold(tree: &Tree, ratchet: &Ratchet, report: &mut Report) {
    let counted = counts(tree, ratchet.count);
    let recorded = recorded(tree, ratchet);
    let mut line = Vec::new();
    for (package, now) in &counted {
        let limit = recorded.get(package).copied().unwrap_or(0);
        if *now > limit {
            let what = format!("{package} has {now} {}, {limit} allowed; remove one", ratchet.what);
            report.findings.push(Finding::file(ratchet.path, what));
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
    report.notes.push(format!("{}: {line}", ratchet.what));
}

fn counts(tree: &Tree, count: fn(&str) -> usize) -> BTreeMap<String, usize> {
    let packages = tree.packages();
    let mut counts = BTreeMap::new();
    for (path, text) in tree.rust() {
        let package = Tree::package_of(&packages, path).unwrap_or("outside any package");
        *counts.entry(package.to_owned()).or_insert(0) += count(&code_only(text));
    }
    counts
}

fn recorded(tree: &Tree, ratchet: &Ratchet) -> BTreeMap<String, usize> {
    let table: toml::Table =
        tree.text(ratchet.path).and_then(|text| text.parse().ok()).unwrap_or_default();
    let limit = |value: &toml::Value| usize::try_from(value.as_integer()?).ok();
    table.iter().filter_map(|(name, value)| Some((name.clone(), limit(value)?))).collect()
}

fn count_unsafe(code: &str) -> usize {
    words(code).filter(|(_, word)| *word == "unsafe").count()
}

fn count_exceptions(code: &str) -> usize {
    ["#[expect(", "#![expect(", "#[allow(", "#![allow("]
        .iter()
        .map(|attribute| code.matches(attribute).count())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::{check, lowered_ratchets};
    use crate::tidy::found;
    use crate::tree::Tree;

    const MANIFEST: (&str, &str) = ("crates/ring/Cargo.toml", "[package]");
    const TWO_UNSAFE: (&str, &str) =
        ("crates/ring/src/a.rs", "unsafe fn f() { // unsafe\n unsafe { g() } }");

    #[test]
    fn a_package_that_does_not_forbid_unsafe_is_found() {
        let good = ("crates/gf/src/lib.rs", "//! x\n#![forbid(unsafe_code)]\n");
        let commented = ("crates/gf/src/lib.rs", "//! x\n// #![forbid(unsafe_code)]\n");
        let manifest = ("crates/gf/Cargo.toml", "[package]");
        assert!(found(check, &[manifest, good]).is_empty());
        assert_eq!(found(check, &[manifest, commented]).len(), 1);
        assert!(found(check, &[MANIFEST, ("crates/ring/src/lib.rs", "//! x")]).is_empty());
    }

    #[test]
    fn a_count_that_rises_is_found_and_one_that_stays_is_not() {
        let limit = ("xtask/unsafe-count.toml", "\"crates/ring\" = 2\n");
        let lower = ("xtask/unsafe-count.toml", "\"crates/ring\" = 1\n");
        assert!(found(check, &[MANIFEST, TWO_UNSAFE, limit]).is_empty());
        let found = found(check, &[MANIFEST, TWO_UNSAFE, lower]);
        assert!(found[0].contains("crates/ring has 2 uses of unsafe, 1 allowed"), "{found:?}");
    }

    #[test]
    fn a_package_without_a_line_may_have_none() {
        let exception = ("crates/ring/src/a.rs", "#[expect(dead_code, reason = \"x\")] fn f() {}");
        let found = found(check, &[MANIFEST, exception]);
        assert!(found[0].contains("1 exceptions to lints, 0 allowed"), "{found:?}");
    }

    #[test]
    fn the_ratchet_lowers_and_never_raises() {
        let lowered = |limit: &str| {
            let file = ("xtask/unsafe-count.toml", limit);
            lowered_ratchets(&Tree::planted(&[MANIFEST, TWO_UNSAFE, file]))
                .into_iter()
                .find(|(path, _)| path == "xtask/unsafe-count.toml")
                .map(|(_, text)| text)
                .unwrap_or_default()
        };
        assert!(lowered("\"crates/ring\" = 5\n").ends_with("\"crates/ring\" = 2\n"));
        assert!(lowered("\"crates/ring\" = 1\n").ends_with("\"crates/ring\" = 1\n"));
    }
}
