//! A daemon with a kept map is killed while clients write where nothing was written before.
//!
//! What must stay true: the control socket lies on tmpfs, so first writes are answered without a
//! flush. Every answered write is there after each kill. Without its kept map an array is not
//! started on this boot until the operator accepts that. Not here: power cuts, which take the map
//! away (`crates/universe`, `crates/engine/tests/engine/kept_map.rs`).

use crate::client::{Client, Nbd};
use crate::kills::say;
use crate::load::Random;
use crate::world::World;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const KILLS: u64 = 12;
/// Of RAID 6 3+2 with strips of 16 KiB.
const STRIPE_BYTES: u64 = 48 << 10;
const CLIENTS: u64 = 4;
/// Stripes of each client; a stripe has one of 4 KiB blocks written.
const STRIPES: u64 = 900;

/// A folder, and nothing running yet. The control socket will lie in memory that outlives a daemon.
pub fn world_with_kept_memory() -> World {
    let mut world = World::without_daemon();
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder on tmpfs");
    world.socket_folder = Some(folder);
    world
}

fn nbd(world: &World) -> Nbd {
    Nbd::open(&world.path("nbd.sock"), "tank0").expect("the volume is served")
}

fn block(client: u64, stripe: u64) -> Vec<u8> {
    let word = 0xC0DE_0000 + client * STRIPES + stripe;
    word.to_le_bytes().repeat(512)
}

fn place(client: u64, stripe: u64) -> u64 {
    (client * STRIPES + stripe) * STRIPE_BYTES + stripe % 12 * 4096
}

/// Each client writes the next stripes of its own until the kill comes. How many were answered.
fn write_until_killed(world: &mut World, from: &[u64], wanted: u64) -> Vec<u64> {
    let (is_killed, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let counts: Vec<AtomicU64> = from.iter().map(|count| AtomicU64::new(*count)).collect();
    let clients: Vec<Nbd> = from.iter().map(|_| nbd(world)).collect();
    std::thread::scope(|scope| {
        for (mut client, (number, count)) in clients.into_iter().zip((0..).zip(&counts)) {
            let (is_killed, done) = (&is_killed, &done);
            scope.spawn(move || {
                for stripe in count.load(Ordering::SeqCst)..STRIPES {
                    match client.write(place(number, stripe), &block(number, stripe)) {
                        Ok(()) => count.store(stripe + 1, Ordering::SeqCst),
                        Err(error) => {
                            assert!(is_killed.load(Ordering::SeqCst), "before the kill: {error}");
                            return;
                        }
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let is_all = || counts.iter().all(|count| count.load(Ordering::SeqCst) == STRIPES);
        while done.load(Ordering::SeqCst) < wanted && !is_all() {
            std::thread::sleep(Duration::from_micros(200));
        }
        is_killed.store(true, Ordering::SeqCst);
        world.kill();
    });
    counts.iter().map(|count| count.load(Ordering::SeqCst)).collect()
}

fn must_hold(world: &World, answered: &[u64]) {
    let mut client = nbd(world);
    for (number, answered) in (0..).zip(answered) {
        for stripe in 0..STRIPES {
            let mut found = vec![0; 4096];
            client.read(place(number, stripe), &mut found).expect("readable");
            let is_there = found == block(number, stripe);
            let may_be_zeros = stripe >= *answered && found.iter().all(|byte| *byte == 0);
            let (head, count) = (&found[..8], answered);
            assert!(
                is_there || may_be_zeros,
                "client {number}, stripe {stripe} of {count} answered holds {head:x?}"
            );
        }
    }
}

/// The map of first writes, and which drives there were.
fn kept(world: &World) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(world.socket_folder().join("written")).expect("a folder");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

fn created(policy: &str) -> (World, Vec<String>) {
    let mut world = world_with_kept_memory();
    world.start(&[]);
    let said = world.said.lock().expect("nobody panics with it").clone();
    assert!(!said.contains("wait for flushes"), "the socket lies on tmpfs: {said}");
    let arguments = ["--level", "6", "--policy", policy, "--strip-size", "16K"];
    let devices = world.create("tank0", 5, &arguments);
    (world, devices)
}

fn start(world: &mut World, devices: &[String]) {
    world.start(&devices.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn answered_first_writes_survive_a_killed_daemon_without_a_flush() {
    for policy in ["log", "bitmap"] {
        let (mut world, devices) = created(policy);
        let mut random = Random::new(11, 1);
        let mut answered = vec![0; usize::try_from(CLIENTS).expect("few")];
        for _ in 0..KILLS {
            assert_eq!(kept(&world).len(), 2);
            let wanted = 1 + random.next_below(CLIENTS * STRIPES / KILLS / 2);
            answered = write_until_killed(&mut world, &answered, wanted);
            start(&mut world, &devices);
            must_hold(&world, &answered);
        }
        let count: u64 = answered.iter().sum();
        assert!(count > KILLS * 10, "{count} first writes were answered");
        say(&format!("kept map, policy {policy}: {KILLS} kills, {count} first writes, 0 lost"));
        assert!(world.end().success());
        assert!(kept(&world).is_empty(), "a clean stop takes them away");
        start(&mut world, &devices);
        must_hold(&world, &answered);
    }
}

#[test]
fn without_its_kept_map_an_array_starts_only_if_the_operator_accepts_that() {
    let (mut world, devices) = created("log");
    let mut client = nbd(&world);
    client.write(place(0, 0), &block(0, 0)).expect("answered");
    client.flush().expect("flushed");
    client.write(place(0, 1), &block(0, 1)).expect("answered");
    world.kill();
    kept(&world).iter().for_each(|file| std::fs::remove_file(file).expect("there"));
    world.start(&[]);
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    let refused = world.run(&[&["assemble"], &devices[..]].concat());
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{complaint}");
    for part in ["kept map", "flushed writes are safe", "--accept-lost-map"] {
        assert!(complaint.contains(part), "{complaint}");
    }
    world.ok(&[&["assemble", "--accept-lost-map"], &devices[..]].concat());
    let mut found = vec![0; 4096];
    nbd(&world).read(place(0, 0), &mut found).expect("readable");
    assert!(found == block(0, 0), "it was flushed");
    assert!(world.end().success());
}
