//! The store from which a thin device or a sparse file takes its space.
//!
//! What must stay true: this only says which devices run out of space together. Only a failed write
//! says that a device has no space.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::Stat;

use crate::sysfs;

/// Bytes of one of the blocks that file systems count in.
const COUNTED_BYTES: i64 = 512;

/// The file system of a sparse file; `None` if the file has all the space it needs.
pub(crate) fn of_file(about: &Stat) -> Option<u64> {
    let allocated = about.st_blocks.saturating_mul(COUNTED_BYTES);
    (allocated < about.st_size).then_some(about.st_dev)
}

/// The same of a block device: the file system of the file beneath a loop device, or the only
/// device that a device mapper's device is built on.
pub(crate) fn of_block(sys: &Path, major: u32, minor: u32) -> Option<u64> {
    let own = sysfs::directory(sys, major, minor)?;
    let disk = sysfs::whole_disk(&own);
    if let Ok(file) = std::fs::read_to_string(disk.join("loop/backing_file")) {
        let about = std::fs::metadata(file.trim_end()).ok()?;
        let allocated = about.blocks().saturating_mul(COUNTED_BYTES.unsigned_abs());
        return (allocated < about.len()).then(|| about.dev());
    }
    if !disk.join("dm").exists() {
        return None;
    }
    let mut below = std::fs::read_dir(disk.join("slaves")).ok()?.flatten();
    let (only, None) = (below.next()?, below.next()) else { return None };
    let number = std::fs::read_to_string(only.path().join("dev")).ok()?;
    let (major, minor) = number.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{of_block, of_file};
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_sparse_file_draws_from_its_file_system_and_a_full_one_from_nothing() {
        let mut about = rustix::fs::stat("/").expect("there");
        (about.st_dev, about.st_size, about.st_blocks) = (7, 8192, 8);
        assert_eq!(of_file(&about), Some(7));
        about.st_blocks = 16;
        assert_eq!(of_file(&about), None);
    }

    #[test]
    fn thin_devices_draw_from_their_pool_and_disks_from_nothing() {
        let sys = tempfile::tempdir().expect("a directory for the test");
        let at = |path: &str| sys.path().join(path);
        for made in ["devices/dm-3/dm", "devices/dm-3/slaves", "devices/dm-1", "devices/sda"] {
            fs::create_dir_all(at(made)).expect("made");
        }
        fs::create_dir_all(at("dev/block")).expect("made");
        fs::write(at("devices/dm-1/dev"), "252:1\n").expect("written");
        symlink("../../dm-1", at("devices/dm-3/slaves/dm-1")).expect("linked");
        symlink("../../devices/dm-3", at("dev/block/252:3")).expect("linked");
        symlink("../../devices/sda", at("dev/block/8:0")).expect("linked");
        assert_eq!(of_block(sys.path(), 252, 3), Some(rustix::fs::makedev(252, 1)));
        assert_eq!(of_block(sys.path(), 8, 0), None);
        fs::create_dir(at("devices/dm-3/slaves/sdb")).expect("made");
        assert_eq!(of_block(sys.path(), 252, 3), None, "built on two");
    }
}
