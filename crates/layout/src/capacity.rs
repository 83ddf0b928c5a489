//! Capacity: how many rows members of given sizes make, and what goes unused.
//!
//! Every row takes one strip of every member, so the smallest member decides and the rest of the
//! larger ones is idle. Sizes are those of the members' data areas, without superblocks and logs.

/// Strips per member that members with data areas of `sizes` bytes can all hold: the smallest
/// decides. Zero if there is no member or one has no room for a strip.
///
/// # Panics
/// If `strip_bytes` is zero.
pub fn rows_for(sizes: &[u64], strip_bytes: u64) -> u64 {
    assert!(strip_bytes > 0, "a strip has bytes");
    sizes.iter().min().map_or(0, |smallest| smallest / strip_bytes)
}

/// Bytes of each member's data area that go unused, in the order of `sizes`: what is left of the
/// smallest member after its last whole strip, and what the others are larger.
///
/// # Panics
/// If `strip_bytes` is zero.
pub fn unused_bytes(sizes: &[u64], strip_bytes: u64) -> impl Iterator<Item = u64> {
    let used = rows_for(sizes, strip_bytes) * strip_bytes;
    sizes.iter().map(move |size| size - used)
}

#[cfg(test)]
mod tests {
    use super::{rows_for, unused_bytes};

    #[test]
    fn the_smallest_member_decides_the_rows() {
        let sizes = [10 * 65_536, 8 * 65_536 + 4096, 9 * 65_536];
        assert_eq!(rows_for(&sizes, 65_536), 8);
        let unused: Vec<u64> = unused_bytes(&sizes, 65_536).collect();
        assert_eq!(unused, [2 * 65_536, 4096, 65_536]);
    }

    #[test]
    fn a_member_without_room_for_a_strip_leaves_everything_unused() {
        assert_eq!(rows_for(&[1 << 30, 4095], 4096), 0);
        assert_eq!(unused_bytes(&[1 << 30, 4095], 4096).collect::<Vec<_>>(), [1 << 30, 4095]);
        assert_eq!(rows_for(&[], 4096), 0);
    }
}
