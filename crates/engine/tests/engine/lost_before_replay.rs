//! A start that lacks a member rolls its log forward, is cut off, and the member is back at the
//! next one.
//!
//! What must stay true: the others say that it is out before anything of the log goes in place. It
//! missed that, and what it holds would be taken for what the array has.

use crate::log::{BLOCK, STRIPE, raid6};
use crate::world::jobs::{pair, scrub, status, until_all_in_sync, until_idle};
use crate::world::{DISK_BYTES, assemble_spec, create_spec, engine, names, read, submit};
use ashlar_engine::{CreateSpec, SlotState};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_sim::{DiskImage, DiskOptions, Ended, Fate, Latency, SimDisk, SimWorld, Stop};
use ashlar_units::{Extent, StripIdx, StripeNo};
use ashlar_volume::{Command, Volume};
use std::time::Duration;

/// A block of the first stripe, whose update is parity-only.
const WRITTEN: Extent = Extent { offset: 0, bytes: BLOCK };

fn blank(seed: u64) -> (SimWorld, Vec<SimDisk>) {
    let mut world = SimWorld::new(seed);
    let options = DiskOptions { has_volatile_cache: false, ..DiskOptions::sized(DISK_BYTES) };
    let disks = names(6).iter().map(|name| world.add_disk(name, options.clone())).collect();
    (world, disks)
}

/// The power goes when the record of an update is durable and its block is not in place. The
/// members then, and the one that the block is for.
fn cut_before_the_block_is_in_place() -> (Vec<DiskImage>, usize) {
    let (mut world, disks) = blank(681);
    let (opener, own) = (world.opener(), disks.clone());
    let holder = world.run(async move |handle| {
        let engine = engine(opener, &handle, 1);
        let (policy, atomic_write_bytes) = (ConsistencyPolicy::Log, 4096);
        let spec = CreateSpec { policy, atomic_write_bytes, ..create_spec(raid6()) };
        let geometry = engine.create(spec).await.expect("created").geometry;
        engine.assemble(assemble_spec(6)).await.expect("assembled");
        let holder = geometry.place(geometry.stripe(StripeNo(0)), StripIdx(0)).member.at();
        let write = async move |volume: ashlar_engine::ArrayVolume| {
            for (extent, byte) in [(Extent::new(0, STRIPE), 1), (WRITTEN, 2)] {
                let mut buffer = volume.buffer(usize::try_from(extent.bytes).expect("small")).await;
                buffer.fill(byte);
                let write = Command::Write(buffer.freeze());
                if extent == WRITTEN {
                    let late = Duration::from_secs(1);
                    own[holder].set_latency(Latency { write: late..=late, ..Latency::default() });
                    let volume = volume.clone();
                    volume.handle().clone().spawn(async move {
                        submit(&volume, write, extent, false).await;
                    });
                } else {
                    submit(&volume, write, extent, false).await;
                }
            }
        };
        engine.with_volume(0, "tank", write).await.expect("runs");
        handle.sleep(Duration::from_millis(200)).await;
        assert_eq!(status(&engine).await.counts.parity_only_records, 1);
        holder
    });
    let holder = holder.done();
    world.stop(Stop::Freeze);
    for (at, disk) in disks.iter().enumerate() {
        disk.settle(|_| if at == holder { Fate::Lost } else { Fate::Whole });
    }
    (disks.iter().map(SimDisk::image).collect(), holder)
}

/// True if the start without the member was over before it was cut off.
fn comes_back_after(operations: u64, (images, holder): (&[DiskImage], usize)) -> bool {
    let (mut world, disks) = blank(682);
    disks.iter().zip(images).for_each(|(disk, image)| disk.put_image(image));
    disks[holder].vanish();
    let opener = world.opener();
    world.stop_at(world.operations() + operations, Stop::PowerCut);
    let ended = world.run(async move |handle| {
        let engine = engine(opener, &handle, 1);
        engine.assemble(assemble_spec(6)).await.expect("one may be missing");
    });
    let is_over = matches!(ended, Ended::Done(()));
    world.call_off();
    world.stop(Stop::PowerCut);
    disks[holder].come_back();
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            engine.assemble(assemble_spec(6)).await.expect("all are here");
            let found = engine.with_volume(0, "tank", async move |volume| {
                read(&volume, WRITTEN).await.expect("readable")[0]
            });
            let found = found.await.expect("runs");
            assert!(found == 1 || found == 2, "{operations}: {found}");
            if status(&engine).await.members[holder].state != SlotState::InSync {
                let _taken = engine.re_add("tank", &format!("disk{holder}")).await;
                until_all_in_sync(&engine, &handle).await;
            }
            until_idle(&engine, &handle).await;
            assert_eq!(scrub(&engine, &handle, false).await, pair(0, 0), "{operations}");
        })
        .done();
    is_over
}

#[test]
pub fn nothing_is_rolled_forward_before_a_loss_is_recorded() {
    let (images, holder) = cut_before_the_block_is_in_place();
    let cuts = (1..).take_while(|at| !comes_back_after(*at, (&images, holder))).count();
    assert!(cuts > 40, "{cuts} cuts");
}
