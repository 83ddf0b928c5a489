//! An array's life by hand: jobs by their numbers, tunables while it runs, lights of bays, other
//! names, and drives that retire.

use crate::told::{stderr, stdout};
use crate::tools::wait_for;
use crate::world::{MEMBER_BYTES, World};

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
    wait_for("the spare", || world.array()["members"][1]["state"] != "out");
    world.ok(&["rebuild", "wait", "tank0"]);
    let place = world.path("m2").display().to_string();
    assert_eq!(world.array()["members"][1]["path"], place.as_str());
}
