//! The cycle of an array's life, for every level and over both exports: write, lose as many members
//! as the level allows, read, write on, replace, scrub, lose as many others, stop, start, read.
//!
//! Losing the others after the rebuild is the point: what is read then was computed from what the
//! rebuild wrote. Members are lost and replaced while another client writes and reads back; the
//! last of the first ones vanishes, the others are put out.

use crate::doomed::Doomed;
use crate::load::{Client, Load};
use crate::tools::{all_here, run, skipped, wait_for};
use crate::world::World;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are written and compared.
const DATA_BYTES: usize = 9 << 20;

/// One level and how many members of a group it can lose.
struct Level {
    name: &'static str,
    arguments: &'static [&'static str],
    members: usize,
    losses: usize,
}

/// How the client reaches the volume.
#[derive(Clone, Copy)]
enum Way {
    Nbd,
    File,
}

impl Way {
    /// Store `content` at the start of the volume, durably.
    fn write(self, world: &World, content: &Path) {
        match self {
            Way::Nbd => {
                let content = content.to_str().expect("text");
                run("nbdcopy", &["--flush", content, &world.uri("tank0")]);
            }
            Way::File => {
                let file = File::options().write(true).open(self.file(world)).expect("open");
                file.write_all_at(&std::fs::read(content).expect("read"), 0).expect("write");
                file.sync_all().expect("flush");
            }
        }
    }

    /// Whether the volume starts with `content`.
    fn holds(self, world: &World, content: &Path) -> bool {
        let wanted = std::fs::read(content).expect("read");
        match self {
            Way::Nbd => {
                let copy = world.path("copy");
                run("nbdcopy", &[&world.uri("tank0"), copy.to_str().expect("text")]);
                std::fs::read(copy).expect("read").get(..wanted.len()) == Some(wanted.as_slice())
            }
            Way::File => {
                let mut found = vec![0; wanted.len()];
                let file = File::open(self.file(world)).expect("open");
                file.read_exact_at(&mut found, 0).expect("read");
                found == wanted
            }
        }
    }

    fn file(self, world: &World) -> String {
        world.ok(&["attach", "--file", "tank0"]).trim().to_owned()
    }

    /// A client of its own, for a load beside what the test does.
    fn client(self, world: &World) -> Client {
        match self {
            Way::Nbd => Client::over_nbd(world, "tank0"),
            Way::File => Client::of_file(Path::new(&self.file(world))),
        }
    }

    fn leave(self, world: &World) {
        if matches!(self, Way::File) {
            world.ok(&["detach", "tank0"]);
        }
    }
}

fn cycle(test: &str, level: &Level) {
    if !all_here(test, &["nbdcopy", "fusermount3"]) {
        return;
    }
    live(Way::Nbd, level);
    match File::options().write(true).open("/dev/fuse") {
        Ok(_) => live(Way::File, level),
        Err(error) => skipped(test, &format!("the part over FUSE: /dev/fuse: {error}")),
    }
}

/// Writes and reads of the load after each loss: more than it takes to visit all of its area.
const ROUNDS: u64 = 120;

