//! What tests of background work share: arrays filled in known ways, jobs waited for in the world's
//! time, and what was said about them.

use super::{
    DISK_BYTES, Model, add_disks, assemble_spec, create_spec, engine, read, shape, submit,
};
use ashlar_engine::{
    ArrayStatus, AssembleSpec, Engine, JobStatus, SlotState, event_names as names,
};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::JobKind;
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, SimDisk, SimWorld};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, to_usize};
use ashlar_volume::{Command, Volume};
use std::time::Duration;

/// Volume bytes that the model covers: many stripes and regions.
pub const MODEL_BYTES: u64 = 4 << 20;

pub fn raid6() -> Shape {
    shape(Level::Raid6, 6, None, None)
}

pub fn raid5() -> Shape {
    shape(Level::Raid5, 4, None, None)
}

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A world with the disks of an array and one more, `new0`.
pub fn world_for(seed: u64, shape: &Shape) -> (SimWorld, Vec<SimDisk>, SimDisk) {
    let mut world = SimWorld::new(seed);
    let disks = add_disks(&mut world, shape.members);
    let new = world.add_disk("new0", DiskOptions::sized(DISK_BYTES));
    (world, disks, new)
}

pub async fn started(opener: ashlar_sim::SimOpener, handle: &Handle, shape: Shape) -> Engine {
    let engine = engine(opener, handle, 3);
    let members = shape.members;
    engine.create(create_spec(shape)).await.expect("created");
    engine.assemble(assemble_spec(members)).await.expect("assembled");
    engine
}

/// A started array in a world of its own.
pub struct Rig {
    pub engine: Engine,
    pub handle: Handle,
    pub disks: Vec<SimDisk>,
    /// One disk more, `new0`.
    pub new: SimDisk,
}

/// Run a test on a new array.
pub fn on_array(seed: u64, shape: &Shape, test: impl AsyncFnOnce(Rig)) {
    let (mut world, disks, new) = world_for(seed, shape);
    let (opener, shape) = (world.opener(), shape.clone());
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, shape).await;
            test(Rig { engine, handle, disks, new }).await;
        })
        .done();
}

/// Start an array again that `new0` may belong to.
pub async fn restarted(
    opener: ashlar_sim::SimOpener,
    handle: &Handle,
    mut spec: AssembleSpec,
) -> Engine {
    let engine = engine(opener, handle, 2);
    spec.devices.push("new0".to_owned());
    engine.assemble(spec).await.expect("assembled");
    engine
}

/// Begin to rebuild the first member onto `new0`.
pub async fn begin_rebuild(engine: &Engine) {
    engine.fail("tank", MemberIdx(0)).await.expect("one may go");
    engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replaced");
}

/// Take the model through `steps` random requests on a worker.
pub async fn steps(engine: &Engine, worker: usize, mut model: Model, steps: usize) -> Model {
    let run = engine.with_volume(worker, "tank", async move |volume| {
        for _ in 0..steps {
            model.step(&volume).await;
        }
        model
    });
    run.await.expect("runs")
}

pub async fn audit(engine: &Engine, model: Model) -> Model {
    let run = engine.with_volume(1, "tank", async move |volume| {
        model.audit(&volume).await;
        model
    });
    run.await.expect("runs")
}

/// Write all that the model covers, so that every stripe below is written.
pub async fn filled(engine: &Engine, seed: u64) -> Model {
    let run = engine.with_volume(0, "tank", async move |volume| {
        let mut model = Model::new(seed, MODEL_BYTES);
        for at in 0..MODEL_BYTES / (256 << 10) {
            model.write(&volume, Extent::new(at * (256 << 10), 256 << 10)).await;
        }
        model
    });
    run.await.expect("runs")
}

pub async fn status(engine: &Engine) -> ArrayStatus {
    engine.status().await.expect("runs").arrays.remove(0)
}

pub async fn job(engine: &Engine, kind: JobKind) -> Option<JobStatus> {
    status(engine).await.jobs.into_iter().find(|job| job.kind == kind)
}

