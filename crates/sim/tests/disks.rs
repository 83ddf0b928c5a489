//! Claims about a disk's ordinary life and its faults.

mod program;

use std::time::Duration;

use ashlar_device::{Access, CommandKind, Fault, FaultKind, Opener, discard, read, write_zeroes};
use ashlar_iobuf::BufMut;
use ashlar_sim::{DiskOptions, Latency, Lie, SimDisk, SimOpener, SimWorld};
use ashlar_units::Extent;
use program::{Open, filled};

const SIZE: u64 = 1 << 20;

fn with_disk(program: impl AsyncFnOnce(Open, SimDisk)) {
    with_options(DiskOptions::sized(SIZE), program);
}

fn with_options(options: DiskOptions, program: impl AsyncFnOnce(Open, SimDisk)) {
    let mut world = SimWorld::new(11);
    let disk = world.add_disk("a", options);
    let opener = world.opener();
    world.run(async |handle| program(Open::new(&opener, "a", &handle), disk).await).done();
}

fn refusal(opener: &SimOpener, name: &str) -> String {
    match opener.open(name, Access::Exclusive) {
        Ok(_) => panic!("{name} was opened"),
        Err(refusal) => refusal.to_string(),
    }
}

#[test]
fn reads_see_every_write_that_completed_through_page_boundaries() {
    with_disk(async |open, _| {
        open.write(512, 9000 / 512 * 512, 1).await.expect("written");
        open.flush().await;
        open.write(4096, 512, 2).await.expect("written");
        let got = open.read(0, 12_288).await.expect("read");
        let mut wanted = filled(12_288, 0);
        wanted[512..512 + 8704].fill(1);
        wanted[4096..4608].fill(2);
        assert_eq!(&got[..], &wanted[..]);
    });
}

#[test]
fn zeroed_and_discarded_ranges_read_zeros() {
    with_disk(async |open, disk| {
        open.write(0, 16_384, 1).await.expect("written");
        open.flush().await;
        write_zeroes(&*open.device, &open.supply, 512, 5120).await.expect("zeroed");
        discard(&*open.device, &open.supply, 8192, SIZE - 8192).await.expect("discarded");
        let mut wanted = filled(16_384, 1);
        wanted[512..5632].fill(0);
        wanted[8192..].fill(0);
        assert_eq!(&open.read(0, 16_384).await.expect("read")[..], &wanted[..]);
        assert!(disk.peek_durable(Extent::new(0, 16_384)).iter().all(|byte| *byte == 1));
        open.flush().await;
        assert_eq!(disk.peek_durable(Extent::new(0, 16_384)), wanted[..]);
    });
}

#[test]
fn discarded_ranges_of_a_disk_that_does_not_zero_read_as_junk() {
    let options = DiskOptions { discard_reads_zeros: false, ..DiskOptions::sized(SIZE) };
    with_options(options, async |open, _| {
        assert!(!open.device.facts().discard_reads_zeros);
        open.write(0, 4096, 0).await.expect("written");
        discard(&*open.device, &open.supply, 0, 4096).await.expect("discarded");
        assert!(open.read(0, 4096).await.expect("read").iter().any(|byte| *byte != 0));
    });
}

#[test]
fn media_errors_hit_what_touches_them_until_rewritten() {
    with_disk(async |open, disk| {
        open.write(0, 4096, 1).await.expect("written");
        disk.break_media(Extent::new(1024, 1024));
        assert_eq!(disk.unreadable_sectors(), 2);
        open.read(0, 1024).await.expect("before it");
        open.read(2048, 1024).await.expect("behind it");
        let failed = open.read(512, 1024).await.expect_err("across it");
        assert_eq!((failed.fault.kind, failed.buffer.len()), (FaultKind::Media, 1024));
        open.write(1024, 512, 2).await.expect("written");
        open.read(1024, 512).await.expect("healed by the write");
        open.read(1536, 512).await.expect_err("its other sector is not");
    });
}

