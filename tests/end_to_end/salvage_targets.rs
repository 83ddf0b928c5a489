//! What `salvage --to` overwrites: never a member of an array, under whatever name.
//!
//! A loop device over a member, the file beneath one, and members of running arrays were
//! overwritten with exit code 0.

use crate::tools::{all_here, run, skipped};
use crate::world::World;
use std::path::Path;
use std::process::Command;

/// Those that are named as targets.
const MEMBERS: [&str; 2] = ["m2", "x1"];
const MODES: [&str; 2] = ["--overwrite", "--skip-lost"];

/// A loop device over a file, gone when dropped.
struct Loop(String);

impl Loop {
    fn over(world: &World, name: &str) -> Loop {
        let file = world.path(name).display().to_string();
        Loop(run("losetup", &["--find", "--show", &file]).trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _gone = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Two stopped arrays, and one that runs.
fn world() -> World {
    let world = World::new();
    world.create("tank0", 3, &["--level", "5"]);
    for (array, names) in [("tank1", ["x0", "x1", "x2"]), ("tank2", ["r0", "r1", "r2"])] {
        names.iter().for_each(|name| world.sparse(name, crate::world::MEMBER_BYTES));
        world.ok(&[&["create", array, "--level", "5"], &names[..]].concat());
    }
    world.ok(&["stop", "tank0"]);
    world.ok(&["stop", "tank1"]);
    world
}

/// A copy of tank0 to `target` is refused, and no member changes.
fn is_refused(world: &World, members: &[&str], target: &str, says: &str) {
    let before = world.snapshot(&MEMBERS);
    for mode in MODES {
        let output = world.run(&[&["salvage"], members, &["--to", target, mode]].concat());
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{target}: {line}");
        assert!(line.contains(says) && line.contains("nothing was written"), "{target}: {line}");
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(world.snapshot(&MEMBERS) == before, "{target}: a member was written to");
    }
}

#[test]
fn no_member_is_overwritten_under_any_name() {
    let world = world();
    std::fs::hard_link(world.path("m2"), world.path("hard")).expect("linked");
    std::os::unix::fs::symlink("m2", world.path("soft")).expect("linked");
    for target in ["m2", "hard", "soft"] {
        is_refused(&world, &["m0", "m1", "m2"], target, "which is a member");
        is_refused(&world, &["m0", "m1"], target, "a member of array 'tank0'");
    }
    is_refused(&world, &["m0", "m1", "m2"], "x1", "a member of array 'tank1'");
    is_refused(&world, &["m0", "m1", "m2"], "r1", "a member of array 'tank2'");
    assert_eq!(world.array()["state"], "clean");
    // What nobody needs is overwritten as before.
    std::fs::write(world.path("full"), "old").expect("written");
    world.ok(&["salvage", "m0", "m1", "--to", "full", "--overwrite"]);
}

#[test]
fn no_member_is_overwritten_through_a_loop_device() {
    let test = "no_member_is_overwritten_through_a_loop_device";
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        return skipped(test, "needs root and loop devices");
    }
    if !all_here(test, &["losetup"]) {
        return;
    }
    let world = world();
    let over = ["m2", "x1", "r1"].map(|name| Loop::over(&world, name));
    is_refused(&world, &["m0", "m1", "m2"], &over[0].0, "which is a member");
    is_refused(&world, &["m0", "m1", &over[0].0], "m2", "which is a member");
    is_refused(&world, &["m0", "m1"], &over[0].0, "a member of array 'tank0'");
    is_refused(&world, &["m0", "m1", "m2"], &over[1].0, "a member of array 'tank1'");
    is_refused(&world, &["m0", "m1", "m2"], &over[2].0, "a member of array 'tank2'");
    assert_eq!(world.array()["state"], "clean");
    // A device that is used under another name, without any superblock of ours.
    world.sparse("plain", crate::world::MEMBER_BYTES);
    let plain = Loop::over(&world, "plain");
    world.ok(&["create", "tank3", "--level", "0", &plain.0, "--raid-devices", "1"]);
    let file = std::fs::File::options().write(true).open(world.path("plain")).expect("open");
    for at in [0, crate::world::MEMBER_BYTES - (128 << 10)] {
        std::os::unix::fs::FileExt::write_all_at(&file, &[0; 128 << 10], at).expect("written");
    }
    is_refused(&world, &["m0", "m1", "m2"], "plain", "in use as /dev/loop");
    world.ok(&["stop", "tank3", "--force"]);
}
