//! One device under two names: a file and a hard link to it, a file and a loop device over it.
//!
//! Superblocks were written to such a device as two members before anybody noticed, under "nothing was written".

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
