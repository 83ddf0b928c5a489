//! The plan as a list of points to measure, made before anything is started.
//!
//! - own: points that the lab makes itself
//! - out: arrays with members out
//! - way: what the way to the drives carries
//!
//! What must stay true: identities do not depend on time or chance, so that a resumed run knows what it has.

mod out;
mod own;
mod way;

pub use own::{FIRST_FILL, SECOND_FILL};
pub use way::{BANDWIDTH, CLIENT, IOPS, UNMAPPED};

use super::file::{Array, Kind, Plan, Stage};
use super::profile::{Fill, Profile, workload};
use crate::Refusal;
use crate::adapter::ior;
use crate::fio::hosts::Host;
use crate::fio::{JobFile, Setting, value};
use crate::metrics::latency::to_f64;
use crate::purge::Method;
use crate::record::{ArrayCondition, EngineIdentity, Workload};
use crate::switch::What;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What starting and ending fio takes, seconds.
const START_S: f64 = 2.0;
/// Rounds that SNIA allows for reaching steady state.
const STEADY_ROUNDS: u32 = 25;

/// Blocks of the stage `block-sizes`, unless it says others: small ones for I/Os, large ones for bandwidth.
const BLOCK_SIZES: [&str; 5] = ["4k", "16k", "64k", "256k", "1m"];

/// Points that belong together: commands before them and after them.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Commands before the first point; each is run once in a session.
    pub before: Vec<Vec<String>>,
    /// What is measured.
    pub points: Vec<Point>,
    /// Commands after the last point.
    pub after: Vec<Vec<String>>,
    /// Members of an array made by the lab that are out while it is measured.
    pub out: usize,
    /// One of them is put in again before the first point.
    pub is_rebuild: bool,
    /// Drives that are purged before the first point.
    pub purge: Vec<(PathBuf, Method)>,
    /// The points are measured through a file system that is made on the array.
    pub has_file_system: bool,
    /// Seconds that come before the first point: a file system that is filled.
    pub before_s: f64,
    /// What of a drive is on or off meanwhile.
    pub switch: Option<(PathBuf, What, bool)>,
}

/// One start of fio.
#[derive(Clone, Debug)]
pub struct Point {
    /// Which kind of stage it belongs to.
    pub kind: Kind,
    /// Round, from 0.
    pub round: u32,
    /// State of the array.
    pub condition: ArrayCondition,
    /// What is asked for.
    pub workload: Workload,
    /// The jobs, filled in.
    pub jobs: JobFile,
    /// What is measured: each target by itself.
    pub targets: Vec<Target>,
    /// Seconds it should take.
    pub expected_s: f64,
    /// Rounds of the same series end when it is steady.
    pub until_steady: bool,
}

/// A target within a point.
#[derive(Clone, Debug)]
pub struct Target {
    /// Beginning of the names of its jobs: `t0.`.
    pub prefix: String,
    /// Its path.
    pub path: PathBuf,
    /// By whom it is served.
    pub engine: EngineIdentity,
}

/// A plan, expanded.
#[derive(Clone, Debug, Default)]
pub struct Expanded {
    /// What to do, in order.
    pub groups: Vec<Group>,
    /// Arrays of the plan.
    pub arrays: Vec<Array>,
    /// Raw drives of the plan.
    pub drives: Vec<PathBuf>,
    /// Hosts that make the load; none if this machine makes it.
    pub hosts: Vec<Host>,
    /// Stages that are left out, and why.
    pub left_out: BTreeMap<String, String>,
}

impl Point {
    /// The series it is a round of: `stage/target/workload`.
    pub fn series(&self, target: &Target) -> String {
        let stage = match self.condition {
            ArrayCondition::Degraded(out) => format!("{}-{out}", self.kind.name()),
            _ => self.kind.name().to_owned(),
        };
        format!("{stage}/{}/{}", target.path.display(), self.workload.name)
    }

    /// The identity of its measurement of `target`.
    pub fn id(&self, target: &Target) -> String {
        format!("{}#{}", self.series(target), self.round)
    }

    /// Whether it measures an array, and not raw drives or the filling of something.
    pub fn is_of_array(&self) -> bool {
        self.condition != ArrayCondition::Raw && self.kind != Kind::Precondition
    }

