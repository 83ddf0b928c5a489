//! Finds who else has a device or file: mounts, devices built on it, locks, processes.
//!
//! What must stay true: this serves messages only. Whether a device is free is decided by opening
//! it exclusively, never here, where the answer may be outdated.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat, major, minor, stat};

use crate::sysfs;

/// A holder of a device or file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// It, or a partition of it, is mounted there.
    Mount(PathBuf),
    /// The device of that name is built on it (md, device mapper, ...).
    Device(String),
    /// It has partitions in use or not: the names of those there are.
    Partition(String),
    /// That process has it open or locked.
    Process {
        /// Its number.
        id: u32,
        /// Its name.
        name: String,
    },
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holder::Mount(at) => write!(f, "mounted on {}", at.display()),
            Holder::Device(name) => write!(f, "part of {name}"),
            Holder::Partition(name) => write!(f, "partitioned: {name}"),
            Holder::Process { id, name } => write!(f, "open in process {id} ({name})"),
        }
    }
}

/// The holders of the device or file at `path` apart from this process, as far as this process may
/// see. A disk's partitions are listed too: overwriting the disk overwrites them.
///
/// # Errors
/// If there is nothing at `path`.
pub fn holders(path: &Path) -> std::io::Result<Vec<Holder>> {
    let about = stat(path)?;
    let mut found = Vec::new();
    if FileType::from_raw_mode(about.st_mode) == FileType::BlockDevice {
        let (major, minor) = (major(about.st_rdev), minor(about.st_rdev));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        found.extend(block_holders(Path::new(sysfs::SYS), &mounts, major, minor));
    }
    found.extend(processes(&about));
    // The file of locks tells also who locked what this process may not look into.
    for id in lockers(&fs::read_to_string("/proc/locks").unwrap_or_default(), &about) {
        let is_known =
            |holder: &Holder| matches!(holder, Holder::Process { id: known, .. } if *known == id);
        if id != std::process::id() && !found.iter().any(is_known) {
            found.push(Holder::Process { id, name: command_of(id) });
        }
    }
    Ok(found)
}

/// The holders, in one line for a refusal.
pub(crate) fn describe(path: &str) -> String {
    let found = holders(Path::new(path)).unwrap_or_default();
    if !found.is_empty() {
        return found.iter().map(Holder::to_string).collect::<Vec<_>>().join(", ");
    }
    if is_own(path) {
        return "by ashlar itself, as a member or spare".to_owned();
    }
    "by something that this process cannot see".to_owned()
}

/// Whether this process has it: a lock on the file, or the block device open.
pub(crate) fn is_own(path: &str) -> bool {
    let Ok(about) = stat(path) else { return false };
    if FileType::from_raw_mode(about.st_mode) == FileType::BlockDevice {
        return has_open(Path::new("/proc/self"), &about);
    }
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    lockers(&locks, &about).any(|id| id == std::process::id())
}

/// Processes with a lock on the file, from the text of the kernel's list of locks.
fn lockers(locks: &str, about: &Stat) -> impl Iterator<Item = u32> {
    let (major, minor) = (major(about.st_dev), minor(about.st_dev));
    let file = format!("{major:02x}:{minor:02x}:{}", about.st_ino);
    locks.lines().filter_map(move |line| {
        let mut fields = line.split_whitespace().skip_while(|field| *field != "FLOCK").skip(3);
        let id = fields.next()?.parse().ok()?;
        (fields.next()? == file).then_some(id)
    })
}

fn command_of(id: u32) -> String {
    let command = fs::read_to_string(format!("/proc/{id}/comm"));
    command.map_or_else(|_| "ended".to_owned(), |name| name.trim().to_owned())
}

/// Mounts of the device and its partitions, devices built on them, and the partitions themselves.
fn block_holders(sys: &Path, mounts: &str, major: u32, minor: u32) -> Vec<Holder> {
    let mut found: Vec<Holder> =
        mounts_of(mounts, &format!("{major}:{minor}")).map(Holder::Mount).collect();
    let Some(own) = sysfs::directory(sys, major, minor) else { return found };
    found.extend(names(&own.join("holders")).into_iter().map(Holder::Device));
    for name in names(&own) {
        let partition = own.join(&name);
        if !partition.join("partition").exists() {
            continue;
        }
        let number = fs::read_to_string(partition.join("dev")).unwrap_or_default();
        found.extend(mounts_of(mounts, number.trim()).map(Holder::Mount));
        found.extend(names(&partition.join("holders")).into_iter().map(Holder::Device));
        found.push(Holder::Partition(name));
    }
    found
}

