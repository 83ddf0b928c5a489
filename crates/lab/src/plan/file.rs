//! The plan, in TOML.
//!
//! - kind: kinds of stages
//! - arrays: what arrays must be beside each other and for their stages
//!
//! What must stay true: a misspelt key is an error, not a default.

mod arrays;
mod kind;

pub use kind::Kind;

use crate::Refusal;
use crate::fio::value;
use crate::metrics::baseline::Code;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is to be measured.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The question that the run answers.
    pub question: String,
    /// How long each point is measured, seconds: it wins over what a profile says. If the plan does
    /// not say it, the profile's own time counts, or 60.
    pub runtime_s: Option<u64>,
    /// How long each point warms up before, seconds.
    #[serde(default = "ramp_s")]
    pub ramp_s: u64,
    /// fio's engine for I/O.
    #[serde(default = "ioengine")]
    pub ioengine: String,
    /// Raw drives, block devices or files.
    #[serde(default)]
    pub drives: Vec<PathBuf>,
    /// How much of each drive is written and measured: `10g`; all of it if the plan does not say
    /// it.
    pub drive_span: Option<String>,
    /// Arrays that are there already.
    #[serde(default)]
    pub arrays: Vec<Array>,
    /// Own profiles: name -> fio job file, relative to the plan.
    #[serde(default)]
    pub profiles: BTreeMap<String, PathBuf>,
    /// What to do, in order.
    pub stages: Vec<Stage>,
}

/// An array to be measured.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Array {
    /// Its block device or file, if it is there already.
    #[serde(default)]
    pub path: PathBuf,
    /// Devices or files of which the lab makes it, and takes it away again. Their content is lost.
    #[serde(default)]
    pub members: Vec<PathBuf>,
    /// Tells an array that the lab makes from another one of the same engine and level.
    pub name: Option<String>,
    /// RAID level of an array that the lab makes: `raid5` or `raid6`.
    #[serde(default = "raid6")]
    pub level: String,
    /// How much of an array that the lab makes, or of a file on a file system, is written and
    /// measured: `10g`.
    pub span: Option<String>,
    /// Which engine made it: `mdadm`, `ashlar`.
    #[serde(default = "device")]
    pub engine: String,
    /// The engine's version.
    #[serde(default)]
    pub version: String,
    /// What was set away from the default, by name.
    #[serde(default)]
    pub tunables: BTreeMap<String, String>,
    /// A file system that the stage `file-system` makes on it: `ext4` or `xfs`. What is on the
    /// array is lost.
    pub file_system: Option<FileSystem>,
    /// How full that file system is before it is measured, percent; 70 if the plan does not say it.
    pub fill_percent: Option<u32>,
    /// Strip size: `64k`.
    pub strip: Option<String>,
    /// Members that hold data in one stripe.
    pub data_members: Option<u32>,
    /// Members that hold parity in one stripe; with more members they are several groups side by
    /// side.
    pub parity_members: Option<u32>,
    /// Drives of the plan that stand by and hold nothing.
    #[serde(default)]
    pub spares: u32,
    /// Stripes lie on changing members, and are narrower than the array.
    #[serde(default)]
    pub declustered: bool,
    /// Commands that come before the lab makes it: a setting that is compared.
    #[serde(default)]
    pub set: Vec<Vec<String>>,
    /// Commands that take the setting back, after it was taken away.
    #[serde(default)]
    pub unset: Vec<Vec<String>>,
    /// Commands that each take one more member out.
    #[serde(default)]
    pub take_out: Vec<Vec<String>>,
    /// Commands that put the members back.
    #[serde(default)]
    pub restore: Vec<Vec<String>>,
    /// Commands that begin a rebuild.
    #[serde(default)]
    pub rebuild: Vec<Vec<String>>,
}

/// A file system that the lab makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// With its inode tables and journal written at once, so that nothing is initialised behind the
    /// measurements.
    Ext4,
    /// As its maker's defaults are.
    Xfs,
}

