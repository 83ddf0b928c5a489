//! Whether a device is still the one that was opened, and whether two paths lead to one device.
//!
//! What must stay true: a file that became shorter is never written to again. A write beyond its
//! end would make it grow, and the gap would read as zeros instead of an error. A device that was
//! found shorter counts as shorter until it is closed, whatever its size becomes. Not here: what
//! the engine does about it (the member is out).

use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{AtFlags, CWD, SeekFrom, StatxFlags, fstat, fstatfs, major, minor, seek, statx};

use crate::device::{Change, CommandKind, DeviceKind};
use crate::sysfs;

/// What was opened, to compare with what is there later.
pub(crate) struct Identity {
    file: Arc<OwnedFd>,
    path: String,
    kind: DeviceKind,
    /// Size when it was opened, to the byte.
    bytes: u64,
    /// Of a loop device: the file beneath it.
    beneath: Option<Beneath>,
    is_shorter: AtomicBool,
    /// A file whose bytes are in memory: whoever begins an operation may as well end it.
    is_in_memory: bool,
    /// A file whose file system may block a caller, for a size as well as for a write.
    may_block: bool,
    /// Commands that were given up and have not come back.
    owed: AtomicUsize,
}

/// The file that a loop device lies on, as it was when the device was opened.
#[derive(Clone, PartialEq, Eq)]
struct Beneath {
    path: String,
    bytes: u64,
}

impl Identity {
    /// What `file`, opened at `path`, is now. `bytes` is its size.
    pub(crate) fn of(file: &Arc<OwnedFd>, path: &str, kind: DeviceKind, bytes: u64) -> Identity {
        Identity {
            file: Arc::clone(file),
            path: path.to_owned(),
            kind,
            bytes,
            beneath: (kind == DeviceKind::Block).then(|| beneath(file)).flatten(),
            is_shorter: AtomicBool::new(false),
            is_in_memory: kind == DeviceKind::File && kind_of_file_system(file) == Some(TMPFS),
            may_block: kind == DeviceKind::File && !is_prompt(file),
            owed: AtomicUsize::new(0),
        }
    }

    /// The number of commands that were given up and that the kernel still has.
    pub(crate) fn owes_more(&self, commands: usize) {
        self.owed.fetch_add(commands, Ordering::Relaxed);
    }

    /// One of them has come back.
    pub(crate) fn owes_one_less(&self) {
        self.owed.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many of them there are.
    pub(crate) fn owed(&self) -> usize {
        self.owed.load(Ordering::Relaxed)
    }

    /// Whether `path` leads to this device.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        Physical::of(path) == Physical::of(&self.path)
    }

    /// Whether an operation on it may block its caller.
    pub(crate) fn may_block(&self) -> bool {
        self.may_block
    }

    /// Whether its bytes are in the kernel's memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }

    /// Whether the device is shorter than when it was opened, as far as can be told without waiting
    /// for anybody: of a file its size, if its file system knows that, of others only what
    /// [`look`](Self::look) found.
    pub(crate) fn is_shorter(&self) -> bool {
        match self.kind == DeviceKind::File && !self.may_block {
            true => self.is_found_shorter(),
            false => self.is_shorter.load(Ordering::Relaxed),
        }
    }

    fn is_found_shorter(&self) -> bool {
        let is_shorter = self.is_shorter.load(Ordering::Relaxed)
            || self.kind == DeviceKind::File && file_bytes(&self.file) < Some(self.bytes);
        if is_shorter {
            self.is_shorter.store(true, Ordering::Relaxed);
        }
        is_shorter
    }

    /// Whether a command of this kind is refused, and its outcome ignored. Reads need no check:
    /// they meet the end by themselves.
    pub(crate) fn must_refuse(&self, kind: CommandKind) -> bool {
        match kind {
            CommandKind::Read => self.is_shorter.load(Ordering::Relaxed),
            _ => self.is_shorter(),
        }
    }

    /// The device is shorter: a read met its end.
    pub(crate) fn note_shorter(&self) {
        self.is_shorter.store(true, Ordering::Relaxed);
    }

    /// What changed, if anything did. It may block for as long as a file system takes to answer.
    pub(crate) fn look(&self) -> Option<Change> {
        let is_cut = match self.kind {
            DeviceKind::Block => {
                seek(&self.file, SeekFrom::End(0)).is_ok_and(|bytes| bytes < self.bytes)
            }
            _ => false,
        };
        if is_cut || self.is_found_shorter() {
            self.note_shorter();
            return Some(Change::Shorter);
        }
        if let Some(before) = &self.beneath {
            return self.look_beneath(before);
        }
        self.is_elsewhere().then_some(Change::PathReplaced)
    }

    fn look_beneath(&self, before: &Beneath) -> Option<Change> {
        let now = beneath(&self.file)?;
        if now.path != before.path {
            return Some(Change::BackingFileReplaced);
        }
        if now.bytes < before.bytes {
            self.note_shorter();
            return Some(Change::Shorter);
        }
        None
    }

