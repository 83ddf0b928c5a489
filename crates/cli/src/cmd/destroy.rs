//! `ashlar destroy`: end an array for good.

use crate::fault::Fault;
use crate::reach::Reach;
use crate::say;
use ashlar_api::v1::array::Destroy;
use std::io::IsTerminal;

/// Destroy a running array: stop the array and erase the RAID metadata of its devices. The volume
/// is lost.
///
/// The command is refused while clients use the array. To confirm, type the name of the array in
/// the terminal or give --confirm. User data stays readable on the devices; `nvme format` or
/// `blkdiscard` erases all data of a drive.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: ashlar destroy tank0 --confirm tank0")]
pub struct Args {
    /// Name of the array.
    array: String,

    /// The array's name again.
    #[arg(long, value_name = "ARRAY")]
    confirm: Option<String>,

    /// Say what would be erased and write nothing.
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let is_asked = args.confirm.is_none() && !args.dry_run && !reach.json;
    let confirm = match is_asked && std::io::stdin().is_terminal() {
        true => Some(ask(&args.array, reach)?),
        false => args.confirm,
    };
    let call = Destroy { array: args.array, confirm, dry_run: args.dry_run };
    reach.change(&call).map(drop)
}

/// What somebody at a terminal types when told what would be lost.
fn ask(array: &str, reach: &Reach) -> Result<String, Fault> {
    let would = Destroy { array: array.to_owned(), confirm: None, dry_run: true };
    say::line(reach.call(&would)?.message)?;
    say::line(format!("All data of '{array}' would be lost. Type its name to go on:"))?;
    let mut typed = String::new();
    let read = std::io::stdin().read_line(&mut typed);
    read.map_err(|error| Fault::usage(format!("no answer: {error}"), "use --confirm"))?;
    Ok(typed.trim().to_owned())
}
