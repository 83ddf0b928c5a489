//! `ashlar status`: how everything is, on one screen.

use crate::fault::Fault;
use crate::reach::Reach;
use crate::render::status;
use crate::say;
use ashlar_api::ApiError;
use ashlar_api::v1::check::{Finding, Health, Verdict};
use ashlar_api::v1::status::{GetStatus, Status};
use std::process::ExitCode;
use std::time::Duration;

/// Show the state of the arrays.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Show only this array.
    array: Option<String>,

    /// Print one line for monitoring. Exit code: 0 all right; 1 attention, for instance a resync or
    /// a slow drive; 2 degraded, rebuilding or read-only; 3 failed, or no daemon.
    #[arg(long, conflicts_with_all = ["watch", "members", "limits"])]
    check: bool,

    /// Show the state again and again, until interrupted.
    #[arg(short, long)]
    watch: bool,

    /// Seconds between updates with --watch.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 2,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    every: u64,

    /// List every member.
    #[arg(short, long)]
    members: bool,

    /// Show workers, and how close each buffer pool came to its limit.
    #[arg(short, long)]
    limits: bool,
}

pub fn run(args: &Args, reach: &Reach) -> Result<ExitCode, Fault> {
    if args.check {
        return check(args, reach);
    }
    show(args, reach)?;
    Ok(ExitCode::SUCCESS)
}

/// One line and an exit code.
fn check(args: &Args, reach: &Reach) -> Result<ExitCode, Fault> {
    let verdict = match status_of(args, reach) {
        Ok(status) => Verdict::of(&status),
        Err(fault) => {
            Verdict::from(vec![Finding { health: Health::Failed, what: fault.to_string() }])
        }
    };
    reach.print(&verdict, check_line)?;
    Ok(ExitCode::from(verdict.health.exit_code()))
}

fn status_of(args: &Args, reach: &Reach) -> Result<Status, Fault> {
    let mut status = reach.call(&GetStatus {})?;
    if let Some(array) = &args.array {
        keep_only(&mut status, array)?;
    }
    Ok(status)
}

/// Findings that one line names; it counts the others.
const NAMED_MAX: usize = 4;

fn check_line(verdict: &Verdict) -> String {
    let named: Vec<&str> =
        verdict.findings.iter().take(NAMED_MAX).map(|finding| finding.what.as_str()).collect();
    let more = match verdict.findings.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    match named.is_empty() {
        true => format!("{}: nothing is wrong", verdict.health),
        false => format!("{}: {}{more}", verdict.health, named.join("; ")),
    }
}

fn show(args: &Args, reach: &Reach) -> Result<(), Fault> {
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
    status.absent.retain(|it| it.name == array);
    status.found.retain(|it| it.name == array);
    if status.arrays.is_empty() && status.absent.is_empty() && status.found.is_empty() {
        return Err(ApiError::no_array(array).into());
    }
    status.exports.retain(|it| it.array.as_deref().is_none_or(|name| name == array));
    Ok(())
}
