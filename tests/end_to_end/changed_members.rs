//! Members that change beneath the array: cut short while it runs, cut short and made longer again
//! while it does not, and enlarged at any time.
//!
//! Virtual disks, logical volumes and partitions grow, and clouds do not shrink them again. An
//! array whose members had all grown could not be started: two of the four copies of a superblock
//! were looked for at the new end.
//!
//! What was cut off would read as zeros once the file is longer again. Without checksums nothing
//! else tells: a repair beyond the end made the file grow, and clients read the zeros as data.

use crate::contents::starts_with;
use crate::drives::Loop;
use crate::tools::{all_here, run, skipped};
use crate::world::{MEMBER_BYTES, World};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// On each of the four data strips there are 24 MiB of it.
const DATA_BYTES: usize = 96 << 20;
/// What is left of the member that is cut short.
const LEFT_BYTES: u64 = 15 << 20;

#[test]
fn a_member_that_is_cut_short_is_out_and_does_not_grow() {
    let test = "a_member_that_is_cut_short_is_out_and_does_not_grow";
    if !all_here(test, &["nbdcopy", "nbdsh"]) {
        return;
    }
    let world = World::new();
    world.create("tank0", 6, &["--level", "6"]);
    let noise = filled(&world);
    set_bytes(&world, "m2", LEFT_BYTES);
    // Near the end first: a repair there would make the file grow over all that was cut off.
    let near_the_end = format!("h.pread(1 << 20, {})", DATA_BYTES - (1 << 20));
    run("nbdsh", &["-u", &world.uri("tank0"), "-c", &near_the_end]);
    assert!(holds(&world, &noise), "what was cut off was read as zeros");
    assert_eq!(world.path("m2").metadata().expect("there").len(), LEFT_BYTES);
    let array = world.array();
    assert_eq!((array["state"].as_str(), array["members"][2]["state"].as_str()), DEGRADED);
    let events = world.ok(&["events"]);
    assert!(events.contains("smaller than it was"), "{events}");
}

#[test]
fn a_member_that_was_cut_short_and_made_longer_is_not_believed() {
    let test = "a_member_that_was_cut_short_and_made_longer_is_not_believed";
    if !all_here(test, &["nbdcopy"]) {
        return;
    }
    let mut world = World::new();
    let members = world.create("tank0", 6, &["--level", "6"]);
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    let noise = filled(&world);
    assert!(world.end().success());
    set_bytes(&world, "m2", LEFT_BYTES);
    set_bytes(&world, "m2", MEMBER_BYTES);
    world.start(&[]);
    let plan = world.ok(&[&["assemble", "--dry-run"], &members[..]].concat());
    assert!(plan.contains("it was cut short and made longer again"), "{plan}");
    world.ok(&[&["assemble"], &members[..]].concat());
    let array = world.array();
    assert_eq!((array["state"].as_str(), array["members"][2]["state"].as_str()), DEGRADED);
    assert!(holds(&world, &noise), "what was cut off was read as zeros");
    let line = world.refused(&["re-add", "tank0", "m2"]);
    assert!(line.contains("cut short") && line.contains("ashlar replace"), "{line}");
    world.ok(&["replace", "tank0", "2", "m2", "--destroy", "m2", "--wait"]);
    assert_eq!(world.array()["state"], "clean");
    assert!(holds(&world, &noise), "wrong after the rebuild");
}

