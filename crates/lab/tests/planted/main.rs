//! The real binary against planted things: results above what the drives can do, drives that are
//! purged or have a switch, file systems, other programs that disturb.
//!
//! What must stay true: nothing here asserts how fast anything was; a test that cannot run says why
//! and is counted by name.
#![forbid(unsafe_code)]

#[path = "../devices/mod.rs"]
mod devices;
mod drives;
mod file_systems;
mod strangers;

use ashlar_lab::record::{ArrayCondition, Check, Measurement, Record};
use ashlar_lab::store::RunDir;
use ashlar_lab::validity::Mark;
use devices::{Loops, Throttle};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

const LAB: &str = env!("CARGO_BIN_EXE_ashlar-lab");

/// Held by tests that mount ext4, and by those whose figures must be valid: the kernel's one thread
/// that looks after fresh mounts is background work, rightly, for everything that is measured
/// meanwhile.
static MOUNTS: Mutex<()> = Mutex::new(());

fn alone_with_mounts() -> MutexGuard<'static, ()> {
    MOUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn skipped(test: &str, why: &str) {
    let _unseen_at_worst =
        std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes());
}

fn has_fio(test: &str) -> bool {
    let has = Command::new("fio").arg("--version").output().is_ok();
    if !has {
        skipped(test, "no fio");
    }
    has
}

/// Other tests run beside this one: their CPU time is no fault of the figures.
const BESIDE: [&str; 2] = ["--strangers", "100"];

fn lab(words: &[&str]) -> Output {
    let measures = words.contains(&"--no-stacks");
    let beside: &[&str] = if measures { &BESIDE } else { &[] };
    Command::new(LAB).args(words).args(beside).output().expect("started")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat())
        .into_owned()
}

