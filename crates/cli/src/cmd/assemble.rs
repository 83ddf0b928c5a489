//! `ashlar assemble`: put arrays together from what their members say.

use crate::fault::Fault;
use crate::reach::{Reach, device, devices};
use crate::say;
use ashlar_api::ClientError;
use ashlar_api::v1::array::{Appeared, Assemble, Scan};
use std::path::{Path, PathBuf};

/// Start an array from its members.
///
/// The metadata on each device says which slot of which array the device fills. If the devices
/// belong to several arrays, choose one array with --name or --uuid; devices of the others are not
/// touched. Without --scan, an array with missing members starts degraded at once.
///
/// Ashlar refuses a start that could give wrong data, unless you give the option that accepts the
/// risk. The members then record which risk was accepted.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Devices to look at, in any order [default with --scan: every block device].
    #[arg(required_unless_present_any = ["scan", "incremental"], value_name = "DEVICE")]
    devices: Vec<PathBuf>,

    /// Find members, group the members by array, and start each array that has all its members. An
    /// array with missing members waits for `grace_s` (configuration, default 30 seconds), then
    /// starts degraded. Name an array that ran last on another host with --name or --uuid.
    #[arg(long, short, conflicts_with_all = FORCES)]
    scan: bool,

    /// With --scan: start arrays with missing members at once, degraded.
    #[arg(long, visible_alias = "run", requires = "scan")]
    degraded: bool,

    /// Tell the daemon that this device has appeared. The udev rule of the package calls this
    /// command. Without a daemon, the command does nothing.
    #[arg(long, short = 'I', value_name = "DEVICE", conflicts_with_all = FORCES)]
    #[arg(conflicts_with_all = ["devices", "scan", "name", "uuid", "not_remembered", "dry_run"])]
    incremental: Option<PathBuf>,

    /// Start only the array of this name.
    #[arg(long)]
    name: Option<String>,

    /// Start only the array of this UUID.
    #[arg(long)]
    uuid: Option<String>,

    /// Start the array read-only and change nothing on the members.
    #[arg(long)]
    read_only: bool,

    /// Start read-write after a crash although members are missing and parity may be wrong. Without
    /// this option, such an array starts read-only. After a crash, parity may be wrong with the
    /// policies `bitmap` and `none`. With policy `log`, parity may be wrong only if a failed write
    /// left a resync that did not finish. The risk: blocks in regions that were not in sync may be
    /// wrong, even flushed blocks.
    #[arg(long)]
    accept_dirty_degraded: bool,

    /// Start without a complete map of written stripes. Case 1: the map is damaged on all members.
    /// Stripes that were never written then return old contents of the devices instead of zeros.
    /// Case 2: the daemon was killed, and the directory `written` beside its control socket is
    /// gone. First writes to a stripe since the last FLUSH may then be lost.
    #[arg(long)]
    accept_lost_map: bool,

    /// If too few members have all writes, use other members too: members recorded as out, or older
    /// copies. Ashlar uses as few of them as possible, those with the newest writes first. The
    /// risk: blocks on these members may be old, even flushed blocks. With --dry-run, the command
    /// prints which parts of the volume may be old.
    #[arg(long)]
    accept_older_members: bool,

    /// Accept a device whose serial number is not the recorded number, such as a copy of a drive,
    /// or a drive in another enclosure.
    #[arg(long)]
    accept_serials: bool,

    /// Accept devices that were given to another program after the array stopped: Ashlar finds the
    /// signature of this program in places that only Ashlar writes. Ashlar overwrites the
    /// signature. The risk: what the other program wrote is lost, and blocks of the array are wrong
    /// wherever it wrote.
    #[arg(long)]
    accept_signatures: bool,

    /// After a split brain, use the data of the members for which `ashlar examine` prints this UUID
    /// as `incarnation`.
    #[arg(long, visible_alias = "incarnation", value_name = "UUID")]
    trust: Option<String>,

    /// Name of a spare pool. Its spares replace failed members. Repeatable, in order of preference
    /// [default: spares].
    #[arg(long = "spare-pool", value_name = "NAME")]
    spare_pools: Vec<String>,

    /// Do not remember the array. At later starts of the daemon, the array then starts only if the
    /// configuration names the array or a scan finds the array.
    #[arg(long, conflicts_with = "scan")]
    not_remembered: bool,

    /// Check everything and say what would happen, but write nothing.
    #[arg(long)]
    dry_run: bool,
}

/// What is said of one array, and not of all that a scan finds.
const FORCES: [&str; 8] = [
    "read_only",
    "accept_dirty_degraded",
    "accept_lost_map",
    "accept_older_members",
    "accept_serials",
    "accept_signatures",
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
        accept_older_members: args.accept_older_members,
        accept_serials: args.accept_serials,
        accept_signatures: args.accept_signatures,
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
