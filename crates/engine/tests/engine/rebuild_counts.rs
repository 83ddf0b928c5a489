//! What a rebuild of a declustered array reads and writes, strip by strip, and how long it takes.
//!
//! What must stay true: members let bytes through one after the other at one rate, in the world's
//! time. What is counted is all that reaches their data areas, so nothing can be left out. The
//! counts that are expected come from the layout crate alone.

use crate::world::jobs::{status, until_all_in_sync};
use crate::world::{assemble_spec, create_spec, engine, submit};
use ashlar_engine::{CreateSpec, Engine};
use ashlar_layout::declustered::RebuildLoad;
use ashlar_layout::{DeclusteredShape, Geometry, Level, Shape, StripeView, plan_decode};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, Latency, SimDisk, SimWorld};
use ashlar_units::{Extent, MemberIdx, StripSet, StripeNo, to_usize};
use ashlar_volume::{Command, Volume};
use std::time::Duration;

const STRIP_BYTES: u64 = 4096;
const DISK_BYTES: u64 = 5 << 20;
const BYTES_PER_SECOND: u64 = 2 << 20;
/// The member that is lost.
const LOST: MemberIdx = MemberIdx(7);

/// How many times `DISK_BYTES` members have: with few strips chance deals them out less evenly.
fn member_size() -> u64 {
    let asked = std::env::var("ASHLAR_REBUILD_SIZE").ok();
    asked.map_or(1, |times| times.parse().expect("ASHLAR_REBUILD_SIZE is a whole number"))
}

/// 8+2 over these members, in cells of so many strips.
fn pool(members: usize, spare_columns: usize, cell_rows: u64) -> Shape {
    let declustered = DeclusteredShape {
        domain_members: 1,
        stripe_width: 10,
        spare_columns,
        cell_bytes: Some(cell_rows * STRIP_BYTES),
    };
    Shape { declustered: Some(declustered), ..flat(members) }
}

/// One group of 8+2.
fn flat(members: usize) -> Shape {
    Shape {
        level: Level::Raid6,
        members,
        parity: None,
        group_members: None,
        strip_bytes: STRIP_BYTES,
        declustered: None,
    }
}

/// What a rebuild did.
struct Rebuild {
    geometry: Geometry,
    written: u64,
    /// Strips that passed each member, read and written.
    passed: Vec<[u64; 2]>,
    took: Duration,
}

/// Writes the front of the volume, loses a member and rebuilds it: into distributed spares if there
/// are some, else on another disk.
fn rebuild(shape: &Shape, disk_bytes: u64, seed: u64) -> Rebuild {
    let mut world = SimWorld::new(seed);
    let options = DiskOptions {
        latency: Latency::constant(Duration::from_micros(100)),
        bytes_per_second: Some(BYTES_PER_SECOND),
        ..DiskOptions::sized(disk_bytes)
    };
    let disk = |name: String| world.add_disk(&name, options.clone());
    let mut disks: Vec<SimDisk> =
        (0..shape.members).map(|at| format!("disk{at}")).map(disk).collect();
    let new = world.add_disk("new0", options);
    let (opener, shape) = (world.opener(), shape.clone());
    let has_spares = shape.declustered.is_some_and(|own| own.spare_columns > 0);
    let run = async move |handle: Handle| {
        let members = shape.members;
        let engine = engine(opener, &handle, 3);
        let spec = CreateSpec { policy: ConsistencyPolicy::Bitmap, ..create_spec(shape) };
        let created = engine.create(spec).await.expect("created");
        let data = Extent::new(created.data_offset, created.geometry.member_bytes());
        engine.assemble(assemble_spec(members)).await.expect("assembled");
        write_front(&engine).await;
        let count = |disks: &[SimDisk]| disks.iter().for_each(|disk| disk.count_traffic(data));
        let mut before = handle.now();
        count(&disks);
        engine.fail("tank", LOST).await.expect("one may go");
        if has_spares {
            while status(&engine).await.tolerates < 2 {
                handle.sleep(Duration::from_millis(10)).await;
            }
        } else {
            disks[LOST.at()] = new;
            handle.sleep(Duration::from_secs(10)).await;
            count(&disks);
            before = handle.now();
            engine.replace("tank", LOST, "new0", true).await.expect("replaced");
            until_all_in_sync(&engine, &handle).await;
        }
        let took = handle.now().since(before);
        let now = status(&engine).await;
        let strips = |bytes: u64| bytes / STRIP_BYTES;
        let passed = disks.iter().map(SimDisk::traffic);
        Rebuild {
            geometry: now.geometry,
            written: now.written_stripes.0,
            passed: passed.map(|it| [strips(it.read_bytes), strips(it.written_bytes)]).collect(),
            took,
        }
    };
    world.run(run).done()
}

/// Whole stripes, seven eighths of the volume.
async fn write_front(engine: &Engine) {
    let run = engine.with_volume(0, "tank", async |volume| {
        let unit = 8 * 8 * STRIP_BYTES;
        let end = volume.facts().size_bytes / unit / 8 * 7 * unit;
        for at in (0..end / unit).map(|at| at * unit) {
            let mut buffer = volume.buffer(to_usize(unit)).await;
            buffer.fill(u8::try_from(at / unit % 251).expect("below 251"));
            submit(&volume, Command::Write(buffer.freeze()), Extent::new(at, unit), false).await;
        }
    });
    run.await.expect("runs");
}

