//! `ashlar fail`: take a member out.

use crate::fault::Fault;
use crate::reach::Reach;
use ashlar_api::v1::member::Fail;

/// Take a member out of service. A free spare, if there is one, takes the slot. The command is
/// refused if data would be lost.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the array.
    array: String,

    /// The member: slot number, path or serial.
    member: String,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let member = super::member_name(args.member)?;
    reach.change(&Fail { array: args.array, member }).map(drop)
}
