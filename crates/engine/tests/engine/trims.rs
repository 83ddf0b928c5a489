//! Trims that no flush made durable, while a device is being filled: a job passes unwritten stripes
//! by, so the trim must last as long as the device is believed to be full.
//!
//! What must stay true: the device that is filled carries a byte that no client writes.

use crate::world::jobs::{raid5, started, until_all_in_sync, world_for};
use crate::world::{DISK_BYTES, assemble_spec, engine, names, read, submit};
use ashlar_engine::Engine;
use ashlar_sim::{SimDisk, SimWorld, Stop};
use ashlar_units::{Extent, MemberIdx};
use ashlar_volume::{Command, Volume};

const OLD: u8 = 0x22;
const JUNK: u8 = 0xEE;
const WHOLE: Extent = Extent { offset: 0, bytes: 2 << 20 };
const TRIMMED: Extent = Extent { offset: 1 << 20, bytes: 1 << 20 };

async fn fill(engine: &Engine) {
    let filled = engine.with_volume(0, "tank", async |volume| {
        for offset in (WHOLE.offset..WHOLE.end()).step_by(1 << 16) {
            let mut buffer = volume.buffer(1 << 16).await;
            buffer.fill(OLD);
            submit(&volume, Command::Write(buffer.freeze()), Extent::new(offset, 1 << 16), false)
                .await;
        }
        submit(&volume, Command::Flush, Extent::default(), false).await;
    });
    filled.await.expect("runs");
}

async fn trim(engine: &Engine) {
    let trimmed = engine.with_volume(0, "tank", async |volume| {
        submit(&volume, Command::Discard, TRIMMED, false).await;
    });
    trimmed.await.expect("runs");
}

async fn holds_old_data_or_zeros(engine: &Engine, when: &'static str) {
    let looked = engine.with_volume(0, "tank", async move |volume| {
        for offset in (WHOLE.offset..WHOLE.end()).step_by(4096) {
            let bytes = read(&volume, Extent::new(offset, 4096)).await.expect("readable");
            let is_trimmed = offset >= TRIMMED.offset;
            let is_allowed = bytes == [OLD; 4096] || is_trimmed && bytes == [0; 4096];
            assert!(is_allowed, "{when}: byte {offset} begins with {:x?}", &bytes[..4]);
        }
    });
    looked.await.expect("runs");
}

/// Fill `new0` by `begin`, cut the power as soon as it is believed, and look: with all, and without
/// one more.
fn fill_and_cut(seed: u64, begin: impl AsyncFnOnce(&Engine)) {
    let (mut world, disks, new): (SimWorld, Vec<SimDisk>, SimDisk) = world_for(seed, &raid5());
    new.poke(0, &vec![JUNK; usize::try_from(DISK_BYTES).expect("small")]);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid5()).await;
            fill(&engine).await;
            begin(&engine).await;
            // The join made the maps durable; the job has hardly begun.
            trim(&engine).await;
            until_all_in_sync(&engine, &handle).await;
        })
        .done();
    world.stop(Stop::PowerCut);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            let mut spec = assemble_spec(4);
            spec.devices = names(4).into_iter().skip(1).chain(["new0".to_owned()]).collect();
            engine.assemble(spec).await.expect("assembled after the cut");
            holds_old_data_or_zeros(&engine, "all members there").await;
            crate::world::jobs::until_idle(&engine, &handle).await;
            disks[2].vanish();
            holds_old_data_or_zeros(&engine, "one member out").await;
        })
        .done();
}

#[test]
fn a_copy_that_passed_a_trimmed_stripe_by_is_not_believed_before_the_trim_is_durable() {
    for seed in 0..4 {
        fill_and_cut(seed, async |engine| {
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replacing");
        });
    }
}

/// A power cut brought the trimmed stripe back, and the rebuilt device held junk there: blocks that
/// nobody had written were read.
#[test]
fn a_rebuild_that_passed_a_trimmed_stripe_by_is_not_believed_before_the_trim_is_durable() {
    for seed in 0..4 {
        fill_and_cut(seed, async |engine| {
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("rebuilding");
        });
    }
}