fn live(way: Way, level: &Level) {
    let world = World::new();
    let (doomed, mut devices) = members(&world, level);
    let named: Vec<&str> = devices.iter().map(String::as_str).collect();
    let arguments = [&["create", "tank0", "--level", level.name], level.arguments, &named].concat();
    world.ok(&arguments);
    let (first, second) =
        (world.noise("first", DATA_BYTES), world.noise_from("second", DATA_BYTES, 77));
    way.write(&world, &first);
    let load = Load::begin(way.client(&world));
    let lost: Vec<usize> = (0..level.losses).collect();
    for &slot in &lost {
        lose(&world, slot, doomed.as_ref().filter(|_| slot + 1 == level.losses), &load);
    }
    assert!(way.holds(&world, &first), "{}: wrong with members out", level.name);
    way.write(&world, &second);
    for slot in lost {
        let device = format!("new{slot}");
        world.sparse(&device, crate::world::MEMBER_BYTES);
        world.ok(&["replace", "tank0", &slot.to_string(), &device, "--wait"]);
        devices[slot] = device;
    }
    load.end();
    assert_eq!(world.array()["state"], "clean", "{}", level.name);
    let scrubbed = world.ok(&["scrub", "tank0", "--wait"]);
    assert!(scrubbed.contains(" 0 mismatches"), "{}: {scrubbed}", level.name);
    for slot in level.losses..level.losses * 2 {
        world.ok(&["fail", "tank0", &slot.to_string()]);
    }
    assert!(way.holds(&world, &second), "{}: wrong after the rebuild", level.name);
    way.leave(&world);
    world.ok(&["stop", "tank0"]);
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    world.ok(&[&["assemble"], devices.as_slice()].concat());
    assert!(way.holds(&world, &second), "{}: wrong after a new start", level.name);
    assert_eq!(world.array()["counters"]["errors"], 0, "{}", level.name);
    way.leave(&world);
}

/// Sparse files, the last that is lost first on something that can be destroyed, where this machine
/// can do that.
fn members(world: &World, level: &Level) -> (Option<Doomed>, Vec<String>) {
    let mut devices = world.members(level.members);
    let Some(slot) = level.losses.checked_sub(1) else { return (None, devices) };
    if let Some(why) = Doomed::missing() {
        skipped(level.name, &format!("{why}: it is put out instead"));
        return (None, devices);
    }
    let (doomed, path) = Doomed::member(world);
    devices[slot] = path;
    (Some(doomed), devices)
}

/// Put the member out, or destroy what is beneath it and wait until the load has met that.
fn lose(world: &World, slot: usize, doomed: Option<&Doomed>, load: &Load) {
    match doomed {
        None => drop(world.ok(&["fail", "tank0", &slot.to_string()])),
        Some(doomed) => {
            doomed.destroy();
            while world.array()["members"][slot]["state"] != "out" {
                load.goes_on(1);
            }
        }
    }
    load.goes_on(ROUNDS);
}

/// One test for each level.
macro_rules! levels {
    ($(
        $test:ident: $name:literal, $arguments:expr,
        $members:literal members, $losses:literal lost;
    )*) => {$(
        #[test]
        fn $test() {
            let arguments: &'static [&'static str] = &$arguments;
            let level = Level { name: $name, arguments, members: $members, losses: $losses };
            cycle(stringify!($test), &level);
        }
    )*};
}

levels! {
    raid0_keeps_what_it_holds: "0", [], 4 members, 0 lost;
    raid1_lives_through_one_loss: "1", [], 2 members, 1 lost;
    raid1_of_four_lives_through_two_losses_twice: "1", [], 4 members, 2 lost;
    raid5_lives_through_one_loss: "5", [], 4 members, 1 lost;
    raid6_lives_through_two_losses: "6", [], 6 members, 2 lost;
    raid7_3_lives_through_three_losses: "7.3", ["--strip-size", "16K"], 8 members, 3 lost;
    n_plus_m_12_4_lives_through_four_losses: "n+m", ["--parity", "4"], 16 members, 4 lost;
    raid10_lives_through_one_loss: "10", [], 6 members, 1 lost;
    raid50_lives_through_one_loss: "50", ["--group-size", "4"], 8 members, 1 lost;
    raid60_lives_through_two_losses: "60", ["--group-size", "5"], 10 members, 2 lost;
    raid70_lives_through_three_losses: "70", ["--group-size", "6"], 12 members, 3 lost;
    declustered_raid5_lives_through_one_loss:
        "5", ["--declustered", "--stripe-width", "3"], 5 members, 1 lost;
    declustered_raid6_lives_through_two_losses:
        "6", ["--declustered", "--stripe-width", "6"], 11 members, 2 lost;
    draid3_lives_through_three_losses: "draid3:4d:13c", [], 13 members, 3 lost;
}

