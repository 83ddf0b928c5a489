//! Captured servers, and small changes to them.

use crate::inspect::Inspection;
use crate::inspect::server::Server;
use crate::inspect::topology::Given;
use crate::source::tree::Entry;
use crate::source::{Capture, Source, folder};
use crate::validity::Outcome;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

pub const BEFORE: &str = "story-before-repair";
pub const AFTER: &str = "story-after-repair";
pub const FLASH: &str = "nvme-24-dual-socket";
const JBOD: &str = "jbod-60-four-hba";
const DESKTOP: &str = "desktop";
pub const ALL: [&str; 5] = [BEFORE, AFTER, FLASH, JBOD, DESKTOP];

/// A capture and what is changed in it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Edits {
    pub of: String,
    /// Files that hold something else.
    pub set: BTreeMap<String, String>,
    /// Paths that are not there, with all below them.
    pub gone: Vec<String>,
    /// Everything with this in its path is not there.
    pub gone_with: Option<String>,
    /// Programs that are not installed.
    pub no_tool: Vec<String>,
    /// In a program's output the first of these words are others.
    pub say: Vec<[String; 3]>,
}

pub fn capture(name: &str) -> Capture {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let (capture, odd) = folder::read(&folder).expect("a capture");
    assert_eq!(odd, 0, "{name}");
    capture
}

/// The capture with its changes, each of which must change something.
pub fn edited(edits: &Edits) -> Capture {
    let name = &edits.of;
    let mut capture = capture(name);
    for (path, value) in &edits.set {
        capture.tree.insert(path.clone(), Entry::Text(value.clone()));
    }
    let mut gone = edits.gone.clone();
    if let Some(part) = &edits.gone_with {
        let paths = capture.tree.iter().map(|it| it.0.clone());
        gone.extend(paths.filter(|path| path.contains(part)));
        assert!(gone.len() > edits.gone.len(), "{part} is not in {name}");
    }
    for path in gone {
        assert!(capture.tree.remove(&path) > 0, "{path} is not in {name}");
    }
    for tool in &edits.no_tool {
        assert!(capture.runs.remove(tool).is_some(), "{tool} is not in {name}");
    }
    for [tool, from, to] in &edits.say {
        let run = capture.runs.get_mut(tool).expect("a tool");
        assert!(run.stdout.contains(from), "{tool} does not say {from:?}");
        run.stdout = run.stdout.replacen(from, to, 1);
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
