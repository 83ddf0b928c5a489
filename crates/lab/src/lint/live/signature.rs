//! What is in the way of destroying a device: mounts, holders, swap, signatures, partition tables.
//!
//! What must stay true: a device that could not be read is never called free; what is known to be
//! in use is said even if it cannot be read.

use super::Sysfs;
use crate::hold::is_held;
use crate::lint::machine::Known;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A signature: where it stands, its bytes, and what it means.
type Magic = (u64, &'static [u8], &'static str);

/// Signatures at fixed places from the beginning.
const MAGICS: [Magic; 18] = [
    (0, b"XFSB", "an XFS file system"),
    (1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (65_600, b"_BHRfS_M", "a btrfs file system"),
    (0, b"LUKS\xba\xbe", "LUKS encryption"),
    (512, b"LABELONE", "an LVM physical volume"),
    (4096, b"\xfc\x4e\x2b\xa9", "an md member (1.2)"),
    (0, b"\xfc\x4e\x2b\xa9", "an md member (1.1)"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (510, b"\x55\xaa", "an MBR partition table or boot sector"),
    (4086, b"SWAPSPACE2", "swap space"),
    (3, b"NTFS    ", "an NTFS file system"),
    (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "a bcache device"),
    (4096, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "a bcache device"),
    (1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (0, b"ASHLARSB", "an Ashlar member"),
    (4096, b"ASHLARSB", "an Ashlar member"),
];

/// ZFS labels hold uberblocks from here, one in each of these many places of 1 KiB.
const ZFS_RING: (u64, u64) = (128 << 10, 128);
const ZFS_MAGIC: [[u8; 8]; 2] =
    [[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c]];

/// What is in the way of writing to the device at `path`; empty if nothing is.
pub fn occupied(path: &Path, sysfs: &Sysfs) -> Known<Vec<String>> {
    let mut found = Vec::new();
    let (parts, mut holders) = (parts(sysfs), Vec::new());
    for part in &parts {
        let name = part.file_name().unwrap_or_default().to_string_lossy();
        let number = fs::read_to_string(part.join("dev")).map_err(|error| error.to_string())?;
        let place = mounted(number.trim())?;
        found.extend(place.map(|place| format!("{name} is mounted on {place}")));
        holders.extend(held(part));
    }
    found.append(&mut holders);
    found.extend(swap(path)?);
    found.extend(is_held(path).then(|| "measured by another lab".to_owned()));
    found.extend(claimed(path).filter(|_| found.is_empty()));
    match signatures(path) {
        Ok(more) => found.extend(more),
        // Whoever uses a device may keep others from reading it: that it is used is known.
        Err(why) if found.is_empty() => return Err(why),
        Err(_) => {}
    }
    Ok(found)
}

/// Whether somebody has the block device for himself: a mount, md, the device mapper, ZFS, a
/// program that opened it so. Opening it for reading changes nothing.
pub fn claimed(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    (opened.err() == Some(Errno::BUSY)).then(|| "claimed by the kernel or a program".to_owned())
}

/// The directory of the device and, of a whole disk, those of its partitions.
fn parts(sysfs: &Sysfs) -> Vec<PathBuf> {
    let items = fs::read_dir(&sysfs.own).into_iter().flatten().filter_map(Result::ok);
    let parts = items.map(|item| item.path()).filter(|path| path.join("partition").exists());
    [sysfs.own.clone()].into_iter().chain(parts).collect()
}

fn mounted(number: &str) -> Known<Option<String>> {
    let text = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
    let place = text.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        (fields.next()? == number).then(|| fields.nth(1).unwrap_or("?").to_owned())
    });
    Ok(place)
}

/// Devices built on this one: md, device mapper, bcache.
fn held(part: &Path) -> impl Iterator<Item = String> {
    let holders = fs::read_dir(part.join("holders")).into_iter().flatten().filter_map(Result::ok);
    holders.map(|item| format!("held by {}", item.file_name().to_string_lossy()))
}

fn swap(path: &Path) -> Known<Option<String>> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let own = fs::canonicalize(path).map_err(|error| error.to_string())?;
    let is_own =
        |line: &str| line.split_whitespace().next().is_some_and(|name| Path::new(name) == own);
    Ok(text.lines().any(is_own).then(|| "used as swap".to_owned()))
}

/// Signatures that are found on a device or file.
pub fn signatures(path: &Path) -> Known<Vec<String>> {
    let fault = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(fault)?;
    let mut found: Vec<String> = Vec::new();
    for (at, magic, what) in MAGICS {
        if holds(&file, at, magic).map_err(fault)? && !found.iter().any(|other| other == what) {
            found.push(what.to_owned());
        }
    }
    let (begin, places) = ZFS_RING;
    for place in 0..places {
        let at = begin + place * 1024;
        if ZFS_MAGIC.iter().any(|magic| holds(&file, at, magic).unwrap_or(false)) {
            found.push("a ZFS label".to_owned());
            break;
        }
    }
    Ok(found)
}

fn holds(file: &File, at: u64, magic: &[u8]) -> std::io::Result<bool> {
    let mut bytes = vec![0; magic.len()];
    match file.read_exact_at(&mut bytes, at) {
        Ok(()) => Ok(bytes == magic),
        // A device too small for the place does not have the signature.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::signatures;

    #[test]
    fn signatures_are_found_where_they_stand_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let mut bytes = vec![0_u8; 1 << 20];
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(signatures(&path), Ok(Vec::new()));
        bytes[1080..1082].copy_from_slice(b"\x53\xef");
        bytes[510..512].copy_from_slice(b"\x55\xaa");
        bytes[131_072 + 3072..][..8].copy_from_slice(&[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0]);
        std::fs::write(&path, &bytes).unwrap();
        let found = signatures(&path).unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(signatures(&path), Ok(Vec::new()));
        assert!(signatures(&dir.path().join("missing")).is_err());
    }
}
