//! btrfs raid5 and raid6: data by the level, metadata in copies as its developers recommend.
//!
//! Members are taken out by unmounting, wiping their signatures and mounting degraded: a loop
//! device cannot be pulled from under a mounted btrfs.

use super::commands::Commands;
use super::needs::Need;
use super::settings::Settings;
use super::{Engine, Wanted, identity, words};
use crate::record::EngineIdentity;
use crate::refusal::Refusal;
use std::path::PathBuf;

#[derive(Debug, Default)]
pub struct Btrfs {
    /// `mount`: an option of the mount.
    set: Settings,
    members: Vec<String>,
    is_raid5: bool,
    /// Members that were taken out and not put in again.
    gone: Vec<usize>,
    mounted: Option<String>,
}

impl Btrfs {
    pub fn set(set: Settings) -> Btrfs {
        Btrfs { set, ..Btrfs::default() }
    }

    fn metadata(&self) -> &'static str {
        if self.is_raid5 { "raid1" } else { "raid1c3" }
    }
}

/// A member that the kernel forgets, and that has no signature any more.
fn forget(commands: &dyn Commands, device: &str, why: &str) -> Result<(), Refusal> {
    let scan = ["btrfs", "device", "scan", "--forget", device];
    let forgotten = commands.done(&scan, "the kernel forgets the member");
    let wiped = commands.done(&["wipefs", "-a", "-q", device], why);
    forgotten.and(wiped)
}

impl Engine for Btrfs {
    fn needs(&self) -> Vec<Need> {
        let programs = ["mkfs.btrfs", "btrfs", "wipefs"].map(Need::program);
        programs.into_iter().chain([Need::Kernel("btrfs", "btrfs")]).collect()
    }

    fn identity(&self, commands: &dyn Commands) -> Result<EngineIdentity, Refusal> {
        let mut tunables = self.set.clone();
        tunables.insert("metadata".to_owned(), self.metadata().to_owned());
        let identity = identity(commands, "btrfs", None, tunables)?;
        commands.done(&["mkfs.btrfs", "--version"], "which tools")?;
        Ok(identity)
    }

    fn configuration(&self) -> Vec<String> {
        let files = self.mounted.as_deref();
        files.map_or_else(Vec::new, |it| words(&["btrfs", "filesystem", "usage", "-T", it]))
    }

    fn create(&mut self, commands: &dyn Commands, wanted: &Wanted) -> Result<PathBuf, Refusal> {
        self.members.clone_from(&wanted.members);
        self.gone.clear();
        self.is_raid5 = wanted.level == "raid5";
        let members: Vec<&str> = wanted.members.iter().map(String::as_str).collect();
        let make = ["mkfs.btrfs", "-q", "-f", "-K", "-d", &wanted.level, "-m", self.metadata()];
        commands.done(&[&make, &members[..]].concat(), "make the file system over all members")?;
        let scan = [&["btrfs", "device", "scan"], &members[..]].concat();
        commands.done(&scan, "let the kernel see all members")?;
        let files = format!("{}/files", wanted.place);
        commands.done(&["mkdir", "-p", &files], "a place to mount it")?;
        let mut mount = vec!["mount", "-t", "btrfs"];
        mount.extend(self.set.get("mount").into_iter().flat_map(|option| ["-o", option]));
        mount.extend([members[0], &files]);
        commands.done(&mount, "mount it")?;
        let load = PathBuf::from(&files).join("load");
        self.mounted = Some(files);
        Ok(load)
    }

    fn take_out(&mut self, commands: &dyn Commands, members: &[usize]) -> Result<(), Refusal> {
        let Some(files) = self.mounted.take() else { return Ok(()) };
        commands.done(&["umount", &files], "btrfs members cannot be pulled while mounted")?;
        for member in members {
            forget(commands, &self.members[*member], "the member is lost")?;
        }
        self.gone.extend(members);
        let left = (0..self.members.len()).find(|at| !self.gone.contains(at));
        let left = left.ok_or_else(|| {
            Refusal::new("member.needed", "all members of a btrfs cannot be taken out")
                .hint("leave one")
        })?;
        let mount = ["mount", "-t", "btrfs", "-o", "degraded", &self.members[left], &files];
        commands.done(&mount, "mount what is left")?;
        self.mounted = Some(files);
        Ok(())
    }

    fn put_in(&mut self, commands: &dyn Commands, member: usize) -> Result<(), Refusal> {
        let Some(files) = &self.mounted else { return Ok(()) };
        // btrfs numbers its devices from 1, in the order in which they were given.
        let (number, device) = ((member + 1).to_string(), &self.members[member]);
        let argv = ["btrfs", "replace", "start", "-f", &number, device, files];
        commands.done(&argv, "put a blank member in")?;
        self.gone.retain(|gone| *gone != member);
        Ok(())
    }

    fn is_busy(&self, commands: &dyn Commands) -> Result<bool, Refusal> {
        let Some(files) = &self.mounted else { return Ok(false) };
        let looks: [(&[&str], &str); 3] = [
            (&["btrfs", "scrub", "status", files], "running"),
            (&["btrfs", "balance", "status", files], "running"),
            (&["btrfs", "replace", "status", "-1", files], "% done"),
        ];
        let mut is_busy = false;
        for (argv, word) in looks {
            is_busy |= commands.run(argv, "does it run?")?.stdout.contains(word);
        }
        Ok(is_busy)
    }

    fn destroy(&mut self, commands: &dyn Commands) -> Result<(), Refusal> {
        let unmount = |files: String| commands.done(&["umount", &files], "unmount it");
        let unmounted = self.mounted.take().map_or(Ok(()), unmount);
        let members = std::mem::take(&mut self.members);
        let gone = members.iter().map(|it| forget(commands, it, "leave no signature behind"));
        gone.fold(unmounted, Result::and)
    }
}
