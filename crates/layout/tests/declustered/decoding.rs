//! Every pair and triple of losses to 24 members: each stripe loses at most as many strips as
//! members are lost, and the matrix of those that it loses can be inverted.

use std::collections::HashSet;

use ashlar_gf::matrix::{PARITY_ROWS, Square};
use ashlar_layout::declustered::Declustered;
use ashlar_units::{MemberIdx, StripIdx, StripSet, to_u64};

use crate::parts;

/// Whether the strips that are left give the lost data strips: the rows of as many parities as
/// data strips are lost, at the columns of the lost ones, can be inverted.
fn decodes(code: (usize, usize), lost: StripSet) -> bool {
    let data: Vec<usize> = lost.iter().map(StripIdx::at).filter(|at| *at < code.0).collect();
    let left = (0..code.1).filter(|row| !lost.contains(StripIdx::from_at(code.0 + row)));
    let rows: Vec<usize> = left.take(data.len()).collect();
    if rows.len() < data.len() {
        return false;
    }
    let mut square = Square::identity(data.len());
    for (at, row) in rows.iter().enumerate() {
        for (column, strip) in data.iter().enumerate() {
            square.set(at, column, PARITY_ROWS[*row][*strip]);
        }
    }
    square.invert().is_some()
}

/// By stripe of the first slices and by member, the strip that the member holds.
fn strips(map: &Declustered, slices: u64) -> Vec<Vec<Option<StripIdx>>> {
    let groups = (0..slices).flat_map(|slice| map.groups(slice));
    let held = |group| {
        let seat = map.seat(map.stripe_in(group, 0));
        let members = (0..map.parts().members).map(MemberIdx::from_at);
        members.map(|member| map.strip_on(seat, member)).collect()
    };
    groups.map(held).collect()
}

/// All sets of `count` members lost at the same time, in a layout.
fn all_losses(members: usize, code: (usize, usize), spares: usize, count: usize) -> usize {
    let map = Declustered::new(parts(members, code, spares)).expect("a layout");
    let strips = strips(&map, 2 * to_u64(members));
    let mut sets: HashSet<u64> = HashSet::new();
    let mut lost: Vec<usize> = (0..count).collect();
    loop {
        for on_member in &strips {
            let held = || lost.iter().filter_map(|member| on_member[*member]);
            let set: StripSet = held().collect();
            assert_eq!(set.count(), held().count(), "two members hold one strip");
            sets.insert(set.0);
        }
        // The next set of members, in the order of a dictionary.
        let Some(at) = (0..count).rev().find(|at| lost[*at] + count - at < members) else { break };
        let from = lost[at] + 1;
        for (step, member) in lost[at..].iter_mut().enumerate() {
            *member = from + step;
        }
    }
    for set in &sets {
        assert!(decodes(code, StripSet(*set)), "{members} members, {code:?}, lost {set:b}");
    }
    sets.len()
}

#[test]
fn every_pair_of_losses_to_24_members_decodes() {
    for members in 4..=24 {
        for width in (4..=members).step_by(2) {
            let spares = (members - width).min(2);
            let sets = all_losses(members, (width - 2, 2), spares, 2);
            assert!(sets > width, "{sets} sets of strips were lost of {width}");
        }
    }
}

#[test]
fn every_triple_of_losses_to_24_members_decodes() {
    for members in 6..=24 {
        for width in (5..=members.min(14)).step_by(3) {
            let spares = (members - width).min(2);
            all_losses(members, (width - 3, 3), spares, 3);
        }
    }
}

#[test]
fn a_loss_beyond_parity_is_seen_by_the_check() {
    assert!(!decodes((8, 2), StripSet::first(3)));
    assert!(decodes((8, 2), StripSet::first(2)));
    assert!(!decodes((8, 2), StripSet::range(7, 10)));
}