#[test]
fn a_vanished_disk_answers_gone_even_to_commands_under_way_and_may_come_back() {
    with_disk(async |open, disk| {
        open.write(0, 512, 1).await.expect("written");
        let reading = read(&*open.device, &open.supply, 0, BufMut::zeroed(512));
        disk.vanish();
        assert_eq!(reading.await.expect_err("pulled meanwhile").fault, Fault::GONE);
        assert_eq!(open.write(0, 512, 2).await, Err(Fault::GONE));
        disk.come_back();
        assert_eq!(open.read(0, 512).await.expect("read")[0], 1, "the write did nothing");
    });
}

#[test]
fn failing_commands_fail_as_often_as_told() {
    with_disk(async |open, disk| {
        disk.fail(CommandKind::Write, FaultKind::NoSpace, Some(2));
        assert_eq!(open.write(0, 512, 1).await, Err(Fault::NO_SPACE));
        open.read(0, 512).await.expect("reads are not meant");
        assert_eq!(open.write(0, 512, 1).await, Err(Fault::NO_SPACE));
        open.write(0, 512, 1).await.expect("the third time");
        disk.fail(CommandKind::Read, FaultKind::TimedOut, None);
        for _ in 0..3 {
            let failed = open.read(0, 512).await.expect_err("for ever");
            assert_eq!(failed.fault, Fault::TIMED_OUT);
        }
        disk.stop_failing();
        open.read(0, 512).await.expect("read");
    });
}

#[test]
fn lost_misdirected_and_corrupted_writes_are_silent() {
    with_disk(async |open, disk| {
        open.write(0, 8192, 1).await.expect("written");
        disk.lose_writes(1);
        open.write(0, 512, 2).await.expect("acknowledged");
        assert_eq!(open.read(0, 512).await.expect("read")[0], 1);
        disk.misdirect_next_write(4096);
        open.write(0, 512, 3).await.expect("acknowledged");
        assert_eq!(open.read(0, 512).await.expect("read")[0], 1);
        assert_eq!(open.read(4096, 512).await.expect("read")[0], 3);
        disk.corrupt(Extent::new(512, 512));
        open.flush().await;
        let got = open.read(0, 1536).await.expect("read");
        assert!(got[..512].iter().chain(&got[1024..]).all(|byte| *byte == 1));
        assert!(
            got[512..1024].iter().all(|byte| *byte != 1),
            "every byte differs, also after a flush"
        );
    });
}

#[test]
fn commands_take_the_time_they_are_given() {
    let mut world = SimWorld::new(1);
    let options = DiskOptions {
        latency: Latency::constant(Duration::from_millis(3)),
        ..DiskOptions::sized(SIZE)
    };
    let disk = world.add_disk("slow", options);
    let opener = world.opener();
    let (one, many, longer) = world
        .run(async |handle| {
            let open = Open::new(&opener, "slow", &handle);
            let begin = handle.now();
            open.read(0, 512).await.expect("read");
            let one = handle.now().since(begin);
            let reads: Vec<_> = (0..10)
                .map(|_| read(&*open.device, &open.supply, 0, BufMut::zeroed(512)))
                .collect();
            for reading in reads {
                reading.await.expect("read");
            }
            let many = handle.now().since(begin);
            disk.set_latency(Latency::constant(Duration::from_secs(30)));
            open.flush().await;
            (one, many, handle.now().since(begin))
        })
        .done();
    let ms = Duration::from_millis;
    assert_eq!((one, many, longer), (ms(3), ms(6), ms(30_006)));
}

#[test]
fn beyond_the_end_reads_are_media_faults_and_writes_no_space() {
    with_disk(async |open, _| {
        let failed = open.read(SIZE - 512, 1024).await.expect_err("ends beyond the disk");
        assert_eq!(failed.fault, Fault::MEDIA);
        assert_eq!(open.write(SIZE, 512, 1).await, Err(Fault::NO_SPACE));
    });
}

#[test]
fn a_disk_is_open_exclusively_once_and_says_why_not() {
    let mut world = SimWorld::new(1);
    let disk = world.add_disk("a", DiskOptions::sized(SIZE));
    let opener = world.opener();
    let opened = opener.open("a", Access::Exclusive).expect("free");
    assert_eq!(opened.facts().serial.as_deref(), Some("a"));
    assert!(refusal(&opener, "a").contains("in use"));
    assert!(opener.open("a", Access::ReadOnly).is_ok(), "looking is allowed");
    drop(opened);
    disk.vanish();
    assert!(refusal(&opener, "a").contains("vanished"));
    assert!(refusal(&opener, "b").contains("no such"));
    disk.come_back();
    assert!(opener.open("a", Access::Exclusive).is_ok());
}