    /// The path leads to something else now, or to nothing.
    fn is_elsewhere(&self) -> bool {
        let named = statx(CWD, self.path.as_str(), AtFlags::empty(), StatxFlags::BASIC_STATS);
        let held = statx(&*self.file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
        match (named, held) {
            (Ok(named), Ok(held)) if self.kind == DeviceKind::Block => {
                (named.stx_rdev_major, named.stx_rdev_minor)
                    != (held.stx_rdev_major, held.stx_rdev_minor)
            }
            (Ok(named), Ok(held)) => {
                (named.stx_dev_major, named.stx_dev_minor, named.stx_ino)
                    != (held.stx_dev_major, held.stx_dev_minor, held.stx_ino)
            }
            (Err(_), Ok(_)) => true,
            (_, Err(_)) => false,
        }
    }
}

const TMPFS: u64 = 0x0102_1994;

/// File systems that never block a non-blocking caller: ext4, XFS, btrfs, F2FS, tmpfs.
const PROMPT: [u64; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, TMPFS];

/// Whether the file is on one of these. Others answer when their server does, if at all.
fn is_prompt(file: &OwnedFd) -> bool {
    kind_of_file_system(file).is_some_and(|kind| PROMPT.contains(&kind))
}

fn kind_of_file_system(file: &OwnedFd) -> Option<u64> {
    let kind = u64::try_from(fstatfs(file).ok()?.f_type).ok()?;
    Some(kind & 0xFFFF_FFFF)
}

/// The size of a file, as its file system has it in memory; `None` if it does not say.
fn file_bytes(file: &OwnedFd) -> Option<u64> {
    // The file's server may not answer for a while: a write must not wait for that here.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let told = statx(file, "", flags, StatxFlags::SIZE).ok()?;
    (told.stx_mask & StatxFlags::SIZE.bits() != 0).then_some(told.stx_size)
}

/// The file beneath a loop device; `None` for other block devices, and if that file cannot be found
/// by its path.
fn beneath(file: &OwnedFd) -> Option<Beneath> {
    let about = fstat(file).ok()?;
    let (major, minor) = (major(about.st_rdev), minor(about.st_rdev));
    let own = sysfs::directory(Path::new(sysfs::SYS), major, minor)?;
    let path = std::fs::read_to_string(own.join("loop/backing_file")).ok()?.trim().to_owned();
    let bytes = std::fs::metadata(&path).ok()?.len();
    Some(Beneath { path, bytes })
}

/// What an exclusive opening of `path` would keep others out of, as
/// [`DeviceFacts::exclusion`](crate::DeviceFacts::exclusion) has it. `None` if it leads nowhere.
pub fn exclusion_of(path: &str) -> Option<[u64; 2]> {
    let about = std::fs::metadata(path).ok()?;
    Some(match about.file_type().is_block_device() {
        true => [u64::MAX, about.rdev()],
        false => [about.dev(), about.ino()],
    })
}

/// What a path leads to, so that two paths of one device compare equal: a file, also through a loop
/// device over it; a drive by its world-wide name, also through several paths to it, and a
/// partition of it by its number; another block device by the kernel's number. A path that leads
/// nowhere is itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Physical(String);

impl Physical {
    /// What `path` leads to. Nothing is opened.
    pub fn of(path: &str) -> Physical {
        Physical(physical(path).unwrap_or_else(|| path.to_owned()))
    }
}

/// The serial of the drive that a path leads to now. Nothing is opened.
pub fn serial_at(path: &str) -> Option<String> {
    let (major, minor) = block_number(path)?;
    sysfs::read(Path::new(sysfs::SYS), major, minor)?.serial
}

/// The node of the whole disk that a path leads to now; `None` if it leads to no disk that can
/// have a health of its own. Nothing is opened.
pub fn disk_at(path: &str) -> Option<PathBuf> {
    let (major, minor) = block_number(path)?;
    let own = sysfs::directory(Path::new(sysfs::SYS), major, minor)?;
    let disk = sysfs::whole_disk(&own);
    let name = disk.file_name().filter(|_| disk.join("device").exists())?;
    Some(Path::new("/dev").join(name))
}

fn block_number(path: &str) -> Option<(u32, u32)> {
    let about = std::fs::metadata(path).ok()?;
    let number = about.rdev();
    about.file_type().is_block_device().then(|| (major(number), minor(number)))
}

fn physical(path: &str) -> Option<String> {
    let about = std::fs::metadata(path).ok()?;
    if !about.file_type().is_block_device() {
        return Some(format!("file {}:{}", about.dev(), about.ino()));
    }
    let (major, minor) = (major(about.rdev()), minor(about.rdev()));
    let sys = Path::new(sysfs::SYS);
    let numbered = format!("block {major}:{minor}");
    let Some(own) = sysfs::directory(sys, major, minor) else { return Some(numbered) };
    let disk = sysfs::whole_disk(&own);
    let partition = std::fs::read_to_string(own.join("partition")).unwrap_or_default();
    let partition = partition.trim();
    if let Ok(file) = std::fs::read_to_string(disk.join("loop/backing_file"))
        && let Ok(about) = std::fs::metadata(file.trim_end())
    {
        let file = format!("file {}:{}", about.dev(), about.ino());
        return Some(if partition.is_empty() { file } else { format!("{file} part {partition}") });
    }
    Some(match sysfs::unit(&disk) {
        Some(unit) => format!("drive {unit} part {partition}"),
        None => numbered,
    })
}
