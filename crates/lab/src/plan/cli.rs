//! `lab run`: measure what a plan says.

use super::environment;
use super::execute::{Run, Summary, execute};
use super::file::{Array, Kind, Plan};
use super::made;
use super::points::{Expanded, Group, Point, Target, expand};
use super::progress::{Progress, duration};
use crate::adapter::by_name;
use crate::adapter::commands::{Commands, Live as LiveCommands, Unlogged};
use crate::adapter::needs::{Need, of_members, refuse_missing};
use crate::evidence::log::{sha256, unix_whole_s};
use crate::evidence::{Evidence, Interrupt};
use crate::guard::refuse_unless_named;
use crate::hold::Hold;
use crate::inspect::models::Library;
use crate::lint::live::Live;
use crate::lint::machine::Machine;
use crate::lint::syntax::complaints;
use crate::store::{FORMAT, RunDir, RunFacts};
use crate::watch::Watch;
use crate::{AtPath, Refusal};
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
                        A plan is a TOML file that says which fio jobs to run, and how. \
                        --example prints a plan with comments; docs/lab/fio.md in the source tree \
                        explains all keys. Exit code: 0 done; 1 refused, figures are INVALID, \
                        or checks failed; 2 could not run.")]
pub struct Args {
    /// Plan of measurements: a TOML file.
    #[arg(value_name = "PLAN", required_unless_present_any = ["example", "resume"])]
    plan: Option<PathBuf>,
    /// Print an example of a plan, and do nothing.
    #[arg(long, conflicts_with_all = ["plan", "to", "resume", "dry_run"])]
    example: bool,
    /// Directory for the results; created if the directory does not exist. The directory must not
    /// hold a run: to continue a run, use --resume.
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present_any = ["resume", "dry_run", "example"],
        conflicts_with = "resume"
    )]
    to: Option<PathBuf>,
    /// Continue the run in this directory. Give no PLAN: the directory holds the plan.
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Print every command and job file, but run nothing and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not sample stacks. Without this option, the lab samples stacks in the first round of each
    /// point on an array, for flame graphs in the report.
    #[arg(long)]
    no_stacks: bool,
    /// TOML file with drive models of your own, which override the lab's own drive models.
    /// Repeatable.
    #[arg(long, value_name = "FILE")]
    models: Vec<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// What `run`, `compare` and `qualify` are all asked for.
#[derive(clap::Args, Debug)]
pub struct Common {
    /// Mark a figure INVALID if other programs use more than this percentage of all cores during
    /// the measurement.
    #[arg(long, default_value_t = 10.0, value_name = "PERCENT")]
    strangers: f64,
    /// Overwrite this target even if it holds data. Name a drive by its serial number, a file by
    /// its path. Repeatable.
    #[arg(long, value_name = "SERIAL|FILE")]
    destroy: Vec<String>,
}

/// The plan in a run's directory, and the folder of its own profiles.
const PLAN: &str = "plan.toml";
const PROFILES: &str = "profiles";
pub(super) const EXAMPLE: &str = include_str!("../../profiles/plan.toml");

/// A plan that is to be carried out, and how.
pub struct Order<'a> {
    pub text: &'a str,
    /// Folder of its own profiles.
    pub folder: &'a Path,
    /// A directory for the results, and whether it holds a run of the plan that goes on.
    pub to: Option<&'a Path>,
    pub resumes: bool,
    pub dry_run: bool,
    pub no_stacks: bool,
    pub models: &'a [PathBuf],
    pub common: &'a Common,
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    if args.example {
        crate::say_part!("{EXAMPLE}");
        return Ok(ExitCode::SUCCESS);
    }
    // A run has its plan and the folder of its own profiles.
    let (path, folder) = match (&args.plan, &args.resume) {
        (None, Some(dir)) => (dir.join(PLAN), dir.join(PROFILES)),
        (plan, _) => {
            let path = plan.clone().unwrap_or_default();
            let folder = path.parent().map_or_else(PathBuf::new, Path::to_owned);
            (path, folder)
        }
    };
    let text =
        std::fs::read_to_string(&path).at(&path, "name a plan; lab run --example prints one")?;
    let order = Order {
        text: &text,
        folder: &folder,
        to: args.resume.as_deref().or(args.to.as_deref()),
        resumes: args.resume.is_some(),
        dry_run: args.dry_run,
        no_stacks: args.no_stacks,
        models: &args.models,
        common: &args.common,
    };
    let Some((dir, summary)) = carry_out(&order, json)? else { return Ok(ExitCode::SUCCESS) };
    let Summary { measured, resumed, invalid, failed } = summary;
    let run = dir.path();
    if json {
        crate::say!("{}", json!({"run": run, "summary": summary}));
    } else {
        let run = run.display();
        crate::say!(
            "{measured} measurements in {run}; {resumed} there before; {invalid} invalid; \
             {failed} checks failed\nnext: ashlar lab report {run}"
        );
    }
    Ok(ExitCode::from(u8::from(invalid + failed > 0)))
}

