//! Linux md through mdadm, with the tuning its users recommend: eight stripe threads, a large
//! stripe cache.

use super::commands::Commands;
use super::needs::Need;
use super::settings::Settings;
use super::{Engine, Served, Wanted, run_all, word, words};
use crate::record::EngineIdentity;
use crate::refusal::Refusal;
use std::path::PathBuf;

/// An md array.
#[derive(Debug, Default)]
pub struct Mdadm {
    /// What the user sets, by its name in sysfs.
    set: Settings,
    members: Vec<PathBuf>,
    is_made: bool,
}

const ARRAY: &str = "/dev/md/lab";
const TUNABLES: [(&str, &str); 2] = [("group_thread_cnt", "8"), ("stripe_cache_size", "4096")];

impl Mdadm {
    /// With these settings instead of the recommended ones, and others beside them.
    pub fn set(set: Settings) -> Mdadm {
        Mdadm { set, ..Mdadm::default() }
    }

    /// What is set, by its name in sysfs.
    fn tunables(&self) -> Settings {
        let recommended = TUNABLES.iter().map(|(name, value)| (*name, *value));
        let own = self.set.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        recommended.chain(own).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

impl Engine for Mdadm {
    fn needs(&self) -> Vec<Need> {
        vec![Need::program("mdadm"), Need::Kernel("raid456", "/sys/module/raid456")]
    }

    fn identity(&self, commands: &dyn Commands) -> Result<EngineIdentity, Refusal> {
        let kernel = super::btrfs::kernel(commands)?;
        let tunables = self.tunables();
        Ok(EngineIdentity { name: "mdadm".to_owned(), version: kernel.clone(), kernel, tunables })
    }

    fn configuration(&self) -> Vec<Vec<String>> {
        vec![words(&["mdadm", "--detail", ARRAY])]
    }

    fn create(&mut self, commands: &dyn Commands, wanted: &Wanted) -> Result<Served, Refusal> {
        self.members.clone_from(&wanted.members);
        let members =
            wanted.members.iter().map(|member| word(member)).collect::<Result<Vec<_>, _>>()?;
        let strip = format!("--chunk={}K", wanted.strip_bytes >> 10);
        let count = format!("--raid-devices={}", members.len());
        let level = format!("--level={}", wanted.level.trim_start_matches("raid"));
        let mut make = vec!["mdadm", "--create", ARRAY, "--run", &level, &count, &strip];
        make.extend(&members);
        commands.succeed(&make, "make the array; it resyncs before anything is measured")?;
        self.is_made = true;
        let real = commands.succeed(&["readlink", "-f", ARRAY], "its kernel name")?.stdout;
        let kernel_name = real.trim().rsplit('/').next().unwrap_or_default().to_owned();
        for (name, value) in self.tunables() {
            let write = format!("echo {value} > /sys/block/{kernel_name}/md/{name}");
            commands.succeed(&["sh", "-c", &write], "recommended tuning")?;
            let read = format!("/sys/block/{kernel_name}/md/{name}");
            let kept = commands.succeed(&["cat", &read], "is the tuning in effect?")?.stdout;
            if kept.trim() != value {
                let said = format!("{name} of md is {} although {value} was set", kept.trim());
                return Err(
                    Refusal::new("tunable.ignored", said).hint("this kernel does not take it")
                );
            }
        }
        Ok(Served { path: PathBuf::from(ARRAY), way: "the block device".to_owned() })
    }

    fn take_out(&mut self, commands: &dyn Commands, members: &[usize]) -> Result<(), Refusal> {
        for member in members {
            let device = word(&self.members[*member])?;
            commands.succeed(&["mdadm", ARRAY, "--fail", device], "take a member out")?;
            commands.succeed(&["mdadm", ARRAY, "--remove", device], "take a member out")?;
        }
        Ok(())
    }

    fn put_in(&mut self, commands: &dyn Commands, member: usize) -> Result<(), Refusal> {
        let device = word(&self.members[member])?;
        commands.succeed(&["mdadm", "--zero-superblock", device], "as blank as a new one")?;
        commands.succeed(&["mdadm", ARRAY, "--add", device], "put a blank member in").map(|_| ())
    }

    fn is_busy(&self, commands: &dyn Commands) -> Result<bool, Refusal> {
        let stat = commands.succeed(&["cat", "/proc/mdstat"], "is it idle?")?.stdout;
        Ok(["resync", "recovery", "check", "reshape"].iter().any(|word| stat.contains(word)))
    }

    fn destroy(&mut self, commands: &dyn Commands) -> Result<(), Refusal> {
        let mut first = Ok(());
        if std::mem::take(&mut self.is_made) {
            first = commands.succeed(&["mdadm", "--stop", ARRAY], "stop the array").map(|_| ());
        }
        for member in std::mem::take(&mut self.members) {
            let steps: [(&[&str], &str); 1] =
                [(&["mdadm", "--zero-superblock", word(&member)?], "leave no signature behind")];
            first = first.and(run_all(commands, &steps));
        }
        first
    }
}
