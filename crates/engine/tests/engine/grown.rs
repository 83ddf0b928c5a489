//! Arrays that have grown, served: they were grown by hand while they stood still.
//!
//! What must stay true: what was written before is there, the new stripes begin unwritten whatever
//! their places held, and losses, spares, returns and power cuts go as on any declustered array.

use crate::world::jobs::{audit, ms, started, status, steps};
use crate::world::{
    DISK_BYTES, Model, assemble_dirty, assemble_spec, declustered, engine, names, submit,
};
use ashlar_engine::{Engine, LostMember};
use ashlar_layout::declustered::Declustered;
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::format::{FLUSH_MARKS, copy_slots};
use ashlar_ondisk::{BitmapKind, MemberEntry, PageIdentity, Role, Superblock};
use ashlar_ring::Handle;
use ashlar_salvage::{Choices, How, Salvage};
use ashlar_sim::{DiskOptions, SimDisk, SimWorld, Stop};
use ashlar_units::{Extent, MemberIdx, to_u64, to_usize};
use ashlar_volume::Command;
use uuid::Uuid;

/// Stripes of 2+2 on seven members, and one spare.
pub fn small() -> Shape {
    declustered(Level::Raid6, 7, 4, 1)
}

pub fn superblock_of(disk: &SimDisk) -> Superblock {
    let slots = copy_slots(DISK_BYTES).expect("large enough");
    Superblock::decode(&disk.peek(slots[0])).expect("it was stopped cleanly")
}

pub fn map_of(superblock: &Superblock) -> Declustered {
    let geometry = superblock.geometry.to_layout().expect("an array");
    *geometry.declustered().expect("declustered")
}

/// The stopped array on these disks, grown over all of them.
fn grow_by_hand(disks: &[SimDisk]) -> Superblock {
    begin_by_hand(disks, move_cells)
}

/// The stopped array on these disks, with all of them, at the start of its growth or as `change`
/// makes it.
pub fn begin_by_hand(
    disks: &[SimDisk],
    change: impl FnOnce(&[SimDisk], &mut Superblock),
) -> Superblock {
    let before = superblock_of(&disks[0]);
    let first = before.members.len();
    let mut grown = before.growing(disks.len() - first).expect("it can grow");
    grown.generation += 1;
    for slot in (first..disks.len()).map(MemberIdx::from_at) {
        let uuid = Uuid::from_u128(0x4000_8000_0000_0000_0000 + u128::from(slot.0));
        let has_log = before.members[0].log_tag != 0;
        let log_tag = if has_log { 0xABCD_0000 + u64::from(slot.0) } else { 0 };
        let entry = MemberEntry::new(uuid, slot, Role::Active);
        grown.members.push(MemberEntry { bytes: DISK_BYTES, log_tag, ..entry });
    }
    change(disks, &mut grown);
    for (disk, entry) in disks.iter().zip(&grown.members).skip(first) {
        copy_maps(&disks[0], disk, &before, entry.uuid);
    }
    for (disk, entry) in disks.iter().zip(&grown.members) {
        let own = grown.for_member(entry.uuid).expect("listed").encode().expect("valid");
        for slot in copy_slots(DISK_BYTES).expect("large enough") {
            disk.poke(slot.offset, &own);
        }
    }
    grown
}

fn move_cells(disks: &[SimDisk], grown: &mut Superblock) {
    let map = map_of(grown);
    let end_cells = map.growth().expect("it grows").end_cells;
    let cell_bytes = map.parts().cell_rows * map.parts().strip_bytes;
    for it in map.moves(0..end_cells) {
        let offset = grown.areas.data.offset + it.number * cell_bytes;
        let bytes = disks[it.from.at()].peek(Extent::new(offset, cell_bytes));
        disks[it.to.at()].poke(offset, &bytes);
    }
    let spread = grown.geometry.spread.as_mut().expect("declustered");
    let last = spread.growths.iter_mut().flatten().last();
    last.expect("it grows").moved_cells = end_cells;
}

