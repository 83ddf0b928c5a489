//! The real binary: a planted slow member is named, a planted sparse area is refused, and each kind
//! of bad input gets one clear line, keeps what was measured and exits with something other than 0.
//!
//! What must stay true: nothing here asserts how fast anything was; a test that cannot run says why
//! and is counted by name.

use crate::devices::{Loops, Throttle};
use crate::program::{LAB, said, word};
use crate::{Place, beside, checks, lab, listed, measured, skipped, stage};
use ashlar_lab::validity::{Mark, Outcome};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The one line that the lab says about a refusal, with this exit code.
fn refused(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("ashlar-lab: ")).collect();
    assert_eq!(lines.len(), 1, "one clear line, not: {said}");
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(output.status.code(), Some(code), "{said}");
    lines[0].to_owned()
}

/// Bytes without holes and without repetition.
fn noise(bytes: u64) -> Vec<u8> {
    let (random, mut noise) = (std::fs::File::open("/dev/urandom").expect("there"), Vec::new());
    random.take(bytes).read_to_end(&mut noise).expect("read");
    noise
}

/// A plan that reads each of these files alone for a second, in order; `hook` is what takes a
/// member of the last one out, to be measured again.
fn plan(place: &Place, files: &[&str], hook: Option<&str>) -> PathBuf {
    let array = |name: &&str| format!("[[arrays]]\npath = {:?}\n", place.path(name));
    let arrays: String = files.iter().map(array).collect();
    let (hook, degraded) = match hook {
        Some(hook) => (format!("take_out = [[\"sh\", \"-c\", \"{hook}\"]]\n"), "degraded"),
        None => (String::new(), ""),
    };
    let stages: String = ["array.sweep", degraded]
        .iter()
        .filter(|kind| !kind.is_empty())
        .map(|kind| stage(kind, "rr-4k"))
        .collect();
    place.plan(&(arrays + &hook + &stages))
}

#[test]
fn a_throttled_member_among_ten_is_named() {
    let _machine = beside();
    needs_root!("fio", "losetup");
    let (place, content) = (Place::new(), noise(8 << 20));
    let files: Vec<PathBuf> = (0..10).map(|at| place.file(&format!("d{at}"), &content)).collect();
    let Some(loops) = Loops::over(&files) else {
        return skipped("no ten loop devices");
    };
    let slow = &loops.0[6];
    // Ten I/Os a second: slower than any device of any machine that this runs on.
    let throttle = match Throttle::reads(std::slice::from_ref(slow), 40_960) {
        Ok(throttle) => throttle,
        Err(error) => return skipped(&format!("no control group for I/O: {error}")),
    };
    let drives: Vec<PathBuf> = loops.0.iter().map(PathBuf::from).collect();
    let plan = place.plan(&format!("drives = {}\n{}", listed(&drives), stage("raw.all", "rr-4k")));
    let run = place.run();
    let shell = "echo $$ > \"$1/cgroup.procs\" && exec \"$2\" run \"$3\" --to \"$4\"";
    let output = Command::new("sh")
        .args(["-c", shell, "sh"])
        .args([&throttle.group, Path::new(LAB), &plan, &run])
        .output()
        .expect("started");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
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

#[test]
fn reading_what_was_never_written_is_no_benchmark() {
    let _machine = beside();
    needs!("fio");
    // Its middle was never written.
    let place = Place::new();
    let file = std::fs::File::create(place.path("sparse")).expect("made");
    (&file).write_all(&noise(1 << 20)).expect("written");
    file.set_len(16 << 20).expect("longer");
    plan(&place, &["sparse"], None);
    let (output, run) = (place.ran(&[]), place.run());
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let figure = measured(&run).remove(0);
    assert_eq!(Mark::of(&figure.findings), Mark::Invalid);
    assert!(figure.findings.iter().any(|finding| finding.rule == "L08"), "{:?}", figure.findings);
    let report = lab(&["report", word(&run)]);
    assert!(said(&report).contains("1 figures, 1 invalid"), "{}", said(&report));
}

#[test]
fn a_truncated_result_and_a_file_that_is_none_are_one_line_and_garbage_before_one_is_passed_over() {
    let _machine = beside();
    let (place, whole) = (Place::new(), include_str!("../fio/two_jobs.json"));
    let lint = |content: &[u8]| lab(&["lint", word(&place.file("result.json", content))]);
    let line = refused(&lint(&whole.as_bytes()[..whole.len() / 2]), 2);
    assert!(line.contains("truncated") || line.contains("ends in the middle"), "{line}");
    let output = lint(format!("fio: this is no JSON\nnor this\n{whole}").as_bytes());
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    refused(&lint(b"\xff\xfe{ \x00 ]"), 2);
}

#[test]
fn a_missing_tool_is_named_with_the_package_to_install() {
    let _machine = beside();
    let place = Place::new();
    place.file("a", noise(1 << 20));
    let (plan, run) = (plan(&place, &["a"], None), place.run());
    let measure = ["run", word(&plan), "--to", word(&run), "--no-stacks"];
    for (words, tool) in [(&measure[..], "fio"), (&["cpu", "--seconds", "1"], "perf")] {
        let path = place.path("no-programs");
        let output = Command::new(LAB).args(words).env("PATH", path).output().expect("started");
        let line = refused(&output, 2);
        assert!(line.contains(tool) && line.contains("install"), "{line}");
    }
}

#[test]
fn without_permission_it_is_one_line_and_nothing_is_begun() {
    let _machine = beside();
    refused(&lab(&["report", "/proc/1/no-run-here"]), 2);
    needs_root!("setpriv", "perf");
    let place = Place::new();
    place.file("a", noise(1 << 20));
    let (plan, run) = (plan(&place, &["a"], None), place.run());
    // The directory is root's: whoever else asks cannot make a run in it.
    let copy = place.path("lab");
    // By another process: one that a test beside starts meanwhile would have it open (ETXTBSY).
    assert!(Command::new("cp").args([Path::new(LAB), &copy]).status().expect("started").success());
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.0.path(), open).expect("others may look");
    let as_nobody = |words: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&copy)
            .args(words)
            .env("TMPDIR", "/tmp")
            .output()
            .expect("started")
    };
    let line = refused(&as_nobody(&["run", word(&plan), "--to", word(&run)]), 2);
    assert!(line.contains("ermission"), "{line}");
    assert!(!run.exists());
    let output = as_nobody(&["cpu", "--seconds", "1"]);
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    if paranoid.is_ok_and(|level| level.trim().parse::<i32>().is_ok_and(|level| level > 0)) {
        let line = refused(&output, 2);
        assert!(line.contains("may not sample") && line.contains("root"), "{line}");
    }
}

