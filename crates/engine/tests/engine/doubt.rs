//! What a power cut leaves in doubt on an array without a log that lacks members. What a resync
//! settles is no doubt: such an array starts for writing. Of the rest its status and its refusals
//! name a way out, and that leads to a whole array.

use crate::world::jobs::{
    audit, filled, find, job, ms, pair, raid5, raid6, scrub, status, until_all_in_sync, until_idle,
    world_for,
};
use crate::world::ledger::{CLIENTS, Ledger, blank, client, look};
use crate::world::{
    DISK_BYTES, assemble_dirty, assemble_spec, create_spec, declustered, engine, load, names,
    range, read, shape, submit,
};
use ashlar_engine::{ArrayState, CreateSpec, WhyReadOnly, event_names};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::assembly::ReadOnlyReason;
use ashlar_ondisk::{ConsistencyPolicy, JobKind};
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, SimDisk, SimWorld, Stop};
use ashlar_units::{Extent, MemberIdx};
use ashlar_volume::{Command, VolumeErrorKind};
use std::sync::Arc;

/// The member that is out when the power goes.
const OUT: usize = 2;

/// A member is put out, its spares are filled if there are some, and the power goes under load.
fn power_cut_without_a_member(seed: u64, shape: &Shape) -> (SimWorld, Vec<SimDisk>, Ledger) {
    let mut world = SimWorld::new(seed);
    let options = DiskOptions { atomic_write_bytes: 4096, ..DiskOptions::sized(DISK_BYTES) };
    let names = names(shape.members);
    let disks = names.iter().map(|name| world.add_disk(name, options.clone())).collect();
    let (opener, members, ledger) = (world.opener(), shape.members, blank());
    let spec = CreateSpec { policy: ConsistencyPolicy::Bitmap, ..create_spec(shape.clone()) };
    let degraded = world.run(async move |handle| {
        let engine = engine(opener, &handle, 2);
        engine.create(spec).await.expect("created");
        engine.assemble(assemble_spec(members)).await.expect("assembled");
        engine.fail("tank", MemberIdx::from_at(OUT)).await.expect("one may go");
        until_idle(&engine, &handle).await;
        engine
    });
    let (engine, own) = (degraded.done(), Arc::clone(&ledger));
    load::run_until(&mut world, engine, (Stop::PowerCut, 2500), CLIENTS, move |volume, number| {
        client(volume, Arc::clone(&own), (seed, number), 24)
    });
    (world, disks, ledger)
}

/// Every strip of the lost member is on a distributed spare: no stripe lacks anything, though the
/// array lacks a member. It was read-only until an operator accepted a loss that there was not.
#[test]
fn an_array_whose_spares_hold_all_of_a_lost_member_is_resynced_after_a_power_cut() {
    for seed in 0..12 {
        let shape = declustered(Level::Raid5, 6, 4, 1);
        let (mut world, disks, ledger) = power_cut_without_a_member(seed, &shape);
        let opener = world.opener();
        let check = async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            let now = status(&engine).await;
            assert_eq!((now.state, now.read_only), (ArrayState::Degraded, None), "seed {seed}");
            look(&engine, &ledger, seed).await;
            until_idle(&engine, &handle).await;
            assert_eq!(status(&engine).await.unsynced_regions, 0, "seed {seed}");
            disks[(OUT + 1) % 6].vanish();
            look(&engine, &ledger, seed).await;
        };
        world.run(check).done();
    }
}

