//! `ashlar replace`: another device for a slot.

use crate::fault::Fault;
use crate::reach::{Reach, device};
use crate::wait;
use ashlar_api::v1::member::Replace;
use ashlar_units::ByteSize;
use std::path::PathBuf;

/// Put another device into a slot. While the old one still works it is copied, and stays a member until then.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the array.
    array: String,

    /// The member to replace: number of its slot, path or serial.
    member: String,

    /// The new device.
    device: PathBuf,

    /// Overwrite the foreign signature on the new device, named once more.
    #[arg(long, value_name = "DEVICE")]
    destroy: Option<PathBuf>,

    /// State that the device writes blocks of this size whole or not at all, whenever its power goes: 4K or more. It is
    /// believed from the next start of the array on, and makes the log of small writes shorter; where it is not true, it costs blocks.
    #[arg(long, value_name = "SIZE")]
    atomic_write: Option<ByteSize>,

    /// Check everything, write nothing, tell what would be done.
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,

    /// Wait until the rebuild has ended, with a progress bar.
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
        dry_run: args.dry_run,
    };
    reach.change(&request)?;
    if args.wait { wait::until_filled(reach, &args.array, &device) } else { Ok(()) }
}
