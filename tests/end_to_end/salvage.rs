//! Members that a daemon wrote, read by the second reader: what clients saw is what `ashlar
//! salvage` saves, for every level, whole, with as many members gone as the level allows, and with
//! superblocks destroyed.
//!
//! What must stay true: the reader shares no code with the engine, so a difference here is a fault
//! of the engine, of the reader, or of docs/on-disk-format.md; which one, the page decides.

use crate::contents::flip;
use crate::tools::{all_here, run};
use crate::world::{MEMBER_BYTES, World};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The places of the four superblock copies.
const COPIES: [u64; 4] = [0, 64 << 10, MEMBER_BYTES - (128 << 10), MEMBER_BYTES - (64 << 10)];

/// What a run of the command came to.
struct Salvaged {
    exit: i32,
    complaint: String,
    report: Value,
}

fn salvage(world: &World, arguments: &[&str]) -> Salvaged {
    let output = world.run(&[&["salvage", "--json"], arguments].concat());
    Salvaged {
        exit: output.status.code().expect("it ends by itself"),
        complaint: String::from_utf8_lossy(&output.stderr).into_owned(),
        report: serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
    }
}

/// Salvage `members` into a new file with this name, and compare it with `wanted`.
fn saves(world: &World, members: &[&str], name: &str, wanted: &PathBuf) -> Salvaged {
    let salvaged = salvage(world, &[members, &["--verify", "--to", name]].concat());
    assert!(world.path(name).exists(), "{name}: {}", salvaged.complaint);
    let (found, wanted) = (std::fs::read(world.path(name)), std::fs::read(wanted));
    assert!(found.expect("read") == wanted.expect("read"), "{name}: {}", salvaged.report);
    salvaged
}

/// Write at many places through NBD, in parts of strips and in whole stripes, trim some, and return
/// a copy of all that a client reads back.
fn lived_in(world: &World) -> PathBuf {
    let noise = world.noise("noise", 7 << 20);
    run("nbdcopy", &["--flush", noise.to_str().expect("text"), &world.uri("tank0")]);
    let script = "\
import random
rng = random.Random(7)
for at in range(120):
    block = rng.randrange(9 * 256)
    h.pwrite(rng.randbytes(4096 * rng.randrange(1, 40)), block * 4096)
h.trim(2 << 20, 3 << 20)
h.pwrite(b'end' + bytes(4093), h.get_size() - 4096)
h.flush()";
    run("nbdsh", &["-u", &world.uri("tank0"), "-c", script]);
    let seen = world.path("seen");
    run("nbdcopy", &[&world.uri("tank0"), seen.to_str().expect("text")]);
    seen
}

/// Compare a copy with what clients saw, but for the extents that the report calls lost, which are
/// zeros. Returns the bytes lost.
fn right_but_for_the_lost(report: &Value, copy: &[u8], seen: &[u8]) -> usize {
    let number = |value: &Value| usize::try_from(value.as_u64().expect("number")).expect("small");
    let (mut at, mut lost) = (0, 0);
    for extent in report["outcome"]["lost"]["extents"].as_array().expect("a list") {
        let (offset, bytes) = (number(&extent["offset"]), number(&extent["bytes"]));
        assert!(copy[at..offset] == seen[at..offset], "wrong before {offset}");
        assert!(copy[offset..offset + bytes].iter().all(|byte| *byte == 0));
        (at, lost) = (offset + bytes, lost + bytes);
    }
    assert!(copy[at..] == seen[at..], "wrong after {at}");
    lost
}

/// Give back the room that a large file takes: other tests need it at the same time.
fn remove(file: PathBuf) {
    std::fs::remove_file(file).expect("a file");
}

/// Overwrite copies of a member's superblock.
fn destroy(world: &World, member: &str, copies: &[u64]) {
    let file = File::options().write(true).open(world.path(member)).expect("open");
    for copy in copies {
        file.write_all_at(&[0xA5; 64 << 10], *copy).expect("write");
    }
}