/// The blocks of a missing member in stripes under way are in doubt, and nothing else will ever
/// prove them. Then parity that nothing was decoded from must agree with what was.
#[test]
fn a_doubt_that_stays_is_named_with_its_way_out_and_accepted_leaves_a_consistent_array() {
    for seed in 0..12 {
        let (mut world, _, _) = power_cut_without_a_member(seed, &raid6());
        let opener = world.opener();
        let check = async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            let why = status(&engine).await.read_only.expect("it is read-only");
            assert_eq!(why, WhyReadOnly::Judged(ReadOnlyReason::DirtyDegraded));
            let device = &names(6).swap_remove(OUT);
            let refused = engine.re_add("tank", device).await.expect_err("it takes no changes");
            for said in [why.way_out("tank"), refused.next.clone()] {
                assert!(said.contains("ashlar stop tank"), "{said}");
                assert!(said.contains("assemble --accept-dirty-degraded --name tank"), "{said}");
            }
            engine.stop("tank").await.expect("stopped");
            engine.assemble(assemble_dirty(6)).await.expect("assembled");
            assert_eq!(status(&engine).await.read_only, None);
            until_idle(&engine, &handle).await;
            assert_eq!(status(&engine).await.unsynced_regions, 0, "seed {seed}");
            engine.re_add("tank", device).await.expect("taken back");
            until_all_in_sync(&engine, &handle).await;
            assert_eq!(scrub(&engine, &handle, false).await, pair(0, 0), "seed {seed}");
        };
        world.run(check).done();
    }
}

/// A power cut leaves regions in doubt, and a block in them cannot be read any more: it is lost.
/// The resync waits for it, holds up nothing else, and ends when the block is written anew.
#[test]
fn a_block_that_is_lost_in_doubt_is_an_error_until_it_is_written_anew() {
    let shapes =
        [raid5(), shape(Level::Raid50, 6, Some(3), None), declustered(Level::Raid5, 6, 4, 0)];
    for (seed, shape) in (900..).zip(shapes) {
        let (mut world, disks, _) = world_for(seed, &shape);
        let (opener, again, count) = (world.opener(), world.opener(), shape.members);
        let fill = async move |handle| {
            let engine = engine(opener, &handle, 2);
            let spec = CreateSpec { policy: ConsistencyPolicy::Bitmap, ..create_spec(shape) };
            engine.create(spec).await.expect("created");
            engine.assemble(assemble_spec(count)).await.expect("assembled");
            let model = filled(&engine, seed).await;
            let flush =
                async |volume| submit(&volume, Command::Flush, Extent::default(), false).await;
            engine.with_volume(0, "tank", flush).await.expect("runs");
            model
        };
        let model = world.run(fill).done();
        world.stop(Stop::PowerCut);
        let lost = Extent::new(100 << 10, 4096);
        let (disk, offset) = find(&disks, &model.bytes[range(lost)]);
        disks[disk].break_media(Extent::new(offset, 4096));
        let check = async move |handle: Handle| {
            let engine = engine(again, &handle, 2);
            engine.assemble(assemble_spec(count)).await.expect("assembled");
            handle.sleep(ms(3000)).await;
            let waits = job(&engine, JobKind::Resync).await.expect("it waits");
            assert_eq!((waits.unrepairable, waits.lost_stripes.len()), (1, 1), "{waits:?}");
            // What else there is to do goes on.
            let new = engine.replace("tank", MemberIdx::from_at((disk + 1) % count), "new0", true);
            new.await.expect("it fits");
            handle.sleep(ms(30_000)).await;
            assert!(job(&engine, JobKind::Replace).await.is_none(), "seed {seed}");
            let run = engine.with_volume(1, "tank", async move |volume| {
                let refused = read(&volume, lost).await;
                assert_eq!(refused, Err(VolumeErrorKind::Io));
                model.read(&volume, Extent::new(lost.end(), 4096)).await;
                let mut model = model;
                model.write(&volume, lost).await;
                model
            });
            let model = run.await.expect("runs");
            until_idle(&engine, &handle).await;
            assert_eq!(status(&engine).await.unsynced_regions, 0, "seed {seed}");
            engine.stop("tank").await.expect("stopped");
            let stopped = engine.events().since(0);
            let stopped = stopped.iter().rfind(|event| event.name == event_names::ARRAY_STOPPED);
            assert_eq!(stopped.expect("it was").fields, [("clean", "true".to_owned())]);
            let mut spec = assemble_spec(count);
            spec.devices.push("new0".to_owned());
            engine.assemble(spec).await.expect("assembled");
            assert_eq!(scrub(&engine, &handle, false).await, pair(0, 0), "seed {seed}");
            disks[disk].vanish();
            audit(&engine, model).await;
        };
        world.run(check).done();
    }
}