/// Carry a plan out; nothing comes of a dry run.
pub fn carry_out(order: &Order<'_>, json: bool) -> Result<Option<(RunDir, Summary)>, Refusal> {
    let plan = Plan::parse(order.text)?;
    let size_of = |path: &Path| Live.target(&path.to_string_lossy()).size_bytes.unwrap_or(0);
    let expanded = expand(&plan, order.folder, &size_of)?;
    let models = Library::with(order.models)?;
    let named = order.common.destroy.as_slice();
    refuse_empty(&expanded)?;
    if order.dry_run {
        crate::say!("{}", described(&expanded, json));
        refuse_missing(needs(&expanded)?)?;
        refuse_not_understood(&expanded)?;
        // The same refusals as in earnest, so that they are seen in time.
        refuse(&Unlogged, &expanded, named)?;
        return Hold::of(&devices(&expanded)).map(|_| None);
    }
    let path = order.to.unwrap_or(Path::new(""));
    let begun = begun(order, path)?;
    refuse_missing(needs(&expanded)?)?;
    refuse_not_understood(&expanded)?;
    let interrupt = Interrupt::from_signals()
        .map_err(|error| Refusal::cannot_run("signals.unavailable", error.to_string()))?;
    // The first look is in the forensic log as well.
    let evidence = Evidence::open(path, interrupt)?;
    if !json {
        eprintln!("{}", estimate(&expanded));
    }
    refuse(&LiveCommands::new(&evidence), &expanded, named)?;
    let _held = Hold::of(&devices(&expanded))?;
    let dir = match begun {
        Some(dir) => dir,
        None => create(order, &plan, &expanded, path)?,
    };
    let mut progress = Progress::new(expanded.points().count(), expanded.expected_s(), json);
    let watch = Watch::new(&dir, !order.no_stacks, order.common.strangers, &models)?;
    let run = Run { dir: &dir, watch: &watch, evidence: &evidence, machine: &Live, named, models };
    let summary = execute(&expanded, &run, &mut progress);
    watch.conclude(&dir)?;
    Ok(Some((dir, summary?)))
}

pub(super) fn refuse_empty(expanded: &Expanded) -> Result<(), Refusal> {
    if expanded.points().next().is_some() {
        return Ok(());
    }
    let why: Vec<String> =
        expanded.left_out.iter().map(|(stage, why)| format!("{stage}: {why}")).collect();
    let said = format!("nothing is left to measure ({})", why.join("; "));
    Err(Refusal::cannot_run("plan.empty", said))
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
            return Err(Refusal::cannot_run("plan.load_refused", said).hint("correct its profile"));
        }
    }
    Ok(())
}

/// Keep the plan and its own profiles in the run's directory, so that it can go on without them.
fn keep_plan(plan: &Plan, text: &str, dir: &Path, folder: &Path) -> Result<(), Refusal> {
    let kept = dir.join(PLAN);
    std::fs::write(&kept, text).at(&kept, "")?;
    let is_plain = |path: &&PathBuf| path.components().all(|it| matches!(it, Component::Normal(_)));
    for path in plan.profiles.values().filter(is_plain) {
        let kept = dir.join(PROFILES).join(path);
        let made = kept.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::copy(folder.join(path), &kept)).at(&kept, "")?;
    }
    Ok(())
}

