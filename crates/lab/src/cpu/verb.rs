//! `lab cpu`: its flags, and what is done with them.

use super::account::{CpuAccount, Taken};
use super::files::{self, How};
use super::groups::Groups;
use super::text;
use crate::Refusal;
use crate::metrics::share::{Unit, Window};
use crate::metrics::spread::SPIKE_POINTS;
use crate::record::Record;
use regex::Regex;
use std::path::PathBuf;
use std::process::ExitCode;

/// Account for a machine's CPU: which engine, in whose context, for what, on which cores.
///
/// Looks at stacks, not at what a load generator says about itself: an engine's work in fio's context, in kworkers and in
/// softirqs is charged to the engine.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example, from a file somebody sent:\n  ashlar lab cpu --from md.folded --cores 64 --hz 99 --seconds 60"
)]
pub struct Args {
    /// Read this file instead of sampling: folded stacks, or the text of perf script. May be given several times.
    #[arg(long, value_name = "FILE", required = true)]
    pub from: Vec<PathBuf>,

    /// Cores that were online when the file was made.
    #[arg(long, value_name = "N")]
    pub cores: Option<u32>,

    /// Samples a second on each core.
    #[arg(long, value_name = "F", default_value_t = 99.0)]
    pub hz: f64,

    /// How long to sample, or how long the file was sampled.
    #[arg(long, value_name = "T")]
    pub seconds: Option<f64>,

    /// What the counts of a folded file are, when the file does not say.
    #[arg(long, value_enum)]
    pub unit: Option<UnitFlag>,

    /// Function groups of your own: TOML files, asked before the ones that come with the lab.
    #[arg(long, value_name = "FILE")]
    pub groups: Vec<PathBuf>,

    /// Names of the threads of the load generator, a regular expression.
    #[arg(long, value_name = "REGEX", default_value = "^fio")]
    pub client: String,

    /// Points by which a core must stand above the median to be called a spike.
    #[arg(long, value_name = "POINTS", default_value_t = SPIKE_POINTS)]
    pub spike_points: f64,
}

/// A unit as typed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum UnitFlag {
    /// One for each sample.
    Samples,
    /// Nanoseconds: weighted by the period.
    Ns,
}

impl From<UnitFlag> for Unit {
    fn from(flag: UnitFlag) -> Unit {
        match flag {
            UnitFlag::Samples => Unit::Samples,
            UnitFlag::Ns => Unit::Nanoseconds,
        }
    }
}

/// Do what was asked.
///
/// # Errors
/// The one line that says why not.
pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    let groups = Groups::load(&args.groups)?;
    let client = Regex::new(&args.client).map_err(|error| {
        let why = error.to_string().lines().last().unwrap_or_default().to_owned();
        Refusal::cannot_run(
            "cpu.client_malformed",
            format!("--client: {why}"),
            "give a regular expression",
        )
    })?;
    let account = from_files(args, &groups, &client)?;
    print(account, json)
}

fn from_files(args: &Args, groups: &Groups, client: &Regex) -> Result<CpuAccount, Refusal> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let how = How { groups, client, keep_stacks: false, threads };
    let read = files::count(&args.from, how)?;
    let named = args.from.first().map(|path| path.display().to_string()).unwrap_or_default();
    let of = match args.from.len() {
        1 => named,
        more => format!("{more} files, the first {named}"),
    };
    let needed = |flag: &str| {
        let what = format!("{of}: a file of stacks does not say --{flag} N");
        Refusal::cannot_run(
            "cpu.window_unknown",
            what,
            "shares are of cores x time, so both are needed",
        )
    };
    // The time from the first sample to the last is too short by one sample.
    let seconds = args.seconds.or(read.times.map(|(first, last)| last - first + 1.0 / args.hz));
    let window = Window {
        cores: args.cores.ok_or_else(|| needed("cores"))?,
        hz: args.hz,
        seconds: seconds.ok_or_else(|| needed("seconds"))?,
    };
    let taken = Taken {
        of: &of,
        source: read.event.as_deref().unwrap_or("unknown"),
        window,
        unit: args.unit.map(Unit::from).or(read.unit),
        spike_points: args.spike_points,
    };
    CpuAccount::of(&read.counts, groups, &taken)
}

fn print(account: CpuAccount, json: bool) -> Result<ExitCode, Refusal> {
    match json {
        false => print!("{}", text::text(&account)),
        true => {
            let line = serde_json::to_string(&Record::Cpu(Box::new(account))).map_err(|error| {
                Refusal::cannot_run(
                    "cpu.not_printed",
                    error.to_string(),
                    "this is a bug of the lab",
                )
            })?;
            println!("{line}");
        }
    }
    Ok(ExitCode::SUCCESS)
}
