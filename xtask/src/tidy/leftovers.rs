//! What must not be left behind: ignored tests, blanks to fill in, sleeping tests, re-exports
//! across crates, blobs, paths of one machine, characters that only look like ASCII.

use super::{Finding, Report};
use crate::lexer::{code_only, without_literals};
use crate::tree::Tree;

const BLOB_BYTES_MAX: u64 = 256 * 1024;

/// Code that must not be there, with the reason.
const BANNED_CODE: [(&str, &str); 5] = [
    ("#[ignore", "a test that does not run proves nothing; let it say why it cannot run here"),
    ("todo!(", "finish it or leave it out"),
    ("unimplemented!(", "finish it or leave it out"),
    ("pub use ashlar_", "a re-export of another crate is a dependency in disguise"),
    ("thread::sleep(", "wait for the thing itself, or use the injected clock"),
];

/// Where sleeping is right: programs that poll other programs, ways of events out of the process,
/// and opening a device that another process is about to let go of.
const MAY_SLEEP: [&str; 9] = [
    "crates/cli/",
    "crates/daemon/src/drives/",
    "crates/daemon/src/events/",
    "crates/daemon/src/partition/",
    "crates/daemon/src/udev.rs",
    "tests/",
    "crates/daemon/src/bench/via/",
    "crates/device/src/file.rs",
    "crates/device/src/open_paths.rs",
];

/// Starts of paths that exist on one machine only. In pieces, so that this file passes its own
/// rule.
const MACHINE_PATHS: [&str; 4] = [
    concat!("/wo", "rk/"),
    concat!("/tmp/", "target"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
];

/// Beyond ASCII, what documents may use: signs that have no plain spelling.
const SIGNS: &str = "\u{b5}\u{b7}\u{d7}\u{2192}\u{2264}\u{2265}\u{2248}\u{2295}\u{2260}\u{2212}\
                     \u{2502}\u{251c}\u{2514}\u{2500}\u{e9}";

pub fn check(tree: &Tree, report: &mut Report) {
    for file in &tree.files {
        if file.bytes > BLOB_BYTES_MAX && file.path != "Cargo.lock" {
            let what = format!("{} bytes; nothing over {BLOB_BYTES_MAX} belongs here", file.bytes);
            report.findings.push(Finding::file(&file.path, what));
        }
        if let Some(text) = &file.text {
            characters(&file.path, text, report);
            machine_paths(&file.path, text, report);
        }
    }
    for (path, text) in tree.rust() {
        code(path, text, report);
    }
}

fn code(path: &str, text: &str, report: &mut Report) {
    for (at, line) in code_only(text).lines().enumerate() {
        for (banned, why) in BANNED_CODE {
            let may =
                banned.contains("sleep") && MAY_SLEEP.iter().any(|start| path.starts_with(start));
            if line.contains(banned) && !may {
                report.findings.push(Finding::at(path, at + 1, format!("{banned}: {why}")));
            }
        }
    }
}

fn machine_paths(path: &str, text: &str, report: &mut Report) {
    for (at, line) in text.lines().enumerate() {
        for banned in MACHINE_PATHS.iter().filter(|banned| has_path(line, banned)) {
            let what = format!("{banned} is a path of one machine");
            report.findings.push(Finding::at(path, at + 1, what));
        }
    }
}

/// Whether a path in `line` begins with `start`; one that only contains it is something else.
fn has_path(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '.' | '_' | '-' | '/' | '*'))
    })
}

fn characters(path: &str, text: &str, report: &mut Report) {
    if !["rs", "md", "toml", "sh"].iter().any(|end| path.rsplit('.').next() == Some(end)) {
        return;
    }
    let signs = if path.ends_with(".md") { SIGNS } else { "" };
    // A string may hold what a test wants it to hold; what people read in the source is ASCII.
    let text = if path.ends_with(".rs") { without_literals(text) } else { text.to_owned() };
    for (at, line) in text.lines().enumerate() {
        if let Some(odd) = line.chars().find(|c| !c.is_ascii() && !signs.contains(*c)) {
            let what = format!("character U+{:04X}; write it in ASCII", u32::from(odd));
            report.findings.push(Finding::at(path, at + 1, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOB_BYTES_MAX, check};
    use crate::tidy::{Report, found};
    use crate::tree::{File, Tree};

    #[test]
    fn code_that_must_not_stay_is_found_outside_comments_only() {
        for planted in ["#[ignore]", "todo!()", "unimplemented!()", "pub use ashlar_gf::Field;"] {
            assert_eq!(found(check, &[("a.rs", planted)]).len(), 1, "{planted}");
            assert!(found(check, &[("a.rs", &format!("// {planted}"))]).is_empty(), "{planted}");
        }
    }

    #[test]
    fn only_programs_that_poll_programs_may_sleep() {
        let sleeps = "std::thread::sleep(wait);";
        assert_eq!(found(check, &[("crates/engine/tests/a.rs", sleeps)]).len(), 1);
        assert!(found(check, &[("crates/cli/src/watch.rs", sleeps)]).is_empty());
    }

    #[test]
    fn paths_of_one_machine_are_found_in_any_file() {
        let path = concat!("see /wo", "rk/main");
        assert_eq!(found(check, &[("docs/a.md", path)]).len(), 1);
        assert_eq!(found(check, &[("check", path)]).len(), 1);
        let inside = concat!("crates/engine/src/ho", "me/a.rs");
        assert!(found(check, &[("docs/a.md", inside)]).is_empty());
    }

    #[test]
    fn code_is_ascii_and_documents_may_use_a_few_signs() {
        assert_eq!(found(check, &[("a.rs", "// a \u{2192} b")]).len(), 1);
        assert!(found(check, &[("a.md", "a \u{2192} b")]).is_empty());
        assert!(found(check, &[("a.rs", "let a = \"\u{2192}\";")]).is_empty());
        assert_eq!(
            found(check, &[("a.md", "see \u{a7} 5")]),
            ["a.md:1: character U+00A7; write it in ASCII"]
        );
    }

    #[test]
    fn blobs_are_found_whatever_is_in_them() {
        let blob = File { path: "a.bin".to_owned(), text: None, bytes: BLOB_BYTES_MAX + 1 };
        let mut report = Report::default();
        check(&Tree { files: vec![blob] }, &mut report);
        assert_eq!(report.findings.len(), 1);
    }
}
