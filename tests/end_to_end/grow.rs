//! A pool takes drives while clients use it: they see a pause, then the same data on more drives,
//! and at last more room.
//!
//! What must stay true: no client gets an error, over NBD or a file, and the growth survives a
//! killed daemon and a lost member.

use crate::contents::starts_with;
use crate::kept::{FioLoad, Kept};
use crate::load::{Client, Load};
use crate::tools::{run, wait_for};
use crate::world::World;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Size of each member: some hundred cells.
const MEMBER: u64 = 160 << 20;
/// Where the noise lies: behind what fio writes.
const ASIDE: u64 = 64 << 20;
const POOL: [&str; 7] =
    ["--level", "6", "--declustered", "--stripe-width", "6", "--distributed-spares", "2"];

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

/// New drives for the world's pool.
fn new_drives(world: &World, count: usize) -> Vec<String> {
    let drives = names("n", count);
    drives.iter().for_each(|name| world.sparse(name, MEMBER));
    drives
}

fn grow(drives: &[String], more: &[&str]) -> Vec<String> {
    let words = ["grow", "tank0"].iter().chain(more).map(|word| (*word).to_owned());
    words.chain(drives.iter().cloned()).collect()
}

fn ok(world: &World, words: &[String]) -> String {
    world.ok(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn refused(world: &World, words: &[String]) -> String {
    world.refused(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn volume_bytes(world: &World) -> u64 {
    world.array()["volume_bytes"].as_u64().expect("a number")
}

/// The growth's job, if it runs.
fn job(world: &World) -> Option<serde_json::Value> {
    let jobs = world.array()["jobs"].as_array().cloned().unwrap_or_default();
    jobs.into_iter().find(|job| job["kind"] == "grow")
}

fn members_in_sync(world: &World) -> usize {
    let members = world.array()["members"].as_array().cloned().unwrap_or_default();
    members.iter().filter(|member| member["state"] == "in_sync").count()
}

#[test]
fn a_pool_grows_under_a_client_of_nbd_who_sees_no_error() {
    let world = World::new();
    world.create_of(MEMBER, 8, &POOL);
    let load = Load::begin(Client::over_nbd(&world, "tank0"));
    load.goes_on(20);
    let before = volume_bytes(&world);
    let drives = new_drives(&world, 4);
    let dry = ok(&world, &grow(&drives, &["--dry-run"]));
    assert!(dry.contains("would grow") && dry.contains("8 -> 12"), "{dry}");
    assert_eq!((members_in_sync(&world), volume_bytes(&world)), (8, before));
    let told = ok(&world, &grow(&drives, &[]));
    assert!(told.contains("grows: 4 more members"), "{told}");
    load.goes_on(20);
    wait_for("the end of the growth", || job(&world).is_none());
    load.goes_on(20);
    load.end();
    assert_eq!(members_in_sync(&world), 12);
    assert!(volume_bytes(&world) > before);
    let events = world.ok(&["events"]);
    assert!(events.contains("array.growing") && events.contains("array.grown"), "{events}");
    let scrubbed = world.ok(&["scrub", "tank0", "--wait"]);
    assert!(scrubbed.contains(" 0 mismatches"), "{scrubbed}");
}

#[test]
fn what_cannot_grow_is_refused_in_one_line() {
    let world = World::new();
    world.create("tank0", 4, &["--level", "6"]);
    let drives = new_drives(&world, 2);
    let flat = refused(&world, &grow(&drives, &[]));
    assert!(flat.contains("only declustered pools grow"), "{flat}");
    world.ok(&["stop", "tank0"]);
    let stopped = refused(&world, &grow(&drives, &[]));
    assert!(stopped.contains("'tank0'"), "{stopped}");
}

/// New drives come in whole domains, and somebody says which.
#[test]
fn a_pool_in_domains_with_spares_grows_by_a_domain() {
    let world = World::new();
    let domain = |name: &str, first: usize| {
        let paths = [first, first + 1].map(|at| world.path(&format!("m{at}")));
        format!("{name}={},{}", paths[0].display(), paths[1].display())
    };
    let old = [("a", 0), ("b", 2), ("c", 4), ("d", 6)].map(|(name, first)| domain(name, first));
    let lists: Vec<&str> = old.iter().flat_map(|list| ["--domain", list.as_str()]).collect();
    let pool = ["--level", "5", "--declustered", "--stripe-width", "3"];
    let spares = ["--distributed-spares", "1"];
    world.create_of(MEMBER, 8, &[&pool[..], &spares, &lists].concat());
    let before = volume_bytes(&world);
    let drives = new_drives(&world, 2);
    let unsaid = refused(&world, &grow(&drives, &[]));
    assert!(unsaid.contains("failure domains of 2 drives (domain)"), "{unsaid}");
    assert!(unsaid.contains("--domain NAME=DEVICE"), "{unsaid}");
    let one = format!("e={}", drives[0]);
    let part = refused(&world, &grow(&drives[..1], &["--domain", &one]));
    assert!(part.contains("1 new drives in 1 domains do not fit"), "{part}");
    let whole = format!("e={},{}", drives[0], drives[1]);
    let told = ok(&world, &grow(&drives, &["--domain", &whole]));
    assert!(told.contains("a lost domain costs at most 1 strip"), "{told}");
    wait_for("the end of the growth", || job(&world).is_none());
    assert!(members_in_sync(&world) == 10 && volume_bytes(&world) > before);
    for slot in ["8", "9"] {
        ok(&world, &["fail".to_owned(), "tank0".to_owned(), slot.to_owned()]);
    }
    let told = ok(&world, &["rebuild", "wait", "tank0"].map(str::to_owned));
    assert!(told.contains("distributed spares"), "{told}");
    let scrubbed = world.ok(&["scrub", "tank0", "--wait"]);
    assert!(scrubbed.contains(" 0 mismatches"), "{scrubbed}");
}

/// The whole way: a growth by six under fio, the daemon killed in the middle, a member lost and
/// replaced, and then the new room is used.
#[test]
fn a_pool_of_fourteen_grows_by_six_through_a_kill_and_a_lost_member() {
    let test = "a_pool_of_fourteen_grows_by_six_through_a_kill_and_a_lost_member";
    let Some(mut kept) = Kept::bare(test, &["fio", "losetup", "blockdev"]) else { return };
    kept.0.create_of(MEMBER, 14, &POOL);
    let device = kept.attach(&["--via", "loop"]);
    let file = File::options().read(true).write(true).open(&device).expect("it is there");
    let noise = kept.0.noise("noise", 256 << 20);
    let content = std::fs::read(&noise).expect("read");
    file.write_all_at(&content, ASIDE).and_then(|()| file.sync_all()).expect("written");
    let before = volume_bytes(&kept.0);
    let load = FioLoad::on(&device, kept.0.path("fio"));
    let drives = new_drives(&kept.0, 6);
    ok(&kept.0, &grow(&drives, &[]));
    wait_for("the first cells", || {
        job(&kept.0).is_none_or(|job| job["done_stripes"].as_u64() > Some(0))
    });
    kept.0.kill();
    let all: Vec<String> = names("m", 14).into_iter().chain(drives).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    kept.0.start(&all);
    // On a fast machine it may have ended before anybody looks.
    assert!(job(&kept.0).is_some() || volume_bytes(&kept.0) > before, "it goes on");
    kept.0.ok(&["fail", "tank0", "3"]);
    kept.0.sparse("r0", MEMBER);
    kept.0.ok(&["replace", "tank0", "3", "r0"]);
    wait_for("all members", || members_in_sync(&kept.0) == 20);
    wait_for("the end of the growth", || job(&kept.0).is_none());
    load.end();
    let mut back = vec![0; content.len()];
    file.read_exact_at(&mut back, ASIDE).expect("readable");
    assert!(back == content, "what was written before is not there");
    let after = volume_bytes(&kept.0);
    assert!(after > before, "{after} and {before}");
    wait_for("the size of the loop device", || {
        run("blockdev", &["--getsize64", &device]).trim() == after.to_string()
    });
    let piece = &content[..4 << 20];
    let at = after - (4 << 20);
    file.write_all_at(piece, at).and_then(|()| file.sync_all()).expect("room at the end");
    kept.0.ok(&["fail", "tank0", "19"]);
    kept.0.ok(&["fail", "tank0", "0"]);
    let copy = kept.0.path("copy");
    run("nbdcopy", &[&kept.0.uri("tank0"), copy.to_str().expect("text")]);
    let mut end = vec![0; piece.len()];
    File::open(&copy).and_then(|copy| copy.read_exact_at(&mut end, at)).expect("as long");
    assert!(end == piece, "the new end is not what was written");
    let shifted = kept.0.path("shifted");
    let wanted = File::open(&copy).and_then(|copy| {
        let mut part = vec![0; content.len()];
        copy.read_exact_at(&mut part, ASIDE)?;
        std::fs::write(&shifted, part)
    });
    wanted.expect("as long");
    assert!(starts_with(&shifted, &noise), "two members are missing, and the data is not right");
    drop(file);
    kept.0.ok(&["detach", "tank0"]);
    assert!(kept.0.end().success());
}

/// Drives need ninety cells for a second growth, of 16 MiB each.
#[test]
fn a_pool_grows_twice_through_a_kill_and_a_third_growth_is_refused() {
    const DRIVE: u64 = 2200 << 20;
    let level = ["--level", "5", "--declustered", "--stripe-width", "3"];
    let mut world = World::new();
    world.create_of(DRIVE, 4, &[&level[..], &["--distributed-spares", "1"]].concat());
    let drives = names("n", 3);
    drives.iter().for_each(|name| world.sparse(name, DRIVE));
    let noise = world.noise("noise", 256 << 20);
    let noise_text = noise.to_str().expect("text");
    run("nbdcopy", &[noise_text, &world.uri("tank0")]);
    ok(&world, &grow(&drives[..1], &["--wait"]));
    let once = volume_bytes(&world);
    // So much is on the drives of the first growth too.
    run("nbdcopy", &[noise_text, &world.uri("tank0")]);
    ok(&world, &grow(&drives[1..2], &[]));
    world.kill();
    world.start(&["m0", "m1", "m2", "m3", "n0", "n1"]);
    wait_for("the end of the second growth", || job(&world).is_none());
    assert_eq!(members_in_sync(&world), 6);
    assert!(volume_bytes(&world) > once);
    let third = refused(&world, &grow(&drives[2..], &[]));
    assert!(third.contains("has grown twice, which is the most"), "{third}");
    let scrubbed = world.ok(&["scrub", "tank0", "--wait"]);
    assert!(scrubbed.contains(" 0 mismatches"), "{scrubbed}");
    world.ok(&["fail", "tank0", "4"]);
    let copy = world.path("copy");
    let (from, to) = (format!("if={}", world.uri("tank0")), format!("of={}", copy.display()));
    run("qemu-img", &["dd", "-f", "raw", "-O", "raw", "bs=1M", "count=256", &from, &to]);
    assert!(starts_with(&copy, &noise), "a member is missing, and the data is not right");
    assert!(world.end().success());
}
