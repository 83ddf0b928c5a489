//! `ashlar lab baseline`: the library of runs that later ones are held against.

use super::fingerprint::differences;
use super::library::Library;
use crate::plan::environment;
use crate::refusal::Refusal;
use crate::report::points;
use crate::store::{Run, RunFacts};
use crate::units;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Save runs as a named baseline for later comparison: `lab compare RUN --baseline NAME`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  ashlar lab baseline save kernel-6.1 runs/monday\n  \
                        ashlar lab baseline list\n  \
                        ashlar lab compare runs/today --baseline kernel-6.1 --worse-below 0.95\n\n\
                        Baselines are kept under $XDG_STATE_HOME/ashlar/lab/baselines (without it \
                        ~/.local/state/...), or in --library DIR.")]
pub struct Args {
    /// Directory of the baselines.
    #[arg(long, visible_alias = "dir", value_name = "DIR", global = true)]
    library: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    deed: Deed,
}

/// What can be done with the library.
#[derive(clap::Subcommand, Debug)]
enum Deed {
    /// Save a run under a name.
    Save {
        /// Name of the baseline: letters, digits, '-', '_' and '.'.
        name: String,
        /// Directory of the run.
        run: PathBuf,
        /// Replace a baseline that has this name.
        #[arg(long)]
        replace: bool,
    },
    /// List all baselines, and whether they come from this machine.
    List,
    /// Show a baseline: its machine and its figures.
    Show {
        /// Its name.
        name: String,
    },
    /// Remove a baseline.
    Remove {
        /// Its name.
        name: String,
    },
}

/// Do what was asked.
///
/// # Errors
/// If a name is taken, missing or no name, or a file cannot be read or written.
pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    let library = Library::at(args.library.as_deref())?;
    match &args.deed {
        Deed::Save { name, run, replace } => {
            let saved = library.save(name, run, *replace)?;
            let figures = points::of(&saved.records).len();
            let place = library.dir().join(name);
            say(json, &json!({"name": name, "figures": figures, "place": place}), || {
                format!("saved {figures} figures as '{name}' in {}", place.display())
            });
        }
        Deed::List => list(&library, json)?,
        Deed::Show { name } => {
            let run = library.open(name)?.read()?;
            say(json, &shown_json(name, &run), || shown(name, &run));
        }
        Deed::Remove { name } => {
            library.remove(name)?;
            say(json, &json!({"removed": name}), || format!("removed '{name}'"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn say(json: bool, record: &serde_json::Value, text: impl FnOnce() -> String) {
    if json { crate::say!("{record}") } else { crate::say!("{}", text()) }
}

fn list(library: &Library, json: bool) -> Result<(), Refusal> {
    let here = environment::facts(&[]);
    let mut rows = Vec::new();
    for name in library.names()? {
        let run = library.open(&name)?.read()?;
        let is_here = is_of(&run.facts, &here);
        rows.push((name, points::of(&run.records).len(), is_here, run.facts));
    }
    let record = |(name, figures, is_here, facts): &(String, usize, bool, RunFacts)| {
        json!({
            "name": name,
            "figures": figures,
            "of_this_machine": is_here,
            "question": facts.question,
            "began_unix_s": facts.began_unix_s,
        })
    };
    let all: Vec<_> = rows.iter().map(record).collect();
    say(json, &json!(all), || match rows.is_empty() {
        true => format!("no baselines in {}", library.dir().display()),
        false => {
            let line = |(name, figures, is_here, facts): &(String, usize, bool, RunFacts)| {
                let whose = if *is_here { "this machine" } else { "another machine" };
                format!("{name}: {figures} figures, {whose}: {}", facts.question)
            };
            rows.iter().map(line).collect::<Vec<_>>().join("\n")
        }
    });
    Ok(())
}

/// Whether it was measured on this machine; on which devices does not matter here.
fn is_of(facts: &RunFacts, here: &std::collections::BTreeMap<String, String>) -> bool {
    let told = differences(&facts.environment, here);
    told.machine.iter().all(|one| one.starts_with("devices:"))
}

fn shown_json(name: &str, run: &Run) -> serde_json::Value {
    let points: Vec<_> = points::of(&run.records)
        .iter()
        .map(|point| {
            json!({
                "engine": point.engine,
                "case": point.case(),
                "rate": point.rate(),
                "unit": point.unit(),
                "rounds": point.samples.len(),
                "mark": point.mark().to_string(),
            })
        })
        .collect();
    json!({"name": name, "facts": run.facts, "points": points})
}

fn shown(name: &str, run: &Run) -> String {
    let mut text = format!("{name}: {}", run.facts.question);
    for (fact, value) in &run.facts.environment {
        text += &format!("\n  {fact}: {value}");
    }
    for point in points::of(&run.records) {
        let rate = units::rate(point.rate(), point.unit());
        text += &format!(
            "\n{}, {}: {rate}, {} round{}, {}",
            point.engine,
            point.case(),
            point.samples.len(),
            if point.samples.len() == 1 { "" } else { "s" },
            point.mark()
        );
    }
    text
}