    /// Whether it destroys what is on its targets.
    pub fn writes(&self) -> bool {
        self.jobs.jobs().iter().any(crate::fio::Job::writes)
    }
}

impl Expanded {
    /// All points in order.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.groups.iter().flat_map(|group| &group.points)
    }

    /// Seconds everything should take.
    pub fn expected_s(&self) -> f64 {
        let before: f64 = self.groups.iter().map(|group| group.before_s).sum();
        before + self.points().map(|point| point.expected_s).sum::<f64>()
    }

    /// Whether `path` stands for an array that the lab makes.
    pub fn is_made(&self, path: &Path) -> bool {
        self.arrays.iter().any(|array| array.is_made() && array.target_path() == path)
    }

    /// Paths that are written to, each once.
    pub fn written(&self) -> Vec<PathBuf> {
        let of_group = |group: &'_ Group| {
            let lost = group.has_file_system;
            group.points.iter().filter(move |it| lost || it.writes()).cloned().collect::<Vec<_>>()
        };
        let mut paths: Vec<PathBuf> = self
            .groups
            .iter()
            .flat_map(of_group)
            .flat_map(|point| point.targets.into_iter().map(|target| target.path))
            .filter(|path| !self.is_made(path))
            .collect();
        paths.extend(super::made::members(&self.arrays, &self.groups));
        paths.extend(
            self.groups.iter().flat_map(|group| &group.purge).map(|(path, _)| path.clone()),
        );
        paths.sort();
        paths.dedup();
        paths
    }
}

/// Expand `plan`, which lies in `folder`. `size_of` gives the size of a target in bytes, for the estimate.
///
/// # Errors
/// If a profile is missing or cannot be filled in.
pub fn expand(
    plan: &Plan,
    folder: &Path,
    size_of: &dyn Fn(&Path) -> u64,
) -> Result<Expanded, Refusal> {
    let mut all = Expanded {
        arrays: plan.arrays.clone(),
        drives: plan.drives.clone(),
        hosts: plan.hosts()?,
        ..Expanded::default()
    };
    let mut is_purged = false;
    for stage in &plan.stages {
        is_purged = stage.kind == Kind::Purge || (is_purged && stage.kind != Kind::Precondition);
        let maker = Maker { plan, folder, stage, size_of, is_purged };
        let name = stage.kind.name().to_owned();
        match maker.missing() {
            Some(why) => drop(all.left_out.insert(name, why)),
            None => all.groups.extend(maker.groups()?),
        }
    }
    Ok(all)
}

struct Maker<'a> {
    plan: &'a Plan,
    folder: &'a Path,
    stage: &'a Stage,
    size_of: &'a dyn Fn(&Path) -> u64,
    /// Drives were purged by a stage before this one, and not filled since.
    is_purged: bool,
}

