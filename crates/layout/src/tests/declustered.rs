//! Declustered arrays as [`Geometry`] answers for them; the map itself has tests of its own.

use std::collections::{HashMap, HashSet};

use ashlar_units::{Extent, MemberIdx, StripIdx, StripSet, StripeNo, to_u64};

use crate::declustered::{DECLUSTERED_SEED, DECLUSTERED_VERSION};
use crate::{
    DeclusteredShape, Geometry, GeometryParts, LAYOUT_VERSION, Level, Place, Shape, Spread, Stripe,
    StripeView, plan_decode, split,
};

fn shape(level: Level, members: usize, stripe_width: usize, spare_columns: usize) -> Shape {
    let cell_bytes = Some(3 * 8192);
    Shape {
        level,
        members,
        parity: (level == Level::NPlusM).then_some(4),
        group_members: None,
        strip_bytes: 8192,
        declustered: Some(DeclusteredShape {
            domain_members: 1,
            stripe_width,
            spare_columns,
            cell_bytes,
        }),
    }
}

/// Small ones with and without spare columns, primes and others, narrow and as wide as the array;
/// some have rows behind the last slice.
fn all() -> Vec<Geometry> {
    let found = [
        (shape(Level::Raid5, 4, 3, 0), 40),
        (shape(Level::Raid5, 5, 3, 1), 70),
        (shape(Level::Raid6, 7, 5, 0), 100),
        (shape(Level::Raid6, 9, 5, 1), 50),
        (shape(Level::Raid6, 10, 10, 0), 31),
        (shape(Level::Raid7, 11, 6, 2), 150),
        (shape(Level::NPlusM, 12, 7, 1), 64),
    ];
    found.map(|(shape, rows)| Geometry::new(&shape, rows).expect("an array")).into()
}

fn stripes(geometry: &Geometry) -> impl Iterator<Item = Stripe> {
    (0..geometry.stripe_count()).map(|number| geometry.stripe(StripeNo(number)))
}

fn members(geometry: &Geometry) -> impl Iterator<Item = MemberIdx> + use<> {
    (0..geometry.members()).map(MemberIdx::from_at)
}

#[test]
fn every_strip_has_a_place_of_its_own_and_every_place_knows_its_strip() {
    for geometry in all() {
        let mut taken: HashMap<Place, (Stripe, StripIdx)> = HashMap::new();
        for stripe in stripes(&geometry) {
            let mut used = HashSet::new();
            for strip in geometry.all_strips().iter() {
                let place = geometry.place(stripe, strip);
                assert!(place.offset < geometry.member_bytes());
                assert_eq!(taken.insert(place, (stripe, strip)), None);
                assert_eq!(geometry.strip_on(stripe, place.member), Some(strip));
                assert!(used.insert(place.member), "{stripe} is twice on {}", place.member);
            }
            let holders = members(&geometry).filter(|it| geometry.strip_on(stripe, *it).is_some());
            assert_eq!(holders.count(), geometry.stripe_width());
        }
        let mut empty = 0;
        for member in members(&geometry) {
            for row in 0..geometry.rows() {
                let place = Place { member, offset: row * geometry.strip_bytes() };
                assert_eq!(geometry.strip_at(member, row), taken.get(&place).copied());
                empty += usize::from(!taken.contains_key(&place));
            }
        }
        let spares = geometry.parts().spread.expect("declustered").spare_columns;
        assert!(spares == 0 || empty > 0, "{}", geometry.code_name());
    }
}

#[test]
fn members_change_from_stripe_to_stripe() {
    for geometry in all().iter().filter(|it| it.members() > it.stripe_width()) {
        let of = |stripe: Stripe| -> Vec<MemberIdx> {
            members(geometry).filter(|it| geometry.strip_on(stripe, *it).is_some()).collect()
        };
        let sets: HashSet<Vec<MemberIdx>> = stripes(geometry).map(of).collect();
        assert!(sets.len() > 2, "{} sets of members", sets.len());
        let members: HashSet<MemberIdx> = sets.into_iter().flatten().collect();
        assert_eq!(members.len(), geometry.members(), "each has some stripe");
    }
}

