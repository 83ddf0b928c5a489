//! What operators are told when data is not what it should be: by scrubs, about superblocks, in
//! crowds.

use crate::contents::flip;
use crate::tools::{all_here, run, skipped};
use crate::world::{MEMBER_BYTES, World};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// So much is written to the volume.
const DATA_BYTES: usize = 128 << 20;

/// A volume of six members with data, flushed; `None` after saying why `test` cannot run here.
fn filled(test: &str, arguments: &[&str]) -> Option<World> {
    if !all_here(test, &["nbdcopy"]) {
        return None;
    }
    let world = World::new();
    world.create("tank0", 6, &[&["--level", "6"], arguments].concat());
    let noise = world.noise("noise", DATA_BYTES);
    run("nbdcopy", &["--flush", noise.to_str().expect("text"), &world.uri("tank0")]);
    Some(world)
}

/// Where the data of a member begins, in bytes.
fn data_offset(world: &World) -> u64 {
    let text = world.ok(&["examine", "m2"]);
    let data = text.lines().find(|line| line.starts_with("data ")).expect("the data area");
    data.rsplit(' ').next().expect("a place").parse().expect("a number")
}

/// Once a scrub without checksums found which member is wrong, and told nobody.
#[test]
fn a_member_that_parity_points_at_is_named_and_counted() {
    let test = "a_member_that_parity_points_at_is_named_and_counted";
    let Some(world) = filled(test, &[]) else { return };
    let offset = data_offset(&world);
    for block in 0..3 {
        flip(&world.path("m2"), offset + block * 4096);
    }
    let scrubbed = world.run(&["scrub", "tank0", "--wait"]);
    let told = String::from_utf8_lossy(&scrubbed.stdout).into_owned();
    let line = String::from_utf8_lossy(&scrubbed.stderr).into_owned();
    assert_eq!(scrubbed.status.code(), Some(1), "{told}{line}");
    assert!(told.contains("it reports what does not match"), "{told}");
    assert!(told.contains("scrub of tank0: 3 mismatches\n"), "{told}");
    assert!(line.contains("3 blocks of tank0 have parity that does not match"), "{line}");
    assert!(line.contains("parity points at slot 2 (") && line.contains("m2, 3 blocks)"), "{line}");
    assert!(line.contains("an inference without checksums"), "{line}");
    assert_eq!(world.array()["members"][2]["located_mismatches"], 3);
    let events = world.ok(&["events"]);
    let event = events.lines().find(|line| line.contains("scrub.mismatch_found")).expect("told");
    assert!(event.contains("slot 2") && event.contains("inference"), "{event}");
    let metrics = world.ok(&["metrics"]);
    let counted = metrics.lines().find(|line| {
        line.starts_with("ashlar_member_located_mismatches_total") && line.contains("slot=\"2\"")
    });
    assert!(counted.is_some_and(|line| line.ends_with(" 3")), "{counted:?}");
    let told = world.ok(&["scrub", "tank0", "--repair", "--wait"]);
    assert!(told.contains("3 mismatches, 3 blocks put right"), "{told}");
    assert!(world.ok(&["scrub", "tank0", "--wait"]).ends_with("scrub of tank0: 0 mismatches\n"));
}

/// It repaired and said that it "changes nothing", told to "make parity match", and ended with exit
/// code 1.
#[test]
fn a_scrub_that_repairs_by_checksums_says_so_and_is_content() {
    let test = "a_scrub_that_repairs_by_checksums_says_so_and_is_content";
    let Some(world) = filled(test, &["--checksums", "on"]) else { return };
    let offset = data_offset(&world);
    for block in 0..3 {
        flip(&world.path("m2"), offset + block * 4096);
    }
    let told = world.ok(&["scrub", "tank0", "--wait"]);
    assert!(told.contains("it stores anew what is not what was written"), "{told}");
    assert!(told.ends_with("scrub of tank0: 3 mismatches, 3 blocks put right\n"), "{told}");
    assert!(world.ok(&["scrub", "tank0", "--wait"]).ends_with("scrub of tank0: 0 mismatches\n"));
}

