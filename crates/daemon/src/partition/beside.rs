//! What lies on the drive of a partition, beside its partitions.
//!
//! What must stay true: it is only read. Where Ashlar makes a partition it blanks the rest of the
//! drive. So a signature there was put on the whole drive later, even if the kernel still shows the
//! partition. Drives that others partitioned may carry anything there, and nothing is said of them.

use super::{drive, table};
use ashlar_device::{Signature, signatures};
use ashlar_units::Extent;
use std::path::Path;

/// Kinds that are tables of partitions, as libblkid calls them.
const TABLES: [&str; 10] =
    ["gpt", "dos", "PMBR", "sun", "sgi", "mac", "bsd", "atari", "minix", "solaris_x86"];

/// The signature of somebody else on the drive that holds this partition of Ashlar's type, for
/// people.
#[must_use]
pub fn signature(partition: &str) -> Option<String> {
    let whole = drive::drive_of_partition(partition)?;
    let is_ours = table::has_ours(&whole).ok()?;
    if is_ours == Some(false) {
        return None;
    }
    let found = signatures(Path::new(&whole)).ok()?.signatures;
    if is_ours.is_none() && found.iter().any(|it| it.kind == "dos") {
        return None;
    }
    let first = first_beside(&found, &drive::extents(&whole))?;
    Some(format!("{first} on its drive {whole}"))
}

fn first_beside<'f>(found: &'f [Signature], partitions: &[Extent]) -> Option<&'f Signature> {
    let is_inside = |at: u64| partitions.iter().any(|it| (it.offset..it.end()).contains(&at));
    let is_table = |it: &Signature| TABLES.contains(&it.kind.as_str());
    found.iter().find(|it| !is_table(it) && !is_inside(it.offset))
}

#[cfg(test)]
mod tests {
    use super::first_beside;
    use ashlar_device::Signature;
    use ashlar_units::Extent;

    #[test]
    fn what_lies_on_the_drive_and_in_no_partition_is_told_of() {
        let at = |kind: &str, offset| Signature {
            kind: kind.to_owned(),
            offset,
            bytes: 4,
            uuid: None,
            label: None,
        };
        let partitions = [Extent::new(1 << 20, 8 << 20)];
        let tables = [at("PMBR", 510), at("gpt", 512), at("gpt", (10 << 20) - 512)];
        assert_eq!(first_beside(&tables, &partitions), None);
        assert_eq!(first_beside(&[at("zfs_member", 2 << 20)], &partitions), None, "of a client");
        for other in [at("linux_raid_member", 4096), at("linux_raid_member", (10 << 20) - 8192)] {
            let all = [tables.to_vec(), vec![other.clone()]].concat();
            assert_eq!(first_beside(&all, &partitions), Some(&other));
        }
    }
}
