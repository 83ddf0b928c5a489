//! The daemon is killed: what was flushed is there when the next one starts, and the devices are
//! free for it.

use crate::contents::starts_with;
use crate::tools::{all_here, run};
use crate::world::World;

const MEMBERS: [&str; 5] = ["m0", "m1", "m2", "m3", "m4"];

#[test]
fn what_was_flushed_survives_a_killed_daemon() {
    if !all_here("what_was_flushed_survives_a_killed_daemon", &["nbdcopy"]) {
        return;
    }
    let mut world = World::new();
    world.create("tank0", 5, &["--level", "6"]);
    let noise = world.noise("noise", 8 << 20);
    run("nbdcopy", &["--flush", noise.to_str().expect("text"), &world.uri("tank0")]);
    for _ in 0..2 {
        world.kill();
        world.start(&MEMBERS);
        let copy = world.path("copy");
        run("nbdcopy", &[&world.uri("tank0"), copy.to_str().expect("text")]);
        assert!(starts_with(&copy, &noise), "flushed data is gone");
    }
    let events = world.ok(&["events"]);
    assert!(events.contains("array.assembled"), "{events}");
}

const NAME: &str = "tank #0";

/// The mount of an array with such a name once was not found again.
#[test]
fn a_killed_daemons_attachment_is_found_by_the_next_one_whatever_its_name() {
    let test = "a_killed_daemons_attachment_is_found_by_the_next_one_whatever_its_name";
    if !all_here(test, &["fusermount3"]) || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    let mut world = World::new();
    let world_folder = world.folder.path().to_owned();
    // The table of mounts has signs in it as numbers.
    world.create(NAME, 5, &["--level", "6"]);
    let file = world.ok(&["attach", "--file", NAME]);
    assert!(std::fs::metadata(file.trim()).is_ok_and(|file| file.len() > 0));
    let mounts = || {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
        let folder = world_folder.to_str().expect("text").to_owned();
        mounts.lines().filter(|line| line.contains(&folder)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(mounts().len(), 1);
    world.kill();
    world.start(&MEMBERS);
    assert_eq!(mounts().len(), 1, "it was taken away under its users");
    assert!(std::fs::metadata(file.trim()).is_ok_and(|file| file.len() > 0));
    let file = world.ok(&["attach", "--file", NAME]);
    assert!(std::fs::metadata(file.trim()).is_ok_and(|file| file.len() > 0));
    world.ok(&["detach", NAME]);
    assert_eq!(mounts(), [""; 0]);
    world.ok(&["stop", NAME]);
    world.ok(&[&["assemble"] as &[&str], &MEMBERS].concat());
}
