//! `ashlar lab compare`.

use super::fingerprint::differences;
use super::library::Library;
use super::stored;
use super::turns::{self, Bench, Plan};
use super::workloads::{self, Extent, Queues};
use crate::adapter::commands::{Live, Unlogged};
use crate::adapter::imagined;
use crate::adapter::needs::{Need, refuse_missing};
use crate::adapter::settings::variants;
use crate::adapter::{Wanted, by_name};
use crate::evidence::log::unix_whole_s;
use crate::evidence::{Evidence, Interrupt};
use crate::guard;
use crate::metrics::baseline::Code;
use crate::metrics::latency::to_f64;
use crate::plan::environment;
use crate::plan::progress::Progress;
use crate::record::{ArrayCondition, Workload};
use crate::refusal::Refusal;
use crate::report::points::Point;
use crate::report::{findings, page, points};
use crate::store::{FORMAT, RunDir, RunFacts};
use crate::validity::Mark;
use crate::watch::Watch;
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compare two engines in turns on the same devices, or two stored runs.
///
/// A and B are engines (ashlar, ashlar:POLICY, btrfs, mdadm, lvm, zfs, device:PATH) or
/// directories of runs. Settings follow a colon: mdadm:group_thread_cnt=8/32/64 tries three, and
/// the best one is compared.
/// Engines are measured A, B, B, A or B, A, A, B, as a coin decides. Each turn makes the array,
/// fills it, measures it healthy and with members out, and takes it away again.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  ashlar lab compare ashlar btrfs --to runs/first --member drive0 \
                  --member drive1 --member drive2 --member drive3\n  \
                  ashlar lab compare runs/today runs/baseline --worse-below 0.95\n  \
                  ashlar lab compare runs/today --baseline kernel-6.1\n\n\
                  With engines the exit code is 0, or 1 if a figure is INVALID; \
                  with stored runs 0 if no case is worse, 1 if one is. 2: it could not be done."
)]
pub struct Args {
    /// First engine, or the directory of the newer run.
    pub a: String,
    /// Second engine, or the directory of the older run.
    #[arg(required_unless_present = "baseline", conflicts_with = "baseline")]
    pub b: Option<String>,
    /// Compare the run A with this baseline. `lab baseline list` lists them.
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<String>,
    /// Directory of the baselines [default: the user's own, see `lab baseline --help`].
    #[arg(long, value_name = "DIR", requires = "baseline")]
    pub library: Option<PathBuf>,
    /// Compare even if the baseline comes from another machine; the output says so.
    #[arg(long, requires = "baseline")]
    pub other_machine: bool,
    /// A member of the array: a block device or a file. Its contents are lost. Repeatable.
    #[arg(long = "member", value_name = "PATH")]
    pub members: Vec<PathBuf>,
    /// Overwrite this member even if it holds data. Name a drive by its serial number, a file by
    /// its path. Repeatable.
    #[arg(long, value_name = "WHAT")]
    pub destroy: Vec<String>,
    /// Directory for the results; created if it does not exist.
    #[arg(long = "to", alias = "dir", value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// RAID level: raid5 or raid6.
    #[arg(long, default_value = "raid6")]
    pub level: String,
    /// Members to take out for the second half of each turn [default: as many as the level can
    /// lose; none with device:PATH].
    #[arg(long)]
    pub losses: Option<u32>,
    /// Turns of each engine. Fewer than six decide nothing: no 95 % interval exists.
    #[arg(long, default_value_t = 6)]
    pub rounds: u32,
    /// Loads, separated by commas: write and read (whole stripes), randread and randwrite (4 KiB)
    /// [default: all].
    #[arg(long = "load", value_name = "MIX", value_delimiter = ',')]
    pub loads: Vec<String>,
    /// Numbers of jobs, separated by commas: each load at each of them [default: 2].
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub jobs: Vec<u32>,
    /// Depths of each job, separated by commas [default: 8 for whole stripes, 16 for 4 KiB].
    #[arg(long = "depth", value_name = "N", value_delimiter = ',')]
    pub depths: Vec<u32>,
    /// Length of each measurement, in seconds.
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// Part of the array to use, in MiB.
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    pub span: u64,
    /// Do not sample stacks, so the report has no flame graphs [default: the first turn of each
    /// case is sampled].
    #[arg(long)]
    pub no_stacks: bool,
    /// Percent of all cores that other programs may use meanwhile; above it a figure is INVALID.
    #[arg(long, default_value_t = 10.0, value_name = "PERCENT")]
    pub strangers: f64,
    /// Check everything and say what would happen. Writes nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// With two runs: a case is WORSE if it reaches less than this share of the older run. Exit
    /// code 1 if one is.
    #[arg(long, default_value_t = 0.95, value_name = "SHARE")]
    pub worse_below: f64,
}

