//! Claims about what survives a stop, each over many seeds.

mod program;

use ashlar_sim::{DiskOptions, Ended, SimDisk, SimWorld, Stop};
use ashlar_units::Extent;
use program::{Open, filled};

const SEEDS: u64 = 200;

fn world(seed: u64, options: DiskOptions) -> (SimWorld, SimDisk) {
    let mut world = SimWorld::new(seed);
    let disk = world.add_disk("a", options);
    (world, disk)
}

/// Run a script on a disk, then cut the power: what is left.
fn cut_after(
    seed: u64,
    options: DiskOptions,
    script: impl AsyncFnOnce(&Open, &SimDisk),
) -> SimDisk {
    let (mut world, disk) = world(seed, options);
    let opener = world.opener();
    world.run(async |handle| script(&Open::new(&opener, "a", &handle), &disk).await);
    world.stop(Stop::PowerCut);
    disk
}

/// Fill bytes of the sectors of an extent, each checked to be uniform.
fn sectors(disk: &SimDisk, offset: u64, bytes: u64) -> Vec<u8> {
    let content = disk.peek(Extent::new(offset, bytes));
    content
        .chunks(512)
        .map(|sector| {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "torn inside a sector");
            sector[0]
        })
        .collect()
}

#[test]
fn flushed_writes_survive_every_power_cut() {
    for seed in 0..SEEDS {
        let disk = cut_after(seed, DiskOptions::sized(1 << 20), async |open, _| {
            open.write(0, 8192, 1).await.expect("written");
            open.flush().await;
        });
        assert_eq!(sectors(&disk, 0, 8192), [1; 16], "seed {seed}");
    }
}

#[test]
fn unflushed_writes_are_kept_lost_or_torn_at_sectors() {
    let (mut kept, mut lost, mut prefix, mut pieces) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let disk = cut_after(seed, DiskOptions::sized(1 << 20), async |open, disk| {
            open.write(0, 8192, 1).await.expect("written");
            assert_eq!(sectors(disk, 0, 8192), [1; 16], "a completed write is seen");
        });
        let left = sectors(&disk, 0, 8192);
        match left.iter().map(|fill| usize::from(*fill)).sum() {
            16 => kept += 1,
            0 => lost += 1,
            ones if left[..ones].iter().all(|fill| *fill == 1) => prefix += 1,
            _ => pieces += 1,
        }
    }
    assert!(kept > 0 && lost > 0 && prefix > 0 && pieces > 0, "{kept} {lost} {prefix} {pieces}");
}

#[test]
fn atomic_units_are_never_torn() {
    for seed in 0..SEEDS {
        let options = DiskOptions { atomic_write_bytes: 4096, ..DiskOptions::sized(1 << 20) };
        let disk = cut_after(seed, options, async |open, _| {
            open.write(4096, 16_384, 1).await.expect("written");
        });
        for unit in 1..5 {
            let left = sectors(&disk, unit * 4096, 4096);
            assert!(left.iter().all(|fill| *fill == left[0]), "seed {seed}, unit {unit}: {left:?}");
        }
    }
}

#[test]
fn of_overlapping_unflushed_writes_any_may_come_out_on_top() {
    let mut seen = [false; 3];
    for seed in 0..SEEDS {
        let disk = cut_after(seed, DiskOptions::sized(1 << 20), async |open, _| {
            open.write(0, 512, 1).await.expect("written");
            open.write(0, 512, 2).await.expect("written");
        });
        seen[usize::from(sectors(&disk, 0, 512)[0])] = true;
    }
    assert_eq!(seen, [true; 3]);
}

#[test]
fn a_disk_without_volatile_cache_keeps_all_that_completed() {
    for seed in 0..SEEDS {
        let options = DiskOptions { has_volatile_cache: false, ..DiskOptions::sized(1 << 20) };
        let disk = cut_after(seed, options, async |open, _| {
            open.write(0, 8192, 1).await.expect("written");
        });
        assert_eq!(sectors(&disk, 0, 8192), [1; 16]);
    }
}

#[test]
fn a_lying_flush_keeps_nothing_for_certain() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let disk = cut_after(seed, DiskOptions::sized(1 << 20), async |open, disk| {
            disk.lie_on_flush(true);
            open.write(0, 512, 1).await.expect("written");
            open.flush().await;
        });
        lost += usize::from(sectors(&disk, 0, 512) == [0]);
    }
    assert!(lost > 0);
}

#[test]
fn a_flush_does_not_cover_what_completes_after_it_was_submitted() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let disk = cut_after(seed, DiskOptions::sized(1 << 20), async |open, _| {
            let flushing = ashlar_device::flush(&*open.device, &open.supply);
            open.write(0, 512, 1).await.expect("written");
            flushing.await.expect("flushed");
        });
        lost += usize::from(sectors(&disk, 0, 512) == [0]);
    }
    assert!(lost > 0);
}

