//! Which devices are whole drives, as sysfs has it.
//!
//! What must stay true: nothing is opened here. A drive is what has hardware behind it. Volumes
//! (device mapper, md, ublk, nbd) and files (loop) get no partition unasked: what lies below them
//! is seen to be taken already. A loop device that was set up to have partitions is the exception.

use ashlar_units::Extent;
use rustix::fs::{major, minor};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The sectors that sysfs counts in, bytes.
const SECTOR_BYTES: u64 = 512;

/// The folder of a block device in sysfs.
fn folder(path: &str) -> Option<PathBuf> {
    let about = fs::metadata(path).ok().filter(|it| it.file_type().is_block_device())?;
    let number = format!("{}:{}", major(about.rdev()), minor(about.rdev()));
    fs::canonicalize(Path::new("/sys/dev/block").join(number)).ok()
}

/// Whether it is a block device that is no partition.
#[must_use]
pub fn is_whole(path: &str) -> bool {
    folder(path).is_some_and(|own| !own.join("partition").exists())
}

/// Whether it is a whole drive, which gets a partition unasked.
#[must_use]
pub fn is_drive(path: &str) -> bool {
    folder(path).is_some_and(|own| is_drive_in(&own))
}

fn is_drive_in(own: &Path) -> bool {
    let reads = |file: &str, wanted: &str| {
        fs::read_to_string(own.join(file)).is_ok_and(|text| text.trim() == wanted)
    };
    let has_hardware = own.join("device").exists() || reads("loop/partscan", "1");
    has_hardware && !own.join("partition").exists() && !reads("ext_range", "1")
}

/// The size of a block device in bytes.
#[must_use]
pub fn bytes(path: &str) -> Option<u64> {
    let sectors: u64 = fs::read_to_string(folder(path)?.join("size")).ok()?.trim().parse().ok()?;
    sectors.checked_mul(SECTOR_BYTES)
}

/// The nodes of its partitions, sorted.
#[must_use]
pub fn partitions(path: &str) -> Vec<String> {
    let entries = folder(path).and_then(|own| fs::read_dir(own).ok());
    let inner = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<String> =
        inner.filter(|it| it.join("partition").exists()).filter_map(|it| node(&it)).collect();
    found.sort();
    found
}

/// Where its partitions lie.
pub(super) fn extents(path: &str) -> Vec<Extent> {
    let number = |own: &Path, file: &str| -> Option<u64> {
        fs::read_to_string(own.join(file)).ok()?.trim().parse().ok()
    };
    let extent = |partition: &String| {
        let own = folder(partition)?;
        let (start, sectors) = (number(&own, "start")?, number(&own, "size")?);
        Some(Extent::new(start * SECTOR_BYTES, sectors * SECTOR_BYTES))
    };
    partitions(path).iter().filter_map(extent).collect()
}

/// The node of its partition, if it has one and no other.
pub(super) fn only_partition(path: &str) -> Option<String> {
    let mut all = partitions(path);
    all.pop().filter(|_| all.is_empty())
}

/// The node of the drive that a partition is on.
pub(super) fn drive_of_partition(path: &str) -> Option<String> {
    let own = folder(path).filter(|own| own.join("partition").exists())?;
    node(own.parent()?)
}

fn node(folder: &Path) -> Option<String> {
    // In sysfs, '!' stands for '/'.
    Some(format!("/dev/{}", folder.file_name()?.to_str()?.replace('!', "/")))
}

/// The partition by a link beside the drive's own, if udev has made one: a name below
/// `/dev/disk/by-id` outlives the next order of drives.
pub(super) fn named_like(drive: &str, partition: String) -> String {
    let link = format!("{drive}-part1");
    let is_same = fs::canonicalize(&link)
        .is_ok_and(|to| fs::canonicalize(&partition).is_ok_and(|it| it == to));
    if is_same { link } else { partition }
}

/// Whether a partition may have a name beside the drive's.
pub(super) fn is_link(drive: &str) -> bool {
    fs::symlink_metadata(drive).is_ok_and(|about| about.file_type().is_symlink())
}

/// Whether `partition` is what the first partition of a drive called `drive` is called. Nothing is
/// looked at: the drive may be gone.
#[must_use]
pub fn is_first_of(partition: &str, drive: &str) -> bool {
    let is_numbered = drive.ends_with(|c: char| c.is_ascii_digit());
    let usual = if is_numbered { "p1" } else { "1" };
    partition.strip_prefix(drive).is_some_and(|rest| rest == usual || rest == "-part1")
}

#[cfg(test)]
mod tests {
    use super::{is_drive_in, is_first_of};
    use std::fs;

    #[test]
    fn what_has_hardware_and_may_have_partitions_is_a_drive() {
        let sys = tempfile::tempdir().expect("a folder");
        for (name, files, is_drive) in [
            ("sda", &[("device/model", "x"), ("ext_range", "256")] as &[_], true),
            ("nvme0n1", &[("device/model", "x")], true),
            ("sda1", &[("device/model", "x"), ("partition", "1")], false),
            ("mmcblk0boot0", &[("device/model", "x"), ("ext_range", "1\n")], false),
            ("dm-0", &[("dm/name", "vg-lv"), ("ext_range", "256")], false),
            ("ublkb0", &[("ext_range", "256")], false),
            ("loop0", &[("loop/partscan", "0\n"), ("ext_range", "256")], false),
            ("loop1", &[("loop/partscan", "1\n"), ("ext_range", "256")], true),
        ] {
            let own = sys.path().join(name);
            for (file, text) in files {
                fs::create_dir_all(own.join(file).parent().expect("a folder")).expect("made");
                fs::write(own.join(file), text).expect("written");
            }
            assert_eq!(is_drive_in(&own), is_drive, "{name}");
        }
    }

    #[test]
    fn a_partition_is_known_by_the_name_of_its_drive() {
        for (drive, partition, is_it) in [
            ("/dev/sdc", "/dev/sdc1", true),
            ("/dev/sdc", "/dev/sdc11", false),
            ("/dev/nvme0n1", "/dev/nvme0n1p1", true),
            ("/dev/loop1", "/dev/loop11", false),
            ("/dev/disk/by-id/ata-x9", "/dev/disk/by-id/ata-x9-part1", true),
            ("/dev/sdc", "/dev/sdc", false),
        ] {
            assert_eq!(is_first_of(partition, drive), is_it, "{drive} {partition}");
        }
    }
}
