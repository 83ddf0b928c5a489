//! Every event that the program can record has a severity and words.

use ashlar_api::v1::severity::{KINDS, messages};
use std::collections::BTreeSet;
use std::path::Path;

/// Values of constants like `pub const MEMBER_FAILED: &str = "member.failed";` in a file.
fn names_in(path: &Path, found: &mut BTreeSet<String>) {
    let text = std::fs::read_to_string(path).expect("text");
    for line in text.lines().filter(|line| line.contains(": &str = \"")) {
        let name = line.split('"').nth(1).unwrap_or_default();
        let is_word = |word: &str| {
            !word.is_empty() && word.chars().all(|it| it.is_ascii_lowercase() || it == '_')
        };
        if name.split_once('.').is_some_and(|(noun, verb)| is_word(noun) && is_word(verb)) {
            found.insert(name.to_owned());
        }
    }
}

fn files_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            files_below(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            names_in(&path, found);
        }
    }
}

#[test]
fn every_event_name_has_a_severity_and_words() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut recorded = BTreeSet::new();
    names_in(&crates.join("engine/src/event.rs"), &mut recorded);
    files_below(&crates.join("daemon/src"), &mut recorded);
    // A kind of file system and three files, and no events.
    for other in ["arrays.toml", "fuse.ashlar", "events.jsonl", "memory.limit_in_bytes"] {
        recorded.remove(other);
    }
    let mut known: BTreeSet<String> = KINDS.iter().map(|kind| kind.name.to_owned()).collect();
    assert!(known.contains("member.failed") && recorded.len() > 40);
    known.extend([messages::SUMMARY, messages::TEST].map(str::to_owned));
    let unknown: Vec<&String> = recorded.difference(&known).collect();
    assert!(unknown.is_empty(), "add {unknown:?} to crates/api/src/v1/severity.rs");
    known.remove(messages::SUMMARY);
    known.remove(messages::TEST);
    let never: Vec<&String> = known.difference(&recorded).collect();
    assert!(never.is_empty(), "nobody records {never:?}");
}
