//! What is known of drives besides their data: the lights of their bays, and their health.
//!
//! - here      the programs that are asked, and how
//! - `light`   lights of bays
//! - `health`  what smartctl or nvme say of a drive, read
//! - `watch`   asks for the health of all drives again and again, and tells what changed
//!
//! What must stay true: a program that is missing is said, and no fault. A program gets a path and
//! fixed words, and ends after a time limit with all that it started. No array waits for it.

pub mod health;
pub mod light;
pub mod watch;

use crate::config::DrivesConfig;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::time::Instant;

/// How often to look whether a program has ended.
const POLL: Duration = Duration::from_millis(20);
/// More than this a program does not say, in bytes.
const SAID_MAX: u64 = 4 << 20;

/// The programs, and where the kernel's files are.
#[derive(Clone, Debug)]
pub struct Tools {
    /// Switches lights for which the kernel has no file.
    pub ledctl: PathBuf,
    /// Knows the health of all kinds of drives.
    pub smartctl: PathBuf,
    /// Knows the health of NVMe drives.
    pub nvme: PathBuf,
    /// Where sysfs is.
    pub sys: PathBuf,
    /// The time for one program.
    pub time_max: Duration,
}

impl Tools {
    /// Those of the configuration.
    pub fn of(config: &DrivesConfig) -> Tools {
        let named =
            |own: &Option<PathBuf>, usual: &str| own.clone().unwrap_or_else(|| usual.into());
        Tools {
            ledctl: named(&config.ledctl, "ledctl"),
            smartctl: named(&config.smartctl, "smartctl"),
            nvme: named(&config.nvme, "nvme"),
            sys: PathBuf::from("/sys"),
            time_max: Duration::from_secs(30),
        }
    }

    /// What the program says on its standard output, and its exit code.
    ///
    /// # Errors
    /// It is missing, or did not end in time.
    fn run(&self, program: &Path, arguments: &[&str]) -> Result<(String, i32), Failed> {
        let mut command = Command::new(program);
        command.args(arguments).env("LC_ALL", "C").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failed::Missing,
            _ => Failed::Broken(format!("{}: {error}", program.display())),
        })?;
        let said = listen(&mut child);
        let until = Instant::now() + self.time_max;
        let code = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status.code().unwrap_or(-1),
                Ok(None) if Instant::now() < until => std::thread::sleep(POLL),
                Ok(None) | Err(_) => return Err(end(&mut child, program)),
            }
        };
        let said = said.and_then(|said| said.join().ok()).unwrap_or_default();
        Ok((String::from_utf8_lossy(&said).into_owned(), code))
    }
}

/// Why a program said nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failed {
    /// It is not installed.
    Missing,
    /// One line.
    Broken(String),
}

/// The program has had its time.
fn end(child: &mut Child, program: &Path) -> Failed {
    let _gone = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _reaped = child.wait();
    Failed::Broken(format!("{} did not end in time", program.display()))
}

/// Reads aside, so that a program that says much does not wait for us.
fn listen(child: &mut Child) -> Option<JoinHandle<Vec<u8>>> {
    let pipe = child.stdout.take()?;
    let read = move || {
        let mut said = Vec::new();
        let _cut = pipe.take(SAID_MAX).read_to_end(&mut said);
        said
    };
    std::thread::Builder::new().name("ashlar-drives".to_owned()).spawn(read).ok()
}

#[cfg(test)]
mod tests {
    use super::{Failed, Tools};
    use crate::config::DrivesConfig;
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn a_program_is_missing_or_ends_or_is_ended() {
        let mut tools = Tools::of(&DrivesConfig::default());
        let shell = Path::new("/bin/sh");
        let ran = tools.run(shell, &["-c", "echo a b; exit 4"]);
        assert_eq!(ran, Ok(("a b\n".to_owned(), 4)));
        assert_eq!(tools.run(Path::new("/nowhere/x"), &[]), Err(Failed::Missing));
        tools.time_max = Duration::ZERO;
        let Err(Failed::Broken(why)) = tools.run(shell, &["-c", "sleep 1000"]) else {
            panic!("it was not ended");
        };
        assert_eq!(why, "/bin/sh did not end in time");
    }
}
