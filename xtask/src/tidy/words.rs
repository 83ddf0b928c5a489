//! One word for one idea: names and headings that must not appear (docs/glossary.md says what to
//! use).
//!
//! Only identifiers, file names and Markdown headings are looked at; prose may explain a foreign
//! word, and the command line may accept one as an alias because that is a string.

use super::{Finding, Report};
use crate::lexer::{code_only, words};
use crate::tree::Tree;

/// Words of identifiers and headings, with what to say instead.
const BANNED_WORDS: [(&str, &str); 3] = [
    ("chunk", "strip, or part for a piece of a slice"),
    ("chunks", "strips, or parts for pieces of a slice"),
    ("recovery", "rebuild, resync or reconstruct, whichever it is"),
];

/// Words that once meant something else here, with what to say instead, and where they are not
/// used: elsewhere they are the field's own words (a SIMD lane, a drive bay).
const RETIRED_WORDS: [(&str, &str, &[&str]); 12] = [
    ("shard", "local array, or worker", &["crates/", "tests/", "fuzz/"]),
    ("roster", "engine state, or members", &["crates/", "tests/", "fuzz/"]),
    ("tenure", "device epoch", &["crates/", "tests/", "fuzz/"]),
    ("newcomer", "joining device", &["crates/engine/", "crates/ondisk/", "crates/salvage/"]),
    ("home", "coordinator, or place", &["crates/engine/", "crates/ondisk/", "crates/salvage/"]),
    ("keeper", "map writer", &["crates/engine/"]),
    ("lane", "log ring", &["crates/engine/", "crates/ondisk/", "crates/salvage/", "fuzz/"]),
    (
        "lean",
        "parity-only",
        &["crates/engine/", "crates/ondisk/", "crates/salvage/", "crates/model/"],
    ),
    ("ordeal", "abuse", &["crates/universe/"]),
    ("bay", "drive slot", &["crates/universe/"]),
    ("evil", "damage", &["crates/universe/"]),
    ("spoilt", "damaged", &["crates/universe/", "crates/sim/", "crates/engine/"]),
];

/// Runs of words in identifiers.
const BANNED_NAMES: [(&str, &str); 2] =
    [("stripe_size", "strip_bytes or stripe_data_bytes"), ("stripesize", "StripBytes")];

/// Names of the standard library that hold a banned word.
const STANDARD: [&str; 10] = [
    "chunks",
    "chunks_mut",
    "chunks_exact",
    "chunks_exact_mut",
    "rchunks",
    "rchunks_exact",
    "as_chunks",
    "as_chunks_mut",
    "chunk_by",
    "array_chunks",
];

/// Names that say nothing; no file, folder or module is called so.
const BANNED_FILES: [&str; 9] =
    ["utils", "util", "helpers", "helper", "manager", "handler", "misc", "common", "shared"];

pub fn check(tree: &Tree, report: &mut Report) {
    for file in &tree.files {
        file_name(&file.path, report);
    }
    for (path, text) in tree.rust() {
        identifiers(path, text, report);
    }
    for (path, text) in tree.with_extension("md") {
        headings(path, text, report);
    }
}

fn file_name(path: &str, report: &mut Report) {
    for part in path.split('/') {
        let stem = part.split('.').next().unwrap_or(part);
        if BANNED_FILES.contains(&stem) {
            let what = format!("'{stem}' names nothing; name the file after what is in it");
            report.findings.push(Finding::file(path, what));
        }
    }
}

fn identifiers(path: &str, text: &str, report: &mut Report) {
    let code = code_only(text);
    let mut before = "";
    for (line, word) in words(&code) {
        if let Some(instead) = banned(word).or_else(|| retired(path, word)) {
            report.findings.push(Finding::at(path, line, format!("'{word}': say {instead}")));
        }
        if before == "mod" && BANNED_FILES.contains(&word) {
            report.findings.push(Finding::at(path, line, format!("module '{word}' names nothing")));
        }
        before = word;
    }
}

