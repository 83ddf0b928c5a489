//! `ashlar partition`: whole drives that other programs see to be taken.
//!
//! What must stay true: all drives are checked before the first is written. Nothing is written to a
//! drive that is in use, has partitions, or carries any signature. Writing the table is left to
//! sfdisk, which aligns it, and makes the kernel read it.

use crate::fault::Fault;
use crate::reach::{Reach, devices};
use crate::udev;
use ashlar_api::codes;
use ashlar_device::{Access, FileDevice, signatures};
use ashlar_ondisk::SuperblockCopies;
use ashlar_ondisk::assembly::{MemberReading, ReadLabel};
use ashlar_ondisk::examine::{examine_ranges, split_copies};
use ashlar_units::{Extent, to_usize};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The type of the partition: Ashlar's own.
const TYPE: &str = "47359340-8564-4E87-9201-2D6BEFFA6AA0";
/// How often to look for the partition's node, and how long to wait between.
const LOOKS: u32 = 50;
const POLL: Duration = Duration::from_millis(100);

/// Put one partition of Ashlar's own type on each blank drive, and print the partitions.
///
/// Other programs see a member on a whole drive as blank and may overwrite it. Installers, mkfs,
/// blkid, wipefs and parted recognise a partition. Needs the program sfdisk, and no daemon.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: ashlar create tank0 --level 6 $(ashlar partition /dev/sd[b-k])")]
pub struct Args {
    /// Whole drives.
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,

    /// Check everything and write nothing.
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &Args, reach: &Reach) -> Result<(), Fault> {
    let drives = devices(&args.devices)?;
    for drive in &drives {
        check(drive)?;
    }
    if args.dry_run {
        return reach.tell(format_args!("each would get a partition; nothing was written"));
    }
    let mut made = Vec::new();
    for drive in &drives {
        made.push(make(drive)?);
    }
    udev::settle();
    if let Some(gone) = made.iter().find(|it| !udev::has_made(Path::new(it))) {
        let next = "look at it with 'sfdisk --dump'; every drive has its partition";
        return Err(Fault::new(codes::SYSTEM_FAULT, format!("{gone} has gone again"), next));
    }
    reach.print(&made, |made| made.join("\n"))
}

fn refused(drive: &str, why: &str, next: &str) -> Fault {
    Fault::new("device.not_partitioned", format!("{drive} {why}; nothing was written to it"), next)
}

/// That the drive is whole, free and blank.
fn check(drive: &str) -> Result<(), Fault> {
    let about = std::fs::metadata(drive);
    let about = about.map_err(|error| Fault::file(Path::new(drive), &error, "check the name"))?;
    let is_whole = about.file_type().is_block_device()
        && in_sysfs(drive).is_some_and(|own| !own.join("partition").exists());
    if !is_whole {
        return Err(refused(drive, "is no whole drive", "name whole drives"));
    }
    if partition_of(drive).is_some() {
        return Err(refused(drive, "has partitions", "use one of them, or clear it with wipefs"));
    }
    if let Err(refusal) = FileDevice::open(drive, Access::Exclusive, Duration::ZERO) {
        return Err(Fault::new("device.not_opened", refusal.to_string(), "nothing was written"));
    }
    if let Some(found) = carries(drive)? {
        return Err(refused(drive, &format!("carries {found}"), "clear it first, if it may go"));
    }
    Ok(())
}

/// Whose the drive is, if it is anybody's.
fn carries(drive: &str) -> Result<Option<String>, Fault> {
    let complain = |error: std::io::Error| Fault::file(Path::new(drive), &error, "check it");
    let found = signatures(Path::new(drive)).map_err(complain)?;
    if let Some(first) = found.signatures.first() {
        return Ok(Some(first.to_string()));
    }
    let mut file = File::open(drive).map_err(complain)?;
    let bytes = file.seek(SeekFrom::End(0)).map_err(complain)?;
    let ends = examine_ranges(bytes).map(|ends| ends.map(|extent| read(&file, extent)));
    let [head, tail] = ends.unwrap_or([None, None]);
    let choice = SuperblockCopies::choose(&split_copies(head.as_deref(), tail.as_deref()));
    let label = MemberReading::new(drive, bytes, "", choice).label;
    let is_free = matches!(label, ReadLabel::Blank | ReadLabel::Foreign);
    Ok((!is_free).then(|| "a member or spare of Ashlar".to_owned()))
}

fn read(file: &File, extent: Extent) -> Option<Vec<u8>> {
    let mut bytes = vec![0; to_usize(extent.bytes)];
    file.read_exact_at(&mut bytes, extent.offset).ok()?;
    Some(bytes)
}

/// Write the table, and wait until the kernel knows the partition.
fn make(drive: &str) -> Result<String, Fault> {
    let failed = |why: String| {
        let next = "look at it with 'sfdisk --dump'; drives before it have their partition";
        Fault::new(codes::SYSTEM_FAULT, format!("no partition on {drive}: {why}"), next)
    };
    let mut sfdisk = Command::new("sfdisk");
    sfdisk.args(["--quiet", "--wipe", "never", drive]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut sfdisk = sfdisk.spawn().map_err(|error| {
        failed(format!("sfdisk cannot be run ({error}); install the package fdisk"))
    })?;
    let table = format!("label: gpt\nsize=+, type={TYPE}, name=\"ashlar\"\n");
    let written = sfdisk.stdin.take().map(|mut pipe| pipe.write_all(table.as_bytes()));
    let ended = sfdisk.wait().map_err(|error| failed(error.to_string()))?;
    if !ended.success() || !matches!(written, Some(Ok(()))) {
        return Err(failed(format!("sfdisk ended with {ended}")));
    }
    for look in 0..LOOKS {
        if let Some(partition) = partition_of(drive).filter(|it| Path::new(it).exists()) {
            return Ok(partition);
        }
        if look == LOOKS / 5 {
            // A kernel that does not read tables by itself is told.
            let _told = Command::new("partx").args(["--add", drive]).status();
        }
        std::thread::sleep(POLL);
    }
    Err(failed("the kernel shows none, though the table is written".to_owned()))
}

fn in_sysfs(drive: &str) -> Option<PathBuf> {
    let node = std::fs::canonicalize(drive).ok()?;
    std::fs::canonicalize(Path::new("/sys/class/block").join(node.file_name()?)).ok()
}

/// The node of the first partition of a drive.
fn partition_of(drive: &str) -> Option<String> {
    let inner = std::fs::read_dir(in_sysfs(drive)?).ok()?.flatten().map(|entry| entry.path());
    let mut parts: Vec<PathBuf> = inner.filter(|it| it.join("partition").exists()).collect();
    parts.sort();
    Some(format!("/dev/{}", parts.first()?.file_name()?.to_str()?))
}