impl Maker<'_> {
    /// Why the stage cannot be done, if it cannot.
    fn missing(&self) -> Option<String> {
        let arrays = &self.plan.arrays;
        let makes = arrays.iter().any(Array::is_made);
        let hooked = |commands: fn(&Array) -> &Vec<Vec<String>>| {
            arrays.iter().any(|array| !commands(array).is_empty())
        };
        let missing = match self.stage.kind {
            Kind::Precondition if self.plan.drives.is_empty() && arrays.is_empty() => {
                "no drives and no arrays are named"
            }
            Kind::RawEach
            | Kind::RawAll
            | Kind::RawScale
            | Kind::Path
            | Kind::Zone
            | Kind::Cliff
            | Kind::Purge
            | Kind::WriteCache
            | Kind::Coalescing
                if self.plan.drives.is_empty() =>
            {
                "no drives are named"
            }
            Kind::ArraySweep | Kind::ArraysAll | Kind::WorkingSet if arrays.is_empty() => {
                "no arrays are named"
            }
            Kind::Ior if !ior::is_there("ior") => "ior is not installed",
            Kind::Ior
                if self.stage.jobs.iter().any(|jobs| *jobs > 1) && !ior::is_there("mpirun") =>
            {
                "several tasks need mpirun, which is not installed"
            }
            Kind::FileSystem | Kind::Ior
                if arrays.iter().all(|array| array.file_system.is_none()) =>
            {
                "no array names a file_system"
            }
            Kind::Degraded if !hooked(|array| &array.take_out) && !makes => {
                "no array has take_out commands, and the lab makes none"
            }
            Kind::Rebuild if !hooked(|array| &array.rebuild) && !makes => {
                "no array has rebuild commands, and the lab makes none"
            }
            Kind::BlockSizes if self.plan.drives.is_empty() && arrays.is_empty() => {
                "no drives and no arrays are named"
            }
            Kind::ArraysAll if makes => "arrays that the lab makes are measured one at a time",
            Kind::Coalescing => {
                let has_none = |drive: &PathBuf| self.coalescing(&raw(drive)).is_empty();
                if !self.plan.drives.iter().all(has_none) {
                    return None;
                }
                "no drive has a queue that joins, or interrupts that can be coalesced"
            }
            Kind::Precondition
            | Kind::Ior
            | Kind::Path
            | Kind::Zone
            | Kind::Cliff
            | Kind::Purge
            | Kind::WriteCache => return None,
            _ if self.stage.profiles.is_empty() => "it names no profiles",
            _ => return None,
        };
        Some(missing.to_owned())
    }

    fn groups(&self) -> Result<Vec<Group>, Refusal> {
        let group = |points| vec![Group { points, ..Group::default() }];
        let drives: Vec<Target> = self.plan.drives.iter().map(|path| raw(path)).collect();
        let arrays: Vec<Target> = self.plan.arrays.iter().map(served).collect();
        let each = |targets: &[Target], condition| -> Result<Vec<Point>, Refusal> {
            let points =
                targets.iter().map(|target| self.matrix(std::slice::from_ref(target), condition));
            Ok(points.collect::<Result<Vec<_>, _>>()?.concat())
        };
        Ok(match self.stage.kind {
            Kind::Precondition => {
                let there = self.plan.arrays.iter().filter(|array| !array.is_made());
                let targets = if drives.is_empty() { there.map(served).collect() } else { drives };
                group(targets.iter().flat_map(|target| self.fills(target)).collect())
            }
            Kind::Purge => vec![Group {
                purge: self
                    .plan
                    .drives
                    .iter()
                    .map(|path| (path.clone(), self.stage.method))
                    .collect(),
                ..Group::default()
            }],
            Kind::WriteCache => drives.iter().flat_map(|drive| self.caching(drive)).collect(),
            Kind::Coalescing => drives.iter().flat_map(|drive| self.coalescing(drive)).collect(),
            Kind::RawEach => group(each(&drives, ArrayCondition::Raw)?),
            Kind::RawAll => group(self.matrix(&drives, ArrayCondition::Raw)?),
            Kind::RawScale => group(self.scaling(&drives)?),
            Kind::Path => group(self.paths(&drives)),
            Kind::Zone => group(drives.iter().flat_map(|drive| self.zones(drive)).collect()),
            Kind::Cliff => group(drives.iter().map(|drive| self.cliff(drive)).collect()),
            Kind::BlockSizes if arrays.is_empty() => group(each(&drives, ArrayCondition::Raw)?),
            Kind::ArraySweep | Kind::WorkingSet | Kind::BlockSizes => self.one_by_one(&arrays)?,
            Kind::ArraysAll => group(self.matrix(&arrays, ArrayCondition::Healthy)?),
            Kind::FileSystem => self.through_file_systems()?,
            Kind::Ior => self.with_ior(),
            Kind::Degraded => self.degraded()?,
            Kind::Rebuild => self.rebuilding()?,
        })
    }

    /// A group for each array: one that the lab makes stands while its group is measured.
    fn one_by_one(&self, arrays: &[Target]) -> Result<Vec<Group>, Refusal> {
        arrays
            .iter()
            .map(|target| {
                let points = self.matrix(std::slice::from_ref(target), ArrayCondition::Healthy)?;
                Ok(Group { points, ..Group::default() })
            })
            .collect()
    }

    /// Profiles x sizes x jobs x depths x rounds, on `targets` at once.
    fn matrix(&self, targets: &[Target], condition: ArrayCondition) -> Result<Vec<Point>, Refusal> {
        let sizes = self.sizes();
        let mut points = Vec::new();
        for name in &self.stage.profiles {
            let profile = Profile::named(name, self.plan, self.folder)?;
            for size in &sizes {
                for (jobs, depth) in self
                    .stage
                    .jobs
                    .iter()
                    .flat_map(|jobs| self.stage.depths.iter().map(move |depth| (*jobs, *depth)))
                {
                    let more = size.map_or_else(Vec::new, |size| self.sized(size));
                    let file =
                        profile.filled(&Fill { more, ..self.fill_in(targets, depth, jobs) })?;
                    let first = file.jobs().into_iter().next().unwrap_or_default();
                    let mut work = workload(name, &first, depth, jobs);
                    if let Some(size) = size {
                        let word = if self.is_of_blocks() { "bs" } else { "ws" };
                        work.name = format!("{}-{word}{size}", work.name);
                    }
                    points.extend(self.rounds(targets, condition, &work, &file));
                }
            }
        }
        Ok(points)
    }

    fn is_of_blocks(&self) -> bool {
        self.stage.kind == Kind::BlockSizes
    }

    /// Sizes that the stage goes through, of the working set or of a block; none if it has none.
    fn sizes(&self) -> Vec<Option<&str>> {
        match self.stage.sizes.as_slice() {
            [] if self.is_of_blocks() => BLOCK_SIZES.map(Some).to_vec(),
            [] => vec![None],
            sizes => sizes.iter().map(|size| Some(size.as_str())).collect(),
        }
    }

    fn sized(&self, size: &str) -> Vec<Setting> {
        match self.is_of_blocks() {
            true => vec![Setting::new("bs", size)],
            false => working_set(size),
        }
    }

    fn rounds(
        &self,
        targets: &[Target],
        condition: ArrayCondition,
        work: &Workload,
        file: &JobFile,
    ) -> Vec<Point> {
        let rounds = match (self.stage.steady, self.stage.rounds) {
            (true, 1) => STEADY_ROUNDS,
            (_, rounds) => rounds,
        };
        let point = |round| Point {
            kind: self.stage.kind,
            round,
            condition,
            workload: work.clone(),
            jobs: file.clone(),
            targets: numbered(targets),
            expected_s: to_f64(self.runtime_s() + self.plan.ramp_s) + START_S,
            until_steady: self.stage.steady,
        };
        (0..rounds).map(point).collect()
    }

    fn runtime_s(&self) -> u64 {
        self.stage.runtime_s.unwrap_or(self.plan.runtime_s)
    }

    fn fill_in<'t>(&'t self, targets: &'t [Target], depth: u32, jobs: u32) -> Fill<'t> {
        let names = targets
            .iter()
            .enumerate()
            .map(|(at, target)| (format!("t{at}"), target.path.as_path()));
        let array = self
            .plan
            .arrays
            .iter()
            .find(|array| targets.iter().any(|target| target.path == array.target_path()));
        Fill {
            targets: names.collect(),
            ioengine: &self.plan.ioengine,
            depth,
            jobs,
            runtime_s: Some(self.runtime_s()),
            ramp_s: self.plan.ramp_s,
            stripe_data_bytes: array.and_then(Array::stripe_data_bytes),
            more: Vec::new(),
        }
    }
}

/// Zipf over the first `size` bytes.
fn working_set(size: &str) -> Vec<Setting> {
    let bytes = value::bytes(size).unwrap_or_default();
    vec![Setting::new("size", bytes.to_string()), Setting::new("random_distribution", "zipf:1.2")]
}

fn numbered(targets: &[Target]) -> Vec<Target> {
    let prefix =
        |(at, target): (usize, &Target)| Target { prefix: format!("t{at}."), ..target.clone() };
    targets.iter().enumerate().map(prefix).collect()
}

fn raw(path: &Path) -> Target {
    let engine = EngineIdentity { name: "raw".to_owned(), ..EngineIdentity::default() };
    Target { prefix: String::new(), path: path.to_owned(), engine }
}

fn served(array: &Array) -> Target {
    let engine = EngineIdentity {
        name: array.engine.clone(),
        version: array.version.clone(),
        kernel: String::new(),
        tunables: array.tunables.clone(),
    };
    Target { prefix: String::new(), path: array.target_path(), engine }
}
