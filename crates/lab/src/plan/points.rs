//! The plan as a list of points to measure, made before anything is started.
//!
//! - loads: profiles over sizes, jobs, depths and rounds; points that the lab makes itself
//! - span: loads on the part of a target that was written
//! - turns: arrays in turns, in an order that a coin decides
//!
//! What must stay true: identities do not depend on time or chance, so that a resumed run knows
//! what it has; a stage that is left out says so with its reason.

mod loads;
mod span;
mod turns;

pub(super) use loads::FILL_BYTES_PER_S;
pub use loads::{FIRST_FILL, SECOND_FILL};
#[cfg(test)]
pub(crate) use turns::begins_with_second;

use super::file::{Array, Kind, Plan, Stage};
use super::made;
use crate::Refusal;
use crate::fio::JobFile;
use crate::metrics::latency::to_f64;
use crate::record::{ArrayCondition, EngineIdentity, Measurement, Workload};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What starting and ending fio takes, seconds.
pub(super) const START_S: f64 = 2.0;

/// Points that belong together: commands before them and after them.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Commands before the first point; each is run once in a session.
    pub before: Vec<Vec<String>>,
    pub points: Vec<Point>,
    /// Commands after the last point.
    pub after: Vec<Vec<String>>,
    /// Members of an array made by the lab that are out while it is measured.
    pub out: usize,
    /// The array is made anew before the first point.
    pub is_fresh: bool,
    /// One of them is put in again before the first point.
    pub is_rebuild: bool,
    /// The points are measured through a file system that is made on the array.
    pub has_file_system: bool,
    /// Seconds that come before the first point: a file system that is filled.
    pub before_s: f64,
    /// Seconds that making and filling an array takes, if none stands that serves.
    pub made_s: f64,
}

/// One start of fio.
#[derive(Clone, Debug)]
pub struct Point {
    pub kind: Kind,
    pub round: u32,
    pub condition: ArrayCondition,
    pub workload: Workload,
    pub jobs: JobFile,
    /// What is measured: each target by itself.
    pub targets: Vec<Target>,
    pub expected_s: f64,
    /// Rounds of the same series end when it is steady.
    pub until_steady: bool,
}

#[derive(Clone, Debug)]
pub struct Target {
    /// Beginning of the names of its jobs: `t0.`.
    pub prefix: String,
    pub path: PathBuf,
    pub engine: EngineIdentity,
}

#[derive(Clone, Debug, Default)]
pub struct Expanded {
    pub groups: Vec<Group>,
    pub arrays: Vec<Array>,
    pub drives: Vec<PathBuf>,
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

    pub fn id(&self, target: &Target) -> String {
        format!("{}#{}", self.series(target), self.round)
    }

    pub fn ids(&self) -> Vec<String> {
        self.targets.iter().map(|target| self.id(target)).collect()
    }

    /// Its measurement of `target`, without figures yet.
    pub(crate) fn blank(&self, target: &Target) -> Measurement {
        Measurement {
            id: self.id(target),
            stage: self.kind.name().to_owned(),
            round: self.round,
            target: target.path.display().to_string(),
            engine: target.engine.clone(),
            condition: self.condition,
            workload: self.workload.clone(),
            ..Measurement::default()
        }
    }

    pub fn array_among<'p>(&self, arrays: &'p [Array]) -> Option<&'p Array> {
        let target = self.targets.first()?;
        arrays.iter().find(|array| array.target_path() == target.path)
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
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.groups.iter().flat_map(|group| &group.points)
    }

    pub fn expected_s(&self) -> f64 {
        let before: f64 = self.groups.iter().map(|group| group.made_s + group.before_s).sum();
        before + self.points().map(|point| point.expected_s).sum::<f64>()
    }

    /// Whether `path` stands for an array that the lab makes.
    pub fn is_made(&self, path: &Path) -> bool {
        self.arrays.iter().any(|array| array.is_made() && array.target_path() == path)
    }

    /// Paths that are written to, each once: members of arrays that are made of them, too.
    pub fn written(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for group in &self.groups {
            let lost = group.points.iter().filter(|it| group.has_file_system || it.writes());
            let targets = lost.flat_map(|point| &point.targets).map(|target| target.path.clone());
            paths.extend(targets.filter(|path| !self.is_made(path)));
            paths.extend(
                made::needed(&self.arrays, group)
                    .into_iter()
                    .flat_map(|array| array.members.clone()),
            );
        }
        paths.sort();
        paths.dedup();
        paths
    }
}

