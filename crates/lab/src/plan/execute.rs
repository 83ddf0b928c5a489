//! Measuring the groups of a plan one by one.
//!
//! - point: one load with everything around it
//! - conclude: what the points of a group show together
//!
//! What must stay true: a point's records are on disk before the next one begins; what the run
//! directory has already is not measured again; the first thing that fails ends the run, with
//! everything before it kept; however it ends, what was made is taken away, and members
//! are in again.

mod conclude;
mod point;

use self::conclude::baseline_key;
#[cfg(test)]
pub(super) use self::point::numbers;
use super::file::Array;
use super::findings;
use super::made::{self, Made};
use super::mounted::Mounted;
use super::points::{Expanded, Group, Point};
use super::progress::Progress;
use crate::Refusal;
use crate::adapter::commands::{Commands, Live};
use crate::adapter::needs::{Devices, is_block_device};
use crate::evidence::Evidence;
use crate::inspect::models::Library;
use crate::inspect::server::software::Memory;
use crate::lint::machine::Machine;
use crate::record::{Measurement, Record};
use crate::rules;
use crate::store::RunDir;
use crate::validity::{Mark, Outcome};
use crate::watch::Watch;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub struct Run<'a> {
    pub dir: &'a RunDir,
    pub watch: &'a Watch,
    pub evidence: &'a Evidence,
    pub machine: &'a dyn Machine,
    /// Serials and paths that may be destroyed.
    pub named: &'a [String],
    pub models: Library,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Summary {
    /// Measurements that were made now.
    pub measured: usize,
    pub resumed: usize,
    pub invalid: usize,
    pub failed: usize,
}

struct Session<'a> {
    run: &'a Run<'a>,
    plan: &'a Expanded,
    commands: &'a Live<'a>,
    made: Option<Made<'a>>,
    /// Raw drives that are files, and block devices over them.
    loops: Option<(Vec<PathBuf>, Devices<'a>)>,
    mounted: Option<Mounted<'a>>,
    baselines: BTreeSet<String>,
    known: BTreeMap<String, Measurement>,
    checked: BTreeSet<(String, String)>,
    commanded: BTreeSet<Vec<String>>,
    /// Commands that put members back which the plan's own commands took out.
    to_restore: Vec<Vec<String>>,
    /// Memory before the last rebuild began.
    memory: Option<Memory>,
    summary: Summary,
}

/// Measure everything that is not there yet.
///
/// # Errors
/// The first thing that failed. What was measured before it is kept.
pub fn execute(
    plan: &Expanded,
    run: &Run<'_>,
    progress: &mut Progress,
) -> Result<Summary, Refusal> {
    let commands = Live::new(run.evidence);
    let mut session = Session {
        run,
        plan,
        commands: &commands,
        made: None,
        loops: over_files(plan, &commands)?,
        mounted: None,
        baselines: BTreeSet::new(),
        known: BTreeMap::new(),
        checked: BTreeSet::new(),
        commanded: BTreeSet::new(),
        to_restore: Vec::new(),
        memory: None,
        summary: Summary::default(),
    };
    for record in run.dir.read()?.records {
        match record {
            Record::Measurement(it) => drop(session.known.insert(it.id.clone(), *it)),
            Record::Check(check) => drop(session.checked.insert((check.name, check.target))),
            Record::Baseline(point) => drop(session.baselines.insert(baseline_key(&point))),
            Record::Cpu(_) | Record::Resources(_) => {}
        }
    }
    let measured = plan.groups.iter().try_for_each(|group| session.group(group, progress));
    let measured = measured.and_then(|()| session.conclude_paths());
    let gone = session.unmount().and(session.take_away());
    let put_back = session.put_back();
    progress.finish();
    session.loops = None;
    commands.all_gone(measured.and(gone).and(put_back))?;
    let all = plan.points().flat_map(Point::ids).filter_map(|id| session.known.get(&id));
    session.summary.invalid = all.filter(|it| Mark::of(&it.findings) == Mark::Invalid).count();
    Ok(session.summary)
}

