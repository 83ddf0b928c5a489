//! The real binary on this machine: loads, devices, engines, interruptions, strangers.
//!
//! - devices: loop devices, and a control group that throttles some
//! - drives: devices that are handed over, and blank ones
//! - file_systems: arrays measured through a file system
//! - first_use: the lab as somebody uses it for the first time
//! - interrupt: interrupted while an array stands
//! - live: accounts of this machine while it runs
//! - planted: results above what the drives can do
//! - qualify: the whole cycle
//! - run: slow members, sparse areas, bad input
//! - strangers: other programs that disturb
//!
//! What must stay true: nothing here asserts how fast anything was; a test that cannot run says why
//! and is counted by name.
#![forbid(unsafe_code)]

/// Ends a test that needs these programs, where they are not.
macro_rules! needs {
    ($($tool:literal),+) => {
        if crate::cannot(false, &[$($tool),+]) {
            return;
        }
    };
}

/// Ends a test that needs root and these programs, where they are not.
macro_rules! needs_root {
    ($($tool:literal),+) => {
        if crate::cannot(true, &[$($tool),+]) {
            return;
        }
    };
}

mod devices;
mod drives;
mod file_systems;
mod first_use;
mod interrupt;
mod live;
mod planted;
#[path = "../program/mod.rs"]
mod program;
mod qualify;
mod run;
mod strangers;

use ashlar_lab::record::{Check, Measurement, Record};
use ashlar_lab::store::RunDir;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Tests whose figures must be valid, that mount or that sample the machine, have it for
/// themselves: the loads of others, and the kernel's work on fresh mounts, are what they would
/// account for. The others share it.
static MACHINE: RwLock<()> = RwLock::new(());

fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

fn beside() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// The test that runs here cannot: said past the capture of the test harness, for a skip that
/// nobody sees looks like a pass, and `./check` counts these lines.
fn skipped(why: &str) {
    // The harness names each test's thread after it.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let _unseen_at_worst =
        std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes());
}

/// Whether the test cannot run here, which is said.
fn cannot(needs_root: bool, tools: &[&str]) -> bool {
    let missing = tools.iter().find(|tool| Command::new(tool).arg("--version").output().is_err());
    let why = match (needs_root && !rustix::process::geteuid().is_root(), missing) {
        (true, _) => "not root".to_owned(),
        (false, Some(tool)) => format!("no {tool}"),
        (false, None) => return false,
    };
    skipped(&why);
    true
}

/// Other tests run beside this one: their CPU time is no fault of the figures.
const BESIDE: [&str; 2] = ["--strangers", "100"];

fn lab(words: &[&str]) -> Output {
    let measures = words.contains(&"--no-stacks") && !words.contains(&"--strangers");
    let beside: &[&str] = if measures { &BESIDE } else { &[] };
    program::lab(&[words, beside].concat())
}

/// A directory of a test's own: its files, a plan, and the run of it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file with this content.
    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, content).expect("written");
        path
    }

    /// A plan of short points that begins so and goes on with `text`.
    fn plan(&self, text: &str) -> PathBuf {
        let head = "question = \"q\"\nruntime_s = 1\nramp_s = 0\nioengine = \"psync\"\n";
        self.file("plan.toml", format!("{head}{text}"))
    }

    /// Where the plan's results go.
    fn run(&self) -> PathBuf {
        self.path("run")
    }

    /// What `lab run` says of the plan.
    fn ran(&self, more: &[&str]) -> Output {
        let (plan, run) = (self.path("plan.toml"), self.run());
        let words = ["run", program::word(&plan), "--to", program::word(&run), "--no-stacks"];
        lab(&[&words, more].concat())
    }
}

/// A stage of one job at depth 1.
fn stage(kind: &str, profile: &str) -> String {
    format!("[[stages]]\nkind = \"{kind}\"\nprofiles = [\"{profile}\"]\ndepths = [1]\n")
}

/// Paths as a list of TOML.
fn listed(paths: &[PathBuf]) -> String {
    format!("{paths:?}")
}

fn records(run: &Path) -> Vec<Record> {
    RunDir::open(run).expect("a run").read().expect("readable").records
}

fn measured(run: &Path) -> Vec<Measurement> {
    records(run).iter().filter_map(Record::measurement).cloned().collect()
}

fn checks(run: &Path, name: &str) -> Vec<Check> {
    let of_name = |check: &&Check| check.name == name;
    records(run).iter().filter_map(Record::check).filter(of_name).cloned().collect()
}
