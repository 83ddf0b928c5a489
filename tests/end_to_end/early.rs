//! Clients that connect again and again, as QEMU and NVMe hosts do, while an array starts, stops,
//! or is looked at by a dry run.
//!
//! What must stay true: they are refused until the array runs. The daemon and its other arrays go
//! on. A dry run changes no member.

use crate::raw_nbd::RawNbd;
use crate::world::World;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Clients that connect side by side.
const CLIENTS: u64 = 4;
/// Starts, and dry runs, under them.
const TIMES: usize = 20;
const MEMBERS: [&str; 4] = ["m0", "m1", "m2", "m3"];

/// Clients that write blocks all over the volume, and connect anew whenever that fails.
struct Crowd {
    is_over: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn begin(world: &World) -> Crowd {
        let (is_over, written) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let client = |number: u64| {
            let socket = world.path("nbd.sock");
            let (is_over, written) = (Arc::clone(&is_over), Arc::clone(&written));
            std::thread::spawn(move || {
                let (mut connection, mut block) = (None, number * 977);
                while !is_over.load(Ordering::Relaxed) {
                    let Some(open) = &mut connection else {
                        connection = RawNbd::try_open_at(&socket, "tank0");
                        continue;
                    };
                    let blocks = open.volume_bytes / 4096;
                    block = (block * 31 + 7) % blocks;
                    match open.try_write(block * 4096, &[0xE1; 4096]) {
                        Some(Ok(())) => drop(written.fetch_add(1, Ordering::Relaxed)),
                        _ => connection = None,
                    }
                }
            })
        };
        let threads = (0..CLIENTS).map(client).collect();
        Crowd { is_over, written, threads }
    }

    /// How many blocks they have written.
    fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|it| it.join().expect("no panic"));
    }
}

/// Both, on a daemon that runs another array too.
fn under_a_crowd(level: &str) {
    let world = World::new();
    (0..3).for_each(|at| world.sparse(&format!("o{at}"), 32 << 20));
    world.ok(&["create", "other", "--level", "5", "o0", "o1", "o2"]);
    let mut other = RawNbd::open(&world, "other");
    other.write(0, &[0x0F; 4096]).expect("it runs");
    world.create("tank0", 4, &["--level", level]);
    RawNbd::open(&world, "tank0").write(1 << 20, &[1; 65_536]).expect("it runs");
    world.ok(&["stop", "tank0", "--force"]);
    let before = world.snapshot(&MEMBERS);
    let crowd = Crowd::begin(&world);
    for _ in 0..TIMES {
        world.ok(&[&["assemble", "--dry-run"] as &[&str], &MEMBERS].concat());
    }
    assert_eq!(crowd.written(), 0, "level {level}: somebody wrote to what is only looked at");
    assert!(before == world.snapshot(&MEMBERS), "level {level}: a dry run changed a member");
    for _ in 0..TIMES {
        world.ok(&[&["assemble"] as &[&str], &MEMBERS].concat());
        world.ok(&["stop", "tank0", "--force"]);
    }
    world.ok(&[&["assemble"] as &[&str], &MEMBERS].concat());
    let written = crowd.written();
    while crowd.written() == written {
        std::thread::yield_now();
    }
    crowd.end();
    assert_eq!(other.read(0, 4096).expect("it runs"), [0x0F; 4096]);
    assert_eq!(world.status()["arrays"].as_array().map(Vec::len), Some(2));
    world.ok(&["stop", "tank0", "--force"]);
}

/// A worker panicked when a flush of theirs met an array that had no coordinator yet, or a write
/// one whose start was not recorded. All arrays of the process went with it.
#[test]
fn clients_that_connect_while_an_array_with_parity_starts_wait_until_it_runs() {
    under_a_crowd("6");
}

/// The same where there is no log.
#[test]
fn clients_that_connect_while_a_mirror_starts_wait_until_it_runs() {
    under_a_crowd("10");
}
