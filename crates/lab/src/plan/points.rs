//! The plan as a list of points to measure, made before anything is started.
//!
//! - missing: stages that cannot be done here, and why
//! - matrix: profiles over sizes, jobs, depths and rounds
//! - own: points that the lab makes itself
//! - span: loads on the part of a target that was written
//! - out: arrays with members out
//! - turns: arrays in turns, in an order that a coin decides
//!
//! What must stay true: identities do not depend on time or chance, so that a resumed run knows
//! what it has.

mod matrix;
mod missing;
mod out;
mod own;
mod span;
mod turns;

pub(super) use own::FILL_BYTES_PER_S;
pub use own::{FIRST_FILL, SECOND_FILL};
#[cfg(test)]
pub(crate) use turns::begins_with_second;

use super::file::{Array, Kind, Plan, Stage};
use super::made;
use crate::Refusal;
use crate::fio::JobFile;
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
    /// Which kind of stage it belongs to.
    pub kind: Kind,
    /// Round, from 0.
    pub round: u32,
    pub condition: ArrayCondition,
    pub workload: Workload,
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
    pub path: PathBuf,
    /// By whom it is served.
    pub engine: EngineIdentity,
}

/// A plan, expanded.
#[derive(Clone, Debug, Default)]
pub struct Expanded {
    /// What to do, in order.
    pub groups: Vec<Group>,
    pub arrays: Vec<Array>,
    /// Raw drives of the plan.
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

    /// The identity of its measurement of `target`.
    pub fn id(&self, target: &Target) -> String {
        format!("{}#{}", self.series(target), self.round)
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

    /// Seconds everything should take.
    pub fn expected_s(&self) -> f64 {
        let before: f64 = self.groups.iter().map(|group| group.made_s + group.before_s).sum();
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
        let name = stage.kind.name().to_owned();
        match maker.missing() {
            Some(why) => drop(all.left_out.insert(name, why)),
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
            Kind::RawEach => group(each(&drives, ArrayCondition::Raw)?),
            Kind::RawAll => group(self.matrix(&drives, ArrayCondition::Raw)?),
            Kind::RawScale => group(self.scaling(&drives)?),
            Kind::Zone => group(drives.iter().flat_map(|drive| self.zones(drive)).collect()),
            Kind::Cliff => group(drives.iter().map(|drive| self.cliff(drive)).collect()),
            Kind::BlockSizes if arrays.is_empty() => group(each(&drives, ArrayCondition::Raw)?),
            Kind::ArraySweep | Kind::WorkingSet | Kind::BlockSizes => self.one_by_one(&arrays)?,
            Kind::ArraysAll => group(self.matrix(&arrays, ArrayCondition::Healthy)?),
            Kind::Compare => self.in_turns()?,
            Kind::FileSystem => self.through_file_systems()?,
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
