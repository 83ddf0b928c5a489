//! Whole drives: others see that they are taken, because they get a partition. Loop devices with
//! partitions stand for drives.

use crate::told::{stderr, stdout};
use crate::tools::{all_here, run, skipped};
use crate::world::{MEMBER_BYTES, World};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

/// A loop device over a file, gone when dropped.
pub struct Loop(pub String);

impl Loop {
    pub fn over(file: &str) -> Loop {
        Loop(run("losetup", &["-f", "--show", file]).trim().to_owned())
    }

    /// One that is set up to have partitions, and so counts as a drive.
    fn drive(world: &World, name: &str, bytes: u64) -> Loop {
        world.sparse(name, bytes);
        let file = world.path(name).display().to_string();
        Loop(run("losetup", &["-P", "-f", "--show", &file]).trim().to_owned())
    }

    fn partition(&self) -> String {
        format!("{}p1", self.0)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Where the kernel reads no tables, its partitions stay otherwise.
        let _parts = Command::new("partx").args(["--delete", &self.0]).output();
        let _gone = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// Drives for a world. The world is the later one and so ends first: a daemon that has partitions
/// open keeps them, for whoever gets these loop devices next.
fn with_drives(world: World, names: &[&str], bytes: u64) -> (Vec<Loop>, World) {
    (names.iter().map(|name| Loop::drive(&world, name, bytes)).collect(), world)
}

fn paths(drives: &[Loop]) -> Vec<&str> {
    drives.iter().map(|drive| drive.0.as_str()).collect()
}

/// Whether this machine can run a test of drives.
fn is_able(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        skipped(test, "needs root and loop devices");
        return false;
    }
    all_here(
        test,
        &[
            "losetup",
            "sfdisk",
            "partx",
            "blkid",
            "wipefs",
            "parted",
            "mkfs.xfs",
            "mkfs.ext4",
            "script",
        ],
    )
}

fn is_blank(world: &World, drive: &Loop, name: &str) -> bool {
    let edge = 1 << 20;
    let bytes = std::fs::read(world.path(name)).expect("read");
    let ends = bytes[..edge].iter().chain(&bytes[bytes.len() - edge..]);
    let is_seen = !run("wipefs", &[&drive.0]).trim().is_empty();
    ends.copied().all(|byte| byte == 0) && !is_seen && !Path::new(&drive.partition()).exists()
}

/// Some MiB more for a drive that nobody uses.
fn grow(world: &World, name: &str, drive: &Loop) {
    world.sparse(name, MEMBER_BYTES + (4 << 20));
    run("losetup", &["--set-capacity", &drive.0]);
}

fn refusal(told: &Output) -> String {
    assert_eq!(told.status.code(), Some(1), "{}", stdout(told));
    stderr(told)
}

fn path_of(world: &World, slot: usize) -> String {
    world.array()["members"][slot]["path"].as_str().expect("text").to_owned()
}

/// Nothing but root and loop devices is needed to see that a drive is taken, at rest.
fn is_seen_to_be_taken(drive: &Loop) {
    let part = drive.partition();
    let path = drive.0.as_str();
    assert!(run("blkid", &["-p", path]).contains("PTTYPE=\"gpt\""));
    let seen = run("blkid", &["-p", &part]);
    assert!(seen.contains("PART_ENTRY_TYPE=\"47359340-8564-4e87-9201-2d6beffa6aa0\""), "{seen}");
    assert!(run("wipefs", &[path]).contains("gpt"));
    assert!(run("parted", &["-s", path, "print"]).contains("ashlar"));
    let dump = run("sfdisk", &["--dump", path]);
    assert!(dump.contains("type=47359340-8564-4E87-9201-2D6BEFFA6AA0"), "{dump}");
    let mkfs = Command::new("mkfs.xfs").arg(path).output().expect("it runs");
    assert!(stderr(&mkfs).contains("partition table"), "{}", stderr(&mkfs));
    // mkfs.ext4 asks at a terminal, and takes silence for a no.
    let typed = format!("mkfs.ext4 {path}");
    let asked = Command::new("script").args(["-qec", &typed, "/dev/null"]).output();
    let asked = asked.expect("it runs");
    assert!(stdout(&asked).contains("Proceed anyway"), "{}", stdout(&asked));
}

#[test]
fn whole_drives_get_a_partition_first_and_are_blank_when_they_retire() {
    if !is_able("whole_drives_get_a_partition_first_and_are_blank_when_they_retire") {
        return;
    }
    let names = ["d0", "d1", "d2", "d3", "d4", "d5"];
    let (drives, mut world) = with_drives(World::new(), &names, MEMBER_BYTES);
    let all = paths(&drives);
    let create = [&["create", "tank0", "--level", "6", "--spare", all[4]], &all[..4]].concat();
    let would = world.ok(&[&create[..], &["--dry-run"]].concat());
    assert!(would.contains("partitions would be made"), "{would}");
    assert!(drives.iter().zip(names).all(|(drive, name)| is_blank(&world, drive, name)));
    let told = world.ok(&create);
    let notes: Vec<&str> =
        told.lines().filter(|line| line.contains("partitions were made")).collect();
    assert!(matches!(&notes[..], [one] if one.contains(&drives[4].partition())), "{told}");
    assert_eq!(path_of(&world, 0), drives[0].partition());
    assert_eq!(world.status()["spare_pools"][0]["spares"][0]["path"], drives[4].partition());
    // A drive stands for its partition.
    world.ok(&["spare", "remove", all[4]]);
    world.ok(&["fail", "tank0", all[2]]);
    assert!(world.ok(&["re-add", "tank0", all[2], "--wait"]).contains("in sync"));
    assert!(world.ok(&["replace", "tank0", all[2], all[5], "--wait"]).contains("in sync"));
    assert_eq!(path_of(&world, 2), drives[5].partition());
    let again = refusal(&world.run(&["replace", "tank0", "2", all[5]]));
    assert!(again.contains("already"), "{again}");
    assert!(world.ok(&["spare", "add", all[2]]).contains("waits for a slot"));
    world.ok(&["spare", "remove", all[2]]);
    let told = world.ok(&["wipe", all[2]]);
    assert!(told.contains("blank, without a partition"), "{told}");
    assert!(is_blank(&world, &drives[2], "d2"));
    assert!(world.end().success());
    is_seen_to_be_taken(&drives[0]);
    world.start(&[]);
    world.ok(&["assemble", all[0], all[1], all[3], all[5]]);
    assert_eq!(world.array()["state"], "clean");
    assert!(world.ok(&["examine", all[0]]).contains("tank0"));
    world.ok(&["destroy", "tank0", "--confirm", "tank0"]);
    assert!(is_blank(&world, &drives[0], "d0") && is_blank(&world, &drives[5], "d5"));
}

#[test]
fn a_call_that_is_refused_leaves_all_drives_as_they_were() {
    if !is_able("a_call_that_is_refused_leaves_all_drives_as_they_were") {
        return;
    }
    let names = ["d0", "d1", "d2", "d3"];
    let (drives, mut world) = with_drives(World::new(), &names, MEMBER_BYTES);
    let all = paths(&drives);
    run("mkfs.ext4", &["-q", "-F", all[3]]);
    let create = [&["create", "tank0", "--level", "6"], &all[..]].concat();
    let are_blank =
        || drives.iter().zip(names).take(3).all(|(it, name)| is_blank(&world, it, name));
    assert!(refusal(&world.run(&create)).contains("carries ext4"));
    let size = format!("{}K", MEMBER_BYTES / 1024);
    let sized = [&create[..], &["--destroy", all[3], "--size", &size]].concat();
    assert!(refusal(&world.run(&sized)).contains("--whole"));
    assert!(are_blank());
    run("blkid", &["-p", all[3]]);
    // With consent even what has a file system.
    world.ok(&[&create[..], &["--destroy", all[3]]].concat());
    assert!(world.end().success());
    is_seen_to_be_taken(&drives[3]);
    assert!(!run("wipefs", &[all[3]]).contains("ext4"));
}

#[test]
fn an_array_that_fits_no_partitions_is_refused_before_they_are_made() {
    if !is_able("an_array_that_fits_no_partitions_is_refused_before_they_are_made") {
        return;
    }
    let names = ["d0", "d1"];
    let (drives, world) = with_drives(World::new(), &names, 5 << 20);
    let all = paths(&drives);
    let create = [&["create", "tank0", "--level", "1"], &all[..]].concat();
    assert!(refusal(&world.run(&create)).contains("nothing was written"));
    assert!(drives.iter().zip(names).all(|(it, name)| is_blank(&world, it, name)));
    world.ok(&[&create[..], &["--whole"]].concat());
    assert_eq!(path_of(&world, 0), all[0]);
}

#[test]
fn an_array_on_whole_drives_takes_a_new_drive_of_their_size_whole() {
    if !is_able("an_array_on_whole_drives_takes_a_new_drive_of_their_size_whole") {
        return;
    }
    let names = ["d0", "d1", "d2", "d3", "large"];
    let (drives, world) = with_drives(World::new(), &names, MEMBER_BYTES);
    let all = paths(&drives);
    world.ok(&[&["create", "tank0", "--level", "5", "--whole"], &all[..3]].concat());
    assert_eq!(path_of(&world, 1), all[1]);
    let told = world.ok(&["spare", "add", all[3]]);
    assert!(told.contains("used whole"), "{told}");
    world.ok(&["spare", "remove", all[3]]);
    let told = world.ok(&["replace", "tank0", "1", all[3], "--wait"]);
    assert!(told.contains("used whole"), "{told}");
    assert_eq!(path_of(&world, 1), all[3]);
    // A larger one gets a partition.
    grow(&world, "large", &drives[4]);
    world.ok(&["replace", "tank0", "1", all[4], "--wait"]);
    assert_eq!(path_of(&world, 1), drives[4].partition());
    // A new array gets partitions on what were members whole.
    world.ok(&["stop", "tank0"]);
    let destroy = ["--destroy", all[0], "--destroy", all[2]];
    world.ok(&[&["create", "tank1", "--level", "1", all[0], all[2]], &destroy[..]].concat());
    assert_eq!(path_of(&world, 0), drives[0].partition());
    assert!(world.ok(&["examine", all[0]]).contains("tank1"));
}

/// A daemon that finds this file in the place of sfdisk.
fn start_with_sfdisk(world: &mut World, file: &Path) {
    let hidden = format!("mount --bind {} \"$(command -v sfdisk)\"", file.display());
    let begin = format!("{hidden} && exec \"$0\" \"$@\"");
    let own = world.command();
    let mut program = Command::new("unshare");
    program.args(["--mount", "sh", "-c", &begin]).arg(own.get_program());
    program.current_dir(world.path("")).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    program.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    world.start_by(program, &[]);
}

#[test]
fn a_machine_without_sfdisk_says_so_and_takes_drives_whole() {
    if !is_able("a_machine_without_sfdisk_says_so_and_takes_drives_whole") {
        return;
    }
    let names = ["d0", "d1"];
    let (drives, mut world) = with_drives(World::without_daemon(), &names, MEMBER_BYTES);
    start_with_sfdisk(&mut world, Path::new("/dev/null"));
    let create = [&["create", "tank0", "--level", "1"], &paths(&drives)[..]].concat();
    let told = refusal(&world.run(&create));
    assert!(told.contains("package fdisk") && told.contains("--whole"), "{told}");
    assert!(drives.iter().zip(names).all(|(it, name)| is_blank(&world, it, name)));
    world.ok(&[&create[..], &["--whole"]].concat());
    assert!(world.end().success());
}

#[test]
fn partitions_are_taken_away_again_if_one_drive_gets_none() {
    if !is_able("partitions_are_taken_away_again_if_one_drive_gets_none") {
        return;
    }
    let names = ["d0", "d1", "d2"];
    let (drives, mut world) = with_drives(World::without_daemon(), &names, MEMBER_BYTES);
    let real = run("sh", &["-c", "command -v sfdisk"]);
    let (copy, script) = (world.path("real"), world.path("sfdisk"));
    // By another process: one that a test beside starts meanwhile would have it open (ETXTBSY).
    run("cp", &[real.trim(), copy.to_str().expect("text")]);
    let (copy, bad) = (copy.display(), &drives[2].0);
    let text = format!("#!/bin/sh\ncase \"$*\" in *{bad}) exit 5;; esac\nexec {copy} \"$@\"\n");
    std::fs::write(world.path("draft"), text).expect("written");
    run("cp", &[world.path("draft").to_str().expect("text"), script.to_str().expect("text")]);
    run("chmod", &["755", script.to_str().expect("text")]);
    start_with_sfdisk(&mut world, &script);
    let create = [&["create", "tank0", "--level", "5"], &paths(&drives)[..]].concat();
    let told = refusal(&world.run(&create));
    let wanted = [format!("no partition on {bad}"), "no drive keeps a partition".to_owned()];
    assert!(wanted.iter().all(|words| told.contains(words.as_str())), "{told}");
    assert!(drives.iter().zip(names).all(|(it, name)| is_blank(&world, it, name)));
    assert!(world.end().success());
}

/// A drive with a member in a partition is seen to be taken, at rest, by all who look.
#[test]
fn other_programs_see_that_a_partitioned_drive_is_taken() {
    let test = "other_programs_see_that_a_partitioned_drive_is_taken";
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        return skipped(test, "needs root and loop devices");
    }
    if !all_here(test, &["losetup", "sfdisk", "partx", "blkid", "wipefs", "parted", "mkfs.xfs"]) {
        return;
    }
    let mut world = World::new();
    let drives: Vec<Loop> = (0..4)
        .map(|number| {
            let name = format!("d{number}");
            world.sparse(&name, MEMBER_BYTES);
            Loop::over(&world.path(&name).display().to_string())
        })
        .collect();
    let paths: Vec<&str> = drives.iter().map(|drive| drive.0.as_str()).collect();
    let told = world.ok(&[&["partition", "--dry-run"], &*paths].concat());
    assert!(told.contains("nothing was written"), "{told}");
    let parts = world.ok(&[&["partition"], &*paths].concat());
    let parts: Vec<&str> = parts.lines().collect();
    assert_eq!(parts.len(), 4, "{parts:?}");
    world.ok(&[&["create", "tank0", "--level", "6"], &*parts].concat());
    assert_eq!(world.array()["members"][0]["path"], parts[0]);
    assert!(world.end().success());
    let seen = |program: &str, arguments: &[&str]| run(program, &[arguments, &[paths[0]]].concat());
    assert!(seen("blkid", &["-p"]).contains("PTTYPE=\"gpt\""));
    let part = run("blkid", &["-p", parts[0]]);
    assert!(part.contains("PART_ENTRY_TYPE=\"47359340-8564-4e87-9201-2d6beffa6aa0\""), "{part}");
    assert!(seen("wipefs", &[]).contains("gpt"));
    let table = run("parted", &["-s", paths[0], "print"]);
    assert!(table.contains("ashlar"), "{table}");
    let mkfs = Command::new("mkfs.xfs").arg(paths[0]).output().expect("it runs");
    assert!(!mkfs.status.success(), "mkfs.xfs takes it");
    // Nor does Ashlar take the drive, or its table, or a file for a drive.
    let file = world.path("d0").display().to_string();
    for (drive, why) in [(paths[0], "has partitions"), (&*file, "is no whole drive")] {
        let told = world.run(&["partition", drive]);
        assert_eq!(told.status.code(), Some(1));
        assert!(stderr(&told).contains(why), "{}", stderr(&told));
    }
    world.start(&[]);
    world.ok(&[&["assemble"], &*parts].concat());
    assert_eq!(world.array()["state"], "clean");
    // A daemon that has them open keeps the partitions, for whoever gets these loop devices next.
    assert!(world.end().success());
}

