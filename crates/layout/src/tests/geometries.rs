//! The arrays that tests enumerate: every code up to 8+3, mirrors, and small groups of each.

use crate::{Geometry, Level, Shape};

/// An ungrouped array of this code; the level follows from the counts.
pub fn coded(data_strips: usize, parity_strips: usize, strip_bytes: u64, rows: u64) -> Geometry {
    let level = match (data_strips, parity_strips) {
        (_, 0) => Level::Raid0,
        (1, _) => Level::Raid1,
        (_, 1) => Level::Raid5,
        (_, 2) => Level::Raid6,
        (_, 3) => Level::Raid7,
        _ => Level::NPlusM,
    };
    let members = data_strips + parity_strips;
    let parity = (level == Level::NPlusM).then_some(parity_strips);
    let shape =
        Shape { level, members, parity, group_members: None, strip_bytes, declustered: None };
    let geometry = Geometry::new(&shape, rows).expect("a code that exists");
    assert_eq!(geometry.data_strips(), data_strips);
    geometry
}

/// A grouped array.
pub fn grouped(level: Level, groups: usize, group_members: usize, rows: u64) -> Geometry {
    let shape = Shape {
        level,
        members: groups * group_members,
        parity: None,
        group_members: Some(group_members),
        strip_bytes: 8192,
        declustered: None,
    };
    Geometry::new(&shape, rows).expect("a grouping that exists")
}

/// All codes with 1 to 8 data and 0 to 3 parity strips.
pub fn codes() -> impl Iterator<Item = (usize, usize)> {
    (1..=8).flat_map(|data| (0..=3).map(move |parity| (data, parity)))
}

/// Every ungrouped code, some n+m, and grouped arrays of every kind; enough rows that every
/// rotation comes round more than once.
pub fn all() -> Vec<Geometry> {
    let rows = |strips: usize| u64::try_from(2 * strips + 1).unwrap();
    let mut found: Vec<Geometry> = codes().map(|(k, m)| coded(k, m, 8192, rows(k + m))).collect();
    found.extend([(2, 4), (4, 4), (5, 6), (8, 8)].map(|(k, m)| coded(k, m, 8192, rows(k + m))));
    for (level, sizes) in [
        (Level::Raid10, 2..=4),
        (Level::Raid50, 3..=5),
        (Level::Raid60, 4..=6),
        (Level::Raid70, 5..=7),
    ] {
        for size in sizes {
            found.extend((2..=4).map(|groups| grouped(level, groups, size, rows(size))));
        }
    }
    found
}
