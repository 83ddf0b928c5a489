//! `ashlar status`: how everything is, on one screen.

use crate::fault::Fault;
use crate::reach::Reach;
use crate::render::status;
use crate::say;
use ashlar_api::ApiError;
use ashlar_api::v1::status::{GetStatus, Status};
use std::time::Duration;

/// Show how the arrays are.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Only this array.
    array: Option<String>,

    /// Show it again and again until interrupted.
    #[arg(short, long)]
    watch: bool,

    /// Seconds between two looks, with --watch.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,

    /// Also list every member.
    #[arg(short, long)]
    members: bool,

    /// Also show workers, and pools with the most that was ever in use.
    #[arg(short, long)]
    limits: bool,
}

pub fn run(args: &Args, reach: &Reach) -> Result<(), Fault> {
    let client = reach.client()?;
    loop {
        let mut status = client.call(&GetStatus {})?;
        if let Some(array) = &args.array {
            keep_only(&mut status, array)?;
        }
        // Clear the screen and go to its corner; in a file one look follows the other.
        let before = match (args.watch, say::is_terminal()) {
            (false, _) => "",
            (true, false) => "\n",
            (true, true) => "\x1b[2J\x1b[H",
        };
        reach.print(&status, |status| {
            format!("{before}{}", status::screen(status, args.members, args.limits))
        })?;
        if !args.watch {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(args.every));
    }
}

fn keep_only(status: &mut Status, array: &str) -> Result<(), Fault> {
    status.arrays.retain(|it| it.name == array);
    if status.arrays.is_empty() {
        return Err(ApiError::no_array(array).into());
    }
    status.exports.retain(|it| it.array.as_deref().is_none_or(|name| name == array));
    Ok(())
}
