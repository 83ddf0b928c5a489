//! How fast jobs are on members of a rate, in the world's time: a rebuild fills the new device, and
//! a scrub or resync reads all members, as fast as they go.
//!
//! What must stay true: members let bytes through one after the other at one rate, and answer as
//! late as flash. The CPU takes no time here. Measured is the middle of a job, where stripes come
//! and go: members are too small here for the moments of its beginning and end.

use crate::world::jobs::{ms, status};
use crate::world::{assemble_dirty, assemble_spec, create_spec, engine, shape, submit};
use ashlar_engine::{CreateSpec, Engine};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, Latency, SimDisk, SimWorld, Stop};
use ashlar_units::{Extent, MemberIdx, Nanos, to_usize};
use ashlar_volume::{Command, Volume};
use std::time::Duration;

const DISK_BYTES: u64 = 40 << 20;
/// A disk with SATA, and two with NVMe: bytes a second.
const RATES: [u64; 3] = [500_000_000, 2_000_000_000, 3_000_000_000];
/// The part of its rate that a member is to reach.
const AIM: f64 = 0.95;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Job {
    /// Of so many members.
    Rebuild(u16),
    Scrub,
    Resync,
}

fn raid6(strip_bytes: u64) -> Shape {
    Shape { strip_bytes, ..shape(Level::Raid6, 6, None, None) }
}

/// Write all of it, and know that it is written.
async fn fill(engine: &Engine) {
    let run = engine.with_volume(0, "tank", async |volume| {
        let size = volume.facts().size_bytes;
        for at in (0..size).step_by(1 << 20) {
            let bytes = (1 << 20).min(size - at);
            let mut buffer = volume.buffer(to_usize(bytes)).await;
            buffer.fill(7);
            submit(&volume, Command::Write(buffer.freeze()), Extent::new(at, bytes), false).await;
        }
        submit(&volume, Command::Flush, Extent::new(0, 0), false).await;
    });
    run.await.expect("runs");
}

/// When the job has moved so many eighths of what there is to move on this member.
async fn when_moved(rig: &Rig, eighths: u64) -> (Nanos, u64) {
    loop {
        let traffic = rig.member.traffic();
        let moved = traffic.read_bytes + traffic.written_bytes;
        if moved * 8 >= rig.bytes * eighths {
            return (rig.handle.now(), moved);
        }
        rig.handle.sleep(Duration::from_micros(50)).await;
    }
}

/// A member that a job reads or fills.
struct Rig {
    handle: Handle,
    member: SimDisk,
    bytes: u64,
}

impl Rig {
    async fn new(engine: &Engine, handle: Handle, member: &SimDisk) -> Rig {
        let now = status(engine).await;
        let bytes = now.written_stripes.0 * now.geometry.strip_bytes();
        member.count_traffic(Extent::new(0, DISK_BYTES));
        Rig { handle, member: member.clone(), bytes }
    }

    /// Bytes a second.
    async fn middle(&self) -> f64 {
        let (began, before) = when_moved(self, 2).await;
        let (ended, after) = when_moved(self, 6).await;
        (after - before) as f64 / ended.since(began).as_secs_f64()
    }
}

/// Bytes a second of a member in the middle of the job, over its rate.
fn part_of_rate(job: Job, strip_bytes: u64, rate: u64) -> f64 {
    let mut world = SimWorld::new(1300);
    let options = DiskOptions { bytes_per_second: Some(rate), ..DiskOptions::sized(DISK_BYTES) };
    let names = ["disk0", "disk1", "disk2", "disk3", "disk4", "disk5", "new0", "new1"];
    let disks = names.map(|name| world.add_disk(name, options.clone()));
    let member = match job {
        Job::Rebuild(members) => disks[5 + usize::from(members)].clone(),
        Job::Scrub | Job::Resync => disks[0].clone(),
    };
    let survivors = disks[2..6].to_vec();
    let (opener, again, read) = (world.opener(), world.opener(), member.clone());
    let run = async move |handle: Handle| {
        let engine = engine(opener, &handle, 1);
        let policy = ConsistencyPolicy::None;
        let spec = CreateSpec { policy, ..create_spec(raid6(strip_bytes)) };
        engine.create(spec).await.expect("created");
        engine.assemble(assemble_spec(6)).await.expect("assembled");
        fill(&engine).await;
        let rig = Rig::new(&engine, handle, &member).await;
        match job {
            Job::Rebuild(members) => {
                for slot in 0..members {
                    engine.fail("tank", MemberIdx(slot)).await.expect("two may go");
                }
                // What clients left under way has ended. Then both begin at nearly the same stripe.
                rig.handle.sleep(ms(1000)).await;
                let slow = Latency { read: ms(50)..=ms(50), ..Latency::default() };
                survivors.iter().for_each(|disk| disk.set_latency(slow.clone()));
                for slot in 0..members {
                    let path = format!("new{slot}");
                    let replaced = engine.replace("tank", MemberIdx(slot), &path, true);
                    replaced.await.expect("replaced");
                }
                survivors.iter().for_each(|disk| disk.set_latency(Latency::default()));
            }
            Job::Scrub => engine.scrub("tank", false).await.expect("begins"),
            Job::Resync => return 0.0,
        }
        rig.middle().await
    };
    let measured = world.run(run).done();
    if job != Job::Resync {
        return measured / rate as f64;
    }
    world.stop(Stop::Kill);
    let run = async move |handle: Handle| {
        let engine = engine(again, &handle, 1);
        engine.assemble(assemble_dirty(6)).await.expect("assembled");
        Rig::new(&engine, handle, &read).await.middle().await
    };
    world.run(run).done() / rate as f64
}

fn reaches_the_rate(job: Job) {
    for strip_bytes in [64 << 10, 256 << 10] {
        for rate in RATES {
            let part = part_of_rate(job, strip_bytes, rate);
            println!("{job:?} in strips of {strip_bytes}: {part:.3} of {rate} bytes a second");
            assert!((AIM..1.03).contains(&part), "{job:?}, {strip_bytes}, {rate}: {part}");
        }
    }
}

#[test]
fn a_rebuild_is_as_fast_as_its_member_writes() {
    reaches_the_rate(Job::Rebuild(1));
}

#[test]
fn two_rebuilds_at_once_are_as_fast_as_their_members_write() {
    reaches_the_rate(Job::Rebuild(2));
}

#[test]
fn a_scrub_is_as_fast_as_its_members_are_read() {
    reaches_the_rate(Job::Scrub);
}

#[test]
fn a_resync_is_as_fast_as_its_members_are_read() {
    reaches_the_rate(Job::Resync);
}
