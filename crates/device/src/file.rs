//! Opens real paths: block devices, partitions and regular files.
//!
//! What must stay true: a path is followed once. All questions, decisions and commands concern what
//! it led to then, so a later swap of the path has no effect. With [`Access::Exclusive`] nobody
//! else has the device: `O_EXCL` on block devices, a lock on the open file description of files.
//! Both are held until the last reference to the description is gone, and requests in flight count
//! as references. So a successor gets in only after the last write of a killed predecessor has
//! landed.
//!
//! I/O is direct. Files on file systems that refuse that are opened for looking only, and
//! [`DeviceFacts::is_direct`] tells. A page cache would forget writes that it could not store, and
//! report that at most once. Not here: doing I/O (`uring`).

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::Handle;
use ashlar_units::BLOCK_BYTES;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, Stat, StatxFlags, flock, fstat,
    major, minor, open, seek, statx,
};
use rustix::io::Errno;

use crate::bay::Bay;
use crate::device::{Access, Device, DeviceFacts, DeviceKind, OpenRefusal, Opened};
use crate::holders;
use crate::identity::Identity;
use crate::memory_file::MemoryFile;
use crate::store;
use crate::sysfs;
use crate::uring::UringDevice;

/// How long between two tries to get a device that somebody has.
const PAUSE: Duration = Duration::from_millis(20);
/// Alignment that satisfies every device, for those that do not tell theirs.
const CAUTIOUS_ALIGNMENT: u32 = 4096;
/// How long to wait for what this process has itself: a member of a running array stays in use
/// however long one waits, and one that was let go just now is free in a moment.
const OWN_WAIT: Duration = Duration::from_millis(200);
/// Zeros for devices and file systems that cannot zero by themselves.
const ZEROS_BYTES: usize = 1 << 20;

/// Why a folder, a pipe or a terminal is no device.
const NO_DEVICE: &str = "neither a block device nor a regular file; name one of these";

/// The block device or file at `path`, opened for looking at it only, even if it is in use.
/// Anything else is not opened: a pipe would wait for a writer.
///
/// # Errors
/// What the system says, or that it is neither.
pub fn open_to_look(path: &Path) -> io::Result<fs::File> {
    let named = fs::File::from(name(path)?);
    let kind = named.metadata()?.file_type();
    if kind.is_file() || kind.is_block_device() {
        return fs::File::open(own_path(&named));
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, NO_DEVICE))
}

/// What `path` leads to, held and not opened: a pipe does not wait, a tape does not move.
fn name(path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// The path by which this process opens again what it holds.
fn own_path(held: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", held.as_raw_fd())
}

/// The path by which other processes of this user open what this one holds.
pub(crate) fn path_for_others(held: &impl AsRawFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), held.as_raw_fd())
}

/// An opened block device or file.
pub struct FileDevice {
    file: Arc<OwnedFd>,
    identity: Arc<Identity>,
    facts: DeviceFacts,
    zeros: Buf,
}

impl FileDevice {
    /// Opens `path`. If access is to be exclusive and another process has it, tries again for up to
    /// `wait`; zero is one try.
    ///
    /// # Errors
    /// Why not, and who has it if that is the reason.
    pub fn open(path: &str, access: Access, wait: Duration) -> Result<FileDevice, OpenRefusal> {
        let refuse = |error| refusal(path, access, error);
        let named = name(path).map_err(refuse)?;
        let about = fstat(&named).map_err(refuse)?;
        let way = Way { path, at: &own_path(&named), wait };
        let (file, facts) = match FileType::from_raw_mode(about.st_mode) {
            FileType::BlockDevice => open_block(&way, access).map_err(refuse)?,
            FileType::RegularFile => open_file(&way, access).map_err(refuse)?,
            _ => return Err(OpenRefusal::new(path, NO_DEVICE)),
        };
        if facts.size_bytes == 0 {
            return Err(OpenRefusal::new(path, "has no space: its size is less than a block"));
        }
        if access == Access::Exclusive && !facts.is_direct {
            let reason = "its file system has no direct I/O, and its cache may lose writes \
                          unnoticed; use a file on ext4, XFS or btrfs";
            return Err(OpenRefusal::new(path, reason));
        }
        let zeros = BufMut::zeroed(ZEROS_BYTES).freeze();
        let file = Arc::new(file);
        let bytes = seek(&file, SeekFrom::End(0)).map_err(refuse)?;
        let identity = Arc::new(Identity::of(&file, path, facts.kind, bytes));
        Ok(FileDevice { file, identity, facts, zeros })
    }
}

impl FileDevice {
    /// Its identity, and its commands under way.
    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }
}

