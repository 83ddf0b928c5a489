//! What a power cut leaves in doubt on an array without a log that lacks members. What a resync
//! settles is no doubt: such an array starts for writing. Of the rest its status and its refusals
//! name a way out, and that leads to a whole array.

use crate::world::jobs::{pair, raid6, scrub, status, until_all_in_sync, until_idle};
use crate::world::ledger::{CLIENTS, Ledger, blank, client, look};
use crate::world::{
    DISK_BYTES, assemble_dirty, assemble_spec, create_spec, declustered, engine, load, names,
};
use ashlar_engine::{ArrayState, CreateSpec, WhyReadOnly};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_ondisk::assembly::ReadOnlyReason;
use ashlar_sim::{DiskOptions, SimDisk, SimWorld, Stop};
use ashlar_units::MemberIdx;
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
