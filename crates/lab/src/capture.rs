//! `lab capture`: everything `lab inspect` asks of this machine, as a directory that another one
//! can inspect.

use crate::Refusal;
use crate::inspect::server::Server;
use crate::source::{Origin, Source, folder};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What `lab capture` is asked for.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: ashlar lab capture before-repair")]
pub struct Args {
    /// Directory for the capture: an empty directory, or a new directory, which is created.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Time limit for each program that the lab runs, such as lspci or smartctl, in seconds.
    #[arg(long, value_name = "S", default_value_t = 20)]
    limit: u64,
}

#[derive(serde::Serialize)]
struct Answer {
    folder: PathBuf,
    files: usize,
    programs: usize,
    silent: std::collections::BTreeMap<String, String>,
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    let source = Source::live(Duration::from_secs(args.limit));
    let _recorded = Server::read(&source);
    let silent = source.silent_tools();
    let mut capture = source.into_capture();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let lab = env!("CARGO_PKG_VERSION").to_owned();
    capture.origin = Origin { lab, captured_unix_s: now, is_redacted: false };
    folder::write(&capture, &args.folder)?;
    let answer = Answer {
        folder: args.folder.clone(),
        files: capture.tree.iter().count(),
        programs: capture.runs.len(),
        silent,
    };
    if json {
        crate::say!("{}", serde_json::to_string(&answer).unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    crate::say!(
        "{}: {} files, {} programs, {} of which gave nothing",
        answer.folder.display(),
        answer.files,
        answer.programs,
        answer.silent.len()
    );
    for (name, why) in &answer.silent {
        crate::say!("  {name}: {why}");
    }
    crate::say!(
        "before you send it to anybody: lab redact {0} {0}.redacted",
        answer.folder.display()
    );
    Ok(ExitCode::SUCCESS)
}
