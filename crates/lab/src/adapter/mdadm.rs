//! Linux md through mdadm, with the tuning its users recommend: eight stripe threads, a large
//! stripe cache.

use super::commands::Commands;
use super::needs::Need;
use super::settings::Settings;
use super::{Engine, Wanted, identity, words};
use crate::record::EngineIdentity;
use crate::refusal::Refusal;
use std::path::PathBuf;

#[derive(Debug, Default)]
pub struct Mdadm {
    /// What the user sets, by its name in sysfs.
    set: Settings,
    members: Vec<String>,
    is_made: bool,
}

const ARRAY: &str = "/dev/md/lab";
const TUNABLES: [(&str, &str); 2] = [("group_thread_cnt", "8"), ("stripe_cache_size", "4096")];

impl Mdadm {
    /// With these settings instead of the recommended ones, and others beside them.
    pub fn set(set: Settings) -> Mdadm {
        Mdadm { set, ..Mdadm::default() }
    }

    fn tunables(&self) -> Settings {
        let recommended = TUNABLES.iter().map(|it| (it.0.to_owned(), it.1.to_owned()));
        recommended.chain(self.set.clone()).collect()
    }
}

impl Engine for Mdadm {
    fn needs(&self) -> Vec<Need> {
        vec![Need::program("mdadm"), Need::Kernel("raid456", "/sys/module/raid456")]
    }

    fn identity(&self, commands: &dyn Commands) -> Result<EngineIdentity, Refusal> {
        identity(commands, "mdadm", None, self.tunables())
    }

    fn configuration(&self) -> Vec<String> {
        words(&["mdadm", "--detail", ARRAY])
    }

    fn create(&mut self, commands: &dyn Commands, wanted: &Wanted) -> Result<PathBuf, Refusal> {
        self.members.clone_from(&wanted.members);
        let strip = format!("--chunk={}K", wanted.strip_bytes >> 10);
        let count = format!("--raid-devices={}", wanted.members.len());
        let level = format!("--level={}", wanted.level.trim_start_matches("raid"));
        let mut make = vec!["mdadm", "--create", ARRAY, "--run", &level, &count, &strip];
        make.extend(wanted.members.iter().map(String::as_str));
        commands.done(&make, "make the array; it resyncs before anything is measured")?;
        self.is_made = true;
        let real = commands.succeed(&["readlink", "-f", ARRAY], "its kernel name")?;
        let kernel_name = real.trim().rsplit('/').next().unwrap_or_default();
        for (name, value) in self.tunables() {
            let file = format!("/sys/block/{kernel_name}/md/{name}");
            let write = format!("echo {value} > {file}");
            commands.done(&["sh", "-c", &write], "recommended tuning")?;
            let kept = commands.succeed(&["cat", &file], "is the tuning in effect?")?;
            if kept.trim() != value {
                let said = format!("{name} of md is {} although {value} was set", kept.trim());
                return Err(
                    Refusal::new("tunable.ignored", said).hint("this kernel does not take it")
                );
            }
        }
        Ok(PathBuf::from(ARRAY))
    }

    fn take_out(&mut self, commands: &dyn Commands, members: &[usize]) -> Result<(), Refusal> {
        for (member, verb) in members.iter().flat_map(|it| [(it, "--fail"), (it, "--remove")]) {
            commands.done(&["mdadm", ARRAY, verb, &self.members[*member]], "take a member out")?;
        }
        Ok(())
    }

    fn put_in(&mut self, commands: &dyn Commands, member: usize) -> Result<(), Refusal> {
        let device = &self.members[member];
        commands.done(&["mdadm", "--zero-superblock", device], "as blank as a new one")?;
        commands.done(&["mdadm", ARRAY, "--add", device], "put a blank member in")
    }

    fn is_busy(&self, commands: &dyn Commands) -> Result<bool, Refusal> {
        let stat = commands.succeed(&["cat", "/proc/mdstat"], "is it idle?")?;
        Ok(["resync", "recovery", "check", "reshape"].iter().any(|word| stat.contains(word)))
    }

    fn destroy(&mut self, commands: &dyn Commands) -> Result<(), Refusal> {
        let stopped = match std::mem::take(&mut self.is_made) {
            true => commands.done(&["mdadm", "--stop", ARRAY], "stop the array"),
            false => Ok(()),
        };
        let members = std::mem::take(&mut self.members);
        let blank = |member: &String| {
            commands.done(&["mdadm", "--zero-superblock", member], "leave no signature behind")
        };
        members.iter().map(blank).fold(stopped, Result::and)
    }
}
