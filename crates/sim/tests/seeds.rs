//! Claims about seeds: the same one replays the same world, another one is another world.

mod program;

use ashlar_sim::{DiskOptions, Ended, SimWorld, Stop};
use ashlar_units::Extent;
use program::Open;

/// Two disks, twelve tasks, a power cut in the middle and a look at what is left. Returns the trace
/// hash and the disks' content.
fn universe(seed: u64) -> (u64, Vec<Vec<u8>>) {
    let mut world = SimWorld::new(seed);
    let disks = ["a", "b"].map(|name| world.add_disk(name, DiskOptions::sized(1 << 20)));
    let opener = world.opener();
    world.stop_at(40, Stop::PowerCut);
    let ended = world.run(async |handle| {
        for name in ["a", "b"] {
            let open = std::rc::Rc::new(Open::new(&opener, name, &handle));
            for task in 0..6u8 {
                let (open, handle) = (open.clone(), handle.clone());
                handle.clone().spawn(async move {
                    loop {
                        let at = handle.random_u64() % 100 * 512;
                        open.write(at, 4096, task).await.expect("written");
                        open.read(at, 512).await.expect("read");
                        if task == 0 {
                            open.flush().await;
                        }
                    }
                });
            }
        }
        std::future::pending::<()>().await;
    });
    assert_eq!(ended, Ended::Stopped(Stop::PowerCut));
    assert_eq!(world.last_operations().len(), 40);
    assert_eq!(world.last_operations()[39].number, 40);
    let content = disks.map(|disk| disk.peek(Extent::new(0, 65_536))).to_vec();
    (world.trace_hash(), content)
}

#[test]
fn the_same_seed_replays_the_same_world() {
    for seed in 0..20 {
        assert_eq!(universe(seed), universe(seed), "seed {seed}");
    }
}

#[test]
fn different_seeds_are_different_worlds() {
    let mut hashes: Vec<u64> = (0..100).map(|seed| universe(seed).0).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 100);
}

#[test]
fn one_changed_byte_changes_the_trace() {
    let hash = |fill: u8| {
        let mut world = SimWorld::new(1);
        world.add_disk("a", DiskOptions::sized(1 << 20));
        let opener = world.opener();
        world.run(async |handle| {
            Open::new(&opener, "a", &handle).write(0, 512, fill).await.expect("written");
        });
        world.trace_hash()
    };
    assert_ne!(hash(1), hash(2));
    assert_eq!(hash(1), hash(1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_program_that_waits_for_nothing_is_found_out() {
    let mut world = SimWorld::new(1);
    world.run(async |_| std::future::pending::<()>().await);
}
