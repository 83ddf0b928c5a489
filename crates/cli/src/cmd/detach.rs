//! `ashlar detach`: the reverse of attach.

use crate::fault::Fault;
use crate::reach::Reach;
use ashlar_api::v1::export::FuseDetach;

/// Remove the block device of a volume. Refused while the device is mounted or open.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the array.
    array: String,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    reach.change(&FuseDetach { array: args.array }).map(drop)
}
