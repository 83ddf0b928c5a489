//! Ashlar through its own command line: a daemon of its own, a FUSE + loop block device, XFS on it.

use super::commands::Commands;
use super::needs::Need;
use super::settings::Settings;
use super::{Engine, Wanted, identity, words};
use crate::record::EngineIdentity;
use crate::refusal::Refusal;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Default)]
pub struct Ashlar {
    policy: String,
    program: String,
    socket: String,
    members: Vec<String>,
    daemon: Option<u32>,
    is_made: bool,
    is_attached: bool,
    mounted: Option<String>,
}

const ARRAY: &str = "lab";

/// `ashlar` where this program lies; it may be this program.
fn beside() -> Option<String> {
    let path = std::env::current_exe().ok()?.with_file_name("ashlar");
    path.is_file().then(|| path.to_str().map(str::to_owned))?
}

/// How often the daemon is asked whether it answers, and how long between.
const ASKED_MAX: u32 = 100;
const ASK_EVERY: Duration = Duration::from_millis(100);

impl Ashlar {
    /// With a consistency policy (`log`, `bitmap`, `none`), or the default one if empty. The
    /// program is what the environment names as `ASHLAR`, this program if it is `ashlar`, the one
    /// beside it, or the one of the `PATH`.
    pub fn new(policy: &str) -> Ashlar {
        let named = std::env::var("ASHLAR").ok();
        let program = named.or_else(beside).unwrap_or_else(|| "ashlar".to_owned());
        Ashlar::with_program(&program, policy)
    }

    pub fn with_program(program: &str, policy: &str) -> Ashlar {
        Ashlar { policy: policy.to_owned(), program: program.to_owned(), ..Ashlar::default() }
    }

    fn argv<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        [&[self.program.as_str(), "--socket", &self.socket], words].concat()
    }

    fn ask(&self, commands: &dyn Commands, words: &[&str], why: &str) -> Result<String, Refusal> {
        commands.succeed(&self.argv(words), why)
    }

    fn start_daemon(&mut self, commands: &dyn Commands, place: &str) -> Result<(), Refusal> {
        self.socket = format!("{place}/ashlar.sock");
        let volumes = format!("{place}/volumes");
        let argv = self.argv(&["serve", "--fuse", &volumes]);
        self.daemon = Some(commands.begin(&argv, "the engine's daemon")?);
        for _ in 0..ASKED_MAX {
            let argv = self.argv(&["status", "--json"]);
            if commands.run(&argv, "does the daemon answer?")?.code == Some(0) {
                return Ok(());
            }
            commands.pause(ASK_EVERY);
        }
        let said = "the daemon of ashlar does not answer; nothing was written";
        Err(Refusal::cannot_run("engine.silent", said).hint("see ashlar.log in the run directory"))
    }
}

impl Engine for Ashlar {
    fn needs(&self) -> Vec<Need> {
        let programs = [self.program.as_str(), "mkfs.xfs", "wipefs"].map(Need::program);
        let kernel = [("fuse", "fuse"), ("loop", "/dev/loop-control"), ("xfs", "xfs")];
        programs.into_iter().chain(kernel.map(|it| Need::Kernel(it.0, it.1))).collect()
    }

    fn identity(&self, commands: &dyn Commands) -> Result<EngineIdentity, Refusal> {
        let told = commands.succeed(&[&self.program, "--version"], "which version")?;
        let version = told.split_whitespace().nth(1).unwrap_or("unknown").to_owned();
        let policy = Some(&self.policy).filter(|policy| !policy.is_empty());
        let set: Settings =
            policy.map(|it| ("policy".to_owned(), it.clone())).into_iter().collect();
        identity(commands, "ashlar", Some(version), set)
    }

    fn configuration(&self) -> Vec<String> {
        words(&self.argv(&["status", ARRAY, "--json"]))
    }

    fn create(&mut self, commands: &dyn Commands, wanted: &Wanted) -> Result<PathBuf, Refusal> {
        self.members.clone_from(&wanted.members);
        self.start_daemon(commands, &wanted.place)?;
        let (level, strip) = (wanted.level.trim_start_matches("raid"), wanted.strip_bytes);
        let strip = strip.to_string();
        // Every engine has the same devices: whole ones.
        let mut words = vec!["create", ARRAY, "--level", level, "--strip-size", &strip, "--whole"];
        if !self.policy.is_empty() {
            words.extend(["--policy", &self.policy]);
        }
        words.extend(self.members.iter().flat_map(|member| ["--destroy", member]));
        words.extend(self.members.iter().map(String::as_str));
        self.ask(commands, &words, "make the array")?;
        self.is_made = true;
        let device = self.ask(commands, &["attach", ARRAY], "serve it as a block device")?;
        self.is_attached = true;
        let (device, files) = (device.trim(), format!("{}/files", wanted.place));
        // XFS asks a block device for its stripes, and a loop device does not know them: they have
        // to be said, as `docs/operating.md` tells everybody. Without them a write of one stripe
        // goes across two.
        let parity = if wanted.level == "raid5" { 1 } else { 2 };
        let stripe = format!("su={strip},sw={}", wanted.members.len().saturating_sub(parity));
        commands.done(
            &["mkfs.xfs", "-q", "-f", "-d", &stripe, device],
            "a file system, as the other engine has one; it is told of the stripes",
        )?;
        commands.done(&["mkdir", "-p", &files], "a place to mount it")?;
        let mount = ["mount", "-o", "swalloc", device, &files];
        commands.done(&mount, "mount it; files begin at stripes")?;
        let load = PathBuf::from(&files).join("load");
        self.mounted = Some(files);
        Ok(load)
    }

    fn take_out(&mut self, commands: &dyn Commands, members: &[usize]) -> Result<(), Refusal> {
        members.iter().try_for_each(|member| {
            self.ask(commands, &["fail", ARRAY, &member.to_string()], "take a member out").map(drop)
        })
    }

    fn put_in(&mut self, commands: &dyn Commands, member: usize) -> Result<(), Refusal> {
        let (device, slot) = (self.members[member].as_str(), member.to_string());
        commands.done(&["wipefs", "-a", "-q", device], "as blank as a new one")?;
        let words = ["replace", ARRAY, &slot, device, "--whole", "--destroy", device];
        self.ask(commands, &words, "put a blank member in").map(drop)
    }

    fn is_busy(&self, commands: &dyn Commands) -> Result<bool, Refusal> {
        let status = self.ask(commands, &["status", ARRAY, "--json"], "is it idle?")?;
        let status: serde_json::Value = serde_json::from_str(&status).map_err(|error| {
            Refusal::cannot_run("engine.unreadable", format!("status of ashlar: {error}"))
        })?;
        Ok(status["arrays"][0]["jobs"].as_array().is_some_and(|jobs| !jobs.is_empty()))
    }

    fn destroy(&mut self, commands: &dyn Commands) -> Result<(), Refusal> {
        let mut first = Ok(());
        if let Some(files) = self.mounted.take() {
            first = commands.done(&["umount", &files], "unmount it");
        }
        for (stands, verb, why) in [
            (std::mem::take(&mut self.is_attached), "detach", "let the block device go"),
            (std::mem::take(&mut self.is_made), "stop", "stop the array"),
        ] {
            if stands {
                first = first.and(self.ask(commands, &[verb, ARRAY], why).map(drop));
            }
        }
        first.and(self.daemon.take().map_or(Ok(()), |daemon| commands.end(daemon)))
    }
}
