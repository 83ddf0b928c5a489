//! `ashlar rename`: another name for an array.

use crate::fault::Fault;
use crate::reach::Reach;
use ashlar_api::v1::array::Rename;

/// Rename a running array. Ashlar stops the array and starts the array again under the new name.
/// The command is refused while clients use the array.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the array.
    array: String,

    /// New name of the array. A configuration that names the array needs the new name, too.
    name: String,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    reach.change(&Rename { array: args.array, name: args.name }).map(drop)
}
