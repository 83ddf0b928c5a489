//! `ashlar lab report`.

use super::points::{self, Point};
use super::{findings, page, sections, text};
use crate::evidence::verify;
use crate::refusal::{AtPath, Refusal};
use crate::store::{Run, RunDir};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `lab report` is asked for.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: ashlar lab report runs/tank0 --html tank0.html --csv tank0.csv")]
pub struct Args {
    /// Directory that `lab run`, `lab compare` or `lab qualify` wrote.
    pub run: PathBuf,
    /// Write the report as one HTML file that needs no network.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the report as Markdown.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write a CSV file with one line for each round. Tables of CPU time, hosts, resources and
    /// traces go to further files, such as first.cpu.csv for first.csv.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    let dir = RunDir::open(&args.run)?;
    let run = dir.read()?;
    let points = points::of(&run.records);
    if run.records.is_empty() {
        let said = format!("{} holds no records; nothing was written", args.run.display());
        return Err(Refusal::new("run.empty", said).hint("let a run measure something first"));
    }
    let written = write_all(args, &dir, &run, &points)?;
    let headline = findings::headline(&points, &run.records);
    if json {
        let limit = headline.limit.as_ref().map(|limit| &limit.verdict);
        let told = serde_json::json!({
            "sentence": headline.sentence, "limit": limit, "figures": headline.figures,
            "invalid": headline.invalid, "unread_lines": run.unread.len(), "written": written});
        crate::say!("{told}");
    } else {
        crate::say!("{}", headline.sentence);
        if let Some(limit) = &headline.limit {
            crate::say!("limiting factor of {}: {}", limit.of, limit.verdict.sentence);
            crate::say!("next experiment: {}", limit.verdict.next);
        }
        crate::say!("{} figures, {} invalid", headline.figures, headline.invalid);
        evidence(dir.path()).iter().for_each(|line| crate::say!("evidence: {line}"));
        for file in &written {
            crate::say!("written: {}", file.display());
        }
    }
    if let [(line, why), others @ ..] = run.unread.as_slice() {
        let more =
            if others.is_empty() { String::new() } else { format!(", and {} more", others.len()) };
        eprintln!("ashlar lab: line {line} of records.jsonl was passed over ({why}){more}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the outputs behind the figures are still as they were written; nothing of a run that was
/// kept without them.
fn evidence(dir: &Path) -> Vec<String> {
    match verify(dir) {
        Ok(it) if it.problems.is_empty() => {
            vec![format!("{} outputs of {} commands, as written", it.files, it.commands)]
        }
        Ok(it) => it.problems,
        Err(_) => Vec::new(),
    }
}

fn write_all(
    args: &Args,
    dir: &RunDir,
    run: &Run,
    points: &[Point],
) -> Result<Vec<PathBuf>, Refusal> {
    let mut written = Vec::new();
    let mut write = |path: &Path, content: String| {
        std::fs::write(path, content).at(path, "the run itself is unharmed")?;
        written.push(path.to_owned());
        Ok::<(), Refusal>(())
    };
    let is_plain = args.markdown.is_none() && args.csv.is_none();
    let standard = is_plain.then(|| dir.path().join("report.html"));
    if let Some(path) = args.html.as_ref().or(standard.as_ref()) {
        write(path, page::html(run, points, dir.path())?)?;
    }
    if let Some(path) = &args.markdown {
        write(path, text::markdown(run, points))?;
    }
    if let Some(path) = &args.csv {
        write(path, text::csv(points))?;
        let sections = sections::all(&run.records, points);
        for (at, section) in sections.iter().enumerate() {
            // first.csv, first.cpu.csv, first.use.csv; of a third engine first.compare2.csv.
            let same = sections[..at].iter().filter(|it| it.word == section.word).count();
            let word = match same {
                0 => section.word.to_owned(),
                _ => format!("{}{}", section.word, same + 1),
            };
            write(&path.with_extension(format!("{word}.csv")), text::csv_of(section))?;
        }
    }
    Ok(written)
}
