//! Superblocks of declustered arrays: layout version 2.

use ashlar_ondisk::assembly::{
    AssemblyRequest, MemberReading, ReadLabel, RefusalKind, Start, assemble,
};
use ashlar_ondisk::examine::Examination;
use ashlar_ondisk::{
    AreaPlan, AreaRequest, Areas, EnclosureKind, EnclosureRecord, Features, GeometryRecord,
    MemberEntry, PlanFault, Role, SpreadRecord, Superblock, SuperblockFault, Text,
};
use ashlar_units::{Extent, MemberIdx};
use proptest::prelude::*;

use crate::samples::{DEVICE_BYTES, array, geometry, member_uuid, reading, readings, serial};

/// k+m over `members`, cells of four strips.
pub fn record((k, m): (u16, u16), members: u16, spare_columns: u16) -> GeometryRecord {
    let spread = SpreadRecord {
        members,
        domain_members: 1,
        spare_columns,
        cell_rows: 4,
        seed: 20_261_123,
        growths: [None; 2],
    };
    GeometryRecord { layout_version: 2, spread: Some(spread), ..geometry(k, m, 1) }
}

/// 4+2 over nine members, one of the columns spare.
pub fn declustered() -> Superblock {
    let request = AreaRequest {
        written_map_places: 1,
        ..AreaRequest::new(GeometryRecord { level: 6, ..record((4, 2), 9, 1) })
    };
    let plan = AreaPlan::for_member(&request, DEVICE_BYTES).expect("fits");
    let entry = |slot| {
        MemberEntry::new(member_uuid(slot), MemberIdx(slot), Role::Active)
            .on_device(DEVICE_BYTES, Text::cut(&serial(slot)))
    };
    Superblock {
        features: Features { incompatible: Features::DECLUSTERED, ..Features::NONE },
        geometry: plan.geometry,
        region_bytes: plan.region_bytes,
        // As arrays have it whose spare columns stay empty.
        areas: Areas { spare_states: Extent::default(), ..plan.areas },
        members: (0..9).map(entry).collect(),
        ..array(4, 2, 1)
    }
}

/// 4+2 over 12 members: three enclosures of two domains of two members.
pub fn in_enclosures() -> Superblock {
    let spread = record((4, 2), 12, 0).spread;
    let spread = spread.map(|spread| SpreadRecord { domain_members: 2, ..spread });
    let request = AreaRequest::new(GeometryRecord { level: 6, spread, ..record((4, 2), 12, 0) });
    let plan = AreaPlan::for_member(&request, DEVICE_BYTES).expect("fits");
    let members = (0..12).map(|slot| {
        MemberEntry::new(member_uuid(slot), MemberIdx(slot), Role::Active)
            .on_device(DEVICE_BYTES, Text::cut(&serial(slot)))
    });
    let incompatible = Features::DECLUSTERED | Features::FAILURE_DOMAINS;
    Superblock {
        features: Features { incompatible, ..Features::NONE },
        enclosures: Some(EnclosureRecord { kind: EnclosureKind::Path, domains: 2 }),
        geometry: plan.geometry,
        region_bytes: plan.region_bytes,
        areas: plan.areas,
        members: members.collect(),
        ..array(4, 2, 1)
    }
}

/// 2+2 over 12 members in the same enclosures, with a spare column.
pub fn spared_enclosures() -> Superblock {
    let of = in_enclosures();
    let spread = of.geometry.spread.map(|spread| SpreadRecord { spare_columns: 1, ..spread });
    let wanted = GeometryRecord { spread, ..record((2, 2), 12, 1) };
    let wanted = GeometryRecord { level: 6, parity_strips: 2, ..wanted };
    let plan = AreaPlan::for_member(&AreaRequest::new(wanted), DEVICE_BYTES).expect("fits");
    let incompatible = of.features.incompatible | Features::DISTRIBUTED_SPARES;
    Superblock {
        features: Features { incompatible, ..of.features },
        geometry: plan.geometry,
        region_bytes: plan.region_bytes,
        areas: plan.areas,
        ..of
    }
}

fn with(change: impl FnOnce(&mut GeometryRecord, &mut SpreadRecord)) -> Superblock {
    let mut superblock = declustered();
    let mut spread = superblock.geometry.spread.expect("declustered");
    change(&mut superblock.geometry, &mut spread);
    if superblock.geometry.spread.is_some() {
        superblock.geometry.spread = Some(spread);
    }
    superblock
}

#[test]
fn what_is_encoded_decodes_to_the_same_and_has_the_fields_where_the_page_has_them() {
    let superblock = declustered();
    let bytes = superblock.encode().expect("valid");
    assert_eq!(Superblock::decode(&bytes), Ok(superblock.clone()));
    let number = |at: usize, length: usize| {
        bytes[at..at + length].iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte))
    };
    assert_eq!((number(228, 4), number(40, 8)), (2, 8), "layout version, incompatible features");
    let fields = [number(1056, 2), number(1058, 2), number(1060, 2), number(1064, 4)];
    assert_eq!((fields, number(1072, 8)), ([9, 1, 1, 4], 20_261_123));
    let layout = superblock.geometry.to_layout().expect("an array");
    assert_eq!(GeometryRecord::from_layout(&layout), superblock.geometry);
    assert_eq!(layout.volume_bytes(), superblock.geometry.volume_bytes());
    assert_eq!(layout.stripe_count(), superblock.geometry.stripes());
    assert_eq!((layout.members(), superblock.geometry.slots()), (9, 9));
    let sets = superblock.geometry.failure_sets();
    assert_eq!((sets.len(), sets.first()), (1, Some(&(0..9))));
}

