//! There and back for every small layout, and for seeded ones up to 256 members.

use ashlar_layout::declustered::{Declustered, DeclusteredParts, Held, MemberRow};
use ashlar_units::{MemberIdx, StripIdx, StripeNo, to_u64};

use crate::parts;
use crate::reference::{Generator, Holds, Reference};

/// Compares a slice of the crate's map with the reference's, place by place and back.
fn compare(map: &Declustered, reference: &Reference, slice: u64) {
    let first_row = slice * reference.slice_rows();
    let (mut strips, width) = (0, map.parts().width());
    for (member, rows) in reference.slice(slice).into_iter().enumerate() {
        let member = MemberIdx::from_at(member);
        for (row, holds) in (first_row..).zip(rows) {
            let at = MemberRow { member, row };
            match (map.held(at), holds.unwrap()) {
                (Held::Strip(stripe, strip), Holds::Strip { stripe: number, strip: index }) => {
                    assert_eq!((stripe.0, strip.at()), (number, index), "{at:?}");
                    let seat = map.seat(stripe);
                    assert_eq!(map.place(seat, strip), at);
                    assert_eq!(map.strip_on(seat, member), Some(strip));
                    strips += 1;
                }
                (Held::Spare(spare), Holds::Spare(wanted)) => assert_eq!(spare, wanted),
                (held, wanted) => panic!("{at:?} of {:?}: {held:?}, {wanted:?}", map.parts()),
            }
        }
    }
    assert_eq!(strips, reference.slice_stripes() * to_u64(width));
}

fn compared(parts: DeclusteredParts, slices: &[u64]) {
    let map = Declustered::new(parts).expect("a layout");
    let reference = Reference::new(parts);
    for slice in slices {
        compare(&map, &reference, *slice);
    }
    strips_of_one_stripe(&map, slices);
}

/// No stripe twice on a member or in a domain, and no member claims a strip that it does not hold.
fn strips_of_one_stripe(map: &Declustered, slices: &[u64]) {
    for slice in slices {
        for group in map.groups(*slice) {
            let stripe = map.stripe_in(group, 0);
            let seat = map.seat(stripe);
            assert_eq!(seat.group(), group);
            let strips = (0..map.parts().width()).map(StripIdx::from_at);
            let members: Vec<MemberIdx> = strips.map(|it| map.place(seat, it).member).collect();
            let mut domains: Vec<usize> = members.iter().map(|it| map.domain_of(*it)).collect();
            domains.sort_unstable();
            domains.dedup();
            assert_eq!(domains.len(), map.parts().width(), "stripe {stripe} of {:?}", map.parts());
            for member in (0..map.parts().members).map(MemberIdx::from_at) {
                assert_eq!(map.strip_on(seat, member).is_some(), members.contains(&member));
            }
        }
    }
}

#[test]
fn every_layout_to_12_members_is_the_reference_in_a_whole_slice() {
    for members in 2..=12 {
        for width in 2..=members {
            for spares in 0..=(members - width).min(3) {
                let parity = 1 + (width + spares) % (width - 1).clamp(1, 3);
                let code = (width - parity, parity);
                let parts = DeclusteredParts { cell_rows: 3, ..parts(members, code, spares) };
                compared(parts, &[0, 1, 7, 1000]);
            }
        }
    }
}

#[test]
fn layouts_with_domains_are_the_reference_in_whole_slices() {
    for (domains, domain_members, code, spares) in [
        (14, 3, (8, 2), 2),
        (5, 2, (2, 1), 1),
        (7, 6, (3, 2), 1),
        (12, 5, (8, 2), 2),
        (2, 4, (1, 1), 0),
    ] {
        let parts = parts(domains * domain_members, code, spares);
        compared(DeclusteredParts { domain_members, cell_rows: 2, ..parts }, &[0, 1, 2, 77, 500]);
    }
}

#[test]
fn seeded_layouts_to_256_members_are_the_reference() {
    let mut generator = Generator(19);
    let mut widest = 0;
    for members in (13..=256).step_by(3).chain([251, 256]) {
        let width = 2 + generator.below(members.min(64) - 1);
        let spares = generator.below((members - width + 1).min(5));
        let parity = 1 + generator.below((width - 1).min(32));
        let slice = to_u64(generator.below(16_000));
        widest = widest.max(width);
        compared(parts(members, (width - parity, parity), spares), &[slice]);
    }
    assert!(widest > 55, "the widest stripe has {widest} strips");
}

#[test]
fn cells_of_16_mib_are_the_reference() {
    let parts = DeclusteredParts {
        cell_rows: 256,
        strip_bytes: 65_536,
        rows: 305_174_528,
        ..parts(42, (8, 2), 2)
    };
    compared(parts, &[0, 1_192_000]);
}

#[test]
fn rows_behind_the_last_whole_slice_are_unused() {
    // A slice takes 5 rows of cells: 12 data columns in stripes of 10.
    let parts = DeclusteredParts { cell_rows: 4, rows: 20 * 3 + 19, ..parts(14, (8, 2), 2) };
    let map = Declustered::new(parts).expect("a layout");
    assert_eq!((map.slices(), map.cells(), map.stripe_count()), (3, 15, 3 * 6 * 4));
    assert_eq!(map.volume_bytes(), 3 * 6 * 4 * 8 * 4096);
    let held = |row| map.held(MemberRow { member: MemberIdx(13), row });
    assert_ne!(held(59), Held::Unused);
    assert!((60..79).all(|row| held(row) == Held::Unused));
}

#[test]
fn the_largest_arrays_overflow_nowhere() {
    for (members, code, domain_members) in
        [(256, (32, 32), 1), (256, (62, 2), 1), (256, (2, 1), 64), (2, (1, 1), 1)]
    {
        let rows = (1 << 62) / (4096 * to_u64(members));
        let parts = DeclusteredParts { domain_members, rows, ..parts(members, code, 0) };
        let map = Declustered::new(parts).expect("a layout");
        let last = StripeNo(map.stripe_count() - 1);
        for strip in (0..parts.width()).map(StripIdx::from_at) {
            let at = map.place(map.seat(last), strip);
            assert_eq!(map.held(at), Held::Strip(last, strip));
        }
        let end = MemberRow { member: MemberIdx::from_at(members - 1), row: rows - 1 };
        assert!(matches!(map.held(end), Held::Unused | Held::Strip(..)));
    }
}

#[test]
#[should_panic(expected = "stripe 10486 of 10486")]
fn a_stripe_behind_the_last_one_is_a_bug() {
    let parts = DeclusteredParts { rows: 5243, ..parts(5, (1, 1), 1) };
    let map = Declustered::new(parts).expect("a layout");
    map.seat(StripeNo(map.stripe_count()));
}
