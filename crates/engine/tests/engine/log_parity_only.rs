//! Parity-only records: which updates have them, and what was stated of which device since when.
//!
//! What must stay true: all figures follow from the rules (docs/on-disk-format.md, Stripe intent
//! log), none is measured. A device of which nothing was stated, or that came since the start, has
//! full records.

use crate::log::{BLOCK, STRIPE, counts, raid6};
use crate::world::jobs::{until_idle, world_for};
use crate::world::{assemble_spec, create_spec, engine, names, submit};
use ashlar_engine::{AssembleSpec, CreateSpec, Engine, NewDevice};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_sim::{DiskOptions, SimWorld};
use ashlar_units::{Extent, MemberIdx, StripIdx, StripeNo};
use ashlar_volume::{Command, Volume};

/// Records, batches and bytes that a client write of one byte over and over costs, and how many
/// parity-only records there were so far.
async fn cost_of(engine: &Engine, (extent, byte): (Extent, u8)) -> ((u64, u64, u64), u64) {
    let before = counts(engine).await;
    let write = engine.with_volume(0, "tank", async move |volume| {
        let mut buffer = volume.buffer(usize::try_from(extent.bytes).expect("small")).await;
        buffer.fill(byte);
        submit(&volume, Command::Write(buffer.freeze()), extent, false).await;
    });
    write.await.expect("runs");
    let after = counts(engine).await;
    let cost = (
        after.log_records - before.log_records,
        after.log_batches - before.log_batches,
        after.log_bytes - before.log_bytes,
    );
    (cost, after.parity_only_records)
}

#[test]
fn a_block_whose_device_writes_it_whole_is_logged_by_its_parity_alone() {
    let mut world = SimWorld::new(14);
    for (at, name) in names(6).iter().enumerate() {
        // Of the first stripe: strip 1.
        let has_volatile_cache = at == 2;
        let options =
            DiskOptions { has_volatile_cache, ..DiskOptions::sized(crate::world::DISK_BYTES) };
        world.add_disk(name, options);
    }
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            let spec = create_spec(raid6());
            let (policy, atomic_write_bytes) = (ConsistencyPolicy::Log, 4096);
            let spec = CreateSpec { policy, atomic_write_bytes, ..spec };
            engine.create(spec).await.expect("created");
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            let costs = async |place, byte| cost_of(&engine, (place, byte)).await;
            assert_eq!(costs(Extent::new(0, STRIPE), 1).await, ((0, 0, 0), 0), "a first write");
            let (full, parity_only) = ((1, 3, (2 + 2 + 2) * BLOCK), (1, 2, (2 + 2) * BLOCK));
            let strip = 16 << 10;
            let block = Extent::new(0, BLOCK);
            assert_eq!(costs(block, 2).await, (parity_only, 1));
            assert_eq!(costs(block, 2).await, (full, 1), "old and new are the same");
            let two = Extent::new(3 * strip, 2 * BLOCK);
            assert_eq!(costs(two, 3).await, ((1, 3, 3 * 3 * BLOCK), 1), "two rows");
            let with_cache = Extent::new(strip, BLOCK);
            assert_eq!(costs(with_cache, 4).await, (full, 1), "its device has a cache");
            // Another stripe, of which no full record counts; its first strip is out.
            assert_eq!(costs(Extent::new(STRIPE, STRIPE), 1).await, ((0, 0, 0), 1));
            engine.fail("tank", MemberIdx(0)).await.expect("two may go");
            let on_others = Extent::new(STRIPE + 3 * strip, BLOCK);
            assert_eq!(costs(on_others, 5).await, ((1, 2, (2 + 2) * BLOCK), 2), "degraded, too");
        })
        .done();
}

/// Write the first block of a stripe; how many parity-only records that took.
async fn parity_only_records_of(engine: &Engine, stripe: u64, byte: u8) -> u64 {
    let before = counts(engine).await.parity_only_records;
    let (_, now) = cost_of(engine, (Extent::new(stripe * STRIPE, BLOCK), byte)).await;
    now - before
}

