//! A stock kernel of Debian, and the programs that a guest of it needs.
//!
//! What must stay true: everything comes from packages, by name; it is unpacked once into the
//! target folder of the build and is not installed. Programs that are missing are installed where
//! this is root's; else the test says what it lacks.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The package that stands for the newest kernel of this series.
const PACKAGE: &str = "linux-image-6.12-amd64";

/// Programs, and the package each comes from.
const PROGRAMS: [(&str, &str); 15] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("modprobe", "kmod"),
    ("xz", "xz-utils"),
    ("cpio", "cpio"),
    ("dpkg", "dpkg"),
    ("fio", "fio"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("blkdiscard", "util-linux"),
    ("losetup", "util-linux"),
    ("jq", "jq"),
    ("python3", "python3"),
    ("fusermount3", "fuse3"),
];

/// Modules that mount the root of this machine in the guest.
const ROOT_MODULES: [&str; 2] = ["9p", "9pnet_virtio"];

/// An unpacked kernel.
pub struct Kernel {
    /// What the boot loader starts.
    pub image: PathBuf,
    /// The first file system of the guest.
    pub initial: PathBuf,
    /// The folder with `lib/modules`, for `modprobe -d`.
    pub root: PathBuf,
    /// The version in its own words, the name of a folder below `lib/modules`.
    pub release: String,
}

/// The kernel, made ready by whoever comes first.
///
/// # Errors
/// One line that says what is missing here.
pub fn ready() -> Result<&'static Kernel, String> {
    static READY: OnceLock<Result<Kernel, String>> = OnceLock::new();
    READY.get_or_init(make).as_ref().map_err(Clone::clone)
}

fn make() -> Result<Kernel, String> {
    install_missing(&PROGRAMS)?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated");
    let package = package_of_today()?;
    let root = folder.join(&package);
    if !root.join("ready").exists() {
        unpack(&folder, &package, &root)?;
    }
    let release = only_in(&root.join("lib/modules"))?;
    let image = root.join("boot").join(format!("vmlinuz-{release}"));
    let initial = root.join("initial.cpio");
    let kernel = Kernel { image, initial, root, release };
    build_initial(&kernel.modules(&ROOT_MODULES)?, "init.sh", &kernel.initial)?;
    Ok(kernel)
}

/// The package that [`PACKAGE`] stands for now: its name has the version in it.
fn package_of_today() -> Result<String, String> {
    let depends = || {
        let text = run("apt-cache", ["depends", "--important", PACKAGE])?;
        let found = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
        found.map(str::to_owned).ok_or_else(|| format!("no package {PACKAGE}"))
    };
    depends().or_else(|_| {
        run("apt-get", ["update", "-qq"])?;
        depends()
    })
}

fn unpack(folder: &Path, package: &str, root: &Path) -> Result<(), String> {
    let fresh = folder.join(format!("{package}.{}", std::process::id()));
    fs::create_dir_all(&fresh).map_err(|error| format!("{}: {error}", fresh.display()))?;
    let download = Command::new("apt-get").args(["download", package]).current_dir(&fresh).output();
    let is_there = download.is_ok_and(|output| output.status.success());
    if !is_there {
        let _gone = fs::remove_dir_all(&fresh);
        return Err(format!("package {package} cannot be downloaded"));
    }
    let archive = fresh.join(only_in(&fresh)?);
    run("dpkg", [OsStr::new("-x"), archive.as_os_str(), fresh.as_os_str()])?;
    // It is 100 MB, and all of it is unpacked.
    let _gone = fs::remove_file(&archive);
    let release = only_in(&fresh.join("lib/modules"))?;
    run("depmod", [OsStr::new("-b"), fresh.as_os_str(), OsStr::new(&release)])?;
    fs::write(fresh.join("ready"), "").map_err(|error| error.to_string())?;
    // Another test program may have been faster.
    if fs::rename(&fresh, root).is_err() {
        let _gone = fs::remove_dir_all(&fresh);
    }
    Ok(())
}

