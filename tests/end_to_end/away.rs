//! Drives that went and came between a kill of the daemon and its next start: what their caches
//! held may be lost, and they look as before.
//!
//! What must stay true: nothing that was answered is lost or wrong, and what was away is named. A
//! loop device is none of these drives: it is taken down and set up again without any loss.

use crate::contents::starts_with;
use crate::drives::Loop;
use crate::tools::{all_here, run, skipped};
use crate::world::World;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MEMBERS: usize = 6;

/// Loop devices, and the later world over them, which ends first; `None` after saying why `test`
/// cannot run here.
fn able(test: &str) -> Option<(Vec<Loop>, World)> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        skipped(test, "needs root and loop devices");
        return None;
    }
    if !all_here(test, &["nbdcopy", "losetup"]) {
        return None;
    }
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        skipped(test, "needs /dev/shm");
        return None;
    };
    let mut world = World::without_daemon();
    world.socket_folder = Some(folder);
    world.start(&[]);
    world.members(MEMBERS);
    Some((set_up(&world), world))
}

fn set_up(world: &World) -> Vec<Loop> {
    let files = (0..MEMBERS).map(|at| world.path(&format!("m{at}")));
    files.map(|file| Loop::over(file.to_str().expect("text"))).collect()
}

fn paths(loops: &[Loop]) -> Vec<&str> {
    loops.iter().map(|it| it.0.as_str()).collect()
}

/// Writes that were answered and not flushed; the daemon is killed.
fn killed_after_writes(world: &mut World, loops: &[Loop], level: &str) -> PathBuf {
    world.ok(&[&["create", "tank0", "--level", level], &paths(loops)[..]].concat());
    let noise = world.noise("noise", 24 << 20);
    run("nbdcopy", &[noise.to_str().expect("text"), &world.uri("tank0")]);
    world.kill();
    noise
}

/// The volume begins with it.
fn holds(world: &World, noise: &Path) -> bool {
    let found = world.path("found");
    run("nbdcopy", &[&world.uri("tank0"), found.to_str().expect("text")]);
    starts_with(&found, noise)
}

#[test]
fn loop_devices_that_are_set_up_anew_after_a_kill_lose_nothing() {
    let test = "loop_devices_that_are_set_up_anew_after_a_kill_lose_nothing";
    for level in ["10", "6"] {
        let Some((mut loops, mut world)) = able(test) else { return };
        let noise = killed_after_writes(&mut world, &loops, level);
        loops.clear();
        let (loops, mut world) = (set_up(&world), world);
        world.start(&[]);
        world.ok(&[&["assemble"], &paths(&loops)[..]].concat());
        let array = world.array();
        let members = array["members"].as_array().expect("members");
        assert!(members.iter().all(|it| it["state"] == "in_sync"), "level {level}: {array}");
        assert!(holds(&world, &noise), "level {level}: answered writes are gone");
        let events = world.ok(&["events"]);
        assert!(!events.contains("it was away"), "level {level}: {events}");
    }
}

/// The file in which the daemon keeps which appearance of its disk each member is.
fn kept(world: &World) -> PathBuf {
    let folder = world.socket_folder().join("written");
    let mut files = std::fs::read_dir(folder).expect("kept").flatten().map(|it| it.path());
    files.find(|file| file.extension().is_some_and(|it| it == "drives")).expect("kept")
}

/// From now on so many of the members are other appearances than the daemon knew; false: the disk
/// beneath is not counted here.
fn reappear(world: &World, count: u64) -> bool {
    let file = OpenOptions::new().read(true).write(true).open(kept(world)).expect("kept");
    let number = |at: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).expect("read");
        u64::from_le_bytes(bytes)
    };
    if number(8) == 0 {
        return false;
    }
    for at in (0..count).map(|entry| 16 + 24 * entry + 16) {
        file.write_all_at(&(number(at) + 1).to_le_bytes(), at).expect("written");
    }
    true
}

#[test]
fn a_drive_that_was_away_after_a_kill_is_left_out_and_named() {
    let test = "a_drive_that_was_away_after_a_kill_is_left_out_and_named";
    let Some((loops, mut world)) = able(test) else { return };
    let noise = killed_after_writes(&mut world, &loops, "6");
    if !reappear(&world, 1) {
        return skipped(test, "the kernel does not count the disk of the temporary folder");
    }
    world.start(&[]);
    let plan = world.ok(&[&["assemble", "--dry-run"], &paths(&loops)[..]].concat());
    let left = format!("left alone: {} (it was away since the array ran", loops[0].0);
    assert!(plan.contains("degraded, without slot 0") && plan.contains(&left), "{plan}");
    world.ok(&[&["assemble"], &paths(&loops)[..]].concat());
    let array = world.array();
    assert_eq!(
        (&array["state"], &array["members"][0]["state"]),
        (&"degraded".into(), &"out".into())
    );
    assert!(holds(&world, &noise), "answered writes are gone");
    let (events, next) = (world.ok(&["events"]), format!("ashlar re-add tank0 {}", loops[0].0));
    assert!(
        events.contains("it was away since the array ran") && events.contains(&next),
        "{events}"
    );
    world.ok(&["re-add", "tank0", &loops[0].0, "--wait"]);
    assert_eq!(world.array()["state"], "clean");
    assert!(world.end().success());
    // A clean stop: nobody asks where they were.
    world.start(&[]);
    world.ok(&[&["assemble"], &paths(&loops)[..]].concat());
    assert_eq!(world.array()["state"], "clean");
    assert!(holds(&world, &noise), "wrong after the stop");
}

#[test]
fn more_drives_that_were_away_than_parity_replaces_are_a_power_cut_and_named() {
    let test = "more_drives_that_were_away_than_parity_replaces_are_a_power_cut_and_named";
    let Some((loops, mut world)) = able(test) else { return };
    killed_after_writes(&mut world, &loops, "6");
    if !reappear(&world, 3) {
        return skipped(test, "the kernel does not count the disk of the temporary folder");
    }
    world.start(&[]);
    let plan = world.ok(&[&["assemble", "--dry-run"], &paths(&loops)[..]].concat());
    assert_eq!(plan.matches("as after a power cut").count(), 3, "{plan}");
    world.ok(&[&["assemble"], &paths(&loops)[..]].concat());
    let events = world.ok(&["events"]);
    assert_eq!(events.matches("that counts as a power cut").count(), 3, "{events}");
    let array = world.array();
    let members = array["members"].as_array().expect("members");
    assert!(members.iter().all(|it| it["state"] == "in_sync"), "{array}");
}
