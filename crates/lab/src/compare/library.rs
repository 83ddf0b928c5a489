//! The library of baselines: runs that were given a name, to hold later runs against.
//!
//! A baseline is a run directory with the measurements and the environment of the run it was saved
//! from: `lab report` reads it as well. Evidence, stacks and series stay where the run was
//! measured.
//!
//! What must stay true: a baseline is there whole or not at all; one that is there is never written
//! over in silence.

use crate::record::Record;
use crate::refusal::Refusal;
use crate::report::points;
use crate::store::{Run, RunDir};
use crate::validity::Mark;
use std::path::{Path, PathBuf};

/// Where baselines are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Library {
    dir: PathBuf,
}

impl Library {
    /// The library in `dir`; without it the user's own: `$XDG_STATE_HOME/ashlar/lab/baselines`, or
    /// the same under `~/.local/state`.
    ///
    /// # Errors
    /// If there is neither `dir` nor a home directory.
    pub fn at(dir: Option<&Path>) -> Result<Library, Refusal> {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        // The specification of these directories: what is not absolute counts as not set.
        let state = variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
        let state = state.or_else(|| Some(variable("HOME")?.join(".local/state")));
        match (dir, state) {
            (Some(dir), _) => Ok(Library { dir: dir.to_owned() }),
            (None, Some(state)) => Ok(Library { dir: state.join("ashlar/lab/baselines") }),
            (None, None) => Err(Refusal::cannot_run(
                "library.nowhere",
                "there is no place for baselines: neither XDG_STATE_HOME nor HOME is set",
                "say --library DIR",
            )),
        }
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Keep the run at `from` as `name`.
    ///
    /// # Errors
    /// If the name is no name or is taken (unless `replace`), the run has nothing that could be
    /// held against, or it cannot be written.
    pub fn save(&self, name: &str, from: &Path, replace: bool) -> Result<Run, Refusal> {
        let place = self.place(name)?;
        if place.exists() && !replace {
            let said = format!("there is a baseline '{name}' already; it was not changed");
            return Err(Refusal::new(
                "baseline.exists",
                said,
                "choose another name, or say --replace",
            ));
        }
        let run = slim(RunDir::open(from)?.read()?);
        if !points::of(&run.records).iter().any(|point| point.mark() != Mark::Invalid) {
            let said = format!("{} has no valid figure; nothing was saved", from.display());
            return Err(Refusal::cannot_run("baseline.empty", said, "save a run with figures"));
        }
        let fault =
            |path: &Path, error: &std::io::Error| Refusal::file(path, error, "nothing was saved");
        let new = self.dir.join(format!(".{name}.{}", std::process::id()));
        remove_if_there(&new).map_err(|error| fault(&new, &error))?;
        let dir = RunDir::create(&new, &run.facts)?;
        run.records.iter().try_for_each(|record| dir.append(record))?;
        // The old one goes at the last moment; a crash in between leaves the new one under its
        // first name.
        remove_if_there(&place).map_err(|error| fault(&place, &error))?;
        std::fs::rename(&new, &place).map_err(|error| fault(&place, &error))?;
        Ok(run)
    }

    /// Names of all baselines, in order.
    ///
    /// # Errors
    /// If the library cannot be read. One that is not there has none.
    pub fn names(&self) -> Result<Vec<String>, Refusal> {
        let items = match std::fs::read_dir(&self.dir) {
            Ok(items) => items,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Refusal::file(&self.dir, &error, "")),
        };
        let mut names: Vec<String> = items
            .filter_map(Result::ok)
            .filter(|item| item.path().join("run.json").is_file())
            .map(|item| item.file_name().to_string_lossy().into_owned())
            .filter(|name| is_name(name))
            .collect();
        names.sort();
        Ok(names)
    }

    /// The baseline called `name`.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(&self, name: &str) -> Result<RunDir, Refusal> {
        let place = self.place(name)?;
        RunDir::open(&place).map_err(|_| {
            let known = self.names().unwrap_or_default();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let said = format!("there is no baseline '{name}' in {}", self.dir.display());
            Refusal::cannot_run("baseline.missing", said, format!("there: {known}"))
        })
    }

    /// Remove the baseline called `name`.
    ///
    /// # Errors
    /// If there is none or it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), Refusal> {
        let place = self.open(name)?.path().to_owned();
        std::fs::remove_dir_all(&place).map_err(|error| Refusal::file(&place, &error, ""))
    }

    fn place(&self, name: &str) -> Result<PathBuf, Refusal> {
        if is_name(name) {
            return Ok(self.dir.join(name));
        }
        let said = format!("'{name}' is no name for a baseline");
        Err(Refusal::cannot_run("baseline.no_name", said, "use letters, digits, '-', '_' and '.'"))
    }
}

/// Nothing that could lead out of the library, or hide in it.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= 100 && !name.starts_with('.') && name.chars().all(plain)
}

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What later runs are held against: figures and BASELINE, without what they were read from.
fn slim(mut run: Run) -> Run {
    run.records.retain(|record| matches!(record, Record::Measurement(_) | Record::Baseline(_)));
    for record in &mut run.records {
        if let Record::Measurement(measured) = record {
            for side in [&mut measured.read, &mut measured.write] {
                side.series.clear();
                side.latency_series.clear();
                side.p99_series.clear();
            }
        }
    }
    run
}