/// As the kernel has it: what is under way holds the open file.
#[test]
fn a_disk_is_in_use_as_long_as_something_is_under_way() {
    let mut world = SimWorld::new(2);
    let disk = world.add_disk("a", DiskOptions::sized(SIZE));
    disk.set_latency(Latency::constant(Duration::from_millis(10)));
    let opener = world.opener();
    world
        .run(async |handle| {
            let Open { device, supply } = Open::new(&opener, "a", &handle);
            let pending = read(&*device, &supply, 0, BufMut::zeroed(512));
            drop(device);
            assert!(refusal(&opener, "a").contains("in use"));
            pending.await.expect("read");
            assert!(opener.open("a", Access::Exclusive).is_ok());
        })
        .done();
}

#[test]
fn an_old_image_makes_a_disk_stale_and_wiping_makes_it_blank() {
    with_disk(async |open, disk| {
        open.write(0, 512, 1).await.expect("written");
        let old = disk.image();
        open.write(0, 512, 2).await.expect("written");
        disk.put_image(&old);
        assert_eq!(open.read(0, 512).await.expect("read")[0], 1);
        disk.break_media(Extent::new(0, 512));
        disk.wipe();
        assert_eq!(open.read(0, 512).await.expect("read")[0], 0);
        disk.poke(0, &[9; 512]);
        assert_eq!(open.read(0, 512).await.expect("read")[0], 9);
    });
}

#[test]
fn lies_about_writes_are_remembered_until_what_they_left_is_stored_anew() {
    with_disk(async |open, disk| {
        let (here, there) = (Extent::new(8192, 8192), Extent::new(65_536, 8192));
        let lies = [(10, Lie::Lost), (20, Lie::Torn), (30, Lie::Misdirected(there.offset))];
        for (before, lie) in lies {
            // What was wrong once counts as wrong whenever it is there again: each round has
            // contents of its own.
            open.write(0, 131_072, before).await.expect("written");
            open.flush().await;
            assert!(!disk.is_damaged_anywhere(), "{lie:?}: all of it was stored anew");
            disk.lie_about_next_write(here, lie);
            open.write(4096, 8192, 2).await.expect("written");
            assert!(disk.is_damaged(here), "it is still to come");
            open.write(12_288, 4096, 3).await.expect("acknowledged");
            let got = open.read(12_288, 4096).await.expect("read");
            let kept = usize::from(lie == Lie::Torn) * 2048;
            assert!(got[..kept].iter().all(|byte| *byte == 3), "{lie:?}");
            assert!(got[kept..].iter().all(|byte| *byte == before), "{lie:?}");
            assert!(disk.is_damaged(Extent::new(12_288, 4096)));
            assert!(!disk.is_damaged(Extent::new(4096, 8192)));
            assert_eq!(disk.is_damaged(there), lie == Lie::Misdirected(there.offset));
            let elsewhere = open.read(there.offset, 8192).await.expect("read");
            let is_hit = elsewhere[4096..].iter().all(|byte| *byte == 3);
            assert_eq!(is_hit, lie == Lie::Misdirected(there.offset), "{lie:?}");
        }
        assert_eq!(disk.lies_told(), 3);
        open.write(0, 131_072, 40).await.expect("written");
        open.flush().await;
        disk.rot(Extent::new(512, 512));
        assert!(disk.is_damaged(Extent::new(0, 4096)) && !disk.is_damaged(here));
        open.write(0, 4096, 40).await.expect("written");
        assert!(disk.is_damaged_anywhere(), "a power cut may bring it back");
        open.flush().await;
        assert!(!disk.is_damaged_anywhere());
        disk.lie_about_next_write(here, Lie::Lost);
        disk.stop_lying();
        assert!(!disk.is_damaged_anywhere());
    });
}