/// One level: healthy, with members gone, with superblocks gone, after a stop or a kill.
fn round_trip(test: &str, arguments: &[&str], members: usize, losses: usize, kill: bool) {
    if !all_here(test, &["nbdcopy", "nbdsh"]) {
        return;
    }
    let mut world = World::new();
    let devices = world.create("tank0", members, arguments);
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    let seen = lived_in(&world);
    if kill {
        world.kill();
    } else {
        assert!(world.end().success());
    }
    let healthy = saves(&world, &devices, "healthy", &seen);
    assert_eq!(healthy.exit, 0, "{}", healthy.complaint);
    assert_eq!(healthy.report["unclean"], kill);
    let verified = &healthy.report["outcome"]["verified"];
    assert_eq!(verified["stripes_disagreeing"], 0, "{verified}");
    assert_eq!(verified["rows_compared"].as_u64() > Some(0), losses > 0, "{verified}");
    // Every window of as many neighbours as may go, so that each slot is gone once.
    for first in (0..members).step_by(losses.max(1)).filter(|_| losses > 0) {
        let gone: Vec<usize> = (first..first + losses).map(|slot| slot % members).collect();
        let stay = (0..members).filter(|slot| !gone.contains(slot)).map(|slot| devices[slot]);
        let few = saves(&world, &stay.collect::<Vec<_>>(), &format!("few{first}"), &seen);
        assert_eq!(few.report["missing_slots"].as_array().map(Vec::len), Some(losses));
        // After a kill what was reconstructed where writes were in flight is right here, and nobody
        // can know.
        let in_doubt = few.report["outcome"]["in_doubt"]["bytes"].as_u64() > Some(0);
        assert_eq!(few.exit, if in_doubt { 3 } else { 0 }, "{}", few.complaint);
        assert!(kill || !in_doubt);
    }
    for (at, device) in devices.iter().enumerate() {
        let keep = at % 4;
        let copies = COPIES.iter().enumerate().filter(|(copy, _)| at < losses || *copy != keep);
        destroy(&world, device, &copies.map(|(_, offset)| *offset).collect::<Vec<_>>());
    }
    let damaged = saves(&world, &devices, "damaged", &seen);
    let standings = damaged.report["members"].as_array().expect("a list").iter();
    let unknown = standings.filter(|member| member["standing"] == "unknown").count();
    assert_eq!(unknown, losses, "{}", damaged.report);
}

/// One test for each level.
macro_rules! levels {
    ($(
        $test:ident: $arguments:expr, $members:literal members, $losses:literal lost, $kill:literal;
    )*) => {$(
        #[test]
        fn $test() {
            round_trip(stringify!($test), &$arguments, $members, $losses, $kill);
        }
    )*};
}

levels! {
    raid0_is_read_by_the_second_reader: ["-l", "0"], 3 members, 0 lost, false;
    raid1_is_read_by_the_second_reader: ["-l", "1"], 3 members, 2 lost, true;
    raid5_is_read_by_the_second_reader:
        ["-l", "5", "--strip-size", "16K"], 4 members, 1 lost, false;
    raid6_is_read_by_the_second_reader: ["-l", "6"], 6 members, 2 lost, false;
    raid6_is_read_by_the_second_reader_after_a_kill:
        ["-l", "6", "--strip-size", "4K"], 5 members, 2 lost, true;
    raid7_3_is_read_by_the_second_reader: ["-l", "7.3"], 7 members, 3 lost, false;
    n_plus_m_is_read_by_the_second_reader: ["-l", "nm", "--parity", "5"], 9 members, 5 lost, false;
    raid10_is_read_by_the_second_reader: ["-l", "10"], 6 members, 1 lost, false;
    raid50_is_read_by_the_second_reader: ["-l", "50", "--group-size", "3"], 6 members, 1 lost, true;
    raid60_is_read_by_the_second_reader:
        ["-l", "60", "--group-size", "4"], 8 members, 2 lost, false;
    raid70_is_read_by_the_second_reader:
        ["-l", "70", "--group-size", "5"], 10 members, 3 lost, false;
    declustered_raid6_is_read_by_the_second_reader:
        ["-l", "6", "--declustered", "--stripe-width", "6"], 9 members, 2 lost, false;
    declustered_raid5_is_read_by_the_second_reader_after_a_kill:
        ["-l", "5", "--strip-size", "16K", "--declustered", "--stripe-width", "3"],
        7 members, 1 lost, true;
    blocks_of_512_bytes_are_read_by_the_second_reader:
        ["-l", "5", "--block-size", "512"], 3 members, 1 lost, false;
}

