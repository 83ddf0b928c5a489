//! The stripe intent log as it is written: how many batches of which length each kind of write
//! costs, and what FLUSH has left to do.
//!
//! What must stay true: all figures follow from the rules (docs/on-disk-format.md, Stripe intent
//! log), none is measured. Not here: space (`log_space.rs`), parity-only records
//! (`log_parity_only.rs`), devices that fail (`log_faults.rs`), what a restart makes of the log
//! (`log_replay.rs`, `log_crashes.rs`).

use crate::world::{Model, add_disks, assemble_spec, create_spec, engine, submit};
use ashlar_engine::{ArrayCounts, ArrayVolume, CreateSpec, Engine};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_ring::Handle;
use ashlar_sim::{SimOpener, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx};
use ashlar_volume::{Command, Volume};

/// Bytes of the volume that are filled before anything is counted.
pub(crate) const SPAN: u64 = 1 << 20;
/// A stripe of the RAID 6 of six disks.
pub(crate) const STRIPE: u64 = 64 << 10;
pub(crate) const BLOCK: u64 = BLOCK_BYTES;

pub(crate) fn raid6() -> Shape {
    crate::world::shape(Level::Raid6, 6, None, None)
}

/// A running array with a log, filled up to [`SPAN`] and flushed.
pub(crate) async fn started(
    opener: SimOpener,
    handle: &Handle,
    (shape, workers): (Shape, usize),
) -> (Engine, Model) {
    let engine = engine(opener, handle, workers);
    let members = shape.members;
    let spec = CreateSpec { policy: ConsistencyPolicy::Log, ..create_spec(shape) };
    engine.create(spec).await.expect("created");
    engine.assemble(assemble_spec(members)).await.expect("assembled");
    let filled = engine.with_volume(0, "tank", async |volume| {
        let mut model = Model::new(3, volume.facts().size_bytes.min(2 * SPAN));
        for offset in (0..SPAN).step_by(64 << 10) {
            model.write(&volume, Extent::new(offset, 64 << 10)).await;
        }
        flush(&volume).await;
        model
    });
    let model = filled.await.expect("runs");
    (engine, model)
}

async fn flush(volume: &ArrayVolume) {
    submit(volume, Command::Flush, Extent::default(), false).await;
}

pub(crate) async fn counts(engine: &Engine) -> ArrayCounts {
    engine.status().await.expect("runs").arrays[0].counts
}

/// Records, batches and bytes of the log that one client write costs.
async fn cost(engine: &Engine, extent: Extent) -> (u64, u64, u64) {
    let before = counts(engine).await;
    let write = engine.with_volume(0, "tank", async move |volume| {
        let buffer = volume.buffer(usize::try_from(extent.bytes).expect("small")).await;
        submit(&volume, Command::Write(buffer.freeze()), extent, false).await;
    });
    write.await.expect("runs");
    let after = counts(engine).await;
    (
        after.log_records - before.log_records,
        after.log_batches - before.log_batches,
        after.log_bytes - before.log_bytes,
    )
}

#[test]
fn each_kind_of_write_costs_exactly_the_batches_of_its_holders() {
    let mut world = SimWorld::new(1);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, _) = started(opener, &handle, (raid6(), 2)).await;
            // One block: at its place the block; on both parity members the new parity of its row.
            let one = (2 + 2 + 2) * BLOCK;
            assert_eq!(cost(&engine, Extent::new(BLOCK, BLOCK)).await, (1, 3, one));
            // Three of four strips of four blocks, in full.
            let three = (3 + 2) * (1 + 4) * BLOCK;
            assert_eq!(cost(&engine, Extent::new(0, 48 << 10)).await, (1, 5, three));
            // A whole stripe: nothing but headers.
            assert_eq!(cost(&engine, Extent::new(STRIPE, STRIPE)).await, (1, 6, 6 * BLOCK));
            // A whole stripe of which the log still holds a block: in full, for that block may be
            // nowhere else.
            assert_eq!(cost(&engine, Extent::new(0, STRIPE)).await, (1, 6, 6 * (1 + 4) * BLOCK));
            // A first write: nothing at all. Its flush makes durable what the log held, so that is
            // headers again.
            assert_eq!(cost(&engine, Extent::new(SPAN, BLOCK)).await, (0, 0, 0));
            assert_eq!(cost(&engine, Extent::new(0, STRIPE)).await, (1, 6, 6 * BLOCK));
            // With a member out whole stripes are logged in full: four blocks to each of the five
            // others.
            engine.fail("tank", MemberIdx(3)).await.expect("two may go");
            let (records, batches, bytes) = cost(&engine, Extent::new(STRIPE, STRIPE)).await;
            assert_eq!((records, batches, bytes), (1, 5, 5 * (1 + 4) * BLOCK));
        })
        .done();
}

