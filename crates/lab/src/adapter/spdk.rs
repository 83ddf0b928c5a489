//! SPDK's RAID 5 bdev: a target of its own, driven by its RPCs, reached as an NBD device or
//! measured by its own bdevperf.
//!
//! What must stay true: the NBD device is a way into it for fio and costs more than the engine
//! itself; the way says so. Not here: reading what bdevperf prints (bdevperf).

use super::commands::Commands;
use super::{Engine, Served, Wanted, word};
use crate::record::EngineIdentity;
use crate::refusal::Refusal;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// An array of SPDK.
#[derive(Debug)]
pub struct Spdk {
    device: String,
    target: Option<u32>,
    is_made: bool,
    is_served: bool,
}

/// The level that it has, by its own name.
pub const LEVEL: &str = "raid5f";

const ARRAY: &str = "lab";
/// Programs, as its packages install them.
const TARGET: &str = "spdk_tgt";
const RPC: &str = "spdk-rpc";
/// Block size of the members, bytes.
const BLOCK: &str = "4096";
/// How often the target is asked whether it answers, and how long between.
const ASKED_MAX: u32 = 100;
const ASK_EVERY: Duration = Duration::from_millis(100);

impl Spdk {
    /// Served at an NBD device, `/dev/nbd0` if empty.
    pub fn new(device: &str) -> Spdk {
        let device = if device.is_empty() { "/dev/nbd0" } else { device };
        Spdk { device: device.to_owned(), target: None, is_made: false, is_served: false }
    }

    fn start(&mut self, commands: &dyn Commands) -> Result<(), Refusal> {
        self.target = Some(commands.begin(&[TARGET, "-m", "0x1"], "the engine's target")?);
        for _ in 0..ASKED_MAX {
            let asked = commands.run(&[RPC, "spdk_get_version"], "does the target answer?")?;
            if asked.code == Some(0) {
                return Ok(());
            }
            commands.pause(ASK_EVERY);
        }
        let said = "the target of SPDK does not answer; nothing was written";
        Err(Refusal::cannot_run("engine.silent", said, "see spdk_tgt.log in the run directory"))
    }
}

impl Engine for Spdk {
    fn name(&self) -> &'static str {
        "spdk"
    }

    fn identity(&self, commands: &dyn Commands) -> Result<EngineIdentity, Refusal> {
        let kernel = super::btrfs::kernel(commands)?;
        let told = commands.succeed(&[RPC, "spdk_get_version"], "which version")?.stdout;
        let told: serde_json::Value = serde_json::from_str(&told).map_err(|error| {
            Refusal::cannot_run("engine.unreadable", format!("version of SPDK: {error}"), "")
        })?;
        let version = told["version"].as_str().unwrap_or("unknown").to_owned();
        // One reactor polls one core, whatever it does.
        let tunables = BTreeMap::from([("reactors".to_owned(), "1, polling".to_owned())]);
        Ok(EngineIdentity { name: "spdk".to_owned(), version, kernel, tunables })
    }

    fn create(&mut self, commands: &dyn Commands, wanted: &Wanted) -> Result<Served, Refusal> {
        if wanted.level != "raid5" {
            let said = format!("SPDK has no {}; nothing was done", wanted.level);
            return Err(Refusal::new("level.missing", said, "compare at raid5"));
        }
        self.start(commands)?;
        let mut names = Vec::new();
        for (at, member) in wanted.members.iter().enumerate() {
            let name = format!("m{at}");
            let argv = [RPC, "bdev_aio_create", word(member)?, &name, BLOCK];
            commands.succeed(&argv, "a member")?;
            names.push(name);
        }
        let (strip, all) = (format!("{}", wanted.strip_bytes >> 10), names.join(" "));
        let make = [RPC, "bdev_raid_create", "-n", ARRAY, "-z", &strip, "-r", LEVEL, "-b", &all];
        commands.succeed(&make, "make the array")?;
        self.is_made = true;
        commands
            .succeed(&[RPC, "nbd_start_disk", ARRAY, &self.device], "serve it as a block device")?;
        self.is_served = true;
        Ok(Served { path: PathBuf::from(&self.device), way: "an NBD device of SPDK".to_owned() })
    }

    fn take_out(&mut self, commands: &dyn Commands, members: &[usize]) -> Result<(), Refusal> {
        for member in members {
            let name = format!("m{member}");
            commands.succeed(&[RPC, "bdev_raid_remove_base_bdev", &name], "take a member out")?;
        }
        Ok(())
    }

    fn put_in(&mut self, commands: &dyn Commands, member: usize) -> Result<(), Refusal> {
        let name = format!("m{member}");
        let argv = [RPC, "bdev_raid_add_base_bdev", ARRAY, &name];
        commands.succeed(&argv, "put the member in").map(|_| ())
    }

    fn is_busy(&self, commands: &dyn Commands) -> Result<bool, Refusal> {
        let told = commands.succeed(&[RPC, "bdev_raid_get_bdevs", "all"], "is it idle?")?.stdout;
        Ok(told.contains("\"process\""))
    }

    fn destroy(&mut self, commands: &dyn Commands) -> Result<(), Refusal> {
        let mut first = Ok(());
        if std::mem::take(&mut self.is_served) {
            let argv = [RPC, "nbd_stop_disk", &self.device];
            first = commands.succeed(&argv, "let the block device go").map(|_| ());
        }
        if std::mem::take(&mut self.is_made) {
            let argv = [RPC, "bdev_raid_delete", ARRAY];
            first = first.and(commands.succeed(&argv, "take the array away").map(|_| ()));
        }
        if let Some(target) = self.target.take() {
            first = first.and(commands.end(target));
        }
        first
    }
}
