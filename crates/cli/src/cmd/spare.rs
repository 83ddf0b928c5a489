//! `ashlar spare`: devices that wait for a slot.

use crate::fault::Fault;
use crate::reach::{Reach, device};
use ashlar_api::v1::spare::{SpareAdd, SpareRemove};
use ashlar_units::ByteSize;
use std::path::PathBuf;

/// Add or remove spares: devices that take the slot of a member that fails, whichever array it is in.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Let a device wait for a slot. Everything on it is lost.
    Add {
        /// The device.
        device: PathBuf,
        /// The pool it waits in, for arrays that take from that pool.
        #[arg(long, value_name = "NAME", default_value = "spares")]
        pool: String,
        /// Overwrite the foreign signature on the device, named once more.
        #[arg(long, value_name = "DEVICE")]
        destroy: Option<PathBuf>,
        /// State that the device writes blocks of this size whole or not at all, whenever its power goes: 4K or more. It is
        /// believed by an array with the policy log, from its next start on, and makes the log of small writes shorter; where it is not true, it costs blocks.
        #[arg(long, value_name = "SIZE")]
        atomic_write: Option<ByteSize>,
        /// Check everything, write nothing, tell what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// Let a spare go. It is a blank device afterwards.
    Remove {
        /// The device.
        device: PathBuf,
    },
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    match args.action {
        Action::Add { device: path, pool, destroy, atomic_write, dry_run } => {
            let device = device(&path)?;
            let destroy = super::may_destroy(destroy.as_deref(), &device)?;
            let atomic_write_bytes = atomic_write.map(super::atomic_write).transpose()?;
            let request = SpareAdd { pool, device, destroy, atomic_write_bytes, dry_run };
            reach.change(&request).map(drop)
        }
        Action::Remove { device: path } => {
            reach.change(&SpareRemove { device: device(&path)? }).map(drop)
        }
    }
}
