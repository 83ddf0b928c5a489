//! `ashlar salvage`: copies the volume out of its members, without a daemon and without the engine.
//!
//! - target: what the volume is copied to
//! - harmless: that nobody needs what the target holds
//! - copy: the walk over the volume
//! - report: what was seen, and what came of it
//!
//! What must stay true: members are opened for reading only. A target that holds something already
//! is not touched unless the operator says so. The exit code is 0 only if every byte was read and
//! proven.

mod copy;
mod harmless;
mod report;
mod target;

use crate::fault::Fault;
use crate::reach::Reach;
use crate::say;
use ashlar_salvage::{Choices, FileImage, Reading, Refused, Salvage, Side, Uuid, sides, uuid_text};
use report::{Report, Signature};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use target::Target;

/// Copy the data of an array that cannot be started.
///
/// Salvage reads the members and writes the volume to a file. Salvage needs no daemon and never
/// writes to a member. Members may be damaged, cut short, stale or missing. Salvage reads each
/// block, or reconstructs the block from the other members, and lists the blocks that parity or
/// checksum cannot verify. Without --to, salvage only reports. Salvage shares no code with the
/// engine, and works even where the engine has a fault.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: ashlar salvage /dev/sd[b-k] --to /mnt/big/tank0.img\n\n\
    Exit codes: 0: all there. 1: refused. 2: command line not understood. \
    3: some blocks are lost, could not be verified, or do not match parity.")]
pub struct Args {
    /// Members or copies of members, in any order. If you name a whole drive, its Ashlar partition
    /// is read.
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<PathBuf>,

    /// Copy the volume to this file as a sparse file. The name `-` means standard output.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,

    /// Allow --to to overwrite an existing file or a block device.
    #[arg(long, requires = "to")]
    overwrite: bool,

    /// Where blocks are lost, keep the old contents of FILE instead of writing zeros. A second run,
    /// for instance with another copy of a member, then fills in blocks that the first run could
    /// not read.
    #[arg(long, requires = "to", conflicts_with = "overwrite")]
    skip_lost: bool,

    /// Compare all data with parity and report differences.
    #[arg(long)]
    verify: bool,

    /// Use MEMBER for slot N, whatever the metadata of MEMBER says. Use this option only as a last
    /// resort. Repeatable.
    #[arg(long = "slot", value_name = "N=MEMBER", value_parser = by_hand)]
    slots: Vec<(u16, PathBuf)>,

    /// After a split brain, use the data of the members for which `ashlar examine` prints this UUID
    /// as `incarnation`.
    #[arg(long, visible_alias = "trust", value_name = "UUID", value_parser = uuid)]
    incarnation: Option<Uuid>,

    /// Trust the metadata of MEMBER: which layout the array has, and which members. Members whose
    /// metadata contradict it are not read. This helps if newer metadata are wrong.
    #[arg(long, value_name = "MEMBER", conflicts_with = "incarnation")]
    believe: Option<PathBuf>,
}

fn by_hand(text: &str) -> Result<(u16, PathBuf), String> {
    let (slot, member) = text.split_once('=').ok_or("write it as 3=/dev/sdd")?;
    let slot = slot.parse().map_err(|_| format!("'{slot}' is not the number of a slot"))?;
    Ok((slot, PathBuf::from(member)))
}

fn uuid(text: &str) -> Result<Uuid, String> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
    number.map(u128::to_be_bytes).ok_or_else(|| format!("'{text}' is not a UUID"))
}

pub fn run(args: &Args, reach: &Reach) -> Result<(), Fault> {
    // A member that is put into a slot by hand need not be listed once more.
    let mut paths = args.members.clone();
    let by_name = args.slots.iter().map(|(_, path)| path.clone()).chain(args.believe.clone());
    paths.extend(by_name.filter(|path| !args.members.contains(path)).collect::<Vec<_>>());
    let images = open(&paths)?;
    each_once(&paths, &images)?;
    let place = |path: &PathBuf| paths.iter().position(|it| it == path).unwrap_or(0);
    let signatures = signatures(&paths);
    let choices = Choices {
        signatures: signatures.iter().map(|it| (it.image, it.offset)).collect(),
        incarnation: args.incarnation,
        believed: args.believe.as_ref().map(place),
        by_hand: args.slots.iter().map(|(slot, path)| (place(path), *slot)).collect(),
    };
    // What an operator may have to choose from.
    let readings = Reading::of_all(&images);
    let (sides, unread) = (sides(&readings), unread(&paths, &images, &readings));
    let salvage = Salvage::open(images, &choices);
    let salvage = salvage.map_err(|refused| match (&refused, unread.is_empty()) {
        (Refused::NoSuperblock(_), false) => none_can_be_read(&unread),
        _ => explained(&refused, &paths, &sides),
    })?;
    let mut target = target(args, &salvage, &paths)?;
    let to_stdout = target.is_stream();
    let mut report = Report::of(&salvage, &paths, &signatures);
    if args.to.is_some() || args.verify {
        report.outcome = Some(copy::run(&salvage, &mut target, args.verify)?);
    }
    if to_stdout {
        say::complain(report.text());
    } else {
        reach.print(&report.json(), |_| report.text())?;
    }
    report.verdict()
}

fn open(paths: &[PathBuf]) -> Result<Vec<FileImage>, Fault> {
    let hint = "see that it is there and that you may read it; \
        or leave it out, and what it held is reconstructed where that is possible";
    let open = |path: &PathBuf| {
        let image = FileImage::open(&super::partition_on(path));
        let image = image.map_err(|error| Fault::file(path, &error, hint))?;
        let kind = image.file().metadata().map_err(|error| Fault::file(path, &error, hint))?;
        if kind.is_file() || kind.file_type().is_block_device() {
            return Ok(image);
        }
        let message = format!("{} is neither a file nor a block device", path.display());
        Err(Fault::usage(message, "give members, or copies of them"))
    };
    paths.iter().map(open).collect()
}

