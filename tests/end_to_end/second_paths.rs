//! The drives of a running array by other paths: loop devices over its files, as multipath gives a
//! drive two names.
//!
//! A second daemon started such an array within 0.15 s, and replayed its log under the first.

use crate::raw_nbd::RawNbd;
use crate::tools::{all_here, run, skipped};
use crate::world::World;
use std::process::{Command, Stdio};

/// Loop devices, detached when dropped.
struct Loops(Vec<String>);

impl Loops {
    /// One over each of these files of the world.
    fn over(world: &World, names: &[String]) -> Loops {
        let one = |name: &String| {
            let file = world.path(name);
            run("losetup", &["--find", "--show", file.to_str().expect("text")]).trim().to_owned()
        };
        Loops(names.iter().map(one).collect())
    }

    fn names(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.0 {
            let detach = Command::new("/usr/sbin/losetup").args(["--detach", device]).status();
            // After a failed test it may be gone already.
            let _gone = detach;
        }
    }
}

fn has_loops(test: &str) -> bool {
    let is_able =
        rustix::process::geteuid().is_root() && std::path::Path::new("/dev/loop-control").exists();
    if !is_able {
        skipped(test, "needs root and loop devices");
    }
    is_able && all_here(test, &["losetup"])
}

/// The number of the daemon's process.
fn process_of(world: &World) -> u64 {
    let status: serde_json::Value =
        serde_json::from_str(&world.ok(&["status", "--json"])).expect("JSON");
    status["process_id"].as_u64().expect("a number")
}

fn block(seed: u8) -> Vec<u8> {
    vec![seed; 4096]
}

#[test]
fn an_array_that_runs_is_not_started_by_another_daemon_through_other_paths_to_its_drives() {
    let test =
        "an_array_that_runs_is_not_started_by_another_daemon_through_other_paths_to_its_drives";
    if !has_loops(test) {
        return;
    }
    let mut first = World::new();
    let names = first.create("tank0", 4, &["--level", "5"]);
    RawNbd::open(&first, "tank0").write(0, &block(1)).expect("written");
    let loops = Loops::over(&first, &names);
    let mut second = World::new();
    for dry_run in [&["--dry-run"][..], &[]] {
        let line = second.refused(&[&["assemble"], dry_run, &loops.names()].concat());
        let process = format!("is running in process {} on host", process_of(&first));
        assert!(line.contains("array 'tank0'") && line.contains(&process), "{line}");
        assert!(line.contains("nothing was written"), "{line}");
    }
    assert_eq!(first.array()["state"], "clean");
    assert_eq!(first.array()["taken_over_by"], serde_json::Value::Null);
    RawNbd::open(&first, "tank0").write(4096, &block(2)).expect("written");
    // What was killed and had the files open is waited for by whoever opens something else.
    first.kill();
    second.ok(&[&["assemble"], &loops.names()[..]].concat());
    let mut client = RawNbd::open(&second, "tank0");
    assert!(client.read(0, 4096).expect("readable") == block(1));
    assert!(client.read(4096, 4096).expect("readable") == block(2));
    drop(client);
    // By the files it is refused now.
    first.start(&[]);
    let files: Vec<&str> = names.iter().map(String::as_str).collect();
    let line = first.refused(&[&["assemble"], &files[..]].concat());
    assert!(line.contains(&format!("is running in process {}", process_of(&second))), "{line}");
    second.ok(&["stop", "tank0"]);
    second.end();
}

#[test]
fn a_link_to_a_member_is_that_member() {
    let first = World::new();
    let names = first.create("tank0", 3, &["--level", "5"]);
    let links: Vec<String> = names.iter().map(|name| format!("{name}-link")).collect();
    for (name, link) in names.iter().zip(&links) {
        std::fs::hard_link(first.path(name), first.path(link)).expect("linked");
    }
    let second = World::new();
    let paths: Vec<String> = links.iter().map(|it| first.path(it).display().to_string()).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let line = second.refused(&[&["assemble"], &paths[..]].concat());
    assert!(line.contains("in use: open in process"), "{line}");
}

/// A process that was stopped by a signal says nothing, and goes on as soon as it is let.
#[test]
fn a_daemon_that_is_stopped_by_a_signal_still_has_its_array() {
    let test = "a_daemon_that_is_stopped_by_a_signal_still_has_its_array";
    if !has_loops(test) {
        return;
    }
    let first = World::new();
    let names = first.create("tank0", 3, &["--level", "5"]);
    let loops = Loops::over(&first, &names);
    let second = World::new();
    let process = process_of(&first).to_string();
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &process]).stdin(Stdio::null()).status();
        assert!(sent.expect("kill is everywhere").success());
    };
    signal("-STOP");
    let line = second.refused(&[&["assemble"], &loops.names()[..]].concat());
    signal("-CONT");
    assert!(line.contains(&format!("is running in process {process} on host")), "{line}");
    assert_eq!(first.array()["state"], "clean");
}