fn headings(path: &str, text: &str, report: &mut Report) {
    let mut in_code = false;
    for (at, line) in text.lines().enumerate() {
        in_code ^= line.starts_with("```");
        if in_code || !line.starts_with('#') {
            continue;
        }
        for word in line.split(|c: char| !c.is_alphanumeric() && c != '_') {
            if let Some(instead) = banned(&word.to_lowercase()) {
                let what = format!("heading with '{word}': say {instead}");
                report.findings.push(Finding::at(path, at + 1, what));
            }
        }
    }
}

/// What to say instead of the identifier `name`, if it is not ours to use.
fn banned(name: &str) -> Option<&'static str> {
    if STANDARD.contains(&name) {
        return None;
    }
    let lower = snake(name);
    BANNED_NAMES
        .iter()
        .find(|(banned, _)| lower.contains(banned))
        .or_else(|| {
            BANNED_WORDS.iter().find(|(banned, _)| lower.split('_').any(|part| part == *banned))
        })
        .map(|(_, instead)| *instead)
}

/// What to say instead of the identifier `name` in the file at `path`, if one of its words is
/// retired there.
fn retired(path: &str, name: &str) -> Option<&'static str> {
    let lower = snake(name);
    let is_it = |retired: &str| {
        lower.split('_').any(|part| part.strip_suffix('s').unwrap_or(part) == retired)
    };
    let is_here = |folders: &[&str]| folders.iter().any(|folder| path.starts_with(folder));
    let found = RETIRED_WORDS.iter().find(|(word, _, folders)| is_it(word) && is_here(folders));
    found.map(|(_, instead, _)| *instead)
}

/// `ChunkNo` and `CHUNK_NO` as `chunk_no`.
fn snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    let mut was_lower = false;
    for c in name.chars() {
        if c.is_uppercase() && was_lower {
            snake.push('_');
        }
        was_lower = c.is_lowercase();
        snake.extend(c.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::found;

    fn finds(path: &str, text: &str) -> usize {
        found(check, &[(path, text)]).len()
    }

    #[test]
    fn retired_words_are_found_where_they_are_retired() {
        assert_eq!(finds("crates/engine/src/a.rs", "struct LogLane;"), 1);
        assert_eq!(finds("crates/engine/src/a.rs", "let lanes = 1;"), 1);
        assert_eq!(finds("crates/parity/src/a.rs", "let lanes = 1;"), 0);
        assert_eq!(finds("crates/engine/src/a.rs", "let is_clean = true;"), 0);
    }

    #[test]
    fn banned_words_in_identifiers_are_found_in_any_spelling() {
        for name in [
            "chunk",
            "chunk_bytes",
            "ChunkNo",
            "CHUNK_MAX",
            "stripe_size",
            "StripeSize",
            "Recovery",
        ] {
            assert_eq!(finds("a.rs", &format!("struct {name};")), 1, "{name}");
        }
    }

    #[test]
    fn the_standard_library_comments_and_strings_may_say_it() {
        assert_eq!(finds("a.rs", "for part in data.chunks_exact(4) {}"), 0);
        assert_eq!(finds("a.rs", "// a chunk\n#[arg(alias = \"chunk\")]"), 0);
    }

    #[test]
    fn banned_words_in_headings_are_found_and_prose_is_not() {
        assert_eq!(finds("a.md", "# The chunk\n"), 1);
        assert_eq!(finds("a.md", "md says chunk.\n```\n# chunk\n```\n"), 0);
    }

    #[test]
    fn files_and_modules_that_name_nothing_are_found() {
        assert_eq!(finds("crates/x/src/utils.rs", "//! x"), 1);
        assert_eq!(finds("crates/common/src/lib.rs", "//! x"), 1);
        assert_eq!(finds("a.rs", "mod helpers { }"), 1);
        assert_eq!(finds("crates/x/src/commonly.rs", "//! x"), 0);
    }
}