/// Members whose ends cannot be read, each with what a read ended in.
fn unread(paths: &[PathBuf], images: &[FileImage], readings: &[Reading]) -> Vec<String> {
    let all = paths.iter().zip(images).zip(readings);
    let unread = all.filter(|(_, reading)| reading.copies.iter().all(Option::is_none));
    let line = |(path, image): (&PathBuf, &FileImage)| {
        let error = image.file().read_at(&mut [0; 4096], 0).err()?;
        Some(format!("{} cannot be read: {error}", path.display()))
    };
    unread.filter_map(|(it, _)| line(it)).collect()
}

fn none_can_be_read(unread: &[String]) -> Fault {
    let message =
        format!("no superblock of an array was found: {}; nothing was written", unread.join(", "));
    let hint = "check cables, power and the kernel's messages (dmesg), or copy what can be read of \
        each drive to a file (ddrescue) and name the copies";
    Fault::new("salvage.refused", message, hint)
}

/// What other programs have put on the members. A signature where data of clients lies says
/// nothing; which those are, the reader knows.
fn signatures(paths: &[PathBuf]) -> Vec<Signature> {
    let all = paths.iter().enumerate().flat_map(|(image, path)| {
        let path = super::partition_on(path);
        let found = path.to_str().map(ashlar_daemon::config::signatures_on).unwrap_or_default();
        found.into_iter().map(move |(words, offset)| Signature { image, words, offset })
    });
    all.collect()
}

/// The identity of what is open: device and inode, or the number of a block device.
fn identity(file: &std::fs::File) -> Option<(u64, u64)> {
    let kind = file.metadata().ok()?;
    let is_block = kind.file_type().is_block_device();
    Some(if is_block { (u64::MAX, kind.rdev()) } else { (kind.dev(), kind.ino()) })
}

fn each_once(paths: &[PathBuf], images: &[FileImage]) -> Result<(), Fault> {
    for (at, image) in images.iter().enumerate() {
        let same = |other: &&FileImage| identity(other.file()) == identity(image.file());
        if images[..at].iter().any(|other| same(&other)) {
            let message = format!("{} was given twice; nothing was read", paths[at].display());
            return Err(Fault::usage(message, "name each member once"));
        }
    }
    Ok(())
}

fn target(args: &Args, salvage: &Salvage<FileImage>, members: &[PathBuf]) -> Result<Target, Fault> {
    let Some(path) = &args.to else { return Ok(Target::Nowhere) };
    if path == Path::new("-") {
        return Ok(Target::stdout());
    }
    harmless::check(path, salvage.images(), members)?;
    let bytes = salvage.geometry().volume_blocks() * 4096;
    Target::file(path, bytes, target::Existing::of(args.overwrite, args.skip_lost))
}

/// What there is to believe, each with the option that chooses it.
fn candidates(sides: &[Side], paths: &[PathBuf]) -> String {
    let candidate = |side: &Side| {
        let members: Vec<String> =
            side.images.iter().map(|image| paths[*image].display().to_string()).collect();
        let out: Vec<String> = side.slots_out.iter().map(ToString::to_string).collect();
        let out = match out.is_empty() {
            true => "no slot out".to_owned(),
            false => format!("out: slot {}", out.join(" ")),
        };
        let (generation, incarnation) = (side.generation, uuid_text(&side.incarnation));
        format!(
            "--believe {} (generation {generation}, incarnation {incarnation}, {out}; {})",
            members.first().map_or("", String::as_str),
            members.join(" ")
        )
    };
    sides.iter().map(candidate).collect::<Vec<_>>().join(", or ")
}

/// A refusal in the words of the command line.
fn explained(refused: &Refused, paths: &[PathBuf], sides: &[Side]) -> Fault {
    let name = |image: &usize| paths[*image].display().to_string();
    let (message, hint) = match refused {
        Refused::NoImages => (refused.to_string(), "name the members of one array".to_owned()),
        Refused::NoSuperblock(_) => (
            refused.to_string(),
            "add a member with at least one intact copy of its superblock; \
             'ashlar examine' shows them"
                .to_owned(),
        ),
        Refused::TwoArrays([(one, one_name), (other, other_name)]) => (
            format!("{} is a member of {one_name}, {} of {other_name}", name(one), name(other)),
            "name the members of one array only".to_owned(),
        ),
        Refused::Twice(one, other) => (
            format!("{} and {} are copies of the same member", name(one), name(other)),
            "leave one of them out".to_owned(),
        ),
        Refused::SplitBrain([(one, _), (other, _)]) => (
            format!("{} and {} were used apart from each other", name(one), name(other)),
            format!("name a member of the side to trust: {}", candidates(sides, paths)),
        ),
        Refused::NoSuchIncarnation => {
            (refused.to_string(), "'ashlar examine' shows the incarnation of each".to_owned())
        }
        Refused::CannotBeBelieved(image, why) => (
            format!("{} cannot be believed: {why}", name(image)),
            "'ashlar examine' shows what each member says".to_owned(),
        ),
        Refused::NoSuchSlot(_) => {
            (refused.to_string(), "'ashlar examine' of another member shows the slots".to_owned())
        }
    };
    Fault::new("salvage.refused", format!("{message}; nothing was written"), hint)
}
