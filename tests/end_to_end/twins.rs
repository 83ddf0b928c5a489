//! One device under two names: a file and a hard link to it, a file and a loop device over it.
//!
//! Superblocks were written to such a device as two members before anybody noticed, under "nothing
//! was written".

use crate::tools::{all_here, run, skipped};
use crate::world::World;

#[test]
fn one_device_under_two_names_is_no_two_members() {
    let world = World::new();
    let members = world.members(4);
    std::fs::hard_link(world.path("m3"), world.path("m3-again")).expect("linked");
    std::os::unix::fs::symlink("m2", world.path("m2-again")).expect("linked");
    let before = world.snapshot(&["m0", "m1", "m2", "m3"]);
    for (device, twin) in [("m3", "m3-again"), ("m2", "m2-again")] {
        let names: Vec<&str> = members.iter().map(String::as_str).chain([twin]).collect();
        let line = world.refused(&[&["create", "tank0", "--level", "6"], &names[..]].concat());
        assert!(line.contains(device) && line.contains(twin), "{line}");
        assert!(line.contains("are one device; nothing was written"), "{line}");
    }
    assert_eq!(world.snapshot(&["m0", "m1", "m2", "m3"]), before);
}

#[test]
fn a_loop_device_over_a_file_is_that_file() {
    let test = "a_loop_device_over_a_file_is_that_file";
    if !rustix::process::geteuid().is_root() || !std::path::Path::new("/dev/loop-control").exists()
    {
        return skipped(test, "needs root and loop devices");
    }
    if !all_here(test, &["losetup"]) {
        return;
    }
    let world = World::new();
    world.members(5);
    let file = world.path("m0");
    let device = run("losetup", &["--find", "--show", file.to_str().expect("text")]);
    let device = device.trim();
    let before = world.snapshot(&["m0", "m1", "m2", "m3"]);
    let line = world.refused(&["create", "tank0", "--level", "5", "m0", "m1", "m2", "m3", device]);
    assert!(line.contains("are one device; nothing was written"), "{line}");
    assert_eq!(world.snapshot(&["m0", "m1", "m2", "m3"]), before);
    // The same once the file is a member.
    world.ok(&["create", "tank0", "--level", "5", "m0", "m1", "m2"]);
    for arguments in [
        &["create", "tank1", "--level", "5", "m3", "m4", device, "--destroy", device][..],
        &["replace", "tank0", "1", device, "--destroy", device],
        &["replace", "tank0", "1", "m2"],
        &["spare", "add", device, "--destroy", device],
    ] {
        let line = world.refused(arguments);
        assert!(line.contains("of 'tank0'"), "{arguments:?}: {line}");
    }
    assert_eq!(world.array()["state"], "clean");
    run("losetup", &["--detach", device]);
}

/// It said that nothing was changed, and the exit code said that all went well.
#[test]
fn a_device_of_the_array_itself_replaces_nothing() {
    let world = World::new();
    world.members(4);
    world.ok(&["create", "tank0", "--level", "5", "m0", "m1", "m2"]);
    for device in ["m1", "m2"] {
        let line = world.refused(&["replace", "tank0", "1", device]);
        assert!(line.contains("of 'tank0' already; nothing was changed"), "{line}");
    }
    assert_eq!(world.array()["state"], "clean");
}

/// The path of a member leads to another file by now: that one is no member, whatever it is called.
#[test]
fn a_path_that_leads_elsewhere_by_now_is_not_the_member_that_was_opened_by_it() {
    let world = World::new();
    world.members(4);
    world.ok(&["create", "tank0", "--level", "5", "m0", "m1", "m2"]);
    std::fs::rename(world.path("m1"), world.path("m1-moved")).expect("renamed");
    std::fs::copy(world.path("m3"), world.path("m1")).expect("copied");
    let line = world.refused(&["re-add", "tank0", "m1"]);
    assert!(line.contains("no slot of array 'tank0' is out; nothing was changed"), "{line}");
    let told = world.ok(&["re-add", "tank0", "m1-moved"]);
    assert!(told.contains("is in slot 1 of 'tank0' already"), "{told}");
    // As a new device it is refused only for what is on it.
    world.ok(&["replace", "tank0", "2", "m1"]);
    world.ok(&["status"]);
}
