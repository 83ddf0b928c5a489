//! Unsafe code and exceptions to lints: only where they are allowed, and never more than before.
//!
//! The counts that were reached are in xtask/unsafe-count.toml and xtask/exception-count.toml.

use super::ratchet::Ratchet;
use super::{Finding, Report};
use crate::lexer::{code_only, words};
use crate::tree::Tree;

/// Packages that may hold unsafe code; all others forbid it in their root module.
const UNSAFE_ALLOWED: [&str; 4] =
    ["crates/parity", "crates/iobuf", "crates/ring", "crates/export/ublk"];

/// Uses of `unsafe`, package by package.
pub const UNSAFE: Ratchet = Ratchet {
    path: "xtask/unsafe-count.toml",
    what: "uses of unsafe",
    head: "# Uses of `unsafe` in each package. May fall, not rise: cargo xtask tidy --ratchet\n",
    advice: "remove one",
    count: count_unsafe,
};

/// Exceptions to lints, package by package.
pub const EXCEPTIONS: Ratchet = Ratchet {
    path: "xtask/exception-count.toml",
    what: "exceptions to lints",
    head: "# Lint exceptions (expect and allow attributes) in each package. May fall, not rise:\n\
           # cargo xtask tidy --ratchet\n",
    advice: "remove one",
    count: count_exceptions,
};

pub fn check(tree: &Tree, report: &mut Report) {
    forbidden_elsewhere(tree, report);
    UNSAFE.hold(tree, report);
    EXCEPTIONS.hold(tree, report);
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
                let what = "lacks #![forbid(unsafe_code)]; only parity, iobuf, \
                            ring and ublk may go without";
                report.findings.push(Finding::file(&path, what));
            }
        }
    }
}

fn count_unsafe(text: &str) -> usize {
    words(&code_only(text)).filter(|(_, word)| *word == "unsafe").count()
}

fn count_exceptions(text: &str) -> usize {
    let code = code_only(text);
    ["#[expect(", "#![expect(", "#[allow(", "#![allow("]
        .iter()
        .map(|attribute| code.matches(attribute).count())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::found;

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
}
