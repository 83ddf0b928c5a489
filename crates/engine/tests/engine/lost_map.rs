//! Pages of the written map that are destroyed: a written stripe never reads as zeros because of
//! it.
//!
//! What must stay true: damage to one place of a page loses nothing, even on the only member that
//! is left. A page that was copied from another member is damage. If no member has a page, the
//! array does not start without the operator's word, and then all written data is there.

use crate::world::jobs::until_all_in_sync;
use crate::world::{
    DISK_BYTES, add_disks, assemble_spec, create_spec, engine, names, read, submit,
};
use ashlar_engine::{ArrayVolume, AssembleSpec, Engine};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::examine::{examine_ranges, split_copies};
use ashlar_ondisk::{Superblock, SuperblockCopies};
use ashlar_sim::{Ended, SimDisk, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent};
use ashlar_volume::{Command, Volume};
use std::time::Duration;

/// Written in the first life of an array, and in its second.
const FIRST: (u64, u8) = (0, 0x11);
const SECOND: (u64, u8) = (20, 0x22);
/// Never written.
const NEVER: u64 = 40;

fn of_level(level: Level, members: usize) -> Shape {
    crate::world::shape(level, members, None, None)
}

async fn write(engine: &Engine, (block, byte): (u64, u8)) {
    let done = engine.with_volume(0, "tank", async move |volume| {
        let mut buffer = volume.buffer(4096).await;
        buffer.fill(byte);
        let extent = Extent::new(block * BLOCK_BYTES, BLOCK_BYTES);
        submit(&volume, Command::Write(buffer.freeze()), extent, false).await;
        submit(&volume, Command::Flush, Extent::default(), false).await;
    });
    done.await.expect("runs");
}

async fn must_hold(engine: &Engine, what: &str, blocks: &[(u64, u8)]) {
    let (what, blocks) = (what.to_owned(), blocks.to_vec());
    let looked = engine.with_volume(0, "tank", async move |volume: ArrayVolume| {
        for (block, byte) in blocks {
            let extent = Extent::new(block * BLOCK_BYTES, BLOCK_BYTES);
            let bytes = read(&volume, extent).await.expect("readable");
            assert_eq!(bytes, [byte; 4096], "{what}: block {block}");
        }
    });
    looked.await.expect("runs");
}

/// An array that was written in two lives, on disks full of old data; `lone` members are left in
/// the second.
fn array(shape: &Shape, lone: Option<usize>) -> (SimWorld, Vec<SimDisk>) {
    let mut world = SimWorld::new(11);
    let disks = add_disks(&mut world, shape.members);
    disks.iter().for_each(|disk| disk.poke(2 << 20, &vec![0xEE; 5 << 20]));
    let (opener, shape) = (world.opener(), shape.clone());
    world
        .run(async move |handle| {
            let members = shape.members;
            let engine = engine(opener, &handle, 1);
            engine.create(create_spec(shape)).await.expect("created");
            engine.assemble(assemble_spec(members)).await.expect("assembled");
            write(&engine, FIRST).await;
            engine.stop("tank").await.expect("stopped");
            engine.assemble(assemble_spec(lone.unwrap_or(members))).await.expect("assembled");
            write(&engine, SECOND).await;
            engine.stop("tank").await.expect("stopped");
        })
        .done();
    (world, disks)
}

fn superblock(disk: &SimDisk) -> Superblock {
    let [head, tail] = examine_ranges(DISK_BYTES).expect("large enough");
    let (head, tail) = (disk.peek(head), disk.peek(tail));
    let choice = SuperblockCopies::choose(&split_copies(Some(&head), Some(&tail)));
    choice.superblock().expect("a member").clone()
}

/// Where the two places of page 0 lie.
fn places(disk: &SimDisk) -> [Extent; 2] {
    let area = superblock(disk).areas.written_map;
    [0, 1].map(|place| Extent::new(area.offset + place * BLOCK_BYTES, BLOCK_BYTES))
}

fn lone_spec(accept_lost_map: bool) -> AssembleSpec {
    let mut spec = AssembleSpec { devices: names(1), ..AssembleSpec::default() };
    spec.request.accept_lost_map = accept_lost_map;
    spec
}

#[test]
fn damage_to_one_place_of_a_map_page_on_the_only_member_left_loses_nothing() {
    let shape = of_level(Level::Raid1, 2);
    for (place, byte) in [(0, 0), (1, 0), (0, 0xFF), (1, 0xFF)] {
        let (mut world, disks) = array(&shape, Some(1));
        disks[0].poke(places(&disks[0])[place].offset, &[byte; 4096]);
        let opener = world.opener();
        let what = format!("place {place} full of {byte:#x}");
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 1);
                engine.assemble(lone_spec(false)).await.expect("assembled");
                must_hold(&engine, &what, &[FIRST, SECOND, (NEVER, 0)]).await;
                engine.stop("tank").await.expect("stopped");
            })
            .done();
        let [one, other] = places(&disks[0]).map(|place| disks[0].peek(place)[32..].to_vec());
        assert!(
            one == other && one.iter().any(|byte| *byte != 0),
            "both places hold the page again"
        );
    }
}