impl FileSystem {
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
        }
    }

    /// The command that makes it, without the device. It discards nothing: the drives stay as they
    /// were preconditioned.
    pub fn make(self) -> Vec<&'static str> {
        match self {
            FileSystem::Ext4 => {
                let options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
                vec!["mkfs.ext4", "-q", "-F", "-E", options]
            }
            FileSystem::Xfs => vec!["mkfs.xfs", "-q", "-f", "-K"],
        }
    }
}

/// One thing to do.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    pub kind: Kind,
    /// Workloads; those that ship, or own ones.
    #[serde(default)]
    pub profiles: Vec<String>,
    /// I/O depths.
    #[serde(default = "depths")]
    pub depths: Vec<u32>,
    /// Numbers of jobs.
    #[serde(default = "one")]
    pub jobs: Vec<u32>,
    /// How often each point is measured; with `steady`, at most.
    #[serde(default = "rounds")]
    pub rounds: u32,
    /// Measure rounds until the SNIA criteria of steady state hold.
    #[serde(default)]
    pub steady: bool,
    /// Members that the stage `compare` takes out in the second half of each turn.
    #[serde(default)]
    pub losses: u32,
    /// How long each point is measured, seconds, if not as in the plan.
    pub runtime_s: Option<u64>,
    /// Sizes of the working set: `1g`; of a block, in the stage `block-sizes`.
    #[serde(default)]
    pub sizes: Vec<String>,
}

/// Seconds of a point for which neither plan nor profile say how long.
pub const RUNTIME_S: u64 = 60;

fn ramp_s() -> u64 {
    5
}

fn ioengine() -> String {
    "io_uring".to_owned()
}

fn device() -> String {
    "device".to_owned()
}

fn raid6() -> String {
    "raid6".to_owned()
}

fn depths() -> Vec<u32> {
    vec![32]
}

fn one() -> Vec<u32> {
    vec![1]
}

fn rounds() -> u32 {
    1
}

impl Plan {
    pub fn parse(text: &str) -> Result<Plan, Refusal> {
        let plan: Plan = toml::from_str(text).map_err(|error| {
            let at = error
                .span()
                .map_or(0, |span| text[..span.start.min(text.len())].lines().count().max(1));
            refused(format!("line {at}: {}", error.message()))
        })?;
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), Refusal> {
        let counts = self
            .stages
            .iter()
            .flat_map(|stage| stage.depths.iter().chain(&stage.jobs).chain([&stage.rounds]));
        if counts.into_iter().any(|count| *count == 0) {
            return Err(refused("depths, jobs and rounds are 1 or more".to_owned()));
        }
        if self.runtime_s == Some(0) || self.stages.is_empty() {
            return Err(refused("a plan needs a stage, and a runtime_s of 1 or more".to_owned()));
        }
        super::profile::check_engine(&self.ioengine)?;
        self.arrays.iter().try_for_each(Array::check)?;
        arrays::check(self)?;
        super::stripes::check(self)?;
        let strips = self.arrays.iter().filter_map(|array| array.strip.as_deref());
        let spans = self.arrays.iter().filter_map(|array| array.span.as_deref());
        let spans = spans.chain(self.drive_span.as_deref());
        let sizes = self.stages.iter().flat_map(|stage| stage.sizes.iter().map(String::as_str));
        match strips
            .chain(spans)
            .chain(sizes)
            .find(|text| value::bytes(text).is_none_or(|bytes| bytes == 0))
        {
            Some(text) => Err(refused(format!("'{text}' is no size such as 64k"))),
            None => Ok(()),
        }
    }
}

