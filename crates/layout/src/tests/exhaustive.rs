//! Every strip and every byte of small arrays, from the volume to the members and back.

use std::collections::{HashMap, HashSet};

use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, StripIdx, StripeNo};

use super::geometries;
use crate::{Geometry, Place, split, strips_of};

fn stripes(geometry: &Geometry) -> impl Iterator<Item = StripeNo> + use<> {
    (0..geometry.stripe_count()).map(StripeNo)
}

fn strips(geometry: &Geometry) -> impl Iterator<Item = StripIdx> + use<> {
    geometry.all_strips().iter()
}

fn members(geometry: &Geometry) -> impl Iterator<Item = MemberIdx> + use<> {
    (0..geometry.members()).map(MemberIdx::from_at)
}

#[test]
fn every_strip_has_one_place_and_every_place_one_strip() {
    for geometry in geometries::all() {
        let mut taken: HashMap<Place, (StripeNo, StripIdx)> = HashMap::new();
        for stripe in stripes(&geometry) {
            for strip in strips(&geometry) {
                let place = geometry.place(stripe, strip);
                assert!(place.member.at() < geometry.members());
                let before = taken.insert(place, (stripe, strip));
                assert_eq!(before, None, "{} twice at {place:?}", geometry.code_name());
                assert_eq!(geometry.strip_on(stripe, place.member), Some(strip));
            }
        }
        for member in members(&geometry) {
            for row in 0..geometry.rows() {
                let offset = row * geometry.strip_bytes();
                assert!(taken.contains_key(&Place { member, offset }), "a hole in the data area");
            }
        }
        assert_eq!(
            taken.keys().map(|place| place.offset).max().unwrap() + geometry.strip_bytes(),
            geometry.member_bytes()
        );
    }
}

#[test]
fn a_stripe_uses_each_member_of_its_group_once_and_no_other() {
    for geometry in geometries::all() {
        for stripe in stripes(&geometry) {
            let used: HashSet<MemberIdx> =
                strips(&geometry).map(|strip| geometry.place(stripe, strip).member).collect();
            assert_eq!(used.len(), geometry.strips(), "{} {stripe}", geometry.code_name());
            for member in members(&geometry) {
                let held = geometry.strip_on(stripe, member);
                assert_eq!(held.is_some(), used.contains(&member));
                let group = member.at() / geometry.strips();
                assert_eq!(held.is_some(), group == geometry.group_of(stripe));
            }
        }
    }
}

#[test]
fn rows_and_stripes_agree_in_both_directions() {
    for geometry in geometries::all() {
        let by_row: Vec<StripeNo> =
            (0..geometry.rows()).flat_map(|row| geometry.stripes_of_row(row)).collect();
        assert_eq!(by_row, stripes(&geometry).collect::<Vec<_>>());
        for member in members(&geometry) {
            for row in 0..geometry.rows() {
                let stripe = geometry.stripe_on(member, row);
                assert_eq!(geometry.row_of(stripe), row);
                let strip = geometry.strip_on(stripe, member).expect("the stripe is on the member");
                let offset = row * geometry.strip_bytes();
                assert_eq!(geometry.place(stripe, strip), Place { member, offset });
            }
        }
    }
}

#[test]
fn consecutive_stripes_go_to_consecutive_groups() {
    for geometry in geometries::all() {
        let groups: Vec<usize> =
            stripes(&geometry).take(9).map(|stripe| geometry.group_of(stripe)).collect();
        let turns: Vec<usize> = (0..groups.len()).map(|at| at % geometry.groups()).collect();
        assert_eq!(groups, turns, "{}", geometry.code_name());
    }
}

#[test]
fn parity_spreads_evenly_over_the_members_of_a_group() {
    for geometry in geometries::all() {
        if geometry.data_strips() == 1 {
            continue;
        }
        // One full turn: as many rows as strips.
        let turn = u64::try_from(geometry.strips() * geometry.groups()).unwrap();
        for member in members(&geometry) {
            let parity = (0..turn)
                .filter_map(|stripe| geometry.strip_on(StripeNo(stripe), member))
                .filter(|strip| geometry.parity().contains(*strip))
                .count();
            assert_eq!(parity, geometry.parity_strips(), "{}", geometry.code_name());
        }
    }
}

