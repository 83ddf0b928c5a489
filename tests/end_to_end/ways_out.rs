//! What keeps an array from running, or from running on, though nothing is lost: it is said, with
//! the command that ends it, and that works.
//!
//! What was lost: an array whose members had all failed for a moment said FAILED and no more. A
//! write-protected device was called missing. An array whose start watched heartbeats was called
//! absent.

use crate::doomed::Doomed;
use crate::drives::Loop;
use crate::raw_nbd::RawNbd;
use crate::tools::{all_here, run, skipped, wait_for};
use crate::world::{MEMBER_BYTES, World};
use serde_json::Value;
use std::cell::RefCell;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

/// Fill the start of the volume, and tell what all of it holds.
fn filled(world: &World) -> Vec<u8> {
    let noise = world.noise("noise", 4 << 20);
    run("nbdcopy", &["--flush", noise.to_str().expect("text"), &world.uri("tank0")]);
    volume(world)
}

fn volume(world: &World) -> Vec<u8> {
    let seen = world.path("seen");
    run("nbdcopy", &[&world.uri("tank0"), seen.to_str().expect("text")]);
    std::fs::read(seen).expect("read")
}

fn check(world: &World) -> String {
    String::from_utf8(world.run(&["status", "--check"]).stdout).expect("text")
}

#[test]
fn an_array_that_failed_says_how_it_runs_again() {
    let test = "an_array_that_failed_says_how_it_runs_again";
    if !all_here(test, &["mkfs.xfs", "xfs_io", "nbdcopy"]) {
        return;
    }
    if let Some(missing) = Doomed::missing() {
        return skipped(test, missing);
    }
    let mut world = World::new();
    let (doomed, first) = Doomed::member(&world);
    let devices = [first.as_str(), "doomed/m1", "m2", "m3"];
    devices[1..].iter().for_each(|name| world.sparse(name, MEMBER_BYTES));
    world.ok(&[&["create", "tank0", "--level", "5"], &devices[..]].concat());
    let seen = filled(&world);
    let mut client = RawNbd::open(&world, "tank0");
    doomed.destroy();
    wait_for("it has failed", || {
        let _error = RawNbd::open(&world, "tank0").read(0, 1 << 20);
        world.array()["state"] == "failed"
    });
    let way = "ashlar stop tank0; ashlar assemble --name tank0 DEVICE...";
    let (screen, line) = (world.ok(&["status"]), check(&world));
    assert!(screen.contains(way) && line.contains(way), "{screen}{line}");
    assert!(client.read(0, 1 << 20).is_err());
    drop(client);
    let _stopped = world.run(&["stop", "tank0"]);
    doomed.revive();
    world.ok(&[&["assemble", "--name", "tank0"], &devices[..]].concat());
    assert!(volume(&world) == seen, "something else is there");
    assert!(world.end().success());
}

#[test]
fn write_protected_members_are_called_that_and_can_be_read() {
    let test = "write_protected_members_are_called_that_and_can_be_read";
    if !all_here(test, &["losetup", "blockdev", "nbdcopy"]) {
        return;
    }
    if let Some(missing) = Doomed::missing() {
        return skipped(test, missing);
    }
    let mut world = World::new();
    let path = |name: &String| world.path(name).display().to_string();
    let loops: Vec<Loop> = world.members(4).iter().map(|it| Loop::over(&path(it))).collect();
    let devices: Vec<&str> = loops.iter().map(|it| it.0.as_str()).collect();
    world.ok(&[&["create", "tank0", "--level", "5"], &devices[..]].concat());
    let seen = filled(&world);
    world.ok(&["stop", "tank0"]);
    for protected in [&devices[1..3], &devices] {
        protected.iter().for_each(|it| drop(run("blockdev", &["--setro", it])));
        let line = world.refused(&[&["assemble"], &devices[..]].concat());
        for device in protected {
            let way = format!("{device}: write-protected; end that (blockdev --setrw {device};");
            assert!(line.contains(&way), "{line}");
        }
        assert!(line.contains("ashlar assemble --read-only DEVICE..."), "{line}");
        world.ok(&[&["assemble", "--read-only"], &devices[..]].concat());
        assert!(volume(&world) == seen, "something else is there");
        world.ok(&["stop", "tank0"]);
    }
    devices.iter().for_each(|it| drop(run("blockdev", &["--setrw", it])));
    world.ok(&[&["assemble"], &devices[..]].concat());
    assert_eq!(world.array()["state"], "clean");
    assert!(world.end().success());
}

/// Nobody knows whether the members of which these are copies run elsewhere: their heartbeats are
/// watched.
#[test]
fn an_array_whose_start_watches_heartbeats_is_not_called_absent() {
    let mut world = World::without_daemon();
    let config = world.path("c.toml");
    std::fs::write(&config, "[start]\nremember = true\n").expect("written");
    std::fs::set_permissions(&config, Permissions::from_mode(0o600)).expect("ours");
    let arguments = ["--config", "c.toml", "--state", "state"];
    world.start(&arguments);
    let members = world.create("tank0", 3, &["--level", "5"]);
    world.kill();
    for member in members {
        let (member, copy) = (world.path(&member), world.path("copy"));
        run("cp", &["--sparse=always", &text(&member), &text(&copy)]);
        std::fs::rename(copy, member).expect("ours");
    }
    let ours = ["serve", "--pool", "96MiB", "--no-pin", "--workers", "2"];
    let daemon = world.command().args(ours).args(arguments).stdout(Stdio::null()).spawn();
    world.daemon = Some(daemon.expect("the program runs"));
    let seen = RefCell::new(String::new());
    wait_for("it runs", || {
        let output = world.run(&["status", "--json"]);
        let Ok(status) = serde_json::from_slice::<Value>(&output.stdout) else { return false };
        let absent = &status["absent"][0];
        assert!(absent.is_null() || absent["starting"] == true, "{status}");
        seen.borrow_mut().push_str(absent["reason"].as_str().unwrap_or_default());
        !status["arrays"][0].is_null()
    });
    assert!(seen.borrow().contains("its heartbeat is watched first"), "{seen:?}");
    assert!(world.end().success());
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