impl Opened for FileDevice {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn descriptor_path(&self) -> Option<String> {
        Some(path_for_others(self.file.as_ref()))
    }

    /// # Panics
    /// If the executor behind `handle` has no io_uring.
    fn attach(&self, handle: &Handle) -> Rc<dyn Device> {
        let (file, identity) = (Arc::clone(&self.file), Arc::clone(&self.identity));
        if identity.is_in_memory() {
            let (facts, zeros) = (self.facts.clone(), self.zeros.clone());
            let is_given_up = Cell::new(false);
            return Rc::new(MemoryFile { facts, file, identity, zeros, is_given_up });
        }
        let held = (file, identity);
        Rc::new(UringDevice::new(handle, held, self.facts.clone(), self.zeros.clone()))
    }
}

/// What is to be opened, and how long to try.
struct Way<'a> {
    /// As it was named.
    path: &'a str,
    /// A path to what that led to.
    at: &'a str,
    wait: Duration,
}

fn open_block(way: &Way<'_>, access: Access) -> Result<(OwnedFd, DeviceFacts), Errno> {
    let flags = match access {
        Access::ReadOnly => OFlags::RDONLY | OFlags::DIRECT,
        Access::Exclusive => OFlags::RDWR | OFlags::DIRECT | OFlags::EXCL,
    };
    let file = try_for(way, || open(way.at, flags | OFlags::CLOEXEC, Mode::empty()))?;
    let about = fstat(&file)?;
    let (major, minor) = (major(about.st_rdev), minor(about.st_rdev));
    // Some kernels refuse the first write only.
    if access == Access::Exclusive && sysfs::is_protected(Path::new(sysfs::SYS), major, minor) {
        return Err(Errno::ROFS);
    }
    let facts = block_facts(way.path, &file, &about)?;
    Ok((file, facts))
}

fn block_facts(path: &str, file: &OwnedFd, about: &Stat) -> Result<DeviceFacts, Errno> {
    let told = sysfs::read(Path::new(sysfs::SYS), major(about.st_rdev), minor(about.st_rdev));
    let direct = direct_alignment(file);
    let size_bytes = match told.as_ref().and_then(|told| told.size_bytes) {
        Some(size_bytes) => size_bytes,
        None => seek(file, SeekFrom::End(0))?,
    };
    let mut facts = DeviceFacts::plain(path, size_bytes, DeviceKind::Block);
    facts.has_volatile_cache = true;
    // No file system has a device of that number.
    facts.exclusion = Some([u64::MAX, about.st_rdev]);
    facts.discard_reads_zeros = false;
    facts.memory_alignment = CAUTIOUS_ALIGNMENT;
    facts.takes_whole_blocks = takes_whole_blocks(file);
    facts.store =
        store::of_block(Path::new(sysfs::SYS), major(about.st_rdev), minor(about.st_rdev));
    facts.bay = Bay::of(
        Path::new(sysfs::SYS),
        Path::new("/dev"),
        major(about.st_rdev),
        minor(about.st_rdev),
    );
    if let Some(told) = told {
        facts.logical_block_bytes = told.logical_block_bytes;
        facts.is_rotational = told.is_rotational;
        facts.has_volatile_cache = told.has_volatile_cache;
        facts.atomic_write_bytes = told.atomic_write_bytes;
        facts.discard_reads_zeros = told.can_zero;
        facts.memory_alignment = told.dma_alignment.unwrap_or(CAUTIOUS_ALIGNMENT);
        facts.model = told.model;
        facts.serial = told.serial;
        facts.appearance = told.appearance;
    }
    if let Some(direct) = direct {
        facts.memory_alignment = direct.memory;
        facts.logical_block_bytes = facts.logical_block_bytes.max(direct.offset);
    }
    facts.size_bytes -= facts.size_bytes % u64::from(facts.logical_block_bytes);
    Ok(facts)
}

fn open_file(way: &Way<'_>, access: Access) -> Result<(OwnedFd, DeviceFacts), Errno> {
    let flags = OFlags::CLOEXEC
        | match access {
            Access::ReadOnly => OFlags::RDONLY,
            Access::Exclusive => OFlags::RDWR,
        };
    // A file system may refuse direct I/O when the file is opened, or only tell that it cannot do
    // it.
    let direct = match open(way.at, flags | OFlags::DIRECT, Mode::empty()) {
        Ok(file) if direct_alignment(&file).is_some_and(|align| align.offset == 0) => None,
        Ok(file) => Some(file),
        Err(Errno::INVAL) => None,
        Err(error) => return Err(error),
    };
    let is_direct = direct.is_some();
    let file = match direct {
        Some(file) => file,
        None => open(way.at, flags, Mode::empty())?,
    };
    if access == Access::Exclusive {
        try_for(way, || flock(&file, FlockOperation::NonBlockingLockExclusive))?;
    }
    let about = fstat(&file)?;
    let facts = file_facts(way.path, &file, &about, is_direct);
    Ok((file, facts))
}

