//! The format document and the code say the same, or this fails and prints what the document must
//! say.

use std::fmt::Write;

use ashlar_layout::{Geometry, GeometryParts, LAYOUT_VERSION, Level};
use ashlar_ondisk::Areas;
use ashlar_ondisk::format::{
    AREA_FIELDS, BATCH_FIELDS, BLOCK_CHANGE_FIELDS, DRIVE_FIELDS, DRIVE_PAGE_FIELDS,
    FLUSH_MARK_FIELDS, FieldAt, GROWTH_FIELDS, HEADER_FIELDS, HEARTBEAT_FIELDS, HOLDER_FIELDS,
    JOB_FIELDS, MEMBER_FIELDS, PAGE_FIELDS, PART_FIELDS, RECORD_FIELDS, SPARE_ENTRY_FIELDS,
    SPARE_FIELDS,
};

use ashlar_units::{MemberIdx, StripeNo};

use crate::members::role_table;

const DOCUMENT: &str = include_str!("../../../../docs/on-disk-format.md");
const FORMAT: &str = include_str!("../../src/format.rs");

/// The part of the document under the heading `heading`, up to the next heading.
fn section(heading: &str) -> &'static str {
    let start = DOCUMENT
        .find(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("docs/on-disk-format.md has no heading '{heading}'"));
    let body = &DOCUMENT[start + heading.len() + 2..];
    &body[..body.find("\n#").unwrap_or(body.len())]
}

#[test]
fn the_document_was_changed_together_with_the_format() {
    let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, FORMAT.as_bytes());
    let wanted = format!("`format.rs` CRC-32C: `{checksum:08x}`");
    assert!(
        DOCUMENT.contains(&wanted),
        "crates/ondisk/src/format.rs changed: bring docs/on-disk-format.md up to date, \
         then let it say\n\
         {wanted}"
    );
}

/// The rows of the table under `heading`: offset, size, field.
fn rows(heading: &str) -> Vec<(usize, usize, String)> {
    section(heading)
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
            let offset = cells.next()?.parse().ok()?;
            let bytes = cells.next()?.parse().ok()?;
            Some((offset, bytes, cells.next()?.trim_matches('`').to_owned()))
        })
        .collect()
}

#[test]
fn every_table_of_the_document_lists_the_fields_of_its_record() {
    let tables: [(&str, &[FieldAt]); 17] = [
        ("### Superblock header", HEADER_FIELDS),
        ("### Area table entry", AREA_FIELDS),
        ("### Job table entry", JOB_FIELDS),
        ("### Member table entry", MEMBER_FIELDS),
        ("#### Growth entry", GROWTH_FIELDS),
        ("#### Spare table", SPARE_ENTRY_FIELDS),
        ("### Spare superblock", SPARE_FIELDS),
        ("### Heartbeat block", HEARTBEAT_FIELDS),
        ("### Flush mark", FLUSH_MARK_FIELDS),
        ("### Drive page", DRIVE_PAGE_FIELDS),
        ("### Drive of a slot", DRIVE_FIELDS),
        ("### Bitmap page header", PAGE_FIELDS),
        ("### Batch head", BATCH_FIELDS),
        ("### Log record", RECORD_FIELDS),
        ("### Holder of a record", HOLDER_FIELDS),
        ("### Part of a record", PART_FIELDS),
        ("### Data block of a parity-only record", BLOCK_CHANGE_FIELDS),
    ];
    for (heading, fields) in tables {
        let wanted: Vec<_> =
            fields.iter().map(|f| (f.offset, f.bytes, f.name.to_owned())).collect();
        assert_eq!(rows(heading), wanted, "{heading}");
    }
}

#[test]
fn the_document_names_the_areas_in_the_order_of_the_table() {
    let named: Vec<String> = section("### Areas")
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
            let _: usize = cells.next()?.parse().ok()?;
            Some(cells.next()?.trim_matches('`').to_owned())
        })
        .collect();
    assert_eq!(named, Areas::NAMES);
}

#[test]
fn the_document_shows_the_table_of_roles_and_events() {
    let table = role_table();
    assert!(
        section("### Roles").contains(&table),
        "docs/on-disk-format.md, Roles, must contain\n{table}"
    );
}

/// The drawing of the first rows of one group: which strip lies on which member.
fn drawing(level: Level, data_strips: usize, parity_strips: usize) -> String {
    let strips = data_strips + parity_strips;
    let geometry = Geometry::from_parts(GeometryParts {
        level,
        data_strips,
        parity_strips,
        groups: 1,
        strip_bytes: 65_536,
        rows: 100,
        layout_version: LAYOUT_VERSION,
        spread: None,
    })
    .expect("an ordinary array");
    let mut lines =
        vec![(0..strips).fold("row ".to_owned(), |head, at| head + &format!(" m{at:<2}"))];
    for row in 0..strips {
        let cells = (0..strips).map(|member| {
            let stripe = StripeNo(u64::try_from(row).expect("small"));
            let stripe = geometry.stripe(stripe);
            let strip = geometry.strip_on(stripe, MemberIdx::from_at(member)).expect("one group");
            match strip.at().checked_sub(data_strips) {
                Some(parity) => ["P", "Q", "R"][parity].to_owned(),
                None => format!("D{}", strip.at()),
            }
        });
        lines.push(cells.fold(format!("{row:<4}"), |line, cell| line + &format!(" {cell:<3}")));
    }
    lines.iter().fold(String::new(), |all, line| all + line.trim_end() + "\n")
}

#[test]
fn the_document_draws_the_rotation_the_layout_makes() {
    for (level, data, parity) in [(Level::Raid5, 3, 1), (Level::Raid6, 4, 2)] {
        let drawing = drawing(level, data, parity);
        assert!(
            section("### Rotation").contains(&drawing),
            "docs/on-disk-format.md, Rotation, must contain\n{drawing}"
        );
    }
}

/// Product in GF(2^8) modulo 0x11D, bit by bit.
fn times(mut one: u8, mut two: u8) -> u8 {
    let mut product = 0;
    while two != 0 {
        if two & 1 != 0 {
            product ^= one;
        }
        one = (one << 1) ^ if one & 0x80 != 0 { 0x1D } else { 0 };
        two >>= 1;
    }
    product
}

fn inverse(of: u8) -> u8 {
    (1..=u8::MAX).find(|&other| times(of, other) == 1).expect("not zero")
}

fn power_of_two(exponent: usize) -> u8 {
    (0..exponent).fold(1, |power, _| times(power, 2))
}

/// The coefficient of data strip `column` in parity strip `row`.
fn coefficient(row: usize, column: usize) -> u8 {
    match row {
        0 => 1,
        1 => power_of_two(column),
        _ => {
            let y = power_of_two(row - 1);
            let cauchy = |column| inverse(inverse(power_of_two(column)) ^ y);
            times(cauchy(column), inverse(cauchy(0)))
        }
    }
}

#[test]
fn the_document_carries_the_parity_matrix_the_formula_gives() {
    let mut matrix = String::new();
    for row in 0..32 {
        for column in 0..64 {
            write!(matrix, "{:02x}", coefficient(row, column)).expect("a string");
            if column % 32 == 31 {
                matrix.push('\n');
            }
        }
    }
    assert!(matrix.contains("\n01f5d2c49a71f17f"), "R begins as published");
    assert!(
        section("### Parity matrix").contains(&matrix),
        "docs/on-disk-format.md, Parity matrix, must contain\n{matrix}"
    );
}
