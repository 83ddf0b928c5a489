//! `ashlar completions`: what a shell needs to complete commands and flags.

use crate::fault::Fault;
use crate::say;

/// Print shell completions.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: ashlar completions bash > /etc/bash_completion.d/ashlar")]
pub struct Args {
    /// Shell to write for.
    shell: clap_complete::Shell,
}

/// `command`: all definitions of the program.
pub fn run(args: &Args, mut command: clap::Command) -> Result<(), Fault> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "ashlar", &mut script);
    say::write(String::from_utf8_lossy(&script))
}
