//! Rebuilds: the order of groups, what is read, and exact counts against a walk over all stripes.

use std::collections::BTreeMap;

use ashlar_layout::declustered::{
    Declustered, DeclusteredParts, Held, MemberRow, RebuildLoad, Settled, SpareTable, Whereabouts,
    endangered_in, losses_apart, rebuild_order, strips_to_read,
};
use ashlar_units::{MemberIdx, StripIdx, StripSet, StripeNo, to_u64};

use crate::parts;

fn losing(map: &Declustered, lost: &[u16]) -> SpareTable {
    let mut table = SpareTable::new(map);
    for member in lost {
        table.lose(map, MemberIdx(*member));
    }
    table
}

#[test]
fn groups_that_lost_most_come_first_and_each_comes_once() {
    let parts = DeclusteredParts { rows: 200, cell_rows: 2, ..parts(14, (5, 3), 3) };
    let map = Declustered::new(parts).expect("a layout");
    let table = losing(&map, &[3, 9, 12]);
    let order: Vec<_> = rebuild_order(&map, &table).collect();
    assert!(order.is_sorted_by(
        |a, b| a.lost > b.lost || (a.lost == b.lost && a.group.slice <= b.group.slice)
    ));
    let most: Vec<usize> = [3, 2, 1].map(|n| order.iter().filter(|it| it.lost == n).count()).into();
    assert!(most.iter().all(|count| *count > 0), "{most:?}");
    // The same, counted stripe by stripe.
    let mut by_stripe = BTreeMap::new();
    for stripe in (0..map.stripe_count()).map(StripeNo) {
        let seat = map.seat(stripe);
        let strips = (0..8).map(StripIdx::from_at).map(|strip| map.place(seat, strip).member.0);
        let lost = strips.filter(|member| [3, 9, 12].contains(member)).count();
        if lost > 0 {
            by_stripe.insert(seat.group(), lost);
        }
    }
    let listed: BTreeMap<_, _> = order.iter().map(|it| (it.group, it.lost)).collect();
    assert_eq!(listed, by_stripe);
    assert_eq!(order.len(), listed.len());
}

#[test]
fn groups_beyond_parity_are_left_out_of_the_order_and_counted() {
    let map = Declustered::new(DeclusteredParts { rows: 100, ..parts(8, (4, 1), 2) }).expect("one");
    let table = losing(&map, &[0, 5]);
    let beyond = (0..map.slices()).flat_map(|slice| endangered_in(&map, &table, slice));
    let beyond = beyond.filter(|group| group.lost == 2).count();
    assert!(beyond > 0 && rebuild_order(&map, &table).all(|group| group.lost == 1));
    let load = RebuildLoad::count(&map, &[MemberIdx(0), MemberIdx(5)], 0..map.slices());
    assert_eq!(load.dead_strips, 2 * to_u64(beyond));
}

#[test]
fn a_rebuild_ends_with_nothing_endangered_and_spares_used_once() {
    let parts = DeclusteredParts { rows: 120, ..parts(13, (4, 2), 3) };
    let map = Declustered::new(parts).expect("a layout");
    let mut table = losing(&map, &[1, 7]);
    let mut targets = Vec::new();
    let order: Vec<_> = rebuild_order(&map, &table).collect();
    for group in order {
        for cell in (0..6).map(|position| map.cell_of(group.group, position)) {
            if let Whereabouts::LostTo(target) = table.whereabouts(&map, cell) {
                table.rebuilt(&map, cell, Settled).expect("it was lost");
                assert_eq!(table.whereabouts(&map, cell), Whereabouts::At(target));
                targets.push(target);
            }
        }
    }
    assert_eq!(rebuild_order(&map, &table).count(), 0);
    let count = targets.len();
    targets.sort_unstable();
    targets.dedup();
    assert_eq!(targets.len(), count, "two cells in one place");
}

/// A stripe at a time, by the public functions only: what a rebuild of all stripes does.
fn walked(map: &Declustered, table: &SpareTable) -> (Vec<u64>, Vec<u64>) {
    let members = map.parts().members;
    let (mut reads, mut writes) = (vec![0; members], vec![0; members]);
    for stripe in (0..map.stripe_count()).map(StripeNo) {
        let seat = map.seat(stripe);
        let mut lost = StripSet::EMPTY;
        for strip in (0..map.parts().width()).map(StripIdx::from_at) {
            let (cell, _) = map.cell_at(map.place(seat, strip)).expect("it has a cell");
            match table.whereabouts(map, cell) {
                Whereabouts::At(_) => continue,
                Whereabouts::LostTo(target) => writes[map.member(target).at()] += 1,
                Whereabouts::Lost => {}
            }
            lost = lost.with(strip);
        }
        if lost.is_empty() {
            continue;
        }
        let read = strips_to_read(map, stripe, lost);
        assert_eq!(read.count(), map.parts().data_strips);
        assert!(read.and(lost).is_empty());
        for strip in read.iter() {
            reads[map.place(seat, strip).member.at()] += 1;
        }
    }
    (reads, writes)
}

#[test]
fn counted_loads_are_those_of_a_walk_over_all_stripes() {
    for (members, code, spares, domain_members) in
        [(12, (4, 2), 2, 1), (24, (8, 2), 2, 1), (11, (4, 3), 1, 1), (28, (8, 2), 2, 2)]
    {
        for (cell_rows, lost) in [(1, &[5][..]), (7, &[5, 2][..]), (20, &[8, 3][..])] {
            let parts = DeclusteredParts {
                cell_rows,
                domain_members,
                rows: cell_rows * 150,
                ..parts(members, code, spares)
            };
            let map = Declustered::new(parts).expect("a layout");
            let (reads, writes) = walked(&map, &losing(&map, lost));
            let lost: Vec<MemberIdx> = lost.iter().copied().map(MemberIdx).collect();
            let load = RebuildLoad::count(&map, &lost, 0..map.slices());
            assert_eq!((&load.reads, &load.writes), (&reads, &writes), "{parts:?} {lost:?}");
            if spares >= lost.len() {
                assert_eq!(writes.iter().sum::<u64>(), load.lost_strips);
            }
        }
    }
}

#[test]
fn a_single_loss_reads_k_strips_for_each_lost_strip() {
    let map =
        Declustered::new(DeclusteredParts { rows: 5000, ..parts(42, (8, 2), 2) }).expect("one");
    let lost = MemberIdx(17);
    let load = RebuildLoad::count(&map, &[lost], 0..map.slices());
    assert_eq!(load.reads.iter().sum::<u64>(), 8 * load.lost_strips);
    let held = (0..map.parts().rows).map(|row| map.held(MemberRow { member: lost, row }));
    let strips = held.filter(|held| matches!(held, Held::Strip(..))).count();
    assert_eq!(load.lost_strips, to_u64(strips));
}

/// Whatever the step has in common with the number of members: multiples of it come back to where
/// they began.
#[test]
fn losses_that_are_spread_over_the_array_are_all_different() {
    for members in 4..=256_usize {
        for step in 1..=8_usize {
            for count in 0..=members.min(33) {
                let first = step * members / 8;
                let mut lost = losses_apart(members, first, step, count);
                lost.sort_unstable();
                lost.dedup();
                assert_eq!(lost.len(), count, "{members} members, {step} apart");
                assert!(lost.iter().all(|it| it.at() < members));
            }
        }
    }
}
