//! btrfs raid5 and raid6: data by the level, metadata in copies as its developers recommend.
//!
//! Members are taken out by unmounting, wiping their signatures and mounting degraded: a loop
//! device cannot be pulled from under a mounted btrfs.

use super::commands::Commands;
use super::needs::Need;
use super::settings::Settings;
use super::{Engine, Served, Wanted, run_all, word, words};
use crate::record::EngineIdentity;
use crate::refusal::Refusal;
use std::path::PathBuf;

/// A btrfs over several devices.
#[derive(Debug, Default)]
pub struct Btrfs {
    /// `mount`: an option of the mount.
    set: Settings,
    members: Vec<PathBuf>,
    is_raid5: bool,
    /// Members that were taken out and not put in again.
    gone: Vec<usize>,
    mounted: Option<PathBuf>,
}

pub(crate) fn kernel(commands: &dyn Commands) -> Result<String, Refusal> {
    Ok(commands.succeed(&["uname", "-r"], "which kernel")?.stdout.trim().to_owned())
}

impl Btrfs {
    pub fn set(set: Settings) -> Btrfs {
        Btrfs { set, ..Btrfs::default() }
    }
}

impl Engine for Btrfs {
    fn needs(&self) -> Vec<Need> {
        vec![
            Need::program("mkfs.btrfs"),
            Need::program("btrfs"),
            Need::program("wipefs"),
            Need::Kernel("btrfs", "btrfs"),
        ]
    }

    fn identity(&self, commands: &dyn Commands) -> Result<EngineIdentity, Refusal> {
        let kernel = kernel(commands)?;
        commands.succeed(&["mkfs.btrfs", "--version"], "which tools")?;
        let metadata = if self.is_raid5 { "raid1" } else { "raid1c3" };
        let mut tunables = self.set.clone();
        tunables.insert("metadata".to_owned(), metadata.to_owned());
        Ok(EngineIdentity { name: "btrfs".to_owned(), version: kernel.clone(), kernel, tunables })
    }

    fn configuration(&self) -> Vec<Vec<String>> {
        let files = self.mounted.as_deref().and_then(|files| word(files).ok());
        files
            .map(|files| words(&["btrfs", "filesystem", "usage", "-T", files]))
            .into_iter()
            .collect()
    }

    fn create(&mut self, commands: &dyn Commands, wanted: &Wanted) -> Result<Served, Refusal> {
        self.members.clone_from(&wanted.members);
        self.gone.clear();
        let members =
            wanted.members.iter().map(|member| word(member)).collect::<Result<Vec<_>, _>>()?;
        self.is_raid5 = wanted.level == "raid5";
        let metadata = if self.is_raid5 { "raid1" } else { "raid1c3" };
        let mut make = vec!["mkfs.btrfs", "-q", "-f", "-K", "-d", &wanted.level, "-m", metadata];
        make.extend(&members);
        commands.succeed(&make, "make the file system over all members")?;
        let mut scan = vec!["btrfs", "device", "scan"];
        scan.extend(&members);
        commands.succeed(&scan, "let the kernel see all members")?;
        let files = wanted.place.join("files");
        commands.succeed(&["mkdir", "-p", word(&files)?], "a place to mount it")?;
        let mut mount = vec!["mount", "-t", "btrfs"];
        mount.extend(self.set.get("mount").into_iter().flat_map(|option| ["-o", option]));
        mount.extend([members[0], word(&files)?]);
        commands.succeed(&mount, "mount it")?;
        self.mounted = Some(files.clone());
        Ok(Served { path: files.join("load"), way: "a file on btrfs".to_owned() })
    }

    fn take_out(&mut self, commands: &dyn Commands, members: &[usize]) -> Result<(), Refusal> {
        let Some(files) = self.mounted.take() else { return Ok(()) };
        let files_word = word(&files)?;
        commands
            .succeed(&["umount", files_word], "btrfs members cannot be pulled while mounted")?;
        for member in members {
            let device = word(&self.members[*member])?;
            commands.succeed(
                &["btrfs", "device", "scan", "--forget", device],
                "the kernel forgets the member",
            )?;
            commands.succeed(&["wipefs", "-a", "-q", device], "the member is lost")?;
        }
        self.gone.extend(members);
        let left = self.members.iter().enumerate().find(|(at, _)| !self.gone.contains(at));
        let (_, left) = left.ok_or_else(|| {
            Refusal::new("member.needed", "all members of a btrfs cannot be taken out")
                .hint("leave one")
        })?;
        let mount = ["mount", "-t", "btrfs", "-o", "degraded", word(left)?, files_word];
        commands.succeed(&mount, "mount what is left")?;
        self.mounted = Some(files);
        Ok(())
    }

    fn put_in(&mut self, commands: &dyn Commands, member: usize) -> Result<(), Refusal> {
        let Some(files) = &self.mounted else { return Ok(()) };
        // btrfs numbers its devices from 1, in the order in which they were given.
        let number = (member + 1).to_string();
        let device = word(&self.members[member])?;
        let argv = ["btrfs", "replace", "start", "-f", &number, device, word(files)?];
        commands.succeed(&argv, "put a blank member in")?;
        self.gone.retain(|gone| *gone != member);
        Ok(())
    }

    fn is_busy(&self, commands: &dyn Commands) -> Result<bool, Refusal> {
        let Some(files) = &self.mounted else { return Ok(false) };
        let files = word(files)?;
        let scrub = commands.run(&["btrfs", "scrub", "status", files], "does a scrub run?")?;
        let balance =
            commands.run(&["btrfs", "balance", "status", files], "does a balance run?")?;
        let replace =
            commands.run(&["btrfs", "replace", "status", "-1", files], "does a replace run?")?;
        let replaces = replace.stdout.contains("% done");
        Ok(replaces || scrub.stdout.contains("running") || balance.stdout.contains("running"))
    }

    fn destroy(&mut self, commands: &dyn Commands) -> Result<(), Refusal> {
        let mut first = Ok(());
        if let Some(files) = self.mounted.take() {
            first = commands.succeed(&["umount", word(&files)?], "unmount it").map(|_| ());
        }
        for member in std::mem::take(&mut self.members) {
            let device = word(&member)?;
            let steps: [(&[&str], &str); 2] = [
                (&["btrfs", "device", "scan", "--forget", device], "the kernel forgets the member"),
                (&["wipefs", "-a", "-q", device], "leave no signature behind"),
            ];
            let done = run_all(commands, &steps);
            first = first.and(done);
        }
        first
    }
}