/// What is stated of a device that comes later counts from the next start on; what is stated of a
/// spare waits with it, also over a start of the program, and is not for arrays that keep no log.
#[test]
fn a_device_that_comes_later_has_parity_only_records_from_the_next_start_on_if_stated() {
    let mut world = SimWorld::new(16);
    let options =
        DiskOptions { has_volatile_cache: false, ..DiskOptions::sized(crate::world::DISK_BYTES) };
    for name in names(6).iter().map(String::as_str).chain(["new0", "new1"]) {
        world.add_disk(name, options.clone());
    }
    world.add_disk("cached", DiskOptions::sized(crate::world::DISK_BYTES));
    let opener = world.opener();
    let stated = |path: &str| NewDevice { atomic_write_bytes: 4096, ..NewDevice::at(path, false) };
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            let spec = CreateSpec { policy: ConsistencyPolicy::Log, ..create_spec(raid6()) };
            let geometry = engine.create(spec).await.expect("created").geometry;
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            for stripe in 0..40 {
                cost_of(&engine, (Extent::new(stripe * STRIPE, STRIPE), 1)).await;
            }
            let on = |stripe| geometry.place(geometry.stripe(StripeNo(stripe)), StripIdx(0)).member;
            let of = |member| (0..40).filter(move |stripe| on(*stripe) == member);
            let (first, second) = (on(0), on((1..40).find(|it| on(*it) != on(0)).expect("many")));
            let parity_only =
                async |stripe: u64, byte| parity_only_records_of(&engine, stripe, byte).await;
            let refused = engine.replace_by(
                "tank",
                first,
                NewDevice { atomic_write_bytes: 5000, ..NewDevice::at("new0", false) },
            );
            assert_eq!(refused.await.expect_err("no power of two").code, "array.bad_atomic_write");
            assert!(engine.look_at_statement(None, &stated("cached")).await.expect("it may be"));
            assert!(!engine.look_at_statement(None, &stated("new0")).await.expect("it may be"));
            engine.replace_by("tank", first, stated("new0")).await.expect("a copy begins");
            until_idle(&engine, &handle).await;
            assert_eq!(
                parity_only(of(first).next().expect("many"), 2).await,
                0,
                "not before a start"
            );
            engine.add_spare_device("spares", stated("new1")).await.expect("nobody's");
            assert_eq!(engine.spares()[0].stated_atomic_bytes, 4096);
            engine.stop("tank").await.expect("stopped clean");
            let devices = names(6).into_iter().chain(["new0".to_owned()]).collect::<Vec<_>>();
            let spec = AssembleSpec { devices: devices.clone(), ..assemble_spec(6) };
            engine.assemble(spec).await.expect("starts");
            assert_eq!(
                parity_only(of(first).nth(1).expect("many"), 2).await,
                1,
                "stated of this one"
            );
            assert_eq!(
                parity_only(of(second).nth(1).expect("many"), 2).await,
                0,
                "and of no other"
            );
            engine.fail("tank", second).await.expect("two may go");
            until_idle(&engine, &handle).await;
            let members = &engine.status().await.expect("runs").arrays[0].members;
            let said = |member: MemberIdx| {
                let member = &members[member.at()];
                (&*member.path, member.stated_atomic_bytes, member.is_parity_only)
            };
            assert_eq!(said(first), ("new0", 4096, true));
            assert_eq!(said(second), ("new1", 4096, false), "the spare brought it along");
            engine.stop("tank").await.expect("stopped clean");
            let devices = devices.into_iter().chain(["new1".to_owned()]).collect();
            engine.assemble(AssembleSpec { devices, ..assemble_spec(6) }).await.expect("starts");
            assert_eq!(parity_only(of(second).nth(2).expect("many"), 2).await, 1);
        })
        .done();
}

