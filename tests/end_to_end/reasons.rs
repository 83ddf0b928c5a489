//! Why an array does not run, and what is not remembered: the status and the line for monitoring
//! say what the log says, with the next command.
//!
//! What was lost: an array whose start was refused was told to have no members; a damaged file of
//! remembered arrays, and one that could not be written, were told on stderr once, and nothing was
//! wrong for monitoring.

use crate::raw_nbd::RawNbd;
use crate::tools::{all_here, run, skipped, wait_for};
use crate::world::World;
use std::io::Write;
use std::process::Command;

const REMEMBER: &str = "[start]\nremember = true\ngrace_s = 0\n";

fn start(world: &mut World, further: &[&str]) {
    std::fs::write(world.path("a.toml"), REMEMBER).expect("written");
    world.start(&[&["--config", "a.toml"], further].concat());
}

/// The exit code of the line for monitoring, and the line.
fn check(world: &World) -> (Option<i32>, String) {
    let checked = world.run(&["status", "--check"]);
    (checked.status.code(), String::from_utf8_lossy(&checked.stdout).into_owned())
}

/// The array does not run, and all say so with these words, as the log does.
fn all_say(world: &World, words: &[&str]) {
    let (code, line) = check(world);
    assert_eq!(code, Some(3), "{line}");
    let screen = world.ok(&["status"]);
    let said = world.said();
    let mut absent = screen.lines().filter(|line| line.contains("tank0    ABSENT: "));
    let absent = absent.next().unwrap_or_else(|| panic!("{screen}"));
    for word in words {
        assert!(line.contains(word), "--check: {line}");
        assert!(absent.contains(word), "status: {screen}");
        assert!(said.contains(word), "log: {said}");
    }
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(!line.contains("no member of it was found"), "{line}");
}

#[test]
fn a_lost_kept_map_is_told_with_the_way_out() {
    let test = "a_lost_kept_map_is_told_with_the_way_out";
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        return skipped(test, "needs /dev/shm");
    };
    let mut world = World::without_daemon();
    world.socket_folder = Some(folder);
    start(&mut world, &[]);
    world.create("tank0", 4, &["--level", "6"]);
    let mut client = RawNbd::open(&world, "tank0");
    client.write(0, &[1; 4096]).expect("answered");
    client.flush();
    client.write(8 << 20, &[2; 4096]).expect("answered");
    world.kill();
    std::fs::remove_dir_all(world.socket_folder().join("written")).expect("kept");
    start(&mut world, &[]);
    all_say(&world, &["kept map", "--accept-lost-map"]);
    let named = world.refused(&["assemble", "--scan", "--name", "tank0"]);
    assert!(named.contains("--accept-lost-map"), "{named}");
    world.ok(&["assemble", "--accept-lost-map", "m0", "m1", "m2", "m3"]);
    assert_eq!(check(&world).0, Some(0));
    assert!(world.end().success());
}

#[test]
fn too_few_members_and_members_held_by_another_daemon_are_told() {
    let mut world = World::without_daemon();
    start(&mut world, &[]);
    world.create("tank0", 4, &["--level", "6"]);
    assert!(world.end().success());
    for member in ["m0", "m1", "m2"] {
        std::fs::rename(world.path(member), world.path(&format!("{member}.away"))).expect("ours");
    }
    start(&mut world, &[]);
    all_say(&world, &["lacks 3 of 4 members"]);
    let named = world.refused(&["assemble", "--scan", "--name", "tank0"]);
    assert!(named.contains("lacks 3 of 4 members"), "{named}");
    for member in ["m0", "m1", "m2"] {
        std::fs::rename(world.path(&format!("{member}.away")), world.path(member)).expect("ours");
    }
    world.ok(&["assemble", "--scan", "--name", "tank0"]);
    assert_eq!(check(&world), (Some(0), "RIGHT: nothing is wrong\n".to_owned()));

    let mut other = World::without_daemon();
    std::fs::create_dir(other.path("state")).expect("made");
    std::fs::copy(world.path("state/arrays.toml"), other.path("state/arrays.toml")).expect("kept");
    start(&mut other, &[]);
    all_say(&other, &["m0"]);
    assert!(other.end().success());
    assert!(world.end().success());
}

#[test]
fn a_damaged_file_of_remembered_arrays_is_told_until_it_is_taken_away() {
    let mut world = World::without_daemon();
    start(&mut world, &[]);
    world.create("tank0", 4, &["--level", "6"]);
    assert!(world.end().success());
    std::fs::write(world.path("state/arrays.toml"), "garbage [[\n").expect("ours");
    // Also by a daemon that only finds what an earlier one set aside.
    for _ in 0..2 {
        start(&mut world, &[]);
        let (code, line) = check(&world);
        assert_eq!(code, Some(3), "{line}");
        let screen = world.ok(&["status"]);
        for word in ["damaged", "arrays.toml.damaged", "ashlar assemble DEVICE...", "rm "] {
            assert!(line.contains(word) && screen.contains(word), "{line}{screen}");
        }
        assert!(world.end().success());
    }
    start(&mut world, &[]);
    world.ok(&["assemble", "m0", "m1", "m2", "m3"]);
    std::fs::remove_file(world.path("state/arrays.toml.damaged")).expect("kept aside");
    wait_for("nothing is wrong", || check(&world).0 == Some(0));
    assert!(world.end().success());
    start(&mut world, &[]);
    assert_eq!(world.array()["state"], "clean");
    assert!(world.end().success());
}

/// Mounted for one test.
struct Small(String);

impl Drop for Small {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn what_could_not_be_remembered_is_told_and_written_when_there_is_room() {
    let test = "what_could_not_be_remembered_is_told_and_written_when_there_is_room";
    if !rustix::process::geteuid().is_root() || !all_here(test, &["mount"]) {
        return skipped(test, "needs root to mount a small file system");
    }
    let mut world = World::without_daemon();
    let place = world.path("state").display().to_string();
    std::fs::create_dir(&place).expect("ours");
    run("mount", &["-t", "tmpfs", "-o", "size=256k", "none", &place]);
    let _small = Small(place.clone());
    start(&mut world, &[]);
    let mut filler = std::fs::File::create(world.path("state/filler")).expect("ours");
    let is_full = (0..256).any(|_| filler.write_all(&[0; 4096]).is_err());
    assert!(is_full, "256 KiB are not full after 1 MiB");
    drop(filler);
    world.create("tank0", 4, &["--level", "6"]);
    let told = "what is remembered of arrays is missing: ";
    let (code, line) = check(&world);
    assert_eq!(code, Some(1), "{line}");
    assert!(line.contains(told) && line.contains("No space left"), "{line}");
    assert!(world.ok(&["status"]).contains("MISSING what is remembered of arrays: "));
    std::fs::remove_file(world.path("state/filler")).expect("ours");
    wait_for("it is remembered", || !check(&world).1.contains(told));
    assert!(world.end().success());
    start(&mut world, &[]);
    assert_eq!(world.array()["state"], "clean");
    assert!(world.end().success());
}
