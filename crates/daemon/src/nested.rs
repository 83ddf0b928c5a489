//! Devices that lie on a volume of this daemon, by whatever way: they are no members.
//!
//! Such an array would have to end before the one beneath it, and to start after it; a daemon that
//! is killed leaves neither order. What must stay true: a path is followed to the last file or
//! device, through links, partitions, loop devices, mapped devices and file systems, and nothing is
//! opened for that. Not seen: a volume that comes back over NBD by TCP, or from another host.

use crate::exports::fuse::FuseExports;
use crate::exports::nvme::NvmeExports;
use crate::exports::{Exports, fuse, mounts};
use ashlar_device::{Access, OpenRefusal, Opened, Opener};
use rustix::fs::{major, minor};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// How many things may lie one on the other.
const DEPTH_MAX: u32 = 16;

/// The exports of this process.
static OWN: Mutex<Weak<Exports>> = Mutex::new(Weak::new());

fn locked() -> MutexGuard<'static, Weak<Exports>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on the volumes of this daemon are those of these exports.
pub fn own(exports: Exports) -> Arc<Exports> {
    let exports = Arc::new(exports);
    *locked() = Arc::downgrade(&exports);
    exports
}

/// That the device does not lie on a volume of this daemon.
///
/// # Errors
/// The refusal, which names the volume.
pub fn check(path: &str) -> Result<(), OpenRefusal> {
    let Some(exports) = locked().upgrade() else { return Ok(()) };
    match Ways::of(&exports).volume_beneath(Path::new(path), DEPTH_MAX) {
        None => Ok(()),
        Some(volume) => Err(OpenRefusal::new(path, on_own(path, &volume))),
    }
}

fn on_own(path: &str, volume: &str) -> String {
    let how = match volume == path {
        true => "is a volume of this daemon".to_owned(),
        false => format!("lies on a volume of this daemon, {volume}"),
    };
    format!("{how}, which must outlive every array on it; use another device, or another daemon")
}

/// Opens what `inner` opens, but nothing that lies on a volume of this daemon.
pub struct NotOwn {
    inner: Arc<dyn Opener>,
}

impl NotOwn {
    /// Around `inner`.
    pub fn new(inner: Arc<dyn Opener>) -> NotOwn {
        NotOwn { inner }
    }
}

impl Opener for NotOwn {
    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn Opened>, OpenRefusal> {
        check(path)?;
        self.inner.open(path, access)
    }
}

/// The ways out of this daemon, and where the kernel tells what lies on what.
struct Ways {
    sys: PathBuf,
    proc: PathBuf,
    mounts: Vec<mounts::OnDevice>,
    /// Where files of volumes appear, without links.
    folder: PathBuf,
    /// Block devices, and addresses of listeners.
    addresses: Vec<String>,
    /// The name of the NVMe subsystem.
    subsystem: Option<String>,
}

impl Ways {
    fn of(exports: &Exports) -> Ways {
        let folder = exports.of::<FuseExports>().folder();
        Ways {
            sys: PathBuf::from("/sys"),
            proc: PathBuf::from("/proc"),
            mounts: mounts::on_devices(),
            folder: folder.canonicalize().unwrap_or_else(|_| folder.to_owned()),
            addresses: exports.status().into_iter().map(|it| it.address).collect(),
            subsystem: exports.of::<NvmeExports>().subsystem(),
        }
    }