#[test]
fn volume_offsets_cover_the_data_strips_exactly_once() {
    for geometry in geometries::all() {
        let mut seen = HashSet::new();
        for block in 0..geometry.volume_bytes() / BLOCK_BYTES {
            let (stripe, offset) = geometry.stripe_at(block * BLOCK_BYTES);
            assert!(offset < geometry.stripe_bytes());
            assert_eq!(geometry.stripe_start(stripe) + offset, block * BLOCK_BYTES);
            let run = strips_of(&geometry, Extent::new(offset, BLOCK_BYTES)).next().unwrap();
            assert!(geometry.data().contains(run.strip));
            let place = geometry.place(stripe, run.strip);
            assert!(seen.insert((place.member, place.offset + run.extent.offset)));
        }
        let data_blocks = geometry.stripe_count() * geometry.stripe_bytes() / BLOCK_BYTES;
        assert_eq!(u64::try_from(seen.len()).unwrap(), data_blocks);
    }
}

/// Where the sectors of a volume extent live, by `split` and `strips_of`, in request order.
fn sectors_of(geometry: &Geometry, extent: Extent) -> Vec<(StripeNo, StripIdx, u64)> {
    let mut found = Vec::new();
    let mut request_offset = 0;
    for piece in split(geometry, extent) {
        assert_eq!(piece.request_offset, request_offset);
        let mut piece_offset = 0;
        for run in strips_of(geometry, piece.extent) {
            assert_eq!(run.piece_offset, piece_offset);
            assert!(run.extent.bytes > 0 && run.extent.end() <= geometry.strip_bytes());
            for sector in 0..run.extent.bytes / 512 {
                found.push((piece.stripe, run.strip, run.extent.offset + sector * 512));
            }
            piece_offset += run.extent.bytes;
        }
        assert_eq!(piece_offset, piece.extent.bytes);
        request_offset += piece.extent.bytes;
    }
    assert_eq!(request_offset, extent.bytes);
    found
}

#[test]
fn every_extent_is_cut_into_touching_pieces_that_are_the_extent() {
    for geometry in [geometries::coded(2, 1, 4096, 3), geometries::coded(1, 1, 4096, 5)] {
        // The same walk, byte by byte, without any division: stripe, strip, sector.
        let mut walk = Vec::new();
        for stripe in stripes(&geometry) {
            for strip in geometry.data().iter() {
                walk.extend((0..geometry.strip_bytes() / 512).map(|at| (stripe, strip, at * 512)));
            }
        }
        for start in 0..=walk.len() {
            for end in start..=walk.len() {
                let bytes = |sectors: usize| u64::try_from(sectors).unwrap() * 512;
                let extent = Extent::new(bytes(start), bytes(end - start));
                assert_eq!(sectors_of(&geometry, extent), walk[start..end], "{extent}");
            }
        }
    }
}

#[test]
fn extents_are_cut_at_single_bytes_too() {
    let geometry = geometries::coded(2, 1, 4096, 2);
    let extent = Extent::new(4095, 4098);
    let pieces: Vec<_> = split(&geometry, extent).collect();
    assert_eq!(pieces.len(), 2);
    assert_eq!((pieces[0].extent, pieces[1].extent), (Extent::new(4095, 4097), Extent::new(0, 1)));
    let runs: Vec<_> = strips_of(&geometry, pieces[0].extent).collect();
    assert_eq!((runs[0].extent, runs[1].extent), (Extent::new(4095, 1), Extent::new(0, 4096)));
}

#[test]
#[should_panic(expected = "in a volume of")]
fn an_extent_past_the_volume_is_a_bug_of_the_caller() {
    let geometry = geometries::coded(2, 1, 4096, 2);
    split(&geometry, Extent::new(4096, geometry.volume_bytes()));
}
