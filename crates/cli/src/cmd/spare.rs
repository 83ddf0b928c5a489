//! `ashlar spare`: devices that wait for a slot.

use crate::fault::Fault;
use crate::reach::{Reach, device};
use ashlar_api::v1::spare::{SpareAdd, SpareRemove};
use std::path::PathBuf;

/// Add or remove spares: devices that take the slot of a member that fails.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Put a device into a pool.
    Add {
        /// Name of the pool; the name of an array means that array's own pool.
        pool: String,
        /// The device.
        device: PathBuf,
        /// Overwrite a foreign signature on the device.
        #[arg(long)]
        destroy: bool,
        /// Check everything, write nothing, tell what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// Take a device out of a pool.
    Remove {
        /// Name of the pool.
        pool: String,
        /// The device.
        device: PathBuf,
    },
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    match args.action {
        Action::Add { pool, device: path, destroy, dry_run } => {
            let request = SpareAdd { pool, device: device(&path)?, destroy, dry_run };
            reach.change(&request).map(drop)
        }
        Action::Remove { pool, device: path } => {
            reach.change(&SpareRemove { pool, device: device(&path)? }).map(drop)
        }
    }
}
