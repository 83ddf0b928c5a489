//! Failure domains: at most m strips of a stripe in an enclosure, before and after a rebuild.

use ashlar_layout::declustered::{
    Declustered, DeclusteredParts, DomainWish, Settled, SpareTable, Whereabouts, plan_domains,
    rebuild_order,
};
use ashlar_units::MemberIdx;

use crate::parts;

fn wish(enclosures: usize, drives_each: usize, code: (usize, usize), spares: usize) -> DomainWish {
    let (width, parity_strips) = (code.0 + code.1, code.1);
    DomainWish { enclosures, drives_each, width, parity_strips, spares }
}

#[test]
fn seven_enclosures_of_six_drives_hold_two_strips_each_of_8_plus_2() {
    let plan = plan_domains(&wish(7, 6, (8, 2), 2)).expect("it fits");
    assert_eq!((plan.domain_members, plan.strips_in_enclosure, plan.parity_left), (3, 2, 0));
    let plan = plan_domains(&wish(12, 5, (8, 2), 2)).expect("it fits");
    assert_eq!((plan.domain_members, plan.strips_in_enclosure, plan.parity_left), (5, 1, 1));
}

#[test]
fn enclosures_that_cannot_be_domains_are_refused_with_what_would_do() {
    for wish in [
        wish(4, 12, (8, 2), 0),
        wish(7, 5, (8, 2), 0),
        wish(0, 5, (2, 1), 0),
        wish(5, 0, (2, 1), 0),
        wish(3, usize::MAX, (8, usize::MAX - 8), usize::MAX),
    ] {
        let refused = plan_domains(&wish).expect_err("it does not fit").to_string();
        assert!(refused.contains("take narrower stripes, fewer spares or more domains"));
    }
}

/// All cells of all groups of some slices, with the members that hold them now.
fn holders(map: &Declustered, table: &SpareTable, slices: u64) -> Vec<Vec<MemberIdx>> {
    let groups = (0..slices).flat_map(|slice| map.groups(slice));
    let of = |group| {
        let width = u32::try_from(map.parts().width()).unwrap();
        let cells = (0..width).map(|position| map.cell_of(group, position));
        let held = cells.map(|cell| match table.whereabouts(map, cell) {
            Whereabouts::At(cell) | Whereabouts::LostTo(cell) => map.member(cell),
            Whereabouts::Lost => panic!("there is a spare column for each loss"),
        });
        held.collect()
    };
    groups.map(of).collect()
}

/// The most strips of a stripe in an enclosure of so many drives.
fn most_in_one(holders: &[Vec<MemberIdx>], drives_each: usize) -> usize {
    let count = |members: &Vec<MemberIdx>| {
        let mut enclosures: Vec<usize> = members.iter().map(|it| it.at() / drives_each).collect();
        enclosures.sort_unstable();
        enclosures.chunk_by(|a, b| a == b).map(<[usize]>::len).max().unwrap_or(0)
    };
    holders.iter().map(count).max().unwrap_or(0)
}

#[test]
fn no_enclosure_holds_more_than_planned_before_and_after_rebuilds_of_all_pairs() {
    for (enclosures, drives_each, code, spares) in
        [(7, 6, (8, 2), 2), (6, 4, (3, 2), 2), (5, 4, (2, 1), 2), (12, 2, (8, 2), 2)]
    {
        let plan = plan_domains(&wish(enclosures, drives_each, code, spares)).expect("it fits");
        let members = enclosures * drives_each;
        let parts = DeclusteredParts {
            domain_members: plan.domain_members,
            rows: 640,
            ..parts(members, code, spares)
        };
        let map = Declustered::new(parts).expect("a layout");
        let slices = map.slices().min(24);
        let healthy = holders(&map, &SpareTable::new(&map), slices);
        assert_eq!(most_in_one(&healthy, drives_each), plan.strips_in_enclosure);
        for first in 0..members {
            for second in (0..members).filter(|second| *second != first) {
                let mut table = SpareTable::new(&map);
                table.lose(&map, MemberIdx::from_at(first));
                table.lose(&map, MemberIdx::from_at(second));
                let rebuilt = holders(&map, &table, slices);
                assert!(most_in_one(&rebuilt, drives_each) <= plan.strips_in_enclosure);
                let lost = [first, second].map(MemberIdx::from_at);
                assert!(rebuilt.iter().flatten().all(|member| !lost.contains(member)));
            }
        }
    }
}

/// Members of a domain share a spare column: an enclosure of two domains takes both of them.
#[test]
fn a_lost_enclosure_finds_room_on_the_distributed_spares_of_others() {
    for (enclosures, drives_each, code) in [(7, 6, (8, 2)), (6, 4, (3, 2)), (5, 3, (2, 1))] {
        let plan = plan_domains(&wish(enclosures, drives_each, code, 2)).expect("it fits");
        let members = enclosures * drives_each;
        let parts = DeclusteredParts {
            domain_members: plan.domain_members,
            rows: 640,
            ..parts(members, code, 2)
        };
        let map = Declustered::new(parts).expect("a layout");
        for enclosure in 0..enclosures {
            let lost = (enclosure * drives_each..(enclosure + 1) * drives_each)
                .map(MemberIdx::from_at)
                .collect::<Vec<_>>();
            let mut table = SpareTable::new(&map);
            for member in &lost {
                table.lose(&map, *member);
            }
            let is_there = |member: MemberIdx| !lost.contains(&member);
            let places = holders(&map, &table, map.slices().min(24));
            assert!(places.iter().flatten().all(|member| is_there(*member)));
            assert!(most_in_one(&places, drives_each) <= plan.strips_in_enclosure);
            let most = table.most_lost(&map, |_| false, code.1);
            assert_eq!(most, plan.strips_in_enclosure, "until it is rebuilt");
            for due in rebuild_order(&map, &table.clone()) {
                for position in 0..u32::try_from(map.parts().width()).unwrap() {
                    let _ = table.rebuilt(&map, map.cell_of(due.group, position), Settled);
                }
            }
            assert_eq!(table.most_lost(&map, |_| false, code.1), 0, "all is on spares");
        }
    }
}
