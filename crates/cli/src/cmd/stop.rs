//! `ashlar stop`: let go of an array.

use crate::fault::Fault;
use crate::reach::Reach;
use ashlar_api::v1::array::Stop;

/// Stop an array: finish the requests under way, mark the array clean and close its devices.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the array.
    array: String,

    /// Stop the array although clients use it, and disconnect the clients. Without --force, such a
    /// stop is refused.
    #[arg(long)]
    force: bool,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    reach.change(&Stop { array: args.array, force: args.force }).map(drop)
}
