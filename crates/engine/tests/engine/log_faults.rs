//! Devices that fail under the stripe intent log: a batch that fails, a write that fails halfway, a
//! repair.
//!
//! What must stay true: before a write is answered the members say who lacks it, or which regions
//! are in doubt.

use crate::log::{BLOCK, STRIPE, counts, raid6, started};
use crate::world::add_disks;
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::SlotState;
use ashlar_layout::Level;
use ashlar_ondisk::examine::{examine_ranges, split_copies};
use ashlar_ondisk::{Superblock, SuperblockCopies};
use ashlar_sim::{SimDisk, SimWorld};
use ashlar_units::Extent;
use ashlar_volume::{Command, Volume};
use std::time::Duration;

#[test]
fn a_member_that_fails_a_batch_is_out_before_the_write_is_answered() {
    let mut world = SimWorld::new(10);
    let disks = add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, mut model) = started(opener, &handle, (raid6(), 2)).await;
            disks[2].fail(CommandKind::WriteDurable, FaultKind::Media, None);
            let run = engine.with_volume(0, "tank", async move |volume| {
                // All members are holders of a whole stripe.
                model.write(&volume, Extent::new(0, STRIPE)).await;
                for (at, disk) in disks.iter().enumerate() {
                    let out =
                        superblock(disk).members.iter().filter(|m| m.role.name() == "out").count();
                    assert_eq!(out, usize::from(at != 2), "as disk {at} has it");
                }
                for _ in 0..200 {
                    model.step(&volume).await;
                }
                model.audit(&volume).await;
            });
            run.await.expect("runs");
            let status = engine.status().await.expect("runs").arrays.remove(0);
            assert_eq!(status.members[2].state, SlotState::Out);
        })
        .done();
}

fn superblock(disk: &SimDisk) -> Superblock {
    let [head, tail] = examine_ranges(crate::world::DISK_BYTES).expect("large enough");
    let (head, tail) = (disk.peek(head), disk.peek(tail));
    let choice = SuperblockCopies::choose(&split_copies(Some(&head), Some(&tail)));
    choice.superblock().expect("a member").clone()
}

#[test]
fn a_write_that_fails_halfway_leaves_word_of_it_on_the_members() {
    let mut world = SimWorld::new(11);
    let disks = add_disks(&mut world, 4);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let shape = crate::world::shape(Level::Raid5, 4, None, None);
            let (engine, mut model) = started(opener, &handle, (shape, 1)).await;
            // The region is dirty already, so the next plain writes are data and parity in place.
            let run = engine.with_volume(0, "tank", async move |volume| {
                model.write(&volume, Extent::new(0, BLOCK)).await;
                let looks = disks.clone();
                disks[0].fail(CommandKind::Write, FaultKind::Media, Some(1));
                disks[1].fail(CommandKind::Write, FaultKind::Media, Some(1));
                let buffer = volume.buffer(48 << 10).await;
                let request = ashlar_volume::Request {
                    command: Command::Write(buffer.freeze()),
                    extent: Extent::new(0, 48 << 10),
                    fua: false,
                };
                volume.submit(request).await.expect_err("two of RAID 5 lack it");
                let told =
                    looks.iter().filter(|disk| superblock(disk).resync_dirty_regions).count();
                assert_eq!(told, 3, "all but the one that could be put out");
            });
            run.await.expect("runs");
            assert!(engine.status().await.expect("runs").arrays[0].unsynced_regions > 0);
        })
        .done();
}

#[test]
fn a_repair_is_in_the_log_of_the_device_that_is_repaired() {
    let mut world = SimWorld::new(12);
    let disks = add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, model) = started(opener, &handle, (raid6(), 1)).await;
            let data = superblock(&disks[1]).areas.data;
            disks[1].break_media(Extent::new(data.offset, BLOCK));
            let before = counts(&engine).await;
            let run = engine.with_volume(0, "tank", async move |volume| model.audit(&volume).await);
            run.await.expect("runs");
            let after = counts(&engine).await;
            if after.repaired_blocks == before.repaired_blocks {
                // Parity lies there in the first stripe: a scrub reads that, too.
                engine.scrub("tank", false).await.expect("started");
                while !engine.status().await.expect("runs").arrays[0].jobs.is_empty() {
                    handle.sleep(Duration::from_millis(20)).await;
                }
            }
            let after = counts(&engine).await;
            let repaired = after.repaired_blocks - before.repaired_blocks;
            assert!(repaired > 0 && disks[1].unreadable_sectors() == 0);
            assert_eq!(after.log_records - before.log_records, 1);
            assert_eq!(after.log_batches - before.log_batches, 1, "one holder");
            assert_eq!(after.log_bytes - before.log_bytes, (1 + repaired) * BLOCK);
        })
        .done();
}