#[test]
fn stopping_at_each_operation_reaches_every_state_of_a_script() {
    // Three writes with a flush after each: five operations decide how many of them must be there.
    let mut ends = Vec::new();
    for at in 1..=7 {
        let (mut world, disk) = world(at, DiskOptions::sized(1 << 20));
        let opener = world.opener();
        world.stop_at(at, Stop::PowerCut);
        let ended = world.run(async |handle| {
            let open = Open::new(&opener, "a", &handle);
            for write in 0..3u8 {
                open.write(u64::from(write) * 512, 512, write + 1).await.expect("written");
                open.flush().await;
            }
        });
        ends.push(ended);
        let certain = usize::try_from((at - 1) / 2).expect("small").min(3);
        let left = sectors(&disk, 0, 1536);
        assert_eq!(left[..certain], [1, 2, 3][..certain], "cut at operation {at}");
        assert!(left[(certain + 1).min(3)..].iter().all(|fill| *fill == 0), "not begun at {at}");
        assert_eq!(world.operations(), at.min(6));
    }
    assert_eq!(ends[..6], [Ended::Stopped(Stop::PowerCut); 6]);
    assert_eq!(ends[6], Ended::Done(()), "the script has six operations");
}

#[test]
fn a_killed_program_leaves_the_cache_alone_and_its_commands_to_chance() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..SEEDS {
        let (mut world, disk) = world(seed, DiskOptions::sized(1 << 20));
        let opener = world.opener();
        world.stop_at(2, Stop::Kill);
        let ended = world.run(async |handle| {
            let open = Open::new(&opener, "a", &handle);
            open.write(0, 512, 1).await.expect("written");
            open.write(512, 512, 2).await
        });
        assert_eq!(ended, Ended::Stopped(Stop::Kill));
        match sectors(&disk, 0, 1024)[..] {
            [1, 2] => kept += 1,
            [1, 0] => lost += 1,
            ref other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(kept > 0 && lost > 0);
}

#[test]
fn disks_and_time_go_on_after_a_stop_and_can_be_opened_again() {
    let (mut world, _) = world(5, DiskOptions::sized(1 << 20));
    let opener = world.opener();
    world.stop_at(3, Stop::PowerCut);
    let ended = world.run(async |handle| {
        let open = Open::new(&opener, "a", &handle);
        open.write(0, 512, 1).await.expect("written");
        open.flush().await;
        open.write(0, 512, 2).await
    });
    assert_eq!(ended, Ended::Stopped(Stop::PowerCut));
    let before = world.now();
    assert!(before.0 > 0);
    let fill = world
        .run(async |handle| {
            let open = Open::new(&opener, "a", &handle);
            open.read(0, 512).await.expect("read")[0]
        })
        .done();
    assert!(fill == 1 || fill == 2);
    assert!(world.now() > before);
}

#[test]
fn tasks_left_behind_go_on_in_the_next_run_and_end_with_a_stop() {
    let (mut world, disk) = world(5, DiskOptions::sized(1 << 20));
    let opener = world.opener();
    world.run(async |handle| {
        let open = Open::new(&opener, "a", &handle);
        handle.spawn(async move { open.write(0, 512, 1).await.expect("written") });
    });
    assert_eq!(sectors(&disk, 0, 512), [0]);
    world.run(async |handle| handle.sleep(std::time::Duration::from_secs(1)).await);
    assert_eq!(sectors(&disk, 0, 512), [1]);
    world.stop(Stop::Kill);
    world.run(async |handle| drop(Open::new(&opener, "a", &handle)));
}

async fn write_durable(
    open: &Open,
    offset: u64,
    bytes: usize,
    fill: u8,
) -> Result<(), ashlar_device::Fault> {
    let source = filled(bytes, fill).freeze();
    ashlar_device::write_durable(&*open.device, &open.supply, offset, source).await
}

#[test]
fn a_durable_write_survives_every_power_cut_and_older_cached_writes_stay_below_it() {
    let mut older_lost = 0;
    for seed in 0..SEEDS {
        let disk = cut_after(seed, DiskOptions::sized(1 << 20), async |open, disk| {
            open.write(0, 4096, 1).await.expect("written");
            write_durable(open, 1024, 1024, 2).await.expect("written");
            assert_eq!(sectors(disk, 0, 4096), [1, 1, 2, 2, 1, 1, 1, 1], "it is seen");
        });
        let left = sectors(&disk, 0, 4096);
        assert_eq!(left[2..4], [2, 2], "seed {seed}: {left:?}");
        older_lost += u64::from(left.contains(&0));
    }
    assert!(older_lost > SEEDS / 4, "a durable write is no flush of what came before");
}

#[test]
fn a_durable_write_under_way_is_kept_lost_or_torn_like_any_other() {
    let (mut whole, mut lost, mut torn) = (0, 0, 0);
    for seed in 0..SEEDS {
        let (mut world, disk) = world(seed, DiskOptions::sized(1 << 20));
        let opener = world.opener();
        world.stop_at(1, Stop::PowerCut);
        let ended = world.run(async |handle| {
            let open = Open::new(&opener, "a", &handle);
            write_durable(&open, 0, 4096, 1).await
        });
        assert_eq!(ended, Ended::Stopped(Stop::PowerCut));
        match sectors(&disk, 0, 4096).iter().map(|fill| usize::from(*fill)).sum() {
            8 => whole += 1,
            0 => lost += 1,
            _ => torn += 1,
        }
    }
    assert!(whole > 0 && lost > 0 && torn > 0, "{whole} {lost} {torn}");
}

#[test]
fn a_disk_that_lies_about_flushes_lies_about_durable_writes() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let disk = cut_after(seed, DiskOptions::sized(1 << 20), async |open, disk| {
            disk.lie_on_flush(true);
            write_durable(open, 0, 512, 1).await.expect("written");
        });
        lost += usize::from(sectors(&disk, 0, 512) == [0]);
    }
    assert!(lost > 0);
}
