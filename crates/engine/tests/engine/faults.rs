//! Faults of single members, and what a client and the other members see of them.

use crate::world::{Model, add_disks, assemble_spec, create_spec, engine, read, submit};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::{ArrayState, ArrayVolume, Engine, SlotState, event_names};
use ashlar_layout::Level;
use ashlar_ondisk::examine::{examine_ranges, split_copies};
use ashlar_ondisk::{ConsistencyPolicy, SuperblockCopies};
use ashlar_sim::{Latency, SimDisk, SimWorld};
use ashlar_units::{BLOCK_BYTES, Extent, to_usize};
use ashlar_volume::{Command, Request, Volume};
use std::time::Duration;

const SPAN: u64 = 1 << 20;

/// An engine with a RAID 6 of six disks called tank.
async fn raid6(opener: ashlar_sim::SimOpener, handle: &ashlar_ring::Handle) -> Engine {
    let engine = engine(opener, handle, 2);
    let shape = crate::world::shape(Level::Raid6, 6, None, None);
    engine.create(create_spec(shape)).await.expect("created");
    engine.assemble(assemble_spec(6)).await.expect("assembled");
    engine
}

/// Write the whole span with the model's content and flush it.
async fn fill(volume: &ArrayVolume) -> Model {
    let mut model = Model::new(3, SPAN);
    for offset in (0..SPAN).step_by(64 << 10) {
        model.write(volume, Extent::new(offset, 64 << 10)).await;
    }
    submit(volume, Command::Flush, Extent::default(), false).await;
    model
}

fn happened(engine: &Engine, name: &str) -> usize {
    engine.events().since(0).iter().filter(|event| event.name == name).count()
}

/// What the superblock on a disk says of the array's members that are out.
fn out_according_to(disk: &SimDisk) -> usize {
    let [head, tail] = examine_ranges(crate::world::DISK_BYTES).expect("large enough");
    let (head, tail) = (disk.peek(head), disk.peek(tail));
    let choice = SuperblockCopies::choose(&split_copies(Some(&head), Some(&tail)));
    let superblock = choice.superblock().expect("a member").clone();
    superblock.members.iter().filter(|entry| entry.role.name() == "out").count()
}

#[test]
fn an_unreadable_block_is_reconstructed_and_written_back() {
    let mut world = SimWorld::new(1);
    let disks = add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = raid6(opener, &handle).await;
            let disk = disks[1].clone();
            let looked = engine.with_volume(0, "tank", async move |volume| {
                let model = fill(&volume).await;
                disk.break_media(Extent::new(0, crate::world::DISK_BYTES));
                let broken = disk.unreadable_sectors();
                model.audit(&volume).await;
                assert!(disk.unreadable_sectors() < broken, "what was read was written back");
                model.audit(&volume).await;
            });
            looked.await.expect("runs");
            assert!(happened(&engine, event_names::MEMBER_BLOCK_REPAIRED) > 0);
            let status = engine.status().await.expect("runs");
            assert_eq!(status.arrays[0].members[1].state, SlotState::InSync);
            assert!(status.arrays[0].members[1].counts.repaired_blocks > 0);
        })
        .done();
}

#[test]
fn more_unreadable_blocks_in_a_stripe_than_parity_are_an_error_and_nothing_else_is() {
    let mut world = SimWorld::new(2);
    let disks = add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = raid6(opener, &handle).await;
            let looked = engine.with_volume(1, "tank", async move |volume| {
                let model = fill(&volume).await;
                // One row of the first stripe, on three members.
                let status_offset = 0;
                let data_offset = data_offset(&disks[0]);
                for disk in &disks[..3] {
                    disk.break_media(Extent::new(data_offset, BLOCK_BYTES));
                }
                let (mut failed, mut good) = (0, 0);
                for offset in (status_offset..SPAN).step_by(4096) {
                    let extent = Extent::new(offset, BLOCK_BYTES);
                    match read(&volume, extent).await {
                        Ok(bytes) => {
                            assert_eq!(
                                bytes,
                                model.bytes[crate::world::range(extent)],
                                "at {offset}"
                            );
                            good += 1;
                        }
                        Err(_) => failed += 1,
                    }
                }
                assert!((1..=3).contains(&failed), "{failed} blocks failed");
                assert_eq!(failed + good, to_usize(SPAN / BLOCK_BYTES));
            });
            looked.await.expect("runs");
            assert!(happened(&engine, event_names::BLOCK_LOST) > 0);
        })
        .done();
}

fn data_offset(disk: &SimDisk) -> u64 {
    let [head, tail] = examine_ranges(crate::world::DISK_BYTES).expect("large enough");
    let (head, tail) = (disk.peek(head), disk.peek(tail));
    let choice = SuperblockCopies::choose(&split_copies(Some(&head), Some(&tail)));
    choice.superblock().expect("a member").areas.data.offset
}