impl Session<'_> {
    fn group(&mut self, group: &Group, progress: &mut Progress) -> Result<(), Refusal> {
        let wanted = group.points.iter().any(|point| !self.has(point));
        let mut rebuilding = None;
        if !wanted {
            progress.pass(group.made_s + group.before_s);
        } else {
            rebuilding = self.prepare(group, progress)?;
            if group.has_file_system && !self.mount(group, progress)? {
                group.points.iter().for_each(|point| progress.end(point.expected_s, None));
                return Ok(());
            }
            for argv in &group.before {
                // Each takes one more member out: those of the group before have been run.
                if self.commanded.insert(argv.clone()) {
                    let array = group.points.first().and_then(|point| self.array_of(point));
                    self.to_restore = array.map_or_else(Vec::new, |array| array.restore.clone());
                    self.commands.planned(argv, "as the plan says, before measuring")?;
                }
            }
        }
        for point in &group.points {
            if !self.has(point) && !self.is_steady_before(point) {
                self.point(point, rebuilding, progress)?;
            } else {
                self.summary.resumed += usize::from(self.has(point));
                progress.end(point.expected_s, None);
            }
        }
        self.unmount()?;
        if group.has_file_system {
            // What follows wants an array whose measured part was written, not what is left of a
            // file system.
            self.take_away()?;
        }
        if wanted && !group.after.is_empty() {
            let why = "as the plan says, after measuring";
            group.after.iter().try_for_each(|argv| self.commands.planned(argv, why))?;
            self.to_restore.clear();
        }
        if let Some(began) = rebuilding {
            self.conclude_rebuild(group, began)?;
        }
        self.keep_baselines(group)?;
        self.conclude(group)
    }

    /// The array that a group needs, in the condition that it needs; raw drives need that there is
    /// none. When the rebuild began that it needs.
    fn prepare(
        &mut self,
        group: &Group,
        progress: &mut Progress,
    ) -> Result<Option<Duration>, Refusal> {
        let Some(array) = made::needed(&self.plan.arrays, group) else {
            return self.take_away().map(|()| None);
        };
        let serves = |made: &Made<'_>| made.serves(array, group.out) && !group.is_fresh;
        if !self.made.as_ref().is_some_and(serves) {
            self.take_away()?;
            progress.say(&format!("{} is made and filled", array.name()));
            let dir = self.run.dir.path();
            self.made = Some(Made::make(array, self.run.evidence, self.commands, dir)?);
            progress.pass(group.made_s);
        }
        let Some(made) = &mut self.made else { return Ok(None) };
        made.degrade(group.out)?;
        self.memory = group.is_rebuild.then(findings::memory_now).flatten();
        group.is_rebuild.then(|| made.rebuild()).transpose()
    }

    /// The file system that a group is measured through; whether it can be: an engine that serves a
    /// file has one already.
    fn mount(&mut self, group: &Group, progress: &mut Progress) -> Result<bool, Refusal> {
        let plan = self.plan;
        let Some(array) = group.points.first().and_then(|it| it.array_among(&plan.arrays)) else {
            return Ok(false);
        };
        let made = self.made.as_ref().filter(|_| array.is_made());
        let served = made.map_or(&array.path, |made| &made.path).clone();
        if array.is_made() && !is_block_device(&served) {
            let said = "not measured: the engine serves a file, on a file system of its own";
            let rule = rules::of("file_system.filled");
            let check = rule.check(array.name(), Outcome::NotApplicable, said);
            return self.keep_checks(vec![check]).map(|()| false);
        }
        progress.more(0.0);
        progress.begin(&format!("file system on {}: made and filled", array.name()));
        let (run, commands) = (self.run, self.commands);
        let (mounted, check) =
            Mounted::make((array, &served), (run.evidence, commands), run.dir.path())?;
        self.mounted = Some(mounted);
        progress.end(group.before_s, Some(&check.found));
        self.keep_checks(vec![check]).map(|()| true)
    }

    fn unmount(&mut self) -> Result<(), Refusal> {
        self.mounted.take().map_or(Ok(()), Mounted::take_away)
    }

    fn take_away(&mut self) -> Result<(), Refusal> {
        self.made.take().map_or(Ok(()), |made| made.take_away(self.commands))
    }

    /// Put back the members that a run which ended early has taken out of an array that is not the
    /// lab's.
    fn put_back(&mut self) -> Result<(), Refusal> {
        let (restore, commands) = (std::mem::take(&mut self.to_restore), self.commands);
        if restore.is_empty() {
            return Ok(());
        }
        let why = "as the plan says, although the run ended early";
        let all =
            || restore.iter().map(|argv| commands.planned(argv, why)).fold(Ok(()), Result::and);
        commands.taking_away(all)
    }

    fn array_of(&self, point: &Point) -> Option<&Array> {
        point.array_among(&self.plan.arrays)
    }

    fn has(&self, point: &Point) -> bool {
        point.ids().iter().all(|id| self.known.contains_key(id))
    }

    fn keep(&mut self, measured: Measurement) -> Result<(), Refusal> {
        self.run.dir.append(&Record::Measurement(Box::new(measured.clone())))?;
        self.known.insert(measured.id.clone(), measured);
        self.summary.measured += 1;
        Ok(())
    }
}

/// Loop devices over those drives of the plan that are files and members of an array that the lab
/// makes: the engines, too, see them through one.
fn over_files<'a>(
    plan: &Expanded,
    commands: &'a Live<'a>,
) -> Result<Option<(Vec<PathBuf>, Devices<'a>)>, Refusal> {
    let is_member = |path: &Path| plan.arrays.iter().any(|it| it.members.iter().any(|m| m == path));
    let files = plan.drives.iter().filter(|path| path.is_file() && is_member(path));
    let files: Vec<PathBuf> = files.cloned().collect();
    if files.is_empty() {
        return Ok(None);
    }
    let devices = Devices::of(commands, &files)?;
    Ok(Some((files, devices)))
}
