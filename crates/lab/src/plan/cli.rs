//! `lab run`: measure what a plan says.

use super::environment;
use super::execute::{Run, Summary, execute};
use super::file::{Array, Plan};
use super::made;
use super::points::{Expanded, Group, Target, expand};
use super::progress::{Progress, duration};
use crate::Refusal;
use crate::adapter::by_name;
use crate::adapter::commands::{Commands, Live as LiveCommands, Unlogged};
use crate::adapter::needs::{Need, refuse_missing};
use crate::compare::cli::of_members;
use crate::evidence::{Evidence, Interrupt};
use crate::fio::hosts::Host;
use crate::guard::{refuse_unless_named, refuse_unless_named_on};
use crate::inspect::models::Library;
use crate::lint::away::Away;
use crate::lint::live::Live;
use crate::lint::machine::Machine;
use crate::lint::syntax::complaints;
use crate::store::{FORMAT, RunDir, RunFacts};
use crate::watch::Watch;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

/// Run a plan of measurements: raw drives, arrays, degraded arrays, rebuilds.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  ashlar lab run --example > plan.toml\n  \
                        ashlar lab run plan.toml --dry-run\n  \
                        ashlar lab run plan.toml --to results/monday --destroy S5XYNA0R\n  \
                        ashlar lab run --resume results/monday\n\n\
                        A plan is TOML around fio job files; docs/lab/fio.md describes it. \
                        Exit code: 0 done, 1 refused, invalid figures or failed checks, \
                        2 could not run.")]
pub struct Args {
    /// Plan of measurements: a TOML file.
    #[arg(value_name = "PLAN", required_unless_present_any = ["example", "resume"])]
    plan: Option<PathBuf>,
    /// Print an example of a plan, and do nothing.
    #[arg(long, conflicts_with_all = ["plan", "to", "resume", "dry_run"])]
    example: bool,
    /// Directory for the results; created if it does not exist. It must not hold a run.
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present_any = ["resume", "dry_run", "example"],
        conflicts_with = "resume"
    )]
    to: Option<PathBuf>,
    /// Continue the run in this directory. Its plan is in there.
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Print every command and job file. Runs and writes nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not sample stacks, so the report has no flame graphs [default: the first round of each
    /// point on an array is sampled].
    #[arg(long)]
    no_stacks: bool,
    /// Percent of all cores that other programs may use meanwhile; above it a figure is INVALID.
    #[arg(long, default_value_t = 10.0, value_name = "PERCENT")]
    strangers: f64,
    /// TOML file with drive models of your own; they come before those of the lab. Repeatable.
    #[arg(long, value_name = "FILE")]
    models: Vec<PathBuf>,
    /// Overwrite this target even if it holds data. Name a drive by its serial number, a file by
    /// its path, a file on another host by HOST:PORT:PATH of its fio server. Repeatable.
    #[arg(long, value_name = "SERIAL")]
    destroy: Vec<String>,
}

/// The plan in a run's directory, and the folder of its own profiles.
const PLAN: &str = "plan.toml";
const PROFILES: &str = "profiles";
/// A plan to begin with.
pub(super) const EXAMPLE: &str = include_str!("../../profiles/plan.toml");

