//! Loop devices over the files of attached volumes, found in sysfs.
//!
//! What must stay true: no loop device is opened to look at it, because a stuck foreign one would
//! block the daemon. Only those over our own file are detached.

use super::mounts::Mount;
use crate::aside::aside;
use crate::system_program::command;
use ashlar_api::v1::export::ExportStatus;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Where block devices are listed.
const BLOCK: &str = "/sys/block";

/// The loop devices over `file`, as `/dev/loopN`.
pub fn over(file: &str) -> Vec<String> {
    let Ok(devices) = fs::read_dir(BLOCK) else { return Vec::new() };
    let names = devices.flatten().filter_map(|device| device.file_name().into_string().ok());
    let mut found: Vec<String> = names.filter(|name| is_over(name, file)).collect();
    found.sort();
    found.iter().map(|name| format!("/dev/{name}")).collect()
}

/// Name the loop devices over the files of these exports.
pub fn name_devices(exports: &mut [ExportStatus]) {
    for export in exports.iter_mut().filter(|export| export.address.starts_with('/')) {
        export.devices = over(&export.address);
    }
}

/// Have all loop devices over `file` let it go, each at once or when its last user closes it. One
/// that does not answer within `wait_max` is left to itself; [`over`] finds it again.
pub async fn let_go_of(file: &str, wait_max: Duration) {
    for device in over(file) {
        let _kept = tokio::time::timeout(wait_max, aside(move || let_go(&device))).await;
    }
}

/// Have all loop devices over `file` take its size, which has grown. One that does not answer
/// within `wait_max` keeps its own.
pub async fn grow_over(file: &str, wait_max: Duration) {
    let path = file.to_owned();
    // The kernel is to know the size before it is asked to give it to a loop device.
    let _seen = tokio::time::timeout(wait_max, aside(move || look_afresh(&path))).await;
    for device in over(file) {
        let _taken = tokio::time::timeout(wait_max, aside(move || take_size(&device))).await;
    }
}

/// Ask for the attributes of a file, whatever the kernel knows of them.
fn look_afresh(file: &str) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    statx(CWD, file, AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE)?;
    Ok(())
}

/// Have a loop device take the size of its file.
///
/// # Errors
/// What util-linux's losetup says, or that it is not here.
fn take_size(device: &str) -> io::Result<()> {
    losetup(&["--set-capacity", device])
}

/// Make a loop device over `file`, with direct I/O. Its path.
///
/// # Errors
/// What util-linux's losetup says, or that it is not here.
pub fn set_up(file: &str, sector_bytes: u32) -> io::Result<String> {
    let sector_bytes = sector_bytes.to_string();
    let output = command("losetup")
        .args(["--find", "--show", "--direct-io=on", "--sector-size", &sector_bytes, file])
        .output()
        .map_err(|error| {
            io::Error::other(format!("losetup (package util-linux) cannot be run: {error}"))
        })?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// Let a loop device go: at once, or when its last user closes it. What is under way on it is
/// waited for.
///
/// # Errors
/// What util-linux's losetup says, or that it is not here.
fn let_go(device: &str) -> io::Result<()> {
    losetup(&["--detach", device])
}

fn losetup(arguments: &[&str]) -> io::Result<()> {
    let output = command("losetup").args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Where `device` (`/dev/loopN`) or one of its partitions is mounted, by these mounts.
pub fn mounted_at<'a>(mounts: &'a [Mount], device: &str) -> Option<&'a Path> {
    mounts.iter().find_map(|mount| {
        let part = mount.source.to_str()?.strip_prefix(device)?;
        let is_it = part.is_empty() || part.starts_with('p');
        is_it.then_some(mount.place.as_path())
    })
}

fn is_over(name: &str, file: &str) -> bool {
    let told = Path::new(BLOCK).join(name).join("loop/backing_file");
    name.starts_with("loop") && fs::read_to_string(told).is_ok_and(|told| told.trim_end() == file)
}

#[cfg(test)]
mod tests {
    use super::mounted_at;
    use crate::exports::mounts::parse;

    #[test]
    fn a_device_and_its_partitions_count_as_mounted_and_its_neighbours_do_not() {
        let mounts =
            "proc /proc proc rw 0 0\n/dev/loop10 /a xfs rw 0 0\n/dev/loop2p1 /b xfs rw 0 0\n";
        let mounts: Vec<_> = parse(mounts).collect();
        let at = |device| mounted_at(&mounts, device).map(|place| place.display().to_string());
        assert_eq!(at("/dev/loop10").as_deref(), Some("/a"));
        assert_eq!(at("/dev/loop2").as_deref(), Some("/b"));
        assert_eq!(at("/dev/loop1"), None);
    }
}
