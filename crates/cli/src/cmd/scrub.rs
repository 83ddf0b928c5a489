//! `ashlar scrub`: read everything and compare.

use crate::fault::Fault;
use crate::reach::Reach;
use crate::wait;
use ashlar_api::v1::job::{JobAction, JobControl, JobKind, ScrubStart};

/// Read every written stripe, and check that parity matches data or that copies are equal.
///
/// The command starts the scrub and returns at once; --wait waits for the end. A scrub always
/// rewrites blocks that cannot be read and, with checksums, blocks whose checksum is wrong. A scrub
/// reports mismatches: places where parity does not match data, or where copies of a mirror differ.
/// With --repair, the scrub also corrects mismatches.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the array.
    array: String,

    /// Correct mismatches. With two or more parity strips, find and rewrite the wrong strip. With
    /// one parity strip, or if no single strip explains a mismatch, trust the data and rewrite
    /// parity. On mirrors of three or more copies, rewrite the copy that differs from the others.
    /// On mirrors of two copies, rewrite the copy in the higher slot.
    #[arg(long)]
    repair: bool,

    /// Wait for the end and show the progress. Exit code 1 if mismatches or lost blocks remain.
    #[arg(long)]
    wait: bool,

    /// Pause the scrub. The scrub keeps its position.
    #[arg(long, conflicts_with_all = ["repair", "wait"])]
    pause: bool,

    /// Resume a paused scrub.
    #[arg(long, conflicts_with_all = ["repair", "pause"])]
    resume: bool,

    /// Cancel the scrub.
    #[arg(long, conflicts_with_all = ["repair", "wait", "pause", "resume"])]
    cancel: bool,
}

impl Args {
    fn action(&self) -> Option<JobAction> {
        match (self.pause, self.resume, self.cancel) {
            (true, _, _) => Some(JobAction::Pause),
            (_, true, _) => Some(JobAction::Resume),
            (_, _, true) => Some(JobAction::Cancel),
            _ => None,
        }
    }
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let array = args.array.clone();
    match args.action() {
        Some(action) => {
            reach.change(&JobControl { array, kind: JobKind::Scrub, action, id: None })?
        }
        None => reach.change(&ScrubStart { array, repair: args.repair })?,
    };
    if args.wait { wait::until_scrubbed(reach, &args.array) } else { Ok(()) }
}
