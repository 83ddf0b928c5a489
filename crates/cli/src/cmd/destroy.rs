//! `ashlar destroy`: end an array for good.

use crate::fault::Fault;
use crate::reach::Reach;
use ashlar_api::v1::array::Destroy;

/// Destroy a running array: stop it and erase the RAID metadata of its devices. Its data is lost.
///
/// Refused while clients use it, and without --confirm.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: ashlar destroy tank0 --confirm tank0")]
pub struct Args {
    /// Name of the array.
    array: String,

    /// The name once more.
    #[arg(long, value_name = "ARRAY")]
    confirm: Option<String>,

    /// Say what would be erased and write nothing.
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let call = Destroy { array: args.array, confirm: args.confirm, dry_run: args.dry_run };
    reach.change(&call).map(drop)
}
