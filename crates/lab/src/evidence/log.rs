//! The directory of a run as it is being written: `evidence.jsonl`, a line for each command, and
//! `evidence/`, their outputs.
//!
//! What must stay true: numbers are unique, also after a crash; a command that was begun has a
//! `.begun` file until its line is on disk, and becomes an `abandoned` line when the run is opened
//! again; one lab writes to a directory at a time; outputs are named relative to the run's
//! directory, so that a run can be moved and shared.

use super::process::{Interrupt, Order, PLACE, monotonic};
use crate::store::append_line;
use crate::{AtPath, Refusal};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const HINT: &str = "the run's directory must be writable; what was measured so far is kept";
/// Free space below which nothing more is started: its output would be cut off.
const FREE_MIN_BYTES: u64 = 16 << 20;
/// A command that failed with less than this left is taken to have failed for lack of space: not
/// every one says so.
const CUT_OFF_BYTES: u64 = 64 << 10;
/// Name of the log within a run's directory.
pub const LOG: &str = "evidence.jsonl";
pub const FOLDER: &str = "evidence";

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Its number within the run, from 1; unique, and in the order of starting.
    pub n: u64,
    pub why: String,
    /// Beginning, seconds since 1970, UTC.
    pub began_unix_s: f64,
    pub duration_s: f64,
    pub argv: Vec<String>,
    /// Environment that the lab set for it; the rest was inherited.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub exit: Exit,
    pub stdout: Kept,
    pub stderr: Kept,
    /// Files it read or wrote that belong to the evidence: job files, logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<Kept>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Path relative to the run's directory.
    pub file: String,
    pub bytes: u64,
    /// SHA-256 of the content, 64 hexadecimal digits.
    pub sha256: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself, with this exit code.
    Code(i32),
    /// By a signal that the lab did not send.
    Signal(i32),
    /// Ended by the lab after this many seconds.
    TimeLimit(u64),
    /// Ended by the lab because the lab was interrupted.
    Interrupted,
    NotStarted(String),
    /// The lab itself was killed or lost power while it ran; found when the run was opened again.
    Abandoned,
}

impl Exit {
    pub fn is_success(&self) -> bool {
        *self == Exit::Code(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(signal) => write!(f, "ended by signal {signal}"),
            Exit::TimeLimit(limit_s) => write!(f, "stopped after its time limit of {limit_s} s"),
            Exit::Interrupted => f.write_str("stopped because the lab was interrupted"),
            Exit::NotStarted(why) => write!(f, "could not be started: {why}"),
            Exit::Abandoned => f.write_str("cut off when the lab itself ended"),
        }
    }
}

/// The forensic log of one run, open for writing. Commands may be run from several threads.
#[derive(Debug)]
pub struct Evidence {
    dir: PathBuf,
    state: Mutex<State>,
    interrupt: Interrupt,
    free_min_bytes: u64,
}

#[derive(Debug)]
struct State {
    log: File,
    next: u64,
}

/// A command that was run, and how to get at what it printed.
#[derive(Clone, Debug)]
pub struct Ran {
    pub entry: Entry,
    dir: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Begun {
    n: u64,
    why: String,
    began_unix_s: f64,
    argv: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    pid: Option<u32>,
}

/// A child that another thread has just forked has the file open, too, until it becomes another
/// program: closing it here would not give the lock back.
impl Drop for State {
    fn drop(&mut self) {
        // The end of the process gives it back otherwise.
        let _held = self.log.unlock();
    }
}

impl Evidence {
    /// Open the run in `dir`, which is made if it is not there. Commands that an earlier lab left
    /// half done get their `abandoned` line.
    pub fn open(dir: &Path, interrupt: Interrupt) -> Result<Evidence, Refusal> {
        Evidence::open_with(dir, interrupt, FREE_MIN_BYTES)
    }

