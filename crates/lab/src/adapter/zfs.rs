//! OpenZFS raidz1 and raidz2: a file on one file system, without compression, so that what is
//! written is what reaches the drives.

use super::commands::Commands;
use super::needs::Need;
use super::settings::Settings;
use super::{Engine, Served, Wanted, run_all, word, words};
use crate::record::EngineIdentity;
use crate::refusal::Refusal;
use std::path::PathBuf;

/// A pool.
#[derive(Debug, Default)]
pub struct Zfs {
    /// Properties that the user sets.
    set: Settings,
    members: Vec<PathBuf>,
    is_made: bool,
}

const POOL: &str = "ashlar_lab";
/// What is set away from the default: blocks of 4 KiB on the drives, records of 1 MiB for large
/// I/Os, no access times.
const PROPERTIES: [(&str, &str); 4] =
    [("compression", "off"), ("recordsize", "1M"), ("atime", "off"), ("xattr", "sa")];

impl Zfs {
    /// With these properties instead of the recommended ones, and others beside them.
    pub fn set(set: Settings) -> Zfs {
        Zfs { set, ..Zfs::default() }
    }

    /// Properties in the order in which they are given.
    fn properties(&self) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> =
            PROPERTIES.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        for (name, value) in &self.set {
            match all.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => known.clone_from(value),
                None => all.push((name.clone(), value.clone())),
            }
        }
        all
    }
}

impl Engine for Zfs {
    fn name(&self) -> &'static str {
        "zfs"
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::program("zpool"), Need::program("zfs"), Need::Kernel("zfs", "zfs")]
    }

    fn identity(&self, commands: &dyn Commands) -> Result<EngineIdentity, Refusal> {
        let kernel = super::btrfs::kernel(commands)?;
        let told = commands.succeed(&["zfs", "version"], "which version")?.stdout;
        let line = told.lines().find(|line| line.starts_with("zfs-kmod-")).unwrap_or_default();
        let version = line.trim_start_matches("zfs-kmod-").to_owned();
        let mut tunables: Settings = self.properties().into_iter().collect();
        tunables.insert("ashift".to_owned(), "12".to_owned());
        Ok(EngineIdentity { name: "zfs".to_owned(), version, kernel, tunables })
    }

    fn configuration(&self) -> Vec<Vec<String>> {
        vec![words(&["zpool", "status", "-v", POOL]), words(&["zfs", "get", "all", POOL])]
    }

    fn create(&mut self, commands: &dyn Commands, wanted: &Wanted) -> Result<Served, Refusal> {
        self.members.clone_from(&wanted.members);
        let members =
            wanted.members.iter().map(|member| word(member)).collect::<Result<Vec<_>, _>>()?;
        let level = if wanted.level == "raid5" { "raidz1" } else { "raidz2" };
        let files = wanted.place.join("files");
        let set: Vec<String> =
            self.properties().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut make = vec!["zpool", "create", "-f", "-o", "ashift=12"];
        for property in &set {
            make.extend(["-O", property]);
        }
        make.extend(["-m", word(&files)?, POOL, level]);
        make.extend(&members);
        commands.succeed(&make, "make the pool")?;
        self.is_made = true;
        Ok(Served { path: files.join("load"), way: "a file on ZFS".to_owned() })
    }

    fn take_out(&mut self, commands: &dyn Commands, members: &[usize]) -> Result<(), Refusal> {
        for member in members {
            let device = word(&self.members[*member])?;
            commands.succeed(&["zpool", "offline", "-f", POOL, device], "take a member out")?;
        }
        Ok(())
    }

    fn put_in(&mut self, commands: &dyn Commands, member: usize) -> Result<(), Refusal> {
        let device = word(&self.members[member])?;
        commands.succeed(&["zpool", "labelclear", "-f", device], "as blank as a new one")?;
        commands
            .succeed(&["zpool", "replace", "-f", POOL, device], "put a blank member in")
            .map(|_| ())
    }

    fn is_busy(&self, commands: &dyn Commands) -> Result<bool, Refusal> {
        let status = commands.succeed(&["zpool", "status", POOL], "is it idle?")?.stdout;
        Ok(status.contains("in progress"))
    }

    fn destroy(&mut self, commands: &dyn Commands) -> Result<(), Refusal> {
        let mut first = Ok(());
        if std::mem::take(&mut self.is_made) {
            first = commands
                .succeed(&["zpool", "destroy", "-f", POOL], "take the pool away")
                .map(|_| ());
        }
        for member in std::mem::take(&mut self.members) {
            let steps: [(&[&str], &str); 1] =
                [(&["wipefs", "-a", "-q", word(&member)?], "leave no signature behind")];
            first = first.and(run_all(commands, &steps));
        }
        first
    }
}
