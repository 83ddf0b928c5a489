//! Devices of an array that were given to somebody else, and devices of somebody else that were
//! given to an array.
//!
//! An old array started on such drives "clean", and wrote its superblocks over those of md, LVM and
//! GPT. New members kept the md superblock at their end: `mdadm -I` took them at the next boot, and
//! resynced over their data.

use crate::raw_nbd::RawNbd;
use crate::tools::{all_here, run, wait_for};
use crate::world::World;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};

const MD: &[u8] = &[0xFC, 0x4E, 0x2B, 0xA9];
const DDF: &[u8] = &[0xDE, 0x11, 0xDE, 0x11];
const UBERBLOCK: &[u8] = &[0x0C, 0xB1, 0xBA, 0, 0, 0, 0, 0];

/// Of a member: smaller than elsewhere, because each is read whole many times.
const BYTES: u64 = 24 << 20;

/// Marks of others, and where they are.
const FRONT: [(&str, u64, &[u8]); 7] = [
    ("xfs", 0, b"XFSB"),
    ("gpt", 512, b"EFI PART"),
    ("linux_raid_member", 4096, MD),
    ("LVM2_member", 512 + 24, b"LVM2 001"),
    ("swap", 4086, b"SWAPSPACE2"),
    ("btrfs", 0x1_0040, b"_BHRfS_M"),
    ("zfs_member", 160 << 10, UBERBLOCK),
];
const BACK: [(&str, u64, &[u8]); 5] = [
    ("gpt", BYTES - 512, b"EFI PART"),
    ("linux_raid_member", BYTES - 8192, MD),
    ("linux_raid_member", BYTES - 65_536, MD),
    ("ddf_raid_member", BYTES - 512, DDF),
    ("zfs_member", BYTES - (128 << 10) + 4096, UBERBLOCK),
];

fn put(world: &World, name: &str, (_, at, mark): (&str, u64, &[u8])) {
    let file = File::options().write(true).open(world.path(name)).expect("ours");
    file.write_all_at(mark, at).expect("written");
}

fn has(world: &World, name: &str, (_, at, mark): (&str, u64, &[u8])) -> bool {
    let mut found = vec![0; mark.len()];
    let file = File::open(world.path(name)).expect("ours");
    file.read_exact_at(&mut found, at).expect("read");
    found == mark
}

const NAMES: [&str; 4] = ["m0", "m1", "m2", "m3"];

/// A stopped RAID 6 of four files with a block of data, and its daemon.
fn stopped() -> World {
    let world = World::new();
    world.create_of(BYTES, 4, &["--level", "6"]);
    let mut client = RawNbd::open(&world, "tank0");
    client.write(0, &[7; 4096]).expect("written");
    client.flush();
    drop(client);
    world.ok(&["stop", "tank0"]);
    world
}

#[test]
fn members_that_carry_a_signature_of_somebody_else_are_left_alone_until_that_is_accepted() {
    for mark in FRONT.into_iter().chain(BACK) {
        let world = stopped();
        NAMES.iter().for_each(|name| put(&world, name, mark));
        let before = world.snapshot(&NAMES);
        for how in [&[][..], &["--dry-run"]] {
            let line = world.refused(&[&["assemble"], how, &NAMES].concat());
            assert!(line.contains(&format!("carries {}", mark.0)), "{mark:?}: {line}");
            assert!(line.contains("nothing was written"), "{line}");
            assert!(line.contains("ashlar assemble --accept-signatures"), "{line}");
        }
        assert_eq!(world.snapshot(&NAMES), before, "{mark:?}");
        world.ok(&[&["assemble", "--accept-signatures"], &NAMES[..]].concat());
        let events = world.ok(&["events"]);
        assert!(events.contains("member.reused"), "{events}");
        assert!(RawNbd::open(&world, "tank0").read(0, 4096).expect("readable") == [7; 4096]);
        assert!(NAMES.iter().all(|name| !has(&world, name, mark)), "{mark:?} is overwritten");
        world.ok(&["stop", "tank0"]);
        world.ok(&[&["assemble"], &NAMES[..]].concat());
        assert_eq!(world.array()["state"], "clean", "accepted once");
    }
}

