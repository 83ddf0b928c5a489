//! The machine we are on, read from sysfs, procfs and the targets themselves. Nothing is written.
//!
//! - signature: what is on a device: file systems, RAID members, partition tables
//! - extent: what was never written: holes of files, and samples of devices
//!
//! What must stay true: what cannot be read is said with its reason; no fact is guessed from a
//! name.

pub mod extent;
pub mod signature;

pub use signature::in_use;

use super::machine::{HostFacts, Kind, Known, Machine, TargetFacts};
use crate::adapter::commands::Unlogged;
use crate::guard;
use crate::inspect::server::cpu::nodes;
use crate::inspect::server::software::Memory;
use crate::source::Source;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a sector in sysfs.
const SECTOR_BYTES: u64 = 512;

#[derive(Clone, Copy, Debug, Default)]
pub struct Live;

impl Machine for Live {
    fn target(&self, path: &str) -> TargetFacts {
        let path = Path::new(path);
        match fs::metadata(path) {
            Ok(found) if found.file_type().is_block_device() => block(path, found.rdev()),
            Ok(found) if found.is_file() => file(path, &found),
            Ok(_) => {
                TargetFacts::untold(Ok(Kind::Other), "it is neither a file nor a block device")
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                TargetFacts::untold(Ok(Kind::Missing), "it is not there")
            }
            Err(error) => TargetFacts::untold(Err(error.to_string()), &error.to_string()),
        }
    }

    fn host(&self) -> HostFacts {
        // No program is run that could take long.
        let source = Source::live(Duration::ZERO);
        let (memory, nodes) = (Memory::read(&source), nodes(&source));
        HostFacts {
            memory_bytes: memory.map(|it| it.total).ok_or_else(|| untold("/proc/meminfo")),
            aio_max: read_number(Path::new("/proc/sys/fs/aio-max-nr")),
            fio: fio_version(),
            nodes: Some(nodes).filter(|it| !it.is_empty()).ok_or_else(|| untold("sysfs")),
            // The end of a kernel thread is nothing that could be waited for but by looking again.
            background: lasting(background, || std::thread::park_timeout(MOMENT)),
        }
    }
}

fn untold(source: &str) -> String {
    format!("{source} does not tell")
}

#[derive(Clone, Debug)]
pub struct Sysfs {
    pub own: PathBuf,
    pub disk: PathBuf,
}

impl Sysfs {
    /// The directories of the device with this number.
    pub fn of(rdev: u64) -> Known<Sysfs> {
        let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
        let link = format!("/sys/dev/block/{major}:{minor}");
        let own = fs::canonicalize(&link).map_err(|error| format!("{link}: {error}"))?;
        let parent = own.parent().map(Path::to_owned).unwrap_or_default();
        let disk = if own.join("partition").exists() { parent } else { own.clone() };
        Ok(Sysfs { own, disk })
    }

    /// The size of the device itself, which may be a part of the disk.
    pub fn bytes(&self) -> Known<u64> {
        read_number(&self.own.join("size")).map(|sectors| sectors.saturating_mul(SECTOR_BYTES))
    }

    fn number(&self, name: &str) -> Known<u64> {
        read_number(&self.disk.join(name))
    }
}

fn block(path: &Path, rdev: u64) -> TargetFacts {
    let sysfs = match Sysfs::of(rdev) {
        Ok(sysfs) => sysfs,
        Err(why) => return TargetFacts::untold(Ok(Kind::Block), &why),
    };
    let size_bytes = sysfs.bytes();
    let start = match sysfs.own == sysfs.disk {
        true => Ok(0),
        false => read_number(&sysfs.own.join("start")).map(|sectors| sectors * SECTOR_BYTES),
    };
    let polls = sysfs.number("queue/io_poll").map(|on| on != 0);
    TargetFacts {
        kind: Ok(Kind::Block),
        logical_block_bytes: sysfs.number("queue/logical_block_size"),
        start_bytes: start,
        optimal_bytes: sysfs.number("queue/optimal_io_size"),
        rotational: sysfs.number("queue/rotational").map(|spins| spins != 0),
        serial: serial(path),
        occupied: signature::occupied(path, &sysfs),
        unwritten_bytes: extent::unwritten_of_device(&sysfs),
        discarded_sectors: discarded(&sysfs),
        reads_zeros: size_bytes.clone().and_then(|bytes| extent::reads_zeros(path, bytes)),
        compresses: compresses(&sysfs),
        queue_requests: queue_requests(&sysfs),
        volatile_cache: read_text(&sysfs.disk.join("queue/write_cache"))
            .map(|mode| mode == "write back"),
        polls,
        node: read_text(&sysfs.disk.join("device/numa_node"))
            .and_then(|node| node.parse().map_err(|_| format!("the kernel says node {node}"))),
        size_bytes,
    }
}

/// The serial number by which `--destroy` names the drive.
fn serial(path: &Path) -> Known<String> {
    let found = guard::serial(&Unlogged, path).map_err(|why| why.to_string())?;
    found.ok_or_else(|| "it has no serial number".to_owned())
}

