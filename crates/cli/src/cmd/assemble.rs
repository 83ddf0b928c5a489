//! `ashlar assemble`: put arrays together from what their members say.

use crate::fault::Fault;
use crate::reach::{Reach, devices};
use ashlar_api::v1::array::Assemble;
use std::path::PathBuf;

/// Put an array together from its members.
///
/// The superblocks say which device goes where; devices that belong to no array or to another one are left
/// alone. What must not happen by accident needs a flag that says so, and is recorded on the members.
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

    /// Refuse all changes, and change nothing on the members.
    #[arg(long)]
    read_only: bool,

    /// Start read-write although it stopped uncleanly and members are missing: what was being written then may be
    /// wrong.
    #[arg(long)]
    accept_dirty_degraded: bool,

    /// Start although no member that is there knows of some stripes whether they were ever written: they count as
    /// written, and those that were not read as whatever lies on the members.
    #[arg(long)]
    accept_lost_map: bool,

    /// Take members whose device has another serial than recorded: an image, or a new enclosure.
    #[arg(long)]
    accept_serials: bool,

    /// If two halves of the array lived on separately: the incarnation to trust, as examine prints it.
    #[arg(long, visible_alias = "incarnation", value_name = "UUID")]
    trust: Option<String>,

    /// A pool that it takes spares from; may be given several times, in this order. The default is the pool 'spares'.
    #[arg(long = "spare-pool", value_name = "NAME")]
    spare_pools: Vec<String>,

    /// Check everything, write nothing, tell what would be done.
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