/// By a scan, by what is remembered, and by the configuration.
#[test]
fn a_daemon_starts_no_array_on_devices_that_were_given_away() {
    for (remembers, entry) in [(true, ""), (false, ""), (false, "[[array]]\nname = \"tank0\"\n")] {
        let mut world = World::without_daemon();
        let devices = world.path("m*").display().to_string();
        let entry = match entry {
            "" => String::new(),
            entry => format!("{entry}devices = [\"{devices}\"]\n"),
        };
        let config = format!(
            "[start]\nscan = true\ndevices = [\"{devices}\"]\ngrace_s = 1\n\
             remember = {remembers}\n{entry}"
        );
        let file = world.path("ashlar.toml");
        std::fs::write(&file, config).expect("written");
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
        let arguments = ["--config", file.to_str().expect("text")].map(str::to_owned);
        let arguments = arguments.each_ref().map(String::as_str);
        world.start(&arguments);
        world.create_of(BYTES, 4, &["--level", "6"]);
        assert!(world.end().success());
        NAMES.iter().for_each(|name| put(&world, name, FRONT[2]));
        let before = world.snapshot(&NAMES);
        world.start(&arguments);
        let said = || world.said.lock().expect("nobody panics with it").clone();
        wait_for("its refusal", || said().contains("carries linux_raid_member"));
        assert_eq!(world.status()["arrays"].as_array().map(Vec::len), Some(0));
        if remembers || !entry.is_empty() {
            let told = world.status()["absent"][0]["reason"].to_string();
            assert!(told.contains("linux_raid_member"), "{told}");
            assert!(!world.run(&["status", "--check"]).status.success());
        }
        assert!(world.end().success());
        assert_eq!(world.snapshot(&NAMES), before);
    }
}

#[test]
fn one_member_that_was_given_away_is_missing_and_comes_back_only_as_a_new_one() {
    for mark in [FRONT[0], BACK[1]] {
        let world = stopped();
        put(&world, "m2", mark);
        let before = world.snapshot(&["m2"]);
        let told = world.ok(&[&["assemble"], &NAMES[..]].concat());
        assert!(told.contains("degraded: slot 2 out"), "{told}");
        assert!(world.ok(&["events"]).contains("member.reused"));
        RawNbd::open(&world, "tank0").write(8192, &[8; 4096]).expect("written");
        let line = world.refused(&["re-add", "tank0", "m2"]);
        assert!(line.contains(&format!("carries {}", mark.0)), "{line}");
        assert!(line.contains("ashlar replace tank0 2"), "{line}");
        let line = world.refused(&["replace", "tank0", "2", "m2"]);
        assert!(line.contains("--destroy"), "{line}");
        assert_eq!(world.snapshot(&["m2"]), before);
        world.ok(&["replace", "tank0", "2", "m2", "--destroy", "m2", "--wait"]);
        assert!(!has(&world, "m2", mark));
        assert_eq!(world.array()["state"], "clean");
    }
}

/// What clients write into the volume lies on the members, too.
#[test]
fn signatures_in_the_data_of_the_volume_say_nothing() {
    let world = World::new();
    world.create_of(BYTES, 4, &["--level", "6"]);
    let mut block = vec![0; 256 << 10];
    for slot in block.chunks_mut(1024) {
        slot[..8].copy_from_slice(UBERBLOCK);
    }
    for (_, at, mark) in FRONT.iter().take(6) {
        let at = usize::try_from(*at).expect("small");
        block[at..at + mark.len()].copy_from_slice(mark);
    }
    let bytes = world.array()["volume_bytes"].as_u64().expect("a number");
    let mut client = RawNbd::open(&world, "tank0");
    let step = u64::try_from(block.len()).expect("small");
    for at in (0..bytes / step * step).step_by(block.len()) {
        client.write(at, &block).expect("written");
    }
    // The end of the volume lies at the end of the data of its members.
    let end = bytes / 4096 * 4096 - step;
    client.write(end, &block).expect("written");
    client.flush();
    drop(client);
    world.ok(&["stop", "tank0"]);
    world.ok(&[&["assemble"], &NAMES[..]].concat());
    assert_eq!(world.array()["state"], "clean");
    assert!(!world.ok(&["events"]).contains("member.reused"));
}

/// md 1.0 and 0.90, DDF, the second table of GPT and two labels of ZFS are at the end.
#[test]
fn a_device_that_joins_keeps_nothing_by_which_others_know_it() {
    let world = World::new();
    let all = || FRONT.into_iter().chain(BACK);
    let names = ["m0", "m1", "m2", "m3", "m4", "m5"];
    for name in names {
        world.sparse(name, BYTES);
        all().for_each(|mark| put(&world, name, mark));
        let line = world.refused(&["spare", "add", name]);
        assert!(line.contains("--destroy"), "{line}");
    }
    let destroyed = NAMES.iter().flat_map(|name| ["--destroy", name]);
    let destroyed: Vec<&str> = destroyed.collect();
    world.ok(&[&["create", "tank0", "--level", "6"], &destroyed[..], &NAMES].concat());
    world.ok(&["replace", "tank0", "1", "m4", "--destroy", "m4", "--wait"]);
    world.ok(&["spare", "add", "m5", "--destroy", "m5"]);
    let taken = ["m0", "m2", "m3", "m4", "m5"];
    for name in taken {
        let left: Vec<_> = all().filter(|mark| has(&world, name, *mark)).collect();
        assert!(left.is_empty(), "{name} keeps {left:?}");
    }
    world.ok(&["stop", "tank0"]);
    let test = "a_device_that_joins_keeps_nothing_by_which_others_know_it";
    if all_here(test, &["wipefs", "blkid"]) {
        for path in taken.map(|name| world.path(name).display().to_string()) {
            assert_eq!(run("wipefs", &[&path]), "");
        }
    }
}