/// Wait in the world's time until no job runs.
pub async fn until_idle(engine: &Engine, handle: &Handle) {
    for _ in 0..100_000 {
        // A spare or a takeover needs a moment before its job shows.
        handle.sleep(ms(20)).await;
        if status(engine).await.jobs.is_empty() {
            return;
        }
    }
    panic!("jobs do not end: {:?}", status(engine).await.jobs);
}

pub async fn until_all_in_sync(engine: &Engine, handle: &Handle) {
    for _ in 0..100_000 {
        handle.sleep(ms(20)).await;
        let members = status(engine).await.members;
        if members.iter().all(|member| member.state == SlotState::InSync) {
            return until_idle(engine, handle).await;
        }
    }
    panic!("not in sync: {:?}", engine.events().since(0));
}

/// Fields of the newest event of that name.
pub fn last(engine: &Engine, name: &str, field: &str) -> Option<String> {
    let events = engine.events().since(0);
    let event = events.iter().rev().find(|event| event.name == name)?;
    event.fields.iter().find(|(key, _)| *key == field).map(|(_, value)| value.clone())
}

pub fn count(engine: &Engine, name: &str) -> usize {
    engine.events().since(0).iter().filter(|event| event.name == name).count()
}

/// Members that share a group with slot 0 and are not it, as many as the group can lose.
pub fn others(disks: &[SimDisk], losses: usize) -> impl Iterator<Item = &SimDisk> {
    disks[1..].iter().take(losses)
}

/// The members hold 12 MiB or so: enough stripes for a rebuild that takes a while.
pub async fn filled_to_the_brim(engine: &Engine) {
    let size = engine.with_volume(0, "tank", async |volume| {
        let size = volume.facts().size_bytes;
        let mut at = 0;
        while at < size {
            let bytes = (256 << 10).min(size - at);
            let mut buffer = volume.buffer(to_usize(bytes)).await;
            buffer.fill(u8::try_from(at / (64 << 10) % 251).expect("below 251"));
            submit(&volume, Command::Write(buffer.freeze()), Extent::new(at, bytes), false).await;
            at += bytes;
        }
    });
    size.await.expect("runs");
}

pub async fn is_as_filled(engine: &Engine) {
    let run = engine.with_volume(1, "tank", async |volume| {
        let size = volume.facts().size_bytes;
        let mut at = 0;
        while at < size {
            let bytes = (256 << 10).min(size - at);
            let wanted = u8::try_from(at / (64 << 10) % 251).expect("below 251");
            let got = read(&volume, Extent::new(at, bytes)).await.expect("readable");
            assert!(got.iter().all(|byte| *byte == wanted), "at {at}");
            at += bytes;
        }
    });
    run.await.expect("runs");
}

/// Where on which disk these bytes lie.
pub fn find(disks: &[SimDisk], pattern: &[u8]) -> (usize, u64) {
    for (at, disk) in disks.iter().enumerate() {
        let bytes = disk.peek(Extent::new(0, DISK_BYTES));
        let found = bytes.chunks_exact(4096).position(|block| block == &pattern[..4096]);
        if let Some(block) = found {
            return (at, u64::try_from(block).expect("small") * BLOCK_BYTES);
        }
    }
    panic!("the pattern is on no disk");
}

pub async fn scrub(engine: &Engine, handle: &Handle, is_repairing: bool) -> (String, String) {
    engine.scrub("tank", is_repairing).await.expect("started");
    until_idle(engine, handle).await;
    let field = |name| last(engine, names::JOB_FINISHED, name).expect("it finished");
    (field("mismatches"), field("repaired"))
}

pub fn pair(mismatches: u64, repaired: u64) -> (String, String) {
    (mismatches.to_string(), repaired.to_string())
}

pub async fn everything(engine: &Engine) -> Vec<u8> {
    let run = engine.with_volume(0, "tank", async |volume| {
        let mut all = Vec::new();
        for at in 0..MODEL_BYTES / (256 << 10) {
            let extent = Extent::new(at * (256 << 10), 256 << 10);
            all.extend(read(&volume, extent).await.expect("readable"));
        }
        all
    });
    run.await.expect("runs")
}