/// Where the device `number` ("major:minor") is mounted, from the text of a mountinfo file.
fn mounts_of<'a>(mounts: &'a str, number: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    mounts.lines().filter_map(move |line| {
        let mut fields = line.split(' ');
        let at = (fields.nth(2)? == number).then(|| fields.nth(1))??;
        // The kernel writes blanks in paths as octal numbers.
        Some(PathBuf::from(at.replace("\\040", " ").replace("\\011", "\t")))
    })
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Other processes with an open descriptor of the same file.
fn processes(about: &Stat) -> Vec<Holder> {
    let mut found = Vec::new();
    for name in names(Path::new("/proc")) {
        let Ok(id) = name.parse::<u32>() else { continue };
        if id == std::process::id() {
            continue;
        }
        let process = Path::new("/proc").join(&name);
        if has_open(&process, about) && !is_beginning(&process) {
            found.push(Holder::Process { id, name: command_of(id) });
        }
    }
    found
}

/// Whether the process is a child of this one that has not begun its own program: it closes what it
/// inherited when it does.
fn is_beginning(process: &Path) -> bool {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let is_child = parent.is_some_and(|id| id.trim().parse() == Ok(std::process::id()));
    let program = |process: &Path| fs::read_link(process.join("exe")).ok();
    is_child && program(process) == program(Path::new("/proc/self"))
}

/// Whether the process with this folder in /proc has an open descriptor of the file or block
/// device.
fn has_open(process: &Path, about: &Stat) -> bool {
    let is_same = |descriptor: &String| {
        stat(process.join("fd").join(descriptor)).is_ok_and(|other| {
            (other.st_dev, other.st_ino) == (about.st_dev, about.st_ino)
                || (about.st_rdev != 0
                    && other.st_rdev == about.st_rdev
                    && FileType::from_raw_mode(other.st_mode) == FileType::BlockDevice)
        })
    };
    names(&process.join("fd")).iter().any(is_same)
}

#[cfg(test)]
mod tests {
    use super::{Holder, block_holders, holders, lockers};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    const MOUNTS: &str = "\
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
40 22 8:1 / /boot/with\\040blank rw shared:9 - vfat /dev/sda1 rw
41 22 8:16 / /data rw shared:9 - xfs /dev/sdb rw
";

    #[test]
    fn a_disk_is_held_through_its_partitions() {
        let sys = tempfile::tempdir().expect("a directory for the test");
        let disk = sys.path().join("devices/sda");
        for made in ["sda1/holders", "sda2/holders/dm-0", "holders/md7", "queue"] {
            fs::create_dir_all(disk.join(made)).expect("made");
        }
        fs::create_dir_all(sys.path().join("dev/block")).expect("made");
        symlink("../../devices/sda", sys.path().join("dev/block/8:0")).expect("linked");
        for (partition, number) in [("sda1", "8:1\n"), ("sda2", "8:2\n")] {
            fs::write(disk.join(partition).join("partition"), "1\n").expect("written");
            fs::write(disk.join(partition).join("dev"), number).expect("written");
        }
        let found = block_holders(sys.path(), MOUNTS, 8, 0);
        let wanted = [
            Holder::Device("md7".to_owned()),
            Holder::Mount(PathBuf::from("/boot/with blank")),
            Holder::Partition("sda1".to_owned()),
            Holder::Mount(PathBuf::from("/")),
            Holder::Device("dm-0".to_owned()),
            Holder::Partition("sda2".to_owned()),
        ];
        assert_eq!(found, wanted);
        assert_eq!(
            block_holders(sys.path(), MOUNTS, 8, 16),
            [Holder::Mount(PathBuf::from("/data"))],
            "mounted as a whole, unknown to this sysfs"
        );
    }

    #[test]
    fn lockers_are_known_by_device_and_inode() {
        let file = tempfile::NamedTempFile::new().expect("a file for the test");
        let mut about = rustix::fs::stat(file.path()).expect("there");
        about.st_dev = rustix::fs::makedev(0xfe, 2);
        about.st_ino = 4711;
        let locks = "\
1: FLOCK  ADVISORY  WRITE 100 fe:02:4711 0 EOF
1: -> FLOCK  ADVISORY  WRITE 101 fe:02:4711 0 EOF
2: FLOCK  ADVISORY  WRITE 102 fe:02:4712 0 EOF
3: POSIX  ADVISORY  WRITE 103 fe:02:4711 0 EOF
";
        assert_eq!(lockers(locks, &about).collect::<Vec<_>>(), [100, 101]);
    }

    #[test]
    fn a_process_that_has_a_file_open_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a file for the test");
        assert_eq!(holders(file.path()).expect("there"), [], "this process does not count");
        let input = fs::File::open(file.path()).expect("opened");
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stderr(input)
            .spawn()
            .expect("cat is everywhere");
        let found = holders(file.path()).expect("there");
        drop(child.stdin.take());
        child.wait().expect("ended");
        let id = child.id();
        assert!(
            matches!(&found[..], [Holder::Process { id: other, .. }] if *other == id),
            "{found:?}"
        );
    }
}
