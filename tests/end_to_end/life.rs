//! An array's life by hand: jobs by their numbers, tunables while it runs, lights of bays, other
//! names, and drives that others see to be taken.

use crate::told::{stderr, stdout};
use crate::tools::{all_here, run, skipped};
use crate::world::{MEMBER_BYTES, World};
use std::path::Path;
use std::process::Command;

#[test]
fn a_job_is_listed_waited_for_and_refused_by_its_number() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    assert!(world.ok(&["job", "list"]).contains("no job runs"));
    world.ok(&["scrub", "tank0"]);
    assert_eq!(world.ok(&["job", "wait", "tank0/1"]), "scrub tank0/1 is done\n");
    let listed = world.ok(&["job", "list", "tank0"]);
    let line = listed.lines().nth(1).expect("a job");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words, ["tank0/1", "scrub", "-", "done"], "{listed}");
    for action in ["wait", "pause", "cancel"] {
        let told = world.run(&["job", action, "tank0/7"]);
        assert_eq!(told.status.code(), Some(1));
        assert!(stderr(&told).contains("no job tank0/7 is under way"), "{}", stderr(&told));
    }
    let told = world.run(&["job", "wait", "tank0"]);
    assert_eq!(told.status.code(), Some(2));
    // A rebuild has a number, too.
    world.ok(&["fail", "tank0", "2"]);
    world.sparse("new0", MEMBER_BYTES);
    world.ok(&["replace", "tank0", "2", "new0", "--wait"]);
    assert_eq!(world.ok(&["job", "wait", "tank0/2"]), "rebuild tank0/2 is done\n");
    let json = stdout(&world.run(&["job", "list", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json[0]["ended_jobs"][1]["kind"], "rebuild");
}

#[test]
fn tunables_change_while_the_array_runs_and_nonsense_changes_nothing() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    assert!(world.ok(&["set", "tank0"]).contains("read_deadline_ms=500\n"));
    let told = world.ok(&["set", "tank0", "read_deadline_ms=700", "job_floor=64M"]);
    assert!(told.contains("are changed until the daemon ends"), "{told}");
    let now = world.ok(&["set", "tank0"]);
    for line in ["read_deadline_ms=700\n", "job_floor=67108864\n", "space_wait_s=0\n"] {
        assert!(now.contains(line), "{line}: {now}");
    }
    assert_eq!(world.array()["tuning"]["read_deadline_ms"], 700);
    let told = world.ok(&["set", "tank0", "job_floor=64M"]);
    assert!(told.contains("already"), "{told}");
    // A limit, and none again.
    world.ok(&["set", "tank0", "space_wait_s=60"]);
    assert_eq!(world.array()["tuning"]["space_wait_s"], 60);
    world.ok(&["set", "tank0", "space_wait_s=0"]);
    for (typed, code, why) in [
        ("read_deadline_ms=0", 1, "must be more than 0"),
        ("slow_member=shout", 1, "warn, avoid or replace"),
        ("write_rate_max=1000", 1, "0 (no limit) or at least 1 MiB"),
        ("read_iops_max=3", 1, "0 (no limit) or at least 100"),
        ("melt=1", 2, "unknown field"),
    ] {
        let told = world.run(&["set", "tank0", typed]);
        assert_eq!(told.status.code(), Some(code), "{}", stderr(&told));
        assert!(stderr(&told).contains(why), "{}", stderr(&told));
    }
    assert_eq!(world.ok(&["set", "tank0"]), now);
    assert_eq!(world.run(&["set", "tank7"]).status.code(), Some(1));
}

#[test]
fn a_member_without_a_light_is_refused_with_what_is_known_of_it() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    let place = world.path("m2").display().to_string();
    world.ok(&["fail", "tank0", "2"]);
    // A file has no bay; it is found by what it was called, too.
    for member in ["2", &place] {
        let told = world.run(&["locate", "tank0", member]);
        assert_eq!(told.status.code(), Some(1));
        let said = stderr(&told);
        assert!(said.contains("no light was switched") && said.contains(&place), "{said}");
    }
}

#[test]
fn an_array_is_renamed_with_what_is_on_it_and_stays_so() {
    let mut world = World::new();
    let devices = world.create("tank0", 4, &["--level", "6"]);
    world.ok(&["set", "tank0", "job_floor=64M"]);
    let told = world.ok(&["rename", "tank0", "attic"]);
    assert!(told.starts_with("'tank0' is called 'attic' now; array 'attic' is running"), "{told}");
    assert_eq!(world.array()["name"], "attic");
    assert_eq!(world.array()["tuning"]["job_floor"], 64 << 20);
    for (typed, code, why) in [
        (["rename", "tank0", "x"], 1, "no array 'tank0' is running"),
        (["rename", "attic", "a/b"], 1, "cannot be a name"),
    ] {
        let told = world.run(&typed);
        assert_eq!(told.status.code(), Some(code));
        assert!(stderr(&told).contains(why), "{}", stderr(&told));
    }
    assert!(world.ok(&["rename", "attic", "attic"]).contains("already"));
    assert!(world.end().success());
    world.start(&[]);
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    world.ok(&[&["assemble", "--name", "attic"], &*devices].concat());
    assert_eq!(world.array()["name"], "attic");
}

#[test]
fn a_drive_that_was_replaced_is_a_spare_in_one_step_and_one_that_was_not_is_refused() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    world.sparse("new0", MEMBER_BYTES);
    world.ok(&["fail", "tank0", "2"]);
    // The array may still want it back.
    let told = world.run(&["spare", "add", "m2"]);
    assert_eq!(told.status.code(), Some(1));
    assert!(stderr(&told).contains("--destroy"), "{}", stderr(&told));
    world.ok(&["replace", "tank0", "2", "new0", "--wait"]);
    assert!(world.ok(&["spare", "add", "m2"]).contains("waits for a slot"));
    world.ok(&["fail", "tank0", "1"]);
    world.ok(&["rebuild", "wait", "tank0"]);
    let place = world.path("m2").display().to_string();
    assert_eq!(world.array()["members"][1]["path"], place.as_str());
}

/// A loop device over a file, gone when dropped.
struct Loop(String);

impl Loop {
    fn over(file: &str) -> Loop {
        Loop(run("losetup", &["-f", "--show", file]).trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Where the kernel reads no tables, its partitions stay otherwise.
        let _parts = Command::new("partx").args(["--delete", &self.0]).output();
        let _gone = Command::new("losetup").args(["-d", &self.0]).status();
    }
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
