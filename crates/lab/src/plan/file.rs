//! The plan, in TOML.
//!
//! What must stay true: a misspelt key is an error, not a default; the name of a stage in a plan is
//! the name in records; no array is taken for another one; nothing is read that was not written.

use super::stripes;
use crate::Refusal;
use crate::fio::value;
use crate::metrics::baseline::Code;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub question: String,
    /// How long each point is measured, seconds: it wins over what a profile says. If the plan does
    /// not say it, the profile's own time counts, or 60.
    pub runtime_s: Option<u64>,
    /// How long each point warms up before, seconds.
    #[serde(default = "ramp_s")]
    pub ramp_s: u64,
    #[serde(default = "ioengine")]
    pub ioengine: String,
    #[serde(default)]
    pub drives: Vec<PathBuf>,
    /// How much of each drive is written and measured, `10g`; else all of it.
    pub drive_span: Option<String>,
    #[serde(default)]
    pub arrays: Vec<Array>,
    /// Own profiles: name -> fio job file, relative to the plan.
    #[serde(default)]
    pub profiles: BTreeMap<String, PathBuf>,
    pub stages: Vec<Stage>,
}

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
    #[serde(default)]
    pub version: String,
    /// What was set away from the default, by name.
    #[serde(default)]
    pub tunables: BTreeMap<String, String>,
    /// What the stage `file-system` makes on it. What is on the array is lost.
    pub file_system: Option<FileSystem>,
    #[serde(default = "fill_percent")]
    pub fill_percent: u32,
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

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// With its inode tables and journal written at once, so that nothing is initialised behind the
    /// measurements.
    #[default]
    Ext4,
    /// As its maker's defaults are.
    Xfs,
}

impl FileSystem {
    pub fn name(self) -> &'static str {
        self.make()[0].trim_start_matches("mkfs.")
    }

    /// The command that makes it, without the device. It discards nothing: the drives stay as they
    /// were preconditioned.
    pub fn make(self) -> Vec<&'static str> {
        let options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        match self {
            FileSystem::Ext4 => vec!["mkfs.ext4", "-q", "-F", "-E", options],
            FileSystem::Xfs => vec!["mkfs.xfs", "-q", "-f", "-K"],
        }
    }
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    pub kind: Kind,
    /// Workloads; those that ship, or own ones.
    #[serde(default)]
    pub profiles: Vec<String>,
    #[serde(default = "depths")]
    pub depths: Vec<u32>,
    #[serde(default = "jobs")]
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

