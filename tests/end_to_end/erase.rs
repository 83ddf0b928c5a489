//! `ashlar wipe` and `ashlar destroy`: what is needed stays, and what is erased looks blank.

use crate::world::World;

/// What `ashlar examine` says of a device.
fn examined(world: &World, device: &str) -> String {
    String::from_utf8(world.run(&["examine", device]).stdout).expect("text")
}

/// Runs a command that is refused. What it says.
fn refused(world: &World, arguments: &[&str]) -> String {
    let told = world.run(arguments);
    assert_eq!(told.status.code(), Some(1), "{arguments:?}: {told:?}");
    String::from_utf8(told.stderr).expect("text")
}

#[test]
fn a_retired_device_is_wiped_and_one_that_is_needed_is_not() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    let in_use = refused(&world, &["wipe", "m1"]);
    assert!(in_use.contains("is in slot 1 of 'tank0'; nothing was written"), "{in_use}");
    world.sparse("blank", 64 << 20);
    let blank = refused(&world, &["wipe", "blank"]);
    assert!(blank.contains("no RAID metadata of Ashlar; nothing was written"), "{blank}");
    world.sparse("extra", 64 << 20);
    world.ok(&["spare", "add", "extra"]);
    let spare = refused(&world, &["wipe", "extra"]);
    assert!(spare.contains("waits as a spare") && spare.contains("spare remove"), "{spare}");
    world.ok(&["spare", "remove", "extra"]);

    world.sparse("new", 64 << 20);
    world.ok(&["replace", "tank0", "2", "new"]);
    world.ok(&["rebuild", "wait", "tank0"]);
    assert!(examined(&world, "m2").contains("tank0"));
    // One that is needed is among them: nothing is erased.
    refused(&world, &["wipe", "m2", "m1"]);
    assert!(examined(&world, "m2").contains("tank0"));
    let dry = world.ok(&["wipe", "--dry-run", "m2"]);
    assert!(dry.contains("would erase") && examined(&world, "m2").contains("tank0"), "{dry}");
    let told = world.ok(&["wipe", "m2"]);
    assert!(told.contains("erased the RAID metadata of") && told.contains("of 'tank0'"), "{told}");
    assert!(!examined(&world, "m2").contains("tank0"));
    assert_eq!(world.array()["state"], "clean");
    // Blank for commands, too.
    world.ok(&["spare", "add", "m2"]);
    world.ok(&["spare", "remove", "m2"]);

    world.ok(&["stop", "tank0"]);
    let stopped = refused(&world, &["wipe", "m0"]);
    assert!(stopped.contains("'tank0' does not run and may need it"), "{stopped}");
    assert!(examined(&world, "m0").contains("tank0"));
    world.ok(&["wipe", "m0", "--destroy", "m0"]);
    assert!(!examined(&world, "m0").contains("tank0"));
    // It was a RAID 6: one of four may go.
    world.ok(&["assemble", "m1", "new", "m3"]);
    assert_eq!(world.array()["state"], "degraded");
}

#[test]
fn an_array_is_destroyed_when_its_name_is_confirmed() {
    let mut world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    let told = refused(&world, &["destroy", "tank0"]);
    assert!(told.contains("all data of 'tank0' would be lost, on 4 devices"), "{told}");
    assert!(told.contains("ashlar destroy tank0 --confirm tank0"), "{told}");
    refused(&world, &["destroy", "tank0", "--confirm", "tank1"]);
    assert_eq!(world.array()["state"], "clean");
    let dry = world.ok(&["destroy", "tank0", "--dry-run"]);
    assert!(dry.contains("would destroy 'tank0'"), "{dry}");
    assert_eq!(world.array()["state"], "clean");
    let told = world.ok(&["destroy", "tank0", "--confirm", "tank0"]);
    assert!(told.contains("'tank0' is destroyed; erased"), "{told}");
    assert_eq!(world.status()["arrays"].as_array().map(Vec::len), Some(0));
    for member in ["m0", "m1", "m2", "m3"] {
        assert!(!examined(&world, member).contains("tank0"), "{member}");
    }
    let told = refused(&world, &["destroy", "tank0", "--confirm", "tank0"]);
    assert!(told.contains("no array 'tank0' is running"), "{told}");
    // Its devices are free, and nothing of it comes back.
    world.create("tank1", 4, &["--level", "6"]);
    assert!(world.end().success());
}

/// Every other change of it was refused.
#[test]
fn an_array_that_was_started_read_only_on_request_is_not_destroyed() {
    let mut world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    world.ok(&["stop", "tank0"]);
    let all = ["m0", "m1", "m2", "m3"];
    world.ok(&[&["assemble", "--read-only"], all.as_slice()].concat());
    let before = world.snapshot(&all);
    for further in [["--dry-run"].as_slice(), &["--confirm", "tank0"]] {
        let line = refused(&world, &[&["destroy", "tank0"], further].concat());
        assert!(line.contains("read-only on request; nothing was changed"), "{line}");
    }
    assert_eq!(before, world.snapshot(&all));
    world.ok(&["stop", "tank0"]);
    world.ok(&[&["assemble"], all.as_slice()].concat());
    world.ok(&["destroy", "tank0", "--confirm", "tank0"]);
    assert!(world.end().success());
}

/// A member that was out kept its superblock and was found again by the next scan.
#[test]
fn members_that_are_out_go_with_their_array_and_copies_are_named() {
    let mut world = World::new();
    world.create("tank0", 5, &["--level", "6"]);
    std::fs::copy(world.path("m0"), world.path("copy")).expect("copied");
    world.ok(&["fail", "tank0", "2"]);
    world.ok(&["fail", "tank0", "4"]);
    std::fs::rename(world.path("m4"), world.path("elsewhere")).expect("ours");
    let dry = world.ok(&["destroy", "tank0", "--dry-run"]);
    let told = world.ok(&["destroy", "tank0", "--confirm", "tank0"]);
    for told in [&dry, &told] {
        assert!(told.contains("/m2"), "{told}");
        assert!(told.contains("/m4 is not here and keeps its superblock"), "{told}");
        assert!(told.contains("ashlar wipe "), "{told}");
    }
    for member in ["m0", "m1", "m2", "m3"] {
        assert!(!examined(&world, member).contains("tank0"), "{member}");
    }
    for kept in ["copy", "elsewhere"] {
        assert!(examined(&world, kept).contains("tank0"), "{kept}");
    }
    std::fs::rename(world.path("elsewhere"), world.path("m4")).expect("ours");
    let wipe = told.split("ashlar wipe ").nth(1).expect("the command").split(';').next();
    let words: Vec<&str> = wipe.expect("it ends").split_whitespace().collect();
    world.ok(&[&["wipe"], &words[..]].concat());
    assert!(!examined(&world, "m4").contains("tank0"));
    assert!(world.end().success());
}
