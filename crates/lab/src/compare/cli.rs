//! `ashlar lab compare`.

use super::stored::{self, Pair, differences};
use super::turns::{self, Losses, Side};
use crate::adapter::settings::variants;
use crate::plan::cli::{Common, Order, carry_out};
use crate::refusal::{AtPath, Refusal};
use crate::report::{findings, page, points};
use crate::store::RunDir;
use crate::validity::Mark;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  ashlar lab compare ashlar btrfs --to runs/first --member drive0 \
                  --member drive1 --member drive2 --member drive3\n  \
                  ashlar lab compare runs/today runs/baseline --worse-below 0.95\n\n\
                  Exit code: 0 done; 1 a figure is INVALID, or a case of stored runs is WORSE; \
                  2 could not run, or no case of stored runs is decided (six rounds decide)."
)]
pub struct Args {
    /// Engine A, or the directory of the newer run.
    pub a: String,
    /// Engine B, or the directory of the older run.
    pub b: String,
    /// Compare two stored runs even if two machines made the runs. The output names the
    /// differences.
    #[arg(long)]
    pub other_machine: bool,
    /// Block device or file to use as a member of the array. The contents of the member are lost.
    /// Repeatable.
    #[arg(long = "member", value_name = "PATH")]
    pub members: Vec<PathBuf>,
    /// Shell command to run before A is measured, to change a setting of a device, an array or the
    /// kernel. Repeatable.
    #[arg(long, value_name = "CMD")]
    pub set_a: Vec<String>,
    /// Shell command to run after A was measured, to restore the setting. Repeatable.
    #[arg(long, value_name = "CMD")]
    pub unset_a: Vec<String>,
    /// As --set-a, for B. Repeatable.
    #[arg(long, value_name = "CMD")]
    pub set_b: Vec<String>,
    /// As --unset-a, for B. Repeatable.
    #[arg(long, value_name = "CMD")]
    pub unset_b: Vec<String>,
    /// Directory for the results; created if the directory does not exist. The directory must not
    /// hold a run.
    #[arg(long = "to", alias = "dir", value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// RAID level: raid5 or raid6.
    #[arg(long, default_value = "raid6")]
    pub level: String,
    /// How many members to take out. Each turn measures the healthy array first, then the array
    /// without these members [default: as many as the level can lose; 0 with device:PATH].
    #[arg(long)]
    pub losses: Option<u32>,
    /// Number of times that each engine is measured. With fewer than six rounds there is no 95 %
    /// confidence interval, and so no verdict.
    #[arg(long, default_value_t = 6)]
    pub rounds: u32,
    /// Loads, separated by commas: write and read (whole stripes), randread and randwrite (4 KiB),
    /// or profiles of a plan, such as unaligned [default: write,read,randread,randwrite].
    #[arg(long = "load", value_name = "MIX", value_delimiter = ',')]
    pub loads: Vec<String>,
    /// Numbers of fio jobs that run at once, separated by commas. The lab measures each load with
    /// each number.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2")]
    pub jobs: Vec<u32>,
    /// Queue depths of each fio job, separated by commas. The lab measures each load at each depth.
    #[arg(long = "depth", value_name = "N", value_delimiter = ',', default_value = "16")]
    pub depths: Vec<u32>,
    /// Length of each measurement, in seconds.
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// Part of the array to use, in MiB.
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    pub span: u64,
    /// Do not sample stacks. Without this option, the lab samples stacks once for each load and
    /// engine, for flame graphs in the report.
    #[arg(long)]
    pub no_stacks: bool,
    /// Check everything and say what would happen, but write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// For two stored runs: a case is WORSE if its rate is below this share of the older run's
    /// rate. Any WORSE case gives exit code 1.
    #[arg(long, default_value_t = 0.95, value_name = "SHARE")]
    pub worse_below: f64,
    #[command(flatten)]
    pub common: Common,
}

