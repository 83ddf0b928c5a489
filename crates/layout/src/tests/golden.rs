//! Printed maps of every level, compared with files that never change: geometry is on-disk format.
//!
//! In a map, a row is a strip's height on all members. A number is that strip of the volume,
//! counted from 0; P, Q, R, S and so on with a stripe's number are its parities; the copies of a
//! mirror carry a letter after the number of the strip they copy. A map that differs from its file
//! means that arrays made by earlier programs would be read wrong: give it a new layout version,
//! leave the file alone.

use std::fmt::Write;

use ashlar_units::{MemberIdx, StripIdx, StripeNo};

use super::geometries::{coded, grouped};
use crate::{Geometry, LAYOUT_VERSION, Level};

/// What is in a strip, in the letters of the maps.
fn label(geometry: &Geometry, stripe: StripeNo, strip: StripIdx) -> String {
    let data_strips = u64::try_from(geometry.data_strips()).unwrap();
    if geometry.data().contains(strip) {
        return (stripe.0 * data_strips + u64::from(strip.0)).to_string();
    }
    let nth = strip.0 - u8::try_from(data_strips).unwrap();
    if geometry.level().is_mirror() {
        return format!("{stripe}{}", char::from(b'a' + nth));
    }
    format!("{}{stripe}", char::from(b'P' + nth))
}

/// The first rows of an array, one line per row.
fn map(geometry: &Geometry, rows: u64) -> String {
    let mut text = format!("{}, layout version {LAYOUT_VERSION}\nrow ", geometry.code_name());
    for member in 0..geometry.members() {
        write!(text, "{:>5}", format!("m{member}")).unwrap();
    }
    for row in 0..rows {
        write!(text, "\n{row:<4}").unwrap();
        for member in (0..geometry.members()).map(MemberIdx::from_at) {
            let held = geometry.strip_at(member, row);
            let (stripe, strip) = held.expect("every row of a member belongs to a stripe");
            assert_eq!(geometry.place(stripe, strip).member, member);
            write!(text, "{:>5}", label(geometry, stripe.number(), strip)).unwrap();
        }
    }
    text.push('\n');
    text
}

fn assert_map(geometry: &Geometry, rows: u64, golden: &str) {
    let map = map(geometry, rows);
    assert!(map == golden, "the map changed\n--- on disks ---\n{golden}\n--- now ---\n{map}");
}

const ROWS: u64 = 30;

#[test]
fn raid0_map_is_the_one_on_disks() {
    assert_map(&coded(4, 0, 65_536, ROWS), 4, include_str!("../../tests/golden/raid0.txt"));
}

#[test]
fn raid1_map_is_the_one_on_disks() {
    assert_map(&coded(1, 2, 65_536, ROWS), 4, include_str!("../../tests/golden/raid1.txt"));
}

#[test]
fn raid5_map_is_the_one_on_disks() {
    assert_map(&coded(4, 1, 65_536, ROWS), 11, include_str!("../../tests/golden/raid5.txt"));
}

#[test]
fn raid6_map_is_the_one_on_disks() {
    assert_map(&coded(4, 2, 65_536, ROWS), 13, include_str!("../../tests/golden/raid6.txt"));
}

#[test]
fn raid7_map_is_the_one_on_disks() {
    assert_map(&coded(5, 3, 65_536, ROWS), 17, include_str!("../../tests/golden/raid7.3.txt"));
}

#[test]
fn n_plus_m_map_is_the_one_on_disks() {
    assert_map(&coded(6, 4, 65_536, ROWS), 21, include_str!("../../tests/golden/n+m.txt"));
}

#[test]
fn raid10_map_is_the_one_on_disks() {
    let geometry = grouped(Level::Raid10, 3, 2, ROWS);
    assert_map(&geometry, 4, include_str!("../../tests/golden/raid10.txt"));
}

#[test]
fn raid50_map_is_the_one_on_disks() {
    let geometry = grouped(Level::Raid50, 2, 4, ROWS);
    assert_map(&geometry, 9, include_str!("../../tests/golden/raid50.txt"));
}

#[test]
fn raid60_map_is_the_one_on_disks() {
    let geometry = grouped(Level::Raid60, 2, 5, ROWS);
    assert_map(&geometry, 11, include_str!("../../tests/golden/raid60.txt"));
}

#[test]
fn raid70_map_is_the_one_on_disks() {
    let geometry = grouped(Level::Raid70, 2, 6, ROWS);
    assert_map(&geometry, 13, include_str!("../../tests/golden/raid70.txt"));
}

/// Left-symmetric RAID 5 on five members as md's documentation describes it, written by hand:
/// parity starts on the last member and moves left, and data continues right after it.
const MD_RAID5: [[&str; 5]; 6] = [
    ["0", "1", "2", "3", "P0"],
    ["5", "6", "7", "P1", "4"],
    ["10", "11", "P2", "8", "9"],
    ["15", "P3", "12", "13", "14"],
    ["P4", "16", "17", "18", "19"],
    ["20", "21", "22", "23", "P5"],
];

/// Left-symmetric RAID 6 on five members, by hand: P as above, Q right after P, data after Q.
const MD_RAID6: [[&str; 5]; 6] = [
    ["Q0", "0", "1", "2", "P0"],
    ["3", "4", "5", "P1", "Q1"],
    ["7", "8", "P2", "Q2", "6"],
    ["11", "P3", "Q3", "9", "10"],
    ["P4", "Q4", "12", "13", "14"],
    ["Q5", "15", "16", "17", "P5"],
];

fn assert_table(geometry: &Geometry, table: &[[&str; 5]]) {
    for (stripe, row) in (0..).map(StripeNo).zip(table) {
        for (member, wanted) in row.iter().enumerate() {
            let on = geometry.stripe(stripe);
            let strip = geometry.strip_on(on, MemberIdx::from_at(member)).unwrap();
            assert_eq!(label(geometry, stripe, strip), *wanted, "row {stripe}, member {member}");
        }
    }
}

#[test]
fn raid5_is_the_left_symmetric_layout_of_md() {
    assert_table(&coded(4, 1, 65_536, ROWS), &MD_RAID5);
}

#[test]
fn raid6_is_the_left_symmetric_layout_of_md() {
    assert_table(&coded(3, 2, 65_536, ROWS), &MD_RAID6);
}
