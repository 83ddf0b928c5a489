//! The verbs of `ashlar lab`. A verb's flags and its `run` stand in the verb's own module.

use crate::Refusal;
use std::process::ExitCode;

/// Said below the list of verbs.
pub const BEGIN: &str = "Where to begin:
  # Is this server fit for measurements, and which link is its bottleneck?
  ashlar lab inspect
  # Does a benchmark measure what it claims?
  ashlar lab lint my.fio
  # Print an example of a plan, check the plan, run it.
  ashlar lab run --example > plan.toml
  ashlar lab run plan.toml --dry-run
  ashlar lab run plan.toml --to runs/first
  # Make one HTML file that opens anywhere.
  ashlar lab report runs/first

Words: a load is a kind of I/O, such as random reads. A point is one load at one number of jobs \
and one queue depth. The lab measures each point several times; each of these is a round. In a \
comparison, each engine has a turn in each round. A case is the same point of two engines.

`ashlar lab COMMAND --help` has an example of each command. Only the commands `run`, `compare` and \
`qualify` write to devices, and only to targets that you name. A drive that is not blank must also \
be named with --destroy; so must a file with a known signature, such as that of a file system. \
`cpu` and `trace` run any command that you give them, even one that writes.";

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
    /// Save what `inspect` reads of this server, for analysis elsewhere.
    ///
    /// The file files.txt of a capture holds small files of /sys and /proc; the directory commands
    /// holds the output of programs. The server is not changed. A capture holds serial numbers and
    /// addresses, which `lab redact` replaces. Run this command as root, because dmidecode, lspci
    /// and smartctl need root.
    Capture(crate::capture::Args),
    /// Compare two engines in turns on the same devices, or compare two stored runs.
    ///
    /// A and B are engines or directories of runs. Engines are ashlar, ashlar:POLICY, btrfs, mdadm,
    /// and device:PATH for a block device that exists already. Settings of an engine follow a
    /// colon: mdadm:group_thread_cnt=8/32/64 tries three settings and compares the best setting. To
    /// compare any other setting, also of one engine with itself, use --set-a and --set-b.
    ///
    /// The engines take turns: ABBA or BAAB, at random for each pair of rounds. In each turn, the
    /// lab makes and fills the array, measures the healthy array and then the array with members
    /// out, and removes the array.
    Compare(Box<crate::compare::cli::Args>),
    /// Show how much CPU time engines, interrupts, tasks and cores use.
    ///
    /// The lab samples call stacks. CPU time that an engine uses in fio's context, in kworkers or
    /// in softirqs is charged to the engine, not to fio or the kernel.
    Cpu(Box<crate::cpu::verb::Args>),
    /// Inspect a server: its parts, its faults and the link that is its bottleneck.
    ///
    /// The lab inspects this machine, or a directory made by `lab capture`. Nothing is changed, and
    /// no drive is written to. Exit code 0: all checks passed; 1: a check failed; 2: no check
    /// failed, but one that the verdict needs could not be made.
    Inspect(crate::inspect::Args),
    /// Find mistakes in a benchmark, before or after the run.
    Lint(Box<crate::lint::cli::Args>),
    /// Qualify a server: inspect and burn in the server, and measure drives, arrays, degraded
    /// arrays and a rebuild.
    Qualify(crate::qualify::Args),
    /// Copy a capture or a run without serial numbers, WWNs, UUIDs, host names, IP and MAC
    /// addresses.
    ///
    /// Each identifier is replaced everywhere by the same made-up identifier of the same shape. So
    /// the copy can still be inspected, reported and compared. Read the copy before you send it:
    /// names that follow no pattern, such as the name of a pool, stay in it.
    Redact(crate::redact::Args),
    /// Make the report of a run: the verdict first, then every figure with its mark and its
    /// command.
    ///
    /// Without an option, the report is written to report.html in the directory of the run. The
    /// report is made from the records alone, and can be made again at any time.
    Report(crate::report::cli::Args),
    /// Run a plan of measurements: raw drives, arrays, degraded arrays, rebuilds.
    Run(crate::plan::cli::Args),
    /// Trace I/Os from submission to the device: sizes, splits, merges, alignment to strip and
    /// stripe.
    ///
    /// The lab uses a private instance of the kernel's tracer, and writes nothing to the device.
    /// With --strip and --stripe-data of the array, the output also shows which I/Os are not
    /// aligned to strip and stripe.
    Trace(crate::trace::verb::Args),
}

/// Do what was asked. The exit code is 0 (done, passed), 1 (a check or comparison failed) or 2
/// (could not run).
///
/// # Errors
/// The one line that says why not.
pub fn run(args: Args, json: bool) -> Result<ExitCode, Refusal> {
    match args.verb {
        Verb::Capture(args) => crate::capture::run(&args, json),
        Verb::Compare(args) => crate::compare::cli::run(&args, json),
        Verb::Cpu(args) => crate::cpu::verb::run(&args, json),
        Verb::Inspect(args) => crate::inspect::run(&args, json),
        Verb::Lint(args) => crate::lint::cli::run(&args, json),
        Verb::Qualify(args) => crate::qualify::run(&args, json),
        Verb::Redact(args) => crate::redact::run(&args, json),
        Verb::Report(args) => crate::report::cli::run(&args, json),
        Verb::Run(args) => crate::plan::cli::run(&args, json),
        Verb::Trace(args) => crate::trace::verb::run(&args, json),
    }
}