/// Strip size of all arrays, bytes.
const STRIP_BYTES: u64 = 64 << 10;

/// Do what was asked.
///
/// # Errors
/// If a target must not be overwritten, an engine refuses, or fio fails. What was measured by then
/// is kept.
pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    if let Some(name) = &args.baseline {
        let old = Library::at(args.library.as_deref())?.open(name)?;
        return stored_runs(args, old.path(), json);
    }
    let b = args.b.clone().unwrap_or_default();
    if [&args.a, &b].iter().any(|path| Path::new(path).join("run.json").is_file()) {
        return stored_runs(args, Path::new(&b), json);
    }
    let (code, losses) = code_of(args, &b)?;
    let queues = Queues { jobs: &args.jobs, depths: &args.depths };
    let workloads = workloads::chosen(STRIP_BYTES * u64::from(code.data), &args.loads, queues)?;
    let names = vec![variants(&args.a)?, variants(&b)?];
    let planned = planned(args, losses, &workloads) + tries(&names, &workloads);
    let about_s = u64::from(planned) * (args.seconds + 1) + u64::from(args.rounds) * 2 * 10;
    if !json {
        eprintln!(
            "{planned} measurements of {} s each: about {} min",
            args.seconds,
            about_s.div_ceil(60)
        );
    }
    let engines = names.iter().flatten().map(|name| by_name(name));
    let engines = engines.collect::<Result<Vec<_>, _>>()?;
    let written = written(args, &b);
    let needs = engines.iter().flat_map(|engine| engine.needs()).chain(of_members(&args.members));
    let needs: Vec<Need> = needs.collect();
    if args.dry_run {
        return dry(args, (&b, losses), needs, &written);
    }
    let path = place(args)?;
    RunDir::refuse_existing(&path)?;
    refuse_missing(needs)?;
    let looked = open_log(&path)?;
    let look = Live::new(&looked);
    guard::refuse_unless_named(&look, &written, &args.destroy)?;
    let dir = RunDir::create(&path, &facts(args))?;
    let watch = Watch::new(&dir, !args.no_stacks)?.with_strangers(args.strangers, false);
    let bench = Bench {
        evidence: &looked,
        dir: &dir,
        watch: &watch,
        workloads,
        extent: Extent { seconds: args.seconds, span_bytes: args.span << 20 },
        strip_bytes: STRIP_BYTES,
        progress: RefCell::new(Progress::new(
            usize::try_from(planned).unwrap_or(0),
            to_f64(u64::from(planned) * (args.seconds + 1)),
            json,
        )),
        limits: RefCell::default(),
        devices: RefCell::default(),
        again: Cell::new(0),
        is_tuning: Cell::new(false),
    };
    let place = std::path::absolute(path.join("mounts"))
        .map_err(|error| Refusal::file(&path, &error, ""))?;
    let wanted = Wanted {
        members: args.members.clone(),
        level: args.level.clone(),
        strip_bytes: STRIP_BYTES,
        place,
    };
    let plan = Plan { wanted, code, rounds: args.rounds, losses };
    let measured = turns::run(&bench, &names, &plan);
    bench.progress.borrow().finish();
    watch.conclude(&dir)?;
    let invalid = report(&dir, json)?;
    measured.map(|()| ExitCode::from(u8::from(invalid > 0)))
}

