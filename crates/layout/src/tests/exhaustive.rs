//! Every strip and every byte of small arrays, from the volume to the members and back.

use std::collections::{HashMap, HashSet};

use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, StripIdx, StripeNo, to_u64};

use super::geometries;
use crate::{Geometry, LayoutEpoch, Piece, Place, Stripe, only_run, split, strips_of};

fn stripes(geometry: &Geometry) -> impl Iterator<Item = Stripe> {
    (0..geometry.stripe_count()).map(|number| geometry.stripe(StripeNo(number)))
}

fn strips(geometry: &Geometry) -> impl Iterator<Item = StripIdx> + use<> {
    geometry.all_strips().iter()
}

fn group_of(geometry: &Geometry, stripe: Stripe) -> usize {
    geometry.place(stripe, StripIdx(0)).member.at() / geometry.stripe_width()
}

fn members(geometry: &Geometry) -> impl Iterator<Item = MemberIdx> + use<> {
    (0..geometry.members()).map(MemberIdx::from_at)
}

#[test]
fn every_strip_has_one_place_and_every_place_one_strip() {
    for geometry in geometries::all() {
        let mut taken: HashMap<Place, (Stripe, StripIdx)> = HashMap::new();
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
            assert_eq!(used.len(), geometry.stripe_width(), "{} {stripe}", geometry.code_name());
            for member in members(&geometry) {
                let held = geometry.strip_on(stripe, member);
                assert_eq!(held.is_some(), used.contains(&member));
                let group = member.at() / geometry.stripe_width();
                assert_eq!(held.is_some(), group == group_of(&geometry, stripe));
            }
        }
    }
}

#[test]
fn every_row_of_every_member_holds_the_strip_that_is_placed_there() {
    for geometry in geometries::all() {
        let mut seen = HashSet::new();
        for member in members(&geometry) {
            for row in 0..geometry.rows() {
                let (stripe, strip) = geometry.strip_at(member, row).expect("no place is spare");
                let offset = row * geometry.strip_bytes();
                assert_eq!(geometry.place(stripe, strip), Place { member, offset });
                assert!(seen.insert((stripe, strip)));
            }
        }
        let strips = geometry.stripe_count() * to_u64(geometry.stripe_width());
        assert_eq!(to_u64(seen.len()), strips);
    }
}

/// For every small array and every set of up to three missing members.
#[test]
fn losses_are_what_counting_over_all_stripes_says() {
    for geometry in geometries::all() {
        let last = geometry.members() - 1;
        for missing in [vec![], vec![0], vec![0, 1], vec![0, last], vec![1, 2, last]] {
            let is_missing = |member: MemberIdx| missing.contains(&member.at());
            let lost = |stripe: Stripe| {
                let on = strips(&geometry).map(|strip| geometry.place(stripe, strip).member);
                on.filter(|member| is_missing(*member)).collect::<Vec<_>>()
            };
            let most = stripes(&geometry).map(|stripe| lost(stripe).len()).max().unwrap();
            assert_eq!(geometry.losses(is_missing), most, "{} {missing:?}", geometry.code_name());
            for member in members(&geometry) {
                let own = stripes(&geometry).filter(|at| geometry.strip_on(*at, member).is_some());
                let others = |stripe| lost(stripe).iter().filter(|at| **at != member).count();
                let beside = own.map(others).max().unwrap();
                assert_eq!(geometry.losses_beside(member, is_missing), beside);
            }
        }
    }
}

#[test]
fn stripes_of_two_geometries_are_never_the_same_and_neither_places_those_of_the_other() {
    for old in geometries::all() {
        let new = old.in_epoch(LayoutEpoch(1));
        let (one, other) = (old.stripe(StripeNo(0)), new.stripe(StripeNo(0)));
        assert_eq!(one.number(), other.number());
        assert_ne!(one, other);
        assert_ne!(one.id().word(), other.id().word());
        let mixed = std::panic::catch_unwind(|| new.place(one, StripIdx(0)));
        assert!(mixed.is_err(), "a stripe of another geometry has no place here");
    }
}

#[test]
fn consecutive_stripes_go_to_consecutive_groups() {
    for geometry in geometries::all() {
        let groups: Vec<usize> =
            stripes(&geometry).take(9).map(|stripe| group_of(&geometry, stripe)).collect();
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
        let turn = u64::try_from(geometry.stripe_width() * geometry.groups()).unwrap();
        for member in members(&geometry) {
            let parity = (0..turn)
                .filter_map(|at| geometry.strip_on(geometry.stripe(StripeNo(at)), member))
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
            let stripe = geometry.stripe(stripe);
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
fn sectors_of(geometry: &Geometry, extent: Extent) -> Vec<(Stripe, StripIdx, u64)> {
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
fn an_extent_in_one_strip_is_its_only_run() {
    for geometry in [geometries::coded(2, 1, 4096, 3), geometries::coded(1, 1, 4096, 5)] {
        let sector_count = geometry.volume_bytes() / 512;
        for start in 0..sector_count {
            for sectors in 0..=(sector_count - start).min(20) {
                let extent = Extent::new(start * 512, sectors * 512);
                let runs = |piece: Piece| {
                    strips_of(&geometry, piece.extent).map(move |run| (piece.stripe, run))
                };
                let mut runs = split(&geometry, extent).flat_map(runs);
                let only = runs.next().filter(|_| runs.next().is_none());
                assert_eq!(only_run(&geometry, extent), only, "{extent}");
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