#[test]
fn a_member_that_hangs_is_read_around_after_the_deadline() {
    let mut world = SimWorld::new(4);
    let disks = add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = raid6(opener, &handle).await;
            let disk = disks[2].clone();
            let clock = engine.with_volume(0, "tank", async move |volume| {
                let model = fill(&volume).await;
                disk.set_latency(Latency::constant(Duration::from_secs(3600)));
                let began = volume.handle().now();
                model.audit(&volume).await;
                volume.handle().now().since(began)
            });
            let took = clock.await.expect("runs");
            assert!(took < Duration::from_secs(600), "an audit took {took:?} of virtual time");
            assert!(happened(&engine, event_names::MEMBER_READ_LATE) > 0);
        })
        .done();
}

#[test]
fn a_member_that_fails_a_write_is_out_on_the_others_before_the_client_is_answered() {
    let mut world = SimWorld::new(5);
    let disks = add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = raid6(opener, &handle).await;
            let looked = engine.with_volume(0, "tank", async move |volume| {
                let mut model = fill(&volume).await;
                disks[3].fail(CommandKind::Write, FaultKind::Media, None);
                // Full stripes touch every member.
                model.write(&volume, Extent::new(0, 256 << 10)).await;
                for (at, disk) in disks.iter().enumerate() {
                    let wanted = usize::from(at != 3);
                    assert_eq!(out_according_to(disk), wanted, "as disk {at} has it");
                }
                model.audit(&volume).await;
            });
            looked.await.expect("runs");
        })
        .done();
}

#[test]
fn member_reads_and_writes_are_exactly_those_of_the_plan() {
    let mut world = SimWorld::new(6);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = raid6(opener, &handle).await;
            let model = engine.with_volume(0, "tank", async |volume: ArrayVolume| {
                fill(&volume).await;
            });
            model.await.expect("runs");
            // One block of a 4+2 stripe: three reads either way, and three writes.
            assert_eq!(cost_of(&engine, Extent::new(4096, 4096)).await, (3, 3));
            // A full stripe: no read, one write a member.
            assert_eq!(cost_of(&engine, Extent::new(0, 64 << 10)).await, (0, 6));
            // Three of four strips: the fourth is read, five are written.
            assert_eq!(cost_of(&engine, Extent::new(0, 48 << 10)).await, (1, 5));
        })
        .done();
}

/// Member reads and writes of one client write.
async fn cost_of(engine: &Engine, extent: Extent) -> (u64, u64) {
    let before = engine.status().await.expect("runs").arrays[0].counts;
    let write = engine.with_volume(0, "tank", async move |volume| {
        Model::new(9, SPAN).write(&volume, extent).await;
    });
    write.await.expect("runs");
    let after = engine.status().await.expect("runs").arrays[0].counts;
    (after.member_reads - before.member_reads, after.member_writes - before.member_writes)
}

/// Reads were right or errors, and an event said that the array had failed, but the status went on
/// to say `degraded`.
#[test]
fn an_array_that_lost_more_than_it_may_says_so_until_its_members_answer_again() {
    let mut world = SimWorld::new(21);
    let disks = add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = raid6(opener, &handle).await;
            let state = async || engine.status().await.expect("runs").arrays.remove(0);
            let write = async || {
                let wrote = engine.with_volume(0, "tank", async |volume| {
                    let buffer = volume.buffer(to_usize(SPAN)).await.freeze();
                    let request = Request {
                        command: Command::Write(buffer),
                        extent: Extent::new(0, SPAN),
                        fua: true,
                    };
                    volume.submit(request).await.is_ok()
                });
                wrote.await.expect("runs")
            };
            assert!(write().await);
            disks[..2].iter().for_each(SimDisk::vanish);
            assert!(write().await, "within what it may lose");
            assert_eq!((state().await.state, state().await.tolerates), (ArrayState::Degraded, 0));
            disks[2].vanish();
            assert!(!write().await, "beyond it");
            assert_eq!(state().await.state, ArrayState::Failed);
            assert!(happened(&engine, event_names::ARRAY_FAILED) > 0);
            assert!(!write().await && state().await.state == ArrayState::Failed, "it still is");
            disks[2].come_back();
            if crate::world::policy() == ConsistencyPolicy::Log {
                // An update that ended half way is for the next start to settle; until then nothing
                // is written.
                assert!(!write().await);
                handle.sleep(Duration::from_secs(3)).await;
                assert_eq!(state().await.state, ArrayState::ReadOnly);
                return;
            }
            assert!(write().await, "what fails no more is in service still");
            assert_eq!(state().await.state, ArrayState::Degraded);
        })
        .done();
}