fn word(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn records(run: &Path) -> Vec<Record> {
    RunDir::open(run).expect("a run").read().expect("readable").records
}

fn measured(run: &Path) -> Vec<Measurement> {
    let only = |record| if let Record::Measurement(it) = record { Some(*it) } else { None };
    records(run).into_iter().filter_map(only).collect()
}

fn checks(run: &Path, name: &str) -> Vec<Check> {
    let only = |record| match record {
        Record::Check(check) if check.name == name => Some(check),
        _ => None,
    };
    records(run).into_iter().filter_map(only).collect()
}

/// Three drives that can do 4 MiB a second each, because the plan's raw profile asks for no more,
/// and an "array" that is a file in the page cache: its buffered `mix` cannot be true of such
/// drives.
fn above_its_drives(place: &Path, mix: &str) -> PathBuf {
    for name in ["a", "b", "c", "array"] {
        let content: Vec<u8> =
            (0..2_u32 << 20).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        std::fs::write(place.join(name), content).expect("written");
    }
    let raw = format!("[raw]\nrw={mix}\nbs=1m\nrate=4m\n");
    std::fs::write(place.join("raw.fio"), raw).expect("written");
    let cached = format!("[cached]\nrw={mix}\nbs=1m\ndirect=0\n");
    std::fs::write(place.join("cached.fio"), cached).expect("written");
    let shown = |name: &str| place.join(name).display().to_string();
    let text = format!(
        "question = \"is it true?\"\nruntime_s = 2\nramp_s = 0\nioengine = \"psync\"\n\
         drives = [\"{}\", \"{}\", \"{}\"]\n[profiles]\nraw = \"raw.fio\"\n\
         cached = \"cached.fio\"\n\
         [[arrays]]\npath = \"{}\"\nstrip = \"64k\"\ndata_members = 2\n\
         [[stages]]\nkind = \"raw.all\"\nprofiles = [\"raw\"]\ndepths = [1]\n\
         [[stages]]\nkind = \"array.sweep\"\nprofiles = [\"cached\"]\ndepths = [1]\n",
        shown("a"),
        shown("b"),
        shown("c"),
        shown("array")
    );
    let plan = place.join("plan.toml");
    std::fs::write(&plan, text).expect("written");
    plan
}

#[test]
fn a_result_above_what_the_drives_can_do_is_invalid_in_the_run_and_in_its_report() {
    let test = "a_result_above_what_the_drives_can_do_is_invalid_in_the_run_and_in_its_report";
    if !has_fio(test) {
        return;
    }
    for mix in ["read", "write"] {
        let place = tempfile::tempdir().expect("a directory");
        let plan = above_its_drives(place.path(), mix);
        let run = place.path().join("run");
        let output = lab(&["run", word(&plan), "--to", word(&run), "--no-stacks"]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let all = measured(&run);
        let of = |condition| all.iter().filter(move |it| it.condition == condition);
        let figure = of(ArrayCondition::Healthy).next().expect("the array was measured");
        let rule = figure.findings.iter().find(|finding| finding.rule == "L29");
        let reason = &rule.expect("the rule of ceilings").reason;
        assert!(reason.contains("3 raw drives at once"), "{reason}");
        assert_eq!(Mark::of(&figure.findings), Mark::Invalid);
        assert!(of(ArrayCondition::Raw).all(|raw| !raw.findings.iter().any(|it| it.rule == "L29")));
        let html = place.path().join("report.html");
        let report = lab(&["report", word(&run), "--html", word(&html)]);
        assert!(report.status.success(), "{}", said(&report));
        let page = std::fs::read_to_string(&html).expect("there");
        assert!(page.contains("INVALID") && page.contains("L29"), "{mix}");
    }
}

/// A loop device over a new file, let go at the end.
struct Loop(String);

impl Loop {
    fn over(test: &str, file: &Path) -> Option<Loop> {
        Loop::of(test, file, 8 << 20)
    }

    fn of(test: &str, file: &Path, bytes: usize) -> Option<Loop> {
        if !rustix::process::geteuid().is_root() {
            skipped(test, "not root");
            return None;
        }
        std::fs::write(file, vec![0xa5; bytes]).expect("written");
        // Scanned, so that partitions which an earlier user left are gone.
        let output =
            Command::new("losetup").args(["--find", "--show", "--partscan"]).arg(file).output();
        let made = output.ok().filter(|output| output.status.success());
        if made.is_none() {
            skipped(test, "no loop device");
        }
        made.map(|output| Loop(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _gone = Command::new("losetup").args(["--detach", &self.0]).output();
    }
}

/// Two devices whose reads the page cache answers, against members whose reads are throttled: what
/// `compare` then says of both.
#[test]
fn a_comparison_calls_what_is_above_the_raw_devices_invalid() {
    let test = "a_comparison_calls_what_is_above_the_raw_devices_invalid";
    if !has_fio(test) || !rustix::process::geteuid().is_root() {
        return skipped(test, "no fio, or not root");
    }
    let place = tempfile::tempdir().expect("a directory");
    let files: Vec<PathBuf> = (0..3).map(|at| place.path().join(format!("m{at}"))).collect();
    files.iter().for_each(|file| std::fs::write(file, vec![0xa5; 16 << 20]).expect("written"));
    let Some(members) = Loops::over(&files) else { return skipped(test, "no loop devices") };
    let cached: Vec<Option<Loop>> =
        ["a", "b"].iter().map(|name| Loop::over(test, &place.path().join(name))).collect();
    let [Some(one), Some(other)] = &cached[..] else { return };
    let Ok(throttle) = Throttle::reads(&members.0, 40_960) else {
        return skipped(test, "no control group for I/O");
    };
    let run = place.path().join("run");
    let shell = "echo $$ > \"$1/cgroup.procs\" && shift && exec \"$@\"";
    let mut words = vec!["-c", shell, "sh", word(&throttle.group), LAB, "compare"];
    let (a, b) = (format!("device:{}", one.0), format!("device:{}", other.0));
    words.extend([a.as_str(), b.as_str(), "--to", word(&run), "--level", "raid5", "--losses", "0"]);
    words.extend([
        "--rounds",
        "1",
        "--seconds",
        "1",
        "--span",
        "8",
        "--load",
        "randread",
        "--no-stacks",
    ]);
    words.extend(BESIDE);
    members.0.iter().for_each(|member| words.extend(["--member", member, "--destroy", member]));
    words.extend(["--destroy", &one.0, "--destroy", &other.0]);
    let output = Command::new("sh").args(&words).output().expect("started");
    assert_eq!(output.status.code(), Some(1), "as a run with invalid figures: {}", said(&output));
    assert!(said(&output).contains("figures INVALID"), "{}", said(&output));
    let all = measured(&run);
    let (raw, engines): (Vec<_>, Vec<_>) =
        all.iter().partition(|it| it.condition == ArrayCondition::Raw);
    assert_eq!(engines.len(), 2);
    for figure in engines {
        let rule = figure.findings.iter().find(|finding| finding.rule == "L29");
        let reason = &rule.expect("the rule of ceilings").reason;
        assert!(reason.contains("3 raw devices at once"), "{reason}");
        assert_eq!(Mark::of(&figure.findings), Mark::Invalid);
    }
    let again = raw.iter().filter(|it| it.round > 0).count();
    assert_eq!(again, 2, "each was held against raw devices measured once more");
    assert!(said(&output).contains("too few usable rounds"), "{}", said(&output));
}