/// Run a plan.
///
/// # Errors
/// If the plan is not understood, a target must not be written to, or anything fails while
/// measuring.
pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    if args.example {
        crate::say_part!("{EXAMPLE}");
        return Ok(ExitCode::SUCCESS);
    }
    let (path, folder) = place(args);
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Refusal::file(&path, &error, "name a plan; lab run --example prints one")
    })?;
    let plan = Plan::parse(&text)?;
    let size_of = |path: &Path| Live.target(&path.to_string_lossy()).size_bytes.unwrap_or(0);
    let expanded = expand(&plan, &folder, &size_of)?;
    let models = Library::with(&args.models)?;
    refuse_empty(&expanded)?;
    if args.dry_run {
        crate::say!("{}", described(&expanded, json));
        refuse_missing(needs(&expanded)?)?;
        refuse_not_understood(&expanded)?;
        // The same refusals as in earnest, so that they are seen in time.
        refuse(&Unlogged, &expanded, &args.destroy)?;
        return Ok(ExitCode::SUCCESS);
    }
    refuse_missing(needs(&expanded)?)?;
    refuse_not_understood(&expanded)?;
    let interrupt = Interrupt::from_signals()
        .map_err(|error| Refusal::cannot_run("signals.unavailable", error.to_string(), ""))?;
    let (dir, evidence) = open(args, &plan, &text, &expanded, interrupt)?;
    if !json {
        eprintln!("{}", estimate(&expanded));
    }
    refuse(&LiveCommands::new(&evidence), &expanded, &args.destroy)?;
    let machine: &dyn Machine = if expanded.hosts.is_empty() { &Live } else { &Away };
    let mut progress = Progress::new(expanded.points().count(), expanded.expected_s(), json);
    let watch = Watch::with_models(&dir, !args.no_stacks, &models)?
        .with_strangers(args.strangers, !expanded.hosts.is_empty());
    let named = &args.destroy;
    let run = Run { dir: &dir, watch: &watch, evidence: &evidence, machine, named, models };
    let summary = execute(&expanded, &run, &mut progress);
    watch.conclude(&dir)?;
    let summary = summary?;
    report(&summary, &dir, json);
    Ok(ExitCode::from(u8::from(summary.invalid + summary.failed > 0)))
}

pub(super) fn refuse_empty(expanded: &Expanded) -> Result<(), Refusal> {
    let purges = expanded.groups.iter().any(|group| !group.purge.is_empty());
    if purges || expanded.points().next().is_some() {
        return Ok(());
    }
    let why: Vec<String> =
        expanded.left_out.iter().map(|(stage, why)| format!("{stage}: {why}")).collect();
    let said = format!("nothing is left to measure ({})", why.join("; "));
    Err(Refusal::cannot_run("plan.empty", said, ""))
}

/// Refuse loads that fio itself does not understand: each is asked about once.
pub(super) fn refuse_not_understood(expanded: &Expanded) -> Result<(), Refusal> {
    let mut asked = BTreeSet::new();
    for point in expanded.points() {
        if !asked.insert(&point.workload.name) {
            continue;
        }
        if let Some(said) = complaints(&point.jobs.to_string()).first() {
            let said = format!("{}: fio says: {said}; nothing was done", point.workload.name);
            return Err(Refusal::cannot_run("plan.load_refused", said, "correct its profile"));
        }
    }
    Ok(())
}

/// Where the plan lies, and the folder of its own profiles: a run has both.
fn place(args: &Args) -> (PathBuf, PathBuf) {
    match (&args.plan, &args.resume) {
        (None, Some(dir)) => (dir.join(PLAN), dir.join(PROFILES)),
        (plan, _) => {
            let path = plan.clone().unwrap_or_default();
            let folder = path.parent().map_or_else(PathBuf::new, Path::to_owned);
            (path, folder)
        }
    }
}

/// Keep the plan and its own profiles in the run's directory, so that it can go on without them.
fn keep_plan(plan: &Plan, text: &str, dir: &Path, folder: &Path) -> Result<(), Refusal> {
    let kept = dir.join(PLAN);
    std::fs::write(&kept, text).map_err(|error| Refusal::file(&kept, &error, ""))?;
    let is_plain = |path: &&PathBuf| path.components().all(|it| matches!(it, Component::Normal(_)));
    for path in plan.profiles.values().filter(is_plain) {
        let kept = dir.join(PROFILES).join(path);
        let made = kept.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::copy(folder.join(path), &kept))
            .map_err(|error| Refusal::file(&kept, &error, ""))?;
    }
    Ok(())
}

