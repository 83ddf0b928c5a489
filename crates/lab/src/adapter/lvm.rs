//! RAID by device mapper through LVM: one volume over all members.
//!
//! Members are taken out while the volume is inactive, and it comes back degraded: LVM has no
//! command that fails a working one.

use super::commands::Commands;
use super::needs::Need;
use super::{Engine, Served, Wanted, run_all, word, words};
use crate::record::EngineIdentity;
use crate::refusal::Refusal;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A volume of LVM.
#[derive(Debug, Default)]
pub struct Lvm {
    members: Vec<PathBuf>,
    is_made: bool,
}

/// Members with data that LVM asks for in a raid6.
const RAID6_DATA_MIN: usize = 3;
const GROUP: &str = "ashlar_lab";
const VOLUME: &str = "ashlar_lab/load";
const DEVICE: &str = "/dev/ashlar_lab/load";

impl Engine for Lvm {
    fn name(&self) -> &'static str {
        "lvm"
    }

    fn needs(&self) -> Vec<Need> {
        vec![
            Need::program("lvm"),
            Need::program("lvcreate"),
            Need::Kernel("dm_raid", "/sys/module/dm_raid"),
        ]
    }

    fn identity(&self, commands: &dyn Commands) -> Result<EngineIdentity, Refusal> {
        let kernel = super::btrfs::kernel(commands)?;
        let told = commands.succeed(&["lvm", "version"], "which tools")?.stdout;
        let version = told
            .lines()
            .find_map(|line| line.trim().strip_prefix("LVM version:"))
            .and_then(|line| line.split_whitespace().next())
            .unwrap_or("unknown")
            .to_owned();
        Ok(EngineIdentity { name: "lvm".to_owned(), version, kernel, tunables: BTreeMap::new() })
    }

    fn configuration(&self) -> Vec<Vec<String>> {
        vec![words(&["lvs", "-a", "-o", "+devices,stripes,stripe_size", GROUP])]
    }

    fn create(&mut self, commands: &dyn Commands, wanted: &Wanted) -> Result<Served, Refusal> {
        self.members.clone_from(&wanted.members);
        let members =
            wanted.members.iter().map(|member| word(member)).collect::<Result<Vec<_>, _>>()?;
        let parity = if wanted.level == "raid5" { 1 } else { 2 };
        let data = members.len().saturating_sub(parity);
        if wanted.level == "raid6" && data < RAID6_DATA_MIN {
            let said = format!("LVM makes no raid6 of {} members; nothing was done", members.len());
            return Err(Refusal::cannot_run("members.too_few", said, "give it five or more"));
        }
        let data = data.to_string();
        let strip = format!("{}k", wanted.strip_bytes >> 10);
        commands.succeed(
            &[&["pvcreate", "-ff", "-y", "-q"], &members[..]].concat(),
            "members for LVM",
        )?;
        self.is_made = true;
        commands
            .succeed(&[&["vgcreate", "-q", GROUP], &members[..]].concat(), "a group of them")?;
        let make = [
            "lvcreate",
            "-q",
            "-y",
            "--type",
            &wanted.level,
            "-i",
            &data,
            "-I",
            &strip,
            "-l",
            "100%FREE",
            "-n",
            "load",
            GROUP,
        ];
        commands.succeed(&make, "make the array; it resyncs before anything is measured")?;
        Ok(Served { path: PathBuf::from(DEVICE), way: "the block device".to_owned() })
    }

    fn take_out(&mut self, commands: &dyn Commands, members: &[usize]) -> Result<(), Refusal> {
        commands.succeed(&["vgchange", "-q", "-an", GROUP], "members cannot be pulled in use")?;
        for member in members {
            let device = word(&self.members[*member])?;
            commands.succeed(&["wipefs", "-a", "-q", device], "the member is lost")?;
        }
        let argv = ["vgchange", "-q", "-ay", "--activationmode", "degraded", GROUP];
        commands.succeed(&argv, "serve what is left").map(|_| ())
    }

    fn put_in(&mut self, commands: &dyn Commands, member: usize) -> Result<(), Refusal> {
        let device = word(&self.members[member])?;
        commands.succeed(&["pvcreate", "-ff", "-y", "-q", device], "a blank member")?;
        commands.succeed(&["vgextend", "-q", GROUP, device], "put it into the group")?;
        commands.succeed(&["lvconvert", "-q", "-y", "--repair", VOLUME], "rebuild onto it")?;
        Ok(())
    }

    fn is_busy(&self, commands: &dyn Commands) -> Result<bool, Refusal> {
        let argv = ["lvs", "--noheadings", "-o", "sync_percent", VOLUME];
        let told = commands.succeed(&argv, "is it idle?")?.stdout;
        let percent = told.trim();
        Ok(!percent.is_empty() && percent != "100.00")
    }

    fn destroy(&mut self, commands: &dyn Commands) -> Result<(), Refusal> {
        let mut first = Ok(());
        if std::mem::take(&mut self.is_made) {
            let argv = ["vgremove", "-q", "-ff", "-y", GROUP];
            first = commands.succeed(&argv, "take the group away").map(|_| ());
        }
        for member in std::mem::take(&mut self.members) {
            let steps: [(&[&str], &str); 1] =
                [(&["wipefs", "-a", "-q", word(&member)?], "leave no signature behind")];
            first = first.and(run_all(commands, &steps));
        }
        first
    }
}
