//! `ashlar metrics`: the counters as OpenMetrics text, for a look or for a textfile collector.

use crate::fault::Fault;
use crate::reach::Reach;
use crate::say;

/// Print all metrics in OpenMetrics format.
#[derive(clap::Args, Debug)]
pub struct Args {}

pub fn run(_: &Args, reach: &Reach) -> Result<(), Fault> {
    say::write(reach.client()?.metrics()?)
}
