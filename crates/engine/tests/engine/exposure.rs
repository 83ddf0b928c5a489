//! How many losses stripes still survive, against a count strip by strip.
//!
//! What must stay true: the counts that are shown are those of the moment, and they fall as the
//! rebuild goes on. No time is shown when none can be known.

use crate::grown;
use crate::growth::{growing_world, growth_runs, spec};
use crate::world::jobs::{Rig, filled, ms, status};
use crate::world::{assemble_spec, create_spec, declustered, engine, names};
use ashlar_engine::{ArrayExposure, ArrayStatus, Engine};
use ashlar_layout::declustered::{Declustered, Settled, SpareTable, Whereabouts, rebuild_order};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::JobKind;
use ashlar_ring::Handle;
use ashlar_sim::{DiskOptions, SimWorld};
use ashlar_units::{MemberIdx, StripIdx, StripeNo, to_u64, to_usize};

/// Cells of more than one batch.
const MEMBER_BYTES: u64 = 160 << 20;

/// Stripes of 8+2 on 14 members, two spares; cells of one strip.
fn pool() -> Shape {
    let shape = declustered(Level::Raid6, 14, 10, 2);
    let mut own = shape.declustered.expect("it is");
    own.cell_bytes = Some(shape.strip_bytes);
    Shape { declustered: Some(own), ..shape }
}

fn on_pool(seed: u64, test: impl AsyncFnOnce(Rig)) {
    let mut world = SimWorld::new(seed);
    let mut add = |name: &str| world.add_disk(name, DiskOptions::sized(MEMBER_BYTES));
    let disks = names(14).iter().map(|name| add(name)).collect();
    let new = add("new0");
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 3);
            engine.create(create_spec(pool())).await.expect("created");
            engine.assemble(assemble_spec(14)).await.expect("assembled");
            filled(&engine, seed).await;
            test(Rig { engine, handle, disks, new }).await;
        })
        .done();
}

fn map_of(status: &ArrayStatus) -> Declustered {
    *status.geometry.declustered().expect("it is declustered")
}

/// Stripes that survive no loss, one and two when this is lost one after the other, and all of the
/// earlier ones were rebuilt before the last one went.
fn counted(map: &Declustered, losses: &[u16]) -> Vec<u64> {
    let parts = map.parts();
    let width = u8::try_from(parts.data_strips + parts.parity_strips).expect("at most 64");
    let mut table = SpareTable::new(map);
    for lost in losses {
        let due: Vec<_> = rebuild_order(map, &table).collect();
        let positions = 0..u32::from(width);
        for cell in due.iter().flat_map(|it| positions.clone().map(|at| map.cell_of(it.group, at)))
        {
            let _ = table.rebuilt(map, cell, Settled);
        }
        table.lose(map, MemberIdx(*lost));
    }
    let mut surviving = vec![0; 3];
    for stripe in (0..map.stripe_count()).map(StripeNo) {
        let is_lost = |strip: &u8| {
            let place = map.place(map.seat(stripe), StripIdx(*strip));
            let (cell, _) = map.cell_at(place).expect("a cell");
            !matches!(table.whereabouts(map, cell), Whereabouts::At(_))
        };
        surviving[2 - (0..width).filter(is_lost).count()] += 1;
    }
    surviving
}

