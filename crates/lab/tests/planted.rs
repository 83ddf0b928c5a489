//! The real binary against planted things: a result above what the drives can do, a drive that is purged, a write-cache matrix.
//!
//! What must stay true: nothing here asserts how fast anything was; a test that cannot run says why and is counted by name.
#![forbid(unsafe_code)]

mod devices;

use ashlar_lab::record::{ArrayCondition, Check, Measurement, Record};
use ashlar_lab::store::RunDir;
use ashlar_lab::validity::{Mark, Outcome};
use devices::{Loops, Throttle};
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
        Loop::of(test, file, 8 << 20)
    }

    fn of(test: &str, file: &Path, bytes: usize) -> Option<Loop> {
        if !rustix::process::geteuid().is_root() {
            skipped(test, "not root");
            return None;
        }
        std::fs::write(file, vec![0xa5; bytes]).expect("written");
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

/// Two devices whose reads the page cache answers, against members whose reads are throttled: what `compare` then says of both.
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
    words.extend([
        a.as_str(),
        b.as_str(),
        "--dir",
        word(&run),
        "--level",
        "raid5",
        "--losses",
        "0",
    ]);
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

#[test]
fn a_device_that_was_handed_over_is_not_overwritten_unless_it_is_named() {
    let place = tempfile::tempdir().expect("a directory");
    let files: Vec<PathBuf> =
        ["m0", "m1", "m2", "taken"].map(|name| place.path().join(name)).into();
    files.iter().for_each(|file| std::fs::write(file, vec![0; 8 << 20]).expect("written"));
    let taken = &files[3];
    let made = Command::new("mkswap").arg(taken).output();
    if !made.is_ok_and(|output| output.status.success()) {
        return skipped(
            "a_device_that_was_handed_over_is_not_overwritten_unless_it_is_named",
            "no mkswap",
        );
    }
    let device = format!("device:{}", word(taken));
    let members: Vec<&str> = files[..3].iter().flat_map(|file| ["--member", word(file)]).collect();
    for engines in [["btrfs", &device], [&device, "btrfs"]] {
        let words =
            [&["compare"], &engines[..], &["--level", "raid5", "--dry-run"], &members].concat();
        let output = lab(&words);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(
            said(&output).contains("swap") && said(&output).contains("--destroy"),
            "{}",
            said(&output)
        );
        let named = lab(&[&words[..], &["--destroy", word(taken)]].concat());
        assert!(named.status.success(), "{}", said(&named));
        // In earnest, too: nothing is begun, and what was on it is still there.
        let before = std::fs::read(taken).expect("readable");
        let run = place.path().join("run");
        let earnest: Vec<&str> =
            words.iter().copied().filter(|word| *word != "--dry-run").collect();
        let begun = lab(&[&earnest[..], &["--dir", word(&run), "--no-stacks"]].concat());
        assert_eq!(begun.status.code(), Some(1), "{}", said(&begun));
        assert!(said(&begun).contains("carries swap; nothing was written"), "{}", said(&begun));
        assert!(std::fs::read(taken).expect("readable") == before, "untouched");
        assert!(!run.join("run.json").exists(), "no run was begun");
        let _the_log_of_what_was_looked_at = std::fs::remove_dir_all(&run);
    }
}

/// The whole stage on a real device: merging off and on, each state a figure of its own, as it was afterwards, and side by side in the report.
#[test]
fn merging_of_a_real_device_is_switched_measured_and_restored() {
    let test = "merging_of_a_real_device_is_switched_measured_and_restored";
    let place = tempfile::tempdir().expect("a directory");
    if !has_fio(test) {
        return;
    }
    let Some(device) = Loop::over(test, &place.path().join("drive")) else { return };
    let file = format!("/sys/block/{}/queue/nomerges", device.0.trim_start_matches("/dev/"));
    let state = || std::fs::read_to_string(&file).expect("readable");
    let before = state();
    let plan = place.path().join("plan.toml");
    let text = format!(
        "question = \"q\"\nruntime_s = 1\nramp_s = 0\ndrives = [\"{}\"]\n[[stages]]\nkind = \"coalescing\"\n",
        device.0
    );
    std::fs::write(&plan, text).expect("written");
    let run = place.path().join("run");
    let output =
        lab(&["run", word(&plan), "--to", word(&run), "--no-stacks", "--destroy", &device.0]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(state(), before);
    let restored = checks(&run, "drive.merging_restored");
    assert_eq!((restored.len(), restored[0].outcome), (1, Outcome::Pass));
    let states: Vec<String> =
        measured(&run).iter().map(|it| it.engine.tunables["merging"].clone()).collect();
    assert_eq!(states, ["off", "off", "off", "on", "on", "on"]);
    let csv = place.path().join("r.csv");
    let html = place.path().join("r.html");
    let report = lab(&["report", word(&run), "--html", word(&html), "--csv", word(&csv)]);
    assert!(report.status.success(), "{}", said(&report));
    let table = std::fs::read_to_string(csv.with_extension("switches.csv")).expect("there");
    assert_eq!(table.lines().count(), 1 + 3, "one line for each load: {table}");
    assert!(table.contains("4K sequential writes, 1 x 32"), "{table}");
    let page = std::fs::read_to_string(&html).expect("there");
    assert!(
        page.contains("What does it change to switch it?") && page.contains("Switching merging on")
    );
}

#[test]
fn a_file_system_on_an_array_is_filled_and_measured_and_gone_afterwards() {
    let test = "a_file_system_on_an_array_is_filled_and_measured_and_gone_afterwards";
    let place = tempfile::tempdir().expect("a directory");
    let made = Loop::of(test, &place.path().join("array"), 64 << 20);
    let Some(array) = made.filter(|_| has_fio(test)) else { return };
    if Command::new("mkfs.ext4").arg("-V").output().is_err() {
        return skipped(test, "no mkfs.ext4");
    }
    let drives: Vec<String> = ["a", "b", "c"]
        .iter()
        .map(|name| {
            let path = place.path().join(name);
            std::fs::write(&path, vec![0x5a; 8 << 20]).expect("written");
            format!("{path:?}")
        })
        .collect();
    let stage = |kind: &str| {
        format!("[[stages]]\nkind = \"{kind}\"\nprofiles = [\"rr-4k\"]\ndepths = [1]\n")
    };
    // So slow that everything on the array is above them: they are measured again while the file system is mounted.
    let slow = "[raw]\nrw=randread\nbs=4k\nrate_iops=10\n";
    std::fs::write(place.path().join("slow.fio"), slow).expect("written");
    let text = format!(
        "question = \"what does a file system cost?\"\nruntime_s = 1\nramp_s = 0\nioengine = \"psync\"\ndrives = [{}]\n\
         [profiles]\nslow = \"slow.fio\"\n\
         [[arrays]]\npath = \"{}\"\nstrip = \"64k\"\ndata_members = 2\nfile_system = \"ext4\"\nspan = \"8m\"\n{}{}{}",
        drives.join(", "),
        array.0,
        stage("raw.all").replace("rr-4k", "slow"),
        stage("array.sweep"),
        stage("file-system").replace("\"rr-4k\"", "\"rr-4k\", \"buffered-1m\"")
    );
    let plan = place.path().join("plan.toml");
    std::fs::write(&plan, text).expect("written");
    let run = place.path().join("run");
    let refused = lab(&["run", word(&plan), "--to", word(&run), "--no-stacks"]);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(said(&refused).contains("say --destroy"), "it only reads, but a file system is made");
    let words = ["run", word(&plan), "--to", word(&run), "--no-stacks", "--destroy", &array.0];
    let output = lab(&words);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", said(&output));
    let all = measured(&run);
    let figure = all.iter().find(|it| it.condition == ArrayCondition::FileSystem);
    let figure = figure.expect("it was measured through a file system");
    assert!(figure.read.ios > 0 && figure.workload.name == "rr-4k-j1-q1", "{}", figure.id);
    assert!(figure.argv.iter().any(|word| word == "fio"), "{:?}", figure.argv);
    let buffered = all.iter().find(|it| it.workload.name == "buffered-1m-j1-q1").expect("measured");
    let told = buffered.findings.iter().find(|it| it.rule == "L01").expect("that it is buffered");
    assert!(told.reason.contains("memory answers first"), "{told:?}");
    assert!(!buffered.findings.iter().any(|it| it.rule == "L28"), "{:?}", buffered.findings);
    let raw: Vec<_> = all.iter().filter(|it| it.stage == "raw.all").collect();
    assert_eq!(raw.len(), 9, "once before, once after the array, once after the file system");
    for measured in raw {
        let jobs = measured.argv.last().expect("a job file");
        let jobs = std::fs::read_to_string(jobs).expect("kept");
        assert!(jobs.contains(&format!("filename={}\n", measured.target)), "{jobs}");
        assert!(!jobs.contains("measured"), "raw drives, not the file: {jobs}");
    }
    let filled = checks(&run, "file_system.filled");
    assert_eq!((filled.len(), filled[0].outcome), (1, Outcome::Pass), "{filled:?}");
    let mounts = std::fs::read_to_string("/proc/mounts").expect("readable");
    assert!(!mounts.contains(word(place.path())), "unmounted");
    let blank = Command::new("wipefs").args(["--noheadings", &array.0]).output().expect("started");
    assert!(blank.stdout.is_empty(), "no signature is left: {}", said(&blank));
    let report = lab(&["report", word(&run), "--markdown", word(&place.path().join("r.md"))]);
    assert!(report.status.success(), "{}", said(&report));
}

/// A program called `ior` that writes or reads its files slowly and prints the table of the real one, which no package here has.
const MADE_UP_IOR: &str = "#!/bin/sh\nfile=\nphase=read\nwhile [ $# -gt 0 ]; do case $1 in -o) file=$2; shift;; -w) phase=write;; esac; shift; done\n\
    if [ $phase = write ]; then head -c 1048576 /dev/urandom > \"$file.00000000\"; else cat \"$file.00000000\" > /dev/null || exit 1; fi\n\
    echo 'access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter'\n\
    if [ $phase = write ]; then rate=0.50; else rate=900000.00; fi\n\
    echo \"$phase     $rate    1.10    0.000970    1024    1024.00    0.000043   7.95       0.000034   2.00       0\"\n";

#[test]
fn ior_runs_after_raid_on_a_file_system_and_is_flagged_where_it_is_above_fio() {
    let test = "ior_runs_after_raid_on_a_file_system_and_is_flagged_where_it_is_above_fio";
    let place = tempfile::tempdir().expect("a directory");
    let made = Loop::of(test, &place.path().join("array"), 64 << 20);
    let Some(array) = made.filter(|_| has_fio(test)) else { return };
    let plan = place.path().join("plan.toml");
    let text = format!(
        "question = \"and IOR?\"\nruntime_s = 1\nramp_s = 0\nioengine = \"psync\"\n\
         [[arrays]]\npath = \"{}\"\nfile_system = \"ext4\"\nspan = \"1m\"\n\
         [[stages]]\nkind = \"array.sweep\"\nprofiles = [\"seq-read-1m\", \"seq-write-1m\"]\ndepths = [1]\n\
         [[stages]]\nkind = \"ior\"\n",
        array.0
    );
    std::fs::write(&plan, text).expect("written");
    let tools = place.path().join("tools");
    std::fs::create_dir(&tools).expect("made");
    let program = tools.join("ior");
    std::fs::write(&program, MADE_UP_IOR).expect("written");
    let runs = Command::new("chmod").arg("+x").arg(&program).status();
    assert!(runs.is_ok_and(|status| status.success()));
    let run = place.path().join("run");
    let path = std::env::var("PATH").expect("a path");
    let output = Command::new(LAB)
        .args(["run", word(&plan), "--to", word(&run), "--no-stacks", "--destroy", &array.0])
        .env("PATH", format!("{}:{path}", tools.display()))
        .output()
        .expect("started");
    let all: Vec<Measurement> = measured(&run);
    let of = |mix: &str| {
        let is_it = |it: &&Measurement| it.stage == "ior" && it.workload.mix == mix;
        all.iter().find(is_it).unwrap_or_else(|| panic!("no {mix}: {}", said(&output)))
    };
    let (writes, reads) = (of("write"), of("read"));
    assert_eq!((writes.write.bytes_per_s, writes.write.bytes), (524_288.0, 1 << 20));
    assert_eq!(Mark::of(&writes.findings), Mark::Valid, "{:?}", writes.findings);
    assert!(writes.argv.contains(&"-e".to_owned()) && !reads.argv.contains(&"-w".to_owned()));
    assert_eq!(Mark::of(&reads.findings), Mark::Invalid, "faster than any array: {reads:?}");
    assert!(reads.findings.iter().any(|finding| finding.rule == "F14"), "{:?}", reads.findings);
    let log = std::fs::read_to_string(run.join("evidence.jsonl")).expect("a log");
    let place_of = |what: &str| log.find(what).unwrap_or_else(|| panic!("no {what} in the log"));
    assert!(place_of("drop_caches") < log.rfind("\"-r\"").expect("IOR reads"), "before reads");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}
