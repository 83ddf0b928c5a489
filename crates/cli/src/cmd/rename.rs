//! `ashlar rename`: another name for an array.

use crate::fault::Fault;
use crate::reach::Reach;
use ashlar_api::v1::array::Rename;

/// Rename a running array. This stops the array and starts it again under the new name. Refused
/// while clients use it.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the array.
    array: String,

    /// Its new name. A configuration that names the array needs the new name, too.
    name: String,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    reach.change(&Rename { array: args.array, name: args.name }).map(drop)
}
