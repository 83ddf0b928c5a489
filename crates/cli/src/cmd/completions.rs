//! `ashlar completions`: what a shell needs to complete commands and flags.

use crate::fault::Fault;
use clap::CommandFactory;

/// Print the completions for a shell.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: ashlar completions bash > /etc/bash_completion.d/ashlar")]
pub struct Args {
    /// The shell.
    shell: clap_complete::Shell,
}

pub fn run(args: &Args) -> Result<(), Fault> {
    let mut command = crate::args::Args::command();
    clap_complete::generate(args.shell, &mut command, "ashlar", &mut std::io::stdout());
    Ok(())
}