/// Never less than some stripe lacks, and no more than are missing.
#[test]
fn losses_are_at_least_what_the_worst_stripe_lacks() {
    for geometry in all() {
        let last = geometry.members() - 1;
        let mut sets = geometry.failure_sets();
        assert_eq!((sets.next(), sets.next()), (Some(0..geometry.members()), None));
        for missing in [vec![], vec![0], vec![0, 1], vec![0, last], vec![1, 2, last]] {
            let is_missing = |member: MemberIdx| missing.contains(&member.at());
            let lacks = |stripe: Stripe| {
                let strips = geometry.all_strips().iter();
                strips.filter(|strip| is_missing(geometry.place(stripe, *strip).member)).count()
            };
            let most = stripes(&geometry).map(lacks).max().unwrap_or(0);
            assert!((most..=missing.len()).contains(&geometry.losses(is_missing)));
            let beside = geometry.losses_beside(MemberIdx(1), is_missing);
            assert_eq!(beside, missing.iter().filter(|at| **at != 1).count());
        }
    }
}

/// Any members up to the parity strips are lost: what is left decodes every stripe.
#[test]
fn every_pair_of_losses_decodes() {
    for geometry in all().iter().filter(|it| it.parity_strips() >= 2) {
        for one in members(geometry) {
            for two in members(geometry).filter(|two| *two > one) {
                for stripe in stripes(geometry).take(200) {
                    let on = |member| geometry.strip_on(stripe, member);
                    let lost: StripSet = [on(one), on(two)].into_iter().flatten().collect();
                    let view = StripeView::healthy(geometry).without(lost);
                    let sources = plan_decode(geometry, lost, &view).expect("decodable");
                    assert!(sources.and(lost).is_empty() && sources.count() <= 64);
                }
            }
        }
    }
}

#[test]
fn the_volume_is_cut_into_stripes_without_gaps() {
    for geometry in all() {
        let whole = Extent::new(0, geometry.volume_bytes());
        let mut next = 0;
        for (number, piece) in (0..).zip(split(&geometry, whole)) {
            assert_eq!(piece.stripe.number(), StripeNo(number));
            assert_eq!(piece.request_offset, next);
            assert_eq!(geometry.stripe_at(next), (StripeNo(number), 0));
            assert_eq!(geometry.stripe_start(piece.stripe), next);
            next += piece.extent.bytes;
        }
        assert_eq!(next, geometry.volume_bytes());
        assert_eq!(next, geometry.stripe_count() * geometry.stripe_bytes());
    }
}

#[test]
fn parts_give_the_same_geometry_back_and_damaged_ones_are_refused() {
    for geometry in all() {
        let good = geometry.parts();
        assert_eq!(Geometry::from_parts(good), Ok(geometry));
        assert_eq!(good.stripe_count(), geometry.stripe_count());
        assert_eq!((good.groups, good.layout_version), (1, DECLUSTERED_VERSION));
        let spread = good.spread.expect("declustered");
        let spreads = [
            Spread { members: good.data_strips, ..spread },
            Spread { members: 257, ..spread },
            Spread { domain_members: 0, ..spread },
            Spread { domain_members: spread.members, ..spread },
            Spread { spare_columns: usize::MAX, ..spread },
            Spread { cell_rows: 0, ..spread },
            Spread { cell_rows: 4096, ..spread },
            Spread { seed: DECLUSTERED_SEED + 1, ..spread },
        ];
        let damaged = spreads.map(|spread| GeometryParts { spread: Some(spread), ..good });
        for damaged in damaged.into_iter().chain([
            GeometryParts { layout_version: LAYOUT_VERSION, ..good },
            GeometryParts { spread: None, ..good },
            GeometryParts { groups: 2, ..good },
            GeometryParts { level: Level::Raid0, ..good },
            GeometryParts { level: Level::Raid1, ..good },
            GeometryParts { level: Level::Raid60, ..good },
            GeometryParts { rows: 2, ..good },
            GeometryParts { rows: u64::MAX, ..good },
            GeometryParts { strip_bytes: 12_288, ..good },
            GeometryParts { data_strips: usize::MAX, ..good },
        ]) {
            assert!(Geometry::from_parts(damaged).is_err(), "{damaged:?}");
        }
    }
}

