//! Running programs that use the mount. Nothing here may touch the mount from the thread that
//! serves it.

use std::path::Path;
use std::process::Command;

/// No program may take longer, in seconds.
const SECONDS_MAX: &str = "300";

/// Run a program; what it printed, and whether it succeeded.
pub fn try_run(program: &str, arguments: &[&str]) -> (bool, String) {
    let package = match program {
        "mkfs.ext4" | "e2fsck" => "e2fsprogs",
        "losetup" | "mount" | "umount" | "fallocate" => "util-linux",
        "dd" | "stat" | "ls" => "coreutils",
        other => other,
    };
    let path =
        format!("/usr/sbin:/usr/bin:/sbin:/bin:{}", std::env::var("PATH").unwrap_or_default());
    let is_there = path.split(':').any(|folder| Path::new(folder).join(program).exists());
    assert!(is_there, "{program} is missing: apt-get install {package}");
    let output = Command::new("timeout")
        .args(["-k", "5", SECONDS_MAX, program])
        .args(arguments)
        .env("PATH", path)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Run a program that must succeed.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let (is_good, text) = try_run(program, arguments);
    assert!(is_good, "{program} {arguments:?} failed:\n{text}");
    text
}

/// Whether this process may mount; if not, say which test does not run.
pub fn may_mount(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let has_device = Path::new("/dev/fuse").exists();
    if !is_root || !has_device {
        eprintln!("{test} did not run: it needs root and /dev/fuse");
    }
    is_root && has_device
}

/// Whether loop devices can be made; if not, say which test does not run.
pub fn may_loop(test: &str) -> bool {
    let has_loop = Path::new("/dev/loop-control").exists();
    if !has_loop {
        eprintln!("{test} did not run: it needs /dev/loop-control");
    }
    may_mount(test) && has_loop
}
