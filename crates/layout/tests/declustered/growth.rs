//! Arrays that grow, at every frontier: the map against the reference, which cells move, and that
//! no stripe comes to lie twice on a member or in a domain.

use ashlar_layout::declustered::{
    CellMove, Declustered, DeclusteredError, DeclusteredParts, GROWTHS_MAX, GrowthAt, Held,
    MemberRow, RebuildLoad, SpareTable, Whereabouts,
};
use ashlar_layout::{Geometry, GeometryParts, Level, Spread, StripeId};
use ashlar_units::{MemberIdx, StripIdx, StripeNo, to_u64, to_usize};
use std::collections::BTreeSet;

use crate::grown_reference::table;
use crate::parts;
use crate::reference::{Generator, Holds};

/// The layout with rows for at least so many blocks of the last growth, and a tail.
pub fn with_cells(layout: DeclusteredParts, added: &[usize], blocks: u64) -> DeclusteredParts {
    let has_room = |rows: &u64| {
        let start = DeclusteredParts { rows: *rows, ..layout };
        let ends = added.iter().try_fold(start, |it, more| it.grown_by(*more)?.fully_grown());
        ends.is_ok()
    };
    let mut powers = (0..40).map(|power| layout.cell_rows << power);
    let rows = powers.find(has_room).expect("some number of rows does");
    DeclusteredParts { rows: rows * blocks + 3 * layout.cell_rows + 1, ..layout }
}

/// The map at the end of these growths.
pub fn grown(layout: DeclusteredParts, added: &[usize]) -> DeclusteredParts {
    added.iter().fold(layout, |layout, more| {
        let growing = layout.grown_by(*more).expect("it can grow");
        growing.fully_grown().expect("a layout")
    })
}

/// Compares every row of every member with the reference, there and back.
fn compare(map: &Declustered) {
    let table = table(map.parts());
    let mut strips = 0;
    for (member, rows) in table.iter().enumerate() {
        let member = MemberIdx::from_at(member);
        for (row, holds) in (0..).zip(rows) {
            let at = MemberRow { member, row };
            match (map.held(at), *holds) {
                (
                    Held::Strip(stripe, strip),
                    Some(Holds::Strip { stripe: number, strip: index }),
                ) => {
                    assert_eq!((stripe.0, strip.at()), (number, index), "{at:?} {:?}", map.parts());
                    assert_eq!(map.place(map.seat(stripe), strip), at);
                    assert_eq!(map.strip_on(map.seat(stripe), member), Some(strip));
                    strips += 1;
                }
                (Held::Spare(spare), Some(Holds::Spare(wanted))) => assert_eq!(spare, wanted),
                (Held::Unused, None) => {}
                (held, wanted) => panic!("{at:?} of {:?}: {held:?}, {wanted:?}", map.parts()),
            }
        }
    }
    assert_eq!(strips, map.stripe_count() * to_u64(map.parts().width()), "{:?}", map.parts());
    lies_apart(map);
}

/// No stripe twice in a domain, cells by group and number there and back, and nobody claims a strip
/// that lies elsewhere.
fn lies_apart(map: &Declustered) {
    for group in (0..map.slices()).flat_map(|slice| map.groups(slice)) {
        let stripe = map.stripe_in(group, 0);
        let seat = map.seat(stripe);
        assert_eq!(seat.group(), group);
        let strips = (0..map.parts().width()).map(StripIdx::from_at);
        let members: Vec<MemberIdx> = strips.map(|it| map.place(seat, it).member).collect();
        let domains: BTreeSet<usize> = members.iter().map(|it| map.domain_of(*it)).collect();
        assert_eq!(domains.len(), members.len(), "stripe {stripe} of {:?}", map.parts());
        for member in (0..map.members()).map(MemberIdx::from_at) {
            assert_eq!(map.strip_on(seat, member).is_some(), members.contains(&member));
        }
        for position in 0..u32::try_from(map.parts().width()).unwrap() {
            let cell = map.cell_of(group, position);
            let (member, number) = (map.member(cell), map.cell_number(cell));
            assert_eq!(map.numbered_cell(member, number), Some(cell));
            assert_eq!(map.cell(member, cell.slice, cell.cell_row), Some(cell));
        }
    }
}