#[test]
fn a_stale_member_is_seen_and_not_read() {
    if !all_here("a_stale_member_is_seen_and_not_read", &["nbdcopy", "nbdsh"]) {
        return;
    }
    let mut world = World::new();
    world.create("tank0", 4, &["-l", "5", "--strip-size", "16K"]);
    let first = world.noise_from("first", 6 << 20, 3);
    run("nbdcopy", &["--flush", first.to_str().expect("text"), &world.uri("tank0")]);
    world.ok(&["fail", "tank0", "1"]);
    let seen = lived_in(&world);
    assert!(world.end().success());
    let all = saves(&world, &["m3", "m2", "m1", "m0"], "all", &seen);
    assert_eq!((all.exit, &all.report["members"][2]["standing"]), (0, &"stale".into()));
    // Without another one the stale member is all there is. It is used by command only, and it
    // shows.
    let less = salvage(&world, &["m0", "m1", "m2", "--to", "less"]);
    assert_eq!(less.exit, 3);
    assert!(less.report["outcome"]["lost"]["bytes"].as_u64() > Some(0), "{}", less.report);
    let forced = salvage(&world, &["m0", "m2", "--slot", "1=m1", "--to", "forced"]);
    assert_eq!((forced.exit, &forced.report["outcome"]["lost"]["bytes"]), (3, &0.into()));
    let by_hand = &forced.report["outcome"]["by_hand"]["bytes"];
    assert_eq!(by_hand, &less.report["outcome"]["lost"]["bytes"], "{}", forced.report);
}

#[test]
fn a_member_that_is_being_filled_is_read_as_far_as_its_superblock_says() {
    let test = "a_member_that_is_being_filled_is_read_as_far_as_its_superblock_says";
    if !all_here(test, &["nbdcopy", "nbdsh"]) {
        return;
    }
    let mut world = World::new();
    world.create_of(128 << 20, 6, &["-l", "50", "--group-size", "3"]);
    let noise = world.noise("noise", 240 << 20);
    run("nbdcopy", &["--flush", noise.to_str().expect("text"), &world.uri("tank0")]);
    remove(noise);
    world.ok(&["fail", "tank0", "2"]);
    world.sparse("new", 128 << 20);
    world.ok(&["replace", "tank0", "2", "new"]);
    // It may have ended before it could be paused; what is claimed below holds for each place it
    // got to.
    let paused = world.run(&["rebuild", "pause", "tank0"]).status.success();
    // Written on both sides of that place.
    let seen = lived_in(&world);
    assert!(world.end().success());
    let all = saves(&world, &["m0", "m1", "new", "m3", "m4", "m5"], "all", &seen);
    remove(world.path("all"));
    let seen_bytes = std::fs::read(&seen).expect("read");
    remove(seen);
    let standing = all.report["members"][2]["standing"].as_str();
    assert!(
        all.exit == 0 && standing == Some(if paused { "partial" } else { "good" }),
        "{}",
        all.report
    );
    for gone in ["m0", "m1"] {
        let others = ["m0", "m1", "new", "m3", "m5"].into_iter().filter(|member| *member != gone);
        let name = format!("without-{gone}");
        let few = salvage(&world, &[&others.collect::<Vec<_>>()[..], &["--to", &name]].concat());
        assert!([0, 3].contains(&few.exit), "exit code {}: {}", few.exit, few.complaint);
        let copy = std::fs::read(world.path(&name)).expect("read");
        remove(world.path(&name));
        let lost = right_but_for_the_lost(&few.report, &copy, &seen_bytes);
        assert_eq!(few.exit, if lost > 0 { 3 } else { 0 }, "{}", few.complaint);
        assert!(paused || lost == 0);
    }
    // What the daemon had written beyond its place is lent by hand.
    let by_hand = salvage(&world, &["m0", "m3", "m5", "--slot", "2=new", "--to", "by-hand"]);
    assert_eq!(by_hand.report["outcome"]["lost"]["bytes"], 0, "{}", by_hand.complaint);
}

