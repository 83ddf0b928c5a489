//! The counters, compared with the requests of the test: clients apart from jobs, reads for writes
//! apart from reads of clients, stages of writes, depths.

use crate::world::jobs::{Rig, audit, filled, on_array, raid6, scrub, status, until_all_in_sync};
use crate::world::{Model, read, submit};
use ashlar_engine::{ArrayCounts, ArrayStatus, Engine, POWERS, STAGE_SAMPLE_EVERY};
use ashlar_sim::SimDisk;
use ashlar_units::{Extent, MemberIdx};
use ashlar_volume::{Command, Volume};

const BLOCK: u64 = 4096;

async fn write_blocks(engine: &Engine, count: u64) {
    let run = engine.with_volume(0, "tank", async move |volume| {
        for at in 0..count {
            // Far apart, so that nothing is merged.
            let extent = Extent::new(at * 5 * (64 << 10) % (3 << 20), BLOCK);
            let mut buffer = volume.buffer(4096).await;
            buffer.fill(1);
            submit(&volume, Command::Write(buffer.freeze()), extent, false).await;
        }
    });
    run.await.expect("runs");
}

async fn read_blocks(engine: &Engine, count: u64) {
    let run = engine.with_volume(1, "tank", async move |volume| {
        for at in 0..count {
            read(&volume, Extent::new(at * BLOCK, BLOCK)).await.expect("readable");
        }
    });
    run.await.expect("runs");
}

/// Member reads of clients' reads, of writes and of jobs; member writes of clients and of jobs.
fn apart(after: ArrayCounts, before: ArrayCounts) -> [u64; 5] {
    let job_reads = after.job_member_reads - before.job_member_reads;
    let write_reads = after.write_member_reads - before.write_member_reads;
    let job_writes = after.job_member_writes - before.job_member_writes;
    [
        after.member_reads - before.member_reads - write_reads - job_reads,
        write_reads,
        job_reads,
        after.member_writes - before.member_writes - job_writes,
        job_writes,
    ]
}

#[test]
fn reads_of_clients_of_writes_and_of_jobs_are_counted_apart() {
    on_array(800, &raid6(), async move |Rig { engine, handle, disks, .. }| {
        let _model: Model = filled(&engine, 1).await;
        let before = status(&engine).await.counts;
        read_blocks(&engine, 7).await;
        // RAID 6 4+2: old data, P and Q are read, new ones written.
        write_blocks(&engine, 5).await;
        let after = status(&engine).await.counts;
        assert_eq!(apart(after, before), [7, 15, 0, 15, 0]);
        let written = status(&engine).await.written_stripes.0;
        let before = after;
        scrub(&engine, &handle, true).await;
        let after = status(&engine).await.counts;
        assert_eq!(apart(after, before), [0, 0, written * 6, 0, 0], "a scrub reads all strips");
        engine.fail("tank", MemberIdx(0)).await.expect("one may go");
        let before = status(&engine).await.counts;
        engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
        until_all_in_sync(&engine, &handle).await;
        let after = status(&engine).await.counts;
        let rebuilt = written;
        assert_eq!(apart(after, before), [0, 0, rebuilt * 4, 0, rebuilt], "a rebuild");
        let before = after;
        engine.replace("tank", MemberIdx(1), "disk0", true).await.expect("replacing");
        crate::world::jobs::until_idle(&engine, &handle).await;
        let after = status(&engine).await.counts;
        assert_eq!(apart(after, before), [0, 0, rebuilt, 0, rebuilt], "a copy reads one strip");
        drop::<Vec<SimDisk>>(disks);
    });
}

fn stage(status: &ArrayStatus, name: &str) -> u64 {
    let found = status.write_stages.iter().find(|(stage, _)| *stage == name);
    found.expect("a stage of that name").1.count
}

#[test]
fn one_write_in_so_many_is_timed_in_every_stage_and_depths_are_noted() {
    on_array(810, &raid6(), async move |Rig { engine, .. }| {
        let model = filled(&engine, 2).await;
        let before = status(&engine).await;
        write_blocks(&engine, 20 * STAGE_SAMPLE_EVERY).await;
        let after = status(&engine).await;
        for (name, latency) in &after.write_stages {
            let timed = latency.count - stage(&before, name);
            // Each of three workers counts for itself.
            assert!(timed.abs_diff(20) <= 3, "{name}: {timed} of {}", 20 * STAGE_SAMPLE_EVERY);
            let powers = latency.by_power_of_two_us();
            assert_eq!(powers.iter().sum::<u64>(), latency.count, "{name}");
            assert_eq!(powers.len(), POWERS);
        }
        // Here only the disks take time: a read of 50 us at least, then a write of 10 us at
        // least.
        let mean = |name: &str| {
            let found = after.write_stages.iter().find(|(stage, _)| *stage == name);
            found.expect("there").1.mean_ns()
        };
        assert!(mean("gather") >= 50_000, "{}", mean("gather"));
        assert!(mean("store") >= 10_000, "{}", mean("store"));
        assert!(mean("lock") + mean("parity") < 10_000);
        for member in &after.members {
            assert!(member.in_flight_max >= 1, "{member:?}");
            assert_eq!(member.in_flight, 0, "{member:?}");
        }
        let workers = engine.status().await.expect("runs").workers;
        assert!(workers.iter().all(|it| it.in_flight == 0), "{workers:?}");
        assert!(workers[0].in_flight_max >= 1, "the client's worker: {workers:?}");
        audit_written(&engine, model).await;
    });
}

/// The blocks that `write_blocks` overwrote are not in the model: only that everything can be read
/// is checked.
async fn audit_written(engine: &Engine, model: Model) {
    let mut fresh = Model::new(3, crate::world::jobs::MODEL_BYTES);
    fresh.bytes = crate::world::jobs::everything(engine).await;
    assert_eq!(fresh.bytes.len(), model.bytes.len());
    audit(engine, fresh).await;
}
