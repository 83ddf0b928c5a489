//! Where attached volumes appear: one regular file for each, on which the volume is mounted.
//!
//! What must stay true: only mounts of ours are taken away, and of those only dead ones; what
//! somebody looks at may not answer, so nobody waits for it without end.

use crate::aside::aside;
use crate::exports::{loops, mounts};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a start waits for the server of a mount to answer before it leaves the mount alone.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long a loop device may take to let go of a file.
pub const CLOSE_MAX: Duration = Duration::from_secs(2);

/// Make the file, and clear away what a killed daemon left mounted there.
pub fn prepare(file: &Path) -> io::Result<()> {
    for _ in 0..left_behind(&mounts::here(), file) {
        unmount(file)?;
    }
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // An empty folder, of a version that mounted on folders; what is in use stays, and is refused.
    let _none = std::fs::remove_dir(file);
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    drop(rustix::fs::open(file, flags, Mode::RUSR | Mode::WUSR)?);
    Ok(())
}

/// The file that a volume was mounted on is not needed any more. Only an empty one goes.
pub fn remove(file: &Path) {
    let is_empty = file.symlink_metadata().is_ok_and(|it| it.is_file() && it.len() == 0);
    if is_empty {
        // It does no harm if it stays.
        let _kept = std::fs::remove_file(file);
    }
}

pub fn is_mounted(file: &Path) -> bool {
    left_behind(&mounts::here(), file) > 0
}

/// The minor number of the device of the mount on `file`.
pub fn device_of(file: &Path) -> Option<u32> {
    mounts::with_devices().into_iter().rev().find(|(_, it)| it.place == file).map(|(it, _)| it)
}

/// Where the mount of ours with this device is.
pub fn with_device(device: u32) -> Option<PathBuf> {
    let mut all = mounts::with_devices().into_iter();
    all.find(|(it, mount)| *it == device && mount.kind == KIND).map(|(_, mount)| mount.place)
}

/// How our mounts are called.
pub const KIND: &str = "fuse.ashlar";

/// How many of these mounts are ours, and on `file`.
fn left_behind(mounts: &[mounts::Mount], file: &Path) -> usize {
    ours(mounts).filter(|place| *place == file).count()
}

/// Where our mounts are, in the order in which they were made.
fn ours(mounts: &[mounts::Mount]) -> impl Iterator<Item = &Path> {
    mounts.iter().filter(|it| it.kind == KIND).map(|it| it.place.as_path())
}

pub fn unmount(file: &Path) -> io::Result<()> {
    let by_root = Command::new("umount").arg("--lazy").arg(file).output();
    if !by_root.is_ok_and(|output| output.status.success()) {
        Command::new("fusermount3").args(["-u", "-z", "--"]).arg(file).output()?;
    }
    Ok(())
}

/// Make the folder below which volumes appear, and see that they can.
///
/// # Errors
/// It cannot be made or written to.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    Ok(rustix::fs::access(folder, rustix::fs::Access::WRITE_OK)?)
}

/// Take away the mounts right below `folder` that a killed daemon left behind: whoever opens one is
/// told that nobody answers. One that answers, or whose server is still on its way out, stays, and
/// so do those that are `kept`. What was taken away.
pub async fn clear_dead(folder: &Path, kept: &[PathBuf]) -> Vec<PathBuf> {
    let mut gone = Vec::new();
    let mounts = mounts::here();
    let Ok(folder) = folder.canonicalize() else { return gone };
    let below = |place: &&Path| place.parent() == Some(&folder);
    let looked_at = ours(&mounts).filter(below).filter(|it| kept.iter().all(|kept| kept != it));
    for place in looked_at {
        if !is_dead(place).await {
            continue;
        }
        // Its loop devices can be told by their path only as long as it is mounted.
        loops::let_go_of(&place.display().to_string(), CLOSE_MAX).await;
        let at = place.to_owned();
        if aside(move || unmount(&at)).await.is_ok() {
            remove(place);
            gone.push(place.to_owned());
        }
    }
    gone
}

/// Attributes are kept for a second after the server went; opening asks it each time. Somebody who
/// is stopped never answers, and the start does not wait for ever.
async fn is_dead(place: &Path) -> bool {
    let at = place.to_owned();
    let look = tokio::task::spawn_blocking(move || std::fs::File::open(at).map(drop));
    let looked = tokio::time::timeout(ANSWER_MAX, look).await;
    let Ok(Ok(Err(error))) = looked else { return false };
    // The second if the server went while it was being asked.
    let dead = [Errno::NOTCONN, Errno::CONNABORTED];
    Errno::from_io_error(&error).is_some_and(|errno| dead.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::left_behind;
    use crate::exports::mounts::parse;
    use std::path::Path;

    #[test]
    fn only_our_own_mounts_on_that_very_file_are_cleared_away() {
        let mounts = "ashlar /run/v/a fuse.ashlar rw 0 0\nashlar /run/v/a fuse.ashlar rw 0 0\n\
                      x /run/v/b fuse.other rw 0 0\nashlar /run/v/c\\040d fuse.ashlar rw 0 0\n";
        let mounts: Vec<_> = parse(mounts).collect();
        let count = |file: &str| left_behind(&mounts, Path::new(file));
        assert_eq!((count("/run/v/a"), count("/run/v/b"), count("/run/v/c d")), (2, 0, 1));
        assert_eq!(count("/run/v"), 0);
    }
}
