//! Why an array does not run, and what is not remembered: the status and the line for monitoring
//! say what the log says, with the next command.
//!
//! What was lost: an array whose start was refused was told to have no members; a damaged file of
//! remembered arrays, and one that could not be written, were told on stderr once, and nothing was
//! wrong for monitoring.

use crate::doomed::Doomed;
use crate::drives::Loop;
use crate::raw_nbd::RawNbd;
use crate::tools::{SmallRoom, all_here, run, skipped, wait_for};
use crate::world::{MEMBER_BYTES, World};

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
    follow(&world, &named, "ashlar assemble --accept-lost-map ");
    assert_eq!(check(&world).0, Some(0));
    // That it was forced is told until it has been stopped cleanly: also after a kill.
    let is_told = |world: &World| {
        let screen = world.ok(&["status"]);
        screen.contains("FORCED start, until the next clean stop: --accept-lost-map: ")
    };
    assert!(is_told(&world));
    let events = world.ok(&["events"]);
    let forced = events.lines().find(|line| line.contains("array.forced"));
    assert!(forced.is_some_and(|line| line.contains("lost-map")), "{events}");
    world.kill();
    start(&mut world, &[]);
    assert!(is_told(&world));
    assert!(world.end().success());
    start(&mut world, &[]);
    assert!(!is_told(&world) && world.array()["state"] == "clean");
    assert!(world.end().success());
}

/// Run the command that a line ends with, or has before its next semicolon.
fn follow(world: &World, line: &str, begins: &str) {
    let at = line.find(begins).unwrap_or_else(|| panic!("{begins}: {line}"));
    let command = line[at..].split(';').next().unwrap_or_default();
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    world.ok(&words);
}