/// Expand `plan`, which lies in `folder`. `size_of` gives the size of a target in bytes, for the
/// estimate.
pub fn expand(
    plan: &Plan,
    folder: &Path,
    size_of: &dyn Fn(&Path) -> u64,
) -> Result<Expanded, Refusal> {
    let mut all = Expanded {
        arrays: plan.arrays.clone(),
        drives: plan.drives.clone(),
        ..Expanded::default()
    };
    for stage in &plan.stages {
        let maker = Maker { plan, folder, stage, size_of };
        match maker.missing() {
            Some(why) => drop(all.left_out.insert(stage.kind.name().to_owned(), why.to_owned())),
            None => all.groups.extend(maker.groups()?),
        }
    }
    made::estimate(&all.arrays, &mut all.groups);
    Ok(all)
}

struct Maker<'a> {
    plan: &'a Plan,
    folder: &'a Path,
    stage: &'a Stage,
    size_of: &'a dyn Fn(&Path) -> u64,
}

impl Maker<'_> {
    /// Why the stage cannot be done, if it cannot.
    fn missing(&self) -> Option<&'static str> {
        let (arrays, has_drives) = (&self.plan.arrays, !self.plan.drives.is_empty());
        let (makes, has_arrays) = (arrays.iter().any(Array::is_made), !arrays.is_empty());
        let needs_profiles =
            !matches!(self.stage.kind, Kind::Precondition | Kind::Zone | Kind::Cliff);
        let without = |is_there: bool, why: &'static str| (!is_there).then_some(why);
        let missing = match self.stage.kind {
            Kind::Precondition | Kind::BlockSizes => {
                without(has_drives || has_arrays, "no drives and no arrays are named")
            }
            Kind::RawEach | Kind::RawAll | Kind::RawScale | Kind::Zone | Kind::Cliff => {
                without(has_drives, "no drives are named")
            }
            Kind::ArraysAll if makes => {
                Some("arrays that the lab makes are measured one at a time")
            }
            Kind::ArraySweep | Kind::ArraysAll | Kind::WorkingSet => {
                without(has_arrays, "no arrays are named")
            }
            Kind::Compare => without(makes, "no array is one that the lab makes"),
            Kind::FileSystem => {
                let names_one = arrays.iter().any(|array| array.file_system.is_some());
                without(names_one, "no array names a file_system")
            }
            Kind::Degraded => without(
                makes || arrays.iter().any(|array| !array.take_out.is_empty()),
                "no array has take_out commands, and the lab makes none",
            ),
            Kind::Rebuild => without(
                makes || arrays.iter().any(|array| !array.rebuild.is_empty()),
                "no array has rebuild commands, and the lab makes none",
            ),
        };
        missing
            .or(without(!needs_profiles || !self.stage.profiles.is_empty(), "it names no profiles"))
    }

    fn groups(&self) -> Result<Vec<Group>, Refusal> {
        let group = |points| vec![Group { points, ..Group::default() }];
        let drives: Vec<Target> = self.plan.drives.iter().map(|path| raw(path)).collect();
        let arrays: Vec<Target> = self.plan.arrays.iter().map(served).collect();
        let raw = ArrayCondition::Raw;
        let each_drive = || -> Result<Vec<Point>, Refusal> {
            let points = drives.iter().map(|it| self.matrix(std::slice::from_ref(it), raw));
            Ok(points.collect::<Result<Vec<_>, _>>()?.concat())
        };
        Ok(match self.stage.kind {
            Kind::Precondition => {
                let there = self.plan.arrays.iter().filter(|array| !array.is_made());
                let targets = if drives.is_empty() { there.map(served).collect() } else { drives };
                group(targets.iter().flat_map(|target| self.fills(target)).collect())
            }
            Kind::RawEach => group(each_drive()?),
            Kind::RawAll => group(self.matrix(&drives, raw)?),
            Kind::RawScale => group(self.scaling(&drives)?),
            Kind::Zone => group(drives.iter().flat_map(|drive| self.zones(drive)).collect()),
            Kind::Cliff => group(drives.iter().map(|drive| self.cliff(drive)).collect()),
            Kind::BlockSizes if arrays.is_empty() => group(each_drive()?),
            // A group for each array: one that the lab makes stands while its group is measured.
            Kind::ArraySweep | Kind::WorkingSet | Kind::BlockSizes => {
                let all = self.plan.arrays.iter();
                all.map(|it| self.group(it, ArrayCondition::Healthy)).collect::<Result<_, _>>()?
            }
            Kind::ArraysAll => group(self.matrix(&arrays, ArrayCondition::Healthy)?),
            Kind::Compare => self.in_turns()?,
            Kind::FileSystem => self.through_file_systems()?,
            Kind::Degraded => self.degraded()?,
            Kind::Rebuild => self.rebuilding()?,
        })
    }

    /// The stage's loads on one array.
    fn group(&self, array: &Array, condition: ArrayCondition) -> Result<Group, Refusal> {
        let out = match condition {
            ArrayCondition::Degraded(out) if array.is_made() => usize::try_from(out).unwrap_or(0),
            _ => 0,
        };
        let points = self.matrix(&[served(array)], condition)?;
        Ok(Group { points, out, ..Group::default() })
    }

    /// With one member out, then two, and so on: by the plan's commands, or as many as the parity
    /// of an array that the lab makes allows.
    fn degraded(&self) -> Result<Vec<Group>, Refusal> {
        let mut groups = Vec::new();
        for array in self.plan.arrays.iter().filter(|array| !array.take_out.is_empty()) {
            for (out, last) in (1..).zip(1..=array.take_out.len()) {
                let before = array.take_out[..last].to_vec();
                let group = self.group(array, ArrayCondition::Degraded(out))?;
                groups.push(Group { before, ..group });
            }
            if let Some(last) = groups.last_mut() {
                last.after = array.restore.clone();
            }
        }
        for array in self.plan.arrays.iter().filter(|array| array.is_made()) {
            let most = array.code().map_or(0, |code| code.parity);
            let all = (1..=most).map(|out| self.group(array, ArrayCondition::Degraded(out)));
            groups.extend(all.collect::<Result<Vec<_>, _>>()?);
        }
        Ok(groups)
    }

    /// The stage's loads on a file of each array that names a file system.
    fn through_file_systems(&self) -> Result<Vec<Group>, Refusal> {
        let one = |array: &Array| -> Result<Group, Refusal> {
            let bytes = match (array.code(), array.members.first()) {
                (Some(code), Some(member)) => {
                    u64::from(code.data).saturating_mul((self.size_of)(member))
                }
                _ => (self.size_of)(&array.path),
            };
            let share = f64::from(array.fill_percent) / 100.0;
            let before_s = to_f64(bytes) * share / FILL_BYTES_PER_S;
            let group = self.group(array, ArrayCondition::FileSystem)?;
            Ok(Group { has_file_system: true, before_s, ..group })
        };
        self.plan.arrays.iter().filter(|array| array.file_system.is_some()).map(one).collect()
    }

    fn rebuilding(&self) -> Result<Vec<Group>, Refusal> {
        let is_rebuilt = |array: &&Array| array.is_made() || !array.rebuild.is_empty();
        let one = |array: &Array| -> Result<Group, Refusal> {
            let (before, is_rebuild) = (array.rebuild.clone(), array.is_made());
            let group = self.group(array, ArrayCondition::Rebuilding)?;
            Ok(Group { before, out: usize::from(is_rebuild), is_rebuild, ..group })
        };
        self.plan.arrays.iter().filter(is_rebuilt).map(one).collect()
    }
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