/// What the plan needs of this machine.
fn needs(expanded: &Expanded) -> Result<Vec<Need>, Refusal> {
    let mut needs = vec![Need::program("fio")];
    if !expanded.hosts.is_empty() {
        return Ok(needs);
    }
    for group in &expanded.groups {
        let array = group.points.first().and_then(|point| {
            let path = &point.targets.first()?.path;
            expanded.arrays.iter().find(|array| array.target_path() == *path)
        });
        let Some(array) = array else { continue };
        if array.is_made() {
            needs.extend(by_name(&array.engine)?.needs());
            needs.extend(of_members(&array.members));
        }
        let commands = group.before.iter().chain(&group.after).filter_map(|argv| argv.first());
        needs.extend(commands.map(|program| Need::program(program)));
        if let Some(system) = array.file_system.filter(|_| group.has_file_system) {
            needs.push(Need::program(system.make()[0]));
            needs.push(Need::Kernel(system.name(), system.name()));
        }
    }
    Ok(needs)
}

/// Refuse what is not there, and what must not be written to.
fn refuse(commands: &dyn Commands, expanded: &Expanded, named: &[String]) -> Result<(), Refusal> {
    if expanded.hosts.is_empty() {
        refuse_missing_targets(expanded)?;
        return refuse_unless_named(commands, &expanded.written(), named);
    }
    refuse_unless_named_on(&expanded.hosts, &expanded.written(), named)
}

/// fio would make a plain file of a name that is not there, and measure the file system below.
fn refuse_missing_targets(expanded: &Expanded) -> Result<(), Refusal> {
    let mut targets = expanded.points().flat_map(|point| &point.targets);
    let is_missing = |target: &&Target| !expanded.is_made(&target.path) && !target.path.exists();
    targets.find(is_missing).map_or(Ok(()), |missing| {
        let said = format!("{} is not there; nothing was started", missing.path.display());
        Err(Refusal::cannot_run("target.missing", said, "correct the plan"))
    })
}

fn open(
    args: &Args,
    plan: &Plan,
    text: &str,
    expanded: &Expanded,
    interrupt: Interrupt,
) -> Result<(RunDir, Evidence), Refusal> {
    let sha256 = crate::evidence::log::sha256(text.as_bytes());
    if let Some(path) = &args.resume {
        let dir = RunDir::open(path)?;
        if dir.read()?.facts.plan_sha256.as_ref() != Some(&sha256) {
            let said = format!("{} was begun with another plan", path.display());
            return Err(Refusal::new(
                "run.other_plan",
                said,
                "give the same plan, or begin anew with --to",
            ));
        }
        return Ok((dir, Evidence::open(path, interrupt)?));
    }
    let path = args.to.clone().unwrap_or_default();
    if let Some(dir) = begun_in_vain(&path, &sha256) {
        return Ok((dir, Evidence::open(&path, interrupt)?));
    }
    let facts = RunFacts {
        format: FORMAT,
        lab: env!("CARGO_PKG_VERSION").to_owned(),
        question: plan.question.clone(),
        plan_sha256: Some(sha256),
        began_unix_s: format!("{:.0}", crate::evidence::log::unix_now_s()).parse().unwrap_or(0),
        environment: environment(expanded),
        left_out: expanded.left_out.clone(),
    };
    let dir = RunDir::create(&path, &facts)?;
    keep_plan(plan, text, &path, &place(args).1)?;
    Ok((dir, Evidence::open(&path, interrupt)?))
}

/// The machine, the devices that are measured, and the hosts that make the load.
fn environment(expanded: &Expanded) -> std::collections::BTreeMap<String, String> {
    let mut devices: Vec<PathBuf> = expanded
        .points()
        .flat_map(|point| point.targets.iter().map(|target| target.path.clone()))
        .filter(|path| !expanded.is_made(path) && path != Path::new("/dev/null"))
        .chain(expanded.written())
        .collect();
    devices.sort();
    devices.dedup();
    let mut facts = environment::facts(&devices);
    if !expanded.hosts.is_empty() {
        let hosts: Vec<String> = expanded.hosts.iter().map(Host::to_string).collect();
        facts.insert("hosts that make the load".to_owned(), hosts.join(", "));
    }
    facts
}

/// The run in `path` if the same plan was refused there before anything was measured.
fn begun_in_vain(path: &Path, sha256: &String) -> Option<RunDir> {
    let dir = RunDir::open(path).ok()?;
    let run = dir.read().ok()?;
    let same = run.facts.plan_sha256.as_ref() == Some(sha256);
    (same && run.records.is_empty() && run.unread.is_empty()).then_some(dir)
}