/// Kinds of stages, each with its name.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
        pub enum Kind { $($(#[$doc])* #[serde(rename = $name)] $kind,)* }

        impl Kind {
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// Write every drive and array whole, twice.
    Precondition = "precondition",
    RawEach = "raw.each",
    /// All drives at once, one job each.
    RawAll = "raw.all",
    /// 1, 2, 4 and so on drives at once, and all of them.
    RawScale = "raw.scale",
    /// Bandwidth over the whole width of each drive.
    Zone = "zone",
    /// Sequential writing until a drive's fast cache is full.
    Cliff = "cliff",
    /// One array after the other, over depths and jobs.
    ArraySweep = "array.sweep",
    ArraysAll = "arrays.all",
    /// Through a file on a file system that the lab makes on each array that names one.
    FileSystem = "file-system",
    /// Arrays that the lab makes, in turns: each made anew, filled, measured whole and degraded.
    Compare = "compare",
    Degraded = "degraded",
    Rebuild = "rebuild",
    /// Zipf over a range of sizes, to find caches.
    WorkingSet = "working-set",
    /// The same load in blocks of several sizes.
    BlockSizes = "block-sizes",
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

fn fill_percent() -> u32 {
    70
}

fn depths() -> Vec<u32> {
    vec![32]
}

fn jobs() -> Vec<u32> {
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
        super::profile::check_engine(&plan.ioengine)?;
        plan.arrays.iter().try_for_each(Array::check)?;
        let said = plan.wrong_counts().or_else(|| plan.wrong_size()).or_else(|| plan.same_name());
        match said.or_else(|| plan.beyond_span()).or_else(|| stripes::wrong(&plan)) {
            Some(said) => Err(refused(said)),
            None => Ok(plan),
        }
    }

    fn wrong_counts(&self) -> Option<String> {
        let of = |stage: &Stage| stage.depths.iter().chain(&stage.jobs).any(|count| *count == 0);
        if self.stages.iter().any(|stage| of(stage) || stage.rounds == 0) {
            return Some("depths, jobs and rounds are 1 or more".to_owned());
        }
        let is_empty = self.runtime_s == Some(0) || self.stages.is_empty();
        is_empty.then(|| "a plan needs a stage, and a runtime_s of 1 or more".to_owned())
    }

    fn wrong_size(&self) -> Option<String> {
        let of_arrays = self.arrays.iter().flat_map(|it| [&it.strip, &it.span]).flatten();
        let of_stages = self.stages.iter().flat_map(|stage| &stage.sizes);
        let mut all = of_arrays.chain(of_stages).chain(&self.drive_span);
        let wrong = all.find(|text| value::bytes(text).is_none_or(|bytes| bytes == 0));
        wrong.map(|text| format!("'{text}' is no size such as 64k"))
    }

    /// Records know an array by its name: of two with the same one, only one would be measured.
    fn same_name(&self) -> Option<String> {
        let is_same = |at: usize, array: &Array| {
            self.arrays[..at].iter().any(|other| other.target_path() == array.target_path())
        };
        let (_, array) = self.arrays.iter().enumerate().find(|(at, array)| is_same(*at, array))?;
        let hint = if array.is_made() { "give each a name of its own" } else { "name it once" };
        Some(format!("two arrays would both be called {}: {hint}", array.name()))
    }

    /// What was not written must not be read: a working set lies within the span.
    fn beyond_span(&self) -> Option<String> {
        let stages = self.stages.iter().filter(|stage| stage.kind == Kind::WorkingSet);
        let pairs = stages
            .flat_map(|stage| &stage.sizes)
            .flat_map(|size| self.arrays.iter().map(move |array| (size, array)));
        let is_more = |(size, array): &(&String, &Array)| {
            array.is_made() && array.span_bytes() < value::bytes(size).unwrap_or(0)
        };
        pairs.into_iter().find(is_more).map(|(size, array)| {
            format!("a working set of {size} is more than the span of {}", array.name())
        })
    }
}

impl Array {
    fn check(&self) -> Result<(), Refusal> {
        if self.is_made() {
            crate::adapter::by_name(&self.engine)?;
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_name = |name: &String| !name.is_empty() && name.chars().all(is_plain);
        let hooks = [&self.take_out, &self.restore, &self.rebuild];
        let said = if !(1..=95).contains(&self.fill_percent) {
            "fill_percent is 1 to 95"
        } else if self.path.as_os_str().is_empty() != self.is_made() {
            "an array has either a path or members"
        } else if !self.name.as_ref().is_none_or(|name| self.is_made() && is_name(name)) {
            "name is for an array that the lab makes: letters, digits, '-', '_' and '.'"
        } else if !(self.is_made() || self.set.is_empty() && self.unset.is_empty()) {
            "set and unset are for arrays that the lab makes"
        } else if self.is_made() && hooks.iter().any(|commands| !commands.is_empty()) {
            "an array that the lab makes is degraded and rebuilt by the lab: \
             no take_out, restore or rebuild"
        } else if self.is_made() && self.code().is_none() && !self.is_handed_over() {
            return Err(refused(format!(
                "{} members are no {} that the lab can make: raid5 from 3, raid6 from 4 members; \
                 give an existing array by its path",
                self.members.len(),
                self.level
            )));
        } else {
            return Ok(());
        };
        Err(refused(said.to_owned()))
    }

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

    pub fn name(&self) -> String {
        self.target_path().display().to_string()
    }

    /// Its path; `made/NAME` or `made/ENGINE/LEVEL` for one that the lab makes.
    pub fn target_path(&self) -> PathBuf {
        match &self.name {
            _ if !self.is_made() => self.path.clone(),
            Some(name) => PathBuf::from(format!("made/{name}")),
            None => PathBuf::from(format!("made/{}/{}", self.engine, self.level)),
        }
    }

    pub fn code(&self) -> Option<Code> {
        let parity = match self.level.as_str() {
            _ if self.is_handed_over() => return None,
            "raid5" => 1,
            "raid6" => 2,
            _ => return None,
        };
        let members = u32::try_from(self.members.len()).ok()?;
        (members >= parity + 2).then(|| Code { data: members - parity, parity })
    }

    pub fn strip_bytes(&self) -> u64 {
        self.strip.as_deref().and_then(value::bytes).unwrap_or(64 << 10)
    }

    /// How much of an array that the lab makes is measured, bytes.
    pub fn span_bytes(&self) -> u64 {
        self.span.as_deref().and_then(value::bytes).unwrap_or(1 << 30)
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

fn refused(what: String) -> Refusal {
    Refusal::cannot_run("plan.not_understood", format!("plan: {what}"))
        .hint("docs/lab/fio.md has an example")
}
