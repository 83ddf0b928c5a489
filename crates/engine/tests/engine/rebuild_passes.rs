//! Rebuilds of several members at once: one set of reads serves all of them.
//!
//! What must stay true: whatever begins, pauses, fails or is cut off meanwhile, each new device
//! holds in the end what its slot should. Two others go then, so that every read of a client needs
//! both. Counts are of the engine's own reads and writes for jobs.

use crate::world::jobs::{
    Rig, audit, filled, filled_to_the_brim, is_as_filled, ms, on_array, raid6, restarted, started,
    status, steps, until_all_in_sync, world_for,
};
use crate::world::{DISK_BYTES, assemble_dirty, shape};
use ashlar_engine::{Engine, JobStatus, SlotState};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::JobKind;
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, Latency, SimDisk, SimWorld, Stop};
use ashlar_units::MemberIdx;

/// Slots that are lost in these tests, and what replaces them.
const LOST: [(MemberIdx, &str); 2] = [(MemberIdx(0), "new0"), (MemberIdx(3), "new1")];

/// The usual world and one disk more, `new1`.
fn world_of_two(seed: u64, shape: &Shape) -> (SimWorld, Vec<SimDisk>, [SimDisk; 2]) {
    let (mut world, disks, new) = world_for(seed, shape);
    let second = world.add_disk("new1", DiskOptions::sized(DISK_BYTES));
    (world, disks, [new, second])
}

/// Run a test on a new array of six with both members out.
fn with_two_out(seed: u64, test: impl AsyncFnOnce(&Engine, &Handle, Vec<SimDisk>, [SimDisk; 2])) {
    let (mut world, disks, new) = world_of_two(seed, &raid6());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, raid6()).await;
            filled_to_the_brim(&engine).await;
            for (slot, _) in LOST {
                engine.fail("tank", slot).await.expect("two may go");
            }
            test(&engine, &handle, disks, new).await;
        })
        .done();
}

/// A stripe of a rebuild takes so long, and what is recorded meanwhile does not.
fn slow_to_read(disks: &[SimDisk], read_ms: u64) {
    let latency = Latency { read: ms(read_ms)..=ms(read_ms), ..Latency::default() };
    disks.iter().for_each(|disk| disk.set_latency(latency.clone()));
}

async fn replace(engine: &Engine, at: usize) {
    let (slot, path) = LOST[at];
    engine.replace("tank", slot, path, true).await.expect("replaced");
}

async fn rebuild_of(engine: &Engine, at: usize) -> Option<JobStatus> {
    let is_it = |job: &JobStatus| job.kind == JobKind::Rebuild && job.slot == Some(LOST[at].0);
    status(engine).await.jobs.into_iter().find(is_it)
}

/// Both new devices hold what they should.
async fn both_stand_in(engine: &Engine, disks: &[SimDisk]) {
    [1, 4].into_iter().for_each(|at| disks[at].vanish());
    is_as_filled(engine).await;
}

/// Until the first rebuild has done so many stripes.
async fn until_done(engine: &Engine, handle: &Handle, stripes: u64) {
    while rebuild_of(engine, 0).await.expect("it is slow").done_stripes < stripes {
        handle.sleep(ms(1)).await;
    }
}

#[test]
pub fn two_members_are_rebuilt_with_the_reads_of_one() {
    with_two_out(1200, async |engine, handle, disks, _| {
        slow_to_read(&disks, 20);
        let before = status(engine).await.counts;
        replace(engine, 0).await;
        replace(engine, 1).await;
        until_all_in_sync(engine, handle).await;
        let now = status(engine).await;
        let stripes = now.written_stripes.0;
        let reads = now.counts.job_member_reads - before.job_member_reads;
        let writes = now.counts.job_member_writes - before.job_member_writes;
        assert_eq!(writes, 2 * stripes);
        // The first had some under way when the second came, which did them alone.
        let alone = reads - 4 * stripes;
        assert!(alone > 0 && alone < 4 * 64, "{reads} reads for {stripes} stripes");
        both_stand_in(engine, &disks).await;
    });
}

#[test]
fn a_rebuild_that_begins_late_does_not_keep_the_first_waiting() {
    with_two_out(1210, async |engine, handle, disks, _| {
        slow_to_read(&disks, 20);
        replace(engine, 0).await;
        let total = rebuild_of(engine, 0).await.expect("it runs").total_stripes;
        until_done(engine, handle, total / 2).await;
        replace(engine, 1).await;
        let began = handle.now();
        while rebuild_of(engine, 0).await.is_some() {
            handle.sleep(ms(1)).await;
        }
        let behind = rebuild_of(engine, 1).await.expect("it has all of it to do");
        let took = handle.now().since(began);
        assert!(behind.done_stripes < behind.total_stripes, "{behind:?} after {took:?}");
        until_all_in_sync(engine, handle).await;
        both_stand_in(engine, &disks).await;
    });
}

