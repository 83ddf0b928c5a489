//! Whether a finished run is still what was written: every output there, of the same length and
//! SHA-256.
//!
//! What must stay true: what cannot be read is a problem, never passed over.

use super::log::{FOLDER, LOG, entries, keep};
use crate::{AtPath, Refusal};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Verified {
    pub commands: usize,
    pub files: usize,
    /// What is wrong, one sentence each; none if all is as it was written.
    pub problems: Vec<String>,
}

/// Compare the run in `dir` with its log.
pub fn verify(dir: &Path) -> Result<Verified, Refusal> {
    let path = dir.join(LOG);
    let text = fs::read(&path).at(&path, "name the directory of a run")?;
    let (entries, unreadable) = entries(&String::from_utf8_lossy(&text));
    let mut problems = Vec::new();
    if unreadable > 0 {
        problems.push(format!("{LOG}: {unreadable} lines cannot be read"));
    }
    let mut numbers = BTreeSet::new();
    let mut known = BTreeSet::new();
    let mut files = 0;
    for entry in &entries {
        if !numbers.insert(entry.n) {
            problems.push(format!("{LOG}: command {} is there twice", entry.n));
        }
        for kept in [&entry.stdout, &entry.stderr].into_iter().chain(&entry.files) {
            files += 1;
            known.insert(kept.file.clone());
            // A name that leads out of the run would make us hash whatever it points to.
            if Path::new(&kept.file)
                .components()
                .any(|part| !matches!(part, std::path::Component::Normal(_)))
            {
                problems.push(format!("{}: leads out of the run", kept.file));
                continue;
            }
            match keep(dir, &dir.join(&kept.file)) {
                Ok(now) if now == *kept => {}
                Ok(now) if now.bytes == kept.bytes => {
                    problems.push(format!("{}: content changed", kept.file))
                }
                Ok(now) => problems.push(format!(
                    "{}: {} bytes, {} were written",
                    kept.file, now.bytes, kept.bytes
                )),
                Err(error) => problems.push(format!("{}: {error}", kept.file)),
            }
        }
    }
    problems.extend(strangers(dir, &known));
    Ok(Verified { commands: entries.len(), files, problems })
}

/// Files among the outputs that no command of the log accounts for.
fn strangers(dir: &Path, known: &BTreeSet<String>) -> Vec<String> {
    let Ok(folder) = fs::read_dir(dir.join(FOLDER)) else {
        return vec![format!("{FOLDER}: cannot be read")];
    };
    let mut names: Vec<String> = folder
        .filter_map(Result::ok)
        .map(|item| format!("{FOLDER}/{}", item.file_name().to_string_lossy()))
        .filter(|name| !known.contains(name))
        .collect();
    names.sort();
    names.iter().map(|name| format!("{name}: no command of the log made it")).collect()
}
