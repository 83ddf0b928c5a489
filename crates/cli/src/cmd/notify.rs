//! `ashlar notify`: whether operators are told.

use crate::fault::Fault;
use crate::reach::Reach;
use ashlar_api::v1::notify::{NotifyOutcome, NotifyTest, NotifyTested};

/// Test the notifications that the configuration names.
///
/// The daemon reports events as `[notify]` of the configuration says: to a program, by mail, to a
/// URL.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Send one message to each target, and report which messages arrived.
    ///
    /// Exit code 0: all messages arrived. 1: some messages did not arrive. A mail counts as arrived
    /// once sendmail has accepted the mail.
    Test,
}

pub fn run(args: &Args, reach: &Reach) -> Result<(), Fault> {
    let Action::Test = args.action;
    let tested = reach.call(&NotifyTest {})?;
    if tested.ways.is_empty() {
        return Err(Fault::new(
            "notify.not_configured",
            "no notification is configured; nothing was sent",
            "name run, mail or url in [notify] of the configuration, and restart the daemon",
        ));
    }
    reach.print(&tested, text)?;
    let failed = tested.ways.iter().filter(|way| way.error.is_some()).count();
    if failed == 0 {
        return Ok(());
    }
    let message = format!("{failed} of {} ways failed", tested.ways.len());
    let hint = "correct [notify] of the configuration or what it names, and test again";
    Err(Fault::answered("notify.failed", message, hint.to_owned()))
}

fn text(tested: &NotifyTested) -> String {
    let line = |it: &NotifyOutcome| match &it.error {
        None => format!("{:<5} {}: arrived", it.way, it.target),
        Some(error) => format!("{:<5} {}: FAILED: {error}", it.way, it.target),
    };
    tested.ways.iter().map(line).collect::<Vec<_>>().join("\n")
}