/// The array at some frontiers of its growth, both ends among them; at all if it is small.
fn at_frontiers(start: DeclusteredParts, look: impl Fn(&Declustered)) {
    let map = Declustered::new(start).expect("a layout");
    let GrowthAt { end_cells, step_cells, .. } = map.growth().expect("it grows");
    let steps = end_cells / step_cells;
    let stride = if map.members() <= 5 { 1 } else { steps.div_ceil(5) };
    for step in (0..steps).step_by(to_usize(stride)).chain([steps]) {
        look(&map.moved_to(step * step_cells).expect("a frontier"));
    }
}

#[test]
fn every_small_pool_that_grows_is_the_reference_at_its_frontiers() {
    let mut pools = 0;
    for members in 3..=7 {
        for added in 1..=4 {
            for (code, spares) in [((1, 1), 1), ((2, 1), 0), ((2, 1), 1), ((3, 2), 1)] {
                if code.0 + code.1 + spares > members {
                    continue;
                }
                let layout = DeclusteredParts { cell_rows: 2, ..parts(members, code, spares) };
                let layout = with_cells(layout, &[added], 2);
                at_frontiers(layout.grown_by(added).expect("it can grow"), compare);
                pools += 1;
            }
        }
    }
    assert_eq!(pools, 64);
}

#[test]
fn every_small_pool_that_grows_twice_is_the_reference() {
    for members in 3..=5 {
        for (first, second) in [(1, 1), (1, 2), (2, 1), (3, 2)] {
            for (code, spares) in [((1, 1), 1), ((2, 1), 0), ((2, 1), 1)] {
                if code.0 + code.1 + spares > members {
                    continue;
                }
                let layout = with_cells(parts(members, code, spares), &[first, second], 1);
                let start = grown(layout, &[first]).grown_by(second).expect("it can grow");
                let map = Declustered::new(start).expect("a layout");
                let GrowthAt { end_cells, step_cells, .. } = map.growth().expect("it grows");
                for part in 0..=4 {
                    let cells = end_cells * part / 4 / step_cells * step_cells;
                    compare(&map.moved_to(cells).expect("a frontier"));
                }
            }
        }
    }
}

#[test]
fn enclosures_grow_by_whole_ones_and_no_stripe_lies_twice_in_a_domain() {
    for (domains, domain_members, code, added) in
        [(4, 2, (2, 1), 1), (5, 3, (2, 2), 2), (3, 2, (2, 1), 3)]
    {
        let members = domains * domain_members;
        let layout = DeclusteredParts { domain_members, ..parts(members, code, 0) };
        let added = [added * domain_members, domain_members];
        let layout = with_cells(layout, &added, 1);
        at_frontiers(layout.grown_by(added[0]).expect("it can grow"), compare);
        compare(&Declustered::new(grown(layout, &added)).expect("a layout"));
    }
}

#[test]
fn the_least_possible_data_moves_each_cell_once_and_only_to_new_members() {
    for (members, added, again) in [(42, 6, 5), (24, 4, 4), (42, 1, 3), (6, 9, 2), (41, 2, 1)] {
        let layout = with_cells(parts(members, (3, 2), 1), &[added, again], 1);
        let first = layout.grown_by(added).expect("it can grow");
        counted(first, (members, added));
        let second = grown(layout, &[added]).grown_by(again).expect("it can grow");
        counted(second, (members + added, again));
    }
}

fn counted(growing: DeclusteredParts, (members, added): (usize, usize)) {
    let map = Declustered::new(growing).expect("a layout");
    let GrowthAt { members_before, moved_cells, end_cells, step_cells } =
        map.growth().expect("it grows");
    assert_eq!((members_before, moved_cells, end_cells % step_cells), (members, 0, 0));
    let moves = map.moves(0..end_cells);
    let all = members + added;
    // Of the cells that there are, A of P + A.
    assert_eq!(to_u64(moves.len() * all), end_cells * to_u64(members * added));
    assert!(moves.iter().all(|it| it.from.at() < members && (members..all).contains(&it.to.at())));
    let sources: BTreeSet<_> = moves.iter().map(|it| (it.from, it.number)).collect();
    let targets: BTreeSet<_> = moves.iter().map(|it| (it.to, it.number)).collect();
    assert_eq!((sources.len(), targets.len()), (moves.len(), moves.len()));
    let end = map.moved_to(end_cells).expect("the end");
    // What moved is where it went, and everything else where it was.
    let end_of_old = Declustered::new(growing.fully_grown().expect("a layout")).expect("a layout");
    assert_eq!(end, end_of_old);
    for CellMove { number, from, to } in moves.into_iter().step_by(7) {
        let cell = map.numbered_cell(from, to_usize(number)).expect("it has content");
        assert_eq!((end.member(cell), end.cell_number(cell)), (to, to_usize(number)));
    }
}