/// One that was cancelled said "0 mismatches".
#[test]
fn a_scrub_that_is_cancelled_by_either_command_says_how_far_it_was() {
    let test = "a_scrub_that_is_cancelled_by_either_command_says_how_far_it_was";
    let Some(world) = filled(test, &[]) else { return };
    let mut scrubs = 0;
    for is_by_number in [false, true] {
        // One that ends before it can be cancelled tells nothing: another one is begun.
        let line = (0..100).find_map(|_| {
            scrubs += 1;
            let job = format!("tank0/{scrubs}");
            let by_number = ["job", "cancel", &job];
            cancelled(&world, if is_by_number { &by_number } else { &BY_KIND })
        });
        let line = line.expect("one of so many is cancelled in time");
        assert!(line.contains("the scrub of tank0 was cancelled after "), "{line}");
        assert!(line.contains("begin again with: ashlar scrub tank0"), "{line}");
        let last = &world.array()["last_scrub"];
        assert_eq!(last["cancelled"], true, "{last}");
        let screen = world.ok(&["status"]);
        assert!(screen.contains("ago, cancelled after "), "{screen}");
        let jobs = world.ok(&["job", "list"]);
        let own = jobs.lines().find(|line| line.starts_with(&format!("tank0/{scrubs} ")));
        assert!(own.is_some_and(|line| line.contains("cancelled")), "{jobs}");
    }
}

const BY_KIND: [&str; 3] = ["scrub", "tank0", "--cancel"];

