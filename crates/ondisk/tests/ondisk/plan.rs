//! Areas: what fits, at the edges and at every size.

use ashlar_ondisk::plan::{INTENT_BITS_MAX, region_bytes_by_default};
use ashlar_ondisk::{AreaPlan, AreaRequest, GeometryRecord, LogReserve, PlanFault};
use ashlar_units::Extent;
use proptest::prelude::{ProptestConfig, any, proptest};

use crate::samples::geometry;

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// Exactly the rows that fit: one more row needs a larger device; nothing overlaps or leaves the
/// member.
fn check(request: &AreaRequest, device_bytes: u64) -> AreaPlan {
    let plan = AreaPlan::for_member(request, device_bytes).expect("fits");
    let rows = plan.geometry.rows;
    let least = AreaPlan::for_rows(request, rows).expect("possible");
    let more = AreaPlan::for_rows(request, rows + 1).expect("possible");
    assert!(least.member_bytes <= device_bytes && more.member_bytes > device_bytes / 4096 * 4096);
    assert_eq!(least.on_device(device_bytes), plan);
    let mut extents: Vec<_> = plan.areas.named().map(|(_, extent)| extent).to_vec();
    extents.retain(|extent| extent.bytes != 0);
    extents.sort_by_key(|extent| extent.offset);
    for pair in extents.windows(2) {
        assert!(pair[0].end() <= pair[1].offset, "{} overlaps {}", pair[0], pair[1]);
    }
    assert!(extents.iter().all(|extent| extent.is_aligned_to(4096)));
    assert_eq!(extents.last().map(|extent| extent.end()), Some(plan.member_bytes));
    assert_eq!(plan.areas.data.offset % MIB, 0);
    assert_eq!(plan.areas.data.bytes, rows * u64::from(plan.geometry.strip_bytes));
    assert!(plan.areas.write_intent.bytes / 4096 * 32_512 >= plan.intent_bits);
    assert!(plan.areas.written_map.bytes / 4096 * 32_512 >= plan.written_bits);
    plan
}

#[test]
fn a_64_mib_member_keeps_nine_tenths_for_data() {
    for (data, parity) in [(1, 1), (3, 1), (4, 2), (5, 3)] {
        let plan = check(&AreaRequest::new(geometry(data, parity, 1)), 64 * MIB);
        assert!(
            plan.overhead_bytes() <= 64 * MIB / 16,
            "{data}+{parity}: {}",
            plan.overhead_bytes()
        );
        assert_eq!(plan.areas.write_intent.bytes, 4096);
        assert_eq!(plan.areas.intent_log.bytes, MIB);
    }
}

#[test]
fn a_16_tib_member_has_a_modest_bitmap_and_a_full_checksum_table() {
    for (data, parity, groups) in [(8, 2, 1), (1, 1, 12), (14, 3, 4), (60, 4, 1)] {
        let plan = check(&AreaRequest::new(geometry(data, parity, groups)), 16 * TIB);
        assert!(plan.intent_bits <= INTENT_BITS_MAX);
        assert_eq!(plan.areas.write_intent.bytes, 5 * 4096);
        assert_eq!(plan.areas.intent_log.bytes, 128 * MIB);
        let copies = u64::from(parity.min(3));
        let checksums = plan.areas.data.bytes / 4096 * 8 * copies;
        assert!(plan.areas.checksums.bytes >= checksums);
        assert!(plan.areas.checksums.bytes <= checksums + checksums / 100);
    }
}

#[test]
fn the_smallest_member_holds_one_strip_and_one_byte_less_holds_none() {
    let request = AreaRequest::new(geometry(4, 2, 1));
    let least = AreaPlan::for_rows(&request, 1).expect("possible").member_bytes;
    assert_eq!(check(&request, least.max(4 * MIB)).geometry.rows.min(1), 1);
    let large = AreaRequest {
        // Layout version 1 has no strips as long as this.
        geometry: GeometryRecord { strip_bytes: 16 << 20, layout_version: 3, ..geometry(1, 1, 1) },
        ..request
    };
    let least = AreaPlan::for_rows(&large, 1).expect("possible").member_bytes;
    assert_eq!(check(&large, least).geometry.rows, 1);
    assert_eq!(
        AreaPlan::for_member(&large, least - 1),
        Err(PlanFault::TooSmall { device_bytes: least - 1, least_bytes: least })
    );
    assert!(matches!(AreaPlan::for_member(&request, 0), Err(PlanFault::TooSmall { .. })));
}