/// The loop device stays as long as it was. Its first write beyond the end of the file makes that
/// longer again.
#[test]
fn a_file_that_was_cut_short_beneath_a_loop_device_is_seen_at_the_start() {
    let test = "a_file_that_was_cut_short_beneath_a_loop_device_is_seen_at_the_start";
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        return skipped(test, "needs root and loop devices");
    }
    if !all_here(test, &["nbdcopy", "losetup"]) {
        return;
    }
    let cases = [("1", 2, false), ("6", 6, false), ("6", 6, true)];
    for (level, count, is_killed) in cases {
        let case = format!("level {level}, killed: {is_killed}");
        let world = World::new();
        let files = world.members(count);
        let loops = files.iter().map(|file| Loop::over(world.path(file).to_str().expect("text")));
        // The world is the later one and so ends first.
        let (loops, mut world) = (loops.collect::<Vec<_>>(), world);
        let members: Vec<&str> = loops.iter().map(|it| it.0.as_str()).collect();
        world.ok(&[&["create", "tank0", "--level", level], &members[..]].concat());
        let noise = world.noise("noise", 32 << 20);
        run("nbdcopy", &["--flush", noise.to_str().expect("text"), &world.uri("tank0")]);
        match is_killed {
            true => world.kill(),
            false => assert!(world.end().success()),
        }
        set_bytes(&world, &files[1], LEFT_BYTES);
        world.start(&[]);
        world.ok(&[&["assemble"], &members[..]].concat());
        assert_eq!(world.array()["state"], "degraded", "{case}");
        assert!(holds(&world, &noise), "{case}: what was cut off was read as zeros");
        let bytes = world.path(&files[1]).metadata().expect("there").len();
        assert_eq!(bytes, LEFT_BYTES, "{case}: it was written to");
    }
}

#[test]
fn members_that_grow_stay_what_they_are() {
    if !all_here("members_that_grow_stay_what_they_are", &["nbdcopy"]) {
        return;
    }
    for options in [&["--level", "6"][..], &["--level", "10"]] {
        let mut world = World::new();
        let members = world.create("tank0", 4, options);
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        let noise = world.noise("noise", 40 << 20);
        run("nbdcopy", &["--flush", noise.to_str().expect("text"), &world.uri("tank0")]);
        let mut bytes = MEMBER_BYTES;
        for (moment, count) in [("stopped", 1), ("stopped", 4), ("running", 4), ("killed", 4)] {
            bytes += GROWN_BYTES;
            match moment {
                "stopped" => assert!(world.end().success()),
                "killed" => world.kill(),
                _ => {}
            }
            members[..count].iter().for_each(|member| set_bytes(&world, member, bytes));
            match moment {
                "running" => world.ok(&["stop", "tank0"]),
                _ => {
                    world.start(&[]);
                    String::new()
                }
            };
            starts_whole(&world, &members, &noise, &format!("{moment}, {count} grew"));
        }
        // The copies at the head of one are gone as well: the others know where it ended.
        assert!(world.end().success());
        let file = File::options().write(true).open(world.path("m1")).expect("open");
        file.write_all_at(&[0xA5; 128 << 10], 0).expect("written");
        let text = world.ok(&[&["salvage"], &members[..]].concat());
        assert!(!text.contains("unknown"), "{text}");
        world.start(&[]);
        starts_whole(&world, &members, &noise, "grown, and its head is damaged");
        let text = world.ok(&["examine", "m0"]);
        assert!(text.contains("the device grew"), "{text}");
    }
}

/// Assembles the array, which must have all its members, and compares the content.
fn starts_whole(world: &World, members: &[&str], noise: &Path, case: &str) {
    world.ok(&[&["assemble"], members].concat());
    assert_eq!(world.array()["state"], "clean", "{case}");
    assert!(holds(world, noise), "{case}: wrong data");
    let events = world.ok(&["events"]);
    assert!(!events.contains("member.failed"), "{case}: {events}");
}

/// By how much members grow at once.
const GROWN_BYTES: u64 = 5 << 20;

/// State of the array, and of the member that was cut short.
const DEGRADED: (Option<&str>, Option<&str>) = (Some("degraded"), Some("out"));

/// The content of the volume, written and flushed.
fn filled(world: &World) -> std::path::PathBuf {
    let noise = world.noise("noise", DATA_BYTES);
    run("nbdcopy", &["--flush", noise.to_str().expect("text"), &world.uri("tank0")]);
    noise
}

fn holds(world: &World, wanted: &Path) -> bool {
    let copy = world.path("copy");
    run("nbdcopy", &[&world.uri("tank0"), copy.to_str().expect("text")]);
    starts_with(&copy, wanted)
}

fn set_bytes(world: &World, member: &str, bytes: u64) {
    let file = File::options().write(true).open(world.path(member)).expect("open");
    file.set_len(bytes).expect("cut or grown");
}
