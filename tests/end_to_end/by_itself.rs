//! Arrays that start by themselves, wait for members, and take them back; and those that do not.

use crate::tools::{skipped, wait_for};
use crate::trusted_files::with_wipefs;
use crate::world::{MEMBER_BYTES, World};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const CONFIG: &str = "[start]\nscan = true\ndevices = [\"m*\"]\ngrace_s = 1\n";

/// Start by this configuration.
fn start_by(world: &mut World, command: Command, remembers: bool) {
    let devices = world.path("m*").display().to_string();
    let mut config = CONFIG.replace("m*", &devices);
    config.push_str(&format!("remember = {remembers}\n"));
    let file = world.path("ashlar.toml");
    std::fs::write(&file, config).expect("written");
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
    world.start_by(command, &["--config", file.to_str().expect("text")]);
}

fn start(world: &mut World, remembers: bool) {
    start_by(world, world.command(), remembers);
}

fn state_of(world: &World) -> String {
    world.array()["state"].as_str().unwrap_or("none").to_owned()
}

fn write_and_read_back(world: &World, seed: u64) {
    let noise = world.noise_from("noise", 1 << 20, seed);
    let uri = world.uri("tank0");
    let copy = |from: &str, to: &str| {
        let nbdcopy = Command::new("nbdcopy").args([from, to]).output().expect("nbdcopy runs");
        assert!(nbdcopy.status.success(), "{}", String::from_utf8_lossy(&nbdcopy.stderr));
    };
    copy(noise.to_str().expect("text"), &uri);
    holds(world, seed);
}

/// The volume begins with the noise of that seed.
fn holds(world: &World, seed: u64) {
    let noise = std::fs::read(world.noise_from("noise", 1 << 20, seed)).expect("noise");
    let found = world.path("found");
    let nbdcopy = Command::new("nbdcopy").arg(world.uri("tank0")).arg(&found).output();
    assert!(nbdcopy.expect("nbdcopy runs").status.success());
    assert!(std::fs::read(&found).expect("read").starts_with(&noise), "the volume has other data");
}

#[test]
fn an_array_starts_degraded_after_the_grace_period_and_takes_its_member_back() {
    if !crate::tools::all_here("by_itself", &["nbdcopy"]) {
        return;
    }
    let mut world = World::without_daemon();
    start(&mut world, true);
    world.create("tank0", 4, &["--level", "6"]);
    write_and_read_back(&world, 1);
    assert!(world.end().success());

    start(&mut world, true);
    wait_for("the array", || state_of(&world) == "clean");
    holds(&world, 1);
    assert!(world.end().success());

    let (member, away) = (world.path("m3"), world.path("away"));
    std::fs::rename(&member, &away).expect("renamed");
    start(&mut world, true);
    wait_for("the line", || world.said().contains("lacks slot 3; it starts degraded in"));
    wait_for("the degraded array", || state_of(&world) == "degraded");
    let events = world.ok(&["events", "--since", "1h"]);
    assert!(events.contains("array.started_degraded"), "{events}");
    write_and_read_back(&world, 2);

    std::fs::rename(&away, &member).expect("renamed");
    world.ok(&["assemble", "--incremental", member.to_str().expect("text")]);
    wait_for("the member", || state_of(&world) == "clean");
    let events = world.ok(&["events", "--since", "1h"]);
    assert!(events.contains("member.returned"), "{events}");
    world.ok(&["fail", "tank0", "0"]);
    world.ok(&["fail", "tank0", "1"]);
    holds(&world, 2);

    // Both were put out by hand: they stay out until they are taken back by hand.
    let first = world.path("m0");
    let said = world.ok(&["assemble", "--scan"]);
    assert!(said.contains("was put out by hand") && said.contains("ashlar re-add tank0"), "{said}");
    world.ok(&["assemble", "--incremental", first.to_str().expect("text")]);
    wait_for("the look", || world.said().contains("was put out by hand"));
    assert_eq!(state_of(&world), "degraded");
}

/// A machine may be slow when it boots: what `wipefs` had not told within five seconds was a device
/// that is not there, and nobody asked again.
#[test]
fn an_array_starts_however_long_the_programs_take_that_are_asked_about_its_devices() {
    let test = "an_array_starts_however_long_the_programs_take_that_are_asked_about_its_devices";
    if !Path::new("/usr/sbin/wipefs").exists() || !rustix::process::geteuid().is_root() {
        return skipped(test, "needs root and a wipefs to look with");
    }
    let mut world = World::without_daemon();
    start(&mut world, true);
    world.create("tank0", 4, &["--level", "5"]);
    assert!(world.end().success());
    let slow = with_wipefs(&world, "#!/bin/sh\nsleep 6\nexec ./own-wipefs \"$@\"\n");
    start_by(&mut world, slow, true);
    wait_for("the array runs", || state_of(&world) == "clean");
    assert!(world.end().success());
}

