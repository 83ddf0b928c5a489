//! `ashlar man`: the manual pages.

use crate::fault::Fault;
use std::path::PathBuf;

/// Write the manual pages, one for each command.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: ashlar man /usr/local/share/man/man1")]
pub struct Args {
    /// Directory for the pages. Created if it does not exist.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// `command`: all definitions of the program.
pub fn run(args: &Args, command: clap::Command) -> Result<(), Fault> {
    std::fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(command, &args.folder))
        .map_err(|error| {
            Fault::file(&args.folder, &error, "choose a directory that you may write to")
        })
}