/// Two members are lost and rebuilt into distributed spares, two more go, and all come back.
#[test]
fn distributed_spares_take_lost_members_and_give_them_back() {
    if !all_here("distributed_spares_take_lost_members_and_give_them_back", &["nbdcopy"]) {
        return;
    }
    let world = World::new();
    let devices = world.create("tank0", 9, &["--level", "draid2:3d:9c:2s"]);
    let first = world.noise("first", DATA_BYTES);
    Way::Nbd.write(&world, &first);
    for slot in ["1", "4"] {
        world.ok(&["fail", "tank0", slot]);
        // It begins by itself, a moment later.
        wait_for("the rebuild", || {
            let array = world.array();
            let slot: usize = slot.parse().expect("a number");
            array["tolerates"] == 2 || array["members"][slot]["state"] != "out"
        });
        let told = world.ok(&["rebuild", "wait", "tank0"]);
        assert!(told.contains("distributed spares"), "{told}");
        assert_eq!(world.array()["tolerates"], 2);
    }
    let shown = world.ok(&["status"]);
    assert!(shown.contains("distributed spare 0") && shown.contains("on spares"), "{shown}");
    let is_safe = || world.ok(&["status"]).contains("risk   all stripes survive 2 more losses");
    wait_for("stripes that survive two losses", is_safe);
    for slot in ["6", "7"] {
        world.ok(&["fail", "tank0", slot]);
    }
    no_spare_is_left(&world);
    assert!(Way::Nbd.holds(&world, &first), "wrong with four members out");
    let second = world.noise_from("second", DATA_BYTES, 77);
    Way::Nbd.write(&world, &second);
    world.ok(&["stop", "tank0"]);
    let left = devices.iter().enumerate().filter(|(slot, _)| ![1, 4, 6, 7].contains(slot));
    let left: Vec<&str> = left.map(|(_, device)| device.as_str()).collect();
    world.ok(&[&["assemble"], &left[..]].concat());
    assert!(Way::Nbd.holds(&world, &second), "wrong after a start without four members");
    for slot in ["1", "4", "6", "7"] {
        let device = format!("new{slot}");
        world.sparse(&device, crate::world::MEMBER_BYTES);
        world.ok(&["replace", "tank0", slot, &device, "--wait"]);
    }
    let array = world.array();
    assert_eq!(
        (&array["state"], &array["lost_members"]),
        (&"clean".into(), &serde_json::json!([]))
    );
    assert!(Way::Nbd.holds(&world, &second), "wrong after all were replaced");
    let scrubbed = world.ok(&["scrub", "tank0", "--wait"]);
    assert!(scrubbed.contains(" 0 mismatches"), "{scrubbed}");
    assert_eq!(world.array()["counters"]["errors"], 0);
}

/// Stripes of the last two losses wait, and status and metrics say how many.
fn no_spare_is_left(world: &World) {
    wait_for("the count", || !world.array()["exposure"]["critical"].is_null());
    let array = world.array();
    let critical = &array["exposure"]["critical"];
    assert_eq!(
        (&critical["survive"], &critical["left_seconds"]),
        (&0.into(), &().into()),
        "{array}"
    );
    assert_eq!(critical["stripes"], critical["waiting"], "{array}");
    let shown = world.ok(&["status"]);
    assert!(
        shown.contains("survive no more loss") && shown.contains("wait for a spare"),
        "{shown}"
    );
    let metrics = world.ok(&["metrics"]);
    let sample =
        format!("ashlar_array_stripes{{array=\"tank0\",losses=\"0\"}} {}", critical["stripes"]);
    assert!(metrics.contains(&sample), "{metrics}");
    assert!(!metrics.contains("ashlar_array_critical_left_seconds{"), "{metrics}");
}

