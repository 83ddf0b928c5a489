//! `lab cpu`: its flags, and what is done with them.

use super::account::{CpuAccount, Taken};
use super::files::{self, How};
use super::groups::Groups;
use super::live::{self, Plan};
use super::load::Load;
use super::text;
use crate::metrics::share::{Unit, Window};
use crate::metrics::spread::SPIKE_POINTS;
use crate::record::Record;
use crate::store::append_line;
use crate::{AtPath, Refusal};
use regex::Regex;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  ashlar lab cpu --seconds 10
  ashlar lab cpu --fio seqwrite.fio --to run1
  ashlar lab cpu --to run2 -- dd if=/dev/zero of=/mnt/x bs=1M count=1000 oflag=direct
  ashlar lab cpu --from md.folded --cores 64 --hz 99 --seconds 60")]
pub struct Args {
    /// Read samples from this file instead of sampling: folded stacks, or the output of `perf
    /// script`. Repeatable.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fio", "command"])]
    pub from: Vec<PathBuf>,
    /// Sample while this fio job runs. The output shows CPU time for each I/O and each MiB.
    #[arg(long, value_name = "JOB", conflicts_with_all = ["command", "seconds"])]
    pub fio: Option<PathBuf>,
    /// Sampling time in seconds; with --from, the time that the recording covers.
    #[arg(long, value_name = "T", conflicts_with = "command")]
    pub seconds: Option<f64>,
    /// With --from: number of cores that were online when the file was made.
    #[arg(long, value_name = "N", requires = "from")]
    pub cores: Option<u32>,
    /// Samples per second on each core.
    #[arg(long, value_name = "F", default_value_t = 99.0)]
    pub hz: f64,
    /// With --from: unit of the counts in a folded file, if the file does not say.
    #[arg(long, value_enum, requires = "from")]
    pub unit: Option<Unit>,
    /// TOML file that assigns functions to named groups of the CPU profile, and overrides the lab's
    /// own groups. Repeatable.
    #[arg(long, value_name = "FILE")]
    pub groups: Vec<PathBuf>,
    /// Regular expression for the names of the load generator's threads [default: fio, and the
    /// command's own].
    #[arg(long, value_name = "REGEX")]
    pub client: Option<String>,
    /// How far above the median of all cores a core must be to count as a spike, in percentage
    /// points.
    #[arg(long, value_name = "POINTS", default_value_t = SPIKE_POINTS)]
    pub spike_points: f64,
    /// Mark a figure INVALID if other programs use more than this percentage of all cores during
    /// the measurement.
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    pub strangers: f64,
    /// Directory for samples, folded stacks, flame graphs and a JSON record of the figures.
    #[arg(long = "to", alias = "out", value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Sample while this command runs.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// How long is sampled when nothing is said, seconds.
const SECONDS: f64 = 10.0;

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    let groups = Groups::load(&args.groups)?;
    let is_sound = |it: f64| it.is_finite() && it > 0.0 && it <= 1e6;
    if !is_sound(args.hz) || !is_sound(args.seconds.unwrap_or(SECONDS)) {
        let what = "--hz and --seconds must be above 0 and at most a million";
        return Err(Refusal::cannot_run("cpu.window_empty", what)
            .hint("give for example --hz 99 --seconds 10"));
    }
    let account = match args.from.is_empty() {
        false => from_files(args, &groups, &client(args, "^fio")?)?,
        true => live(args, &groups)?,
    };
    finish(args, account, json)
}

fn client(args: &Args, otherwise: &str) -> Result<Regex, Refusal> {
    Regex::new(args.client.as_deref().unwrap_or(otherwise)).map_err(|error| {
        let why = error.to_string().lines().last().unwrap_or_default().to_owned();
        Refusal::cannot_run("cpu.client_malformed", format!("--client: {why}"))
            .hint("give a regular expression")
    })
}

fn live(args: &Args, groups: &Groups) -> Result<CpuAccount, Refusal> {
    let load = match &args.fio {
        Some(job) => Load::Fio(job.clone()),
        None if args.command.is_empty() => Load::Wait(args.seconds.unwrap_or(SECONDS)),
        None => Load::Command(args.command.clone()),
    };
    let client = client(args, &load.client_pattern())?;
    live::account(&Plan {
        load: &load,
        hz: args.hz,
        how: How { groups, client: &client, keep_stacks: true },
        out: args.out.as_deref(),
        spike_points: args.spike_points,
        strangers_max: args.strangers / 100.0,
    })
}

fn from_files(args: &Args, groups: &Groups, client: &Regex) -> Result<CpuAccount, Refusal> {
    let how = How { groups, client, keep_stacks: args.out.is_some() };
    let read = files::count(&args.from, how)?;
    let named = args.from.first().map(|path| path.display().to_string()).unwrap_or_default();
    let of = match args.from.len() {
        1 => named,
        more => format!("{more} files, the first {named}"),
    };
    let needed = |flag: &str| {
        let what = format!("{of}: a file of stacks does not say --{flag} N");
        Refusal::cannot_run("cpu.window_unknown", what)
            .hint("shares are of cores x time, so both are needed")
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
        unit: args.unit.or(read.unit),
        spike_points: args.spike_points,
    };
    let mut account = CpuAccount::of(&read.counts, groups, &taken)?;
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out).at(out, "choose a directory that you may write to")?;
        account.flame_graphs = live::pictures(out, &read.counts, groups, &account)?;
    }
    Ok(account)
}

fn finish(args: &Args, account: CpuAccount, json: bool) -> Result<ExitCode, Refusal> {
    let shown = text::text(&account);
    let record = Record::Cpu(Box::new(account));
    if let Some(out) = &args.out {
        let path = out.join("records.jsonl");
        let opened = OpenOptions::new().read(true).create(true).append(true).open(&path);
        opened
            .and_then(|mut file| append_line(&mut file, &record))
            .at(&path, "the samples are still there; free space")?;
    }
    match json {
        true => crate::say!("{}", serde_json::to_string(&record).unwrap_or_default()),
        false => crate::say_part!("{shown}"),
    }
    Ok(ExitCode::SUCCESS)
}