/// Growths stand still while members are lost, in the middle here: until then no map is right but
/// the one of the frontier.
#[test]
fn losses_in_the_middle_of_a_growth_are_counted_where_cells_lie_then() {
    for lost in [[3, 8], [8, 0], [7, 8]] {
        let (mut world, disks, _) = growing_world(2_003);
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 2);
                engine.assemble(spec()).await.expect("assembled");
                let map = || grown::map_of(&grown::superblock_of(&disks[1]));
                while map().growth().is_some_and(|it| it.moved_cells < it.end_cells / 2) {
                    handle.sleep(ms(1)).await;
                }
                engine.fail("tank", MemberIdx(lost[0])).await.expect("it may go");
                assert!(map().growth().is_some(), "it was too fast");
                let (_, one) = exposed(&engine, &handle).await;
                assert_eq!(one.surviving, counted(&map(), &lost[..1]));
                shown_until_safe(&engine, &handle, |status, now| {
                    assert_eq!(now.surviving[1], lacking_stripes(&map(), status));
                })
                .await;
                engine.fail("tank", MemberIdx(lost[1])).await.expect("it may go");
                let (_, both) = exposed(&engine, &handle).await;
                assert_eq!(both.surviving, counted(&map(), &lost));
                let critical = both.critical.expect("there is one spare");
                assert_eq!((critical.survive, critical.waiting), (1, critical.stripes));
                let before = map().stripe_count();
                let returning = format!("disk{}", lost[1]);
                engine.re_add("tank", &returning).await.expect("it is back");
                engine.replace("tank", MemberIdx(lost[0]), "new0", true).await.expect("replaced");
                grown::until(&engine, &handle, |lost, _| lost.is_empty()).await;
                while growth_runs(&engine).await {
                    handle.sleep(ms(100)).await;
                }
                assert!(map().stripe_count() > before, "it grew");
                let (_, whole) = exposed(&engine, &handle).await;
                assert_eq!(whole.surviving, [0, 0, map().stripe_count()]);
            })
            .done();
    }
}

/// Stripes that lack a strip of the only lost member, which is being rebuilt: its spare cells held
/// nothing, and neither did cells of no slice.
fn lacking_stripes(map: &Declustered, status: &ArrayStatus) -> u64 {
    let lost = &status.lost_members[0];
    let is_empty = |number: &usize| {
        let cell = map.numbered_cell(lost.slot, *number);
        cell.is_none_or(|cell| map.spare_index(cell).is_some())
    };
    let empty = to_u64((0..to_usize(map.cells())).filter(is_empty).count());
    (lost.missing - empty) * map.parts().cell_rows
}

/// The status when the stripes have been counted.
async fn exposed(engine: &Engine, handle: &Handle) -> (ArrayStatus, ArrayExposure) {
    for _ in 0..1_000 {
        let now = status(engine).await;
        if let Some(exposure) = now.exposure.clone() {
            return (now, exposure);
        }
        handle.yield_now().await;
    }
    panic!("not counted: {:?}", status(engine).await);
}

/// What is shown from now on until all stripes survive two losses; each differs from the last one.
async fn shown_until_safe(
    engine: &Engine,
    handle: &Handle,
    check: impl Fn(&ArrayStatus, &ArrayExposure),
) -> Vec<ArrayExposure> {
    let mut shown: Vec<ArrayExposure> = Vec::new();
    for _ in 0..1_000_000 {
        let (status, now) = exposed(engine, handle).await;
        check(&status, &now);
        let is_safe = now.critical.is_none();
        if shown.last().is_none_or(|last| last.surviving != now.surviving) {
            shown.push(now);
        }
        if is_safe {
            return shown;
        }
        handle.sleep(ms(1)).await;
    }
    panic!("never safe: {shown:?}");
}

/// Strips that stripes lack, all in all.
fn lacking(exposure: &ArrayExposure) -> u64 {
    2 * exposure.surviving[0] + exposure.surviving[1]
}