fn file_facts(path: &str, file: &OwnedFd, about: &Stat, is_direct: bool) -> DeviceFacts {
    let size_bytes = u64::try_from(about.st_size).unwrap_or(0);
    let mut facts = DeviceFacts::plain(path, size_bytes, DeviceKind::File);
    facts.is_direct = is_direct;
    facts.exclusion = Some([about.st_dev, about.st_ino]);
    facts.store = store::of_file(about);
    // The file system itself holds back writes until it is told to sync.
    facts.has_volatile_cache = true;
    if is_direct {
        let direct = direct_alignment(file);
        facts.memory_alignment = direct.map_or(CAUTIOUS_ALIGNMENT, |direct| direct.memory);
        facts.logical_block_bytes =
            direct.map_or(CAUTIOUS_ALIGNMENT, |direct| direct.offset.max(512));
    }
    let below = sysfs::read(Path::new(sysfs::SYS), major(about.st_dev), minor(about.st_dev));
    facts.is_rotational = below.is_some_and(|below| below.is_rotational);
    facts.size_bytes -= facts.size_bytes % u64::from(facts.logical_block_bytes);
    facts
}

/// What direct I/O asks for, in bytes. An offset alignment of 0: it is not possible on this file.
#[derive(Clone, Copy)]
struct DirectAlignment {
    memory: u32,
    offset: u32,
}

/// `None` if the kernel does not tell.
fn direct_alignment(file: &OwnedFd) -> Option<DirectAlignment> {
    let told = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    (told.stx_mask & StatxFlags::DIOALIGN.bits() != 0).then(|| DirectAlignment {
        memory: told.stx_dio_mem_align.max(1),
        offset: told.stx_dio_offset_align,
    })
}

/// STATX_WRITE_ATOMIC: how large writes may be that are done whole (Linux 6.11).
const WRITE_ATOMIC: StatxFlags = StatxFlags::from_bits_retain(0x1_0000);

/// Whether the kernel hands the device a block as one command that this writes whole or not at all
/// even when its power fails. Only the open device can tell: a partition may lie askew.
fn takes_whole_blocks(file: &OwnedFd) -> bool {
    let told = statx(file, "", AtFlags::EMPTY_PATH, WRITE_ATOMIC);
    told.is_ok_and(|told| {
        let sizes = [told.stx_atomic_write_unit_min, told.stx_atomic_write_unit_max];
        let [least, most] = sizes.map(u64::from);
        let is_told = told.stx_mask & WRITE_ATOMIC.bits() != 0;
        // What the kernel cannot do, it tells as zeros.
        is_told && (1..=BLOCK_BYTES).contains(&least) && most >= BLOCK_BYTES
    })
}

/// Tries again while somebody else has it, for up to `wait`, or [`OWN_WAIT`] if that is this
/// process.
fn try_for<T>(way: &Way<'_>, mut attempt: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut wait = way.wait;
    let mut waited = Duration::ZERO;
    loop {
        match attempt() {
            Err(Errno::BUSY | Errno::WOULDBLOCK) if waited < wait => {
                if waited.is_zero() && holders::is_own(way.path) {
                    wait = wait.min(OWN_WAIT);
                }
                thread::sleep(PAUSE);
                waited += PAUSE;
            }
            Err(Errno::INTR) => {}
            ended => return ended,
        }
    }
}

fn refusal(path: &str, access: Access, error: Errno) -> OpenRefusal {
    let reason = match error {
        Errno::NOENT => "there is no such device or file; check the name".to_owned(),
        Errno::BUSY | Errno::WOULDBLOCK => {
            let who = holders::describe(path);
            format!("in use: {who}; stop what uses it, or name another device")
        }
        Errno::ACCESS | Errno::PERM => {
            "permission denied; run as root or as a member of group disk".to_owned()
        }
        Errno::ROFS if access == Access::Exclusive => format!(
            "write-protected; end that (blockdev --setrw {path}; a file: mount its file system for \
             writing)"
        ),
        Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM => {
            "the device behind it is gone; check its cabling".to_owned()
        }
        Errno::MFILE | Errno::NFILE => "not opened, because too many files are open".to_owned(),
        other => format!("cannot be opened: {}", std::io::Error::from(other)),
    };
    let is_own_want = matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOMEM);
    let is_write_protected = error == Errno::ROFS && access == Access::Exclusive;
    OpenRefusal { is_own_want, is_write_protected, ..OpenRefusal::new(path, reason) }
}
