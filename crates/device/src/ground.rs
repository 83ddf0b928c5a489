//! What the bytes of a path lie on: the file beneath a loop device, the drive of a partition, the
//! devices beneath a mapped one. For whoever is about to write to a path that a person named.
//!
//! What must stay true: nothing is opened for writing, and nothing is judged by a name: files are
//! told by device and inode number, block devices by their number. Two parts of one drive do not
//! overlap, nor do two volumes of one mapping; a drive and its partition do. Not here: drives that
//! are reached on several paths (`Physical`).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock, major, minor};
use rustix::io::Errno;

use crate::identity::Physical;
use crate::sysfs;

/// A file or block device, however it is named.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    File(u64, u64),
    Block(u64),
}

impl Place {
    fn of(path: &Path) -> Option<Place> {
        let about = fs::metadata(path).ok()?;
        let is_block = about.file_type().is_block_device();
        Some(match is_block {
            true => Place::Block(about.rdev()),
            false => Place::File(about.dev(), about.ino()),
        })
    }

    fn directory(self, sys: &Path) -> Option<PathBuf> {
        match self {
            Place::Block(number) => sysfs::directory(sys, major(number), minor(number)),
            Place::File(..) => None,
        }
    }
}

/// Whether writing to `one` may change what `other` holds.
pub fn overlap(one: &Path, other: &Path) -> bool {
    overlap_in(Path::new(sysfs::SYS), one, other)
        || one.to_str().zip(other.to_str()).is_some_and(|(one, other)| {
            let is_block = |path| matches!(Place::of(Path::new(path)), Some(Place::Block(_)));
            is_block(one) && Physical::of(one) == Physical::of(other)
        })
}

fn overlap_in(sys: &Path, one: &Path, other: &Path) -> bool {
    let (Some(one), Some(other)) = (Place::of(one), Place::of(other)) else { return false };
    let meets = |one, other| !equals(sys, one).is_disjoint(&beneath(sys, other));
    meets(one, other) || meets(other, one)
}

/// The same bytes by other names: a whole loop device is the file or device beneath it.
fn equals(sys: &Path, place: Place) -> BTreeSet<Place> {
    let mut found = BTreeSet::new();
    let mut next = Some(place);
    while let Some(place) = next.filter(|place| found.insert(*place)) {
        let backing = place.directory(sys).and_then(|own| backing_of(&own));
        next = backing.and_then(|path| Place::of(&path));
    }
    found
}

/// All that a place lies on, itself first.
fn beneath(sys: &Path, place: Place) -> BTreeSet<Place> {
    let mut found = BTreeSet::new();
    let mut left = vec![place];
    while let Some(place) = left.pop() {
        if !found.insert(place) {
            continue;
        }
        left.extend(equals(sys, place));
        let Some(own) = place.directory(sys) else { continue };
        let slaves = fs::read_dir(own.join("slaves")).into_iter().flatten().flatten();
        let lower = slaves.map(|it| it.path()).chain([sysfs::whole_disk(&own)]);
        left.extend(lower.filter_map(|directory| number_of(&directory)).map(Place::Block));
    }
    found
}

fn backing_of(own: &Path) -> Option<PathBuf> {
    sysfs::text(&own.join("loop/backing_file")).map(PathBuf::from)
}

/// The number of the block device with this folder in sysfs.
fn number_of(directory: &Path) -> Option<u64> {
    let text = sysfs::text(&directory.join("dev"))?;
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// A file or block device that nobody else uses: held until this is dropped.
#[derive(Debug)]
pub struct HeldGround {
    _held: Vec<File>,
}

impl HeldGround {
    /// Makes sure that nobody uses the bytes of `path` under another name: files that others have
    /// locked, loop devices that are mounted or a part of something.
    ///
    /// # Errors
    /// Who has them in use: a path.
    pub fn take(path: &Path) -> Result<HeldGround, PathBuf> {
        let sys = Path::new(sysfs::SYS);
        let Some(place) = Place::of(path) else { return Ok(HeldGround { _held: Vec::new() }) };
        let lower = beneath(sys, place);
        let mut held = Vec::new();
        for file in files_of(sys, path, &lower) {
            held.extend(lock(&file).map_err(|_| file)?);
        }
        for (node, beneath) in loops(sys) {
            let is_over = Place::of(&beneath).is_some_and(|it| lower.contains(&it));
            // What the path itself lies on is in use by it.
            if is_over && Place::of(&node).is_none_or(|it| !lower.contains(&it)) {
                held.extend(alone(&node).map_err(|_| node)?);
            }
        }
        Ok(HeldGround { _held: held })
    }
}

/// The files among these places, by paths that lead there.
fn files_of(sys: &Path, path: &Path, places: &BTreeSet<Place>) -> Vec<PathBuf> {
    let backing = places.iter().filter_map(|it| it.directory(sys)).filter_map(|it| backing_of(&it));
    let all = backing.chain([path.to_owned()]);
    all.filter(|path| matches!(Place::of(path), Some(Place::File(..)))).collect()
}

/// Loop devices, and what is beneath each.
fn loops(sys: &Path) -> Vec<(PathBuf, PathBuf)> {
    let all = fs::read_dir(sys.join("block")).into_iter().flatten().flatten();
    let found = all.filter_map(|entry| {
        let beneath = backing_of(&entry.path())?;
        Some((Path::new("/dev").join(entry.file_name()), beneath))
    });
    found.collect()
}

/// A lock on a file as members of running arrays have it; `None` if this process may not open it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let Ok(file) = File::open(path) else { return Ok(None) };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(error) if error == Errno::WOULDBLOCK => Err(error.into()),
        _ => Ok(Some(file)),
    }
}