/// Say what would happen, and refuse what would be refused.
fn dry(
    args: &Args,
    (b, losses): (&str, u32),
    needs: Vec<Need>,
    written: &[PathBuf],
) -> Result<ExitCode, Refusal> {
    crate::say!("would overwrite: {}", shown(written));
    for engine in variants(&args.a)?.iter().chain(&variants(b)?) {
        say_commands(engine, args, losses)?;
    }
    refuse_missing(needs)?;
    guard::refuse_unless_named(&Unlogged, written, &args.destroy)?;
    crate::say!("nothing speaks against that");
    Ok(ExitCode::SUCCESS)
}

/// Where records go.
fn place(args: &Args) -> Result<PathBuf, Refusal> {
    args.dir.clone().ok_or_else(|| {
        Refusal::cannot_run(
            "dir.missing",
            "nothing was done: there is no place for records",
            "name a directory with --to DIR",
        )
    })
}

/// What is needed to measure at all, and for members that are files.
pub fn of_members(members: &[PathBuf]) -> Vec<Need> {
    let mut needs = ["fio", "lsblk", "wipefs"].map(Need::program).to_vec();
    if members.iter().any(|member| member.is_file()) {
        needs.extend([Need::program("losetup"), Need::Kernel("loop", "/dev/loop-control")]);
    }
    needs
}

/// What an engine would be told in each of its turns.
fn say_commands(engine: &str, args: &Args, losses: u32) -> Result<(), Refusal> {
    let wanted = Wanted {
        members: args.members.clone(),
        level: args.level.clone(),
        strip_bytes: STRIP_BYTES,
        place: PathBuf::from("MOUNTS"),
    };
    let out = usize::try_from(losses).unwrap_or(0);
    crate::say!("each turn of {engine}, with fio between making the array and taking it away:");
    imagined::told(engine, &wanted, out)?.iter().for_each(|line| crate::say!("  $ {line}"));
    Ok(())
}

/// How many measurements there will be: raw devices in large blocks, raw devices at each load, and
/// each engine's turns.
fn planned(args: &Args, losses: u32, workloads: &[Workload]) -> u32 {
    let each = u32::try_from(workloads.len()).unwrap_or(u32::MAX);
    let conditions = if losses == 0 { 1 } else { 2 };
    let streams = 1 + u32::from(workloads.iter().any(|workload| workload.mix == "read"));
    streams + each + each * conditions * args.rounds * 2
}

/// Measurements that find out which settings are best.
fn tries(names: &[Vec<String>], workloads: &[Workload]) -> u32 {
    let several = names.iter().map(Vec::len).filter(|count| *count > 1).sum::<usize>();
    u32::try_from(several * workloads.len()).unwrap_or(u32::MAX)
}

/// Everything that is written to: the members, and what was handed over as it is.
fn written(args: &Args, b: &str) -> Vec<PathBuf> {
    let handed_over =
        [args.a.as_str(), b].into_iter().filter_map(|name| name.strip_prefix("device:"));
    args.members.iter().cloned().chain(handed_over.map(PathBuf::from)).collect()
}

/// The redundancy, and how many members are taken out.
fn code_of(args: &Args, b: &str) -> Result<(Code, u32), Refusal> {
    let members = u32::try_from(args.members.len()).unwrap_or(u32::MAX);
    let parity = match args.level.as_str() {
        "raid5" => 1,
        "raid6" => 2,
        other => {
            let said = format!("level '{other}' is not compared; nothing was done");
            return Err(Refusal::cannot_run("level.unknown", said, "say raid5 or raid6"));
        }
    };
    let is_handed_over = [args.a.as_str(), b].iter().any(|name| name.starts_with("device:"));
    let losses = args.losses.unwrap_or(if is_handed_over { 0 } else { parity });
    if members < parity + 2 || losses > parity {
        let said =
            format!("{members} members with {losses} out are no {}; nothing was done", args.level);
        return Err(Refusal::cannot_run(
            "members.wrong_number",
            said,
            "name more with --member, or fewer --losses",
        ));
    }
    Ok((Code { data: members - parity, parity }, losses))
}

