//! The history: every event as a line of JSON in files that survive the daemon.
//!
//! - here    follows the event log and writes, with what to do when that fails
//! - `files` the files themselves: rotation, the bound, the end that a crash cut short
//! - `past`  reads them, with or without a daemon
//!
//! What must stay true: a fault is one event, not one for each line, and what was not written yet
//! is tried again as long as the event log still has it. What is missing is said in the history.

mod files;
mod past;

use super::{Ending, LOOK_EVERY};
use crate::convert;
use ashlar_api::v1::event::Event;
use ashlar_api::v1::notify::HistoryStatus;
use ashlar_engine::EventLog;
use files::Files;
pub use past::{Past, read};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The pause before a failed write is tried again, in steps between which an end is noticed.
const RETRY_STEPS: u32 = 10;
const RETRY_STEP: Duration = Duration::from_millis(100);

/// Names of the events of the history itself.
mod names {
    /// Events cannot be written; told once until they can. Field: `reason`.
    pub(super) const FAILED: &str = "history.failed";
    /// Events are written again. Field: `missed`.
    pub(super) const RESUMED: &str = "history.resumed";
    /// Events are missing in the history. Fields: `missed`, `reason`.
    pub(super) const GAP: &str = "history.gap";
}

/// Keeps the history.
pub(super) struct HistoryKeeper {
    folder: PathBuf,
    limit_bytes: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: Option<Files>,
    /// What a crash left is to be told of.
    mended: Option<String>,
    bytes: u64,
    written: u64,
    missed: u64,
    error: Option<String>,
}

impl HistoryKeeper {
    pub(super) fn new(folder: &Path, limit_bytes: u64) -> HistoryKeeper {
        HistoryKeeper { folder: folder.to_owned(), limit_bytes, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Open the files. A line for people if their end was cut short.
    ///
    /// # Errors
    /// Why not, in one line; it is tried again with the first event.
    pub(super) fn open(&self) -> Result<Option<String>, String> {
        let opened = Files::open(&self.folder, self.limit_bytes);
        let mut state = self.state();
        match opened {
            Ok((files, is_mended)) => {
                let line = is_mended.then(|| {
                    format!(
                        "the last line of the history in {} was cut short by a crash; it is left \
                         out",
                        self.folder.display()
                    )
                });
                state.bytes = files.bytes();
                state.files = Some(files);
                state.mended.clone_from(&line);
                Ok(line)
            }
            Err(error) => {
                let line = format!("{}: {error}", self.folder.display());
                Err(line)
            }
        }
    }

    pub(super) fn status(&self) -> HistoryStatus {
        let state = self.state();
        HistoryStatus {
            folder: self.folder.display().to_string(),
            bytes: state.bytes,
            limit_bytes: self.limit_bytes,
            written: state.written,
            missed: state.missed,
            error: state.error.clone(),
        }
    }

    /// Write every event from the first one on, until the process ends.
    pub(super) fn follow(&self, log: &EventLog, ending: &Ending) {
        if let Some(reason) = self.state().mended.take() {
            log.record(names::GAP, "", vec![("missed", "1".to_owned()), ("reason", reason)]);
        }
        let (mut seen, mut is_failing) = (0, false);
        loop {
            let is_last = ending.is_now();
            let events = log.wait_since(seen, if is_last { Duration::ZERO } else { LOOK_EVERY });
            let Some(newest) = events.last().map(|event| event.sequence) else {
                if is_last {
                    return;
                }
                continue;
            };
            let events: Vec<Event> = events.into_iter().map(convert::event).collect();
            let missed = newest - seen - ashlar_units::to_u64(events.len());
            match self.write(&events, missed) {
                Ok(()) => {
                    seen = newest;
                    if std::mem::take(&mut is_failing) {
                        let missed = self.state().missed.to_string();
                        log.record(names::RESUMED, "", vec![("missed", missed)]);
                    }
                }
                Err(reason) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        log.record(names::FAILED, "", vec![("reason", reason)]);
                    }
                    if is_last {
                        return;
                    }
                    wait(ending);
                }
            }
        }
    }

    /// Write them. After an error some may be there; they are written again with the others.
    fn write(&self, events: &[Event], missed: u64) -> Result<(), String> {
        // While this waits for a disk, the control side must be able to ask how the history is.
        let files = self.state().files.take();
        let opened = match files {
            Some(files) => Ok(files),
            None => Files::open(&self.folder, self.limit_bytes).map(|(files, _)| files),
        };
        let written = opened.and_then(|mut files| {
            let gap = (missed > 0).then(|| gap(missed, events));
            let written = files.append(gap.iter().chain(events));
            let mut state = self.state();
            state.bytes = files.bytes();
            state.files = Some(files);
            written
        });
        let mut state = self.state();
        match written {
            Ok(()) => {
                state.written += ashlar_units::to_u64(events.len());
                state.missed += missed;
                state.error = None;
                Ok(())
            }
            Err(error) => {
                let reason = format!("{}: {error}", self.folder.display());
                state.error = Some(reason.clone());
                Err(reason)
            }
        }
    }
}

/// Tells in the history itself that events are missing before `events`.
fn gap(missed: u64, events: &[Event]) -> Event {
    let first = events.first();
    let fields = [
        ("missed", missed.to_string()),
        ("reason", "they came faster than they could be written".to_owned()),
    ];
    let fields: BTreeMap<String, String> =
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Event {
        sequence: 0,
        unix_ms: first.map_or(0, |event| event.unix_ms),
        name: names::GAP.to_owned(),
        severity: ashlar_api::v1::severity::severity_of(names::GAP, &fields),
        array: None,
        fields,
    }
}

fn wait(ending: &Ending) {
    for _ in 0..RETRY_STEPS {
        if ending.is_now() {
            return;
        }
        std::thread::sleep(RETRY_STEP);
    }
}

#[cfg(test)]
mod tests;
