//! Engines behind one interface: make an array, serve it to the load generator, take members out,
//! put them in, tear down.
//!
//! - needs: what is needed of the machine; block devices for members that are files
//! - settings: what engines are set to, and several values to be tried
//! - commands: running programs, or only writing down what an engine would be told
//! - recorded: programs from a transcript, for tests
//! - ashlar, btrfs, mdadm: one engine each
//!
//! What must stay true: whatever an adapter made, `destroy` takes away again, also after a failure
//! halfway; an adapter writes only to the members it was given; it never asks a question on a
//! terminal.

pub mod ashlar;
pub mod btrfs;
pub mod commands;
pub mod mdadm;
pub mod needs;
#[cfg(test)]
pub mod recorded;
pub mod settings;

use crate::record::EngineIdentity;
use crate::refusal::Refusal;
use commands::{Commands, Imagined};
use needs::Need;
use settings::Settings;
use std::path::{Path, PathBuf};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Block devices that become its members.
    pub members: Vec<String>,
    pub level: String,
    pub strip_bytes: u64,
    /// An empty directory of its own, for mount points and sockets.
    pub place: String,
}

/// A RAID engine that the lab can drive. It may be asked from a second thread whether it is busy.
pub trait Engine: Send + Sync {
    /// Name, version, kernel and tunables, read from the engine itself.
    fn identity(&self, commands: &dyn Commands) -> Result<EngineIdentity, Refusal>;

    fn needs(&self) -> Vec<Need>;

    /// A command that prints everything the engine says about the array: for the forensic log,
    /// nothing is read out of it.
    fn configuration(&self) -> Vec<String> {
        Vec::new()
    }

    /// Make the array and serve it: the block device, or the file that is not there yet, for the
    /// load generator.
    ///
    /// # Errors
    /// If the engine refuses; what was made by then is taken away by [`destroy`](Engine::destroy).
    fn create(&mut self, commands: &dyn Commands, wanted: &Wanted) -> Result<PathBuf, Refusal>;

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
        "device" if !rest.is_empty() => Ok(Box::new(HandedOver(PathBuf::from(rest)))),
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

/// A device, or a file, that somebody made by an engine that the lab cannot drive. It is measured
/// as it is and never changed.
struct HandedOver(PathBuf);

impl HandedOver {
    fn unknown(how: &str) -> Result<(), Refusal> {
        let said = "the lab does not know what stands behind a device that was handed over";
        let hint = format!("{how} by that engine's own means and measure again");
        Err(Refusal::new("engine.cannot", said).hint(hint))
    }
}

impl Engine for HandedOver {
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    fn identity(&self, commands: &dyn Commands) -> Result<EngineIdentity, Refusal> {
        identity(commands, "device", Some(self.0.display().to_string()), Settings::new())
    }

    fn create(&mut self, _commands: &dyn Commands, _wanted: &Wanted) -> Result<PathBuf, Refusal> {
        if !self.0.exists() {
            let said = format!("{} does not exist; nothing was done", self.0.display());
            return Err(Refusal::cannot_run("device.missing", said)
                .hint("name a device or a file that is there"));
        }
        Ok(self.0.clone())
    }

    fn take_out(&mut self, _commands: &dyn Commands, _members: &[usize]) -> Result<(), Refusal> {
        HandedOver::unknown("take members out")
    }

    fn put_in(&mut self, _commands: &dyn Commands, _member: usize) -> Result<(), Refusal> {
        HandedOver::unknown("put members in")
    }

    fn is_busy(&self, _commands: &dyn Commands) -> Result<bool, Refusal> {
        Ok(false)
    }

    fn destroy(&mut self, _commands: &dyn Commands) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Whose identity it is; an engine of the kernel has the kernel's version.
fn identity(
    commands: &dyn Commands,
    name: &str,
    version: Option<String>,
    tunables: Settings,
) -> Result<EngineIdentity, Refusal> {
    let kernel = commands.succeed(&["uname", "-r"], "which kernel")?.trim().to_owned();
    let version = version.unwrap_or_else(|| kernel.clone());
    Ok(EngineIdentity { name: name.to_owned(), version, kernel, tunables })
}

/// Which members are out when `out` of them are: every third one, so that neighbours stay.
pub fn lost(out: std::ops::Range<usize>, members: usize) -> Vec<usize> {
    out.map(|at| at * 3 % members.max(1)).collect()
}

/// What the engine called `name` would be told: to make the array, to take `out` members out, to
/// take the array away.
pub fn told(name: &str, wanted: &Wanted, out: usize) -> Result<Vec<String>, Refusal> {
    let (commands, mut engine) = (Imagined::default(), by_name(name)?);
    engine.create(&commands, wanted)?;
    if out > 0 {
        engine.take_out(&commands, &lost(0..out, wanted.members.len()))?;
    }
    engine.destroy(&commands)?;
    Ok(commands.lines.into_inner())
}

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

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

#[cfg(test)]
mod tests {
    use super::{Wanted, told};

    #[test]
    fn every_engine_says_what_it_would_do_without_doing_it() {
        let wanted = Wanted {
            members: ["/dev/a", "/dev/b", "/dev/c", "/dev/d", "/dev/e"].map(str::to_owned).into(),
            level: "raid6".into(),
            strip_bytes: 65_536,
            place: "/nowhere".into(),
        };
        for (engine, first, last) in [
            ("mdadm", "mdadm --create /dev/md/lab", "--zero-superblock /dev/e"),
            ("btrfs", "mkfs.btrfs", "wipefs -a -q /dev/e"),
            ("ashlar", "serve --fuse", "kill DAEMON"),
        ] {
            let lines = told(engine, &wanted, 1).expect(engine);
            assert!(lines[0].contains(first) || lines[1].contains(first), "{engine}: {lines:?}");
            assert!(lines.last().is_some_and(|line| line.ends_with(last)), "{engine}: {lines:?}");
        }
        assert_eq!(told("hardware", &wanted, 0).expect_err("unknown").code, "engine.unknown");
    }
}
