//! What is accepted as an array, and what a refusal says.

use super::geometries;
use crate::{Geometry, GeometryParts, LAYOUT_VERSION, Level, MEMBERS_MAX, Rotation, Shape};

fn shape(level: Level, members: usize) -> Shape {
    Shape {
        level,
        members,
        parity: None,
        group_members: None,
        strip_bytes: 65_536,
        declustered: None,
    }
}

fn refusal(shape: &Shape) -> String {
    let line = Geometry::new(shape, 100).expect_err(&format!("{shape:?}")).to_string();
    assert!(!line.contains('\n') && !line.contains("  "), "not one clean line: {line}");
    line
}

#[test]
fn each_level_starts_at_its_smallest_array() {
    for (level, minimum) in [
        (Level::Raid0, 1),
        (Level::Raid1, 2),
        (Level::Raid5, 3),
        (Level::Raid6, 4),
        (Level::Raid7, 5),
    ] {
        assert!(Geometry::new(&shape(level, minimum), 100).is_ok(), "{level} of {minimum}");
        let line = refusal(&shape(level, minimum - 1));
        assert!(line.contains(&format!("at least {minimum} members")), "{line}");
    }
}

#[test]
fn each_level_ends_at_its_largest_array() {
    for (level, maximum, instead) in [
        (Level::Raid0, 64, "volumes"),
        (Level::Raid1, 4, "raid10"),
        (Level::Raid5, 64, "raid50"),
        (Level::Raid6, 64, "raid60"),
        (Level::Raid7, 64, "raid70"),
    ] {
        assert!(Geometry::new(&shape(level, maximum), 100).is_ok(), "{level} of {maximum}");
        let line = refusal(&shape(level, maximum + 1));
        assert!(line.contains(&format!("at most {maximum}")) && line.contains(instead), "{line}");
    }
}

#[test]
fn n_plus_m_takes_1_to_32_parity_strips_and_64_strips_in_all() {
    let nm = |members, parity| Shape { parity, ..shape(Level::NPlusM, members) };
    for (members, parity) in [(3, 1), (10, 4), (64, 32), (34, 32), (64, 1)] {
        let geometry = Geometry::new(&nm(members, Some(parity)), 100).unwrap();
        assert_eq!((geometry.stripe_width(), geometry.parity_strips()), (members, parity));
    }
    assert!(refusal(&nm(10, None)).contains("1 to 32"));
    assert!(refusal(&nm(10, Some(0))).contains("got 0"));
    assert!(refusal(&nm(64, Some(33))).contains("got 33"));
    assert!(refusal(&nm(65, Some(4))).contains("at most 64"));
    assert!(refusal(&nm(5, Some(4))).contains("at least 6"));
}

#[test]
fn groups_divide_the_members_and_there_are_at_least_two() {
    let grouped = |level, members, size| Shape { group_members: size, ..shape(level, members) };
    let geometry = Geometry::new(&grouped(Level::Raid60, 20, Some(10)), 100).unwrap();
    assert_eq!((geometry.groups(), geometry.data_strips(), geometry.parity_strips()), (2, 8, 2));
    let mirrors = Geometry::new(&grouped(Level::Raid10, 6, None), 100).unwrap();
    assert_eq!(
        (mirrors.groups(), mirrors.stripe_width()),
        (3, 2),
        "raid10 takes pairs unless told"
    );
    let uneven = refusal(&grouped(Level::Raid60, 22, Some(10)));
    assert!(uneven.contains("20 or 30"), "{uneven}");
    assert!(refusal(&grouped(Level::Raid10, 7, None)).contains("6 or 8"));
    assert!(refusal(&grouped(Level::Raid60, 10, Some(10))).contains("at least 2 groups: 20"));
    assert!(refusal(&grouped(Level::Raid60, 20, None)).contains("from 4 to 64"));
    assert!(refusal(&grouped(Level::Raid60, 20, Some(3))).contains("4 to 64"));
    assert!(refusal(&grouped(Level::Raid10, 20, Some(5))).contains("2 to 4"));
    assert!(refusal(&grouped(Level::Raid10, 20, Some(0))).contains("got 1"));
    assert!(refusal(&grouped(Level::Raid6, 20, Some(10))).contains("raid60"));
    assert!(Geometry::new(&grouped(Level::Raid6, 20, Some(20)), 100).is_ok());
    let crowd = refusal(&grouped(Level::Raid10, MEMBERS_MAX + 2, None));
    assert!(crowd.contains(&format!("at most {MEMBERS_MAX}")), "{crowd}");
}

