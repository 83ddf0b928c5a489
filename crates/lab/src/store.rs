//! The run directory on disk: facts of the run, and its records line by line.
//!
//! What must stay true: a record is on disk, whole, before the next thing is measured, so that an
//! interrupted run keeps what it measured; a half-written last line (a crash, a full disk) costs
//! that line only, and is said.

use crate::record::Record;
use crate::refusal::{AtPath, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Version of the files of a run directory.
pub const FORMAT: u32 = 1;

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RunFacts {
    pub format: u32,
    pub lab: String,
    /// The question, in the words of the plan or of the command line.
    pub question: String,
    pub plan_sha256: Option<String>,
    /// Beginning, seconds since 1970, UTC.
    pub began_unix_s: u64,
    /// The machine: `cpu`, `cores`, `memory`, `kernel`, `distribution`, `fio` and others, by name.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Engines that were left out, and why.
    #[serde(default)]
    pub left_out: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Run {
    pub facts: RunFacts,
    pub records: Vec<Record>,
    /// Lines that could not be read, and why: number from 1, reason.
    pub unread: Vec<(usize, String)>,
}

const HINT: &str =
    "what was measured before is still there; free space or choose another directory";

impl RunDir {
    pub fn create(path: &Path, facts: &RunFacts) -> Result<RunDir, Refusal> {
        RunDir::refuse_existing(path)?;
        let name = path.join("run.json");
        std::fs::create_dir_all(path).at(path, HINT)?;
        let mut text = serde_json::to_string_pretty(facts).unwrap_or_default();
        text.push('\n');
        std::fs::write(&name, text).at(&name, HINT)?;
        Ok(RunDir { path: path.to_owned() })
    }

    /// Refuse a directory that holds a run. To be asked before anything is written there.
    pub fn refuse_existing(path: &Path) -> Result<(), Refusal> {
        if !path.join("run.json").exists() {
            return Ok(());
        }
        let said = format!("{} holds a run already; nothing was changed", path.display());
        Err(Refusal::new("run.exists", said).hint("name another directory, or resume this one"))
    }

    pub fn open(path: &Path) -> Result<RunDir, Refusal> {
        if path.join("run.json").is_file() {
            return Ok(RunDir { path: path.to_owned() });
        }
        let said = format!("{} is not a run directory: it has no run.json", path.display());
        Err(Refusal::cannot_run("run.missing", said)
            .hint("name the directory that 'lab run' wrote"))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Append a record; it is on disk when this returns.
    ///
    /// # Errors
    /// If it cannot be written; what was there stays.
    pub fn append(&self, record: &Record) -> Result<(), Refusal> {
        let name = self.path.join("records.jsonl");
        let opened = OpenOptions::new().read(true).append(true).create(true).open(&name);
        opened.and_then(|mut file| append_line(&mut file, record)).at(&name, HINT)
    }

    /// Read everything.
    ///
    /// # Errors
    /// If `run.json` cannot be understood or a file cannot be read. Lines that cannot be understood
    /// are told apart.
    pub fn read(&self) -> Result<Run, Refusal> {
        let name = self.path.join("run.json");
        let text = std::fs::read_to_string(&name).at(&name, "")?;
        let facts: RunFacts = serde_json::from_str(&text).map_err(|error| {
            Refusal::cannot_run("run.unreadable", format!("{}: {error}", name.display()))
        })?;
        let mut run = Run { facts, ..Run::default() };
        let name = self.path.join("records.jsonl");
        let file = match File::open(&name) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(run),
            Err(error) => return Err(Refusal::file(&name, &error, "")),
        };
        for (at, line) in BufReader::new(file).split(b'\n').enumerate() {
            let line = line.at(&name, "")?;
            match serde_json::from_slice(&line) {
                Ok(record) => run.records.push(record),
                Err(_) if line.is_empty() => {}
                Err(error) => run.unread.push((at + 1, error.to_string())),
            }
        }
        Ok(run)
    }
}

/// Append `line` to a file of lines of JSON, on a line of its own also after a torn one; it is on
/// disk when this returns.
pub fn append_line(file: &mut File, line: &impl Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    if has_torn_end(file)? {
        text.insert(0, b'\n');
    }
    file.write_all(&text)?;
    file.sync_data()
}

/// Whether the last line was not written to its end: the next one must not be glued to it.
fn has_torn_end(file: &mut File) -> std::io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests {
    use super::{RunDir, RunFacts};
    use crate::record::{Check, Record};
    use crate::validity::Outcome;
    use std::io::Write;

    fn check(name: &str) -> Record {
        Record::Check(Check {
            name: name.to_owned(),
            target: "socket 0".to_owned(),
            outcome: Outcome::Pass,
            found: "4 of 4 channels".to_owned(),
            next: None,
        })
    }

    #[test]
    fn what_was_appended_is_read_again_in_order_and_never_written_over() {
        let place = tempfile::tempdir().expect("a directory");
        let facts = RunFacts { question: "why".into(), ..RunFacts::default() };
        assert!(RunDir::open(place.path()).is_err());
        let dir = RunDir::create(&place.path().join("run"), &facts).expect("made");
        dir.append(&check("a")).expect("written");
        dir.append(&check("b")).expect("written");
        let run = RunDir::open(dir.path()).expect("there").read().expect("readable");
        assert_eq!((run.facts, run.records), (facts, vec![check("a"), check("b")]));
        let refusal = RunDir::create(dir.path(), &RunFacts::default()).expect_err("refused");
        assert_eq!(refusal.code, "run.exists");
    }

    #[test]
    fn a_torn_line_and_a_kind_of_tomorrow_cost_only_themselves() {
        let place = tempfile::tempdir().expect("a directory");
        let dir = RunDir::create(place.path(), &RunFacts::default()).expect("made");
        dir.append(&check("a")).expect("written");
        let name = place.path().join("records.jsonl");
        let mut file = std::fs::OpenOptions::new().append(true).open(name).expect("there");
        file.write_all(b"{\"kind\":\"of_tomorrow\"}\n{\"kind\":\"che").expect("written");
        dir.append(&check("b")).expect("written");
        let run = dir.read().expect("readable");
        assert_eq!(run.records, [check("a"), check("b")]);
        assert_eq!(run.unread.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 3]);
    }
}