/// The pages of the written map and the flush marks of a member, for another one.
fn copy_maps(from: &SimDisk, to: &SimDisk, superblock: &Superblock, member: Uuid) {
    let pages = superblock.geometry.stripes().div_ceil(32_512);
    assert_eq!(pages, 1, "the array is small");
    let kind = BitmapKind::WrittenMap;
    let owner_tag = superblock.page_tag(superblock.member_uuid);
    let [identity, own] = [owner_tag, superblock.page_tag(member)].map(|owner_tag| PageIdentity {
        kind,
        owner_tag,
        page: 0,
    });
    for place in 0..2 {
        let offset = superblock.written_map_offset(0, place);
        let page = identity.decode(&from.peek(Extent::new(offset, 4096))).expect("a page");
        to.poke(offset, &own.encode(page.sequence, &page.bits));
    }
    to.poke(FLUSH_MARKS.offset, &from.peek(FLUSH_MARKS));
}

/// A world whose array was written all over, was stopped, and has grown by as many drives once or
/// twice. What the volume holds, and its size before.
fn grown_world(seed: u64, shape: Shape, added: &[usize]) -> (SimWorld, Vec<SimDisk>, Model, u64) {
    let mut world = SimWorld::new(seed);
    let mut members = shape.members;
    let count = members + added.iter().sum::<usize>();
    let mut disks: Vec<SimDisk> = Vec::new();
    for name in names(count) {
        disks.push(world.add_disk(&name, DiskOptions::sized(DISK_BYTES)));
    }
    world.add_disk("new0", DiskOptions::sized(DISK_BYTES));
    let opener = world.opener();
    let (mut model, before) = world
        .run(async move |handle| {
            let engine = started(opener, &handle, shape).await;
            let size_bytes = status(&engine).await.geometry.volume_bytes();
            let model = written_all_over(&engine, Model::new(seed, size_bytes), 0).await;
            engine.stop("tank").await.expect("stopped clean");
            (model, size_bytes)
        })
        .done();
    for more in added {
        members += more;
        let grown = grow_by_hand(&disks[..members]);
        let size_bytes = grown.geometry.volume_bytes();
        assert!(size_bytes > to_u64(model.bytes.len()), "it grew");
        model.bytes.resize(to_usize(size_bytes), 0);
    }
    (world, disks, model, before)
}

/// Writes from a byte of the volume to its end, in turns with gaps.
pub async fn written_all_over(engine: &Engine, mut model: Model, from: u64) -> Model {
    let run = engine.with_volume(0, "tank", async move |volume| {
        let end = to_u64(model.bytes.len());
        let mut at = from;
        while at + (96 << 10) <= end {
            model.write(&volume, Extent::new(at, 96 << 10)).await;
            at += 160 << 10;
        }
        model
    });
    run.await.expect("runs")
}

pub async fn flushed(engine: &Engine) {
    let flush = engine.with_volume(0, "tank", async |volume| {
        submit(&volume, Command::Flush, Extent::default(), false).await;
    });
    flush.await.expect("runs");
}

pub async fn until(engine: &Engine, handle: &Handle, is_so: impl Fn(&[LostMember], usize) -> bool) {
    for _ in 0..3_000 {
        let now = status(engine).await;
        if is_so(&now.lost_members, now.tolerates) {
            return;
        }
        handle.sleep(ms(100)).await;
    }
    panic!("never: {:?}", status(engine).await);
}

/// What the reader that shares no code with the engine finds.
pub fn salvaged(disks: &[SimDisk], model: &Model) {
    let images: Vec<Vec<u8>> =
        disks.iter().map(|disk| disk.peek(Extent::new(0, DISK_BYTES))).collect();
    let salvage = Salvage::open(images, &Choices::default()).expect("an array");
    for (number, wanted) in (0..).zip(model.bytes.chunks(4096)) {
        let found = salvage.read_block(number).unwrap_or_else(|_| panic!("block {number} is lost"));
        if found.how != How::InDoubt {
            assert!(found.bytes[..] == *wanted, "block {number}, {:?}", found.how);
        }
    }
}

