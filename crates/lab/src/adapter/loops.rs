//! Block devices for members: loop devices with direct I/O over those that are files.
//!
//! What must stay true: the loop devices that were made here are let go at the end, whatever
//! happens.

use super::commands::{Commands, Live};
use super::needs::Need;
use super::word;
use crate::refusal::Refusal;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Block devices for the members, and which of them are loop devices of ours.
pub struct Devices<'a> {
    /// One for each member, in order.
    pub paths: Vec<String>,
    ours: Vec<String>,
    commands: &'a Live<'a>,
}

impl<'a> Devices<'a> {
    /// Block devices as they are; files get loop devices with direct I/O.
    pub fn of(commands: &'a Live<'a>, members: &[PathBuf]) -> Result<Devices<'a>, Refusal> {
        let mut devices = Devices { paths: Vec::new(), ours: Vec::new(), commands };
        for member in members {
            if is_block_device(member) {
                devices.paths.push(word(member)?.to_owned());
                continue;
            }
            let argv = ["losetup", "--find", "--show", "--direct-io=on", word(member)?];
            let made = commands.succeed(&argv, "a block device over the file")?;
            devices.ours.push(made.trim().to_owned());
            devices.paths.push(made.trim().to_owned());
        }
        Ok(devices)
    }
}

impl Drop for Devices<'_> {
    fn drop(&mut self) {
        self.commands.taking_away(|| {
            for device in &self.ours {
                let argv = ["losetup", "--detach", device];
                let _kept_in_the_log = self.commands.run(&argv, "let the loop device go");
            }
        });
    }
}

pub fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|facts| facts.file_type().is_block_device())
}

/// What is needed to measure at all, and for members that are files.
pub fn needs(members: &[PathBuf]) -> Vec<Need> {
    let mut needs = ["fio", "lsblk", "wipefs"].map(Need::program).to_vec();
    if members.iter().any(|member| member.is_file()) {
        needs.extend([Need::program("losetup"), Need::Kernel("loop", "/dev/loop-control")]);
    }
    needs
}