impl Kernel {
    /// The files of these modules and of all that they need, in the order in which they load.
    ///
    /// # Errors
    /// One line that says which is missing.
    pub fn modules(&self, names: &[&str]) -> Result<Vec<PathBuf>, String> {
        let mut found: Vec<PathBuf> = Vec::new();
        for name in names {
            let root = self.root.to_string_lossy();
            let arguments = ["-d", &root, "-S", &self.release, "--show-depends", name];
            for line in run("modprobe", arguments)?.lines() {
                // The others are part of the kernel itself.
                let Some(path) = line.strip_prefix("insmod ") else { continue };
                let path = PathBuf::from(path.trim());
                if !found.contains(&path) {
                    found.push(path);
                }
            }
        }
        Ok(found)
    }
}

/// Busybox, modules to load in this order, and a first program out of `tests/emulated`.
///
/// # Errors
/// One line that says what went wrong.
pub fn build_initial(modules: &[PathBuf], first: &str, initial: &Path) -> Result<(), String> {
    let error = |error: std::io::Error| error.to_string();
    let tree = tempfile::tempdir().map_err(error)?;
    for folder in ["bin", "lib", "proc", "sys", "dev", "new"] {
        fs::create_dir(tree.path().join(folder)).map_err(error)?;
    }
    let busybox = find("busybox").ok_or("no busybox")?;
    fs::copy(busybox, tree.path().join("bin/busybox")).map_err(error)?;
    for (number, module) in modules.iter().enumerate() {
        let to = tree.path().join(format!("lib/{number:02}"));
        let to = fs::File::create(to).map_err(error)?;
        let status =
            Command::new("xz").arg("-dc").arg(module).stdout(to).status().map_err(error)?;
        if !status.success() {
            return Err(format!("module {} cannot be unpacked", module.display()));
        }
    }
    let init = tree.path().join("init");
    fs::copy(here(first), &init).map_err(error)?;
    run("chmod", [OsStr::new("755"), init.as_os_str()])?;
    let to = fs::File::create(initial).map_err(error)?;
    let packed = Command::new("sh")
        .args(["-c", "find . | cpio --quiet -o -H newc"])
        .current_dir(tree.path())
        .stdout(to)
        .status();
    match packed {
        Ok(status) if status.success() => Ok(()),
        _ => Err("cpio fails".to_owned()),
    }
}

/// Install what is missing of these programs, each with its package.
///
/// # Errors
/// One line that says what is still missing.
pub fn install_missing(programs: &[(&str, &str)]) -> Result<(), String> {
    let missing = || programs.iter().filter(|(program, _)| find(program).is_none());
    let packages: Vec<&str> = missing().map(|(_, package)| *package).collect();
    if !packages.is_empty() && rustix::process::geteuid().is_root() {
        // What cannot be installed is said below.
        let _tried = Command::new("apt-get")
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(&packages)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .output();
    }
    let missing: Vec<&str> = missing().map(|(program, _)| *program).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("{} not installed", missing.join(", "))),
    }
}

/// The path of a program.
fn find(program: &str) -> Option<PathBuf> {
    let folders = ["/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    folders.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.exists())
}

/// The name of the one thing in a folder.
fn only_in(folder: &Path) -> Result<String, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    match names.as_slice() {
        [only] => Ok(only.to_string_lossy().into_owned()),
        _ => Err(format!("{} things in {}", names.len(), folder.display())),
    }
}

/// The path of a script of these tests.
pub fn here(script: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/emulated")).join(script)
}

/// What a program prints; it must end well.
///
/// # Errors
/// One line with its complaint.
pub fn run(
    program: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<String, String> {
    let program = find(program).ok_or_else(|| format!("{program} not installed"))?;
    output(Command::new(program).args(arguments))
}

/// What a command prints; it must end well.
///
/// # Errors
/// One line with its complaint.
pub fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{program}: {}", complaint.trim())),
    }
}
