//! The real binary: a planted slow member is named, a planted sparse area is refused, and each kind
//! of bad input gets one clear line, keeps what was measured and exits with something other than 0.
//!
//! What must stay true: nothing here asserts how fast anything was; a test that cannot run says why
//! and is counted by name.

use crate::devices::{Loops, Throttle};
use crate::program::{LAB, word};
use crate::{beside, checks, lab, measured, skipped};
use ashlar_lab::validity::{Mark, Outcome};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Exit code and the one line that the lab says about it.
fn refused(output: &Output) -> (Option<i32>, String) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("ashlar-lab: ")).collect();
    assert_eq!(lines.len(), 1, "one clear line, not: {said}");
    assert!(!said.contains("panicked"), "{said}");
    (output.status.code(), lines[0].to_owned())
}

/// Bytes without holes and without repetition.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut out = Vec::with_capacity(bytes);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out
}

#[test]
fn a_throttled_member_among_ten_is_named() {
    let _machine = beside();
    needs_root!("fio", "losetup");
    let place = tempfile::tempdir().expect("a directory");
    let files: Vec<PathBuf> = (0..10).map(|at| place.path().join(format!("d{at}"))).collect();
    let content = noise(8 << 20);
    files.iter().for_each(|file| std::fs::write(file, &content).expect("written"));
    let Some(loops) = Loops::over(&files) else {
        return skipped("no ten loop devices");
    };
    let slow = &loops.0[6];
    // Ten I/Os a second: slower than any device of any machine that this runs on.
    let throttle = match Throttle::reads(std::slice::from_ref(slow), 40_960) {
        Ok(throttle) => throttle,
        Err(error) => return skipped(&format!("no control group for I/O: {error}")),
    };
    let plan = place.path().join("plan.toml");
    let drives: Vec<String> = loops.0.iter().map(|device| format!("\"{device}\"")).collect();
    let text = format!(
        "question = \"which one is slow?\"\nruntime_s = 2\nramp_s = 0\nioengine = \"psync\"\n\
         drives = [{}]\n\
         [[stages]]\nkind = \"raw.all\"\nprofiles = [\"rr-4k\"]\ndepths = [1]\n",
        drives.join(", ")
    );
    std::fs::write(&plan, text).expect("written");
    let run = place.path().join("run");
    let shell = "echo $$ > \"$1/cgroup.procs\" && exec \"$2\" run \"$3\" --to \"$4\"";
    let output = Command::new("sh")
        .args(["-c", shell, "sh"])
        .args([&throttle.group, Path::new(LAB), &plan, &run])
        .output()
        .expect("started");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let found = checks(&run, "drives.slow_member").remove(0);
    assert_eq!(found.outcome, Outcome::Fail, "{found:?}");
    assert!(found.found.contains(slow.as_str()), "{slow} is not named: {found:?}");
    let rates = measured(&run);
    let slowest = rates.iter().min_by(|one, other| one.rate().total_cmp(&other.rate()));
    assert_eq!(slowest.map(|one| one.target.as_str()), Some(slow.as_str()));
    // Whoever looked on saw it, second by second.
    let seconds = std::fs::read_to_string(run.join("seconds.jsonl")).expect("kept");
    let name = format!("\"slowest\":\"{}\"", slow.trim_start_matches("/dev/"));
    let named = seconds.lines().filter(|line| line.contains(&name)).count();
    assert!(named > 0 && named * 2 >= seconds.lines().count(), "{name}: {seconds}");
}

/// One drive whose middle was never written, as a plan.
fn sparse_plan(place: &Path) -> PathBuf {
    let drive = place.join("sparse");
    let file = std::fs::File::create(&drive).expect("made");
    (&file).write_all(&noise(1 << 20)).expect("written");
    file.set_len(16 << 20).expect("longer");
    plan(place, &[("sparse", "rr-4k")])
}

/// A plan that reads each of `(drive, profile)` alone for a second, in order.
fn plan(place: &Path, drives: &[(&str, &str)]) -> PathBuf {
    let path = place.join("plan.toml");
    let arrays: Vec<String> = drives
        .iter()
        .map(|(drive, _)| format!("[[arrays]]\npath = \"{}\"\n", place.join(drive).display()))
        .collect();
    let text = format!(
        "question = \"q\"\nruntime_s = 1\nramp_s = 0\nioengine = \"psync\"\n{}[[stages]]\n\
         kind = \"array.sweep\"\nprofiles = [\"{}\"]\ndepths = [1]\n",
        arrays.concat(),
        drives[0].1
    );
    std::fs::write(&path, text).expect("written");
    path
}

