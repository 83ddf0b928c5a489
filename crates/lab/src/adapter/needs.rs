//! What an engine or a plan needs of this machine, asked before anything is started; and block
//! devices for members that are files: loop devices with direct I/O.
//!
//! What must stay true: everything that is missing is named at once, and nothing is loaded or
//! changed; the loop devices that were made here are let go at the end, whatever happens.

use super::commands::{Commands, Live};
use super::{is_there, word};
use crate::refusal::Refusal;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Need {
    /// A program, by name or path.
    Program(String),
    /// A kernel module, and a file that is there when it is, or a file system's line.
    Kernel(&'static str, &'static str),
}

impl Need {
    pub fn program(name: &str) -> Need {
        Need::Program(name.to_owned())
    }

    fn is_met(&self) -> bool {
        match self {
            Need::Program(name) => is_there(name),
            Need::Kernel(module, sign) => {
                let has_sign = Path::new(sign).exists() || is_file_system(sign);
                has_sign || can_be_loaded(module)
            }
        }
    }

    fn told(&self) -> String {
        match self {
            Need::Program(name) => format!("the program {name}"),
            Need::Kernel(module, _) => format!("{module} in this kernel"),
        }
    }
}

fn is_file_system(name: &str) -> bool {
    let text = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    text.lines().any(|line| line.split_whitespace().last() == Some(name))
}

fn can_be_loaded(module: &str) -> bool {
    let mut command = std::process::Command::new("modprobe");
    let quiet = command.args(["--dry-run", "--quiet", module]).stdin(std::process::Stdio::null());
    quiet.output().is_ok_and(|output| output.status.success())
}

pub fn refuse_missing(mut needs: Vec<Need>) -> Result<(), Refusal> {
    needs.sort();
    needs.dedup();
    let missing: Vec<String> = needs.iter().filter(|need| !need.is_met()).map(Need::told).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let said = format!("missing: {}; nothing was started", missing.join(", "));
    Err(Refusal::cannot_run("needs.missing", said).hint("install what is missing, or leave it out"))
}

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
pub fn of_members(members: &[PathBuf]) -> Vec<Need> {
    let mut needs = ["fio", "lsblk", "wipefs"].map(Need::program).to_vec();
    if members.iter().any(|member| member.is_file()) {
        needs.extend([Need::program("losetup"), Need::Kernel("loop", "/dev/loop-control")]);
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::{Need, refuse_missing};

    #[test]
    fn everything_that_is_missing_is_named_at_once() {
        let needs = ["sh", "no-such-program", "no-such-engine"].map(Need::program);
        let kernel = Need::Kernel("no_such_module", "/sys/module/no_such_module");
        let refusal =
            refuse_missing(needs.into_iter().chain([kernel]).collect()).expect_err("missing");
        let wanted = "missing: the program no-such-engine, the program no-such-program, \
                      no_such_module in this kernel; nothing was started";
        assert_eq!((refusal.message.as_str(), refusal.exit_code()), (wanted, 2));
        assert!(refuse_missing(vec![Need::program("sh"), Need::program("/bin/sh")]).is_ok());
        assert!(refuse_missing(vec![Need::Kernel("x", "proc")]).is_ok());
    }
}
