//! Which drive is, or was last, in a slot: on the members, so that a restart knows it, and what it
//! failed, which its successor has no part in.

use crate::grown::superblock_of;
use crate::world::jobs::{
    Rig, audit, filled, last, ms, on_array, raid6, started, status, until_all_in_sync, world_for,
};
use crate::world::{assemble_spec, create_spec, engine, names, read};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::{AssembleSpec, Engine, SlotState, event_names};
use ashlar_ondisk::format::copy_slots;
use ashlar_ring::Handle;
use ashlar_salvage::{Choices, Salvage};
use ashlar_sim::{DiskOptions, Latency, SimDisk, SimOpener};
use ashlar_units::{Extent, MemberIdx, to_usize};
use std::time::Duration;

/// Path and serial of the drive that was last in a slot that has none.
async fn last_drive(engine: &Engine, slot: usize) -> (String, Option<String>) {
    let member = status(engine).await.members.remove(slot);
    assert_eq!(member.state, SlotState::Out);
    let last = member.last_device.expect("it is known");
    (last.path, last.serial)
}

/// Start the array again in another engine, from these disks.
async fn again(opener: SimOpener, handle: &Handle, devices: Vec<String>) -> Engine {
    let engine = engine(opener, handle, 2);
    let spec = AssembleSpec { devices, ..assemble_spec(6) };
    engine.assemble(spec).await.expect("assembled");
    engine
}

fn without(gone: &str, more: &[&str]) -> Vec<String> {
    let own = names(6).into_iter().filter(|name| name != gone);
    own.chain(more.iter().map(|name| (*name).to_owned())).collect()
}

#[test]
fn a_start_without_a_drive_knows_which_one_was_in_the_slot() {
    let (mut world, _, _) = world_for(611, &raid6());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let named = |path: &str| (path.to_owned(), Some(path.to_owned()));
            let engine = started(opener.clone(), &handle, raid6()).await;
            engine.fail("tank", MemberIdx(2)).await.expect("one may go");
            engine.stop("tank").await.expect("stopped");
            let engine = again(opener.clone(), &handle, without("disk2", &[])).await;
            assert_eq!(last_drive(&engine, 2).await, named("disk2"));
            engine.replace("tank", MemberIdx(2), "new0", true).await.expect("replaced");
            until_all_in_sync(&engine, &handle).await;
            engine.stop("tank").await.expect("stopped");
            // The members know of the drive that took the slot, and no more of the one before.
            let engine = again(opener, &handle, without("disk2", &[])).await;
            assert_eq!(last_drive(&engine, 2).await, named("new0"));
        })
        .done();
}

/// With its head damaged all that is left is where the device ended before it grew, and it grew
/// more than once. What it was when it ended earlier still is there: a removed member (seed
/// 2026113629 of the universes).
#[test]
pub fn a_device_that_grew_is_what_it_was_last_and_not_what_it_was_before() {
    let (mut world, disks, _) = world_for(613, &raid6());
    let (opener, disk) = (world.opener(), disks[2].clone());
    let grow = |disk: &SimDisk| disk.set_size(disk.size_bytes() + (256 << 10));
    world
        .run(async move |handle| {
            let engine = started(opener.clone(), &handle, raid6()).await;
            let model = filled(&engine, 613).await;
            engine.fail("tank", MemberIdx(2)).await.expect("one may go");
            engine.stop("tank").await.expect("stopped");
            grow(&disk);
            let engine = again(opener.clone(), &handle, without("disk2", &[])).await;
            engine.replace("tank", MemberIdx(2), "disk2", true).await.expect("replaced");
            until_all_in_sync(&engine, &handle).await;
            engine.stop("tank").await.expect("stopped");
            grow(&disk);
            for slot in copy_slots(disk.size_bytes()).expect("large enough").iter().take(2) {
                disk.poke(slot.offset, &vec![0; to_usize(slot.bytes)]);
            }
            let whole = |disk: &SimDisk| disk.peek(Extent::new(0, disk.size_bytes()));
            let images: Vec<Vec<u8>> = disks.iter().map(whole).collect();
            let salvage = Salvage::open(images, &Choices::default()).expect("an array");
            assert!(salvage.missing_slots().is_empty(), "salvage takes it for what it was");
            let engine = again(opener, &handle, names(6)).await;
            let members = status(&engine).await.members;
            assert!(members.iter().all(|it| it.state == SlotState::InSync), "{members:?}");
            audit(&engine, model).await;
        })
        .done();
}

