//! `ashlar bench --via`: it runs, its figures fit together, and nothing is left behind.

use crate::tools::{skipped, wait_for};
use crate::world::World;
use serde_json::Value;
use std::path::Path;

/// Small enough for a test.
const SMALL: [&str; 12] = [
    "--span",
    "16M",
    "--seconds",
    "1",
    "--turns",
    "1",
    "--raid-devices",
    "4",
    "--workers",
    "2",
    "--random",
    "--json",
];

fn measured(world: &World, via: &str, more: &[&str]) -> Value {
    let told = world.ok(&[&["bench", "--via", via], &SMALL[..], more].concat());
    serde_json::from_str(&told).expect("JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// That the figures are there and do not contradict each other.
fn check(result: &Value, via: &str, more: &[&str]) {
    let told = format!("{via} {more:?}: {result}");
    let (engine, export) = (&result["engine"], &result["export"]);
    assert_eq!(result["via"], via, "{told}");
    for side in [engine, export] {
        assert!(number(&side["requests_per_second"]) > 0.0, "{told}");
        assert!(number(&side["cpu_ns_per_request"]) > 0.0, "{told}");
        assert!(number(&side["us_p50"]) <= number(&side["us_p99"]), "{told}");
    }
    assert!(number(&export["us_p50"]) > 0.0, "{told}");
    // One turn: the difference is that of the two figures.
    let beyond = number(&export["cpu_ns_per_request"]) - number(&engine["cpu_ns_per_request"]);
    assert!((number(&export["beyond_engine_ns_per_request"]) - beyond).abs() < 1.0, "{told}");
    assert!(number(&export["operations_per_request"]) > 0.0, "a request arrives: {told}");
    assert!(number(&export["system_calls_per_request"]) > 0.0, "{told}");
    let sleeps = number(&export["sleeps_per_request"]);
    assert!(sleeps <= number(&export["system_calls_per_request"]), "{told}");
    for peer in result["peers"].as_array().expect("a list") {
        let ratio = number(&export["requests_per_second"]) / number(&peer["requests_per_second"]);
        assert!((number(&peer["export_over_peer"]) - ratio).abs() < 1e-6, "{told}");
    }
}

/// That no folder of the measurement is left in the temporary folder of this test.
fn check_nothing_left(folder: &Path) {
    let left: Vec<_> = std::fs::read_dir(folder).expect("there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Reads and writes, small and large, one and several at once.
fn check_all(via: &str) {
    let world = World::without_daemon();
    let temporary = world.path("temporary");
    std::fs::create_dir(&temporary).expect("made");
    for more in [
        &["--depth", "4"][..],
        &["--depth", "1", "--write"],
        &["--depth", "2", "--write", "--bytes", "1M"],
        &["--depth", "2", "--bytes", "128K"],
    ] {
        let mut command = world.command();
        command.args(["bench", "--via", via]).args(SMALL).args(more).env("TMPDIR", &temporary);
        let output = command.output().expect("the program runs");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{via} {more:?}: {complaint}");
        check(&serde_json::from_slice(&output.stdout).expect("JSON"), via, more);
        check_nothing_left(&temporary);
    }
}

#[test]
fn what_nbd_costs_is_told_with_figures_that_fit_together() {
    check_all("nbd");
}

#[test]
fn what_vhost_user_costs_is_told_with_figures_that_fit_together() {
    check_all("vhost-user");
}

#[test]
fn what_nvme_tcp_costs_is_told_with_figures_that_fit_together() {
    check_all("nvme-tcp");
}

#[test]
fn what_a_fuse_file_costs_is_told_with_figures_that_fit_together() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        return skipped("what_a_fuse_file_costs", "needs root and /dev/fuse");
    }
    check_all("fuse");
}

#[test]
fn an_interrupted_measurement_takes_away_what_it_made() {
    let world = World::without_daemon();
    let temporary = world.path("temporary");
    std::fs::create_dir(&temporary).expect("made");
    let mut command = world.command();
    command.args(["bench", "--via", "nbd", "--span", "16M", "--seconds", "2", "--turns", "99"]);
    command.env("TMPDIR", &temporary).stderr(std::process::Stdio::piped());
    let bench = command.spawn().expect("the program runs");
    // The socket is there once the daemon serves its volume.
    let socket = temporary.join(format!("ashlar-bench-{}/nbd.sock", bench.id()));
    wait_for("the daemon of the measurement", || socket.exists());
    let id = rustix::process::Pid::from_child(&bench);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
    let output = bench.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("the measurement is not complete: it was interrupted"), "{told}");
    check_nothing_left(&temporary);
}

#[test]
fn what_is_not_here_is_refused_and_nothing_is_started() {
    let world = World::without_daemon();
    let output = world.run(&["bench", "--via", "nbd", "--bytes", "1M", "--span", "1M"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("do not fit the span"), "{told}");
    if Path::new("/dev/ublk-control").exists() {
        let _here = measured(&world, "ublk", &["--depth", "4"]);
        return;
    }
    let output = world.run(&["bench", "--via", "ublk", "--span", "16M"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("ublk"), "{told}");
}
