//! `ashlar replace`: another device for a slot.

use crate::fault::Fault;
use crate::reach::{Reach, device};
use crate::sizes::sizes;
use crate::wait;
use ashlar_api::v1::member::Replace;
use ashlar_units::ByteSize;
use std::path::PathBuf;

/// Replace the device of a slot. If the old device still works, Ashlar copies the old device, and
/// uses the old device until the copy is complete. If the old device does not work, Ashlar rebuilds
/// the contents from the other members.
#[derive(clap::Args, Debug)]
#[command(after_help = sizes!())]
pub struct Args {
    /// Name of the array.
    array: String,

    /// The member to replace: slot number, path or serial.
    member: String,

    /// The new device, which is erased. Whole drives are partitioned before they join.
    device: PathBuf,

    /// Erase this device even if it holds a file system, a partition table or other RAID. Name the
    /// device among the arguments, too.
    #[arg(long, value_name = "DEVICE")]
    destroy: Option<PathBuf>,

    /// Say that the device writes blocks of this size (4K or more) atomically, even when power
    /// fails. From the next start of the array on, the intent log then writes less for blocks on
    /// this device. If the device does not do so, a power cut together with a lost drive can
    /// corrupt data.
    #[arg(long, value_name = "SIZE")]
    atomic_write: Option<ByteSize>,

    /// Accept a device that is plugged into another failure domain than its slot belongs to. The
    /// loss of one domain may then lose data.
    #[arg(long)]
    other_domain: bool,

    /// Use a whole drive as it is, without a partition. Other programs then see the drive as blank.
    #[arg(long)]
    whole: bool,

    /// Check everything and say what would happen, but write nothing.
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,

    /// Wait for the copy or the rebuild and show its progress.
    #[arg(long)]
    wait: bool,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let device = device(&args.device)?;
    let request = Replace {
        array: args.array.clone(),
        member: super::member_name(args.member)?,
        destroy: super::may_destroy(args.destroy.as_deref(), &device)?,
        device: device.clone(),
        atomic_write_bytes: args.atomic_write.map(super::atomic_write).transpose()?,
        other_domain: args.other_domain,
        whole: args.whole,
        dry_run: args.dry_run,
    };
    let device = reach.change(&request)?.device.unwrap_or(device);
    match args.wait {
        false => Ok(()),
        // The daemon names new memory devices.
        true if device.starts_with("memory:") => wait::until_rebuilt(reach, &args.array),
        true => wait::until_filled(reach, &args.array, &device),
    }
}
