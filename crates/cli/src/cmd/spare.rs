//! `ashlar spare`: devices that wait for a slot.

use crate::fault::Fault;
use crate::reach::{Reach, device};
use crate::sizes::sizes;
use ashlar_api::v1::spare::{SpareAdd, SpareRemove};
use ashlar_units::ByteSize;
use std::path::PathBuf;

/// Add or remove spares. A spare takes the slot of a failed member in any array that uses the pool
/// of the spare.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Add a device as a spare. The device is erased. Whole drives are partitioned before they
    /// join.
    #[command(after_help = sizes!())]
    Add {
        /// The device.
        device: PathBuf,
        /// Pool that the spare joins.
        #[arg(long, value_name = "NAME", default_value = "spares")]
        pool: String,
        /// Erase this device even if it holds a file system, a partition table or other RAID. Name
        /// the device among the arguments, too.
        #[arg(long, value_name = "DEVICE")]
        destroy: Option<PathBuf>,
        /// Say that the device writes blocks of this size (4K or more) atomically, even when power
        /// fails. From the next start of the array on, the intent log then writes less for blocks
        /// on this device. If the device does not do so, a power cut together with a lost drive
        /// can corrupt data.
        #[arg(long, value_name = "SIZE")]
        atomic_write: Option<ByteSize>,
        /// Use a whole drive as it is, without a partition. Other programs then see the drive as
        /// blank.
        #[arg(long)]
        whole: bool,
        /// Check everything and say what would happen, but write nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove a spare and erase its RAID metadata.
    Remove {
        /// The device.
        device: PathBuf,
    },
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    match args.action {
        Action::Add { device: path, pool, destroy, atomic_write, whole, dry_run } => {
            let device = device(&path)?;
            let destroy = super::may_destroy(destroy.as_deref(), &device)?;
            let atomic_write_bytes = atomic_write.map(super::atomic_write).transpose()?;
            let request = SpareAdd { pool, device, destroy, atomic_write_bytes, whole, dry_run };
            reach.change(&request).map(drop)
        }
        Action::Remove { device: path } => {
            reach.change(&SpareRemove { device: device(&path)? }).map(drop)
        }
    }
}
