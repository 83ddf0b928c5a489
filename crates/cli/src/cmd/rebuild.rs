//! `ashlar rebuild`: hold on or go on with what regenerates a member.

use crate::fault::Fault;
use crate::reach::Reach;
use crate::wait;
use ashlar_api::v1::job::{JobAction, JobControl, JobKind};

/// Pause, resume or wait for rebuilds. Ashlar starts rebuilds by itself.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Pause the rebuilds of an array. The rebuilds keep their position.
    Pause {
        /// Name of the array.
        array: String,
    },
    /// Resume paused rebuilds.
    Resume {
        /// Name of the array.
        array: String,
    },
    /// Wait for the end of the rebuilds, and show their progress.
    Wait {
        /// Name of the array.
        array: String,
    },
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let kind = JobKind::Rebuild;
    let (array, action) = match args.action {
        Action::Wait { array } => return wait::until_rebuilt(reach, &array),
        Action::Pause { array } => (array, JobAction::Pause),
        Action::Resume { array } => (array, JobAction::Resume),
    };
    let control = JobControl { array, kind, action, id: None };
    reach.change(&control).map(drop)
}