#[test]
fn a_parity_count_is_for_n_plus_m() {
    let with = |parity| Shape { parity: Some(parity), ..shape(Level::Raid6, 10) };
    assert!(Geometry::new(&with(2), 100).is_ok(), "saying what is so anyway does no harm");
    let line = refusal(&with(3));
    assert!(line.contains("has 2 parity strips") && line.contains("n+m"), "{line}");
}

#[test]
fn strips_are_powers_of_two_from_4_kib_to_1_mib() {
    let with = |strip_bytes| Shape { strip_bytes, ..shape(Level::Raid5, 4) };
    for power in 12..=20 {
        let geometry = Geometry::new(&with(1 << power), 100).unwrap();
        assert_eq!(u64::from(geometry.strip_blocks()), (1 << power) / 4096);
    }
    for wrong in [0, 512, 2048, 12_288, 65_537, 2 << 20] {
        let line = refusal(&with(wrong));
        assert!(line.contains("power of two") && line.contains("64 KiB"), "{line}");
    }
}

#[test]
fn arrays_without_rows_or_beyond_64_bits_are_refused() {
    let raid5 = shape(Level::Raid5, 4);
    assert!(Geometry::new(&raid5, 0).unwrap_err().to_string().contains("64 KiB"));
    assert!(Geometry::new(&raid5, 1 << 44).is_ok());
    for rows in [(1 << 44) + 1, u64::MAX] {
        assert!(Geometry::new(&raid5, rows).unwrap_err().to_string().contains("4 EiB"));
    }
}

#[test]
fn parts_give_the_same_geometry_back() {
    for geometry in geometries::all() {
        assert_eq!(Geometry::from_parts(geometry.parts()), Ok(geometry));
    }
}

#[test]
fn damaged_parts_are_refused() {
    let good = geometries::grouped(Level::Raid60, 2, 10, 100).parts();
    let newer = GeometryParts { layout_version: LAYOUT_VERSION + 1, ..good };
    assert!(Geometry::from_parts(newer).unwrap_err().to_string().contains("newer ashlar"));
    for damaged in [
        GeometryParts { level: Level::Raid6, ..good },
        GeometryParts { level: Level::Raid50, ..good },
        GeometryParts { data_strips: 0, ..good },
        GeometryParts { data_strips: 63, ..good },
        GeometryParts { data_strips: usize::MAX, ..good },
        GeometryParts { parity_strips: 0, ..good },
        GeometryParts { parity_strips: usize::MAX, ..good },
        GeometryParts { groups: 0, ..good },
        GeometryParts { groups: 1, ..good },
        GeometryParts { groups: usize::MAX, ..good },
        GeometryParts { strip_bytes: 4095, ..good },
        GeometryParts { rows: 0, ..good },
        GeometryParts { rows: u64::MAX, ..good },
    ] {
        assert!(Geometry::from_parts(damaged).is_err(), "{damaged:?}");
    }
}

#[test]
fn code_names_say_what_a_stripe_is() {
    for (geometry, name) in [
        (geometries::coded(8, 2, 4096, 1), "raid6 8+2"),
        (geometries::coded(4, 0, 4096, 1), "raid0 4+0"),
        (geometries::coded(1, 2, 4096, 1), "raid1 1+2"),
        (geometries::coded(9, 3, 4096, 1), "raid7.3 9+3"),
        (geometries::coded(10, 4, 4096, 1), "n+m 10+4"),
        (geometries::grouped(Level::Raid60, 2, 10, 1), "raid60 2x(8+2)"),
        (geometries::grouped(Level::Raid10, 3, 2, 1), "raid10 3x(1+1)"),
    ] {
        assert_eq!(geometry.code_name(), name);
    }
}

#[test]
fn only_codes_with_data_and_parity_rotate() {
    for geometry in geometries::all() {
        let rotates = geometry.data_strips() > 1 && geometry.parity_strips() > 0;
        assert_eq!(geometry.rotation() == Rotation::LeftSymmetric, rotates, "{geometry:?}");
    }
}