fn estimate(expanded: &Expanded) -> String {
    let points = expanded.points().count();
    let plural = if points == 1 { "" } else { "s" };
    let mut text = format!("{points} point{plural}, about {}", duration(expanded.expected_s()));
    for (stage, why) in &expanded.left_out {
        text += &format!("\nleft out: {stage}: {why}");
    }
    for path in expanded.written() {
        text += &format!("\nwill be overwritten: {}", path.display());
    }
    text
}

/// ` 3.fio`, or one for each host.
fn job_arguments(hosts: &[Host], n: usize) -> String {
    match hosts {
        [] => format!(" {n}.fio"),
        hosts => hosts.iter().map(|host| format!(" {} {n}.fio", host.argument())).collect(),
    }
}

/// Everything that would be done.
fn described(expanded: &Expanded, json: bool) -> String {
    if json {
        let points: Vec<_> = expanded
            .points()
            .map(|point| {
                let ids: Vec<String> =
                    point.targets.iter().map(|target| point.id(target)).collect();
                json!({
                    "ids": ids,
                    "expected_s": point.expected_s,
                    "writes": point.writes(),
                    "job_file": point.jobs.to_string(),
                })
            })
            .collect();
        let all = json!({
            "points": points,
            "expected_s": expanded.expected_s(),
            "left_out": expanded.left_out,
        });
        return all.to_string();
    }
    let mut text = estimate(expanded);
    let mut n = 0;
    for group in &expanded.groups {
        for (drive, method) in &group.purge {
            text += &format!("\n\n# purge {} by {}", drive.display(), method.name());
        }
        if let Some((drive, on)) = &group.switch {
            let (state, drive) = (if *on { "on" } else { "off" }, drive.display());
            text += &format!("\n\n# write cache of {drive} {state}; restored at the end");
        }
        if let Some(array) = made::needed(&expanded.arrays, group) {
            text += &format!("\n\n# {}", stands(array, group));
            for line in made::told(array, group.out) {
                text += &format!("\n$ {line}");
            }
        }
        if group.has_file_system {
            text += &format!(
                "\n\n# a file system is made on it, filled (about {}) and taken away",
                duration(group.before_s)
            );
        }
        group.before.iter().for_each(|argv| text += &format!("\n\n$ {}", argv.join(" ")));
        for point in &group.points {
            n += 1;
            let ids: Vec<String> = point.targets.iter().map(|target| point.id(target)).collect();
            let (about, ids) = (duration(point.expected_s), ids.join(" and "));
            let files = job_arguments(&expanded.hosts, n);
            text += &format!("\n\n# {n}. {ids}: about {about}\n$ fio --output-format=json+{files}");
            let file = point.jobs.to_string();
            let lines = file.lines().filter(|line| !line.is_empty());
            text += &lines.map(|line| format!("\n    {line}")).collect::<String>();
        }
        group.after.iter().for_each(|argv| text += &format!("\n\n$ {}", argv.join(" ")));
    }
    text
}

/// What an array that the lab makes is like while a group is measured.
fn stands(array: &Array, group: &Group) -> String {
    let out = match (group.out, group.is_rebuild) {
        (0, _) => String::new(),
        (out, false) => format!(", {out} out"),
        (out, true) => format!(", {out} out and put in again: it rebuilds"),
    };
    let members = array.members.len();
    format!(
        "{} {} of {members} members, made and taken away by the lab{out}",
        array.engine, array.level
    )
}

fn report(summary: &Summary, dir: &RunDir, json: bool) {
    if json {
        crate::say!("{}", json!({"run": dir.path(), "summary": summary}));
        return;
    }
    crate::say!(
        "{} measurements in {}; {} there before; {} invalid; {} checks failed",
        summary.measured,
        dir.path().display(),
        summary.resumed,
        summary.invalid,
        summary.failed
    );
    crate::say!("next: ashlar lab report {}", dir.path().display());
}