#[test]
fn numbers_that_cannot_be_are_refused_by_name_and_never_written() {
    let all: [(&str, Superblock); 13] = [
        ("members", with(|_, spread| spread.members = 257)),
        ("spare_columns", with(|_, spread| spread.members = 6)),
        ("domain_members", with(|_, spread| spread.domain_members = 0)),
        ("spare_columns", with(|_, spread| spread.spare_columns = 4)),
        ("cell_rows", with(|_, spread| spread.cell_rows = 0)),
        ("cell_rows", with(|_, spread| spread.cell_rows = 4097)),
        ("seed", with(|_, spread| spread.seed += 1)),
        ("groups", with(|geometry, _| geometry.groups = 2)),
        ("level", with(|geometry, _| geometry.level = 77)),
        ("rows", with(|geometry, _| geometry.rows = 3)),
        ("rows", with(|geometry, _| geometry.rows = u64::MAX)),
        ("strip_bytes", with(|geometry, _| geometry.strip_bytes = 2 << 20)),
        ("layout_version", with(|geometry, _| geometry.spread = None)),
    ];
    for (name, superblock) in all {
        let refused = superblock.encode().expect_err(name);
        assert_eq!(refused, SuperblockFault::Field { name });
    }
}

/// A program that does not know the layout looks at the flag; one that does, at both.
#[test]
fn the_flag_is_set_exactly_if_the_layout_is_declustered() {
    let fault = Err(SuperblockFault::Field { name: "layout_version" });
    let without = Superblock { features: Features::NONE, ..declustered() };
    assert_eq!(without.encode(), fault);
    let features = Features { incompatible: Features::DECLUSTERED, ..Features::NONE };
    assert_eq!(Superblock { features, ..array(4, 2, 1) }.encode(), fault);
}

#[test]
fn every_set_of_as_many_members_as_parity_strips_may_be_missing_and_no_more() {
    let superblock = declustered();
    for lost in 0u16..1 << 9 {
        if lost.count_ones() > 3 {
            continue;
        }
        let mut all = readings(&superblock);
        for slot in (0..9).filter(|slot| lost & 1 << slot != 0) {
            let sound = reading(&superblock, slot);
            all[usize::from(slot)] = MemberReading { label: ReadLabel::Damaged, ..sound };
        }
        let verdict = assemble(&all, &AssemblyRequest::default());
        match (lost.count_ones(), &verdict.start) {
            (0, Start::Whole) | (1 | 2, Start::Degraded) => {}
            (3, Start::Refused(refusal)) if refusal.kind == RefusalKind::TooManyMissing => {
                let says = "lacks 3 of 9 members and can do without 2";
                assert!(refusal.line.contains(says), "{}", refusal.line);
            }
            (_, start) => panic!("{lost:b}: {start:?}"),
        }
    }
}

#[test]
fn examine_says_how_many_members_stripes_lie_on() {
    let bytes = declustered().encode().expect("valid");
    let examined = Examination::new(DEVICE_BYTES, Some(&bytes), None).to_string();
    assert!(examined.contains("raid6 4+2 declustered over 9"), "{examined}");
}

#[test]
fn the_smallest_member_holds_one_slice() {
    let request = AreaRequest::new(record((8, 2), 14, 2));
    // 12 data columns: five rows of cells of four strips.
    let least = AreaPlan::for_rows(&request, 20).expect("possible").member_bytes;
    let plan = AreaPlan::for_member(&request, least).expect("fits");
    assert_eq!(plan.geometry.rows % 20, 0);
    let too_few = AreaPlan::for_rows(&request, 19);
    assert_eq!(too_few, Err(PlanFault::Geometry { field: "rows" }));
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(100)
    })]

    /// As many whole slices as fit, and the map has a bit for each stripe.
    #[test]
    fn the_rows_found_are_exact_for_any_device(
        k in 2u16..16, m in 1u16..4, more in 0u16..40, strip in 12u32..21, cell in 1u32..300,
        device in (64u64 << 20)..(32 << 40), shift in 0u32..18,
    ) {
        let wanted = record((k, m), k + m + more, more.min(2));
        let spread = wanted.spread.map(|spread| SpreadRecord { cell_rows: cell, ..spread });
        let wanted = GeometryRecord { strip_bytes: 1 << strip, spread, ..wanted };
        let request = AreaRequest::new(wanted);
        let Ok(plan) = AreaPlan::for_member(&request, device >> shift) else { return Ok(()) };
        let unit = plan.geometry.to_parts().expect("known").row_unit();
        prop_assert_eq!(plan.geometry.rows % unit, 0);
        prop_assert!(plan.areas.data.end() <= plan.areas.tail_copies.offset);
        prop_assert_eq!(plan.written_bits, plan.geometry.stripes());
        let next = AreaPlan::for_rows(&request, plan.geometry.rows + unit);
        let is_larger = next.map_or(true, |next| next.member_bytes > (device >> shift));
        prop_assert!(is_larger, "another slice fits");
    }
}