/// Begin a scrub and cancel it; what whoever waits for it is told, unless it was too fast.
fn cancelled(world: &World, command: &[&str]) -> Option<String> {
    let waiting = world
        .command()
        .args(["scrub", "tank0", "--wait"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let is_cancelled = (0..20).any(|_| world.run(command).status.success());
    let ended = waiting.wait_with_output().expect("it ends");
    (is_cancelled && ended.status.code() == Some(1))
        .then(|| String::from_utf8_lossy(&ended.stderr).into_owned())
}

/// Two of four copies that somebody's dd had overwritten were written anew without a word.
#[test]
fn overwritten_copies_of_a_superblock_are_told_of() {
    let mut world = World::new();
    let members = world.create("tank0", 4, &["--level", "6"]);
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    assert!(world.end().success());
    let file = File::options().write(true).open(world.path("m1")).expect("ours");
    file.write_all_at(&[0x99; 128 << 10], 0).expect("written");
    let examined = world.ok(&["examine", "m1"]);
    assert!(examined.contains("not ours") || examined.contains("foreign"), "{examined}");
    world.start(&[]);
    world.ok(&[&["assemble"], &members[..]].concat());
    let events = world.ok(&["events"]);
    let mut told = events.lines().filter(|line| line.contains("member.superblock_damaged"));
    let event = told.next().unwrap_or_default();
    assert!(event.contains("copies 2 of 4") && event.contains("slot 1"), "{events}");
    assert!(event.contains("written anew from an intact copy"), "{event}");
    assert_eq!(told.next(), None, "of nobody else");
    assert!(world.end().success());
    world.start(&[]);
    world.ok(&[&["assemble"], &members[..]].concat());
    assert!(!world.ok(&["events"]).contains("member.superblock_damaged"), "they are whole again");
}

/// One corruption of 13 MiB wrote 3,800 events, and who did what was gone from the log.
#[test]
fn thousands_of_equal_faults_are_a_few_events_and_all_are_counted() {
    let test = "thousands_of_equal_faults_are_a_few_events_and_all_are_counted";
    if !all_here(test, &["nbdcopy"]) {
        return;
    }
    let world = World::new();
    world.create("tank0", 6, &["--level", "6", "--checksums", "on"]);
    let noise = world.noise("noise", 80 << 20);
    run("nbdcopy", &["--flush", noise.to_str().expect("text"), &world.uri("tank0")]);
    let offset = data_offset(&world);
    let file = File::options().write(true).open(world.path("m2")).expect("ours");
    file.write_all_at(&vec![0x99; 13 << 20], offset).expect("written");
    world.ok(&["scrub", "tank0", "--wait"]);
    let counted = world.array()["members"][2]["checksum_mismatches"].as_u64().expect("a number");
    assert!(counted >= 3000, "{counted}");
    let events = world.ok(&["events", "--json"]);
    let of = |name: &str| events.lines().filter(|line| line.contains(name)).collect::<Vec<_>>();
    let told = of("member.checksum_mismatch");
    assert!((2..20).contains(&told.len()), "{} events", told.len());
    let count = |line: &&str| {
        let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        event["fields"]["count"].as_str().map_or(1, |count| count.parse::<u64>().expect("a number"))
    };
    assert_eq!(told.iter().map(count).sum::<u64>(), counted, "{told:?}");
    assert!(told.iter().any(|line| line.contains("offset_min")), "{told:?}");
    assert_eq!(of("array.created").len(), 1, "who made it is still there");
    let status: serde_json::Value =
        serde_json::from_str(&world.ok(&["status", "--json"])).expect("JSON");
    let repeated = status["repeated_events"].as_array().expect("a list");
    let own = repeated.iter().find(|it| it["name"] == "member.checksum_mismatch");
    assert_eq!(own.expect("told")["count"], counted);
    let screen = world.ok(&["status"]);
    let line = screen.lines().find(|line| line.starts_with("faults "));
    assert!(line.is_some_and(|line| line.contains("member.checksum_mismatch ")), "{screen}");
    let metrics = world.ok(&["metrics"]);
    let line = "ashlar_repeated_events_total{event=\"member.checksum_mismatch\"} ";
    assert!(metrics.contains(&format!("{line}{counted}\n")), "{metrics}");
}

/// A loop device over a file, detached when dropped.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        // The mark stays with the device, also for whoever has it next.
        let _reset = Command::new("blockdev").args(["--setrw", &self.0]).status();
        let _gone = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// The fault of a device that may not be written to any more was "Media (errno 1)".
#[test]
fn a_device_that_became_read_only_is_out_and_says_why() {
    let test = "a_device_that_became_read_only_is_out_and_says_why";
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        return skipped(test, "needs root and loop devices");
    }
    if !all_here(test, &["losetup", "blockdev"]) {
        return;
    }
    let world = World::new();
    world.sparse("beneath", MEMBER_BYTES);
    let beneath = world.path("beneath");
    let device = run("losetup", &["-f", "--show", beneath.to_str().expect("text")]);
    let device = Loop(device.trim().to_owned());
    let members = world.members(3);
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    world.ok(&[&["create", "tank0", "--level", "6"], &members[..], &[&device.0]].concat());
    run("blockdev", &["--setro", &device.0]);
    let mut client = crate::raw_nbd::RawNbd::open(&world, "tank0");
    client.write(0, &vec![7; 256 << 10]).expect("the others take it");
    client.flush();
    let failed = || {
        let events = world.ok(&["events"]);
        events.lines().find(|line| line.contains("member.failed")).map(str::to_owned)
    };
    while failed().is_none() {
        std::thread::yield_now();
    }
    let event = failed().expect("just there");
    assert!(event.contains("the device refuses to be written (errno 1)"), "{event}");
    assert!(!event.contains("Media"), "{event}");
    drop(client);
    world.ok(&["stop", "tank0"]);
    // A start that has to do without it says why, and so does one that is refused.
    let paths: Vec<&str> = members.iter().copied().chain([device.0.as_str()]).collect();
    let why = format!("{}: write-protected", device.0);
    for arguments in [&["assemble", "--dry-run"][..], &["assemble"]] {
        let told = world.ok(&[arguments, &paths].concat());
        assert!(told.contains(&why), "{told}");
    }
    world.ok(&["stop", "tank0"]);
    let line = world.refused(&["assemble", &device.0]);
    assert!(line.contains(&why), "{line}");
}

/// A mirror has no parity: whoever reads of it looks for something that is not there.
#[test]
fn a_scrub_of_a_mirror_speaks_of_copies() {
    let test = "a_scrub_of_a_mirror_speaks_of_copies";
    if !all_here(test, &["nbdcopy"]) {
        return;
    }
    for (copies, next) in [
        (2, "make the copies equal, by the one in the lower slot"),
        (3, "the other copies point at slot 1 ("),
    ] {
        let world = World::new();
        world.create("tank0", copies, &["--level", "1"]);
        let noise = world.noise("noise", 4 << 20);
        run("nbdcopy", &["--flush", noise.to_str().expect("text"), &world.uri("tank0")]);
        let text = world.ok(&["examine", "m1"]);
        let data = text.lines().find(|line| line.starts_with("data ")).expect("the data area");
        let offset: u64 = data.rsplit(' ').next().expect("a place").parse().expect("a number");
        flip(&world.path("m1"), offset);
        let scrubbed = world.run(&["scrub", "tank0", "--wait"]);
        let line = String::from_utf8_lossy(&scrubbed.stderr).into_owned();
        assert_eq!(scrubbed.status.code(), Some(1), "{line}");
        assert!(line.contains("1 blocks of tank0 have copies that differ"), "{line}");
        assert!(line.contains(next), "{line}");
        world.ok(&["scrub", "tank0", "--repair", "--wait"]);
        let events = world.ok(&["events"]);
        let screen = world.ok(&["status", "--members"]);
        for told in [&line, &events, &screen] {
            assert!(!told.contains("parity"), "{copies} copies: {told}");
        }
    }
}
