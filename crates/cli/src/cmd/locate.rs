//! `ashlar locate`: the light of a drive's bay.

use crate::fault::Fault;
use crate::reach::Reach;
use ashlar_api::v1::member::Locate;

/// Switch on the locate light of the bay where a member's drive belongs, even if the drive is dead
/// or gone. The command is refused if the bay holds another drive.
///
/// Ashlar uses the kernel's enclosure driver or, without this driver, the program ledctl.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the array.
    array: String,

    /// The member: slot number, path or serial.
    member: String,

    /// Switch the light off.
    #[arg(long)]
    off: bool,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let member = super::member_name(args.member)?;
    reach.change(&Locate { array: args.array, member, off: args.off }).map(drop)
}
