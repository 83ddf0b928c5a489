//! `ashlar wipe`: erase the RAID metadata of devices.

use crate::fault::Fault;
use crate::reach::{Reach, devices};
use ashlar_api::v1::member::Wipe;
use std::path::PathBuf;

/// Erase the RAID metadata of devices that no array needs. User data stays readable on the devices;
/// `nvme format` or `blkdiscard` erases all data of a drive.
///
/// The command refuses a device in use, and a device that a stopped array may need.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: ashlar wipe /dev/nvme3n1")]
pub struct Args {
    /// Devices to wipe.
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,

    /// Erase the RAID metadata of this device although a stopped array may need the device. Name
    /// the device among the arguments, too. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    destroy: Vec<PathBuf>,

    /// Check everything and write nothing.
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &Args, reach: &Reach) -> Result<(), Fault> {
    let call = Wipe {
        devices: devices(&args.devices)?,
        destroy: devices(&args.destroy)?,
        dry_run: args.dry_run,
    };
    reach.change(&call).map(drop)
}
