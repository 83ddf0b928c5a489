//! `ashlar lab`: the lab's verbs, which stand in a crate of their own.

use crate::fault::Fault;
use crate::reach::Reach;
use std::process::ExitCode;

/// Do what was asked. Exit code 1: a check or comparison failed; 2: it could not run.
pub fn run(args: ashlar_lab::cli::Args, reach: &Reach) -> Result<ExitCode, Fault> {
    Ok(ashlar_lab::cli::run(args, reach.json)?)
}