/// A member that comes is in no column of the slices that cells come from: who looks for it there
/// does not come back, if the number of members before is no prime.
#[test]
fn each_cell_is_asked_where_it_goes_and_new_members_give_none_away() {
    for (members, added) in (5..20).flat_map(|members| (1..5).map(move |added| (members, added))) {
        let start = with_cells(parts(members, (2, 1), 1), &[added], 1);
        let map = Declustered::new(start.grown_by(added).expect("it can grow")).expect("a layout");
        let end = map.growth().expect("it grows").end_cells;
        let moves: BTreeSet<_> =
            map.moves(0..end).into_iter().map(|it| (it.from.at(), it.number, it.to)).collect();
        for member in (0..members + added).map(MemberIdx::from_at) {
            for number in 0..end {
                let wanted = moves.range((member.at(), number, MemberIdx(0))..).next();
                let wanted = wanted.filter(|it| (it.0, it.1) == (member.at(), number));
                let case = format!("{members} + {added}: cell {number} of {member}");
                assert_eq!(map.target_of(member, number), wanted.map(|it| it.2), "{case}");
            }
        }
    }
}

#[test]
fn old_stripes_stay_on_members_that_do_not_give_them_away() {
    let layout = with_cells(parts(9, (3, 1), 1), &[2], 2);
    let start = Declustered::new(layout.grown_by(2).expect("it can grow")).expect("a layout");
    let end_cells = start.growth().expect("it grows").end_cells;
    let end = start.moved_to(end_cells).expect("the end");
    let moves: BTreeSet<_> =
        start.moves(0..end_cells).into_iter().map(|it| (it.from, it.number)).collect();
    for number in 0..start.stripe_count() {
        let stripe = StripeNo(number);
        for strip in (0..4).map(StripIdx::from_at) {
            let [before, after] = [&start, &end].map(|map| map.place(map.seat(stripe), strip));
            assert_eq!(before.row, after.row);
            let moved = moves.contains(&(before.member, before.row / layout.cell_rows));
            assert_eq!(before.member != after.member, moved);
        }
    }
}

#[test]
fn a_pool_opens_its_new_stripes_at_the_end_of_the_growth_behind_the_old_ones() {
    let layout = DeclusteredParts { rows: 48 * 40, ..parts(42, (8, 2), 2) };
    let old = Declustered::new(layout).expect("a layout");
    let growing = Declustered::new(layout.grown_by(6).expect("it can grow")).expect("a layout");
    assert_eq!(growing.volume_bytes(), old.volume_bytes());
    let GrowthAt { end_cells, step_cells, .. } = growing.growth().expect("it grows");
    let late = growing.moved_to(end_cells - step_cells).expect("a frontier");
    assert_eq!((late.volume_bytes(), late.members()), (old.volume_bytes(), 48));
    let end = late.moved_to(end_cells).expect("the end");
    // 8 blocks of 48 units of five cells, each opening 30 rows of 46 data cells.
    assert_eq!(end.volume_bytes() - old.volume_bytes(), 8 * 30 * 46 / 10 * 8 * 4096);
    assert_eq!(end.growth(), None);
    let ratio = end.volume_bytes() as f64 / old.volume_bytes() as f64;
    assert!((1.135..1.145).contains(&ratio), "{ratio}");
}

