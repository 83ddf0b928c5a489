//! Accounts of this machine while it runs. These need root, perf and tracefs; one that cannot run
//! says why and is counted by name.
//!
//! What must stay true: nothing here asserts how fast anything was; samples are compared with the
//! kernel's own account of the same interval.

use crate::devices::Loop;
use crate::program::LAB;
use crate::{Place, alone, lab, skipped};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Sampling is chance, and the machine is not ours alone: a comparison may fail by either. It is
/// made anew until it holds, so often that only an account that is wrong every time fails; each
/// failure is said.
const ATTEMPTS: usize = 10;

fn holds_once(compare: impl Fn() -> Result<(), String>) {
    let mut said = Vec::new();
    for _ in 0..ATTEMPTS {
        match compare() {
            Ok(()) => return,
            Err(why) => said.push(why),
        }
    }
    panic!("wrong {ATTEMPTS} times: {said:#?}");
}

#[test]
fn a_load_on_one_core_is_seen_on_one_core_as_long_as_it_ran() {
    let _machine = alone();
    needs_root!("perf", "taskset", "timeout");
    let (folder, burn) = (Place::new(), "while :; do :; done");
    // What its shell says of its children on its second line, user and system.
    let script = format!("timeout 4 sh -c '{burn}'; times > {}/ran", folder.0.path().display());
    holds_once(|| {
        let account =
            json(&lab(&["--json", "cpu", "--", "taskset", "-c", "0", "sh", "-c", &script]));
        let told = std::fs::read_to_string(folder.path("ran")).expect("times");
        let ran_s: f64 = told.split_whitespace().skip(2).filter_map(seconds).sum();
        assert!(ran_s > 0.1, "it did not run: {told}");
        let (threads, window) = (&account["threads"], &account["sampling"]["window"]);
        let threads = threads.as_array().expect("threads").iter();
        let cores: f64 =
            threads.filter(|it| it["name"] == "sh").filter_map(|it| it["cores"].as_f64()).sum();
        let seen_s = cores * window["seconds"].as_f64().expect("seconds");
        let is_close = (seen_s - ran_s).abs() <= 0.2;
        is_close.then_some(()).ok_or_else(|| format!("{seen_s} s seen, {ran_s} s ran: {account}"))
    });
}

/// `0m3.990000s`, as the shell prints it.
fn seconds(word: &str) -> Option<f64> {
    let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
    Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
}

#[test]
fn a_command_that_is_missing_or_fails_is_one_clear_line() {
    let _machine = alone();
    needs_root!("perf");
    for command in ["/nonexistent/program", "false"] {
        let output = lab(&["cpu", "--", command]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{command}: {said}");
    }
}

#[test]
fn without_perf_it_is_one_clear_line() {
    let _machine = alone();
    let output = Command::new(LAB)
        .args(["cpu", "--seconds", "1"])
        .env("PATH", "/nonexistent")
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("perf cannot be started"), "{said}");
}

#[test]
fn large_direct_writes_to_a_loop_device_are_shown_split_off_the_stripe() {
    let _machine = alone();
    needs_root!("losetup", "dd");
    let folder = Place::new();
    let Some(device) = Loop::of(&folder.path("backing"), 64 << 20) else { return };
    let target = format!("of={}", device.0);
    let words = ["--json", "trace", &device.0, "--strip", "64K", "--stripe-data", "2560K", "--"];
    let load =
        ["dd", "if=/dev/zero", &target, "bs=2560K", "count=20", "oflag=direct", "status=none"];
    let account = json(&lab(&[&words[..], &load[..]].concat()));
    let (device, number) = (&account["device"], |value: &Value| value.as_u64().expect("a number"));
    let (submitted, issued) = (&device["submitted_writes"], &device["issued_writes"]);
    assert_eq!(account["lost"], 0);
    assert_eq!(number(&submitted["bytes"]), 20 * 2560 * 1024, "{account}");
    assert_eq!(submitted["bytes"], issued["bytes"], "{account}");
    assert!(
        number(&issued["ios"]) > number(&submitted["ios"]) || number(&device["splits"]) > 0,
        "{account}"
    );
    // The program wrote a whole stripe at a time: wherever the kernel cuts, it cuts inside one.
    assert!(number(&issued["off_stripe"]) > 0, "{account}");
    assert!(device["limits"]["max_segments"].is_string(), "{account}");
    // Tests of other runs may have one at this moment; ours ended with its process.
    let instances = std::fs::read_dir("/sys/kernel/tracing/instances").expect("tracefs");
    let is_left = |it: std::fs::DirEntry| {
        let name = it.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("ashlar-lab-");
        pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    };
    assert!(!instances.flatten().any(is_left), "a trace instance was left behind");
}

#[test]
fn an_engine_s_work_in_a_client_s_context_is_seen_live_on_btrfs() {
    let _machine = alone();
    needs_root!("perf", "losetup", "mkfs.btrfs", "dd");
    let folder = Place::new();
    let Some(device) = Loop::of(&folder.path("backing"), 512 << 20) else { return };
    let mount = folder.path("mount");
    std::fs::create_dir(&mount).expect("a folder");
    let run = |words: &[&str]| {
        Command::new(words[0]).args(&words[1..]).output().is_ok_and(|it| it.status.success())
    };
    let at = mount.display().to_string();
    if !run(&["mkfs.btrfs", "-q", &device.0]) || !run(&["mount", "-t", "btrfs", &device.0, &at]) {
        skipped("no btrfs in this kernel");
        return;
    }
    let target = format!("of={at}/file");
    let words = ["--json", "cpu", "--hz", "997", "--", "dd", "if=/dev/zero", &target];
    let output = lab(&[&words[..], &["bs=64K", "count=6000", "status=none"]].concat());
    assert!(run(&["umount", &at]), "still mounted");
    let account = json(&output);
    let groups = account["groups"].as_array().expect("groups");
    let btrfs = groups.iter().find(|group| group["name"] == "btrfs").expect("btrfs was seen");
    assert!(
        btrfs["contexts"]["client"]["share"].as_f64().is_some_and(|share| share > 0.0),
        "{btrfs}"
    );
    let client = account["client"]["share"].as_f64().expect("a number");
    assert!(client > 0.0, "dd is the client: {account}");
}