/// A statement is for a log: an array without one refuses it, and takes a spare without what was
/// stated of that.
#[test]
fn an_array_without_a_log_takes_a_device_and_no_statement() {
    let (mut world, ..) = world_for(17, &raid6());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            let policy = ConsistencyPolicy::Bitmap;
            engine.create(CreateSpec { policy, ..create_spec(raid6()) }).await.expect("created");
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            let stated = || NewDevice { atomic_write_bytes: 4096, ..NewDevice::at("new0", false) };
            for refused in [
                engine.look_at_statement(Some("tank"), &stated()).await.map(drop),
                engine.replace_by("tank", MemberIdx(1), stated()).await,
            ] {
                let refusal = refused.expect_err("it keeps no log");
                assert_eq!(refusal.code, "array.atomic_write_needs_log");
            }
            engine.add_spare_device("spares", stated()).await.expect("nobody's");
            engine.fail("tank", MemberIdx(1)).await.expect("two may go");
            until_idle(&engine, &handle).await;
            let member = &engine.status().await.expect("runs").arrays[0].members[1];
            assert_eq!((&*member.path, member.stated_atomic_bytes), ("new0", 0));
        })
        .done();
}

/// What was stated of the devices at creation is not true of one that comes later, nor of its slot:
/// a device that is torn by a power cut would cost blocks that nobody was writing.
#[test]
fn a_device_of_which_nothing_was_stated_has_full_records_from_the_moment_it_comes() {
    let mut world = SimWorld::new(15);
    let options =
        DiskOptions { has_volatile_cache: false, ..DiskOptions::sized(crate::world::DISK_BYTES) };
    for name in names(6).iter().map(String::as_str).chain(["new0"]) {
        world.add_disk(name, options.clone());
    }
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            let (policy, atomic_write_bytes) = (ConsistencyPolicy::Log, 4096);
            let spec = CreateSpec { policy, atomic_write_bytes, ..create_spec(raid6()) };
            let geometry = engine.create(spec).await.expect("created").geometry;
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            // Each stripe is written once: a full record would make the next one of its stripe
            // full, too.
            let on = |stripe| geometry.place(geometry.stripe(StripeNo(stripe)), StripIdx(0)).member;
            let replaced = on(0);
            let (here, elsewhere): (Vec<u64>, Vec<u64>) =
                (0..40).partition(|stripe| on(*stripe) == replaced);
            for stripe in 0..40 {
                cost_of(&engine, (Extent::new(stripe * STRIPE, STRIPE), 1)).await;
            }
            let parity_only =
                async |stripe: u64, byte| parity_only_records_of(&engine, stripe, byte).await;
            assert_eq!((parity_only(here[0], 2).await, parity_only(elsewhere[0], 2).await), (1, 1));
            engine.replace("tank", replaced, "new0", false).await.expect("a copy begins");
            assert_eq!(parity_only(here[1], 2).await, 0, "it is on its way");
            until_idle(&engine, &handle).await;
            assert_eq!(parity_only(here[2], 2).await, 0, "it took over");
            assert_eq!(parity_only(elsewhere[1], 2).await, 1, "the others are what they were");
            engine.stop("tank").await.expect("stopped clean");
            let devices = names(6).into_iter().chain(["new0".to_owned()]).collect();
            engine.assemble(AssembleSpec { devices, ..assemble_spec(6) }).await.expect("starts");
            assert_eq!(parity_only(here[3], 2).await, 0, "also after a start");
            assert_eq!(parity_only(elsewhere[2], 2).await, 1);
            // One that comes back missed what the start looked at: not before the next.
            let away = on(elsewhere[3]);
            let path = format!("disk{}", away.at());
            engine.fail("tank", away).await.expect("two may go");
            engine.re_add("tank", &path).await.expect("it is the same member");
            until_idle(&engine, &handle).await;
            assert_eq!(parity_only(elsewhere[3], 2).await, 0, "it came back");
        })
        .done();
}
