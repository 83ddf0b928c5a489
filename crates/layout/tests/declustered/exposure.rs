//! How many losses stripes survive, against a count strip by strip.

use ashlar_layout::declustered::{
    Declustered, DeclusteredParts, Exposure, Settled, SpareTable, Whereabouts, rebuild_order,
};
use ashlar_units::{MemberIdx, StripIdx, StripeNo};

use crate::parts;
use crate::reference::Generator;

/// 3+2 on nine members; cells of two rows.
fn map() -> Declustered {
    let parts = DeclusteredParts { rows: 60, cell_rows: 2, ..parts(9, (3, 2), 2) };
    Declustered::new(parts).expect("a layout")
}

fn counted(map: &Declustered, table: &SpareTable, gone: &[MemberIdx]) -> Exposure {
    let mut sum = Exposure::none(map.parts().parity_strips);
    (0..map.slices()).for_each(|slice| sum.add(&table.exposure_of(map, slice, gone)));
    sum
}

/// Stripes by what they lack: none, one, two, more. Then those of them that cannot be rebuilt.
fn by_strips(map: &Declustered, table: &SpareTable, gone: &[MemberIdx]) -> ([u64; 4], [u64; 4]) {
    let (mut lacking, mut waiting) = ([0; 4], [0; 4]);
    for stripe in (0..map.stripe_count()).map(StripeNo) {
        let fates = (0..5).map(|strip| {
            let (cell, _) = map.cell_at(map.place(map.seat(stripe), StripIdx(strip))).unwrap();
            match table.whereabouts(map, cell) {
                Whereabouts::At(at) => (gone.contains(&map.member(at)), false),
                Whereabouts::LostTo(at) => (true, !gone.contains(&map.member(at))),
                Whereabouts::Lost => (true, false),
            }
        });
        let fates: Vec<(bool, bool)> = fates.collect();
        let lost = fates.iter().filter(|(is_lost, _)| *is_lost).count();
        lacking[lost.min(3)] += 1;
        let has_place = fates.iter().any(|(_, has_place)| *has_place);
        waiting[lost.min(3)] += u64::from(lost > 0 && !has_place);
    }
    (lacking, waiting)
}

#[test]
fn counts_of_slices_are_those_of_the_strips() {
    let (map, mut chance) = (map(), Generator(12_100));
    let (mut beyond, mut waiting) = (0, 0);
    for _ in 0..60 {
        let mut table = SpareTable::new(&map);
        for _ in 0..chance.below(5) {
            table.lose(&map, MemberIdx::from_at(chance.below(9)));
            let due: Vec<_> = rebuild_order(&map, &table).take(chance.below(60)).collect();
            for cell in due.iter().flat_map(|it| (0..5).map(|at| map.cell_of(it.group, at))) {
                let _ = table.rebuilt(&map, cell, Settled);
            }
        }
        let gone: Vec<MemberIdx> = match chance.below(3) {
            0 => vec![MemberIdx::from_at(chance.below(9))],
            _ => Vec::new(),
        };
        let (own, (lacking, stuck)) =
            (counted(&map, &table, &gone), by_strips(&map, &table, &gone));
        assert_eq!(own.by_left(), [lacking[2], lacking[1], lacking[0]]);
        assert_eq!(own.beyond(), lacking[3]);
        let worst = [2, 1].into_iter().find(|lost| lacking[*lost] > 0);
        let critical = own.critical();
        assert_eq!(critical.map(|it| 2 - it.left), worst);
        assert_eq!(critical.map(|it| it.waiting), worst.map(|lost| stuck[lost]));
        beyond += own.beyond();
        waiting += critical.map_or(0, |it| it.waiting);
    }
    assert!(beyond > 0 && waiting > 0, "{beyond} {waiting}");
}

#[test]
fn a_rebuilt_group_changes_the_counts_of_its_slice_alone() {
    let map = map();
    let mut table = SpareTable::new(&map);
    table.lose(&map, MemberIdx(2));
    table.lose(&map, MemberIdx(5));
    let mut kept = counted(&map, &table, &[]);
    for due in rebuild_order(&map, &table.clone()) {
        kept.subtract(&table.exposure_of(&map, due.group.slice, &[]));
        for cell in (0..5).map(|at| map.cell_of(due.group, at)) {
            let _ = table.rebuilt(&map, cell, Settled);
        }
        kept.add(&table.exposure_of(&map, due.group.slice, &[]));
        assert_eq!(kept, counted(&map, &table, &[]));
    }
    assert_eq!(kept.by_left(), [0, 0, map.stripe_count()]);
    assert_eq!(kept.critical(), None);
}