fn file(path: &Path, found: &fs::Metadata) -> TargetFacts {
    let below = Sysfs::of(found.dev());
    let of_disk = |name: &str| below.clone().and_then(|sysfs| sysfs.number(name));
    TargetFacts {
        kind: Ok(Kind::File),
        size_bytes: Ok(found.len()),
        logical_block_bytes: of_disk("queue/logical_block_size"),
        start_bytes: Ok(0),
        optimal_bytes: Ok(0),
        rotational: of_disk("queue/rotational").map(|spins| spins != 0),
        serial: Ok(path.to_string_lossy().into_owned()),
        occupied: Ok(match found.len() {
            0 => Vec::new(),
            bytes => vec![format!("a file with {bytes} bytes in it")],
        }),
        unwritten_bytes: extent::unwritten_of_file(path),
        discarded_sectors: Ok(0),
        reads_zeros: extent::reads_zeros(path, found.len()),
        compresses: Err("its file system may compress; mount options are not looked at".to_owned()),
        queue_requests: of_disk("queue/nr_requests"),
        volatile_cache: below
            .clone()
            .and_then(|sysfs| read_text(&sysfs.disk.join("queue/write_cache")))
            .map(|mode| mode == "write back"),
        polls: of_disk("queue/io_poll").map(|on| on != 0),
        node: Err("a file is on no node".to_owned()),
    }
}

/// Sectors discarded since the machine started: the fourteenth field of `stat`.
fn discarded(sysfs: &Sysfs) -> Known<u64> {
    let text = read_text(&sysfs.disk.join("stat"))?;
    let field = text.split_whitespace().nth(13).and_then(|field| field.parse().ok());
    field.ok_or_else(|| "this kernel counts no discards".to_owned())
}

fn compresses(sysfs: &Sysfs) -> Known<bool> {
    let name = sysfs.disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match name.as_str() {
        zram if zram.starts_with("zram") => Ok(true),
        zvol if zvol.starts_with("zd") => {
            Err("a ZFS volume may compress: zfs get compression,dedup".to_owned())
        }
        mapped if mapped.starts_with("dm-") => {
            read_text(&sysfs.disk.join("dm/uuid")).map(|uuid| uuid.starts_with("VDO"))
        }
        // What a drive does inside cannot be seen; no rule can ask for more than refilled buffers.
        _ => Ok(false),
    }
}

/// The smaller of the kernel's queue and the drive's own.
fn queue_requests(sysfs: &Sysfs) -> Known<u64> {
    let queue = sysfs.number("queue/nr_requests")?;
    let drive = sysfs.number("device/queue_depth").unwrap_or(u64::MAX);
    Ok(queue.min(drive))
}

fn fio_version() -> Known<(u32, u32)> {
    let mut command = std::process::Command::new("fio");
    let output = command.arg("--version").stdin(std::process::Stdio::null()).output();
    let output = output.map_err(|error| format!("fio could not be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    super::rules::parse_version(&text).ok_or_else(|| format!("fio calls itself '{text}'"))
}

/// The kernel thread that initialises what a fresh ext4 left for later. It also reads block bitmaps
/// ahead after every mount: after up to 5 s of waiting (`EXT4_DEF_LI_MAX_START_DELAY` in Linux's
/// fs/ext4/ext4.h) it is gone again in moments.
const EXT4_THREAD: &str = "ext4lazyinit";
/// Looks at what goes on in the background before that thread counts as work that lasts.
const LOOKS_MAX: usize = 60;
/// Time between two of them.
const MOMENT: Duration = Duration::from_millis(100);

/// What goes on in the background and is not over in [`LOOKS_MAX`] moments.
fn lasting(
    mut look: impl FnMut() -> Known<Vec<String>>,
    mut wait: impl FnMut(),
) -> Known<Vec<String>> {
    let mut found = look()?;
    for _ in 1..LOOKS_MAX {
        if !found.iter().any(|work| work.contains(EXT4_THREAD)) {
            break;
        }
        wait();
        found = look()?;
    }
    Ok(found)
}

/// Kernel threads and programs that work on devices in the background, by the names they run under.
fn background() -> Known<Vec<String>> {
    const NAMES: [(&str, &str); 8] = [
        ("_resync", "md resync or rebuild"),
        ("_reshape", "md reshape"),
        (EXT4_THREAD, "ext4 initialises inode tables"),
        ("btrfs-balance", "btrfs balance"),
        ("dsl_scan", "ZFS scrub or resilver"),
        ("fstrim", "fstrim"),
        ("e4defrag", "defragmentation"),
        ("xfs_scrub", "XFS scrub"),
    ];
    let mut found = Vec::new();
    for item in fs::read_dir("/proc").map_err(|error| error.to_string())?.filter_map(Result::ok) {
        let Ok(name) = fs::read_to_string(item.path().join("comm")) else { continue };
        let name = name.trim();
        if let Some((_, what)) = NAMES.iter().find(|(part, _)| name.contains(part)) {
            found.push(format!("{what} ({name})"));
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn read_text(path: &Path) -> Known<String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.trim().to_owned())
}

fn read_number(path: &Path) -> Known<u64> {
    let text = read_text(path)?;
    text.parse().map_err(|_| format!("{} says '{text}'", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{LOOKS_MAX, lasting};
    use std::cell::Cell;

    #[test]
    fn what_a_mount_begins_and_ends_in_moments_is_no_background_work() {
        let of_ext4 = || vec!["ext4 initialises inode tables (ext4lazyinit)".to_owned()];
        let (looks, waits) = (Cell::new(0), Cell::new(0));
        let look = || {
            looks.set(looks.get() + 1);
            Ok(if looks.get() < 4 { of_ext4() } else { Vec::new() })
        };
        assert_eq!((lasting(look, || {}), looks.get()), (Ok(Vec::new()), 4));
        assert_eq!(lasting(|| Ok(of_ext4()), || waits.set(waits.get() + 1)), Ok(of_ext4()));
        assert_eq!(waits.get(), LOOKS_MAX - 1);
        let resync = || Ok(vec!["md resync or rebuild (md0_resync)".to_owned()]);
        assert_eq!(lasting(resync, || panic!("not waited for")), resync());
    }
}