/// A whole drive that is a member at rest is blank to others, and not to us.
#[test]
fn no_partition_is_put_on_a_member() {
    let test = "no_partition_is_put_on_a_member";
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        return skipped(test, "needs root and loop devices");
    }
    if !all_here(test, &["losetup"]) {
        return;
    }
    let mut world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    assert!(world.end().success());
    let drive = Loop::over(&world.path("m1").display().to_string());
    let before = std::fs::read(world.path("m1")).expect("read");
    let told = world.run(&["partition", &drive.0]);
    assert_eq!(told.status.code(), Some(1));
    assert!(stderr(&told).contains("member"), "{}", stderr(&told));
    assert!(std::fs::read(world.path("m1")).expect("read") == before, "it was written to");
}

#[test]
fn a_pool_grows_over_whole_drives_that_get_a_partition_first() {
    if !is_able("a_pool_grows_over_whole_drives_that_get_a_partition_first") {
        return;
    }
    let size = 160 << 20;
    let pool =
        ["--level", "6", "--declustered", "--stripe-width", "5", "--distributed-spares", "1"];
    let world = World::new();
    world.create_of(size, 7, &pool);
    // Two with room for a table, one as large as the members.
    let (mut drives, world) = with_drives(world, &["d0", "d1"], size + (4 << 20));
    drives.push(Loop::drive(&world, "d2", size));
    let grow = |more: &[&str]| world.ok(&[&["grow", "tank0"], more, &paths(&drives)[..]].concat());
    let told = grow(&["--dry-run"]);
    assert!(told.contains("partitions would be made") && told.contains("used whole"), "{told}");
    assert!(is_blank(&world, &drives[0], "d0") && is_blank(&world, &drives[1], "d1"));
    let told = grow(&["--wait"]);
    assert!(told.contains("partitions were made"), "{told}");
    assert_eq!(path_of(&world, 7), drives[0].partition());
    assert_eq!(path_of(&world, 8), drives[1].partition());
    assert_eq!(path_of(&world, 9), drives[2].0);
    world.ok(&["stop", "tank0"]);
    is_seen_to_be_taken(&drives[1]);
}

