//! `ashlar assemble`: put arrays together from what their members say.

use crate::fault::Fault;
use crate::reach::{Reach, device, devices};
use crate::say;
use ashlar_api::ClientError;
use ashlar_api::v1::array::{Appeared, Assemble, Scan};
use std::path::{Path, PathBuf};

/// Start an array from its members.
///
/// The metadata on each device says which slot of which array it fills. Devices of other arrays are
/// not touched. Ashlar refuses a start that could give wrong data, unless you give the option that
/// accepts the risk. The members then record which risk was accepted.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Devices to look at, in any order [default with --scan: every block device].
    #[arg(required_unless_present_any = ["scan", "incremental"], value_name = "DEVICE")]
    devices: Vec<PathBuf>,

    /// Find members, group them by array, and start each array that is complete. An incomplete
    /// array starts degraded if its missing members do not appear in time. An array that ran last
    /// on another host starts only if --name or --uuid names it.
    #[arg(long, short, conflicts_with_all = FORCES)]
    scan: bool,

    /// With --scan: start degraded arrays at once.
    #[arg(long, visible_alias = "run", requires = "scan")]
    degraded: bool,

    /// Tell the daemon that this device has appeared. Called by udev. Without a daemon, this does
    /// nothing. The daemon looks at all devices when it starts.
    #[arg(long, short = 'I', value_name = "DEVICE", conflicts_with_all = FORCES)]
    #[arg(conflicts_with_all = ["devices", "scan", "name", "uuid", "not_remembered", "dry_run"])]
    incremental: Option<PathBuf>,

    /// Only the array of this name.
    #[arg(long)]
    name: Option<String>,

    /// Only the array of this UUID.
    #[arg(long)]
    uuid: Option<String>,

    /// Start the array read-only and change nothing on the members.
    #[arg(long)]
    read_only: bool,

    /// Start read-write after a crash although members are missing. Arrays with parity and policy
    /// `bitmap` always need this. Arrays with policy `log` need it only if a resync was unfinished.
    /// Blocks in regions that were not in sync may then be wrong, even flushed ones.
    #[arg(long)]
    accept_dirty_degraded: bool,

    /// Start although the map of written stripes is damaged on all members. Stripes that were never
    /// written then return old contents of the devices instead of zeros. Also needed if the daemon
    /// was killed and the directory `written` beside its control socket no longer exists. Stripes
    /// that were first written since the last FLUSH may then be lost, as after a power cut.
    #[arg(long)]
    accept_lost_map: bool,

    /// Accept a device whose serial differs from the recorded one: an image, or a drive in a new
    /// enclosure.
    #[arg(long)]
    accept_serials: bool,

    /// After a split brain, use the data of the members for which `ashlar examine` prints this UUID
    /// as `incarnation`.
    #[arg(long, visible_alias = "incarnation", value_name = "UUID")]
    trust: Option<String>,

    /// Spare pool of the array. Repeatable, in order of preference [default: spares].
    #[arg(long = "spare-pool", value_name = "NAME")]
    spare_pools: Vec<String>,

    /// Do not record the array for later starts of the daemon. The daemon then starts it only if a
    /// scan finds it or the configuration names it.
    #[arg(long, conflicts_with = "scan")]
    not_remembered: bool,

    /// Check everything and say what would happen. Writes nothing.
    #[arg(long)]
    dry_run: bool,
}

/// What is said of one array, and not of all that a scan finds.
const FORCES: [&str; 6] = [
    "read_only",
    "accept_dirty_degraded",
    "accept_lost_map",
    "accept_serials",
    "trust",
    "spare_pools",
];

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    if let Some(device) = &args.incremental {
        return appeared(device, reach);
    }
    if args.scan {
        let scan = Scan {
            devices: devices(&args.devices)?,
            name: args.name,
            uuid: args.uuid,
            degraded: args.degraded,
            dry_run: args.dry_run,
        };
        return reach.change(&scan).map(drop);
    }
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
        not_remembered: args.not_remembered,
    };
    reach.change(&request).map(drop)
}

fn appeared(path: &Path, reach: &Reach) -> Result<(), Fault> {
    let call = Appeared { device: device(path)? };
    match reach.client()?.call(&call) {
        Err(ClientError::Unreachable { .. }) => {
            say::line("no daemon runs; it looks at all devices when it starts")
        }
        answer => reach.print(&answer?, |done| done.message.clone()),
    }
}
