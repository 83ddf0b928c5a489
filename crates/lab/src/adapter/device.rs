//! A device somebody hands over: any engine that the lab cannot drive. It is measured as it is and
//! never changed.

use super::commands::Commands;
use super::needs::Need;
use super::{Engine, Served, Wanted};
use crate::record::EngineIdentity;
use crate::refusal::Refusal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A device, or a file, that somebody made.
#[derive(Debug)]
pub struct HandedOver {
    path: PathBuf,
}

impl HandedOver {
    /// The device at `path`.
    pub fn new(path: &Path) -> HandedOver {
        HandedOver { path: path.to_owned() }
    }
}

impl Engine for HandedOver {
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    fn identity(&self, commands: &dyn Commands) -> Result<EngineIdentity, Refusal> {
        let kernel = super::btrfs::kernel(commands)?;
        let version = self.path.display().to_string();
        Ok(EngineIdentity { name: "device".to_owned(), version, kernel, tunables: BTreeMap::new() })
    }

    fn create(&mut self, _commands: &dyn Commands, _wanted: &Wanted) -> Result<Served, Refusal> {
        if !self.path.exists() {
            let said = format!("{} does not exist; nothing was done", self.path.display());
            return Err(Refusal::cannot_run("device.missing", said)
                .hint("name a device or a file that is there"));
        }
        Ok(Served { path: self.path.clone(), way: "as it was handed over".to_owned() })
    }

    fn take_out(&mut self, _commands: &dyn Commands, _members: &[usize]) -> Result<(), Refusal> {
        Err(Refusal::new(
            "engine.cannot",
            "the lab does not know what stands behind a device that was handed over",
        )
        .hint("take members out by that engine's own means and measure again"))
    }

    fn put_in(&mut self, _commands: &dyn Commands, _member: usize) -> Result<(), Refusal> {
        Err(Refusal::new(
            "engine.cannot",
            "the lab does not know what stands behind a device that was handed over",
        )
        .hint("put members in by that engine's own means and measure again"))
    }

    fn is_busy(&self, _commands: &dyn Commands) -> Result<bool, Refusal> {
        Ok(false)
    }

    fn destroy(&mut self, _commands: &dyn Commands) -> Result<(), Refusal> {
        Ok(())
    }
}
