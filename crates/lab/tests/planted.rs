//! The real binary against planted things: a result above what the drives can do, a drive that is purged, a write-cache matrix.
//!
//! What must stay true: nothing here asserts how fast anything was; a test that cannot run says why and is counted by name.
#![forbid(unsafe_code)]

use ashlar_lab::record::{ArrayCondition, Check, Measurement, Record};
use ashlar_lab::store::RunDir;
use ashlar_lab::validity::{Mark, Outcome};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LAB: &str = env!("CARGO_BIN_EXE_ashlar-lab");

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

fn lab(words: &[&str]) -> Output {
    Command::new(LAB).args(words).output().expect("started")
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

/// Three drives that can do 4 MiB a second each, because the plan's raw profile asks for no more, and an "array" that is a file in the
/// page cache: its buffered `mix` cannot be true of such drives.
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
         drives = [\"{}\", \"{}\", \"{}\"]\n[profiles]\nraw = \"raw.fio\"\ncached = \"cached.fio\"\n\
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
        if !rustix::process::geteuid().is_root() {
            skipped(test, "not root");
            return None;
        }
        std::fs::write(file, vec![0xa5; 8 << 20]).expect("written");
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
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

#[test]
fn a_drive_is_purged_only_if_it_is_named_and_the_purge_is_a_record() {
    let test = "a_drive_is_purged_only_if_it_is_named_and_the_purge_is_a_record";
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("drive");
    let Some(device) = Loop::over(test, &file) else { return };
    let content = || std::fs::read(&device.0).expect("readable");
    let run = place.path().join("run");
    let purge = |more: &[&str]| lab(&[&["purge", &device.0], more].concat());
    let refused = purge(&["--to", word(&run)]);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(said(&refused).contains("say --destroy"), "{}", said(&refused));
    let dry = purge(&["--dry-run", "--destroy", &device.0]);
    assert!(dry.status.success() && said(&dry).contains("blkdiscard --force"), "{}", said(&dry));
    let none = purge(&["--method", "sanitize", "--to", word(&run), "--destroy", &device.0]);
    assert_eq!(none.status.code(), Some(2));
    assert!(said(&none).contains("methods it has: discard"), "{}", said(&none));
    assert!(content().iter().all(|byte| *byte == 0xa5), "nothing was changed so far");
    let done = purge(&["--to", word(&run), "--destroy", &device.0]);
    assert!(done.status.success(), "{}", said(&done));
    assert!(content().iter().all(|byte| *byte == 0), "discarded");
    let record = checks(&run, "drive.purged");
    assert_eq!((record.len(), record[0].outcome), (1, Outcome::Pass));
    assert!(record[0].found.contains("read as zeros"), "{record:?}");
}

#[test]
fn a_purged_drive_is_not_a_preconditioned_one_and_is_not_purged_again_on_resumption() {
    let test = "a_purged_drive_is_not_a_preconditioned_one_and_is_not_purged_again_on_resumption";
    let place = tempfile::tempdir().expect("a directory");
    let Some(device) = Loop::over(test, &place.path().join("drive")) else { return };
    if !has_fio(test) {
        return;
    }
    let plan = place.path().join("plan.toml");
    let text = format!(
        "question = \"what did it know?\"\nruntime_s = 1\nramp_s = 0\nioengine = \"psync\"\ndrives = [\"{}\"]\n\
         [[stages]]\nkind = \"precondition\"\n[[stages]]\nkind = \"purge\"\n\
         [[stages]]\nkind = \"raw.each\"\nprofiles = [\"rr-4k\"]\ndepths = [1]\n",
        device.0
    );
    std::fs::write(&plan, text).expect("written");
    let run = place.path().join("run");
    let refused = lab(&["run", word(&plan), "--to", word(&run)]);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    let output = lab(&["run", word(&plan), "--to", word(&run), "--destroy", &device.0]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let figure = measured(&run).pop().expect("measured");
    assert!(figure.findings.iter().any(|finding| finding.rule == "L08"), "{:?}", figure.findings);
    let again = lab(&["run", word(&plan), "--resume", word(&run), "--destroy", &device.0]);
    assert!(said(&again).contains("0 measurements"), "{}", said(&again));
    assert_eq!(checks(&run, "drive.purged").len(), 1);
}

#[test]
fn a_drive_without_a_switch_is_measured_with_the_cache_that_it_has() {
    let test = "a_drive_without_a_switch_is_measured_with_the_cache_that_it_has";
    let place = tempfile::tempdir().expect("a directory");
    let Some(device) = Loop::over(test, &place.path().join("drive")) else { return };
    let plan = place.path().join("plan.toml");
    let text = format!(
        "question = \"what does a flush cost?\"\nruntime_s = 1\ndrives = [\"{}\"]\n[[stages]]\nkind = \"write-cache\"\n",
        device.0
    );
    std::fs::write(&plan, text).expect("written");
    let output = lab(&["run", word(&plan), "--dry-run", "--destroy", &device.0]);
    let shown = said(&output);
    assert!(output.status.success(), "{shown}");
    // Three guarantees, two sizes, two orders, three depths.
    assert_eq!(shown.matches("/cache-as-it-is-").count(), 36, "{shown}");
    assert_eq!(
        (shown.matches("\n    sync=1").count(), shown.matches("\n    fsync=1").count()),
        (12, 12)
    );
    assert!(!shown.contains("restored at the end"), "{shown}");
}
