//! The forensic log at work: limits, interruptions, crashes, full disks, changed files.

use super::log::{entries, sha256};
use super::{Evidence, Exit, Interrupt, Order, verify};
use std::fs;
use std::path::Path;
use std::time::Duration;

fn open(dir: &Path) -> Evidence {
    Evidence::open(dir, Interrupt::default()).unwrap()
}

fn sh(script: &str) -> Order {
    Order::new(["sh", "-c", script], "a test")
}

fn logged(dir: &Path) -> Vec<super::log::Entry> {
    let (entries, unreadable) = entries(&fs::read_to_string(dir.join("evidence.jsonl")).unwrap());
    assert_eq!(unreadable, 0);
    entries
}

/// Whether a process goes on running: a killed one takes a moment to go, on a busy machine.
fn stays(pid: &str) -> bool {
    (0..10_000_000).all(|_| {
        std::thread::yield_now();
        is_running(pid)
    })
}

/// Whether a process runs; one that has ended and waits to be reaped does not.
fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

#[test]
fn a_command_leaves_its_outputs_and_their_hashes() {
    let dir = tempfile::tempdir().unwrap();
    let evidence = open(dir.path());
    // Its input is closed: nothing waits for an answer.
    let ran = evidence.run(&sh("read answer || echo out; echo err >&2; exit 3")).unwrap();
    assert_eq!(ran.entry.exit, Exit::Code(3));
    assert_eq!(ran.stdout().unwrap(), b"out\n");
    assert_eq!(ran.complaint(), "err");
    assert_eq!(ran.entry.stdout.sha256, sha256(b"out\n"));
    // From coreutils' sha256sum, so that hash and hexadecimal notation are checked against another
    // program.
    assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(logged(dir.path()), [ran.entry]);
    let verified = verify(dir.path()).unwrap();
    assert_eq!(
        (verified.commands, verified.files, verified.problems.len()),
        (1, 2, 0),
        "{verified:?}"
    );
}

#[test]
fn nothing_that_a_command_started_outlives_its_end_or_its_time_limit() {
    let dir = tempfile::tempdir().unwrap();
    let evidence = open(dir.path());
    for (script, exit) in [("wait", Exit::TimeLimit(5)), ("true", Exit::Code(0))] {
        let order = sh(&format!("sleep 1000 & echo $!; {script}")).limit(Duration::from_secs(5));
        let ran = evidence.run(&order).unwrap();
        assert_eq!(ran.entry.exit, exit);
        assert!(!stays(&String::from_utf8(ran.stdout().unwrap()).unwrap()));
    }
}

#[test]
fn an_interruption_and_a_missing_program_are_written_down_too() {
    let dir = tempfile::tempdir().unwrap();
    let interrupt = Interrupt::default();
    let evidence = Evidence::open(dir.path(), interrupt.clone()).unwrap();
    interrupt.raise();
    let order = sh("trap 'echo asked; exit 0' TERM; echo begun; while :; do sleep 0.01; done");
    let ran = evidence.run(&order).unwrap();
    assert_eq!(ran.entry.exit, Exit::Interrupted);
    let ran = evidence.run(&Order::new(["/nonexistent/tool"], "a test")).unwrap();
    assert!(matches!(&ran.entry.exit, Exit::NotStarted(why) if why.contains("No such file")));
    assert_eq!(logged(dir.path()).len(), 2);
}

