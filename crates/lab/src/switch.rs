//! Settings of a drive that a run switches to see what they do, and switches back.
//!
//! - the volatile write cache. SCSI, SATA and virtio drives: `cache_type` in sysfs, which tells
//!   drive and kernel at once. `hdparm -W` tells the drive alone, and the kernel then sends no
//!   flushes to a cache that it believes to be off. NVMe drives: feature 6 by `nvme`.
//! - merging of neighbouring I/Os in the kernel's queue of the drive: `nomerges` in sysfs
//! - coalescing of interrupts: feature 8 of NVMe drives. What other controllers have for it is
//!   their drivers' own affair.
//! - before: how everything was before it was switched
//!
//! What must stay true: what was set is read back; what was before comes back as the drive or the
//! kernel said it, and restoring it is not kept from being done by an interruption.

mod before;
#[cfg(test)]
mod tests;

pub use before::Switched;

use crate::adapter::commands::Commands;
use crate::adapter::word;
use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

const ON: &str = "write back";
const OFF: &str = "write through";
/// Sixteen completions or 100 us, whichever comes first: the least that a drive can wait, for as
/// many as the talk allows it for.
const COALESCED: u32 = 0x010f;

/// What can be switched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The volatile write cache.
    WriteCache,
    /// Merging in the kernel's queue.
    Merging,
    /// Coalescing of interrupts.
    Interrupts,
}

impl What {
    /// Its name in records and for people.
    pub fn name(self) -> &'static str {
        match self {
            What::WriteCache => "write cache",
            What::Merging => "merging",
            What::Interrupts => "interrupt coalescing",
        }
    }

    /// The check that says whether it was restored.
    pub fn check(self) -> &'static str {
        match self {
            What::WriteCache => "drive.write_cache_restored",
            What::Merging => "drive.merging_restored",
            What::Interrupts => "drive.interrupts_restored",
        }
    }
}