#[test]
fn a_target_that_vanishes_in_the_middle_ends_the_run_and_what_was_measured_stays() {
    let _machine = beside();
    needs!("fio");
    let place = Place::new();
    let [_, gone] = ["a", "b"].map(|name| place.file(name, noise(1 << 20)));
    // The second one goes when the first one has been measured.
    plan(&place, &["a", "b"], Some(&format!("rm {}", gone.display())));
    let line = refused(&place.ran(&[]), 2);
    assert_eq!(measured(&place.run()).len(), 2, "both healthy figures: {line}");
    assert!(lab(&["report", word(&place.run())]).status.success());
}

#[test]
fn a_disk_that_fills_up_ends_the_run_in_one_line_and_what_was_measured_stays() {
    let _machine = beside();
    needs_root!("fio", "mount");
    let place = Place::new();
    place.file("a", noise(1 << 20));
    let small = place.path("small");
    std::fs::create_dir(&small).expect("made");
    let tmpfs = ["-t", "tmpfs", "-o", "size=40m", "none"];
    let mounted = Command::new("mount").args(tmpfs).arg(&small).status().expect("started");
    if !mounted.success() {
        return skipped("no tmpfs");
    }
    let fill = format!("head -c 39m /dev/zero > {} || true", small.join("full").display());
    let (plan, run) = (plan(&place, &["a"], Some(&fill)), small.join("run"));
    let output = lab(&["run", word(&plan), "--to", word(&run), "--no-stacks"]);
    let kept = measured(&run).len();
    let unmounted = Command::new("umount").arg(&small).status().expect("started");
    assert!(unmounted.success());
    let line = refused(&output, 2);
    assert!(kept == 1 && line.to_lowercase().contains("space"), "{kept}: {line}");
}

#[test]
fn a_dry_run_says_what_would_be_refused_and_a_run_is_not_written_over() {
    let _machine = beside();
    let place = Place::new();
    let member = place.file("a", noise(1 << 20));
    let plan = plan(&place, &["a", "none"], None);
    let line = refused(&lab(&["run", word(&plan), "--dry-run"]), 2);
    assert!(line.contains("is not there"), "{line}");
    place.file("run/run.json", "{}");
    let (run, members) = (place.run(), ["--member", word(&member)].repeat(4));
    let words = [&["compare", "btrfs", "mdadm", "--to", word(&run)], &members[..]].concat();
    let line = refused(&lab(&words), 1);
    assert!(line.contains("holds a run already"), "{line}");
    assert!(!run.join("evidence.jsonl").exists(), "nothing was changed");
}