#[test]
fn faults_belong_to_the_drive_and_not_to_its_successor() {
    on_array(612, &raid6(), async |rig| {
        filled(&rig.engine, 612).await;
        rig.disks[1].fail(CommandKind::Read, FaultKind::Media, Some(3));
        let model = rig.engine.with_volume(0, "tank", async |volume| {
            for at in 0..64 {
                read(&volume, Extent::new(at * 65_536, 65_536)).await.expect("reconstructed");
            }
        });
        model.await.expect("runs");
        let errors = async |slot: usize| status(&rig.engine).await.members[slot].counts.read_errors;
        assert_eq!(errors(1).await, 3);
        rig.engine.fail("tank", MemberIdx(1)).await.expect("one may go");
        assert_eq!(errors(1).await, 3, "of the drive that is to be pulled");
        rig.engine.replace("tank", MemberIdx(1), "new0", true).await.expect("replaced");
        until_all_in_sync(&rig.engine, &rig.handle).await;
        assert_eq!(errors(1).await, 0);
        let told = |field| last(&rig.engine, event_names::MEMBER_REPLACED, field);
        assert_eq!(told("path").as_deref(), Some("disk1"));
        assert_eq!(told("read_errors").as_deref(), Some("3"));
    });
}

/// Requests that clients had sent to a drive are answered after its copy took the slot. When they
/// are, the drive is free, long before one that never answers would be given up.
#[test]
fn a_replaced_drive_is_free_as_soon_as_it_owes_nothing() {
    on_array(613, &raid6(), async |rig| {
        filled(&rig.engine, 613).await;
        rig.disks[0].set_latency(Latency::constant(Duration::from_millis(400)));
        rig.engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
        let engine = rig.engine.clone();
        rig.handle.spawn(async move {
            let load = engine.with_volume(0, "tank", async |volume| {
                for at in 0..1000 {
                    read(&volume, Extent::new(at % 64 * 65_536, 65_536)).await.expect("read");
                }
            });
            load.await.expect("runs");
        });
        while status(&rig.engine).await.members[0].path != "new0" {
            rig.handle.sleep(ms(5)).await;
        }
        rig.handle.sleep(ms(1000)).await;
        rig.engine.add_spare("spares", "disk0", true).await.expect("the drive is free");
    });
}

/// A member's file is cut short, and a superblock is written before anybody looks. Its copies at
/// the end gave the file its size back, and the gap read as zeros.
#[test]
pub fn a_member_that_became_smaller_is_out_before_a_superblock_gives_it_its_size_back() {
    on_array(660, &raid6(), async move |Rig { engine, disks, .. }| {
        let model = filled(&engine, 660).await;
        let data = superblock_of(&disks[2]).areas.data;
        disks[2].cut_beneath(data.offset + (64 << 10));
        engine.fail("tank", MemberIdx(4)).await.expect("it may go");
        let state = status(&engine).await.members[2].state;
        assert!(matches!(state, SlotState::Failing | SlotState::Out), "{state:?}");
        audit(&engine, model).await;
    });
}

