//! Engines behind one interface: make an array, serve it to the load generator, take members out,
//! put them in, tear down.
//!
//! - needs: what is needed of the machine
//! - settings: what engines are set to, and several values to be tried
//! - imagined: what an engine would be told, for a dry run
//! - loops: block devices for members that are files
//! - commands: running programs, through the forensic log
//! - recorded: programs from a transcript, for tests
//! - ashlar, btrfs, mdadm, device: one engine each
//!
//! What must stay true: whatever an adapter made, `destroy` takes away again, also after a failure
//! halfway; an adapter writes only to the members it was given; it never asks a question on a
//! terminal.

pub mod ashlar;
pub mod btrfs;
pub mod commands;
pub mod device;
pub mod imagined;
pub mod loops;
pub mod mdadm;
pub mod needs;
#[cfg(test)]
pub mod recorded;
pub mod settings;

use crate::record::EngineIdentity;
use crate::refusal::Refusal;
use commands::Commands;
use needs::Need;
use std::path::{Path, PathBuf};

/// An array to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Block devices that become its members.
    pub members: Vec<PathBuf>,
    /// `raid0`, `raid1`, `raid5`, `raid6`, `raid10`.
    pub level: String,
    /// Strip size, bytes.
    pub strip_bytes: u64,
    /// An empty directory of its own, for mount points and sockets.
    pub place: PathBuf,
}

/// What the load generator is to open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Served {
    /// A block device, or a file that does not exist yet.
    pub path: PathBuf,
    /// What lies between the load generator and the array: `XFS on a loop device on FUSE`.
    pub way: String,
}

/// A RAID engine that the lab can drive. It may be asked from a second thread whether it is busy.
pub trait Engine: Send + Sync {
    /// Name, version, kernel and tunables, read from the engine itself.
    fn identity(&self, commands: &dyn Commands) -> Result<EngineIdentity, Refusal>;

    /// What it needs of the machine.
    fn needs(&self) -> Vec<Need>;

    /// Commands that print everything the engine says about the array: for the forensic log,
    /// nothing is read out of it.
    fn configuration(&self) -> Vec<Vec<String>> {
        Vec::new()
    }

    /// Make the array and serve it.
    ///
    /// # Errors
    /// If the engine refuses; what was made by then is taken away by [`destroy`](Engine::destroy).
    fn create(&mut self, commands: &dyn Commands, wanted: &Wanted) -> Result<Served, Refusal>;

    /// Take members out while the array is served, so that its next I/Os are degraded ones.
    fn take_out(&mut self, commands: &dyn Commands, members: &[usize]) -> Result<(), Refusal>;

    /// Put a blank device in where `member` was taken out: the same one, wiped. A rebuild begins,
    /// and goes on afterwards.
    fn put_in(&mut self, commands: &dyn Commands, member: usize) -> Result<(), Refusal>;

    /// Whether background work (resync, rebuild, scrub) goes on.
    fn is_busy(&self, commands: &dyn Commands) -> Result<bool, Refusal>;

    /// Take everything away again. Goes on after a failed step; members may be used by others
    /// afterwards.
    fn destroy(&mut self, commands: &dyn Commands) -> Result<(), Refusal>;
}

/// The adapter called `name`.
pub fn by_name(name: &str) -> Result<Box<dyn Engine>, Refusal> {
    let (kind, rest) = name.split_once(':').unwrap_or((name, ""));
    match kind {
        "ashlar" if rest.contains('=') => {
            let policy = settings::parse(rest, &["policy"])?.remove("policy").unwrap_or_default();
            Ok(Box::new(ashlar::Ashlar::new(&policy)))
        }
        "ashlar" => Ok(Box::new(ashlar::Ashlar::new(rest))),
        "btrfs" => Ok(Box::new(btrfs::Btrfs::set(settings::parse(rest, &["mount"])?))),
        "mdadm" => Ok(Box::new(mdadm::Mdadm::set(settings::parse(rest, &[])?))),
        "device" if !rest.is_empty() => Ok(Box::new(device::HandedOver::new(Path::new(rest)))),
        _ => Err(Refusal::cannot_run(
            "engine.unknown",
            format!("'{name}' is no engine that the lab can drive; nothing was done"),
        )
        .hint(
            "say ashlar, ashlar:POLICY, btrfs, mdadm or device:PATH; \
             settings follow as mdadm:group_thread_cnt=64",
        )),
    }
}

/// Write down everything that `engine` says about its array. What it does not say is no fault.
pub fn keep_configuration(engine: &dyn Engine, commands: &dyn Commands) -> Result<(), Refusal> {
    for argv in engine.configuration() {
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        commands.run(&argv, "the array's whole configuration")?;
    }
    Ok(())
}

/// The words of a command line.
pub(crate) fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

/// Run all of `steps`, whatever becomes of each; the first failure is the answer.
pub(crate) fn run_all(commands: &dyn Commands, steps: &[(&[&str], &str)]) -> Result<(), Refusal> {
    let mut first = Ok(());
    for (argv, why) in steps {
        let ran = commands.succeed(argv, why).map(|_| ());
        if first.is_ok() {
            first = ran;
        }
    }
    first
}

/// Whether a program is there to be started.
pub fn is_there(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A path as a word of a command line.
pub(crate) fn word(path: &Path) -> Result<&str, Refusal> {
    path.to_str().ok_or_else(|| {
        let said = format!("{}: the name is not UTF-8; nothing was done", path.display());
        Refusal::cannot_run("path.not_utf8", said).hint("give it another name")
    })
}
