//! Makes a table with one partition, and takes it away again.
//!
//! What must stay true: nothing is written before `sfdisk` is known to be here. Only what is
//! outside the partition is overwritten to take a table away, and only while nobody has the drive.
//! A partition that holds a member or spare is not taken away by `undo`. sfdisk writes the table
//! and has the kernel read it.

use super::{EDGE_BYTES, TYPE, check, drive, partition_bytes, refused, table};
use crate::erase::HeldDevice;
use crate::look::{self, Label};
use crate::system_program::command;
use crate::udev;
use ashlar_api::{ApiError, codes};
use ashlar_device::{Access, FileDevice, wipe_signatures};
use ashlar_units::to_usize;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often to look for the partition's node, and how long to wait between.
const LOOKS: u32 = 50;
const POLL: Duration = Duration::from_millis(100);
/// How often to tell the kernel that partitions are gone.
const FORGET_TRIES: u32 = 100;
/// How long to wait for a drive whose partition was let go just now.
const LET_GO: Duration = Duration::from_secs(2);
/// How often to look for its link, once udev has done all that it knew of.
const LINK_LOOKS: u32 = 10;

/// A drive that gets a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriveToPartition {
    /// Its path.
    pub drive: String,
    /// What is on it may be overwritten.
    pub may_destroy: bool,
}

/// A partition, and the drive that it was made on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Made {
    /// Path of the drive, as it was named.
    pub drive: String,
    /// Path of the partition: by a link beside the drive's, if there is one.
    pub partition: String,
}

/// That all of them may get a partition, and that this machine can make one.
///
/// # Errors
/// The first reason why not; nothing was written.
pub fn check_all(wanted: &[DriveToPartition]) -> Result<(), ApiError> {
    wanted.iter().try_for_each(|it| check(&it.drive, it.may_destroy))?;
    let too_small =
        |it: &&DriveToPartition| drive::bytes(&it.drive).is_none_or(|it| partition_bytes(it) == 0);
    if let Some(small) = wanted.iter().find(too_small) {
        return Err(refused(&small.drive, "is too small for a partition", "use larger drives"));
    }
    if sfdisk().arg("--version").stdout(Stdio::null()).status().is_ok_and(|it| it.success()) {
        return Ok(());
    }
    let message = "sfdisk, which makes partitions, is not here; nothing was written";
    let hint = "install the package fdisk (util-linux elsewhere), or use the drives as they are: \
                --whole";
    Err(ApiError::new(codes::SYSTEM_FAULT, message, hint))
}

/// Make a partition on each of these drives, which were checked. All or none, as far as that can
/// be.
///
/// # Errors
/// Which drive failed and why, and which drives still have a partition.
pub fn make_all(wanted: &[DriveToPartition]) -> Result<Vec<Made>, ApiError> {
    let mut made = Vec::new();
    for (at, it) in wanted.iter().enumerate() {
        match make(it) {
            Ok(partition) => made.push(Made { drive: it.drive.clone(), partition }),
            Err(why) => return Err(not_made(&wanted[..=at], &why)),
        }
    }
    // udev reads a table once more when its writer has closed the drive: the partition is gone for
    // a moment, and its links come after that.
    udev::settle();
    if let Some(gone) = made.iter().position(|it| !udev::has_made(Path::new(&it.partition))) {
        return Err(not_made(wanted, &format!("{} has gone again", made[gone].partition)));
    }
    for it in &mut made {
        it.partition = by_its_link(it);
    }
    Ok(made)
}

fn not_made(begun: &[DriveToPartition], why: &str) -> ApiError {
    let drives = begun.iter().map(|it| it.drive.as_str());
    let hint = "use the drives as they are: --whole; 'sfdisk --dump DRIVE' shows a table";
    ApiError::new(codes::SYSTEM_FAULT, format!("{why}; {}", undone(drives)), hint)
}

/// Take the partitions away again, unless somebody uses them or a member is on them. What came of
/// it, half a sentence.
#[must_use]
pub fn undone<'d>(drives: impl Iterator<Item = &'d str>) -> String {
    let kept: Vec<String> =
        drives.filter_map(|it| undo(it).err().map(|why| format!("{it} ({why})"))).collect();
    match kept.is_empty() {
        true => "no drive keeps a partition".to_owned(),
        false => format!("partitions stay on {}", kept.join(", ")),
    }
}

fn undo(path: &str) -> io::Result<()> {
    let holds_ours = |partition: &str| !matches!(look::label(partition), Label::Nothing);
    if !table::is_ours_alone(path)? {
        return Ok(());
    }
    match drive::only_partition(path) {
        Some(partition) if holds_ours(&partition) => Err(io::Error::other("a member is on it")),
        _ => take_away(path),
    }
}