#[test]
fn a_page_of_a_killed_array_lies_in_both_places_once_things_were_quiet() {
    for place in 0..2 {
        let (mut world, disks) = array(&of_level(Level::Raid1, 2), Some(1));
        let (opener, switch) = (world.opener(), world.switch());
        let killed: Ended<()> = world.run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            engine.assemble(lone_spec(false)).await.expect("assembled");
            write(&engine, (NEVER, 0x33)).await;
            handle.sleep(Duration::from_secs(10)).await;
            switch.stop_after(1, Stop::PowerCut);
            loop {
                write(&engine, FIRST).await;
            }
        });
        assert_eq!(killed, Ended::Stopped(Stop::PowerCut));
        disks[0].poke(places(&disks[0])[place].offset, &[0; 4096]);
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 1);
                engine.assemble(lone_spec(false)).await.expect("assembled");
                must_hold(&engine, "after a power cut", &[SECOND, (NEVER, 0x33)]).await;
            })
            .done();
    }
}

/// Member sets 357191, 366348 and 373704: the only member left of a mirror had its pages
/// overwritten by those of the member that was out. Member set 537: a run of zeros reached over
/// both places, so that one was damaged and the other looked unwritten. Each time written stripes
/// read as zeros.
#[test]
fn a_member_without_its_map_is_not_started_from_unless_told_to() {
    for kind in 0..4 {
        let (mut world, disks) = array(&of_level(Level::Raid1, 2), Some(1));
        let [one, other] = places(&disks[0]);
        let (first, second) = match kind {
            0 => (vec![0; 4096], vec![0; 4096]),
            1 => (vec![0xFF; 4096], vec![0; 4096]),
            // Whole pages of this array, but of the member that missed the second life.
            2 => (disks[1].peek(one), disks[1].peek(other)),
            // A run of zeros that begins within one place.
            _ => ([disks[0].peek(one)[..16].to_vec(), vec![0; 4080]].concat(), vec![0; 4096]),
        };
        disks[0].poke(one.offset, &first);
        disks[0].poke(other.offset, &second);
        let (opener, before) = (world.opener(), disks[0].changes());
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 1);
                let refusal = engine.assemble(lone_spec(false)).await.expect_err("nobody knows");
                assert_eq!(refusal.code, "array.map_lost", "{refusal:?}");
            })
            .done();
        assert_eq!(disks[0].changes(), before, "a start that is refused writes nothing");
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 1);
                engine.assemble(lone_spec(true)).await.expect("told to");
                must_hold(&engine, "told to", &[FIRST, SECOND]).await;
                engine.stop("tank").await.expect("stopped");
                engine.assemble(lone_spec(false)).await.expect("the map is whole again");
                must_hold(&engine, "afterwards", &[FIRST, SECOND]).await;
                engine.stop("tank").await.expect("stopped");
            })
            .done();
        assert_eq!(superblock(&disks[0]).forced.names(), ["lost-map"]);
    }
}

/// Of members that may not lose any the start reads each page from one alone.
#[test]
fn a_page_that_another_member_has_is_taken_from_there_and_given_back() {
    for shape in [of_level(Level::Raid1, 2), of_level(Level::Raid0, 3), of_level(Level::Raid6, 6)] {
        for lost in 0..shape.members {
            let (mut world, disks) = array(&shape, None);
            let there = disks[(lost + 1) % shape.members].peek(places(&disks[0])[0]);
            for place in places(&disks[0]) {
                // All but one, where each has the page.
                let victims = disks.iter().enumerate().filter(|(at, _)| *at != lost);
                victims.for_each(|(_, disk)| disk.poke(place.offset, &[0; 4096]));
            }
            let (opener, members) = (world.opener(), shape.members);
            let what = format!("{} with a map on member {lost} alone", shape.level.name());
            world
                .run(async move |handle| {
                    let engine = engine(opener, &handle, 1);
                    engine.assemble(assemble_spec(members)).await.expect("assembled");
                    must_hold(&engine, &what, &[FIRST, SECOND, (NEVER, 0)]).await;
                    engine.stop("tank").await.expect("stopped");
                })
                .done();
            // Where one that is asked has it, the others are not asked: without parity they are as
            // much needed.
            let given_back = if shape.level == Level::Raid0 { &disks[..1] } else { &disks[..] };
            for disk in given_back {
                let bits = places(disk).map(|place| disk.peek(place)[32..].to_vec());
                assert!(bits.iter().all(|bits| *bits == there[32..]), "{}", disk.name());
            }
        }
    }
}

/// What a member that comes back lacks is what the write-intent bitmap of the others says. Theirs,
/// and not its own.
#[test]
fn a_write_intent_page_of_another_member_hides_nothing_from_the_one_that_comes_back() {
    let (mut world, disks) = array(&of_level(Level::Raid1, 2), Some(1));
    let intent = superblock(&disks[0]).areas.write_intent;
    let of_other = disks[1].peek(intent);
    assert_ne!(disks[0].peek(intent), of_other);
    disks[0].poke(intent.offset, &of_other);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            engine.assemble(assemble_spec(2)).await.expect("assembled");
            engine.re_add("tank", "disk1").await.expect("it is the member that is out");
            until_all_in_sync(&engine, &handle).await;
            engine.stop("tank").await.expect("stopped");
            let mut spec = lone_spec(false);
            spec.devices = vec!["disk1".to_owned()];
            engine.assemble(spec).await.expect("assembled");
            must_hold(&engine, "on the one that came back", &[FIRST, SECOND, (NEVER, 0)]).await;
        })
        .done();
}