    pub(crate) fn open_with(
        dir: &Path,
        interrupt: Interrupt,
        free_min_bytes: u64,
    ) -> Result<Evidence, Refusal> {
        fs::create_dir_all(dir.join(FOLDER)).at(dir, HINT)?;
        let path = dir.join(LOG);
        let mut options = OpenOptions::new();
        let mut log = options.read(true).append(true).create(true).open(&path).at(dir, HINT)?;
        match log.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = format!("another lab is writing to {}", dir.display());
                return Err(Refusal::cannot_run("run.in_use", message)
                    .hint("wait for it, or name another directory"));
            }
            Err(TryLockError::Error(error)) => return Err(Refusal::file(dir, &error, HINT)),
        }
        let mut text = String::new();
        log.read_to_string(&mut text).at(dir, HINT)?;
        let last = entries(&text).0.iter().map(|entry| entry.n).max().unwrap_or(0);
        let state = Mutex::new(State { log, next: last + 1 });
        let evidence = Evidence { dir: dir.to_owned(), state, interrupt, free_min_bytes };
        evidence.close_abandoned(last)?;
        Ok(evidence)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Run a command and write down everything about it. `Ok` says that it is written down, not
    /// that it succeeded.
    pub fn run(&self, order: &Order) -> Result<Ran, Refusal> {
        let is_short = |least: u64| free_bytes(&self.dir).is_some_and(|free| free < least);
        if !order.takes_away && is_short(self.free_min_bytes) {
            return Err(Refusal::disk_full(&self.dir));
        }
        let n = self.take_number();
        let mut order = order.clone();
        let stem = stem(n, &order.argv);
        let place = self.dir.join(FOLDER).join(&stem);
        if let Some(job) = &order.job {
            let path = place.with_extension("fio");
            fs::write(&path, job.replace(PLACE, &place.to_string_lossy())).at(&path, HINT)?;
            order.argv.push(path.to_string_lossy().into_owned());
        }
        let mut begun = Begun {
            n,
            why: order.why.clone(),
            began_unix_s: unix_now_s(),
            argv: order.argv.clone(),
            env: order.env.clone(),
            pid: None,
        };
        write_begun(&place, &begun).at(&self.dir, HINT)?;
        let stdout = File::create(place.with_extension("stdout")).at(&self.dir, HINT)?;
        let stderr = File::create(place.with_extension("stderr")).at(&self.dir, HINT)?;
        let start = monotonic();
        let exit = order.run(stdout, stderr, &self.interrupt, |pid| {
            begun.pid = Some(pid);
            // Only a hint for whoever finds an orphan; the trace itself is on disk already.
            let _ = write_begun(&place, &begun);
        });
        let duration_s = monotonic().saturating_sub(start).as_secs_f64();
        let cut_off = !exit.is_success() && is_short(CUT_OFF_BYTES);
        let entry = self.finish(begun, exit, duration_s)?;
        if cut_off {
            return Err(Refusal::disk_full(&self.dir));
        }
        Ok(Ran { entry, dir: self.dir.clone() })
    }