fn needs(expanded: &Expanded) -> Result<Vec<Need>, Refusal> {
    let mut needs = vec![Need::program("fio")];
    for group in &expanded.groups {
        let array = group.points.first().and_then(|it| it.array_among(&expanded.arrays));
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
    refuse_missing_targets(expanded)?;
    refuse_unless_named(commands, &expanded.written(), named)
}

/// fio would make a plain file of a name that is not there, and measure the file system below.
fn refuse_missing_targets(expanded: &Expanded) -> Result<(), Refusal> {
    let mut targets = expanded.points().flat_map(|point| &point.targets);
    let is_missing = |target: &&Target| !expanded.is_made(&target.path) && !target.path.exists();
    targets.find(is_missing).map_or(Ok(()), |missing| {
        let said = format!("{} is not there; nothing was started", missing.path.display());
        Err(Refusal::cannot_run("target.missing", said).hint("correct the plan"))
    })
}

/// The run that goes on; none if it is a new one.
fn begun(order: &Order<'_>, path: &Path) -> Result<Option<RunDir>, Refusal> {
    if !order.resumes {
        return RunDir::refuse_existing(path).map(|()| None);
    }
    let dir = RunDir::open(path)?;
    if dir.read()?.facts.plan_sha256.as_ref() != Some(&sha256(order.text.as_bytes())) {
        let said = format!("{} was begun with another plan", path.display());
        let hint = "give the same plan, or begin anew with --to";
        return Err(Refusal::new("run.other_plan", said).hint(hint));
    }
    Ok(Some(dir))
}

fn create(
    order: &Order<'_>,
    plan: &Plan,
    expanded: &Expanded,
    path: &Path,
) -> Result<RunDir, Refusal> {
    let facts = RunFacts {
        format: FORMAT,
        lab: env!("CARGO_PKG_VERSION").to_owned(),
        question: plan.question.clone(),
        plan_sha256: Some(sha256(order.text.as_bytes())),
        began_unix_s: unix_whole_s(),
        environment: environment::facts(&devices(expanded)),
        left_out: expanded.left_out.clone(),
    };
    let dir = RunDir::create(path, &facts)?;
    keep_plan(plan, order.text, path, order.folder)?;
    Ok(dir)
}

fn devices(expanded: &Expanded) -> Vec<PathBuf> {
    let mut devices: Vec<PathBuf> = expanded
        .points()
        .flat_map(|point| point.targets.iter().map(|target| target.path.clone()))
        .filter(|path| !expanded.is_made(path) && path != Path::new("/dev/null"))
        .chain(expanded.written())
        .collect();
    devices.sort();
    devices.dedup();
    devices
}

fn estimate(expanded: &Expanded) -> String {
    let points = expanded.points().count();
    let plural = if points == 1 { "" } else { "s" };
    let mut text = format!("{points} point{plural}, about {}", duration(expanded.expected_s()));
    if expanded.groups.iter().any(|group| group.made_s > 0.0) {
        text += ", and what engines do in the background: initial syncs, rebuilds to their end";
    }
    for (stage, why) in &expanded.left_out {
        text += &format!("\nleft out: {stage}: {why}");
    }
    for path in expanded.written() {
        text += &format!("\nwill be overwritten: {}", path.display());
    }
    text
}

fn described(expanded: &Expanded, json: bool) -> String {
    if json {
        let point = |point: &Point| {
            json!({
                "ids": point.ids(),
                "expected_s": point.expected_s,
                "writes": point.writes(),
                "job_file": point.jobs.to_string(),
            })
        };
        let all = json!({
            "points": expanded.points().map(point).collect::<Vec<_>>(),
            "expected_s": expanded.expected_s(),
            "left_out": expanded.left_out,
        });
        return all.to_string();
    }
    let mut text = estimate(expanded);
    let is_again = |point: &Point| point.kind == Kind::Compare && point.round > 0;
    let mut n = 0;
    for group in expanded.groups.iter().filter(|group| !group.points.iter().any(is_again)) {
        if let Some(array) = made::needed(&expanded.arrays, group) {
            text += &format!("\n\n# {}", stands(array, group));
            text += &made::told(array, group.out)
                .iter()
                .map(|it| format!("\n$ {it}"))
                .collect::<String>();
        }
        if group.has_file_system {
            let about = duration(group.before_s);
            text += &format!(
                "\n\n# a file system is made on it, filled (about {about}) and taken away"
            );
        }
        let commands = |all: &[Vec<String>]| -> String {
            all.iter().map(|argv| format!("\n\n$ {}", argv.join(" "))).collect()
        };
        text += &commands(&group.before);
        for point in &group.points {
            n += 1;
            let (about, ids) = (duration(point.expected_s), point.ids().join(" and "));
            text +=
                &format!("\n\n# {n}. {ids}: about {about}\n$ fio --output-format=json+ {n}.fio");
            let file = point.jobs.to_string();
            let lines = file.lines().filter(|line| !line.is_empty());
            text += &lines.map(|line| format!("\n    {line}")).collect::<String>();
        }
        text += &commands(&group.after);
    }
    if let Some(last) = expanded.points().filter(|it| is_again(it)).last() {
        let more = last.round + 1;
        text += &format!("\n\n# rounds 2 to {more}: the same, in an order that a coin decides");
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
    let (engine, level, members) = (&array.engine, &array.level, array.members.len());
    format!("{engine} {level} of {members} members, made and taken away by the lab{out}")
}
