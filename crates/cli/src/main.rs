//! `ashlar`: one program for everything a person does with arrays.
//!
//! - args: what can be typed; help, completions and manual pages come from the same definitions
//! - cmd: one file for each command
//! - render: how answers look
//! - fault: how a refusal looks
//! - habits: what users of other programs type, and what it is called here
//! - misunderstood: what is said of a command line that is not understood
//! - reach: where the daemon is, and asking it
//! - say: printing, and readers that have gone
//! - since: times as people type them
//! - sizes: sizes as people type them
//! - wait: following background work to its end
//!
//! What must stay true: a command either does what it says or prints one line that tells what
//! happened and how to go on, with an exit code that is not 0. Only `serve`, `bench`, `examine`,
//! `salvage`, `partition`, `lab`, `events --since` and dry runs of declustered arrays work without
//! a running daemon.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod cmd;
mod fault;
mod habits;
mod misunderstood;
mod reach;
mod render;
mod say;
mod since;
mod sizes;
mod wait;

use args::{Args, Command};
use fault::Fault;
use reach::Reach;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match Args::of_command_line() {
        Ok(args) => args,
        Err(error) => return misunderstood::complain(&error),
    };
    let json = args.json;
    match run(args) {
        Ok(code) => code,
        Err(fault) => fault.report(json),
    }
}

fn run(args: Args) -> Result<ExitCode, Fault> {
    let reach = Reach { socket: args.socket, json: args.json };
    match args.command {
        Command::Serve(args) => cmd::serve::run(args, &reach),
        Command::Create(args) => cmd::create::run(args, &reach),
        Command::Partition(args) => cmd::partition::run(&args, &reach),
        Command::Assemble(args) => cmd::assemble::run(args, &reach),
        Command::Stop(args) => cmd::stop::run(args, &reach),
        Command::Destroy(args) => cmd::destroy::run(args, &reach),
        Command::Rename(args) => cmd::rename::run(args, &reach),
        Command::Set(args) => cmd::set::run(args, &reach),
        Command::Status(args) => return cmd::status::run(&args, &reach),
        Command::Top(args) => cmd::top::run(&args, &reach),
        Command::Volumes(args) => cmd::volumes::run(&args, &reach),
        Command::Examine(args) => cmd::examine::run(&args, &reach),
        Command::Salvage(args) => cmd::salvage::run(&args, &reach),
        Command::Fail(args) => cmd::fail::run(args, &reach),
        Command::Locate(args) => cmd::locate::run(args, &reach),
        Command::Grow(args) => cmd::grow::run(args, &reach),
        Command::Replace(args) => cmd::replace::run(args, &reach),
        Command::ReAdd(args) => cmd::re_add::run(args, &reach),
        Command::Spare(args) => cmd::spare::run(args, &reach),
        Command::Wipe(args) => cmd::wipe::run(&args, &reach),
        Command::Scrub(args) => cmd::scrub::run(args, &reach),
        Command::Rebuild(args) => cmd::rebuild::run(args, &reach),
        Command::Job(args) => cmd::job::run(args, &reach),
        Command::Attach(args) => cmd::attach::run(args, &reach),
        Command::Detach(args) => cmd::detach::run(args, &reach),
        Command::Events(args) => cmd::events::run(&args, &reach),
        Command::Notify(args) => cmd::notify::run(&args, &reach),
        Command::Metrics(args) => cmd::metrics::run(&args, &reach),
        Command::Bench(args) => cmd::bench::run(&args, &reach),
        Command::Lab(args) => return cmd::lab::run(args, &reach),
        Command::Keeper(args) => cmd::keeper::run(&args),
        Command::Completions(args) => cmd::completions::run(&args, Args::definitions()),
        Command::Man(args) => cmd::man::run(&args, Args::definitions()),
        Command::Openapi(cmd::openapi::Args {}) => cmd::openapi::run(),
    }?;
    Ok(ExitCode::SUCCESS)
}