#[test]
fn one_of_two_rebuilds_goes_on_when_the_other_is_paused() {
    for paused in 0..2 {
        with_two_out(1220, async |engine, handle, disks, _| {
            slow_to_read(&disks, 20);
            replace(engine, 0).await;
            replace(engine, 1).await;
            let total = rebuild_of(engine, 0).await.expect("it runs").total_stripes;
            until_done(engine, handle, total / 2).await;
            let id = rebuild_of(engine, paused).await.expect("it runs").id;
            engine.set_job_paused("tank", id, true).await.expect("it runs");
            while rebuild_of(engine, 1 - paused).await.is_some() {
                handle.sleep(ms(20)).await;
            }
            let left = rebuild_of(engine, paused).await.expect("it stands still");
            assert!(left.is_paused && left.done_stripes < total, "{left:?}");
            engine.set_job_paused("tank", id, false).await.expect("it is paused");
            until_all_in_sync(engine, handle).await;
            both_stand_in(engine, &disks).await;
        });
    }
}

/// The one that goes may be the one that leads.
#[test]
fn one_of_two_rebuilds_goes_on_when_the_device_of_the_other_goes() {
    for gone in 0..2 {
        with_two_out(1230, async |engine, handle, disks, new| {
            slow_to_read(&disks, 20);
            replace(engine, 0).await;
            replace(engine, 1).await;
            let total = rebuild_of(engine, 0).await.expect("it runs").total_stripes;
            until_done(engine, handle, total / 3).await;
            new[gone].vanish();
            let other = LOST[1 - gone].0.at();
            while status(engine).await.members[other].state != SlotState::InSync {
                handle.sleep(ms(20)).await;
            }
            let members = status(engine).await.members;
            assert_eq!(members[LOST[gone].0.at()].state, SlotState::Out);
            disks[1].vanish();
            is_as_filled(engine).await;
        });
    }
}

/// Members of other groups have no stripes in common: neither waits.
#[test]
fn members_of_two_groups_are_rebuilt_side_by_side() {
    let shape = shape(Level::Raid60, 12, Some(6), None);
    let (mut world, disks, _) = world_of_two(1250, &shape);
    let (opener, members) = (world.opener(), [MemberIdx(0), MemberIdx(7)]);
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, shape).await;
            let model = filled(&engine, 4).await;
            slow_to_read(&disks, 5);
            for (member, path) in members.into_iter().zip(["new0", "new1"]) {
                engine.fail("tank", member).await.expect("each may go");
                engine.replace("tank", member, path, true).await.expect("replaced");
            }
            until_all_in_sync(&engine, &handle).await;
            [1, 2, 8, 9].into_iter().for_each(|at| disks[at].vanish());
            audit(&engine, model).await;
        })
        .done();
}

#[test]
fn clients_write_beside_two_rebuilds() {
    for seed in 1260..1268 {
        on_array(seed, &raid6(), async move |Rig { engine, handle, disks, new }| {
            let model = filled(&engine, seed).await;
            engine.fail("tank", MemberIdx(0)).await.expect("one may go");
            engine.fail("tank", MemberIdx(3)).await.expect("two may go");
            new.set_latency(Latency::constant(ms(1)));
            let model = steps(&engine, 0, model, 20).await;
            engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
            engine.re_add("tank", "disk3").await.expect("it is the same member");
            let model = steps(&engine, 2, model, 120).await;
            until_all_in_sync(&engine, &handle).await;
            let model = steps(&engine, 1, model, 20).await;
            [1, 4].into_iter().for_each(|at| disks[at].vanish());
            audit(&engine, model).await;
        });
    }
}

#[test]
fn two_rebuilds_go_on_from_their_checkpoints_after_a_kill() {
    for seed in 1270..1274 {
        let (mut world, disks, _) = world_of_two(seed, &raid6());
        let (opener, again, slow) = (world.opener(), world.opener(), disks.clone());
        let total = world
            .run(async move |handle| {
                let engine = started(opener, &handle, raid6()).await;
                filled_to_the_brim(&engine).await;
                for (slot, _) in LOST {
                    engine.fail("tank", slot).await.expect("two may go");
                }
                slow_to_read(&slow, 100);
                replace(&engine, 0).await;
                replace(&engine, 1).await;
                let total = rebuild_of(&engine, 0).await.expect("it runs").total_stripes;
                slow_to_read(&slow, 1500);
                handle.sleep(ms(14_000 + 700 * (seed - 1270))).await;
                total
            })
            .done();
        world.stop(Stop::Kill);
        disks.iter().for_each(|disk| disk.set_latency(Latency::default()));
        world
            .run(async move |handle| {
                let mut spec = assemble_dirty(6);
                spec.devices.push("new1".to_owned());
                let engine = restarted(again, &handle, spec).await;
                for at in 0..LOST.len() {
                    let left = rebuild_of(&engine, at).await.expect("it goes on").total_stripes;
                    assert!(left < total, "{left} of {total} stripes are left");
                }
                until_all_in_sync(&engine, &handle).await;
                both_stand_in(&engine, &disks).await;
            })
            .done();
    }
}