#[test]
fn seeded_pools_to_256_members_are_there_and_back_at_any_frontier() {
    let mut generator = Generator(1913);
    let mut largest = 0;
    for _ in 0..60 {
        let members = 5 + generator.below(230);
        let width = 2 + generator.below(members.min(24) - 3);
        let added = [0; 2].map(|_| 1 + generator.below(12));
        let layout = DeclusteredParts {
            cell_rows: 3,
            rows: 1 << 38,
            ..parts(members, (width - 1, 1), generator.below(3).min(members - width))
        };
        let Ok(start) = grown(layout, &added[..1]).grown_by(added[1]) else { continue };
        let map = Declustered::new(start).expect("a layout");
        let GrowthAt { end_cells, step_cells, .. } = map.growth().expect("it grows");
        let steps = to_usize(end_cells / step_cells);
        for frontier in [0, generator.below(steps), steps] {
            let map = map.moved_to(to_u64(frontier) * step_cells).expect("a frontier");
            there_and_back(&map, &mut generator);
        }
        largest = largest.max(map.members());
    }
    assert!(largest > 230, "the largest has {largest} members");
}

fn there_and_back(map: &Declustered, generator: &mut Generator) {
    let count = map.stripe_count();
    for nth in 0..40 {
        let random = generator.below(to_usize(count));
        let stripe = StripeNo([0, count - 1].get(nth).copied().unwrap_or(to_u64(random)));
        let seat = map.seat(stripe);
        let mut members = BTreeSet::new();
        for strip in (0..map.parts().width()).map(StripIdx::from_at) {
            let at = map.place(seat, strip);
            assert_eq!(map.held(at), Held::Strip(stripe, strip));
            assert_eq!(map.strip_on(seat, at.member), Some(strip));
            members.insert(at.member);
        }
        assert_eq!(members.len(), map.parts().width());
    }
    for _ in 0..40 {
        let member = MemberIdx::from_at(generator.below(map.members()));
        let row = to_u64(generator.below(to_usize(map.parts().rows)));
        let at = MemberRow { member, row };
        if let Held::Strip(stripe, strip) = map.held(at) {
            assert_eq!(map.place(map.seat(stripe), strip), at);
        }
    }
}

#[test]
fn a_geometry_places_strips_as_the_map_of_the_grown_pool_does() {
    let layout = grown(with_cells(parts(9, (3, 2), 1), &[3, 2], 1), &[3, 2]);
    let map = Declustered::new(layout).expect("a layout");
    let DeclusteredParts { members, domain_members, spare_columns, cell_rows, seed, .. } = layout;
    let growths = layout.growths;
    let spread = Spread { members, domain_members, spare_columns, cell_rows, seed, growths };
    let geometry = Geometry::from_parts(GeometryParts {
        level: Level::Raid6,
        data_strips: 3,
        parity_strips: 2,
        groups: 1,
        strip_bytes: 4096,
        rows: layout.rows,
        layout_version: 2,
        spread: Some(spread),
    })
    .expect("a geometry");
    assert_eq!(geometry.parts().spread, Some(spread));
    assert_eq!((geometry.stripe_count(), geometry.members()), (map.stripe_count(), 14));
    for number in (0..geometry.stripe_count()).step_by(3).map(StripeNo) {
        let stripe = geometry.stripe(number);
        assert_eq!(stripe.id(), StripeId::new(geometry.epoch(), number));
        for strip in (0..5).map(StripIdx::from_at) {
            let (place, at) = (geometry.place(stripe, strip), map.place(map.seat(number), strip));
            assert_eq!((place.member, place.offset), (at.member, at.row * 4096));
            assert_eq!(geometry.strip_on(stripe, at.member), Some(strip));
            assert_eq!(geometry.strip_at(at.member, at.row), Some((stripe, strip)));
        }
    }
}

#[test]
fn cells_of_lost_members_find_distinct_healthy_places_in_a_grown_pool() {
    let layout = with_cells(parts(7, (2, 2), 2), &[2, 1], 1);
    let growing = grown(layout, &[2]).grown_by(1).expect("it can grow");
    let map = Declustered::new(growing).expect("a layout");
    let half = map.growth().expect("it grows");
    let half = half.end_cells / 2 / half.step_cells * half.step_cells;
    for map in [map, map.moved_to(half).expect("a frontier")] {
        for lost in (0..10).flat_map(|a| (0..10).map(move |b| [a, b])).filter(|it| it[0] != it[1]) {
            let mut table = SpareTable::new(&map);
            let lost = lost.map(MemberIdx::from_at);
            for member in lost {
                table.lose(&map, member);
            }
            for group in (0..map.slices()).step_by(11).flat_map(|slice| map.groups(slice)) {
                let places = (0..4).map(|at| table.whereabouts(&map, map.cell_of(group, at)));
                let places: BTreeSet<MemberIdx> = places
                    .map(|place| match place {
                        Whereabouts::At(cell) | Whereabouts::LostTo(cell) => map.member(cell),
                        Whereabouts::Lost => panic!("there is a spare column for each loss"),
                    })
                    .collect();
                assert_eq!(places.len(), 4, "{group:?} without {lost:?}");
                assert!(lost.iter().all(|member| !places.contains(member)));
            }
        }
    }
}