#[test]
fn what_was_stopped_by_hand_or_is_not_remembered_stays_as_it_is() {
    let mut world = World::without_daemon();
    start(&mut world, true);
    world.create("tank0", 4, &["--level", "6"]);
    world.ok(&["stop", "tank0"]);
    let member = world.path("m0");
    world.ok(&["assemble", "--incremental", member.to_str().expect("text")]);
    wait_for("the line", || world.said().contains("was stopped by hand, so it is not started"));
    assert_eq!(state_of(&world), "none");
    world.ok(&["assemble", "--scan", "--name", "tank0"]);
    assert_eq!(state_of(&world), "clean");
    assert!(world.end().success());

    // Not remembered, and nobody looks: nothing starts.
    std::fs::remove_file(world.path("state/arrays.toml")).expect("it was remembered");
    let file = world.path("quiet.toml");
    std::fs::write(&file, "[start]\nremember = true\n").expect("written");
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
    let quiet = ["--config", file.to_str().expect("text")];
    world.start(&quiet);
    world.ok(&["assemble", "--not-remembered", "m0", "m1", "m2", "m3"]);
    assert!(world.end().success());
    world.start(&quiet);
    assert_eq!(state_of(&world), "none");
    world.ok(&["assemble", "m0", "m1", "m2", "m3"]);
    assert!(world.end().success());
    world.start(&quiet);
    wait_for("the remembered array", || state_of(&world) == "clean");
    assert!(world.end().success());

    // Remembered, and nothing of it is there: it is missed.
    (0..4).for_each(|at| {
        std::fs::rename(world.path(&format!("m{at}")), world.path(&format!("away{at}")))
            .expect("renamed");
    });
    world.start(&quiet);
    let status = world.status();
    assert_eq!(status["absent"][0]["name"], "tank0", "{status}");
    assert_eq!(status["absent"][0]["reason"], "no member of it was found", "{status}");
    let check = world.run(&["status", "--check"]);
    assert_eq!(check.status.code(), Some(3), "{check:?}");
    (0..4).for_each(|at| {
        std::fs::rename(world.path(&format!("away{at}")), world.path(&format!("m{at}")))
            .expect("renamed");
    });
    world.ok(&["assemble", "--scan", "m0", "m1", "m2", "m3"]);
    assert_eq!(world.status()["absent"].as_array().map(Vec::len), Some(0));
}

/// It started degraded, without a spare on a file that had taken a slot.
#[test]
fn devices_that_joined_a_remembered_array_are_part_of_its_next_start() {
    let mut world = World::without_daemon();
    let file = world.path("quiet.toml");
    std::fs::write(&file, "[start]\nremember = true\n").expect("written");
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
    let quiet = ["--config", file.to_str().expect("text")];
    world.start(&quiet);
    world.create("tank0", 4, &["--level", "6"]);
    for name in ["spare", "new"] {
        world.sparse(name, MEMBER_BYTES);
    }
    let is_remembered = |world: &World, name| {
        let kept = std::fs::read_to_string(world.path("state/arrays.toml")).unwrap_or_default();
        kept.contains(&format!("{}\"", world.path(name).display()))
    };
    world.ok(&["fail", "tank0", "3"]);
    world.ok(&["replace", "tank0", "3", "new", "--wait"]);
    assert!(is_remembered(&world, "new"), "at once, for it was by hand");
    // After the last command that notes all members: nobody names the spare.
    world.ok(&["spare", "add", "spare"]);
    world.ok(&["fail", "tank0", "2"]);
    wait_for("the spare", || world.array()["members"][2]["state"] != "out");
    world.ok(&["rebuild", "wait", "tank0"]);
    assert!(world.end().success());
    assert!(is_remembered(&world, "spare"), "whatever joined before the end");
    world.start(&quiet);
    wait_for("the array", || state_of(&world) != "none");
    assert_eq!(state_of(&world), "clean");
}

