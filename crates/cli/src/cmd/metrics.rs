//! `ashlar metrics`: the counters as OpenMetrics text, for a look or for a textfile collector.

use crate::fault::Fault;
use crate::reach::Reach;

/// Print all metrics in the OpenMetrics format.
#[derive(clap::Args, Debug)]
pub struct Args {}

pub fn run(_: &Args, reach: &Reach) -> Result<(), Fault> {
    print!("{}", reach.client()?.metrics()?);
    Ok(())
}
