//! Ashlar through its own command line: a daemon of its own, a FUSE + loop block device, XFS on it.

use super::commands::Commands;
use super::needs::Need;
use super::{Engine, Served, Wanted, word, words};
use crate::record::EngineIdentity;
use crate::refusal::Refusal;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// An array of Ashlar.
#[derive(Debug, Default)]
pub struct Ashlar {
    policy: String,
    program: String,
    socket: String,
    members: Vec<PathBuf>,
    daemon: Option<u32>,
    is_made: bool,
    is_attached: bool,
    mounted: Option<PathBuf>,
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

    /// As [`new`](Ashlar::new), with the program to run.
    pub fn with_program(program: &str, policy: &str) -> Ashlar {
        Ashlar { policy: policy.to_owned(), program: program.to_owned(), ..Ashlar::default() }
    }

    fn ask(&self, commands: &dyn Commands, words: &[&str], why: &str) -> Result<String, Refusal> {
        let mut argv = vec![self.program.as_str(), "--socket", &self.socket];
        argv.extend(words);
        Ok(commands.succeed(&argv, why)?.stdout)
    }

    fn start_daemon(&mut self, commands: &dyn Commands, wanted: &Wanted) -> Result<(), Refusal> {
        let socket = wanted.place.join("ashlar.sock");
        word(&socket)?.clone_into(&mut self.socket);
        let volumes = wanted.place.join("volumes");
        let argv = [&self.program, "--socket", &self.socket, "serve", "--fuse", word(&volumes)?];
        self.daemon = Some(commands.begin(&argv, "the engine's daemon")?);
        for _ in 0..ASKED_MAX {
            let argv = [self.program.as_str(), "--socket", &self.socket, "status", "--json"];
            if commands.run(&argv, "does the daemon answer?")?.code == Some(0) {
                return Ok(());
            }
            commands.pause(ASK_EVERY);
        }
        let said = "the daemon of ashlar does not answer; nothing was written";
        Err(Refusal::cannot_run("engine.silent", said).hint("see ashlar.log in the run directory"))
    }
}

/// Strips of a stripe that hold data.
fn data_strips(wanted: &Wanted) -> usize {
    let members = wanted.members.len();
    match wanted.level.as_str() {
        "raid1" => 1,
        "raid5" => members - 1,
        "raid6" => members - 2,
        "raid10" => members / 2,
        _ => members,
    }
}

impl Engine for Ashlar {
    fn needs(&self) -> Vec<Need> {
        vec![
            Need::program(&self.program),
            Need::program("mkfs.xfs"),
            Need::program("wipefs"),
            Need::Kernel("fuse", "fuse"),
            Need::Kernel("loop", "/dev/loop-control"),
            Need::Kernel("xfs", "xfs"),
        ]
    }

    fn identity(&self, commands: &dyn Commands) -> Result<EngineIdentity, Refusal> {
        let told = commands.succeed(&[&self.program, "--version"], "which version")?.stdout;
        let version = told.split_whitespace().nth(1).unwrap_or("unknown").to_owned();
        let mut tunables = BTreeMap::new();
        if !self.policy.is_empty() {
            tunables.insert("policy".to_owned(), self.policy.clone());
        }
        Ok(EngineIdentity {
            name: "ashlar".to_owned(),
            version,
            kernel: super::btrfs::kernel(commands)?,
            tunables,
        })
    }

    fn configuration(&self) -> Vec<Vec<String>> {
        vec![words(&[&self.program, "--socket", &self.socket, "status", ARRAY, "--json"])]
    }

    fn create(&mut self, commands: &dyn Commands, wanted: &Wanted) -> Result<Served, Refusal> {
        self.members.clone_from(&wanted.members);
        self.start_daemon(commands, wanted)?;
        let strip = format!("{}", wanted.strip_bytes);
        let mut words = vec![
            "create",
            ARRAY,
            "--level",
            wanted.level.trim_start_matches("raid"),
            "--strip-size",
            &strip,
            // Every engine has the same devices.
            "--whole",
        ];
        if !self.policy.is_empty() {
            words.extend(["--policy", &self.policy]);
        }
        for member in &wanted.members {
            words.extend(["--destroy", word(member)?]);
        }
        for member in &wanted.members {
            words.push(word(member)?);
        }
        self.ask(commands, &words, "make the array")?;
        self.is_made = true;
        let device = self.ask(commands, &["attach", ARRAY], "serve it as a block device")?;
        let device = device.trim();
        self.is_attached = true;
        let files = wanted.place.join("files");
        // XFS asks a block device for its stripes, and a loop device does not know them: they have
        // to be said, as `docs/operating.md` tells everybody. Without them a write of one stripe
        // goes across two.
        let stripe = format!("su={strip},sw={}", data_strips(wanted));
        commands.succeed(
            &["mkfs.xfs", "-q", "-f", "-d", &stripe, device],
            "a file system, as the other engine has one; it is told of the stripes",
        )?;
        commands.succeed(&["mkdir", "-p", word(&files)?], "a place to mount it")?;
        let mount = ["mount", "-o", "swalloc", device, word(&files)?];
        commands.succeed(&mount, "mount it; files begin at stripes")?;
        self.mounted = Some(files.clone());
        Ok(Served {
            path: files.join("load"),
            way: "a file on XFS (told of the stripes) on a loop device on FUSE".to_owned(),
        })
    }

    fn take_out(&mut self, commands: &dyn Commands, members: &[usize]) -> Result<(), Refusal> {
        for member in members {
            self.ask(commands, &["fail", ARRAY, &member.to_string()], "take a member out")?;
        }
        Ok(())
    }

    fn put_in(&mut self, commands: &dyn Commands, member: usize) -> Result<(), Refusal> {
        let device = word(&self.members[member])?.to_owned();
        commands.succeed(&["wipefs", "-a", "-q", &device], "as blank as a new one")?;
        let slot = member.to_string();
        self.ask(
            commands,
            &["replace", ARRAY, &slot, &device, "--whole", "--destroy", &device],
            "put a blank member in",
        )
        .map(|_| ())
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
        let mut keep = |done: Result<(), Refusal>| {
            if first.is_ok() {
                first = done;
            }
        };
        if let Some(files) = self.mounted.take() {
            keep(
                word(&files).and_then(|files| {
                    commands.succeed(&["umount", files], "unmount it").map(|_| ())
                }),
            );
        }
        if std::mem::take(&mut self.is_attached) {
            keep(self.ask(commands, &["detach", ARRAY], "let the block device go").map(|_| ()));
        }
        if std::mem::take(&mut self.is_made) {
            keep(self.ask(commands, &["stop", ARRAY], "stop the array").map(|_| ()));
        }
        if let Some(daemon) = self.daemon.take() {
            keep(commands.end(daemon));
        }
        first
    }
}
