//! Captured servers, and small changes to them.

use ashlar_lab::inspect::Inspection;
use ashlar_lab::inspect::server::Server;
use ashlar_lab::inspect::topology::Given;
use ashlar_lab::source::Capture;
use ashlar_lab::source::Source;
use ashlar_lab::source::folder;
use ashlar_lab::source::tree::Entry;
use ashlar_lab::validity::Outcome;
use std::path::Path;

pub const BEFORE: &str = "story-before-repair";

pub const AFTER: &str = "story-after-repair";

pub const FLASH: &str = "nvme-24-dual-socket";

pub const JBOD: &str = "jbod-60-four-hba";

pub const DESKTOP: &str = "desktop";

pub const ALL: [&str; 5] = [BEFORE, AFTER, FLASH, JBOD, DESKTOP];

/// One change to a capture.
#[derive(Clone, Debug)]
pub enum Edit {
    /// A file holds something else.
    Set(String, &'static str),
    /// A path and all below it is not there.
    Drop(String),
    /// Everything with this in its path is not there.
    DropAll(&'static str),
    /// A program is not installed.
    NoTool(&'static str),
    /// The first of these words in a program's output is another one.
    Say(&'static str, &'static str, &'static str),
}

pub fn set(path: &str, value: &'static str) -> Edit {
    Edit::Set(path.to_owned(), value)
}

pub fn gone(path: &str) -> Edit {
    Edit::Drop(path.to_owned())
}

pub fn capture(name: &str) -> Capture {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let (capture, odd) = folder::read(&folder).expect("a capture");
    assert_eq!(odd, 0, "{name}");
    capture
}

pub fn edited(name: &str, edits: &[Edit]) -> Capture {
    let mut capture = capture(name);
    for edit in edits {
        match edit {
            Edit::Set(path, value) => {
                capture.tree.insert(path.clone(), Entry::Text((*value).into()))
            }
            Edit::Drop(path) => assert!(capture.tree.remove(path) > 0, "{path} is not in {name}"),
            Edit::DropAll(part) => {
                let paths: Vec<String> = capture
                    .tree
                    .iter()
                    .map(|it| it.0.clone())
                    .filter(|it| it.contains(part))
                    .collect();
                assert!(!paths.is_empty(), "{part} is not in {name}");
                for path in &paths {
                    capture.tree.remove(path);
                }
            }
            Edit::NoTool(tool) => {
                assert!(capture.runs.remove(*tool).is_some(), "{tool} is not in {name}")
            }
            Edit::Say(tool, from, to) => {
                let run = capture.runs.get_mut(*tool).expect("a tool");
                assert!(run.stdout.contains(from), "{tool} does not say {from:?}");
                run.stdout = run.stdout.replacen(from, to, 1);
            }
        }
    }
    capture
}

pub fn server(capture: Capture) -> Server {
    Server::read(&Source::captured(capture))
}

pub fn inspection(name: &str) -> Inspection {
    Inspection::of(server(capture(name)), None, Given::default())
}

pub fn check(inspection: &Inspection, name: &str) -> (Outcome, String) {
    let found = inspection.checks.iter().find(|it| it.name == name).expect("a check of this name");
    (found.outcome, found.found.clone())
}