/// 2+2 over twelve members in domains of three: every set of members that may be missing. What is
/// said to be lost is lost by some stripe, and no stripe lacks more.
#[test]
fn members_of_a_failure_domain_count_once_however_many_are_missing() {
    let shape = shape(Level::Raid6, 12, 4, 0);
    let declustered = shape.declustered.map(|own| DeclusteredShape { domain_members: 3, ..own });
    let geometry = Geometry::new(&Shape { declustered, ..shape }, 600).expect("an array");
    let places: Vec<Vec<MemberIdx>> = stripes(&geometry)
        .map(|stripe| {
            geometry.all_strips().iter().map(|strip| geometry.place(stripe, strip).member).collect()
        })
        .collect();
    for missing in 0u32..1 << 12 {
        let is_missing = |member: MemberIdx| missing >> member.0 & 1 == 1;
        let lacks = |own: &Vec<MemberIdx>| own.iter().filter(|it| is_missing(**it)).count();
        let most = places.iter().map(lacks).max();
        assert_eq!(Some(geometry.losses(is_missing)), most, "{missing:b}");
        let with_4 = places.iter().filter(|own| own.contains(&MemberIdx(4)));
        let beside = |own: &Vec<MemberIdx>| lacks(own) - usize::from(is_missing(MemberIdx(4)));
        let most = with_4.map(beside).max();
        assert_eq!(Some(geometry.losses_beside(MemberIdx(4), is_missing)), most, "{missing:b}");
    }
}

#[test]
fn shapes_that_cannot_be_are_refused_in_one_line() {
    let good = shape(Level::Raid6, 12, 10, 2);
    assert_eq!(
        Geometry::smallest(&good).expect("an array").code_name(),
        "raid6 8+2 declustered over 12"
    );
    let spread = good.declustered.expect("declustered");
    let wider = DeclusteredShape { domain_members: 1, stripe_width: 11, ..spread };
    for (wrong, says) in [
        (Shape { level: Level::Raid10, ..good.clone() }, "cannot be declustered"),
        (Shape { level: Level::Raid0, ..good.clone() }, "cannot be declustered"),
        (Shape { level: Level::Raid60, ..good.clone() }, "cannot be declustered"),
        (Shape { group_members: Some(6), ..good.clone() }, "has no groups"),
        (Shape { parity: Some(3), ..good.clone() }, "has 2 parity strips"),
        (Shape { level: Level::NPlusM, ..good.clone() }, "needs the number of parity strips"),
        (Shape { members: 300, ..good.clone() }, "takes 2 to 256 members"),
        (Shape { declustered: Some(wider), ..good.clone() }, "need 13 members and there are 12"),
        (Shape { strip_bytes: 100, ..good.clone() }, "a power of two"),
    ] {
        let said = Geometry::smallest(&wrong).expect_err(says).to_string();
        assert!(said.contains(says) && !said.contains('\n'), "{said}");
    }
}

#[test]
fn the_smallest_array_has_one_slice() {
    for geometry in all() {
        let unit = geometry.parts().row_unit();
        let one = Geometry::from_parts(GeometryParts { rows: unit, ..geometry.parts() });
        let slices = geometry.rows() / unit;
        assert_eq!(one.expect("a slice").stripe_count() * slices, geometry.stripe_count());
        let less = GeometryParts { rows: unit - 1, ..geometry.parts() };
        assert!(Geometry::from_parts(less).is_err());
        assert_eq!(to_u64(geometry.groups()), 1);
    }
}