#[test]
fn what_is_lost_is_listed_and_a_second_run_completes_the_first() {
    let test = "what_is_lost_is_listed_and_a_second_run_completes_the_first";
    if !all_here(test, &["nbdcopy", "nbdsh"]) {
        return;
    }
    let mut world = World::new();
    world.create("tank0", 4, &["-l", "5"]);
    let seen = std::fs::read(lived_in(&world)).expect("read");
    assert!(world.end().success());
    let some = salvage(&world, &["m1", "m3", "--to", "copy"]);
    assert_eq!(some.exit, 3);
    assert!(some.complaint.contains("lost; the members are as they were"), "{}", some.complaint);
    let copy = std::fs::read(world.path("copy")).expect("read");
    assert!(right_but_for_the_lost(&some.report, &copy, &seen) > 0);
    // Each member alone adds what it has; three of them have everything.
    for (member, exit) in [("m0", 3), ("m2", 3)] {
        assert_eq!(salvage(&world, &[member, "--skip-lost", "--to", "copy"]).exit, exit);
    }
    assert!(std::fs::read(world.path("copy")).expect("read") == seen);
}

#[test]
fn a_flipped_byte_is_found_and_its_slot_named() {
    if !all_here("a_flipped_byte_is_found_and_its_slot_named", &["nbdcopy", "nbdsh"]) {
        return;
    }
    let mut world = World::new();
    world.create("tank0", 6, &["-l", "6"]);
    lived_in(&world);
    assert!(world.end().success());
    // Row 3 of the data area, which begins at a MiB that examine names.
    let text = world.ok(&["examine", "m4"]);
    let data = text.lines().find(|line| line.starts_with("data ")).expect("the data area");
    let start: u64 = data.rsplit(' ').next().expect("a place").parse().expect("a number");
    flip(&world.path("m4"), start + 3 * (64 << 10) + 5000);
    let found = salvage(&world, &["m0", "m1", "m2", "m3", "m4", "m5", "--verify"]);
    assert_eq!(found.exit, 3, "{}", found.complaint);
    let list = found.report["outcome"]["verified"]["disagreements"].as_array().expect("a list");
    assert_eq!(list.len(), 1, "{list:?}");
    let (stripe, slot) = (&list[0]["first_stripe"], &list[0]["suspect_slot"]);
    assert_eq!((stripe, slot), (&3.into(), &4.into()));
}

#[test]
fn members_cut_short_and_wiped_at_the_head_still_help() {
    if !all_here("members_cut_short_and_wiped_at_the_head_still_help", &["nbdcopy"]) {
        return;
    }
    let mut world = World::new();
    let devices = world.create("tank0", 5, &["-l", "6"]);
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    // Nothing is trimmed here: without a map, what was trimmed would come back.
    let (noise, seen) = (world.noise("noise", 9 << 20), world.path("seen"));
    run("nbdcopy", &["--flush", noise.to_str().expect("text"), &world.uri("tank0")]);
    run("nbdcopy", &[&world.uri("tank0"), seen.to_str().expect("text")]);
    assert!(world.end().success());
    // Two members end within the data, and all of the others lost everything before it:
    // superblocks, bitmaps and map. What they have left of the data still counts.
    for member in &devices[..2] {
        let file = File::options().write(true).open(world.path(member)).expect("open");
        file.set_len(4 << 20).expect("cut");
    }
    for member in &devices[2..] {
        let file = File::options().write(true).open(world.path(member)).expect("open");
        file.write_all_at(&vec![0; 1 << 20], 0).expect("write");
    }
    let salvaged = saves(&world, &devices, "copy", &seen);
    assert_eq!(salvaged.report["members"][0]["bytes_cut_off"], MEMBER_BYTES - (4 << 20));
    // It is right, and nothing proves it: a wipe may have gone further.
    let unproven = &salvaged.report["outcome"]["unproven"]["bytes"];
    assert!(salvaged.exit == 3 && unproven.as_u64() > Some(0), "{}", salvaged.complaint);
    assert_eq!(salvaged.report["members"][2]["standing"], "doubtful");
    // With the map gone as well nothing counts as unwritten, and the data is there all the same.
    let tails = saves(&world, &devices[2..], "tails", &seen);
    assert_eq!(tails.report["written_map_pages_lost"], 1);
    assert_eq!(tails.report["outcome"]["read_bytes"]["unwritten"], 0);
}