    /// The volume that `path` leads to or lies on.
    fn volume_beneath(&self, path: &Path, depth: u32) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        // Before the file is asked for anything: its server may be this process.
        if self.is_file_of_volume(path) {
            return Some(path.display().to_string());
        }
        let about = fs::metadata(path).ok()?;
        match about.file_type().is_block_device() {
            true => self.beneath_block(major(about.rdev()), minor(about.rdev()), depth),
            false => self.beneath_file(major(about.dev()), minor(about.dev()), depth),
        }
    }

    fn is_file_of_volume(&self, path: &Path) -> bool {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return false };
        let folder = match folder.as_os_str().is_empty() {
            true => Path::new("."),
            false => folder,
        };
        let Ok(folder) = folder.canonicalize() else { return false };
        let place = folder.join(name);
        folder == self.folder && self.mounts.iter().any(|it| is_ours(it) && it.mount.place == place)
    }

    /// Of a file on the file system with this device.
    fn beneath_file(&self, major: u32, minor: u32, depth: u32) -> Option<String> {
        if major != 0 {
            return self.beneath_block(major, minor, depth);
        }
        let number = format!("{major}:{minor}");
        let found = self.mounts.iter().find(|it| it.number == number)?;
        let mount = &found.mount;
        if is_ours(found) && mount.place.parent() == Some(&self.folder) {
            return Some(mount.place.display().to_string());
        }
        if !mount.source.starts_with("/dev") {
            return None;
        }
        let others = || self.devices_of_btrfs(&mount.source);
        self.volume_beneath(&mount.source, depth)
            .or_else(|| others().iter().find_map(|it| self.beneath_node(it, depth)))
    }

    /// All devices of the btrfs that has this one, in sysfs.
    fn devices_of_btrfs(&self, device: &Path) -> Vec<PathBuf> {
        let real = device.canonicalize().unwrap_or_else(|_| device.to_owned());
        let systems = entries(&self.sys.join("fs/btrfs"));
        let all = systems.into_iter().map(|it| entries(&it.join("devices")));
        let has_it = |it: &Vec<PathBuf>| it.iter().any(|it| it.file_name() == real.file_name());
        all.into_iter().find(has_it).unwrap_or_default()
    }

    /// Of a block device by its folder in sysfs.
    fn beneath_node(&self, node: &Path, depth: u32) -> Option<String> {
        let number = text(&node.join("dev"))?;
        let (major, minor) = number.split_once(':')?;
        self.beneath_block(major.parse().ok()?, minor.parse().ok()?, depth)
    }

    fn beneath_block(&self, major: u32, minor: u32, depth: u32) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        let own = fs::canonicalize(self.sys.join(format!("dev/block/{major}:{minor}"))).ok()?;
        let disk = match own.join("partition").exists() {
            true => own.parent()?,
            false => &own,
        };
        // In sysfs, '!' stands for '/'.
        let node = format!("/dev/{}", disk.file_name()?.to_str()?.replace('!', "/"));
        if self.addresses.contains(&node) || self.is_own_subsystem(disk) || self.is_own_nbd(disk) {
            return Some(node);
        }
        if let Some(file) = text(&disk.join("loop/backing_file")) {
            return self.volume_beneath(Path::new(&file), depth);
        }
        let below = [own.join("slaves"), disk.join("slaves")];
        let mut below = below.iter().flat_map(|it| entries(it));
        below.find_map(|node| self.beneath_node(&node, depth))
    }

    fn is_own_subsystem(&self, disk: &Path) -> bool {
        let told = text(&disk.join("device/subsysnqn"));
        told.is_some() && told == self.subsystem
    }

    /// The process that connected an NBD device names the socket.
    fn is_own_nbd(&self, disk: &Path) -> bool {
        let is_nbd = disk.file_name().is_some_and(|it| it.as_encoded_bytes().starts_with(b"nbd"));
        let Some(id) = text(&disk.join("pid")).filter(|_| is_nbd) else { return false };
        let line = fs::read(self.proc.join(id).join("cmdline")).unwrap_or_default();
        let words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let sockets = self.addresses.iter().filter_map(|it| it.strip_prefix("unix:"));
        let sockets: Vec<&str> = sockets.collect();
        words.into_iter().any(|word| sockets.iter().any(|socket| *word == **socket))
    }
}

fn is_ours(it: &mounts::OnDevice) -> bool {
    it.mount.kind == fuse::KIND
}

