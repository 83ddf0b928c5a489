//! `lab lint`: job files, command lines and results against the rules.

use super::live::Live;
use super::machine::{Away, Machine};
use super::subject::{Intent, Subject};
use super::{Remark, lint, syntax, tools};
use crate::fio::args::CommandLine;
use crate::pen::folded;
use crate::rules::{self, Rule};
use crate::validity::{Mark, Severity};
use crate::{AtPath, Refusal};
use askama::Template;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Find mistakes in a benchmark, before or after the run: in a job file, a fio command line or a
/// result.
#[derive(clap::Args, Debug, Default)]
#[command(after_help = "Examples:\n  ashlar lab lint rand.fio\n  \
                        ashlar lab lint result.json --ceiling 'PCIe x4=7.8g'\n  \
                        ashlar lab lint -- fio --name=a --filename=/dev/sdb --rw=randread\n  \
                        ashlar lab lint --explain L08\n\n\
                        Exit code: 0 no errors, 1 errors found, 2 could not run. \
                        Nothing is written to any target.")]
pub struct Args {
    /// A fio job file, or the JSON that fio wrote.
    #[arg(value_name = "FILE", conflicts_with = "command")]
    file: Option<PathBuf>,
    /// A fio command line.
    #[arg(last = true, value_name = "FIO ARGS")]
    command: Vec<String>,
    /// Explain a rule or check (such as L08 or drives.slow_member), or all of them (`all`).
    #[arg(long, value_name = "RULE")]
    explain: Option<String>,
    #[command(flatten)]
    intent: Intent,
    /// State that the targets are on another machine. The lab then ignores drives and settings of
    /// this machine.
    #[arg(long)]
    elsewhere: bool,
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    if let Some(id) = &args.explain {
        return explain(id, json);
    }
    tools::refuse(&args.command)?;
    let subject = subject(args)?;
    let machine: &dyn Machine = if args.elsewhere { &Away } else { &Live };
    let remarks = lint(&subject, machine);
    let findings: Vec<_> = remarks.iter().map(Remark::finding).collect();
    let mark = Mark::of(&findings);
    match json {
        true => crate::say!("{}", json!({"mark": mark, "remarks": remarks})),
        false => crate::say_part!("{}", Text::of(&remarks, mark, subject.jobs.len())),
    }
    Ok(ExitCode::from(u8::from(mark == Mark::Invalid)))
}

fn subject(args: &Args) -> Result<Subject, Refusal> {
    let intent = args.intent.clone();
    match &args.file {
        Some(path) => {
            let text = read(path)?;
            let mut subject = Subject::read(&text, intent)?;
            if subject.result.is_none() {
                let text = String::from_utf8_lossy(&text);
                subject.intent.complaints = syntax::complaints(&text);
            }
            Ok(subject)
        }
        None if args.command.is_empty() => {
            let hint = "name a job file or a result, or put a fio command line behind --";
            Err(Refusal::cannot_run("lint.nothing_given", "there is nothing to lint").hint(hint))
        }
        None => {
            let text = CommandLine::parse(&args.command)?.jobs.to_string();
            let complaints = if text.is_empty() { Vec::new() } else { syntax::complaints(&text) };
            let intent = Intent { complaints, ..intent };
            Subject::from_arguments(&args.command, intent, |name| {
                Ok(String::from_utf8_lossy(&read(Path::new(name))?).into_owned())
            })
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Refusal> {
    std::fs::read(path).at(path, "name a job file or a result of fio")
}

fn explain(id: &str, json: bool) -> Result<ExitCode, Refusal> {
    let wanted: Vec<&Rule> = match id {
        "all" => rules::all().iter().collect(),
        id => rules::named(id).into_iter().collect(),
    };
    if wanted.is_empty() {
        let said = format!("there is no rule {id}");
        return Err(Refusal::cannot_run("lint.no_such_rule", said).hint("--explain all shows them"));
    }
    for rule in wanted {
        match json {
            true => crate::say!("{}", json!(rule)),
            false => crate::say!("{}", Explained { rule }),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A part of an explanation, in lines of at most 91 characters; nothing of nothing.
fn said(what: &str, text: impl std::fmt::Display) -> String {
    let rows = folded(&format!("{what}{text}"), 89);
    let lines: String = rows.iter().map(|line| format!("  {line}\n")).collect();
    if text.to_string().is_empty() { String::new() } else { format!("\n{lines}") }
}

fn word(severity: &Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

/// Errors first, what could not be told last.
#[derive(Template)]
#[template(path = "lint.txt")]
struct Text<'a> {
    told: Vec<&'a Remark>,
    untold: Vec<&'a Remark>,
    mark: Mark,
    jobs: usize,
}

#[derive(Template)]
#[template(path = "rule.txt")]
struct Explained<'a> {
    rule: &'a Rule,
}

impl Text<'_> {
    fn of(remarks: &[Remark], mark: Mark, jobs: usize) -> Text<'_> {
        let (untold, mut told): (Vec<_>, Vec<_>) = remarks.iter().partition(|it| it.cannot_tell);
        told.sort_by_key(|remark| std::cmp::Reverse(remark.severity));
        Text { told, untold, mark, jobs }
    }

    fn count(&self, severity: Severity) -> usize {
        self.told.iter().filter(|remark| remark.severity == severity).count()
    }
}