/// Any `losses` members may go at once.
fn lives_on(seed: u64, shape: Shape, losses: usize, added: &[usize]) {
    let (mut world, disks, model, before) = grown_world(seed, shape, added);
    salvaged(&disks, &model);
    let (opener, count) = (world.opener(), disks.len());
    let own = disks.clone();
    let model = world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(count)).await.expect("assembled");
            let now = status(&engine).await;
            assert_eq!((now.members.len(), now.tolerates), (count, losses));
            assert_eq!(now.geometry.volume_bytes(), to_u64(model.bytes.len()));
            let model = audit(&engine, model).await;
            let model = written_all_over(&engine, model, before).await;
            let model = steps(&engine, 1, audit(&engine, model).await, 300).await;
            // One into the spare, others beyond it.
            engine.fail("tank", MemberIdx(2)).await.expect("it may go");
            let model = steps(&engine, 0, audit(&engine, model).await, 50).await;
            until(&engine, &handle, |lost, left| lost.len() == 1 && left == losses).await;
            let mut model = audit(&engine, model).await;
            for gone in [count - 1, 0].into_iter().take(losses) {
                own[gone].vanish();
                model = steps(&engine, 1, audit(&engine, model).await, 50).await;
            }
            [count - 1, 0].into_iter().take(losses).for_each(|gone| own[gone].come_back());
            engine.stop("tank").await.expect("stopped");
            model
        })
        .done();
    salvaged(&disks, &model);
}

#[test]
fn a_pool_that_grew_serves_old_and_new_stripes_and_bears_losses() {
    lives_on(1301, small(), 2, &[2]);
}

#[test]
fn a_pool_that_grew_twice_serves_old_and_new_stripes_and_bears_losses() {
    lives_on(1302, declustered(Level::Raid5, 5, 3, 1), 1, &[1, 1]);
}

#[test]
fn a_new_device_gets_everything_back_in_a_pool_that_grew() {
    let (mut world, disks, model, before) = grown_world(1303, small(), &[2]);
    let (opener, count) = (world.opener(), disks.len());
    let own = disks.clone();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(count)).await.expect("assembled");
            let model = written_all_over(&engine, model, before).await;
            engine.fail("tank", MemberIdx(8)).await.expect("it may go");
            let model = steps(&engine, 1, model, 50).await;
            engine.replace("tank", MemberIdx(8), "new0", true).await.expect("replaced");
            let model = steps(&engine, 0, model, 50).await;
            until(&engine, &handle, |lost, _| lost.is_empty()).await;
            let model = audit(&engine, model).await;
            own[1].vanish();
            own[2].vanish();
            audit(&engine, model).await;
        })
        .done();
}

#[test]
fn a_member_of_a_pool_that_grew_returns_with_what_it_held() {
    let (mut world, disks, model, before) = grown_world(1304, small(), &[2]);
    let (opener, count) = (world.opener(), disks.len());
    let own = disks.clone();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(count)).await.expect("assembled");
            let model = written_all_over(&engine, model, before).await;
            engine.fail("tank", MemberIdx(4)).await.expect("it may go");
            let model = steps(&engine, 1, model, 30).await;
            engine.re_add("tank", "disk4").await.expect("it is back");
            let model = steps(&engine, 0, model, 30).await;
            until(&engine, &handle, |lost, _| lost.is_empty()).await;
            own[7].vanish();
            own[8].vanish();
            audit(&engine, model).await;
        })
        .done();
}

/// The power goes while cells of a lost member are on their way to spares, and a second member with
/// it.
#[test]
fn a_power_cut_in_a_rebuild_of_a_pool_that_grew_costs_nothing() {
    for operations in [10, 60, 200, 500, 900] {
        let (mut world, disks, model, before) = grown_world(1305, small(), &[2]);
        let (opener, count) = (world.opener(), disks.len());
        let (running, model) = world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 2);
                engine.assemble(assemble_spec(count)).await.expect("assembled");
                let model = written_all_over(&engine, model, before).await;
                flushed(&engine).await;
                engine.fail("tank", MemberIdx(3)).await.expect("it may go");
                (engine, model)
            })
            .done();
        world.stop_at(world.operations() + operations, Stop::PowerCut);
        let ended = world.run(async move |handle| {
            handle.sleep(ms(30_000)).await;
            drop(running);
        });
        if matches!(ended, ashlar_sim::Ended::Done(())) {
            world.call_off();
            world.stop(Stop::PowerCut);
        }
        disks[5].vanish();
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 2);
                let started = engine.assemble(assemble_dirty(count)).await;
                started.unwrap_or_else(|refused| panic!("after {operations}: {refused}"));
                let model = steps(&engine, 0, audit(&engine, model).await, 20).await;
                handle.sleep(ms(20_000)).await;
                audit(&engine, model).await;
            })
            .done();
    }
}