/// How something of a drive is switched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switch {
    device: PathBuf,
    what: What,
    way: Way,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Way {
    /// A file in sysfs.
    File(PathBuf),
    /// A feature of the controller: to a namespace the drive answers that this one is not specific
    /// to it.
    Nvme(PathBuf, &'static str),
}

impl Switch {
    /// The switch for `what` of `device`; `sysfs` is `/sys`.
    ///
    /// # Errors
    /// If it has none: why not.
    pub fn of(device: &Path, what: What, sysfs: &Path) -> Result<Switch, Refusal> {
        let none = |why: &str| {
            let said =
                format!("{}: its {} cannot be switched: {why}", device.display(), what.name());
            Refusal::cannot_run("switch.missing", said, "")
        };
        let real = fs::canonicalize(device).map_err(|error| none(&error.to_string()))?;
        let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let block = sysfs.join("block").join(&name);
        if !block.is_dir() {
            return Err(none("it is no whole drive"));
        }
        let is_nvme = name.starts_with("nvme");
        let nvme = |feature| Way::Nvme(real.with_file_name(controller(&block, &name)), feature);
        let way = match what {
            What::WriteCache if is_nvme => nvme("--feature-id=6"),
            What::Interrupts if is_nvme => nvme("--feature-id=8"),
            What::Interrupts => return Err(none("only NVMe drives have a common way to do it")),
            What::WriteCache => {
                let scsi = fs::read_dir(block.join("device/scsi_disk")).into_iter().flatten();
                let files = scsi.filter_map(Result::ok).map(|item| item.path().join("cache_type"));
                let file = files.chain([block.join("cache_type")]).find(|file| file.is_file());
                Way::File(file.ok_or_else(|| none("the kernel has no cache_type for it"))?)
            }
            What::Merging => {
                let file = block.join("queue/nomerges");
                Way::File(file.is_file().then_some(file).ok_or_else(|| none("it has no queue"))?)
            }
        };
        Ok(Switch { device: device.to_owned(), what, way })
    }

    /// How it is now, as the drive or the kernel says it.
    ///
    /// # Errors
    /// If neither says it.
    pub fn value(&self, commands: &dyn Commands) -> Result<String, Refusal> {
        let said = match &self.way {
            Way::File(file) => {
                fs::read_to_string(file).map_err(|error| Refusal::file(file, &error, ""))?
            }
            Way::Nvme(controller, feature) => {
                let argv = ["nvme", "get-feature", word(controller)?, feature];
                let why = format!("how is its {}?", self.what.name());
                commands.succeed(&argv, &why)?.stdout
            }
        };
        let value = match &self.way {
            Way::File(_) => Some(said.trim().to_owned()),
            Way::Nvme(..) => feature(&said).map(|value| value.to_string()),
        };
        value.filter(|value| self.is_on(value).is_some()).ok_or_else(|| {
            let said = format!(
                "{}: its {} is neither on nor off: {}",
                self.device.display(),
                self.what.name(),
                said.trim()
            );
            Refusal::cannot_run("switch.not_understood", said, "")
        })
    }

    /// Switch it on or off.
    ///
    /// # Errors
    /// If the drive refuses, or does not do what it said.
    pub fn set(&self, commands: &dyn Commands, on: bool) -> Result<(), Refusal> {
        let value = match (&self.way, self.what, on) {
            (Way::File(_), What::Merging, true) | (Way::Nvme(..), _, false) => "0".to_owned(),
            (Way::File(_), What::Merging, false) => "2".to_owned(),
            (Way::File(_), _, on) => if on { ON } else { OFF }.to_owned(),
            (Way::Nvme(..), What::Interrupts, true) => COALESCED.to_string(),
            (Way::Nvme(..), _, true) => "1".to_owned(),
        };
        self.put_back(commands, &value)
    }

    /// Set it to what [`value`](Switch::value) said.
    ///
    /// # Errors
    /// As [`set`](Switch::set).
    pub fn put_back(&self, commands: &dyn Commands, value: &str) -> Result<(), Refusal> {
        match &self.way {
            Way::File(file) => fs::write(file, value)
                .map_err(|error| Refusal::file(file, &error, "it is as it was"))?,
            Way::Nvme(controller, feature) => {
                let value = format!("--value={value}");
                let argv = ["nvme", "set-feature", word(controller)?, feature, &value];
                commands.succeed(&argv, &format!("switch its {}", self.what.name()))?;
            }
        }
        if self.value(commands)? == value {
            return Ok(());
        }
        let said = format!(
            "{} was told to set its {} to '{value}' and did not",
            self.device.display(),
            self.what.name()
        );
        Err(Refusal::cannot_run("switch.not_obeyed", said, ""))
    }

    fn is_on(&self, value: &str) -> Option<bool> {
        match (&self.way, self.what, value) {
            (Way::Nvme(..), What::WriteCache, value) => {
                value.parse().ok().map(|bits: u32| bits & 1 == 1)
            }
            (Way::Nvme(..), _, value) => value.parse().ok().map(|bits: u32| bits != 0),
            // 1 leaves the cheap kind of merging on.
            (Way::File(_), What::Merging, "0" | "1") | (Way::File(_), _, ON) => Some(true),
            (Way::File(_), What::Merging, "2") | (Way::File(_), _, OFF) => Some(false),
            _ => None,
        }
    }
}

/// `nvme0` of the namespace `nvme0n1`: what sysfs says, or else by its name.
fn controller(block: &Path, name: &str) -> String {
    let link = fs::canonicalize(block.join("device")).ok();
    let told = link.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let is_one =
        |name: &String| name.strip_prefix("nvme").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let digits: String =
        name.trim_start_matches("nvme").chars().take_while(char::is_ascii_digit).collect();
    told.filter(is_one).unwrap_or_else(|| format!("nvme{digits}"))
}

/// `get-feature:0x06 (Volatile Write Cache), Current value:0x00000001`, and as older ones print it.
fn feature(text: &str) -> Option<u32> {
    let value = text.rsplit_once("value:")?.1.split_whitespace().next()?;
    u32::from_str_radix(value.trim_start_matches("0x"), 16).ok()
}