/// Take away the table of a drive: it is blank then, but for what was in the partition.
///
/// # Errors
/// Somebody has the drive, or it cannot be written.
pub fn take_away(path: &str) -> io::Result<()> {
    let alone = FileDevice::open(path, Access::Exclusive, LET_GO)
        .map_err(|refusal| io::Error::other(refusal.to_string()))?;
    blank_edges(path)?;
    drop(alone);
    forget_partitions(path)
}

/// Have the kernel forget the partitions of a drive. Who looks at one just now, as udev does when
/// it was written, delays that.
fn forget_partitions(path: &str) -> io::Result<()> {
    udev::settle();
    let mut said = String::new();
    for _ in 0..FORGET_TRIES {
        if drive::partitions(path).is_empty() {
            return Ok(());
        }
        said = partx("--delete", path);
        udev::settle();
        std::thread::sleep(POLL);
    }
    match drive::partitions(path).is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(format!("the kernel still shows a partition; {said}"))),
    }
}

/// Zeros before and behind where the partition is.
fn blank_edges(path: &str) -> io::Result<()> {
    let bytes = drive::bytes(path).ok_or_else(|| io::Error::other("it has no size"))?;
    let edge = vec![0; to_usize(EDGE_BYTES.min(bytes))];
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&edge, 0)?;
    file.write_all_at(&edge, bytes.saturating_sub(EDGE_BYTES))?;
    file.sync_all()
}

/// The node of the partition that is made on one drive, or one line that says why there is none.
fn make(wanted: &DriveToPartition) -> Result<String, String> {
    let DriveToPartition { drive: path, may_destroy } = wanted;
    let failed = |why: String| format!("no partition on {path}: {why}");
    if *may_destroy {
        clear(path).map_err(|error| failed(error.to_string()))?;
    }
    let bytes = drive::bytes(path).ok_or_else(|| failed("it has no size".to_owned()))?;
    write_table(wanted, partition_bytes(bytes)).map_err(|error| failed(error.to_string()))?;
    appeared(path).ok_or_else(|| failed("the kernel shows none".to_owned()))
}

/// What is known of the metadata of others and of ours is gone.
fn clear(path: &str) -> io::Result<()> {
    let held = HeldDevice::take(path).map_err(|refusal| io::Error::other(refusal.to_string()))?;
    held.erase()?;
    wipe_signatures(Path::new(path))?;
    blank_edges(path)?;
    forget_partitions(path)
}

fn write_table(wanted: &DriveToPartition, bytes: u64) -> io::Result<()> {
    let mebibytes = |bytes: u64| bytes >> 20;
    let table = format!(
        "label: gpt\nstart={}MiB, size={}MiB, type={TYPE}, name=\"ashlar\"\n",
        mebibytes(EDGE_BYTES),
        mebibytes(bytes)
    );
    // A blank drive has nothing to be wiped.
    let wipe = if wanted.may_destroy { "always" } else { "never" };
    let mut sfdisk = sfdisk();
    sfdisk.args(["--quiet", "--wipe", wipe, "--wipe-partitions", "never", &wanted.drive]);
    let mut child = sfdisk.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let written = child.stdin.take().map(|mut pipe| pipe.write_all(table.as_bytes()));
    let ended = child.wait_with_output()?;
    if ended.status.success() && matches!(written, Some(Ok(()))) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let said = said.trim().lines().next_back().unwrap_or("without a word");
    Err(io::Error::other(format!("sfdisk ended with {}: {said}", ended.status)))
}

/// Wait until the kernel knows the partition.
fn appeared(path: &str) -> Option<String> {
    (0..LOOKS).find_map(|look| {
        let found = drive::only_partition(path).filter(|it| Path::new(it).exists());
        if found.is_none() {
            if look == LOOKS / 25 {
                // A kernel that does not read tables by itself is told.
                partx("--add", path);
            }
            std::thread::sleep(POLL);
        }
        found
    })
}

/// The partition by a link beside the drive's, which udev makes after the node.
fn by_its_link(made: &Made) -> String {
    let Made { drive: path, partition } = made;
    let waits = drive::is_link(path) && udev::is_here();
    for _ in 0..LINK_LOOKS {
        let named = drive::named_like(path, partition.clone());
        if named != *partition || !waits {
            return named;
        }
        std::thread::sleep(POLL);
    }
    partition.clone()
}

fn sfdisk() -> Command {
    let mut sfdisk = command("sfdisk");
    sfdisk.env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::piped());
    sfdisk
}

/// Tell the kernel of partitions. It may know already. What the program said.
fn partx(action: &str, path: &str) -> String {
    let told = command("partx").env("LC_ALL", "C").args([action, path]).output();
    match told {
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => format!("partx cannot be run: {error}"),
    }
}
