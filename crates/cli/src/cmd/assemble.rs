//! `ashlar assemble`: put arrays together from what their members say.

use crate::fault::Fault;
use crate::reach::{Reach, devices};
use ashlar_api::v1::array::Assemble;
use std::path::PathBuf;

/// Start an array from its members.
///
/// The superblocks say which device fills which slot. Devices of other arrays are not touched.
/// Each risky start needs its own flag, and the members record it.
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

    /// Start the array read-only and change nothing on the members.
    #[arg(long)]
    read_only: bool,

    /// Start read-write after a crash although members are missing. Blocks in regions that were
    /// being written may be wrong, flushed ones included.
    #[arg(long)]
    accept_dirty_degraded: bool,

    /// Start although the map of written stripes is damaged on all members. Stripes that were never
    /// written then return old contents of the devices instead of zeros.
    #[arg(long)]
    accept_lost_map: bool,

    /// Accept a device whose serial differs from the recorded one: an image, or a drive in a new
    /// enclosure.
    #[arg(long)]
    accept_serials: bool,

    /// After a split brain: the incarnation to trust, as `ashlar examine` prints it.
    #[arg(long, visible_alias = "incarnation", value_name = "UUID")]
    trust: Option<String>,

    /// Spare pool of the array. Repeat the flag for several pools, in order. Default: spares.
    #[arg(long = "spare-pool", value_name = "NAME")]
    spare_pools: Vec<String>,

    /// Check everything and say what would happen. Writes nothing.
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let request = Assemble {
        name: args.name,
        uuid: args.uuid,
        devices: devices(&args.devices)?,
        accept_dirty_degraded: args.accept_dirty_degraded,
        accept_lost_map: args.accept_lost_map,
        accept_serials: args.accept_serials,
        trust: args.trust,
        read_only: args.read_only,
        spare_pools: args.spare_pools,
        dry_run: args.dry_run,
    };
    reach.change(&request).map(drop)
}