/// What the layout says of it. The engine reads the lowest strips that it can.
fn foretold(geometry: &Geometry, written: u64) -> RebuildLoad {
    let map = geometry.declustered().expect("declustered");
    let lowest = |_: StripeNo, lost: StripSet| {
        let view = StripeView::healthy(geometry).without(lost);
        plan_decode(geometry, lost, &view).expect("two may be lost")
    };
    RebuildLoad::of_stripes(map, &[LOST], (0..written).map(StripeNo), lowest)
}

/// Strips a second that were rebuilt, over those of a flat group.
struct Rate {
    over_flat: f64,
    /// If all survivors worked at their rate, and the busiest of them to the end.
    possible: f64,
}

/// The rebuild of a member of this many, with the bytes that the flat group needed.
fn is_as_foretold(members: usize, spare_columns: usize, cell_rows: u64) -> Rate {
    // More of them, so that there are some of each member's.
    let times = if cell_rows > 16 { 4 } else { member_size() };
    let disk_bytes = times * DISK_BYTES;
    let done = rebuild(&pool(members, spare_columns, cell_rows), disk_bytes, 40);
    let load = foretold(&done.geometry, done.written);
    let expected: Vec<[u64; 2]> =
        load.reads.iter().zip(&load.writes).map(|(reads, writes)| [*reads, *writes]).collect();
    assert_eq!(done.passed, expected, "{members} members");
    assert_eq!(load.reads.iter().sum::<u64>(), 8 * load.lost_strips, "k for each lost strip");
    assert_eq!(load.writes.iter().sum::<u64>(), load.lost_strips, "and one write");
    let own = if spare_columns == 0 { load.lost_strips } else { 0 };
    assert_eq!(load.writes[LOST.at()], own, "all to the replacement, or all to the others");
    let survivors = load.reads.iter().filter(|reads| **reads != 0);
    let mean = 8.0 * load.lost_strips as f64 / (members - 1) as f64;
    let most = survivors.clone().max().map_or(0.0, |most| *most as f64 / mean);
    // Some have no strip of these few cells, if cells are large.
    assert!(survivors.count() == members - 1 || cell_rows > 1, "all others help");
    let flat = rebuild(&flat(10), member_size() * DISK_BYTES, 41);
    let sum = |at: usize| flat.passed.iter().map(|it| it[at]).sum::<u64>();
    assert_eq!([sum(0), sum(1)], [8 * flat.written, flat.written], "a flat group does as much");
    let rate = |strips: u64, took: Duration| strips as f64 / took.as_secs_f64();
    let over_flat = rate(load.lost_strips, done.took) / rate(flat.written, flat.took);
    let passed = load.reads.iter().zip(&load.writes).map(|(reads, writes)| reads + writes);
    let possible = load.lost_strips as f64 / passed.max().expect("members") as f64;
    println!(
        "{members}, cells of {cell_rows}: lost {} reads {} busiest {} ({most:.3} of the mean) \
         writes {} in {:?}; flat lost {} in {:?}; \
         strips a second x {over_flat:.2} of {possible:.2}",
        load.lost_strips,
        8 * load.lost_strips,
        load.reads.iter().max().expect("members"),
        load.lost_strips,
        done.took,
        flat.written,
        flat.took
    );
    Rate { over_flat, possible }
}

fn is_at_the_rate_of_one(members: usize) {
    let Rate { over_flat, .. } = is_as_foretold(members, 0, 1);
    assert!((0.95..1.1).contains(&over_flat), "the replacement takes no more: {over_flat}");
}

/// All survivors read and write to the end, or nearly so, whatever the cells are.
fn is_at_the_rate_of_all(members: usize, cell_rows: u64) {
    let Rate { over_flat, possible } = is_as_foretold(members, 2, cell_rows);
    assert!(over_flat > 0.9 * possible, "{over_flat} of {possible}");
}

#[test]
fn a_member_of_24_is_rebuilt_with_the_reads_that_the_map_foretells_and_no_others() {
    is_at_the_rate_of_one(24);
}

#[test]
fn a_member_of_42_is_rebuilt_with_the_reads_that_the_map_foretells_and_no_others() {
    is_at_the_rate_of_one(42);
}

#[test]
fn a_member_of_60_is_rebuilt_with_the_reads_that_the_map_foretells_and_no_others() {
    is_at_the_rate_of_one(60);
}

#[test]
fn a_member_of_14_is_rebuilt_into_spares_by_all_others() {
    is_at_the_rate_of_all(14, 1);
}

#[test]
fn a_member_of_24_is_rebuilt_into_spares_by_all_others() {
    is_at_the_rate_of_all(24, 1);
}

#[test]
fn a_member_of_42_is_rebuilt_into_spares_by_all_others() {
    is_at_the_rate_of_all(42, 1);
}

#[test]
fn a_member_of_60_is_rebuilt_into_spares_by_all_others() {
    is_at_the_rate_of_all(60, 1);
}

/// Rows of one group do not keep the members of the other groups waiting.
#[test]
fn large_cells_are_rebuilt_into_spares_by_all_others() {
    is_at_the_rate_of_all(24, 64);
}
