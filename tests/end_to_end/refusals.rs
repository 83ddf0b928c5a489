//! Everything that must be refused: one clear line, exit code 1, nothing written.

use crate::world::{MEMBER_BYTES, World, flip};
use std::os::unix::fs::FileExt;

/// Arguments of `ashlar`, and what the line must say.
const CREATE: [(&[&str], &str); 10] = [
    (&["create", "t", "-l", "6", "m0", "m1", "m2"], "at least 4 members"),
    (&["create", "t", "-l", "1", "m0", "m1", "m2", "m3", "m4"], "at most 4 members"),
    (&["create", "t", "-l", "n+m", "--parity", "40", "m0", "m1", "m2", "m3"], "40"),
    (&["create", "t", "-l", "60", "m0", "m1", "m2", "m3"], "group"),
    (&["create", "t", "-l", "5", "m0", "m1", "m1"], "m1 is given twice"),
    (&["create", "t", "-l", "5", "m0", "m1", "gone"], "gone"),
    (&["create", "t", "-l", "5", "m0", "m1", "small"], "small"),
    (&["create", "t", "-l", "5", "m0", "m1", "foreign"], "foreign carries ext"),
    (&["create", "", "-l", "5", "m0", "m1", "m2"], "name"),
    (&["create", "t/../x", "-l", "5", "m0", "m1", "m2"], "name"),
];

#[test]
fn bad_arrays_are_refused_before_anything_is_written() {
    let world = World::new();
    let members = world.members(5);
    world.sparse("small", 1 << 20);
    world.sparse("foreign", MEMBER_BYTES);
    // The magic of ext4: what libblkid looks for is enough to be refused.
    let foreign = std::fs::File::options().write(true).open(world.path("foreign")).expect("open");
    foreign.write_all_at(&[0x53, 0xEF], 1024 + 56).expect("write");
    foreign.write_all_at(&[1, 0, 0, 0], 1024 + 76).expect("write");
    for (arguments, says) in CREATE {
        let line = world.refused(arguments);
        assert!(line.contains(says), "{arguments:?}: {line}");
    }
    for member in members {
        let bytes = std::fs::read(world.path(&member)).expect("read");
        assert!(bytes.iter().all(|byte| *byte == 0), "{member} was written to");
    }
}

#[test]
fn members_in_use_or_of_another_array_are_not_taken() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    let line = world.refused(&["create", "t", "-l", "6", "m0", "m1", "m2", "m3"]);
    assert!(line.contains("m0"), "{line}");
    let line = world.refused(&["create", "tank0", "-l", "5", "m0", "m1", "m2"]);
    assert!(line.contains("an array called 'tank0' runs already"), "{line}");
    world.ok(&["stop", "tank0"]);
    let line = world.refused(&["create", "t", "-l", "6", "m0", "m1", "m2", "m3"]);
    assert!(line.contains("--destroy"), "{line}");
    world.ok(&["assemble", "m0", "m1", "m2", "m3"]);
    assert_eq!(world.array()["state"], "clean");
}

#[test]
fn commands_for_things_that_are_not_there_are_refused() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    for (arguments, says) in [
        (&["stop", "gone"] as &[&str], "gone"),
        (&["fail", "gone", "1"], "gone"),
        (&["fail", "tank0", "4"], "slots are 0 to 3"),
        (&["fail", "tank0", "/dev/none"], "no member"),
        (&["attach", "gone"], "gone"),
        (&["status", "gone"], "gone"),
        (&["assemble", "gone"], "gone"),
        (&["assemble", "--uuid", "x", "m0"], "'x' is not a UUID"),
    ] {
        let line = world.refused(arguments);
        assert!(line.contains(says), "{arguments:?}: {line}");
    }
}

#[test]
fn the_last_member_that_holds_the_data_cannot_be_failed() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    world.ok(&["fail", "tank0", "0"]);
    world.ok(&["fail", "tank0", "1"]);
    let line = world.refused(&["fail", "tank0", "2"]);
    assert!(line.contains("no redundancy left"), "{line}");
    assert_eq!(world.array()["state"], "degraded");
}

#[test]
fn too_few_members_do_not_start() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    world.ok(&["stop", "tank0"]);
    let line = world.refused(&["assemble", "m0"]);
    assert!(line.contains("nothing was written"), "{line}");
    let would = world.ok(&["assemble", "--dry-run", "m0", "m1", "m2"]);
    assert!(would.contains("degraded") && would.contains("slot 3"), "{would}");
}

#[test]
fn a_byte_changed_in_any_copy_of_a_superblock_does_no_harm() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    world.ok(&["stop", "tank0"]);
    for offset in [40, 4096, 64 << 10, MEMBER_BYTES - (64 << 10), MEMBER_BYTES - (128 << 10)] {
        flip(&world.path("m1"), offset);
        world.ok(&["examine", "m1"]);
        world.ok(&["assemble", "m0", "m1", "m2", "m3"]);
        world.ok(&["stop", "tank0"]);
    }
}

#[test]
fn a_second_daemon_on_the_same_socket_is_refused() {
    let world = World::new();
    let line = world.refused(&["serve"]);
    assert!(line.contains("a daemon runs there already"), "{line}");
    world.ok(&["status"]);
}

#[test]
fn a_configuration_with_an_unknown_key_starts_nothing() {
    let world = World::without_daemon();
    std::fs::write(world.path("a.toml"), "[serve]\nworker = 3\n").expect("write");
    let line = world.refused(&["serve", "--config", "a.toml"]);
    assert!(line.contains("a.toml line 2: unknown field `worker`"), "{line}");
    assert!(!world.path("control.sock").exists());
}
