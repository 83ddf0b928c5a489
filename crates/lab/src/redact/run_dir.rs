//! A run's directory without what names its owner.
//!
//! What must stay true: every text of the run is cleaned, and what is no text is left out and
//! named; hashes in `evidence.jsonl` are those of the original outputs, and the copy says so.

use super::redact;
use crate::source::Capture;
use crate::source::tool::{Ending, Run};
use crate::{AtPath, Refusal};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files that are made of others and hold pictures: the report can be made again.
const MADE: [&str; 1] = ["report.html"];

pub struct Copied {
    /// How many identifiers of each kind were replaced.
    pub replaced: BTreeMap<&'static str, usize>,
    /// Files that are no text, and are not in the copy.
    pub left_out: Vec<PathBuf>,
}

pub fn copy(from: &Path, to: &Path, salt: &str) -> Result<Copied, Refusal> {
    if std::fs::read_dir(to).is_ok_and(|mut items| items.next().is_some()) {
        let said = format!("{} holds something already; nothing was written", to.display());
        return Err(Refusal::cannot_run("redact.folder_in_use", said).hint("name a new directory"));
    }
    let (mut capture, mut left_out) = (Capture::default(), Vec::new());
    for path in files(from)? {
        let name = path.strip_prefix(from).unwrap_or(&path).to_string_lossy().into_owned();
        let bytes = std::fs::read(&path).at(&path, "")?;
        match String::from_utf8(bytes) {
            _ if MADE.contains(&name.as_str()) => left_out.push(path),
            Ok(stdout) => {
                let (argv, ending, stderr) = (Vec::new(), Ending::Exit(0), String::new());
                capture.runs.insert(name, Run { argv, ending, stdout, stderr });
            }
            Err(_) => left_out.push(path),
        }
    }
    let (clean, replaced) = redact(&capture, salt);
    for (name, run) in &clean.runs {
        let path = to.join(name);
        let text = if name == "run.json" { marked(&run.stdout) } else { run.stdout.clone() };
        let folder = path.parent().unwrap_or(to);
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text));
        written.at(&path, "the run itself is unharmed")?;
    }
    Ok(Copied { replaced, left_out })
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, Refusal> {
    let items = std::fs::read_dir(folder).at(folder, "")?;
    let mut files = Vec::new();
    for item in items.filter_map(Result::ok) {
        match item.file_type() {
            Ok(kind) if kind.is_dir() => files.extend(self::files(&item.path())?),
            Ok(kind) if kind.is_file() => files.push(item.path()),
            _ => {}
        }
    }
    files.sort();
    Ok(files)
}

/// The facts of the run, which say that this is a copy.
fn marked(text: &str) -> String {
    let Ok(mut facts) = serde_json::from_str::<serde_json::Value>(text) else {
        return text.to_owned();
    };
    let said = "identifiers are replaced; hashes of evidence are those of the original outputs";
    facts["environment"]["redacted"] = said.into();
    serde_json::to_string_pretty(&facts).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::copy;
    use crate::store::RunDir;

    #[test]
    fn a_run_is_copied_without_its_serials_and_can_still_be_read() {
        let place = tempfile::tempdir().expect("a directory");
        let (from, to) = (place.path().join("run"), place.path().join("copy"));
        let mut facts = crate::store::RunFacts::default();
        facts.environment.insert("host".into(), "Serial Number: S5XYNA0R123456".into());
        let dir = RunDir::create(&from, &facts).expect("a run");
        drop(dir);
        std::fs::create_dir_all(from.join("evidence")).expect("made");
        let line = "{\"argv\": [\"lsblk\"], \"serial\": \"S5XYNA0R123456\"}\n";
        std::fs::write(from.join("evidence.jsonl"), line).expect("written");
        std::fs::write(from.join("evidence/1.out"), "on S5XYNA0R123456\n").expect("written");
        std::fs::write(from.join("evidence/2.out"), [0xff, 0xfe]).expect("written");
        let copied = copy(&from, &to, "salt").expect("copied");
        assert_eq!(copied.left_out, [from.join("evidence/2.out")]);
        assert!(copied.replaced.values().sum::<usize>() > 0);
        for name in ["run.json", "evidence.jsonl", "evidence/1.out"] {
            let text = std::fs::read_to_string(to.join(name)).expect(name);
            assert!(!text.contains("S5XYNA0R123456"), "{name}: {text}");
        }
        let read = RunDir::open(&to).expect("a run").read().expect("readable");
        assert!(read.facts.environment["redacted"].contains("hashes"));
        assert_eq!(copy(&from, &to, "salt").err().expect("in use").code, "redact.folder_in_use");
    }
}