#[test]
fn a_spare_takes_the_place_of_a_member_that_fails() {
    if !all_here("a_spare_takes_the_place_of_a_member_that_fails", &["nbdcopy"]) {
        return;
    }
    let world = World::new();
    world.sparse("spare0", crate::world::MEMBER_BYTES);
    world.create("tank0", 5, &["--level", "6", "--spare", "spare0"]);
    let noise = world.noise("noise", DATA_BYTES);
    Way::Nbd.write(&world, &noise);
    world.ok(&["fail", "tank0", "2"]);
    wait_for("the spare", || world.array()["members"][2]["state"] != "out");
    world.ok(&["rebuild", "wait", "tank0"]);
    let array = world.array();
    assert_eq!(
        (&array["state"], &array["members"][2]["state"]),
        (&"clean".into(), &"in_sync".into())
    );
    assert!(array["members"][2]["path"].as_str().expect("text").ends_with("/spare0"));
    // A spare that comes later is taken at once.
    world.ok(&["fail", "tank0", "0"]);
    assert_eq!(world.array()["state"], "degraded");
    world.sparse("spare1", crate::world::MEMBER_BYTES);
    world.ok(&["spare", "add", "spare1"]);
    wait_for("the other spare", || world.array()["members"][0]["state"] != "out");
    world.ok(&["rebuild", "wait", "tank0"]);
    assert_eq!(world.array()["state"], "clean");
    what_is_stated_comes_along(&world);
    world.ok(&["fail", "tank0", "1"]);
    world.ok(&["fail", "tank0", "3"]);
    assert!(Way::Nbd.holds(&world, &noise));
}

/// What is stated of a device that comes later is looked at first, waits with a spare, and is shown
/// of the member.
fn what_is_stated_comes_along(world: &World) {
    world.sparse("spare2", crate::world::MEMBER_BYTES);
    let add = ["spare", "add", "spare2", "--atomic-write", "4K"];
    let looked = world.ok(&[&add[..], &["--dry-run"]].concat());
    let in_vain = "that it writes 4 KiB whole makes no difference, for it has a volatile cache";
    assert!(looked.contains(in_vain) && looked.contains("nothing was written"), "{looked}");
    assert!(world.ok(&["examine", "spare2"]).contains("no intact copy"));
    assert!(
        world.refused(&["spare", "add", "spare2", "--atomic-write", "2K"]).contains("of no use")
    );
    world.ok(&add);
    let shown = "spare2  stated to write 4 KiB whole";
    assert!(world.ok(&["status"]).contains(shown), "{}", world.ok(&["status"]));
    world.ok(&["replace", "tank0", "1", "spare2", "--wait"]);
    let member = &world.array()["members"][1];
    assert!(member["path"].as_str().expect("text").ends_with("/spare2"), "{member}");
    assert_eq!(member["atomic_write_bytes"], 4096, "{member}");
    assert!(world.ok(&["examine", "spare2"]).contains("4 KiB stated to be written whole"));
}

#[test]
fn a_member_that_was_away_gets_what_it_missed() {
    if !all_here("a_member_that_was_away_gets_what_it_missed", &["nbdcopy"]) {
        return;
    }
    let world = World::new();
    let devices = world.create("tank0", 5, &["--level", "6"]);
    let (first, second) =
        (world.noise("first", DATA_BYTES), world.noise_from("second", DATA_BYTES, 5));
    Way::Nbd.write(&world, &first);
    world.ok(&["fail", "tank0", "1"]);
    Way::Nbd.write(&world, &second);
    world.ok(&["re-add", "tank0", &devices[1], "--wait"]);
    assert_eq!(world.array()["state"], "clean");
    assert!(world.ok(&["scrub", "tank0", "--wait"]).contains(" 0 mismatches"));
    world.ok(&["fail", "tank0", "0"]);
    world.ok(&["fail", "tank0", "4"]);
    assert!(Way::Nbd.holds(&world, &second));
}