#[test]
fn every_size_around_a_step_gives_exactly_the_rows_that_fit() {
    let request = AreaRequest::new(GeometryRecord { strip_bytes: 4096, ..geometry(3, 1, 1) });
    for rows in [2, 5_000, 32_512, 87_381, 1 << 20] {
        let least = AreaPlan::for_rows(&request, rows).expect("possible").member_bytes;
        for device in [least - 4096, least - 1, least, least + 1, least + 4095, least + 4096] {
            if device >= 4 * MIB {
                check(&request, device);
            }
        }
    }
}

#[test]
fn members_of_different_size_share_the_plan_of_the_smallest() {
    let request = AreaRequest::new(geometry(4, 2, 1));
    let plan = AreaPlan::for_members(&request, &[3 << 30, 2 << 30, (2 << 30) + 777]).expect("fits");
    assert_eq!(plan, AreaPlan::for_member(&request, 2 << 30).expect("fits"));
    let larger = plan.on_device(3 << 30);
    assert_eq!(larger.areas.data, plan.areas.data);
    assert_eq!(larger.areas.tail_copies.end(), 3 << 30);
    assert_eq!(AreaPlan::for_members(&request, &[]), Err(PlanFault::NoDevice));
}

#[test]
fn regions_are_whole_stripes_and_grow_with_the_volume() {
    // 16 data strips of 64 KiB: stripes of 1 MiB.
    for (rows, region_mib) in [
        (1, 1),
        (1000, 1),
        (1 << 14, 16),
        (1 << 16, 64),
        (1 << 23, 64),
        (1 << 24, 128),
        (1 << 30, 8192),
    ] {
        let geometry = GeometryRecord { rows, ..geometry(16, 2, 1) };
        let bytes = region_bytes_by_default(&geometry);
        assert_eq!(bytes, region_mib * MIB, "{rows} rows");
        assert!((bytes / geometry.stripe_data_bytes()).is_power_of_two());
    }
}

#[test]
fn a_region_that_is_not_whole_stripes_is_refused_with_the_unit() {
    let stripe = 4 * 65_536;
    let ask = |region_bytes| {
        let request =
            AreaRequest { region_bytes: Some(region_bytes), ..AreaRequest::new(geometry(4, 2, 1)) };
        AreaPlan::for_member(&request, 1 << 30).map(|plan| plan.region_bytes)
    };
    assert_eq!(ask(8 * stripe), Ok(8 * stripe));
    for wrong in [0, 4096, 3 * stripe, stripe + 1] {
        let refused = PlanFault::Region { region_bytes: wrong, stripe_bytes: stripe };
        assert_eq!(ask(wrong), Err(refused));
    }
}

/// 8 GiB of data decide, not the device: so a member that joins later has the same head.
#[test]
fn members_of_8_gib_and_more_have_room_for_a_reshape() {
    for (data, parity, groups) in [(4, 2, 1), (1, 1, 2), (12, 0, 1)] {
        let request = AreaRequest::new(geometry(data, parity, groups));
        let rows = (8 << 30) / 65_536;
        let small = AreaPlan::for_rows(&request, rows - 1).expect("possible");
        assert_eq!(small.areas.reshape, Extent::default());
        let large = AreaPlan::for_rows(&request, rows).expect("possible").areas.reshape;
        assert_eq!(large.bytes, 64 * MIB);
        let plan = check(&request, small.member_bytes + 20 * MIB);
        assert_eq!(plan.geometry.rows, rows - 1, "one row more needs 64 MiB more");
        let plan = check(&request, 16 * TIB);
        assert_eq!(plan.areas.reshape.bytes, 64 * MIB);
        let without = check(&AreaRequest { reshape: false, ..request }, 16 * TIB);
        assert_eq!(without.areas.reshape, Extent::default());
        let less = without.areas.data.bytes - plan.areas.data.bytes;
        assert!((63 * MIB..=66 * MIB).contains(&less), "{less} bytes of data less");
    }
}

