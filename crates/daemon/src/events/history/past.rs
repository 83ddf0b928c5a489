//! Reads the history, with or without a daemon that writes it.
//!
//! What must stay true: reading never changes the files and never fails for a line that makes no
//! sense; it counts such lines. A rotation at the same moment loses and repeats nothing.

use super::files::{ages, path};
use ashlar_api::v1::event::Event;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the history says.
#[derive(Debug, Default)]
pub struct Past {
    /// The events that were asked for, in the order in which they were written.
    pub events: Vec<Event>,
    /// Lines that could not be read: cut short by a crash, or changed by somebody.
    pub unreadable: u64,
}

/// The events in `folder` that `is_wanted`.
///
/// # Errors
/// What the system says; `NotFound` if there is no history.
pub fn read(folder: &Path, is_wanted: impl Fn(&Event) -> bool) -> io::Result<Past> {
    // From the newest on: a file that is renamed meanwhile is met twice, and never missed.
    let (mut files, mut known) = (Vec::new(), BTreeSet::new());
    for age in ages() {
        match File::open(path(folder, age)) {
            Ok(file) => {
                if known.insert(file.metadata()?.ino()) {
                    files.push(file);
                }
            }
            Err(error) if age > 0 && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let mut past = Past::default();
    for file in files.into_iter().rev() {
        for line in BufReader::new(file).split(b'\n') {
            match serde_json::from_slice::<Event>(&line?) {
                Ok(event) if is_wanted(&event) => past.events.push(event),
                Ok(_) => {}
                Err(_) => past.unreadable += 1,
            }
        }
    }
    Ok(past)
}
