//! `ashlar re-add`: a member that was away comes back.

use crate::fault::Fault;
use crate::reach::{Reach, device};
use crate::wait;
use ashlar_api::v1::member::ReAdd;
use std::path::PathBuf;

/// Return a member to its array. Ashlar rebuilds only the regions that changed while the member was
/// away.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the array.
    array: String,

    /// The device of the member.
    device: PathBuf,

    /// Wait for the rebuild and show its progress.
    #[arg(long)]
    wait: bool,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let device = device(&args.device)?;
    let done = reach.change(&ReAdd { array: args.array.clone(), device: device.clone() })?;
    let device = done.device.unwrap_or(device);
    if args.wait { wait::until_filled(reach, &args.array, &device) } else { Ok(()) }
}