impl Array {
    fn check(&self) -> Result<(), Refusal> {
        if !(1..=95).contains(&self.fill_percent()) {
            return Err(refused("fill_percent is 1 to 95".to_owned()));
        }
        let is_named = !self.path.as_os_str().is_empty();
        if is_named == self.is_made() {
            return Err(refused("an array has either a path or members".to_owned()));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_name = |name: &String| !name.is_empty() && name.chars().all(is_plain);
        if !self.name.as_ref().is_none_or(|name| self.is_made() && is_name(name)) {
            let said = "name is for an array that the lab makes: letters, digits, '-', '_' and '.'";
            return Err(refused(said.to_owned()));
        }
        if !self.is_made() {
            return match self.set.is_empty() && self.unset.is_empty() {
                true => Ok(()),
                false => Err(refused("set and unset are for arrays that the lab makes".to_owned())),
            };
        }
        crate::adapter::by_name(&self.engine)?;
        let hooks = [&self.take_out, &self.restore, &self.rebuild];
        if hooks.iter().any(|commands| !commands.is_empty()) {
            let said = "an array that the lab makes is degraded and rebuilt by the lab: \
                        no take_out, restore or rebuild";
            return Err(refused(said.to_owned()));
        }
        match self.code() {
            Some(_) => Ok(()),
            None if self.is_handed_over() => Ok(()),
            None => Err(refused(format!(
                "{} members are no {} that the lab can make: raid5 from 3, raid6 from 4 members; \
                 give an existing array by its path",
                self.members.len(),
                self.level
            ))),
        }
    }

    /// Whether the lab makes it.
    pub fn is_made(&self) -> bool {
        !self.members.is_empty()
    }

    /// Whether the plan says which drives are below it, one of `arrays`: the drives of the plan may
    /// be those of any array that is there already.
    pub fn has_its_drives(&self, arrays: &[Array]) -> bool {
        self.is_made() || arrays.iter().filter(|it| !it.is_made()).count() == 1
    }

    /// Whether it is a device that somebody else made: filled and measured as it is.
    pub fn is_handed_over(&self) -> bool {
        self.engine.starts_with("device:")
    }

    /// What it is called in records.
    pub fn name(&self) -> String {
        self.target_path().display().to_string()
    }

    /// Its path; `made/NAME` or `made/ENGINE/LEVEL` for one that the lab makes.
    pub fn target_path(&self) -> PathBuf {
        if self.is_made() {
            match &self.name {
                Some(name) => PathBuf::from(format!("made/{name}")),
                None => PathBuf::from(format!("made/{}/{}", self.engine, self.level)),
            }
        } else {
            self.path.clone()
        }
    }

    /// Data and parity members, if they are known.
    pub fn code(&self) -> Option<Code> {
        if self.is_handed_over() {
            return None;
        }
        let parity = match self.level.as_str() {
            "raid5" => 1,
            "raid6" => 2,
            _ => return None,
        };
        let members = u32::try_from(self.members.len()).ok()?;
        (members >= parity + 2).then(|| Code { data: members - parity, parity })
    }

    /// Strip size, bytes; 64 KiB if the plan does not say it.
    pub fn strip_bytes(&self) -> u64 {
        self.strip.as_deref().and_then(value::bytes).unwrap_or(64 << 10)
    }

    /// How much of an array that the lab makes is measured, bytes; 1 GiB if the plan does not say
    /// it.
    pub fn span_bytes(&self) -> u64 {
        self.span.as_deref().and_then(value::bytes).unwrap_or(1 << 30)
    }

    /// How full its file system is before it is measured, percent.
    pub fn fill_percent(&self) -> u32 {
        self.fill_percent.unwrap_or(70)
    }

    /// Data of a full stripe, bytes, if the plan says it.
    pub fn stripe_data_bytes(&self) -> Option<u64> {
        if self.is_made() && !self.is_handed_over() {
            return self.strip_bytes().checked_mul(u64::from(self.code()?.data));
        }
        let strip = self.strip.as_deref().and_then(value::bytes)?;
        strip.checked_mul(u64::from(self.data_members?))
    }
}

pub(super) fn refused(what: String) -> Refusal {
    Refusal::cannot_run("plan.not_understood", format!("plan: {what}"))
        .hint("docs/lab/fio.md has an example")
}
