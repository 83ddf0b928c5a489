//! `lab lint`: job files, command lines and results against the rules.

use super::away::Away;
use super::live::Live;
use super::machine::Machine;
use super::subject::{Intent, Subject};
use super::{Remark, lint, syntax, tools};
use crate::fio::args::CommandLine;
use crate::rules::{self, Rule};
use crate::validity::{Mark, Severity};
use crate::{AtPath, Refusal};
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
        true => print_json(&remarks, mark),
        false => crate::say_part!("{}", text(&remarks, mark, subject.jobs.len())),
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
            false => crate::say!("{}", explained(rule)),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn explained(rule: &Rule) -> String {
    let mut text = format!("{} ({}): {}\n", rule.id, word(rule.weight), rule.title);
    let limit = rule.limit.map(|limit| limit.to_string()).unwrap_or_default();
    for (what, said) in
        [("", &rule.why), ("Needs: ", &rule.needs), ("Threshold: ", &limit), ("Next: ", &rule.next)]
    {
        if !said.is_empty() {
            text += &format!("\n{}", wrapped(&format!("{what}{said}")));
        }
    }
    for (what, example) in [("Complains about", &rule.bad), ("Better", &rule.good)] {
        if !example.is_empty() {
            text += &format!("\n  {what}:\n{}", indented(example));
        }
    }
    text
}

fn print_json(remarks: &[Remark], mark: Mark) {
    crate::say!("{}", json!({"mark": mark, "remarks": remarks}));
}

/// What people read: errors first, what could not be told last.
fn text(remarks: &[Remark], mark: Mark, jobs: usize) -> String {
    let mut text = String::new();
    let mut told: Vec<&Remark> = remarks.iter().filter(|remark| !remark.cannot_tell).collect();
    told.sort_by_key(|remark| std::cmp::Reverse(remark.severity));
    for remark in &told {
        let at = match remark.line {
            0 => String::new(),
            line => format!(" line {line}"),
        };
        text += &format!(
            "{:7} {} [{}]{at}: {}\n",
            word(remark.severity),
            remark.rule,
            remark.job,
            remark.reason
        );
        for line in remark.correction.iter().flat_map(|correction| correction.lines()) {
            text += &format!("            better: {line}\n");
        }
    }
    let untold: Vec<&Remark> = remarks.iter().filter(|remark| remark.cannot_tell).collect();
    if !untold.is_empty() {
        text += "Not looked at, because it could not be:\n";
    }
    for remark in &untold {
        text += &format!("        {} [{}]: {}\n", remark.rule, remark.job, remark.reason);
    }
    let count =
        |severity: Severity| told.iter().filter(|remark| remark.severity == severity).count();
    text + &format!(
        "{mark}: {} and {} in {}{}\n",
        counted(count(Severity::Error), "error"),
        counted(count(Severity::Warning), "warning"),
        counted(jobs, "job"),
        match untold.len() {
            0 => String::new(),
            n => format!("; {n} could not be told"),
        }
    )
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

/// Lines of at most 90 characters, indented.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::from(" ")];
    for word in text.split_whitespace() {
        if lines.last().is_some_and(|line| line.len() + word.len() > 90) {
            lines.push(String::from(" "));
        }
        if let Some(line) = lines.last_mut() {
            *line += &format!(" {word}");
        }
    }
    lines.join("\n") + "\n"
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}
