//! `ashlar detach`: the reverse of attach.

use crate::fault::Fault;
use crate::reach::Reach;
use ashlar_api::v1::export::{FuseDetach, UblkDetach};

/// Remove the block device of a volume. The command is refused while the device is mounted or open.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the array.
    array: String,

    /// Remove the block device although a program has the device open; the program gets I/O errors.
    /// The option works only if a daemon was killed and the next daemon did not start the array.
    #[arg(long)]
    give_up: bool,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let Args { array, give_up } = args;
    let by_ublk = reach.call(&UblkDetach { array: array.clone() })?;
    let by_file = reach.call(&FuseDetach { array, give_up })?;
    let done = if by_file.changed { by_file } else { by_ublk };
    reach.print(&done, |done| done.message.clone())
}