#[test]
fn a_stream_of_whole_stripes_writes_its_records_dozens_at_a_time() {
    let mut world = SimWorld::new(13);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, _) = started(opener, &handle, (raid6(), 1)).await;
            let run = engine.with_volume(0, "tank", async move |volume| {
                let mut model = Model::new(5, 128 * STRIPE);
                for _ in 0..2 {
                    for offset in (0..128 * STRIPE).step_by(64 << 10) {
                        model.write(&volume, Extent::new(offset, STRIPE)).await;
                    }
                    // The second time around nothing is a first write.
                    flush(&volume).await;
                }
                model
            });
            let mut model = run.await.expect("runs");
            let before = counts(&engine).await;
            let run = engine.with_volume(0, "tank", async move |volume| {
                for offset in (0..128 * STRIPE).step_by(64 << 10) {
                    model.write(&volume, Extent::new(offset, STRIPE)).await;
                }
                model.audit(&volume).await;
            });
            run.await.expect("runs");
            let after = counts(&engine).await;
            let batches = after.log_batches - before.log_batches;
            // Alone each stripe takes six. Two do, until it is a stream; then each window of 32
            // takes two for each member at most, and it may begin anew where a region ends and when
            // the ring is settled.
            assert!(batches <= 128 * 6 / 8, "{batches} batches for 128 stripes");
            assert!(batches >= 6 * 4, "{batches} batches for four windows");
        })
        .done();
}

/// What was promised to be durable is, whatever of the whole stripe that was written over it the
/// caches had.
#[test]
fn a_logged_block_under_an_unflushed_whole_stripe_never_falls_back_behind_a_flush() {
    for seed in 0..40 {
        let mut world = SimWorld::new(seed);
        let disks = add_disks(&mut world, 6);
        let opener = world.opener();
        let begin = world.run(async move |handle| {
            let (engine, _) = started(opener, &handle, (raid6(), 1)).await;
            let run = engine.with_volume(0, "tank", async move |volume| {
                for (byte, bytes) in [(2, BLOCK), (3, STRIPE)] {
                    let mut buffer = volume.buffer(usize::try_from(bytes).expect("small")).await;
                    buffer.fill(byte);
                    let extent = Extent::new(STRIPE, bytes);
                    submit(&volume, Command::Write(buffer.freeze()), extent, false).await;
                    if byte == 2 {
                        flush(&volume).await;
                    }
                }
            });
            run.await.expect("runs");
            engine
        });
        let _engine = begin.done();
        world.stop(Stop::PowerCut);
        drop(disks);
        let opener = world.opener();
        let got = world.run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            let block = engine.with_volume(0, "tank", async |volume| {
                crate::world::read(&volume, Extent::new(STRIPE, BLOCK)).await.expect("readable")
            });
            block.await.expect("runs")
        });
        let block = got.done();
        let is_of = |byte: u8| block.iter().filter(|got| **got == byte).count();
        assert_eq!(is_of(2) + is_of(3), block.len(), "seed {seed}: older than what was flushed");
    }
}

#[test]
fn copies_of_a_mirror_are_logged_without_their_data() {
    let mut world = SimWorld::new(2);
    add_disks(&mut world, 2);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let shape = crate::world::shape(Level::Raid1, 2, None, None);
            let (engine, _) = started(opener, &handle, (shape, 1)).await;
            assert_eq!(cost(&engine, Extent::new(0, BLOCK)).await, (1, 2, 2 * BLOCK));
            let whole = Extent::new(0, 16 << 10);
            assert_eq!(cost(&engine, whole).await, (1, 2, 2 * BLOCK));
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            assert_eq!(cost(&engine, whole).await, (1, 1, BLOCK), "a copy needs no other");
        })
        .done();
}

#[test]
fn an_update_whose_record_would_be_too_long_goes_in_pieces() {
    let mut world = SimWorld::new(3);
    add_disks(&mut world, 4);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let strip_bytes = 128 << 10;
            let shape = Shape { strip_bytes, ..crate::world::shape(Level::Raid5, 4, None, None) };
            let (engine, mut model) = started(opener, &handle, (shape, 4)).await;
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            // Log rings of 256 KiB, records of 64 KiB: a header, and fifteen of the 32 rows of a
            // strip.
            let stripe = 3 * strip_bytes;
            let (records, ..) = cost(&engine, Extent::new(0, stripe)).await;
            assert_eq!(records, (stripe / BLOCK).div_ceil(15));
            let run = engine.with_volume(1, "tank", async move |volume| {
                model.write(&volume, Extent::new(0, stripe)).await;
                model.write(&volume, Extent::new(BLOCK, stripe)).await;
                model.audit(&volume).await;
            });
            run.await.expect("runs");
        })
        .done();
}

