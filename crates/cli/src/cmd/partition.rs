//! `ashlar partition`: whole drives that other programs see to be taken.
//!
//! What must stay true: all drives are checked before the first is written. Not here: how a
//! partition is made (`ashlar_daemon::partition`).

use crate::fault::Fault;
use crate::reach::{Reach, devices};
use ashlar_daemon::partition::make::{DriveToPartition, check_all, make_all};
use std::path::PathBuf;

/// Put one partition of Ashlar's own type on each blank drive, and print the partitions.
///
/// `create`, `grow`, `replace` and `spare add` partition whole drives by themselves. Use this
/// command to prepare drives in advance, or for devices that the other commands do not partition,
/// such as loop devices.
///
/// Other programs see a drive without a partition as blank and may overwrite the drive. Installers,
/// mkfs, blkid, wipefs and parted recognise a partition. This command needs the program sfdisk, but
/// no daemon.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: ashlar partition /dev/sd[b-k]")]
pub struct Args {
    /// Whole drives or loop devices.
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,

    /// Check everything and write nothing.
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &Args, reach: &Reach) -> Result<(), Fault> {
    let wanted = |drive: String| DriveToPartition { drive, may_destroy: false };
    let drives: Vec<DriveToPartition> = devices(&args.devices)?.into_iter().map(wanted).collect();
    check_all(&drives)?;
    if args.dry_run {
        return reach.tell(format_args!("each would get a partition; nothing was written"));
    }
    let made: Vec<String> = make_all(&drives)?.into_iter().map(|it| it.partition).collect();
    reach.print(&made, |made| made.join("\n"))
}
