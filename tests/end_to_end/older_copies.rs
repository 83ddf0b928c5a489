//! A member is copied while the array runs, more is written and flushed, and the copy takes the
//! member's place.
//!
//! What must stay true: the copy is never served. A rolled back snapshot, a cloned drive and a
//! restored disk of a virtual machine are the same thing.

use crate::raw_nbd::RawNbd;
use crate::world::World;
use std::time::Duration;

const ALL: [&str; 6] = ["m0", "m1", "m2", "m3", "m4", "m5"];
/// Bytes that are written, and bytes of one request.
const BYTES: usize = 4 << 20;
const REQUEST: usize = 256 << 10;
/// Where the two flush marks lie, and what is read of each: the sequence, and the mark that is
/// flushed.
const MARKS: [usize; 2] = [136 << 10, 140 << 10];
/// How often to look whether the members know what was flushed; more than it ever takes.
const LOOKS_MAX: u32 = 6000;

/// The newest flush mark of a member, and what it calls flushed; zeros if there is none.
fn mark(world: &World, member: &str) -> (u64, u64) {
    let bytes = std::fs::read(world.path(member)).expect("read");
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let marks = MARKS.into_iter().filter(|at| bytes[*at..].starts_with(b"ASHLARFM"));
    marks.map(|at| (number(at + 48), number(at + 56))).max().unwrap_or_default()
}

fn write_and_flush(world: &World, seed: u64) {
    let noise = std::fs::read(world.noise_from("noise", BYTES, seed)).expect("read");
    let mut client = RawNbd::open(world, "tank0");
    for (at, part) in noise.chunks(REQUEST).enumerate() {
        client.write((at * REQUEST) as u64, part).expect("healthy");
    }
    client.flush();
}

fn holds(world: &World, seed: u64) -> bool {
    let noise = std::fs::read(world.noise_from("noise", BYTES, seed)).expect("read");
    let mut client = RawNbd::open(world, "tank0");
    let mut parts = noise.chunks(REQUEST).enumerate();
    let bytes = u32::try_from(REQUEST).expect("small");
    parts.all(|(at, part)| client.read((at * REQUEST) as u64, bytes).expect("readable") == part)
}

/// A copy of `m1` in the middle of the life of an array takes its place at the end of it.
fn copied(members: usize, options: &[&str], is_killed: bool) -> World {
    let mut world = World::new();
    world.create("tank0", members, options);
    write_and_flush(&world, 1);
    std::fs::copy(world.path("m1"), world.path("copy")).expect("copied");
    let (older, _) = mark(&world, "copy");
    write_and_flush(&world, 2);
    if is_killed {
        // A kill may come before the members know; how long that takes at most is said in
        // docs/operating.md.
        let is_proven = (0..LOOKS_MAX).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            mark(&world, "m0").1 > older
        });
        assert!(is_proven, "what was flushed is not proven");
        world.kill();
    } else {
        world.ok(&["stop", "tank0"]);
        world.end();
    }
    std::fs::rename(world.path("copy"), world.path("m1")).expect("renamed");
    world.start(&[]);
    world
}

fn is_never_served(members: usize, options: &[&str]) {
    for is_killed in [false, true] {
        let world = copied(members, options, is_killed);
        let older =
            "an older copy of that member: it lacks writes that the others know to be flushed";
        let would = world.ok(&[&["assemble", "--dry-run"], &ALL[..members]].concat());
        assert!(would.contains(older), "{would}");
        let started =
            world.ok(&[&["assemble", "--accept-dirty-degraded"], &ALL[..members]].concat());
        assert_eq!(started.trim(), "array 'tank0' is running, degraded: slot 1 out");
        assert!(holds(&world, 2), "{options:?}, killed: {is_killed}");
        assert!(world.ok(&["events"]).contains("member.older"));
        let line = world.refused(&["re-add", "tank0", "m1"]);
        assert!(line.contains("older copy") && line.contains("ashlar replace"), "{line}");
        world.ok(&["stop", "tank0"]);
    }
}

#[test]
fn an_older_copy_of_a_member_is_never_served_by_raid5() {
    is_never_served(4, &["--level", "5"]);
}

#[test]
fn an_older_copy_of_a_member_is_never_served_by_mirrors() {
    is_never_served(2, &["--level", "1"]);
    is_never_served(4, &["--level", "10"]);
}

#[test]
fn an_older_copy_of_a_member_is_never_served_by_raid6() {
    is_never_served(6, &["--level", "6"]);
    is_never_served(6, &["--level", "6", "--policy", "log", "--checksums", "on"]);
}

#[test]
fn without_redundancy_an_older_copy_means_no_start() {
    for is_killed in [false, true] {
        let world = copied(3, &["--level", "0"], is_killed);
        let before = world.snapshot(&ALL[..3]);
        let line = world.refused(&[&["assemble"], &ALL[..3]].concat());
        assert!(
            line.contains("m1 is an older copy of it") && line.contains("ashlar salvage"),
            "{line}"
        );
        assert_eq!(before, world.snapshot(&ALL[..3]));
    }
}
