//! `ashlar openapi`: the control interface for programs that generate clients.

use crate::fault::Fault;
use crate::say;

/// Print the OpenAPI document of the control interface.
///
/// The daemon serves the same document at its socket, as /v1/openapi.json.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: ashlar openapi > ashlar.json")]
pub struct Args {}

pub fn run() -> Result<(), Fault> {
    say::write(format_args!("{:#}\n", ashlar_daemon::backend::openapi()))
}
