//! Starts from members that are too few, too old, damaged, duplicated, or from a split brain.
//!
//! What must stay true: a refused start says why in one line and has written nothing. A start that
//! goes on says which members it lacks, and does not write to a member that it does not understand.

use crate::contents::flip;
use crate::raw_nbd::RawNbd;
use crate::refusals::same_line;
use crate::world::{MEMBER_BYTES, World};

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

/// Whichever members are missing: each has some stripe with any two others.
#[test]
fn a_declustered_array_starts_without_as_many_members_as_its_stripes_have_parity() {
    let world = World::new();
    world.create("tank0", 8, &["-l", "6", "--declustered", "--stripe-width", "5"]);
    world.ok(&["stop", "tank0"]);
    let before = world.snapshot(&["m0", "m1", "m2", "m3", "m4"]);
    let line = world.refused(&["assemble", "m0", "m1", "m2", "m3", "m4"]);
    assert!(line.contains("lacks 3 of 8 members and can do without 2"), "{line}");
    assert_eq!(before, world.snapshot(&["m0", "m1", "m2", "m3", "m4"]));
    world.ok(&["assemble", "m7", "m1", "m2", "m3", "m4", "m6"]);
    assert_eq!(
        (&world.array()["state"], &world.array()["tolerates"]),
        (&"degraded".into(), &0.into())
    );
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

/// What the four superblock copies begin with, in bytes from the start of the member.
const COPIES: [u64; 4] = [0, 64 << 10, MEMBER_BYTES - (128 << 10), MEMBER_BYTES - (64 << 10)];

#[test]
fn a_member_with_the_same_byte_changed_in_all_copies_of_its_superblock_is_out_and_not_written() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    world.ok(&["stop", "tank0"]);
    let all = ["assemble", "m0", "m1", "m2", "m3"];
    // Header and member table: identity, numbers, checksum, reserved bytes, entries of members.
    let bytes = (0..4096).step_by(389).chain([4096, 4096 + 60, 4096 + 3 * 128]);
    for byte in bytes {
        COPIES.iter().for_each(|copy| flip(&world.path("m1"), copy + byte));
        let before = world.snapshot(&["m1"]);
        let line = world.anonymous(&world.refused(&["assemble", "m1"]));
        assert!(
            line.contains(
                "no member of an array was found on the one device looked at; nothing was written"
            ) || line.contains("m1 cannot be understood"),
            "byte {byte}: {line}"
        );
        let would = world.ok(&[&all[..1], &["--dry-run"], &all[1..]].concat());
        assert!(would.contains("would start degraded, without slot 1"), "byte {byte}: {would}");
        assert_eq!(before, world.snapshot(&["m1"]), "byte {byte}");
        COPIES.iter().for_each(|copy| flip(&world.path("m1"), copy + byte));
    }
    COPIES.iter().for_each(|copy| flip(&world.path("m1"), copy + 40));
    let before = world.snapshot(&["m1"]);
    let started = world.ok(&all);
    assert_eq!(started.trim(), "array 'tank0' is running, degraded: slot 1 out");
    world.ok(&["stop", "tank0"]);
    assert_eq!(before, world.snapshot(&["m1"]), "a member that is not understood is not written");
}

#[test]
fn a_vanished_member_is_named_and_too_many_do_not_start() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    world.ok(&["stop", "tank0"]);
    std::fs::remove_file(world.path("m3")).expect("removed");
    let started = world.ok(&["assemble", "m0", "m1", "m2", "m3"]);
    assert_eq!(
        world.anonymous(started.trim()),
        "array 'tank0' is running, degraded: slot 3 out; m3: there is no such device or file; \
         check the name"
    );
    world.ok(&["stop", "tank0"]);
    std::fs::remove_file(world.path("m1")).expect("removed");
    std::fs::remove_file(world.path("m2")).expect("removed");
    let before = world.snapshot(&["m0"]);
    same_line(
        &world,
        &["assemble", "m0", "m1", "m2", "m3"],
        "ashlar: array tank0: lacks 3 of 4 members and can do without 2: slot 1 (not usable or not \
         found), slot 2 (not usable or not found), slot 3 (not usable or not found); nothing was \
         written; attach the missing devices and assemble again; \
         could not look at: m1: there is no such device or file; check the name, m2: there is no \
         such device or file; check the name, m3: there is no such device or file; check the name",
    );
    assert_eq!(before, world.snapshot(&["m0"]));
}

#[test]
fn members_of_an_older_generation_or_of_another_array_or_twice_are_not_used() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    world.ok(&["fail", "tank0", "0"]);
    world.ok(&["fail", "tank0", "1"]);
    world.ok(&["stop", "tank0"]);
    for name in ["x0", "x1", "x2"] {
        world.sparse(name, MEMBER_BYTES);
    }
    world.ok(&["create", "other", "--level", "5", "x0", "x1", "x2"]);
    world.ok(&["stop", "other"]);
    std::fs::copy(world.path("m3"), world.path("m3.copy")).expect("copied");
    let members = ["m0", "m1", "m2", "m3", "m3.copy", "x0"];
    let before = world.snapshot(&members);
    for (arguments, line) in [
        (
            &["m0", "m1", "m2"] as &[&str],
            "ashlar: array tank0: lacks 3 of 4 members and can do without 2: \
             slot 0 (out since generation 3), slot 1 (out since generation 4), slot 3 (not usable \
             or not found); nothing was written; attach the missing devices and assemble again; \
             without them, `--accept-older-members` starts it with blocks that may be old \
             (`--dry-run --accept-older-members` says which)",
        ),
        (
            &["m2", "m3", "m3.copy"],
            "ashlar: array tank0: m3 and m3.copy are the same member (slot 3; \
             perhaps one is a clone of the other); nothing was written; \
             assemble again with only the right one of them",
        ),
        (
            &["m2", "m3", "x0"],
            "ashlar: the devices belong to several arrays: \
             tank0 (UUID, 2 members), other (UUID, 1 members); nothing was written; \
             name one of them by its UUID; `ashlar assemble --uuid UUID` chooses",
        ),
        (
            &["--name", "tank0", "x0", "x1"],
            "ashlar: no member of array tank0 was found on the 2 devices looked at; nothing was \
             written; check the list of devices, and run examine on each to see what it holds",
        ),
    ] {
        same_line(&world, &[&["assemble"], arguments].concat(), line);
    }
    assert_eq!(before, world.snapshot(&members));
    let started = world.ok(&["assemble", "--name", "tank0", "m0", "m1", "m2", "m3", "x0"]);
    assert_eq!(started.trim(), "array 'tank0' is running, degraded: slot 0, slot 1 out");
}

