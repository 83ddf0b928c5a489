//! A member that does not answer: what is beneath it stands still, and says nothing of it.
//!
//! The member is the file of a volume that another daemon serves through FUSE; that daemon is
//! stopped by a signal, as a drive hangs that does not even fail. What must stay true: no client
//! sees an error, no request stalls for long, and what comes back late changes nothing.

use crate::load::{Client, Load};
use crate::tools::{all_here, run, skipped};
use crate::world::World;
use std::path::Path;
use std::time::Duration;

/// What a silent member may cost a request on a busy machine. That it is less than ten seconds is
/// held in virtual time (`crates/engine/tests/engine/silence.rs`).
const STALL_MAX: Duration = Duration::from_secs(60);
/// Slot of the silent member.
const SLOT: usize = 2;

/// What is beneath the silent member. It goes on when this is dropped.
struct Beneath {
    world: World,
    file: String,
}

impl Beneath {
    fn new() -> Beneath {
        let world = World::new();
        world.create("beneath", 2, &["--level", "0"]);
        let file = world.ok(&["attach", "--file", "beneath"]).trim().to_owned();
        Beneath { world, file }
    }

    fn stand_still(&self) {
        self.world.halt();
    }

    fn go_on(&self) {
        self.world.go_on();
    }
}

impl Drop for Beneath {
    fn drop(&mut self) {
        self.go_on();
    }
}

/// `None` after saying why `test` cannot run here.
fn prepared(test: &str) -> Option<(World, Beneath)> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        skipped(test, "needs root and FUSE");
        return None;
    }
    if !all_here(test, &["fio", "fusermount3", "losetup"]) {
        return None;
    }
    let (world, beneath) = (World::new(), Beneath::new());
    let mut devices = world.members(6);
    devices[SLOT].clone_from(&beneath.file);
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    world.ok(&[&["create", "tank0", "--level", "6"], &devices[..]].concat());
    Some((world, beneath))
}

/// Half a minute of reads and writes of a client that checks what it reads; the longest that one of
/// them took.
fn fio(way: &[&str]) -> Duration {
    let common = [
        "--name=load",
        "--rw=randrw",
        "--bs=16k",
        "--iodepth=16",
        "--size=6m",
        "--time_based",
        "--runtime=20",
        "--output-format=json",
    ];
    let told = run("fio", &[&common[..], way].concat());
    // Some ways to a volume say something before.
    let told = &told[told.find('{').expect("JSON")..];
    let told: serde_json::Value = serde_json::from_str(told).expect("JSON");
    let job = &told["jobs"][0];
    assert_eq!(job["error"], 0, "{job}");
    let longest = |of: &str| job[of]["clat_ns"]["max"].as_u64().expect("a number");
    assert!(job["write"]["total_ios"].as_u64() > Some(100), "{job}");
    Duration::from_nanos(longest("write").max(longest("read")))
}

fn events(world: &World, name: &str) -> Vec<String> {
    let all = world.ok(&["events", "--json"]);
    all.lines().filter(|line| line.contains(name)).map(str::to_owned).collect()
}

fn state(world: &World) -> String {
    world.array()["members"][SLOT]["state"].as_str().expect("text").to_owned()
}

/// Fall silent under fio, and come back; `way` is how fio reaches the volume.
fn falls_silent_under(world: &World, beneath: &Beneath, way: &[&str]) {
    let load = Load::begin(Client::over_nbd(world, "tank0"));
    load.goes_on(50);
    let longest = std::thread::scope(|scope| {
        let fio = scope.spawn(|| fio(way));
        std::thread::sleep(Duration::from_secs(3));
        beneath.stand_still();
        let ended = fio.join();
        // What happened, for whoever reads why.
        let told = world.ok(&["events"]);
        ended.unwrap_or_else(|_| panic!("an error at the client: {told}"))
    });
    assert!(longest < STALL_MAX, "a request took {longest:?}");
    println!("the longest request took {longest:?}");
    load.goes_on(50);
    assert_eq!(state(world), "out");
    let failed = events(world, "member.failed");
    assert!(failed.last().is_some_and(|it| it.contains("did not answer")), "{failed:?}");

    beneath.go_on();
    load.goes_on(50);
    assert_eq!(state(world), "out", "what comes back late changes nothing");
    let is_back = (0..1200).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        world.run(&["re-add", "tank0", &beneath.file, "--wait"]).status.success()
    });
    assert!(is_back, "its commands do not come back");
    assert_eq!(state(world), "in_sync");
    load.goes_on(50);
    load.end();
    world.ok(&["scrub", "tank0", "--wait"]);
}

#[test]
fn a_silent_member_costs_clients_over_nbd_and_the_block_device_a_stall_and_no_error() {
    let test = "a_silent_member_costs_clients_over_nbd_and_the_block_device_a_stall_and_no_error";
    let Some((world, beneath)) = prepared(test) else { return };
    let uri = format!("--uri={}", world.uri("tank0"));
    falls_silent_under(&world, &beneath, &["--ioengine=nbd", &uri]);
    let device = world.ok(&["attach", "--via", "loop", "tank0"]).trim().to_owned();
    let filename = format!("--filename={device}");
    falls_silent_under(&world, &beneath, &["--ioengine=libaio", "--direct=1", &filename]);
    world.ok(&["detach", "tank0"]);
    world.ok(&["stop", "tank0"]);
}

#[test]
fn a_silent_member_is_put_out_by_hand_at_once_and_keeps_nobody_from_stopping() {
    let test = "a_silent_member_is_put_out_by_hand_at_once_and_keeps_nobody_from_stopping";
    let Some((world, beneath)) = prepared(test) else { return };
    let load = Load::begin(Client::over_nbd(&world, "tank0"));
    load.goes_on(50);
    beneath.stand_still();
    std::thread::sleep(Duration::from_secs(1));
    world.ok(&["fail", "tank0", &SLOT.to_string()]);
    load.goes_on(50);
    // Nobody watches a member that is out: only the command can have released what was stuck.
    let failed = events(&world, "member.failed");
    assert!(failed.last().is_some_and(|it| it.contains("by the operator")), "{failed:?}");
    load.end();
    world.ok(&["stop", "tank0"]);
    beneath.go_on();
}