#[test]
fn reading_what_was_never_written_is_no_benchmark() {
    let _machine = beside();
    needs!("fio");
    let place = tempfile::tempdir().expect("a directory");
    let plan = sparse_plan(place.path());
    let run = place.path().join("run");
    let output = lab(&["run", word(&plan), "--to", word(&run), "--no-stacks"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let figure = measured(&run).remove(0);
    assert_eq!(Mark::of(&figure.findings), Mark::Invalid);
    assert!(figure.findings.iter().any(|finding| finding.rule == "L08"), "{:?}", figure.findings);
    let report = lab(&["report", word(&run)]);
    let said = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(said.contains("1 figures, 1 invalid"), "{said}");
}

#[test]
fn a_truncated_result_and_a_file_that_is_none_are_one_line_and_garbage_before_one_is_passed_over() {
    let _machine = beside();
    let place = tempfile::tempdir().expect("a directory");
    let whole = include_str!("../fio/two_jobs.json");
    let path = place.path().join("result.json");
    std::fs::write(&path, &whole[..whole.len() / 2]).expect("written");
    let (code, line) = refused(&lab(&["lint", word(&path)]));
    assert_eq!(code, Some(2), "{line}");
    assert!(line.contains("truncated") || line.contains("ends in the middle"), "{line}");
    std::fs::write(&path, format!("fio: this is no JSON\nnor this\n{whole}")).expect("written");
    let output = lab(&["lint", word(&path)]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    std::fs::write(&path, b"\xff\xfe{ \x00 ]").expect("written");
    let (code, line) = refused(&lab(&["lint", word(&path)]));
    assert_eq!(code, Some(2), "{line}");
}

#[test]
fn empty_samples_are_one_line() {
    let _machine = beside();
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("perf.txt");
    std::fs::write(&path, "").expect("written");
    let words = ["cpu", "--cores", "2", "--seconds", "1", "--from"];
    let (code, line) = refused(&lab(&[&words[..], &[word(&path)]].concat()));
    assert_eq!(code, Some(2), "{line}");
    std::fs::write(&path, "no stacks here\nand none here\n").expect("written");
    let (code, line) = refused(&lab(&[&words[..], &[word(&path)]].concat()));
    assert_eq!(code, Some(2), "{line}");
}

#[test]
fn a_missing_tool_is_named_with_the_package_to_install() {
    let _machine = beside();
    let place = tempfile::tempdir().expect("a directory");
    std::fs::write(place.path().join("a"), noise(1 << 20)).expect("written");
    let plan = plan(place.path(), &[("a", "rr-4k")]);
    let run = place.path().join("run");
    let without = |words: &[&str]| {
        let path = place.path().join("no-programs");
        Command::new(LAB).args(words).env("PATH", path).output().expect("started")
    };
    let (code, line) = refused(&without(&["run", word(&plan), "--to", word(&run), "--no-stacks"]));
    assert_eq!(code, Some(2), "{line}");
    assert!(line.contains("fio") && line.contains("install"), "{line}");
    let (code, line) = refused(&without(&["cpu", "--seconds", "1"]));
    assert_eq!(code, Some(2), "{line}");
    assert!(line.contains("perf") && line.contains("install"), "{line}");
}

#[test]
fn without_permission_it_is_one_line_and_nothing_is_begun() {
    let _machine = beside();
    let (code, line) = refused(&lab(&["report", "/proc/1/no-run-here"]));
    assert_eq!(code, Some(2), "{line}");
    needs_root!("setpriv", "perf");
    let place = tempfile::tempdir().expect("a directory");
    std::fs::write(place.path().join("a"), noise(1 << 20)).expect("written");
    let plan = plan(place.path(), &[("a", "rr-4k")]);
    // The directory is root's: whoever else asks cannot make a run in it.
    let copy = place.path().join("lab");
    // By another process: one that a test beside starts meanwhile would have it open (ETXTBSY).
    assert!(Command::new("cp").args([Path::new(LAB), &copy]).status().expect("started").success());
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path(), open).expect("others may look");
    let as_nobody = |words: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&copy)
            .args(words)
            .env("TMPDIR", "/tmp")
            .output()
            .expect("started")
    };
    let run = place.path().join("run");
    let (code, line) = refused(&as_nobody(&["run", word(&plan), "--to", word(&run)]));
    assert_eq!(code, Some(2), "{line}");
    assert!(line.contains("ermission"), "{line}");
    assert!(!run.exists());
    let output = as_nobody(&["cpu", "--seconds", "1"]);
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    if paranoid.is_ok_and(|level| level.trim().parse::<i32>().is_ok_and(|level| level > 0)) {
        let (code, line) = refused(&output);
        assert_eq!(code, Some(2), "{line}");
        assert!(line.contains("may not sample") && line.contains("root"), "{line}");
    }
}