#[test]
fn rebuilds_of_a_grown_pool_use_its_members_almost_evenly() {
    for (members, added, most) in [(42, 6, 1.06), (24, 4, 1.06), (42, 1, 1.06)] {
        let after = to_u64(members + added);
        let layout = DeclusteredParts { rows: after * 2000, ..parts(members, (8, 2), 2) };
        let map = Declustered::new(grown(layout, &[added])).expect("a layout");
        let load = RebuildLoad::count(&map, &[MemberIdx(5)], 0..map.slices());
        assert!(load.max_over_mean() <= most, "{members}+{added}: {}", load.max_over_mean());
    }
}

fn refusal(of: Result<DeclusteredParts, DeclusteredError>) -> String {
    of.expect_err("it cannot grow so").to_string()
}

#[test]
fn growths_that_cannot_be_are_refused_in_a_line_that_says_what_would_do() {
    let layout = with_cells(parts(5, (2, 1), 1), &[1, 1], 1);
    let growing = layout.grown_by(1).expect("it can grow");
    assert!(refusal(growing.grown_by(1)).contains("growing already"));
    let twice = grown(layout, &[1, 1]);
    assert!(refusal(twice.grown_by(1)).contains("grown twice, which is the most"));
    assert!(refusal(layout.grown_by(0)).contains("no whole failure domains"));
    assert!(refusal(layout.grown_by(252)).contains("takes 2 to 256 members and got 257"));
    let small = DeclusteredParts { rows: 12, ..layout };
    assert!(refusal(small.grown_by(1)).contains("each drive has 12 cells"));
    let domains = DeclusteredParts { domain_members: 2, rows: 1 << 20, ..parts(8, (2, 1), 0) };
    assert!(refusal(domains.grown_by(3)).contains("no whole failure domains of 2"));
    assert!(domains.grown_by(4).is_ok());
}

#[test]
fn records_of_growths_that_no_program_writes_are_refused() {
    let twice = grown(with_cells(parts(5, (2, 1), 1), &[1, 2], 1), &[1, 2]);
    let with = |change: fn(&mut DeclusteredParts)| {
        let mut wrong = twice;
        change(&mut wrong);
        Declustered::new(wrong).expect_err("no layout").to_string()
    };
    fn growth(
        parts: &mut DeclusteredParts,
        at: usize,
    ) -> &mut ashlar_layout::declustered::GrowthParts {
        parts.growths[at].as_mut().expect("it has two")
    }
    assert!(
        with(|it| it.growths[0] = None).contains("growth 2 of the array cannot be: it has none")
    );
    assert!(with(|it| growth(it, 0).members_before = 0).contains("need 4 members and there are 0"));
    assert!(with(|it| growth(it, 1).members_before = 8).contains("growth 2 of the array cannot"));
    assert!(with(|it| growth(it, 1).members_before = 5).contains("growth 1 of the array cannot"));
    assert!(with(|it| growth(it, 0).members_before = usize::MAX).contains("adds no members"));
    assert!(with(|it| growth(it, 1).moved_cells += 1).contains("behind the last block"));
    assert!(with(|it| growth(it, 1).moved_cells -= 1).contains("within a unit"));
    assert!(with(|it| growth(it, 0).moved_cells = 0).contains("growth 2 of the array cannot"));
    assert!(with(|it| it.rows = 9).contains("moves"));
    let map = Declustered::new(DeclusteredParts { growths: [None; GROWTHS_MAX], ..twice });
    assert!(map.expect("a layout").moved_to(0).is_err(), "it does not grow");
}