#[test]
fn reserves_can_be_left_out_or_set() {
    let usual = AreaRequest::new(geometry(4, 2, 1));
    let bare = AreaRequest { intent_log: LogReserve::Nothing, checksum_table: false, ..usual };
    let plan = check(&bare, 1 << 30);
    assert_eq!((plan.areas.intent_log.bytes, plan.areas.checksums.bytes), (0, 0));
    let set = AreaRequest { intent_log: LogReserve::Bytes(5_000_000), ..usual };
    assert_eq!(check(&set, 1 << 30).areas.intent_log.bytes, 5_001_216);
    let absurd = AreaRequest { intent_log: LogReserve::Bytes(u64::MAX), ..usual };
    assert_eq!(AreaPlan::for_member(&absurd, 1 << 30), Err(PlanFault::Log { bytes: u64::MAX }));
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    })]

    #[test]
    fn the_rows_found_are_exact_for_any_device(
        data in 1u16..32, parity in 0u16..5, groups in 1u16..9, strip in 12u32..21,
        device in (64u64 << 20)..(32 << 40), table in any::<bool>(), shift in 0u32..18,
    ) {
        let geometry = GeometryRecord { strip_bytes: 1 << strip, ..geometry(data, parity, groups) };
        let device = (device >> shift).max(64 << 20);
        check(&AreaRequest { checksum_table: table, ..AreaRequest::new(geometry) }, device);
    }
}

#[test]
fn the_layout_crate_gets_back_the_geometry_it_gave() {
    for (data, parity, groups) in [(4, 2, 1), (6, 2, 3), (20, 4, 2)] {
        let record = GeometryRecord {
            level: if groups > 1 { 60 } else { 6 },
            ..geometry(data, parity, groups)
        };
        match record.to_layout() {
            Some(layout) => {
                assert_eq!(GeometryRecord::from_layout(&layout), record);
                assert_eq!(layout.volume_bytes(), record.volume_bytes());
                assert_eq!(layout.stripe_count(), record.stripes());
                assert_eq!(layout.members(), usize::from(record.slots()));
            }
            None => assert_eq!(parity, 4, "RAID 60 has two parities, not four"),
        }
    }
    assert_eq!(GeometryRecord { level: 77, ..geometry(4, 2, 1) }.to_parts(), None);
    assert_eq!(GeometryRecord { layout_version: 70_000, ..geometry(4, 2, 1) }.to_parts(), None);
}

/// The format checks sizes, the layout crate checks the whole geometry. What one lets through, the
/// other does as well.
#[test]
fn the_format_and_the_layout_crate_agree_on_every_size() {
    let strips = (0..32).flat_map(|bit| [1u32 << bit, (1 << bit) - 1, (1 << bit) + 4096]);
    let rows = [0, 1, 3, 1 << 20, 1 << 40, 1 << 44, (1 << 62) / (6 << 12), u64::MAX];
    let (mut accepted, mut refused) = (0, 0);
    for strip_bytes in strips {
        for rows in rows {
            let record = GeometryRecord { strip_bytes, rows, ..geometry(4, 2, 1) };
            let is_layout = record.to_layout().is_some();
            assert_eq!(record.check().is_ok(), is_layout, "{record:?}");
            *(if is_layout { &mut accepted } else { &mut refused }) += 1;
        }
    }
    assert!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused");
    let large = GeometryRecord { strip_bytes: 2 << 20, ..geometry(4, 2, 1) };
    assert_eq!(large.check(), Err("strip_bytes"));
    // A layout that this program does not know may have strips that this program does not make.
    assert_eq!(GeometryRecord { layout_version: 3, ..large }.check(), Ok(()));
}

#[test]
fn the_format_and_the_layout_crate_agree_on_the_most_members() {
    for groups in [79, 80, 81, u16::MAX] {
        let record = GeometryRecord { level: 60, ..geometry(4, 2, groups) };
        assert_eq!(record.check().is_ok(), record.to_layout().is_some(), "{groups} groups");
    }
}