#[test]
fn a_volume_of_terabytes_is_copied_sparsely() {
    if !all_here("a_volume_of_terabytes_is_copied_sparsely", &["nbdsh"]) {
        return;
    }
    let mut world = World::new();
    world.create_of(2 << 40, 5, &["-l", "5"]);
    let script = "\
h.pwrite(b'first' + bytes(4091), 0)
h.pwrite(b'middle' + bytes(4090), 1 << 42)
h.pwrite(b'last' + bytes(4092), h.get_size() - 4096)
h.flush()";
    run("nbdsh", &["-u", &world.uri("tank0"), "-c", script]);
    assert!(world.end().success());
    let salvaged = salvage(&world, &["m0", "m1", "m2", "m4", "--to", "copy"]);
    assert_eq!(salvaged.exit, 0, "{}", salvaged.complaint);
    let bytes = salvaged.report["volume_bytes"].as_u64().expect("number");
    let copy = File::open(world.path("copy")).expect("open");
    assert!(bytes > 7 << 40 && copy.metadata().expect("there").len() == bytes);
    for (offset, word) in [(0, "first"), (1 << 42, "middle"), (bytes - 4096, "last")] {
        let mut found = vec![0; 4096];
        copy.read_exact_at(&mut found, offset).expect("read");
        assert!(found.starts_with(word.as_bytes()) && found[word.len()..].iter().all(|b| *b == 0));
    }
}

#[test]
fn nonsense_is_refused_and_nothing_is_written() {
    let mut world = World::new();
    world.create("tank0", 3, &["-l", "5"]);
    for name in ["x0", "x1", "x2"] {
        world.sparse(name, MEMBER_BYTES);
    }
    world.ok(&["create", "tank1", "-l", "5", "x0", "x1", "x2"]);
    assert!(world.end().success());
    std::fs::copy(world.path("m1"), world.path("twin")).expect("copy");
    world.sparse("zeros", MEMBER_BYTES);
    std::fs::write(world.path("full"), "kept").expect("write");
    let before = std::fs::read(world.path("m0")).expect("read");
    for (arguments, exit, says) in [
        (&[] as &[&str], 2, "<MEMBER>"),
        (&["m0", "x1", "m2"], 1, "x1 of tank1"),
        (&["m0", "m1", "./m0"], 2, "./m0 was given twice"),
        (&["m0", "m1", "twin"], 1, "m1 and twin are copies of the same member"),
        (&["zeros"], 1, "no superblock of an array"),
        (&["m0", "gone"], 1, "gone: No such file"),
        (&["m0", "m1", "--to", "m0"], 2, "which is a member"),
        (&["m0", "m1", "--to", "m2", "--overwrite", "--slot", "2=m2"], 2, "which is a member"),
        (&["m0", "m1", "--to", "full"], 1, "full is there already"),
        (&["m0", "m1", "--to", "none/copy"], 1, "none/copy: No such file"),
        (&["m0", "--slot", "9=m1"], 1, "no slot 9"),
        (&["m0", "--slot", "m1"], 2, "write it as 3=/dev/sdd"),
        (&["m0", "m1", "--incarnation", "x"], 2, "'x' is not a UUID"),
        (&["m0", "m1", "--believe", "zeros"], 1, "zeros cannot be believed: no superblock"),
        (&["m0", "m1", "--skip-lost"], 2, "--to"),
        (&["."], 1, "neither a block device nor a regular file"),
    ] {
        let output = world.run(&[&["salvage"], arguments].concat());
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {complaint}");
        assert!(complaint.contains(says), "{arguments:?}: {complaint}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    assert_eq!(std::fs::read(world.path("full")).expect("read"), b"kept");
    assert!(std::fs::read(world.path("m0")).expect("read") == before, "a member was written to");
    world.ok(&["salvage", "m0", "m1", "--to", "full", "--overwrite"]);
    let piped = world.run(&["salvage", "m0", "m1", "--to", "-"]);
    assert!(
        piped.status.success() && piped.stdout == std::fs::read(world.path("full")).expect("read")
    );
}
