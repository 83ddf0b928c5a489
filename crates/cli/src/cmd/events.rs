//! `ashlar events`: what happened.

use crate::fault::Fault;
use crate::reach::{Reach, absolute};
use crate::say;
use crate::since::Since;
use ashlar_api::ClientError;
use ashlar_api::v1::event::Event;
use ashlar_api::v1::severity::Severity;
use ashlar_api::v1::status::GetStatus;
use ashlar_api::words;
use ashlar_daemon::events::{history, history_folder, usual_state};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Show events, oldest first.
///
/// Without --since, the daemon shows the events since its start, at most the newest 4096. With
/// --since, the command reads the history on disk, even if no daemon runs.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  ashlar events --since 2h\n  \
                  ashlar events --since \"2 days\" --array tank0\n  \
                  ashlar events --since 2026-01-31T12:00:00Z --severity warning")]
pub struct Args {
    /// Keep running and print new events as they happen.
    #[arg(short, long)]
    follow: bool,

    /// Show events since a time: how long ago (90m, 1h, "2 days"), or a date and time as in RFC
    /// 3339. A date and time without a time zone is UTC.
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,

    /// Show only events of this array.
    #[arg(long, value_name = "NAME")]
    array: Option<String>,

    /// Show only events of this severity and above: info, notice, warning, error, critical.
    #[arg(long, value_name = "SEVERITY", value_parser = severity)]
    severity: Option<Severity>,

    /// With --since: directory of the history, if no daemon runs [default: as for `serve`].
    #[arg(long, value_name = "DIR", requires = "since")]
    state: Option<PathBuf>,
}

fn severity(typed: &str) -> Result<Severity, String> {
    let found = Severity::ALL.into_iter().find(|severity| severity.to_string() == typed);
    found.ok_or_else(|| "write info, notice, warning, error or critical".to_owned())
}

impl Args {
    fn shows(&self, event: &Event, since_ms: u64) -> bool {
        event.unix_ms >= since_ms
            && self.array.as_ref().is_none_or(|array| event.array.as_ref() == Some(array))
            && self.severity.is_none_or(|severity| event.severity >= severity)
    }
}

pub fn run(args: &Args, reach: &Reach) -> Result<(), Fault> {
    let Some(since) = args.since else {
        return from_daemon(args, reach, 0, &BTreeSet::new());
    };
    let since_ms = since.unix_ms(words::now_ms());
    let known = from_history(args, reach, since_ms)?;
    match from_daemon(args, reach, since_ms, &known) {
        // Then the history is all there is.
        Err(fault) if !args.follow && fault.is_unreachable() => Ok(()),
        other => other,
    }
}

/// What tells one event from another, over several daemons.
type Key = (u64, u64, String);

fn key(event: &Event) -> Key {
    (event.unix_ms, event.sequence, event.name.clone())
}

/// Print what the daemon remembers, and then what happens.
fn from_daemon(
    args: &Args,
    reach: &Reach,
    since_ms: u64,
    known: &BTreeSet<Key>,
) -> Result<(), Fault> {
    let mut fault = None;
    reach.client()?.events(args.follow, |event| {
        if args.shows(&event, since_ms) && !known.contains(&key(&event)) {
            fault = print(reach, &event).err();
        }
        fault.is_none()
    })?;
    fault.map_or(Ok(()), Err)
}

/// Print what the history has; what it was.
fn from_history(args: &Args, reach: &Reach, since_ms: u64) -> Result<BTreeSet<Key>, Fault> {
    let (folder, is_running) = folder(args, reach)?;
    let past = match history::read(&folder, |event| args.shows(event, since_ms)) {
        Ok(past) => past,
        Err(error) if is_running => {
            say::complain(format_args!(
                "ashlar: the history in {} cannot be read ({error}); only what the daemon \
                 remembers is shown",
                folder.display()
            ));
            return Ok(BTreeSet::new());
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let hint = "start the daemon, or name its state directory with --state";
            let message = format!(
                "no daemon answers, and there is no history of events in {}",
                folder.display()
            );
            return Err(Fault::new("history.absent", message, hint));
        }
        Err(error) => {
            let hint = "root and the daemon's group may read it";
            return Err(Fault::file(&folder, &error, hint));
        }
    };
    let mut known = BTreeSet::new();
    for event in &past.events {
        if known.insert(key(event)) {
            print(reach, event)?;
        }
    }
    if past.unreadable > 0 {
        let lines = if past.unreadable == 1 { "1 line" } else { "several lines" };
        say::complain(format_args!(
            "ashlar: {lines} of the history in {} could not be read (cut short by a crash?) and \
             left out",
            folder.display()
        ));
    }
    Ok(known)
}

/// Where the history is, and whether a daemon writes it.
fn folder(args: &Args, reach: &Reach) -> Result<(PathBuf, bool), Fault> {
    if let Some(state) = &args.state {
        return Ok((history_folder(&absolute(state)?), false));
    }
    match reach.client()?.call(&GetStatus {}) {
        Ok(status) => {
            let folder = status.history.map(|history| PathBuf::from(history.folder));
            let usual = history_folder(&usual_state(&reach.socket()?));
            Ok((folder.unwrap_or(usual), true))
        }
        Err(ClientError::Unreachable { .. }) => {
            Ok((history_folder(&usual_state(&reach.socket()?)), false))
        }
        Err(error) => Err(error.into()),
    }
}

fn print(reach: &Reach, event: &Event) -> Result<(), Fault> {
    // One object a line also as JSON, so that it can be followed by a program.
    let line = if reach.json { serde_json::to_string(event) } else { Ok(line(event)) };
    say::line(line?)
}

fn line(event: &Event) -> String {
    let array = event.array.as_deref().unwrap_or("");
    let fields: Vec<String> =
        event.fields.iter().map(|(name, value)| format!("{name} {value}")).collect();
    format!(
        "{}  {:<8} {:<22} {array:<10} {}",
        words::utc(event.unix_ms),
        event.severity,
        event.name,
        fields.join("  ")
    )
}