    fn finish(&self, begun: Begun, exit: Exit, duration_s: f64) -> Result<Entry, Refusal> {
        let stem = stem(begun.n, &begun.argv);
        let place = self.dir.join(FOLDER).join(&stem);
        let own = ["stdout", "stderr", "begun"].map(|extension| place.with_extension(extension));
        let is_beside = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with(&stem) && !own.contains(path)
        };
        let mut files = self.files()?;
        files.retain(is_beside);
        let keep = |path: &Path| keep(&self.dir, path).at(path, HINT);
        let entry = Entry {
            n: begun.n,
            why: begun.why,
            began_unix_s: begun.began_unix_s,
            duration_s,
            argv: begun.argv,
            env: begun.env,
            exit,
            stdout: keep(&place.with_extension("stdout"))?,
            stderr: keep(&place.with_extension("stderr"))?,
            files: files.iter().map(|path| keep(path)).collect::<Result<_, _>>()?,
        };
        self.append(&entry)?;
        // The line is on disk; a `.begun` that cannot be removed would only be found again and
        // reported twice.
        fs::remove_file(place.with_extension("begun")).at(&place, HINT)?;
        Ok(entry)
    }

    fn append(&self, entry: &Entry) -> Result<(), Refusal> {
        append_line(&mut self.lock().log, entry).at(&self.dir.join(LOG), HINT)
    }

    /// Lines for the commands of which only a `.begun` is left.
    fn close_abandoned(&self, last: u64) -> Result<(), Refusal> {
        let is_begun = |path: &PathBuf| path.extension().is_some_and(|it| it == "begun");
        for path in self.files()?.into_iter().filter(is_begun) {
            let text = fs::read(&path).at(&path, HINT)?;
            match serde_json::from_slice::<Begun>(&text) {
                Ok(begun) if begun.n > last => {
                    self.lock().next = begun.n + 1;
                    self.abandon(begun, &path)?;
                }
                // Its line is there already, or the file was torn before the command started.
                _ => fs::remove_file(&path).at(&path, HINT)?,
            }
        }
        Ok(())
    }

    /// All outputs, in order.
    fn files(&self) -> Result<Vec<PathBuf>, Refusal> {
        let folder = self.dir.join(FOLDER);
        let items = fs::read_dir(&folder).at(&folder, HINT)?;
        let paths: io::Result<Vec<PathBuf>> = items.map(|item| Ok(item?.path())).collect();
        let mut paths = paths.at(&folder, HINT)?;
        paths.sort();
        Ok(paths)
    }

    fn abandon(&self, begun: Begun, path: &Path) -> Result<(), Refusal> {
        if let Some(pid) = begun.pid {
            super::process::end_orphan(pid, &begun.argv);
        }
        for extension in ["stdout", "stderr"] {
            let mut options = OpenOptions::new();
            let made = options.append(true).create(true).open(path.with_extension(extension));
            made.at(path, HINT)?;
        }
        self.finish(begun, Exit::Abandoned, 0.0).map(drop)
    }

    fn take_number(&self) -> u64 {
        let mut state = self.lock();
        let n = state.next;
        state.next += 1;
        n
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Whoever panicked while holding it left a whole line or none.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Ran {
    pub fn stdout(&self) -> Result<Vec<u8>, Refusal> {
        self.read(&self.entry.stdout)
    }

    pub fn stderr(&self) -> Result<Vec<u8>, Refusal> {
        self.read(&self.entry.stderr)
    }

    pub fn read(&self, kept: &Kept) -> Result<Vec<u8>, Refusal> {
        let path = self.dir.join(&kept.file);
        fs::read(&path).at(&path, "it was there when the command ended")
    }

    /// The last line it complained with, for a message to people.
    pub fn complaint(&self) -> String {
        let text = self.stderr().unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
        last.unwrap_or("it printed no reason").to_owned()
    }
}

/// The entries of a log, and how many lines could not be read.
pub fn entries(text: &str) -> (Vec<Entry>, usize) {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let (good, bad): (Vec<_>, Vec<_>) =
        lines.map(serde_json::from_str::<Entry>).partition(Result::is_ok);
    (good.into_iter().filter_map(Result::ok).collect(), bad.len())
}

/// Length and SHA-256 of the file at `path`, which lies under `dir`.
pub fn keep(dir: &Path, path: &Path) -> io::Result<Kept> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let bytes = io::copy(&mut file, &mut hash)?;
    let relative = path.strip_prefix(dir).unwrap_or(path);
    Ok(Kept {
        file: relative.to_string_lossy().into_owned(),
        bytes,
        sha256: format!("{:x}", hash.finalize()),
    })
}

/// SHA-256 of `bytes` as 64 hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// Seconds since 1970, UTC, in whole microseconds: so many digits read back from JSON as the number
/// that they were.
pub fn unix_now_s() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0.0, |since| (since.as_secs_f64() * 1e6).round() / 1e6)
}

pub(crate) fn unix_whole_s() -> u64 {
    Duration::try_from_secs_f64(unix_now_s()).unwrap_or_default().as_secs()
}

/// Name of a command's outputs: its number and its program, `command` if it names none.
fn stem(n: u64, argv: &[String]) -> String {
    let name = argv.first().and_then(|program| program.rsplit('/').next());
    let name = name.filter(|name| !name.is_empty()).unwrap_or("command");
    // A dot would be taken for the beginning of an extension.
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' };
    format!("{n:05}-{}", name.chars().map(plain).collect::<String>())
}

fn write_begun(place: &Path, begun: &Begun) -> io::Result<()> {
    let text = serde_json::to_vec(begun)?;
    let mut file = File::create(place.with_extension("begun"))?;
    file.write_all(&text)?;
    file.sync_data()
}

fn free_bytes(dir: &Path) -> Option<u64> {
    let space = rustix::fs::statvfs(dir).ok()?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}
