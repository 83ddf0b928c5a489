//! The block devices of this machine that may be members, found in sysfs.
//!
//! What must stay true: nothing is opened here. A disk with partitions and a device that another
//! device lies on (a path of a multipath device, a part of a volume group) are no candidates: what
//! lies on top is. Devices without a drive of their own (loop, memory) and volumes that Ashlar
//! itself serves are none either; arrays on them are named in the configuration.

use std::fs;
use std::path::Path;

/// Where sysfs lists them.
pub const BLOCK: &str = "/sys/class/block";

/// Names of kinds that are no candidates, without their number.
const LEFT_OUT: [&str; 8] = ["loop", "ram", "zram", "sr", "fd", "ublkb", "ublkc", "nbd"];

/// Paths of all candidates, sorted; `block` is [`BLOCK`].
pub fn candidates(block: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(block) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<String> =
        names.filter(|name| is_candidate(&block.join(name), name)).collect();
    found.sort();
    // In sysfs, '!' stands for '/'.
    found.iter().map(|name| format!("/dev/{}", name.replace('!', "/"))).collect()
}

fn is_candidate(own: &Path, name: &str) -> bool {
    let kind = name.split(|c: char| c.is_ascii_digit()).next().unwrap_or(name);
    let is_empty = |folder: &Path| fs::read_dir(folder).is_ok_and(|mut it| it.next().is_none());
    let has_size = fs::read_to_string(own.join("size")).is_ok_and(|size| size.trim() != "0");
    let is_under = own.join("holders").exists() && !is_empty(&own.join("holders"));
    !LEFT_OUT.contains(&kind) && has_size && !is_under && !has_partitions(own)
}

fn has_partitions(own: &Path) -> bool {
    let entries = fs::read_dir(own).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.path().join("partition").exists())
}

#[cfg(test)]
mod tests {
    use super::candidates;
    use std::fs;

    #[test]
    fn drives_and_partitions_are_candidates_and_what_lies_below_others_is_not() {
        let block = tempfile::tempdir().expect("a folder");
        let make = |name: &str, size: &str| {
            let own = block.path().join(name);
            fs::create_dir_all(own.join("holders")).expect("made");
            fs::write(own.join("size"), format!("{size}\n")).expect("written");
            own
        };
        for (name, size) in
            [("sda", "100"), ("sdb", "0"), ("loop3", "9"), ("ublkb0", "9"), ("cciss!c0d0", "9")]
        {
            make(name, size);
        }
        fs::create_dir(make("sdc", "100").join("holders/dm-0")).expect("made");
        fs::create_dir(make("nvme0n1", "100").join("nvme0n1p1")).expect("made");
        fs::write(block.path().join("nvme0n1/nvme0n1p1/partition"), "1").expect("written");
        make("nvme0n1p1", "50");
        make("dm-0", "100");
        let found = candidates(block.path());
        assert_eq!(found, ["/dev/cciss/c0d0", "/dev/dm-0", "/dev/nvme0n1p1", "/dev/sda"]);
    }
}