/// What a start says of members that were started without each other.
const SPLIT: &str = "ashlar: array tank0: its members were started separately and split: m0 m1 \
                     (generation 5, incarnation UUID) against m2 m3 (generation 5, incarnation \
                     UUID); nothing was written and both sides are as they were; examine both, \
                     then assemble again and name the incarnation to trust (the other side will be \
                     rebuilt from it and lose what only it has); \
                     `ashlar assemble --incarnation UUID` chooses";

#[test]
fn two_sides_that_each_believe_they_are_newest_do_not_start_until_one_is_chosen() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    let write = |byte: u8| {
        let mut client = RawNbd::open(&world, "tank0");
        client.write(0, &[byte; 4096]).expect("written");
        client.flush();
    };
    write(1);
    world.ok(&["stop", "tank0"]);
    for (half, byte) in [(["m0", "m1"], 2), (["m2", "m3"], 3)] {
        world.ok(&[&["assemble"], half.as_slice()].concat());
        write(byte);
        world.ok(&["stop", "tank0"]);
    }
    let all = ["m0", "m1", "m2", "m3"];
    let before = world.snapshot(&all);
    same_line(&world, &[&["assemble"], all.as_slice()].concat(), SPLIT);
    same_line(&world, &[&["assemble", "--dry-run"], all.as_slice()].concat(), SPLIT);
    let nobody = "00000000-0000-4000-8000-000000000000";
    same_line(
        &world,
        &[&["assemble", "--trust", nobody], all.as_slice()].concat(),
        "ashlar: array tank0: no member carries the incarnation to trust, UUID; \
         nothing was written; take the incarnation from the refusal or from examine; \
         `ashlar assemble --incarnation UUID` chooses",
    );
    let line = world.refused(&[&["salvage"], all.as_slice()].concat());
    let sides =
        ["m0 and m2 were used apart", "--believe m0 (generation 5, ", "; m0 m1), or --believe m2 "];
    assert!(sides.iter().all(|said| line.contains(said)), "{line}");
    for (member, byte) in [("m1", 2), ("m2", 3)] {
        world.ok(&[
            &["salvage", "--believe", member, "--to", &format!("{member}.half")],
            all.as_slice(),
        ]
        .concat());
        let saved = std::fs::read(world.path(&format!("{member}.half"))).expect("read");
        assert_eq!(saved[..4096], [byte; 4096], "what the half of {member} wrote");
    }
    assert_eq!(before, world.snapshot(&all), "nothing is written");

    let line = world.refused(&[&["assemble"], all.as_slice()].concat());
    let told = line.split("m2 ").nth(1).and_then(|rest| rest.split("incarnation ").nth(1));
    let right = told.expect("it names the half of m2").get(..36).expect("a UUID").to_owned();
    let started = world.ok(&[&["assemble", "--incarnation", &right], all.as_slice()].concat());
    assert_eq!(started.trim(), "array 'tank0' is running, degraded: slot 0, slot 1 out");
    let reads = || RawNbd::open(&world, "tank0").read(0, 4096).expect("read");
    assert_eq!(reads(), [3; 4096], "what the chosen half wrote");
    for member in ["m0", "m1"] {
        let line = world.refused(&["re-add", "tank0", member]);
        assert!(line.contains("was started without the others meanwhile"), "{member}: {line}");
    }
    assert_eq!(before[..2], world.snapshot(&all)[..2], "the other half is as it was");
    for slot in ["0", "1"] {
        let member = format!("m{slot}");
        let replace = ["replace", "tank0", slot, &member, "--wait", "--destroy", &member];
        world.ok(&replace);
    }
    world.ok(&["fail", "tank0", "2"]);
    world.ok(&["fail", "tank0", "3"]);
    assert_eq!(reads(), [3; 4096], "the other half was filled from the chosen one");
}

/// It said that the member is added back, which no start does by itself.
#[test]
fn a_dry_run_says_of_a_member_that_is_out_what_the_start_does() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    world.ok(&["fail", "tank0", "2"]);
    world.ok(&["stop", "tank0"]);
    let all = ["m0", "m1", "m2", "m3"];
    let would = world.ok(&[&["assemble", "--dry-run"], &all[..]].concat());
    let line = would.lines().find(|line| line.starts_with("slot 2 ")).expect("a line for each");
    assert!(line.contains("stays out") && !line.contains("added back"), "{line}");
    assert!(would.contains("would start degraded, without slot 2"), "{would}");
    let told = world.ok(&[&["assemble"], &all[..]].concat());
    assert!(told.contains("degraded: slot 2 out"), "{told}");
    let command = line.split_once("ashlar re-add ").expect("the command").1;
    let words: Vec<&str> = command.split_whitespace().collect();
    world.ok(&[&["re-add"], &words[..]].concat());
    crate::tools::wait_for("the rebuild", || world.array()["state"] == "clean");
}