#[test]
fn numbers_go_on_after_a_crash_and_the_command_of_the_crash_has_its_line() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).run(&sh("echo one")).unwrap();
    let folder = dir.path().join("evidence");
    let begun = r#"{"n":2,"why":"cut off","began_unix_s":5.0,"argv":["fio","a"]}"#;
    fs::write(folder.join("00002-fio.begun"), begun).unwrap();
    fs::write(folder.join("00002-fio.stdout"), "half an out").unwrap();
    let mut log =
        fs::OpenOptions::new().append(true).open(dir.path().join("evidence.jsonl")).unwrap();
    std::io::Write::write_all(&mut log, b"{\"n\":2,\"why\":\"tor").unwrap();
    drop(log);

    let ran = open(dir.path()).run(&sh("echo three")).unwrap();
    assert_eq!(ran.entry.n, 3);
    let text = fs::read_to_string(dir.path().join("evidence.jsonl")).unwrap();
    let (found, unreadable) = entries(&text);
    assert_eq!(unreadable, 1, "the torn line stays");
    assert_eq!(found.iter().map(|entry| entry.n).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(found[1].exit, Exit::Abandoned);
    assert_eq!(found[1].stdout.sha256, sha256(b"half an out"));
    assert!(!folder.join("00002-fio.begun").exists());
}

#[test]
fn what_a_killed_lab_left_running_is_ended_and_a_stranger_of_that_number_is_not() {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("evidence");
    fs::create_dir_all(&folder).unwrap();
    let mut children: Vec<_> = (0..2)
        .map(|_| std::process::Command::new("sleep").arg("1000").process_group(0).spawn().unwrap())
        .collect();
    for (n, (child, seconds)) in children.iter().zip(["1000", "999"]).enumerate() {
        let n = n + 1;
        let begun = format!(
            "{{\"n\":{n},\"why\":\"a test\",\"began_unix_s\":5.0,\"argv\":[\"sleep\",\
             \"{seconds}\"],\"pid\":{}}}",
            child.id()
        );
        fs::write(folder.join(format!("0000{n}-sleep.begun")), begun).unwrap();
    }
    // A parent goes on a moment before the kernel knows its child's new command line.
    let command_line =
        |child: &std::process::Child| fs::read(format!("/proc/{}/cmdline", child.id()));
    while children.iter().any(|child| command_line(child).unwrap().is_empty()) {
        std::thread::yield_now();
    }
    open(dir.path());
    let orphan = children[0].wait().unwrap();
    let stranger = children[1].try_wait().unwrap();
    children[1].kill().unwrap();
    children[1].wait().unwrap();
    assert_eq!((orphan.signal(), stranger), (Some(9), None));
}

#[test]
fn two_labs_do_not_write_to_one_directory() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let refusal = Evidence::open(dir.path(), Interrupt::default()).unwrap_err();
    assert_eq!((refusal.code.as_str(), refusal.exit_code()), ("run.in_use", 2));
    drop(first);
    open(dir.path());
}

#[test]
fn verification_names_each_file_that_is_not_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let evidence = open(dir.path());
    for _ in 0..3 {
        evidence.run(&sh("echo out; echo err >&2")).unwrap();
    }
    drop(evidence);
    let folder = dir.path().join("evidence");
    fs::write(folder.join("00001-sh.stdout"), "OUT\n").unwrap();
    fs::write(folder.join("00002-sh.stdout"), "out\nmore\n").unwrap();
    fs::remove_file(folder.join("00003-sh.stderr")).unwrap();
    fs::write(folder.join("stranger"), "").unwrap();
    let found = verify(dir.path()).unwrap().problems;
    let expected = [
        ("00001-sh.stdout", "content changed"),
        ("00002-sh.stdout", "9 bytes, 4 were written"),
        ("00003-sh.stderr", "No such file"),
        ("stranger", "no command of the log made it"),
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (problem, (file, what)) in found.iter().zip(expected) {
        assert!(problem.contains(file) && problem.contains(what), "{problem}");
    }
}

#[test]
fn nothing_is_started_on_a_disk_that_is_nearly_full() {
    let dir = tempfile::tempdir().unwrap();
    let evidence = Evidence::open_with(dir.path(), Interrupt::default(), u64::MAX).unwrap();
    let refusal = evidence.run(&sh("echo out")).unwrap_err();
    assert_eq!(refusal.code, "disk.full");
    assert!(logged(dir.path()).is_empty());
}
