//! What was switched in a run, and how it was before.
//!
//! What must stay true: a setting is written to the run's directory before it is changed, so that
//! it can be restored after the lab itself was killed; what could not be restored stays there.

use super::{Switch, WRITE_CACHE};
use crate::adapter::commands::{Commands, Unlogged};
use crate::record::Check;
use crate::refusal::Refusal;
use crate::validity::Outcome;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Where settings wait to be restored, within a run's directory.
pub(super) const PENDING: &str = "switched.json";

/// Switches that were set in a run, and how they were before.
#[derive(Debug)]
pub struct Switched {
    file: PathBuf,
    sysfs: PathBuf,
    before: Vec<Before>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Before {
    device: PathBuf,
    /// As the drive or the kernel said it.
    value: String,
}

impl Switched {
    /// Of the run in `dir`. What an earlier lab left switched when it was killed is known again.
    ///
    /// # Errors
    /// If the file with it cannot be read.
    pub fn open(dir: &Path, sysfs: &Path) -> Result<Switched, Refusal> {
        let file = dir.join(PENDING);
        let before = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let hint = "drives may be switched: look, and remove the file";
                Refusal::cannot_run(
                    "switch.not_known",
                    format!("{}: {error}", file.display()),
                    hint,
                )
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Refusal::file(&file, &error, "")),
        };
        Ok(Switched { file, sysfs: sysfs.to_owned(), before })
    }

    /// Switch the write cache of `device`, after having written down how it was.
    ///
    /// # Errors
    /// If it has no such switch, does not obey, or how it was cannot be written down: then it is as
    /// it was.
    pub fn set(&mut self, commands: &dyn Commands, device: &Path, on: bool) -> Result<(), Refusal> {
        let switch = Switch::of(device, &self.sysfs)?;
        if self.before.iter().any(|known| known.device == device) {
            return switch.set(commands, on);
        }
        let value = switch.value(commands)?;
        self.before.push(Before { device: device.to_owned(), value: value.clone() });
        self.write()?;
        let set = switch.set(commands, on);
        if set.is_err() && switch.value(commands).is_ok_and(|now| now == value) {
            // It refused, and is as it was: there is nothing to restore.
            self.before.pop();
            self.write()?;
        }
        set
    }

    /// Switch everything back; one check for each switch.
    ///
    /// # Errors
    /// If the file cannot be removed. A drive that does not obey is a check that failed, and stays
    /// in the file.
    pub fn restore(&mut self) -> Result<Vec<Check>, Refusal> {
        self.restore_with(&Unlogged)
    }

    pub(super) fn restore_with(&mut self, commands: &dyn Commands) -> Result<Vec<Check>, Refusal> {
        let mut checks = Vec::new();
        let mut left = Vec::new();
        for before in std::mem::take(&mut self.before) {
            let Before { device, value } = &before;
            let switch = Switch::of(device, &self.sysfs);
            let restored = switch.and_then(|switch| switch.put_back(commands, value));
            let (outcome, found, next) = match restored {
                Ok(()) => (
                    Outcome::Pass,
                    format!("{WRITE_CACHE} is '{value}' again, as it was before"),
                    None,
                ),
                Err(refusal) => (
                    Outcome::Fail,
                    format!("{WRITE_CACHE} was '{value}' and could not be restored: {refusal}"),
                    Some(format!("set it to '{value}' by hand")),
                ),
            };
            checks.push(Check {
                name: "drive.write_cache_restored".to_owned(),
                target: device.display().to_string(),
                outcome,
                found,
                next,
            });
            if outcome == Outcome::Fail {
                left.push(before);
            }
        }
        self.before = left;
        self.write()?;
        Ok(checks)
    }

    fn write(&self) -> Result<(), Refusal> {
        let fault =
            |error: std::io::Error| Refusal::file(&self.file, &error, "nothing was switched");
        if self.before.is_empty() {
            return match fs::remove_file(&self.file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(fault(error)),
                _ => Ok(()),
            };
        }
        let text = serde_json::to_vec(&self.before).unwrap_or_default();
        let new = self.file.with_extension("new");
        fs::write(&new, text).map_err(fault)?;
        let synced = fs::File::open(&new).and_then(|file| file.sync_all());
        synced.and_then(|()| fs::rename(&new, &self.file)).map_err(fault)
    }
}