/// The map of the start that the copy is of was forgotten when the next one began.
#[test]
fn members_rolled_back_to_an_earlier_start_are_told_so_with_a_way_out() {
    let test = "members_rolled_back_to_an_earlier_start_are_told_so_with_a_way_out";
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
    let members = ["m0", "m1", "m2", "m3"];
    for member in members {
        let copy = world.path(&format!("{member}.copy"));
        std::fs::copy(world.path(member), copy).expect("copied");
    }
    world.kill();
    start(&mut world, &[]);
    assert_eq!(world.array()["state"], "clean");
    world.kill();
    for member in members {
        let copy = world.path(&format!("{member}.copy"));
        std::fs::copy(copy, world.path(member)).expect("copied");
    }
    start(&mut world, &[]);
    let line = world.refused(&["assemble", "m0", "m1", "m2", "m3"]);
    assert!(line.contains("were rolled back to a copy"), "{line}");
    assert!(!line.contains("control socket"), "{line}");
    follow(&world, &line, "ashlar assemble --accept-lost-map ");
    let mut client = RawNbd::open(&world, "tank0");
    assert_eq!(client.read(0, 4096).expect("read"), [1; 4096]);
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
    // The cause comes first, also where devices are named.
    let line = other.refused(&["assemble", world.path("m0").to_str().expect("text")]);
    assert!(line.starts_with("ashlar: no device could be opened: "), "{line}");
    assert!(line.contains("m0") && !line.contains("0 devices"), "{line}");
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

#[test]
fn what_could_not_be_remembered_is_told_and_written_when_there_is_room() {
    let test = "what_could_not_be_remembered_is_told_and_written_when_there_is_room";
    let mut world = World::without_daemon();
    let Some(room) = SmallRoom::at(test, world.path("state")) else { return };
    start(&mut world, &[]);
    room.fill();
    world.create("tank0", 4, &["--level", "6"]);
    let told = "what is remembered of arrays is missing: ";
    let (code, line) = check(&world);
    assert_eq!(code, Some(1), "{line}");
    assert!(line.contains(told) && line.contains("No space left"), "{line}");
    assert!(world.ok(&["status"]).contains("MISSING what is remembered of arrays: "));
    room.make_room();
    wait_for("it is remembered", || !check(&world).1.contains(told));
    assert!(world.end().success());
    start(&mut world, &[]);
    assert_eq!(world.array()["state"], "clean");
    assert!(world.end().success());
}

/// Five loop devices with the members of an array that is stopped, three of them to fail in every
/// read when what is beneath them is destroyed. `None` after saying why `test` cannot run here.
fn stopped_on_doomed(test: &str, level: &str) -> Option<(Doomed, Vec<Loop>, World)> {
    if !all_here(test, &["losetup", "blockdev", "mkfs.xfs", "xfs_io"]) {
        return None;
    }
    if let Some(missing) = Doomed::missing() {
        skipped(test, missing);
        return None;
    }
    let mut world = World::without_daemon();
    let (doomed, first) = Doomed::member(&world);
    let others = ["doomed/m1", "doomed/m2", "m3", "m4"];
    others.iter().for_each(|name| world.sparse(name, MEMBER_BYTES));
    let path = |name: &str| world.path(name).display().to_string();
    let names = [first.as_str()].into_iter().chain(others);
    let loops: Vec<Loop> = names.map(|name| Loop::over(&path(name))).collect();
    start(&mut world, &[]);
    world.ok(&[&["create", "tank0", "--level", level], &paths(&loops)[..]].concat());
    assert!(world.end().success());
    Some((doomed, loops, world))
}

fn paths(loops: &[Loop]) -> Vec<&str> {
    loops.iter().map(|it| it.0.as_str()).collect()
}

fn names_all(line: &str, unread: &[&str]) {
    for path in unread {
        assert!(line.contains(&format!("{path} cannot be read: ")), "{path}: {line}");
    }
    assert!(!line.contains("no member"), "{line}");
}

#[test]
fn devices_that_cannot_be_read_are_not_called_no_members() {
    let test = "devices_that_cannot_be_read_are_not_called_no_members";
    let Some((doomed, loops, mut world)) = stopped_on_doomed(test, "6") else { return };
    let all = paths(&loops);
    doomed.destroy();
    let (unread, good) = all.split_at(3);
    start(&mut world, &[]);
    // ABSENT says so, too.
    all_say(&world, &[&format!("{} cannot be read: ", unread[0])]);
    names_all(&check(&world).1, unread);
    for verb in [&["assemble"][..], &["assemble", "--dry-run"], &["salvage"]] {
        names_all(&world.refused(&[verb, unread].concat()), unread);
    }
    let lacking = world.refused(&[&["assemble"], unread, good].concat());
    names_all(&lacking, unread);
    assert!(lacking.contains("dmesg") && lacking.contains("lacks 3 of 5 members"), "{lacking}");
    for devices in [unread, &all] {
        let scan = ["assemble", "--scan", "--name", "tank0"];
        let line = world.refused(&[&scan, devices].concat());
        assert!(unread.iter().all(|it| line.contains(&format!("{it} cannot be read: "))), "{line}");
    }
    let line = world.refused(&["wipe", unread[0]]);
    assert!(line.contains("not readable: ") && !line.contains("no RAID metadata"), "{line}");
    assert!(world.end().success());
}

#[test]
fn an_array_of_whose_members_none_can_be_read_is_absent_for_that() {
    let test = "an_array_of_whose_members_none_can_be_read_is_absent_for_that";
    let Some((doomed, loops, mut world)) = stopped_on_doomed(test, "6") else { return };
    doomed.destroy();
    for (at, name) in [(3, "m3"), (4, "m4")] {
        world.sparse(name, MEMBER_BYTES);
        run("blockdev", &["--flushbufs", &loops[at].0]);
    }
    start(&mut world, &[]);
    let unread = &paths(&loops)[..3];
    let (code, line) = check(&world);
    assert_eq!(code, Some(3), "{line}");
    let screen = world.ok(&["status"]);
    for path in unread {
        let word = format!("{path} cannot be read: ");
        assert!(line.contains(&word) && screen.contains(&word), "{word}: {line}{screen}");
    }
    assert!(world.end().success());
}

#[test]
fn a_start_without_members_that_cannot_be_read_says_why() {
    let test = "a_start_without_members_that_cannot_be_read_says_why";
    let Some((doomed, loops, mut world)) = stopped_on_doomed(test, "7.3") else { return };
    let all = paths(&loops);
    doomed.destroy();
    std::fs::remove_file(world.path("state/arrays.toml")).expect("kept");
    start(&mut world, &[]);
    names_all(&world.ok(&[&["assemble", "--dry-run"], &all[..]].concat()), &all[..3]);
    let told = world.ok(&[&["assemble"], &all[..]].concat());
    names_all(&told, &all[..3]);
    assert!(told.contains("degraded: slot 0, slot 1, slot 2 out"), "{told}");
    assert_eq!(world.ok(&["events"]).matches("device.not_opened").count(), 3);
    assert!(world.end().success());
}