#[test]
fn tunables_set_by_hand_come_back_with_the_array_until_they_are_forgotten() {
    let mut world = World::without_daemon();
    start(&mut world, true);
    world.create("tank0", 4, &["--level", "6"]);
    let limits = |world: &World| {
        let tuning = world.array()["tuning"].clone();
        (tuning["write_rate_max"].clone(), tuning["read_iops_max"].clone())
    };
    let told = world.ok(&["set", "tank0", "write_rate_max=8M", "read_iops_max=900"]);
    assert!(told.contains("and remembered"), "{told}");
    world.ok(&["set", "tank0", "read_iops_max=700"]);
    world.ok(&["set", "tank0", "--not-remembered", "write_rate_max=9M"]);
    assert_eq!(limits(&world), ((9 << 20).into(), 700.into()));
    assert!(world.ok(&["status"]).contains("limits reads 700 a second, writes 9 MiB/s;"));
    let metrics = world.ok(&["metrics"]);
    assert!(
        metrics.contains("ashlar_array_limit{array=\"tank0\",of=\"reads\"} 700\n"),
        "{metrics}"
    );
    assert!(world.end().success());

    start(&mut world, true);
    wait_for("the array", || state_of(&world) == "clean");
    assert_eq!(limits(&world), ((8 << 20).into(), 700.into()));
    world.ok(&["rename", "tank0", "tank1"]);
    assert_eq!(limits(&world), ((8 << 20).into(), 700.into()));
    assert!(world.ok(&["set", "tank1", "--forget"]).contains("forgotten"));
    assert!(world.end().success());
    start(&mut world, true);
    wait_for("the array", || state_of(&world) == "clean");
    assert_eq!(limits(&world), (0.into(), 0.into()));
}

#[test]
fn an_array_of_another_host_starts_only_if_it_is_named() {
    let mut world = World::without_daemon();
    if !rustix::process::geteuid().is_root() {
        return skipped("by_itself", "not root");
    }
    let mut other = Command::new("unshare");
    let program = env!("CARGO_BIN_EXE_ashlar");
    other.args(["--uts", "sh", "-c", "hostname elsewhere; exec \"$0\" \"$@\"", program]);
    other.current_dir(world.folder.path());
    other.env("ASHLAR_SOCKET", world.path("control.sock"));
    start_by(&mut world, other, false);
    world.create("tank0", 4, &["--level", "6"]);
    assert!(world.end().success());

    start(&mut world, false);
    wait_for("the line", || world.said().contains("ran last on host 'elsewhere'"));
    let scan = world.ok(&["assemble", "--scan"]);
    assert!(scan.contains("ashlar assemble --scan --name tank0"), "{scan}");
    assert_eq!(state_of(&world), "none");
    world.ok(&["assemble", "--scan", "--name", "tank0"]);
    assert_eq!(state_of(&world), "clean");
}

#[test]
fn a_spare_that_was_added_by_hand_waits_on_after_a_hand_over_and_a_kill() {
    let mut world = World::without_daemon();
    let file = world.path("plain.toml");
    std::fs::write(&file, "[start]\nremember = true\ngrace_s = 0\n").expect("written");
    let arguments = ["--config", file.to_str().expect("text")];
    world.start(&arguments);
    world.create("tank0", 4, &["--level", "6"]);
    ["s0", "s1"].iter().for_each(|name| world.sparse(name, MEMBER_BYTES));
    world.ok(&["spare", "add", "s0"]);
    world.ok(&["spare", "add", "s1"]);
    let spares = |world: &World| {
        let status = world.status();
        let pools = status["spare_pools"].as_array().expect("a list").clone();
        pools.iter().map(|pool| pool["spares"].as_array().map_or(0, Vec::len)).sum::<usize>()
    };
    assert_eq!(spares(&world), 2);
    crate::kept::hand_over(&mut world);
    world.start(&arguments);
    assert_eq!(spares(&world), 2);
    world.ok(&["spare", "remove", "s1"]);
    world.kill();
    world.start(&arguments);
    assert_eq!(spares(&world), 1);
    // It waits without any array, too, and takes the next slot.
    world.ok(&["stop", "tank0"]);
    assert!(world.end().success());
    world.start(&arguments);
    assert_eq!(spares(&world), 1);
    world.ok(&["assemble", "m0", "m1", "m2", "m3"]);
    world.ok(&["fail", "tank0", "2"]);
    wait_for("the rebuild", || state_of(&world) == "clean");
    assert_eq!(spares(&world), 0);
    assert!(world.end().success());
    world.start(&arguments);
    assert_eq!((spares(&world), state_of(&world).as_str()), (0, "clean"));
    assert!(world.end().success());
}