#[test]
fn one_loss_is_counted_and_the_count_falls_with_each_batch() {
    on_pool(2_000, async |Rig { engine, handle, .. }| {
        let (before, whole) = exposed(&engine, &handle).await;
        let map = map_of(&before);
        assert_eq!(whole.surviving, [0, 0, map.stripe_count()]);
        assert_eq!(whole.critical, None);
        engine.fail("tank", MemberIdx(4)).await.expect("it may go");
        let shown = shown_until_safe(&engine, &handle, |status, now| {
            assert_eq!(now.surviving[1], lacking_stripes(&map, status));
            assert_eq!(now.surviving.iter().sum::<u64>(), map.stripe_count());
            assert_eq!(now.critical.map(|it| (it.survive, it.waiting)).unwrap_or((1, 0)), (1, 0));
        });
        let shown = shown.await;
        assert_eq!(shown[0].surviving, counted(&map, &[4]));
        assert_eq!(shown[0].critical.expect("some lack a strip").time_left, None);
        assert!(shown.len() > 3, "{shown:?}");
        assert!(shown.is_sorted_by(|a, b| lacking(a) > lacking(b)), "{shown:?}");
        let middle = &shown[1..shown.len() - 1];
        let has_time = |it: &ArrayExposure| it.critical.is_some_and(|it| it.time_left.is_some());
        assert!(middle.iter().all(has_time), "{shown:?}");
        assert_eq!(shown.last(), Some(&whole));
    });
}

#[test]
fn no_time_is_shown_while_a_rebuild_is_paused() {
    on_pool(2_001, async |Rig { engine, handle, .. }| {
        engine.fail("tank", MemberIdx(4)).await.expect("it may go");
        let time_left = async || {
            let (_, now) = exposed(&engine, &handle).await;
            now.critical.expect("not rebuilt yet").time_left
        };
        while time_left().await.is_none() {
            handle.sleep(ms(1)).await;
        }
        engine.pause("tank", JobKind::Rebuild).await.expect("it runs");
        for _ in 0..200 {
            assert_eq!(time_left().await, None);
            handle.sleep(ms(10)).await;
        }
        engine.unpause("tank", JobKind::Rebuild).await.expect("it is paused");
        shown_until_safe(&engine, &handle, |_, _| ()).await;
    });
}

#[test]
fn a_second_loss_in_a_rebuild_is_counted_and_a_third_one_waits() {
    on_pool(2_002, async |Rig { engine, handle, .. }| {
        engine.fail("tank", MemberIdx(4)).await.expect("it may go");
        let (first, begun) = exposed(&engine, &handle).await;
        let map = map_of(&first);
        while exposed(&engine, &handle).await.1.surviving == begun.surviving {
            handle.sleep(ms(1)).await;
        }
        engine.fail("tank", MemberIdx(9)).await.expect("it may go");
        let shown = shown_until_safe(&engine, &handle, |_, now| {
            assert_eq!(now.beyond_parity, 0);
            assert_eq!(now.surviving.iter().sum::<u64>(), map.stripe_count());
        });
        let shown = shown.await;
        assert_eq!(shown[0].critical.map(|it| it.survive), Some(0));
        assert!(shown.is_sorted_by(|a, b| lacking(a) > lacking(b)), "{shown:?}");
        let has_critical = |it: &&ArrayExposure| it.surviving[0] > 0;
        assert!(
            shown.iter().filter(has_critical).all(|it| it.surviving[1] >= shown[0].surviving[1])
        );
        engine.fail("tank", MemberIdx(2)).await.expect("it may go");
        handle.sleep(ms(5_000)).await;
        let (_, waiting) = exposed(&engine, &handle).await;
        assert_eq!(waiting.surviving, counted(&map, &[4, 9, 2]));
        let critical = waiting.critical.expect("there is no spare left");
        assert_eq!((critical.survive, critical.time_left), (1, None));
        assert_eq!((critical.stripes, critical.waiting), (waiting.surviving[1], critical.stripes));
        engine.replace("tank", MemberIdx(4), "new0", true).await.expect("replaced");
        shown_until_safe(&engine, &handle, |_, _| ()).await;
        while status(&engine).await.lost_members.len() > 2 {
            handle.sleep(ms(10)).await;
        }
        let (_, after) = exposed(&engine, &handle).await;
        assert_eq!(after.surviving, [0, 0, map.stripe_count()]);
    });
}
