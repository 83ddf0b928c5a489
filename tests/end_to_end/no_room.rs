//! Thin members on a file system that runs full under a client: writes wait, reads go on, and with
//! room everything goes on where it was.
//!
//! Before, the client got an error, members went out one after the other, `stop` called the array
//! clean that was not, and the next start was refused.

use crate::tools::{all_here, run, skipped};
use crate::world::{MEMBER_BYTES, World};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const MEMBERS: [&str; 4] = ["fs/m0", "fs/m1", "fs/m2", "fs/m3"];
/// More than there is room for, and less than the volume has.
const DATA_BYTES: usize = 90 << 20;
/// Of the file system at first.
const SMALL: &str = "size=60M";
/// Enough for all members.
const LARGE: &str = "size=400M";

/// A file system in memory that goes when the test ends.
struct Small(PathBuf);

impl Small {
    fn new(at: PathBuf) -> Small {
        std::fs::create_dir(&at).expect("a folder");
        let path = at.to_str().expect("text");
        run("mount", &["-t", "tmpfs", "-o", SMALL, "none", path]);
        Small(at)
    }

    fn make_room(&self) {
        let options = format!("remount,{LARGE}");
        run("mount", &["-o", &options, self.0.to_str().expect("text")]);
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // What a test that failed left open keeps it; it goes with that.
        let _gone = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// A client that writes more than there is room for.
struct Full {
    fs: Small,
    writer: Child,
    noise: PathBuf,
}

/// `None` after saying why `test` cannot run here.
fn full(test: &str, create: &[&str]) -> Option<(Full, World)> {
    if !rustix::process::geteuid().is_root() {
        skipped(test, "needs root for a small file system");
        return None;
    }
    if !all_here(test, &["nbdcopy", "nbdsh"]) {
        return None;
    }
    let world = World::new();
    let fs = Small::new(world.path("fs"));
    MEMBERS.iter().for_each(|name| world.sparse(name, MEMBER_BYTES));
    world.ok(&[&["create", "tank0"], create, &MEMBERS].concat());
    let noise = world.noise("noise", DATA_BYTES);
    let writer = write(&world, &noise);
    until(|| pause(&world).is_some());
    Some((Full { fs, writer, noise }, world))
}

fn write(world: &World, noise: &Path) -> Child {
    let lines = format!(
        "data = open('{}', 'rb').read()\nfor at in range(0, len(data), 1 << 18):\n    \
         h.pwrite(data[at:at + (1 << 18)], at)\nh.flush()",
        noise.display()
    );
    Command::new("nbdsh")
        .args(["-u", &world.uri("tank0"), "-c", &lines])
        .env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs")
}

fn pause(world: &World) -> Option<serde_json::Value> {
    Some(world.array()["pause"].clone()).filter(|pause| !pause.is_null())
}

fn until(is_so: impl Fn() -> bool) {
    let is_so = (0..6000).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        is_so()
    });
    assert!(is_so, "it did not come about in two minutes");
}

/// The beginning of the volume, which was flushed by nobody but written long before, and all
/// members.
fn starts_as_written(world: &World, noise: &Path, bytes: usize) {
    let lines = format!(
        "data = open('{}', 'rb').read({bytes})\nfor at in range(0, len(data), 1 << 20):\n    \
         assert h.pread(1 << 20, at) == data[at:at + (1 << 20)], at",
        noise.display()
    );
    run("nbdsh", &["-u", &world.uri("tank0"), "-c", &lines]);
}

fn is_whole(world: &World) {
    let array = world.array();
    assert_eq!(array["state"], "clean", "{array}");
    let members = array["members"].as_array().expect("members");
    assert!(members.iter().all(|member| member["state"] == "in_sync"), "{array}");
    let scrub = world.ok(&["scrub", "tank0", "--wait"]);
    assert!(scrub.contains(" 0 mismatches"), "{scrub}");
}

#[test]
fn writes_wait_for_room_and_nothing_is_lost() {
    let test = "writes_wait_for_room_and_nothing_is_lost";
    for create in [&["--level", "6"][..], &["--level", "5", "--checksums", "on"], &["--level", "0"]]
    {
        let Some((Full { fs, mut writer, noise }, world)) = full(test, create) else { return };
        starts_as_written(&world, &noise, 8 << 20);
        let line = world.refused(&["stop", "tank0"]);
        assert!(
            line.contains("paused: no space under slots") && line.contains("--force"),
            "{line}"
        );
        let events = world.ok(&["events"]);
        assert!(events.contains("array.paused") && !events.contains("member.failed"), "{events}");
        assert!(!events.contains("array.failed"), "{events}");
        until(|| world.ok(&["status"]).contains("paused no space under slots 0, 1, 2, 3"));
        fs.make_room();
        assert!(writer.wait().expect("it ran").success(), "{create:?}");
        until(|| pause(&world).is_none());
        starts_as_written(&world, &noise, DATA_BYTES);
        if create != ["--level", "0"] {
            is_whole(&world);
        }
        let line = world.ok(&["stop", "tank0"]);
        assert!(line.contains("stopped and clean"), "{line}");
    }
}

#[test]
fn a_daemon_that_is_killed_without_room_starts_again() {
    let test = "a_daemon_that_is_killed_without_room_starts_again";
    let Some((Full { fs, mut writer, noise }, mut world)) = full(test, &["--level", "6"]) else {
        return;
    };
    world.kill();
    writer.wait().expect("it ran");
    fs.make_room();
    world.start(&[]);
    world.ok(&[&["assemble"], &MEMBERS[..]].concat());
    starts_as_written(&world, &noise, 8 << 20);
    is_whole(&world);
    assert!(write(&world, &noise).wait().expect("it ran").success());
    starts_as_written(&world, &noise, DATA_BYTES);
    world.ok(&["stop", "tank0"]);
}

#[test]
fn a_forced_stop_without_room_says_what_the_members_say() {
    let test = "a_forced_stop_without_room_says_what_the_members_say";
    let Some((Full { fs, mut writer, noise }, world)) = full(test, &["--level", "6"]) else {
        return;
    };
    let output = world.run(&["stop", "--force", "tank0"]);
    let line = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!writer.wait().expect("it ran").success(), "the write was answered well");
    let is_clean = line.contains("stopped and clean");
    let events = world.ok(&["events"]);
    assert!(events.contains(&format!("clean {is_clean}")), "{line}\n{events}");
    assert!(!events.contains("member.failed"), "{events}");
    for member in MEMBERS {
        let told = world.ok(&["examine", member]);
        assert_eq!(told.contains("state          clean"), is_clean, "{line}\n{told}");
    }
    fs.make_room();
    world.ok(&[&["assemble"], &MEMBERS[..]].concat());
    starts_as_written(&world, &noise, 8 << 20);
    is_whole(&world);
    world.ok(&["stop", "tank0"]);
}

#[test]
fn a_daemon_that_is_asked_to_end_without_room_ends() {
    let test = "a_daemon_that_is_asked_to_end_without_room_ends";
    let Some((Full { fs, mut writer, noise }, mut world)) = full(test, &["--level", "6"]) else {
        return;
    };
    assert!(world.end().success());
    assert!(!writer.wait().expect("it ran").success(), "the write was answered well");
    fs.make_room();
    world.start(&MEMBERS);
    starts_as_written(&world, &noise, 8 << 20);
    is_whole(&world);
    world.ok(&["stop", "tank0"]);
}