/// The forensic log, opened before anything else so that the first look is in it as well.
fn open_log(path: &Path) -> Result<Evidence, Refusal> {
    let interrupt = Interrupt::from_signals()
        .map_err(|error| Refusal::cannot_run("signals.unheard", error.to_string(), ""))?;
    Evidence::open(path, interrupt)
}

fn facts(args: &Args) -> RunFacts {
    let mut environment = environment::facts(&args.members);
    environment
        .insert("members".to_owned(), format!("{}: {}", args.members.len(), shown(&args.members)));
    environment.insert("level".to_owned(), format!("{}, strips of 64 KiB", args.level));
    RunFacts {
        format: FORMAT,
        lab: env!("CARGO_PKG_VERSION").to_owned(),
        question: format!(
            "{} against {}: {} on the same {} devices",
            args.a,
            args.b.as_deref().unwrap_or_default(),
            args.level,
            args.members.len()
        ),
        plan_sha256: None,
        began_unix_s: unix_whole_s(),
        environment,
        left_out: BTreeMap::new(),
    }
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")
}

/// Write the report; how many figures of the engines must not be used.
fn report(dir: &RunDir, json: bool) -> Result<usize, Refusal> {
    let run = dir.read()?;
    let points = points::of(&run.records);
    let path = dir.path().join("report.html");
    std::fs::write(&path, page::html(&run, &points, dir.path())?)
        .map_err(|error| Refusal::file(&path, &error, "the records are unharmed"))?;
    let headline = findings::headline(&points, &run.records);
    let is_invalid =
        |it: &&Point| it.condition != ArrayCondition::Raw && it.mark() == Mark::Invalid;
    let invalid = points.iter().filter(is_invalid).count();
    let cases = findings::cases(&points);
    if json {
        let sentence = headline.sentence;
        let told =
            json!({"sentence": sentence, "cases": cases, "invalid": invalid, "report": path});
        crate::say!("{told}");
        return Ok(invalid);
    }
    cases.iter().for_each(|case| crate::say!("{case}"));
    crate::say!("{}", headline.sentence);
    if invalid > 0 {
        crate::say!("{invalid} of {} figures INVALID: they are in no comparison", points.len());
    }
    crate::say!("report: {}", path.display());
    Ok(invalid)
}

fn stored_runs(args: &Args, old: &Path, json: bool) -> Result<ExitCode, Refusal> {
    let new = Path::new(&args.a);
    let facts = |path: &Path| Ok::<_, Refusal>(RunDir::open(path)?.read()?.facts.environment);
    let differing = differences(&facts(old)?, &facts(new)?);
    if let (Some(name), false) =
        (&args.baseline, differing.machine.is_empty() || args.other_machine)
    {
        let said = format!(
            "baseline '{name}' is of another machine ({}); nothing was compared",
            differing.machine.join("; ")
        );
        let hint = "save a baseline of this one, or say --other-machine";
        return Err(Refusal::cannot_run("baseline.other_machine", said, hint));
    }
    let stored = stored::compare(new, old, args.worse_below)?;
    let worse = stored.pairs.iter().filter(|pair| pair.is_worse).count();
    if json {
        crate::say!(
            "{}",
            serde_json::json!({
                "pairs": stored.pairs,
                "left_out": stored.left_out,
                "worse": worse,
                "differences": differing,
            })
        );
        return Ok(ExitCode::from(u8::from(worse > 0)));
    }
    for pair in &stored.pairs {
        let verdict = if pair.is_worse { "WORSE" } else { "ok   " };
        crate::say!("{verdict} {}: {}", pair.case, pair.sentence);
    }
    stored.left_out.iter().for_each(|case| crate::say!("left out: {case}"));
    differing.machine.iter().for_each(|one| crate::say!("NOT THE SAME MACHINE: {one}"));
    differing.software.iter().for_each(|one| crate::say!("note: {one}"));
    crate::say!(
        "{} cases, {worse} below {:.2} of the older run",
        stored.pairs.len(),
        args.worse_below
    );
    Ok(ExitCode::from(u8::from(worse > 0)))
}