/// A block device that nobody else has; `None` if this process may not open it.
fn alone(path: &Path) -> io::Result<Option<File>> {
    let flags = i32::try_from(OFlags::EXCL.bits()).unwrap_or(0);
    match File::options().read(true).custom_flags(flags).open(path) {
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => Err(error),
        opened => Ok(opened.ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::{HeldGround, Place, beneath, equals, overlap, overlap_in};
    use rustix::fs::{FlockOperation, flock, makedev};
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    /// A made-up sysfs: a drive with two partitions, a loop device over a file, one over the drive,
    /// and a mapped device on the first partition.
    fn sys(file: &Path) -> tempfile::TempDir {
        let sys = tempfile::tempdir().expect("a folder");
        let device = |name: &str, number: &str| {
            let own = sys.path().join("devices").join(name);
            fs::create_dir_all(own.join("slaves")).expect("made");
            fs::write(own.join("dev"), format!("{number}\n")).expect("written");
            let link = sys.path().join("dev/block").join(number);
            fs::create_dir_all(link.parent().expect("a folder")).expect("made");
            symlink(&own, link).expect("linked");
            own
        };
        device("sda", "8:0");
        for (name, number) in [("sda/sda1", "8:1"), ("sda/sda2", "8:2")] {
            fs::write(device(name, number).join("partition"), "1\n").expect("written");
        }
        let own = device("loop0", "7:0");
        fs::create_dir(own.join("loop")).expect("made");
        fs::write(own.join("loop/backing_file"), file.to_str().expect("text")).expect("written");
        let mapped = device("dm-0", "253:0");
        symlink(sys.path().join("devices/sda/sda1"), mapped.join("slaves/sda1")).expect("linked");
        let other = device("dm-1", "253:1");
        symlink(sys.path().join("devices/sda/sda1"), other.join("slaves/sda1")).expect("linked");
        sys
    }

    fn block(major: u32, minor: u32) -> Place {
        Place::Block(makedev(major, minor))
    }

    #[test]
    fn a_drive_and_what_lies_on_it_overlap_and_two_parts_of_it_do_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "it").expect("written");
        let sys = sys(&file);
        let meet = |one, other| {
            let meets =
                |one, other| !equals(sys.path(), one).is_disjoint(&beneath(sys.path(), other));
            meets(one, other) || meets(other, one)
        };
        let (drive, parts) = (block(8, 0), [block(8, 1), block(8, 2)]);
        let mapped = [block(253, 0), block(253, 1)];
        assert!(parts.iter().chain(&mapped).all(|it| meet(drive, *it) && meet(*it, drive)));
        assert!(!meet(parts[0], parts[1]) && !meet(mapped[0], mapped[1]));
        assert!(meet(mapped[0], parts[0]) && !meet(mapped[0], parts[1]));
        let file = Place::of(&file).expect("there");
        assert!(meet(block(7, 0), file) && meet(file, block(7, 0)) && !meet(file, drive));
    }

    #[test]
    fn a_file_is_the_same_under_all_its_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let [file, link, hard, other] =
            ["file", "link", "hard", "other"].map(|name| folder.path().join(name));
        fs::write(&file, "it").expect("written");
        fs::write(&other, "it").expect("written");
        symlink(&file, &link).expect("linked");
        fs::hard_link(&file, &hard).expect("linked");
        assert!(overlap(&file, &link) && overlap(&hard, &link) && overlap(&file, &file));
        assert!(!overlap(&file, &other) && !overlap(&file, &folder.path().join("none")));
        assert!(!overlap_in(Path::new("/sys"), &other, &link));
    }

    #[test]
    fn a_file_that_somebody_has_locked_is_not_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let file = File::create(&path).expect("made");
        drop(HeldGround::take(&path).expect("nobody has it"));
        flock(&file, FlockOperation::LockExclusive).expect("locked");
        assert_eq!(HeldGround::take(&path).expect_err("it is in use"), path);
    }
}
