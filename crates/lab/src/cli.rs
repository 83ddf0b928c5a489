//! The verbs of `ashlar lab`. A verb's flags and its `run` stand in the verb's own module.

use crate::Refusal;
use std::process::ExitCode;

/// Said below the list of verbs.
pub const BEGIN: &str = "Where to begin:
  ashlar lab inspect                        is this server fit to be measured, and what is its narrowest link?
  ashlar lab lint my.fio                    does my benchmark measure what it claims?
  ashlar lab run --example > plan.toml      a plan; then: run plan.toml --dry-run, run plan.toml --to runs/first
  ashlar lab report runs/first              one HTML file that opens anywhere

ashlar lab VERB --help has an example of each. Only run, compare and purge write to devices, and only to those that carry
nothing or were named with --destroy.";

/// What `lab` is asked for.
#[derive(clap::Args, Debug)]
#[command(after_help = BEGIN)]
pub struct Args {
    /// Which part of the lab.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The parts of the lab.
#[derive(clap::Subcommand, Debug)]
pub enum Verb {
    /// Keep runs under a name, to hold later ones against.
    Baseline(crate::compare::baseline::Args),
    /// Write down what `inspect` reads of this server, to be looked at elsewhere.
    Capture(crate::capture::Args),
    /// Compare two engines in turns, or two stored runs.
    Compare(crate::compare::cli::Args),
    /// Account for a machine's CPU: which engine, in whose context, for what, on which cores.
    Cpu(Box<crate::cpu::verb::Args>),
    /// Look at a server: what is in it, what is wrong with it, and which link is the narrowest.
    Inspect(crate::inspect::Args),
    /// Say what is wrong with a benchmark, before it runs or after.
    Lint(Box<crate::lint::cli::Args>),
    /// Purge drives: sanitize, format or discard everything. It is lost.
    Purge(crate::purge::cli::Args),
    /// Copy a capture without serial numbers, WWNs, UUIDs, host names, IP and MAC addresses.
    Redact(crate::redact::Args),
    /// Make the report of a run.
    Report(crate::report::cli::Args),
    /// Measure what a plan says: raw drives, arrays, degraded, under rebuild.
    Run(crate::plan::cli::Args),
    /// Show what became of I/Os between submission and the device: sizes, splits, merges,
    /// alignment.
    Trace(crate::trace::verb::Args),
}

/// Do what was asked. The exit code is 0 (done, passed), 1 (a check or comparison failed) or 2
/// (could not run).
///
/// # Errors
/// The one line that says why not.
pub fn run(args: Args, json: bool) -> Result<ExitCode, Refusal> {
    match args.verb {
        Verb::Baseline(args) => crate::compare::baseline::run(&args, json),
        Verb::Capture(args) => crate::capture::run(&args, json),
        Verb::Compare(args) => crate::compare::cli::run(&args, json),
        Verb::Cpu(args) => crate::cpu::verb::run(&args, json),
        Verb::Inspect(args) => crate::inspect::run(&args, json),
        Verb::Lint(args) => crate::lint::cli::run(&args, json),
        Verb::Purge(args) => crate::purge::cli::run(&args, json),
        Verb::Redact(args) => crate::redact::run(&args, json),
        Verb::Report(args) => crate::report::cli::run(&args, json),
        Verb::Run(args) => crate::plan::cli::run(&args, json),
        Verb::Trace(args) => crate::trace::verb::run(&args, json),
    }
}