/// The same between the two halves of one record, while nothing is under way: the second half gave
/// the file its full size back, for ever (seeds 914600143 and 914603318 of the universes).
#[test]
fn a_member_that_becomes_smaller_while_a_superblock_is_recorded_does_not_grow_again() {
    on_array(661, &raid6(), async move |Rig { engine, disks, handle, .. }| {
        let model = filled(&engine, 661).await;
        let data = superblock_of(&disks[2]).areas.data;
        let (disk, own) = (disks[2].clone(), handle.clone());
        let cut = data.offset + (64 << 10);
        handle.spawn(async move {
            let before = disk.changes();
            // Copies 0 and 2 are on the medium, and a flush follows.
            while disk.changes() < before + 2 || disk.is_written_beyond(cut) {
                own.sleep(Duration::from_micros(5)).await;
            }
            assert_eq!(disk.changes(), before + 2, "between the halves");
            disk.cut_beneath(cut);
        });
        engine.fail("tank", MemberIdx(4)).await.expect("it may go");
        let state = status(&engine).await.members[2].state;
        assert!(matches!(state, SlotState::Failing | SlotState::Out), "{state:?}");
        audit(&engine, model).await;
    });
}

/// Disks with other names, and so with other serials, that hold what these hold.
fn copied(disks: &[SimDisk], others: &[SimDisk]) {
    disks.iter().zip(others).for_each(|(from, to)| to.put_image(&from.image()));
}

async fn all_are_in_sync(engine: &Engine) -> bool {
    status(engine).await.members.iter().all(|member| member.state == SlotState::InSync)
}

/// Drives behind another adapter were accepted with their new serials, and refused at the next
/// start.
#[test]
fn a_serial_that_was_accepted_once_is_the_members_from_then_on() {
    let (mut world, disks, _) = world_for(614, &raid6());
    let add = |world: &mut ashlar_sim::SimWorld, name: &str| {
        world.add_disk(name, DiskOptions::sized(disks[0].size_bytes()))
    };
    let moved: Vec<SimDisk> = (0..6).map(|slot| add(&mut world, &format!("moved{slot}"))).collect();
    let dock = add(&mut world, "dock");
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid6()).await;
            engine.stop("tank").await.expect("stopped");
            copied(&disks, &moved);
            let mut devices: Vec<String> = moved.iter().map(SimDisk::name).collect();
            let spec =
                |devices: &[String]| AssembleSpec { devices: devices.to_vec(), ..assemble_spec(6) };
            let refusal = engine.assemble(spec(&devices)).await.expect_err("six other serials");
            assert!(refusal.what.contains("moved4 shows serial moved4"), "{}", refusal.what);
            assert!(refusal.what.contains("--accept-serials"), "{}", refusal.what);
            let mut accepted = spec(&devices);
            accepted.request.accept_serials = true;
            engine.assemble(accepted).await.expect("accepted");
            engine.stop("tank").await.expect("stopped");
            engine.assemble(spec(&devices)).await.expect("accepted once");
            assert!(all_are_in_sync(&engine).await);
            engine.stop("tank").await.expect("stopped");
            // One of them is in a dock now. It comes back as what it is.
            copied(&moved[3..4], std::slice::from_ref(&dock));
            devices[3] = dock.name();
            engine.assemble(spec(&devices)).await.expect("degraded");
            assert!(!all_are_in_sync(&engine).await);
            engine.re_add("tank", "dock").await.expect("it only missed something");
            until_all_in_sync(&engine, &handle).await;
            engine.stop("tank").await.expect("stopped");
            engine.assemble(spec(&devices)).await.expect("taken back once");
            assert!(all_are_in_sync(&engine).await);
        })
        .done();
}

/// Two paths to one drive that show nothing by which to tell: what is written says it.
#[test]
fn a_device_that_is_another_one_is_found_by_what_is_written_to_it() {
    let (mut world, _, _) = world_for(615, &raid6());
    world.add_path("disk1", "again");
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let mut spec = create_spec(raid6());
            spec.devices[4] = "again".to_owned();
            let refusal = engine.create(spec).await.expect_err("five drives");
            assert_eq!(refusal.code, "device.given_twice");
            assert!(refusal.what.starts_with("disk1 and again are one device"), "{}", refusal.what);
            let told = engine.assemble(assemble_spec(6)).await.expect_err("there is none");
            assert!(told.what.contains("no member"), "{}", told.what);
        })
        .done();
}
