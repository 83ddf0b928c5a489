//! `lab inspect`: the server as it is, what is wrong with it, and which link is the narrowest.
//!
//! - server: the model, read from the live machine or from a capture
//! - models: what makers state about drives, by model and capacity
//! - topology: its links with their bandwidths, and what flows over them
//! - checks: what is judged, each by a stable name
//! - resources: utilisation, saturation and errors of every resource, empty cells and all
//! - diagram: the links as text and as SVG
//! - page: what is printed
//!
//! What must stay true: a check that could not be made never passes; the verdict is computed from
//! the checks alone; nothing is written but the SVG that was asked for.

pub mod checks;
pub mod diagram;
pub mod models;
pub mod page;
pub mod resources;
pub mod server;
pub mod topology;

use crate::metrics::bandwidth::Rate;
use crate::record::Check;
use crate::rules;
use crate::source::{Source, bare, folder};
use crate::validity::{Outcome, Severity};
use crate::{AtPath, Refusal};
use diagram::Measured;
use models::{Library, ModelLine};
use serde::Serialize;
use server::Server;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use topology::flow::{Flow, READ_PASSES, REBUILD_PASSES, flow};
use topology::{Given, Topology};

/// What `lab inspect` is asked for.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: ashlar lab inspect --from before-repair --svg bottleneck.svg")]
pub struct Args {
    /// Inspect PATH instead of this machine: a directory made by `lab capture`, or files with saved
    /// output of dmidecode, lspci, smp_discover and others. The names of the files do not matter.
    /// Repeatable.
    #[arg(long, value_name = "PATH")]
    from: Vec<PathBuf>,

    /// A capture of the same server from before a load. The output then shows which error counters
    /// have grown.
    #[arg(long, value_name = "DIR")]
    before: Option<PathBuf>,

    /// Write the bottleneck diagram to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Assume that only N drives work at once, spread over the controllers.
    #[arg(long, value_name = "N")]
    drives: Option<u64>,

    /// Rate of one drive in MB/s, from its data sheet or a measurement.
    #[arg(long, value_name = "MB/S", value_parser = mega)]
    drive_rate: Option<Rate>,

    /// TOML file with drive models of your own, which override the lab's own drive models.
    /// Repeatable.
    #[arg(long, value_name = "FILE")]
    models: Vec<PathBuf>,

    /// Rate between two CPU sockets in GB/s, one way, from the processor's data sheet.
    #[arg(long, value_name = "GB/S", value_parser = giga)]
    inter_socket: Option<Rate>,

    /// Show passing checks too.
    #[arg(long)]
    all: bool,

    /// Time limit for each program that the lab runs, such as lspci or smartctl, in seconds.
    #[arg(long, value_name = "S", default_value_t = 20)]
    limit: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every check that decides was made and passes, or does not apply.
    Qualified,
    /// A check that decides fails.
    NotQualified,
    /// None fails, and some that decide could not be made.
    Undecided,
}

/// All that is known of a server.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Inspection {
    pub verdict: Verdict,
    pub checks: Vec<Check>,
    /// All drives read at once.
    pub read: Flow,
    /// All drives in a rebuild.
    pub rebuild: Flow,
    pub topology: Topology,
    pub models: Vec<ModelLine>,
    pub resources: Vec<resources::Row>,
    pub server: Server,
}

impl Inspection {
    /// Judge a server. `before` is the same one earlier.
    pub fn of(server: Server, before: Option<&Server>, given: Given) -> Inspection {
        let models = given.models.lines(&server.drives);
        let topology = Topology::of(&server, given);
        let (read, rebuild) = (flow(&topology, READ_PASSES), flow(&topology, REBUILD_PASSES));
        let facts = checks::Facts {
            server: &server,
            before,
            topology: &topology,
            read: &read,
            rebuild: &rebuild,
            models: &models,
        };
        let checks = checks::all(&facts);
        let resources = resources::table(&server, before);
        let verdict = verdict(&checks);
        Inspection { verdict, checks, read, rebuild, topology, models, resources, server }
    }

    /// The flow that says more: a rebuild, unless plain reading is limited already.
    pub fn telling_flow(&self) -> &Flow {
        if self.read.is_limited_by_drives() { &self.rebuild } else { &self.read }
    }

    /// The bottleneck diagram as SVG, with what was measured on its links, if anything was.
    pub fn svg(&self, measured: &Measured) -> String {
        diagram::svg::draw(self, measured)
    }
}

fn verdict(checks: &[Check]) -> Verdict {
    let has = |outcome: Outcome| {
        let mut decide = checks.iter().filter(|it| rules::of(&it.name).weight == Severity::Error);
        decide.any(|check| check.outcome == outcome)
    };
    match (has(Outcome::Fail), has(Outcome::CannotTell)) {
        (true, _) => Verdict::NotQualified,
        (false, true) => Verdict::Undecided,
        (false, false) => Verdict::Qualified,
    }
}

/// `265.5`, in units of 10^6 bytes a second.
fn mega(text: &str) -> Result<Rate, String> {
    rate(text, 1e6)
}

/// `19.2`, in units of 10^9 bytes a second.
fn giga(text: &str) -> Result<Rate, String> {
    rate(text, 1e9)
}

fn rate(text: &str, unit: f64) -> Result<Rate, String> {
    let number = text.trim().parse::<f64>().ok().filter(|it| *it > 0.0 && *it < 1e6);
    number.map(|it| Rate::nearest(it * unit)).ok_or_else(|| "a number such as 19.2".to_owned())
}

pub fn captured(dir: &Path) -> Result<Server, Refusal> {
    let (capture, odd) = folder::read(dir)?;
    if odd > 0 {
        eprintln!("{}: {odd} lines of files.txt are not understood and left out", dir.display());
    }
    Ok(Server::read(&Source::captured(capture)))
}

fn from_outputs(paths: &[PathBuf]) -> Result<Server, Refusal> {
    let (capture, unknown) = bare::read(paths)?;
    for path in unknown {
        eprintln!("{}: no output that the lab knows; left out", path.display());
    }
    Ok(Server { is_partial: true, ..Server::read(&Source::captured(capture)) })
}

pub fn look(limit: Duration) -> Server {
    Server::read(&Source::live(limit))
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    let server = match args.from.as_slice() {
        [] => look(Duration::from_secs(args.limit)),
        [dir] if dir.join("manifest.json").exists() => captured(dir)?,
        outputs => from_outputs(outputs)?,
    };
    let before = args.before.as_deref().map(captured).transpose()?;
    let given = Given {
        models: Library::with(&args.models)?,
        drive_rate: args.drive_rate,
        inter_socket: args.inter_socket,
        drive_count: args.drives,
    };
    let inspection = Inspection::of(server, before.as_ref(), given);
    if let Some(path) = &args.svg {
        std::fs::write(path, inspection.svg(&Measured::new()))
            .at(path, "choose a place that you may write to")?;
    }
    match json {
        true => crate::say!("{}", serde_json::to_string(&inspection).unwrap_or_default()),
        false => crate::say_part!("{}", page::text(&inspection, args.all)),
    }
    Ok(match inspection.verdict {
        Verdict::Qualified => ExitCode::SUCCESS,
        Verdict::NotQualified => ExitCode::from(1),
        Verdict::Undecided => ExitCode::from(2),
    })
}