/// The kernel shows a partition until somebody has it read the table, and another table at the end
/// may bring it back.
#[test]
fn a_drive_that_was_given_away_whole_takes_its_partition_with_it() {
    let test = "a_drive_that_was_given_away_whole_takes_its_partition_with_it";
    if !is_able(test) {
        return;
    }
    let (drives, world) = with_drives(World::new(), &["d0", "d1", "d2"], MEMBER_BYTES);
    let partitions: Vec<String> = drives.iter().map(Loop::partition).collect();
    let partitions: Vec<&str> = partitions.iter().map(String::as_str).collect();
    world.ok(&[&["create", "tank0", "--level", "5"], &paths(&drives)[..]].concat());
    world.ok(&["stop", "tank0"]);
    for at in [MEMBER_BYTES - 8192, 4096] {
        for drive in paths(&drives) {
            let file = File::options().write(true).open(drive).expect("ours");
            file.write_all_at(&[0xFC, 0x4E, 0x2B, 0xA9], at).expect("written");
            file.sync_all().expect("written");
        }
        let line = world.refused(&[&["assemble"], &partitions[..]].concat());
        assert!(line.contains("carries linux_raid_member"), "{at}: {line}");
        assert!(line.contains(&format!("on its drive {}", drives[0].0)), "{line}");
    }
}
