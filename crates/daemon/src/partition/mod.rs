//! Partitions on whole drives, so that other programs see that a drive is taken.
//!
//! - [`drive`]  which devices are whole drives, and what partitions they have
//! - [`table`]  whether a table of partitions is Ashlar's alone
//! - `blank`    that a drive may get a table
//! - [`beside`] what lies on a drive beside its partitions
//! - [`make`]   makes a table, and takes it away again
//!
//! What must stay true: all drives of a call are checked before the first is written. A table that
//! is not Ashlar's alone is never taken away. Not here: which calls make partitions
//! (`arrays/partitions.rs`).

pub mod beside;
mod blank;
pub mod drive;
pub mod make;
pub mod table;

pub use blank::check;

use ashlar_api::ApiError;

/// The type of the partition: Ashlar's own.
pub const TYPE: &str = "47359340-8564-4E87-9201-2D6BEFFA6AA0";

/// Before and behind the partition, in bytes: the table and its copy, and the alignment that all
/// partitioning programs use.
pub const EDGE_BYTES: u64 = 1 << 20;

/// The size of the partition that a drive gets, in bytes.
#[must_use]
pub fn partition_bytes(drive_bytes: u64) -> u64 {
    let end = drive_bytes.saturating_sub(EDGE_BYTES);
    (end - end % EDGE_BYTES).saturating_sub(EDGE_BYTES)
}

/// The partition that a whole drive stands for: its only one, of Ashlar's type.
#[must_use]
pub fn inside(path: &str) -> Option<String> {
    let partition = drive::only_partition(path)?;
    table::is_ours_alone(path).ok()?.then(|| drive::named_like(path, partition))
}

/// The drive that holds nothing but this partition of Ashlar's type.
#[must_use]
pub fn behind(path: &str) -> Option<String> {
    let whole = drive::drive_of_partition(path)?;
    drive::only_partition(&whole)?;
    table::is_ours_alone(&whole).ok()?.then_some(whole)
}

fn refused(drive: &str, why: &str, next: &str) -> ApiError {
    ApiError::new("device.not_partitioned", format!("{drive} {why}; nothing was written"), next)
}

#[cfg(test)]
mod tests {
    use super::{EDGE_BYTES, partition_bytes};

    #[test]
    fn a_partition_leaves_an_edge_on_both_sides_and_is_aligned() {
        for drive_bytes in [0, 1, EDGE_BYTES, 3 * EDGE_BYTES, 96 << 20, (96 << 20) + 512, 1 << 44] {
            let bytes = partition_bytes(drive_bytes);
            assert_eq!(bytes % EDGE_BYTES, 0);
            assert!(bytes == 0 || bytes + 2 * EDGE_BYTES <= drive_bytes, "{drive_bytes}");
            let lost = drive_bytes - bytes;
            assert!(lost < 3 * EDGE_BYTES || bytes == 0, "{drive_bytes}: {lost}");
        }
    }
}