/// Do what was asked.
///
/// # Errors
/// If a target must not be overwritten, an engine refuses, or fio fails. What was measured by then
/// is kept.
pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    if [&args.a, &args.b].iter().any(|path| Path::new(path).join("run.json").is_file()) {
        return stored_runs(args, json);
    }
    let losses = Losses::of(args)?;
    let names = [variants(&args.a)?, variants(&args.b)?];
    if args.dry_run {
        let sides = names.iter().zip(Side::BOTH);
        let engines = sides.flat_map(|(names, side)| names.iter().map(move |it| (it, side)));
        let text = turns::plan(args, &engines.collect::<Vec<_>>(), losses)?;
        carry_out(&order(args, &text, None), json)?;
        crate::say!("nothing speaks against that");
        return Ok(ExitCode::SUCCESS);
    }
    let Some(path) = &args.dir else {
        let said = "nothing was done: there is no place for records";
        return Err(Refusal::cannot_run("dir.missing", said).hint("name a directory with --to DIR"));
    };
    RunDir::refuse_existing(path)?;
    let (mut best, mut tried) = (Vec::new(), Vec::new());
    for (variants, side) in names.iter().zip(Side::BOTH) {
        let place = path.join("tuning").join(side.of(args).0);
        let (name, check) = turns::tuned(args, (variants, side), |text| {
            let tried = carry_out(&order(args, text, Some(&place)), json)?;
            tried.map_or_else(|| Ok(Vec::new()), |(dir, _)| Ok(dir.read()?.records))
        })?;
        best.push((name, side));
        tried.extend(check);
    }
    let best: Vec<_> = best.iter().map(|(name, side)| (name, *side)).collect();
    let text = turns::plan(args, &best, losses)?;
    let measured = carry_out(&order(args, &text, Some(path)), json);
    // What was measured before something failed is reported, too.
    let Ok(dir) = RunDir::open(path) else { return measured.map(|_| ExitCode::SUCCESS) };
    tried.into_iter().try_for_each(|check| dir.append(&check))?;
    let invalid = report(&dir, json)?;
    measured.map(|_| ExitCode::from(u8::from(invalid > 0)))
}

fn order<'a>(args: &'a Args, text: &'a str, to: Option<&'a Path>) -> Order<'a> {
    Order {
        text,
        folder: Path::new(""),
        to,
        resumes: false,
        dry_run: args.dry_run,
        no_stacks: args.no_stacks,
        models: &[],
        common: &args.common,
    }
}

/// Write the report; how many figures of the engines must not be used.
fn report(dir: &RunDir, json: bool) -> Result<usize, Refusal> {
    let run = dir.read()?;
    let points = points::of(&run.records);
    let path = dir.path().join("report.html");
    std::fs::write(&path, page::html(&run, &points, dir.path())?)
        .at(&path, "the records are unharmed")?;
    let headline = findings::headline(&points, &run.records);
    let invalid = points::of_arrays(&points).filter(|it| it.mark() == Mark::Invalid).count();
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

fn stored_runs(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    let (new, old) = (Path::new(&args.a), Path::new(&args.b));
    let facts = |path: &Path| Ok::<_, Refusal>(RunDir::open(path)?.read()?.facts.environment);
    let differing = differences(&facts(old)?, &facts(new)?);
    if !differing.machine.is_empty() && !args.other_machine {
        let said = format!(
            "{} is of another machine ({}); nothing was compared",
            old.display(),
            differing.machine.join("; ")
        );
        let hint = "compare with a run of this one, or say --other-machine";
        return Err(Refusal::cannot_run("compare.other_machine", said).hint(hint));
    }
    let stored = stored::compare(new, old, args.worse_below)?;
    let ((worse, open), code) = (stored.counts(), ExitCode::from(stored.code()));
    if json {
        crate::say!(
            "{}",
            json!({
                "pairs": stored.pairs,
                "left_out": stored.left_out,
                "worse": worse,
                "differences": differing,
            })
        );
        return Ok(code);
    }
    for pair in &stored.pairs {
        let verdict = match pair {
            Pair { is_worse: true, .. } => "WORSE",
            Pair { is_decided: false, .. } => "open ",
            _ => "ok   ",
        };
        crate::say!("{verdict} {}: {}", pair.case, pair.sentence);
    }
    stored.left_out.iter().for_each(|case| crate::say!("left out: {case}"));
    differing.machine.iter().for_each(|one| crate::say!("NOT THE SAME MACHINE: {one}"));
    differing.software.iter().for_each(|one| crate::say!("note: {one}"));
    crate::say!(
        "{} cases, {worse} below {:.2} of the older run, {open} not decided",
        stored.pairs.len(),
        args.worse_below
    );
    Ok(code)
}
