//! A drive's volatile write cache: switched by a run to see what it does, and switched back.
//!
//! - SCSI, SATA and virtio drives: `cache_type` in sysfs, which tells drive and kernel at once.
//!   `hdparm -W` tells the drive alone, and the kernel then sends no flushes to a cache that it
//!   believes to be off
//! - NVMe drives: feature 6 by `nvme`
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
use std::fs;
use std::path::{Path, PathBuf};

const ON: &str = "write back";
const OFF: &str = "write through";
/// Its name among an engine's tunables.
pub const WRITE_CACHE: &str = "write cache";
/// nvme's words for the feature.
const FEATURE: &str = "--feature-id=6";

/// How the write cache of a drive is switched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switch {
    device: PathBuf,
    way: Way,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Way {
    /// A file in sysfs.
    File(PathBuf),
    /// The controller: to a namespace the drive answers that the feature is not specific to it.
    Nvme(PathBuf),
}

impl Switch {
    /// The switch of `device`; `sysfs` is `/sys`.
    ///
    /// # Errors
    /// If it has none: why not.
    pub fn of(device: &Path, sysfs: &Path) -> Result<Switch, Refusal> {
        let none = |why: &str| {
            let said = format!("{}: its write cache cannot be switched: {why}", device.display());
            Refusal::cannot_run("switch.missing", said, "")
        };
        let real = fs::canonicalize(device).map_err(|error| none(&error.to_string()))?;
        let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let block = sysfs.join("block").join(&name);
        if !block.is_dir() {
            return Err(none("it is no whole drive"));
        }
        if name.starts_with("nvme") {
            let way = Way::Nvme(real.with_file_name(controller(&block, &name)));
            return Ok(Switch { device: device.to_owned(), way });
        }
        let scsi = fs::read_dir(block.join("device/scsi_disk")).into_iter().flatten();
        let files = scsi.filter_map(Result::ok).map(|item| item.path().join("cache_type"));
        let file = files.chain([block.join("cache_type")]).find(|file| file.is_file());
        let way = Way::File(file.ok_or_else(|| none("the kernel has no cache_type for it"))?);
        Ok(Switch { device: device.to_owned(), way })
    }

    /// How it is now, as the drive or the kernel says it.
    ///
    /// # Errors
    /// If neither says it.
    pub fn value(&self, commands: &dyn Commands) -> Result<String, Refusal> {
        let (said, value) = match &self.way {
            Way::File(file) => {
                let said =
                    fs::read_to_string(file).map_err(|error| Refusal::file(file, &error, ""))?;
                let value = Some(said.trim().to_owned()).filter(|it| it == ON || it == OFF);
                (said, value)
            }
            Way::Nvme(controller) => {
                let argv = ["nvme", "get-feature", word(controller)?, FEATURE];
                let said = commands.succeed(&argv, "is its write cache on?")?.stdout;
                let value = feature(&said).map(|value| value.to_string());
                (said, value)
            }
        };
        value.ok_or_else(|| {
            let said = format!(
                "{}: its write cache is neither on nor off: {}",
                self.device.display(),
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
        let value = match (&self.way, on) {
            (Way::File(_), true) => ON,
            (Way::File(_), false) => OFF,
            (Way::Nvme(_), true) => "1",
            (Way::Nvme(_), false) => "0",
        };
        self.put_back(commands, value)
    }

    /// Set it to what [`value`](Switch::value) said.
    ///
    /// # Errors
    /// As [`set`](Switch::set).
    pub fn put_back(&self, commands: &dyn Commands, value: &str) -> Result<(), Refusal> {
        match &self.way {
            Way::File(file) => fs::write(file, value)
                .map_err(|error| Refusal::file(file, &error, "it is as it was"))?,
            Way::Nvme(controller) => {
                let value = format!("--value={value}");
                let argv = ["nvme", "set-feature", word(controller)?, FEATURE, &value];
                commands.succeed(&argv, "switch its write cache")?;
            }
        }
        if self.value(commands)? == value {
            return Ok(());
        }
        let said = format!(
            "{} was told to set its write cache to '{value}' and did not",
            self.device.display()
        );
        Err(Refusal::cannot_run("switch.not_obeyed", said, ""))
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