fn text(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// What is in a folder, by its full path.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = all.map(|entry| entry.path()).collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::{DEPTH_MAX, Ways};
    use crate::exports::fuse;
    use crate::exports::mounts::{Mount, OnDevice};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    /// A block device: its name, its minor number, and its files in sysfs.
    type MadeUp<'a> = (&'a str, u32, &'a [(&'a str, &'a str)]);

    /// A made-up machine with these block devices.
    fn machine(devices: &[MadeUp<'_>]) -> (tempfile::TempDir, Ways) {
        let root = tempfile::tempdir().expect("a folder");
        let [sys, proc, folder] = ["sys", "proc", "vol"].map(|name| root.path().join(name));
        for made in ["sys/dev/block", "sys/block", "proc", "vol"] {
            fs::create_dir_all(root.path().join(made)).expect("made");
        }
        for (name, minor, files) in devices {
            let own = sys.join("block").join(name);
            fs::create_dir_all(&own).expect("made");
            fs::write(own.join("dev"), format!("7:{minor}\n")).expect("written");
            symlink(&own, sys.join(format!("dev/block/7:{minor}"))).expect("linked");
            for (file, content) in *files {
                let file = own.join(file);
                fs::create_dir_all(file.parent().expect("a folder")).expect("made");
                match content.strip_prefix("-> ") {
                    Some(to) => symlink(sys.join("block").join(to), file).expect("linked"),
                    None => fs::write(file, content).expect("written"),
                }
            }
        }
        let ways = Ways {
            sys,
            proc,
            mounts: Vec::new(),
            folder,
            addresses: vec!["/dev/ublkb0".to_owned(), "unix:/run/nbd.sock".to_owned()],
            subsystem: Some("nqn.own".to_owned()),
        };
        (root, ways)
    }

    fn beneath(ways: &Ways, minor: u32) -> Option<String> {
        ways.beneath_block(7, minor, DEPTH_MAX)
    }

    #[test]
    fn a_volume_is_found_beneath_partitions_and_mapped_devices() {
        let (root, ways) = machine(&[
            ("ublkb0", 0, &[("ublkb0p1/partition", "1"), ("ublkb0p1/dev", "7:1")]),
            ("ublkb1", 2, &[]),
            ("dm-0", 3, &[("slaves/ublkb0", "-> ublkb0")]),
            ("md0", 4, &[("slaves/dm-0", "-> dm-0")]),
            ("dm-1", 5, &[("slaves/ublkb1", "-> ublkb1")]),
            ("nvme0n1", 6, &[("device/subsysnqn", "nqn.own\n")]),
            ("nvme1n1", 7, &[("device/subsysnqn", "nqn.other\n")]),
            ("nbd0", 8, &[("pid", "77\n")]),
            ("nbd1", 9, &[("pid", "78\n")]),
        ]);
        let partition = ways.sys.join("block/ublkb0/ublkb0p1");
        symlink(partition, ways.sys.join("dev/block/7:1")).expect("linked");
        for (id, line) in [("77", "nbd-client\0-unix\0/run/nbd.sock\0"), ("78", "nbd-client\0b\0")]
        {
            fs::create_dir_all(ways.proc.join(id)).expect("made");
            fs::write(ways.proc.join(id).join("cmdline"), line).expect("written");
        }
        let ublk = Some("/dev/ublkb0".to_owned());
        for (minor, volume) in [
            (0, ublk.clone()),
            (1, ublk.clone()),
            (2, None),
            (3, ublk.clone()),
            (4, ublk),
            (5, None),
            (6, Some("/dev/nvme0n1".to_owned())),
            (7, None),
            (8, Some("/dev/nbd0".to_owned())),
            (9, None),
        ] {
            assert_eq!(beneath(&ways, minor), volume, "7:{minor}");
        }
        drop(root);
    }

    #[test]
    fn a_file_of_a_volume_is_found_by_itself_by_links_and_beneath_loop_devices() {
        let (root, mut ways) = machine(&[("loop0", 0, &[]), ("loop1", 1, &[])]);
        let (file, other) = (ways.folder.join("tank"), ways.folder.join("plain"));
        for path in [&file, &other] {
            fs::write(path, "").expect("written");
        }
        ways.mounts = vec![OnDevice {
            number: "0:57".to_owned(),
            mount: Mount {
                source: "ashlar".into(),
                place: file.clone(),
                kind: fuse::KIND.to_owned(),
            },
        }];
        for (name, backing) in [("loop0", &file), ("loop1", &other)] {
            let told = ways.sys.join("block").join(name).join("loop");
            fs::create_dir_all(&told).expect("made");
            let text = format!("{}\n", backing.display());
            fs::write(told.join("backing_file"), text).expect("written");
        }
        let volume = file.display().to_string();
        let of = |path: &Path| ways.volume_beneath(path, DEPTH_MAX);
        assert_eq!(of(&file), Some(volume.clone()));
        assert_eq!(of(&other), None);
        assert_eq!((beneath(&ways, 0), beneath(&ways, 1)), (Some(volume.clone()), None));
        // By its file system, wherever it is named.
        assert_eq!(ways.beneath_file(0, 57, DEPTH_MAX), Some(volume));
        assert_eq!(ways.beneath_file(0, 58, DEPTH_MAX), None);
        drop(root);
    }
}