#[test]
fn a_whole_stripe_goes_in_one_update_however_many_strips_it_has() {
    let mut world = SimWorld::new(12);
    add_disks(&mut world, 16);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let shape = crate::world::shape(Level::NPlusM, 16, None, Some(4));
            let (engine, _) = started(opener, &handle, (shape, 1)).await;
            engine.fail("tank", MemberIdx(0)).await.expect("four may go");
            // In full, but each device logs its own four rows only.
            let cost = cost(&engine, Extent::new(0, 192 << 10)).await;
            assert_eq!(cost, (1, 15, 15 * (1 + 4) * BLOCK));
        })
        .done();
}

#[test]
fn a_flush_has_nothing_to_do_for_what_is_in_the_log() {
    let mut world = SimWorld::new(7);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, _) = started(opener, &handle, (raid6(), 1)).await;
            let flushes = async |extent: Extent| {
                cost(&engine, extent).await;
                let before = counts(&engine).await.member_flushes;
                let run = engine.with_volume(0, "tank", async |volume| flush(&volume).await);
                run.await.expect("runs");
                counts(&engine).await.member_flushes - before
            };
            assert_eq!(flushes(Extent::new(0, BLOCK)).await, 0, "logged in full");
            // The log may be all that has the block: a record that outdates its record would lose
            // it.
            assert_eq!(flushes(Extent::new(0, STRIPE)).await, 0, "a whole stripe over it, too");
            assert_eq!(flushes(Extent::new(2 * STRIPE, STRIPE)).await, 6, "a whole stripe");
            assert_eq!(flushes(Extent::new(0, STRIPE)).await, 6, "and over what was flushed");
            assert_eq!(flushes(Extent::new(0, BLOCK)).await, 0, "again");
            assert_eq!(
                flushes(Extent::new(SPAN, BLOCK)).await,
                0,
                "a first write is answered flushed"
            );
            let trim = engine.with_volume(0, "tank", async |volume| {
                submit(&volume, Command::Discard, Extent::new(STRIPE, STRIPE), false).await;
            });
            trim.await.expect("runs");
            let pages = counts(&engine).await.written_page_writes;
            flushes(Extent::new(0, BLOCK)).await;
            assert_eq!(counts(&engine).await.written_page_writes, pages + 1, "a trim");
        })
        .done();
}

#[test]
fn the_first_write_after_a_trim_waits_until_the_members_call_the_stripe_unwritten() {
    let mut world = SimWorld::new(8);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, _) = started(opener, &handle, (raid6(), 1)).await;
            let stripe = Extent::new(2 * STRIPE, STRIPE);
            let trim = engine.with_volume(0, "tank", async move |volume| {
                submit(&volume, Command::Discard, stripe, false).await;
            });
            trim.await.expect("runs");
            let pages = async || counts(&engine).await.written_page_writes;
            let before = pages().await;
            cost(&engine, Extent::new(stripe.offset, BLOCK)).await;
            assert_eq!(pages().await, before + 2, "before it, and before it is answered");
            cost(&engine, Extent::new(SPAN, BLOCK)).await;
            assert_eq!(
                pages().await,
                before + 3,
                "never written before: only before it is answered"
            );
        })
        .done();
}

#[test]
fn once_a_member_is_out_whole_stripes_that_only_caches_hold_are_flushed_before_the_next_update() {
    let mut world = SimWorld::new(9);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let (engine, _) = started(opener, &handle, (raid6(), 1)).await;
            cost(&engine, Extent::new(0, STRIPE)).await;
            engine.fail("tank", MemberIdx(1)).await.expect("two may go");
            let before = counts(&engine).await.member_flushes;
            cost(&engine, Extent::new(4 * STRIPE, BLOCK)).await;
            assert_eq!(counts(&engine).await.member_flushes - before, 5);
            cost(&engine, Extent::new(4 * STRIPE, STRIPE)).await;
            cost(&engine, Extent::new(4 * STRIPE, BLOCK)).await;
            assert_eq!(counts(&engine).await.member_flushes - before, 5, "it was logged in full");
        })
        .done();
}

#[test]
fn a_level_without_redundancy_has_nothing_to_log() {
    let mut world = SimWorld::new(13);
    add_disks(&mut world, 3);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            let shape = crate::world::shape(Level::Raid0, 3, None, None);
            let spec = CreateSpec { policy: ConsistencyPolicy::Log, ..create_spec(shape) };
            let refused = engine.create(spec).await.expect_err("no redundancy");
            assert_eq!(refused.code, "array.no_redundancy");
        })
        .done();
}