#[test]
fn a_target_that_vanishes_in_the_middle_ends_the_run_and_what_was_measured_stays() {
    let _machine = beside();
    needs!("fio");
    let place = tempfile::tempdir().expect("a directory");
    for name in ["a", "b"] {
        std::fs::write(place.path().join(name), noise(1 << 20)).expect("written");
    }
    let plan = plan(place.path(), &[("a", "rr-4k"), ("b", "rr-4k")]);
    // The second one goes when the first one has been measured.
    let mut text = std::fs::read_to_string(&plan).expect("there");
    let gone = place.path().join("b");
    text = text.replacen(
        "[[stages]]",
        &format!("take_out = [[\"rm\", \"{}\"]]\n[[stages]]", gone.display()),
        1,
    );
    text.push_str("[[stages]]\nkind = \"degraded\"\nprofiles = [\"rr-4k\"]\ndepths = [1]\n");
    std::fs::write(&plan, text).expect("written");
    let run = place.path().join("run");
    let output = lab(&["run", word(&plan), "--to", word(&run), "--no-stacks"]);
    let (code, line) = refused(&output);
    assert_eq!(code, Some(2), "{line}");
    assert_eq!(measured(&run).len(), 2, "both healthy figures: {line}");
    assert!(lab(&["report", word(&run)]).status.success());
}

#[test]
fn a_disk_that_fills_up_ends_the_run_in_one_line_and_what_was_measured_stays() {
    let _machine = beside();
    needs_root!("fio", "mount");
    let place = tempfile::tempdir().expect("a directory");
    std::fs::write(place.path().join("a"), noise(1 << 20)).expect("written");
    let small = place.path().join("small");
    std::fs::create_dir(&small).expect("made");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=40m", "none"])
        .arg(&small)
        .status()
        .expect("started");
    if !mounted.success() {
        return skipped("no tmpfs");
    }
    let plan = plan(place.path(), &[("a", "rr-4k")]);
    let mut text = std::fs::read_to_string(&plan).expect("there");
    let fill = format!("head -c 39m /dev/zero > {} || true", small.join("full").display());
    text = text.replacen(
        "[[stages]]",
        &format!("take_out = [[\"sh\", \"-c\", \"{fill}\"]]\n[[stages]]"),
        1,
    );
    text.push_str("[[stages]]\nkind = \"degraded\"\nprofiles = [\"rr-4k\"]\ndepths = [1]\n");
    std::fs::write(&plan, text).expect("written");
    let run = small.join("run");
    let output = lab(&["run", word(&plan), "--to", word(&run), "--no-stacks"]);
    let kept = measured(&run).len();
    let unmounted = Command::new("umount").arg(&small).status().expect("started");
    assert!(unmounted.success());
    let (code, line) = refused(&output);
    assert_eq!((code, kept), (Some(2), 1), "{line}");
    assert!(line.to_lowercase().contains("space"), "{line}");
}

#[test]
fn a_dry_run_says_what_would_be_refused_and_a_run_is_not_written_over() {
    let _machine = beside();
    let place = tempfile::tempdir().expect("a directory");
    std::fs::write(place.path().join("a"), noise(1 << 20)).expect("written");
    let plan = plan(place.path(), &[("a", "rr-4k"), ("none", "rr-4k")]);
    let (code, line) = refused(&lab(&["run", word(&plan), "--dry-run"]));
    assert_eq!(code, Some(2), "{line}");
    assert!(line.contains("is not there"), "{line}");
    let run = place.path().join("run");
    std::fs::create_dir(&run).expect("made");
    std::fs::write(run.join("run.json"), "{}").expect("written");
    let member = place.path().join("a");
    let members = ["--member", word(&member)].repeat(4);
    let words = [&["compare", "btrfs", "mdadm", "--to", word(&run)], &members[..]].concat();
    let (code, line) = refused(&lab(&words));
    assert_eq!(code, Some(1), "{line}");
    assert!(line.contains("holds a run already"), "{line}");
    assert!(!run.join("evidence.jsonl").exists(), "nothing was changed");
}
