//! Evenness: equalities where the number of members is prime, bounds where it is not.

use ashlar_layout::declustered::{Declustered, DeclusteredParts, RebuildLoad};
use ashlar_units::{MemberIdx, StripIdx, to_u64};

use crate::parts;
use crate::reference::Generator;

/// Stripes that each pair of members shares, in all slices of one shuffle.
fn shared(map: &Declustered, slices: u64) -> Vec<Vec<u64>> {
    let members = map.parts().members;
    let mut shared = vec![vec![0; members]; members];
    for group in (0..slices).flat_map(|slice| map.groups(slice)) {
        let seat = map.seat(map.stripe_in(group, 0));
        let strips = (0..map.parts().width()).map(StripIdx::from_at);
        let on: Vec<usize> = strips.map(|it| map.place(seat, it).member.at()).collect();
        for a in &on {
            for b in on.iter().filter(|b| *b != a) {
                shared[*a][*b] += 1;
            }
        }
    }
    shared
}

#[test]
fn each_pair_of_a_prime_number_of_members_shares_as_many_stripes() {
    for (members, code, spares) in [
        (11, (4, 2), 1),
        (13, (8, 2), 2),
        (17, (8, 2), 2),
        (23, (8, 2), 2),
        (41, (8, 2), 1),
        (43, (8, 3), 2),
    ] {
        let map = Declustered::new(parts(members, code, spares)).expect("a layout");
        let q = to_u64(members);
        let per_slice = to_u64(map.groups(0).count());
        let width = to_u64(code.0 + code.1);
        // In q(q-1) slices each ordered pair of columns meets each ordered pair of members once.
        let wanted = per_slice * width * (width - 1);
        for (a, row) in shared(&map, q * (q - 1)).into_iter().enumerate() {
            for (b, stripes) in row.into_iter().enumerate().filter(|(b, _)| *b != a) {
                assert_eq!(stripes, wanted, "members {a} and {b} of {members}");
            }
        }
    }
}

#[test]
fn each_spare_column_lies_equally_on_a_prime_number_of_members() {
    for (members, code, spares) in [(11, (4, 2), 1), (17, (8, 2), 2), (43, (8, 3), 2)] {
        let map = Declustered::new(parts(members, code, spares)).expect("a layout");
        let q = to_u64(members);
        let (cells, slices) = (map.cells() / map.slices(), q * (q - 1));
        for lost in 0..members {
            let load = RebuildLoad::count(&map, &[MemberIdx::from_at(lost)], 0..slices);
            let data_columns = q - to_u64(spares);
            for (member, writes) in load.writes.iter().enumerate() {
                let wanted = if member == lost { 0 } else { cells * data_columns };
                assert_eq!(*writes, wanted, "spare of {lost} on {member} of {members}");
            }
        }
    }
}

/// The worst ratios over some sets of losses: one, two, and critical stripes of two.
pub fn worst(map: &Declustered, slices: u64, sets: usize, seed: u64) -> [f64; 3] {
    let members = map.parts().members;
    let mut generator = Generator(seed);
    let mut worst = [0.0_f64; 3];
    for set in 0..sets {
        let first = if sets >= members { set % members } else { generator.below(members) };
        let second = (first + 1 + generator.below(members - 1)) % members;
        let one = RebuildLoad::count(map, &[MemberIdx::from_at(first)], 0..slices);
        let pair = [first, second].map(MemberIdx::from_at);
        let two = RebuildLoad::count(map, &pair, 0..slices);
        let found = [one.max_over_mean(), two.max_over_mean(), two.critical_max_over_mean()];
        for (worst, ratio) in worst.iter_mut().zip(found) {
            *worst = worst.max(ratio);
        }
    }
    worst
}

fn holds_from_1000_slices_a_member(members: &[usize], sets: usize) {
    for members in members {
        let spares = if *members > 106 { 4 } else { 2 };
        let layout = parts(*members, (8, 2), spares);
        let layout =
            DeclusteredParts { cell_rows: 256, rows: 1 << 40, strip_bytes: 4096, ..layout };
        let map = Declustered::new(layout).expect("a layout");
        let [one, two, critical] = worst(&map, 1000 * to_u64(*members), sets, 7);
        println!("{members}: {one:.4} {two:.4} {critical:.4}");
        assert!(one <= 1.02 && two <= 1.02, "{members} members: {one:.4}, {two:.4}");
        assert!(critical <= 1.10, "{members} members: critical {critical:.4}");
    }
}

#[test]
fn one_and_two_losses_stay_below_1_02_and_critical_below_1_10() {
    holds_from_1000_slices_a_member(&[14, 24, 42, 60, 90, 114, 128], 2);
}
