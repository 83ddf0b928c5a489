//! `ashlar keeper`: holds the descriptors of attached files while no daemon runs. The daemon starts
//! it.

use crate::fault::Fault;
use ashlar_api::codes;
use ashlar_daemon::keeper::{KeeperOptions, run as keep};
use std::time::Duration;

/// Hold what a daemon hands over on the socket that is standard input. Started by `serve`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// How long to wait for a daemon, in seconds.
    #[arg(long, value_name = "SECONDS")]
    wait: u64,
}

pub fn run(args: &Args) -> Result<(), Fault> {
    keep(KeeperOptions { wait: Duration::from_secs(args.wait) }).map_err(|error| {
        let hint = "the daemon starts it by itself: ashlar serve";
        Fault::new(codes::SYSTEM_FAULT, format!("no socket to listen at: {error}"), hint)
    })
}
