//! `ashlar assemble`: put arrays together from what their members say.

use crate::fault::Fault;
use crate::reach::{Reach, devices};
use ashlar_api::v1::array::Assemble;
use std::path::PathBuf;

/// Put an array together from its members.
///
/// The superblocks say which device goes where; devices that belong to no array or to another one are left
/// alone. With members missing, `--degraded` is needed.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Devices to look at, in any order.
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,

    /// Only the array of this name.
    #[arg(long)]
    name: Option<String>,

    /// Only the array of this UUID.
    #[arg(long)]
    uuid: Option<String>,

    /// Start although members are missing.
    #[arg(long, visible_alias = "run")]
    degraded: bool,

    /// Refuse all changes, and change nothing on the members.
    #[arg(long)]
    read_only: bool,

    /// Check everything, write nothing, tell what would be done.
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let request = Assemble {
        name: args.name,
        uuid: args.uuid,
        devices: devices(&args.devices)?,
        degraded: args.degraded,
        read_only: args.read_only,
        dry_run: args.dry_run,
    };
    reach.change(&request).map(drop)
}
