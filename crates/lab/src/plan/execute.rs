//! Measuring the groups of a plan one by one.
//!
//! - again: raw drives measured once more, where a figure is above what they gave
//! - point: one load with everything around it
//! - conclude: what the points of a group show together
//!
//! What must stay true: a point's records are on disk before the next one begins; what the run
//! directory has already is not measured again; the first thing that fails ends the run, with
//! everything before it kept; however it ends, what was made is taken away, and members
//! are in again.

mod again;
mod conclude;
mod point;

use self::conclude::baseline_key;
#[cfg(test)]
pub(super) use self::point::numbers;
use super::file::Array;
use super::made::{self, Made, Rebuilding};
use super::memory;
use super::mounted::Mounted;
use super::points::{Expanded, Group, Point};
use super::progress::Progress;
use crate::Refusal;
use crate::adapter::commands::{Commands, Live};
use crate::adapter::loops::Devices;
use crate::evidence::Evidence;
use crate::inspect::models::Library;
use crate::inspect::server::software::Memory;
use crate::lint::machine::Machine;
use crate::record::{Measurement, Record};
use crate::rules;
use crate::store::RunDir;
use crate::units;
use crate::validity::{Mark, Outcome};
use crate::watch::Watch;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a run needs.
pub struct Run<'a> {
    pub dir: &'a RunDir,
    pub watch: &'a Watch,
    /// Where commands are written down.
    pub evidence: &'a Evidence,
    pub machine: &'a dyn Machine,
    /// Serials and paths that may be destroyed.
    pub named: &'a [String],
    /// What makers state about drives.
    pub models: Library,
}

/// What a run came to.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Summary {
    /// Measurements that were made now.
    pub measured: usize,
    /// Points that were there already.
    pub resumed: usize,
    /// Measurements that must not be used.
    pub invalid: usize,
    pub failed: usize,
}

struct Session<'a> {
    run: &'a Run<'a>,
    plan: &'a Expanded,
    commands: &'a Live<'a>,
    made: Option<Made<'a>>,
    /// Block devices over raw drives that are files.
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
    let stored = run.dir.read()?;
    let mut known = BTreeMap::new();
    let mut checked = BTreeSet::new();
    let mut baselines = BTreeSet::new();
    for record in stored.records {
        match record {
            Record::Measurement(measured) => drop(known.insert(measured.id.clone(), *measured)),
            Record::Check(check) => drop(checked.insert((check.name, check.target))),
            Record::Baseline(point) => drop(baselines.insert(baseline_key(&point))),
            Record::Cpu(_) | Record::Resources(_) => {}
        }
    }
    let commands = Live::new(run.evidence);
    let mut session = Session {
        run,
        plan,
        commands: &commands,
        made: None,
        loops: over_files(plan, &commands)?,
        mounted: None,
        baselines,
        known,
        checked,
        commanded: BTreeSet::new(),
        to_restore: Vec::new(),
        memory: None,
        summary: Summary::default(),
    };
    let measured = plan.groups.iter().try_for_each(|group| session.group(group, progress));
    let measured = measured.and_then(|()| session.conclude_paths());
    let gone = session.unmount().and(session.take_away());
    let put_back = session.put_back();
    progress.finish();
    session.loops = None;
    commands.all_gone(measured.and(gone).and(put_back))?;
    let ids = plan.points().flat_map(|point| point.targets.iter().map(|target| point.id(target)));
    let all = ids.filter_map(|id| session.known.get(&id));
    session.summary.invalid =
        all.filter(|measured| Mark::of(&measured.findings) == Mark::Invalid).count();
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
                    self.to_restore = self.restoring(group);
                    self.command(argv, "as the plan says, before measuring")?;
                }
            }
        }
        for point in &group.points {
            let needed = !self.has(point) && !self.is_steady_before(point);
            if needed {
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
        if wanted {
            for argv in &group.after {
                self.command(argv, "as the plan says, after measuring")?;
            }
            if !group.after.is_empty() {
                self.to_restore.clear();
            }
        }
        if let Some(rebuilding) = rebuilding {
            self.conclude_rebuild(group, rebuilding)?;
        }
        self.keep_baselines(group)?;
        self.conclude(group)
    }

    /// The array that a group needs, in the condition that it needs; raw drives need that there is
    /// none.
    fn prepare(
        &mut self,
        group: &Group,
        progress: &mut Progress,
    ) -> Result<Option<Rebuilding>, Refusal> {
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
        self.memory = if group.is_rebuild { memory::now() } else { None };
        group.is_rebuild.then(|| made.rebuild()).transpose()
    }

    /// The file system that a group is measured through; whether it can be: an engine that serves a
    /// file has one already.
    fn mount(&mut self, group: &Group, progress: &mut Progress) -> Result<bool, Refusal> {
        let Some(array) = group.points.first().and_then(|point| self.array_of(point)) else {
            return Ok(false);
        };
        let array = array.clone();
        let made = self.made.as_ref().filter(|_| array.is_made());
        let served = made.map_or(array.path.as_path(), Made::path).to_owned();
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
            Mounted::make((&array, &served), (run.evidence, commands), run.dir.path())?;
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

    /// What the plan says about putting back the members of the array of `group`.
    fn restoring(&self, group: &Group) -> Vec<Vec<String>> {
        let array = group.points.first().and_then(|point| self.array_of(point));
        array.map_or_else(Vec::new, |array| array.restore.clone())
    }

    /// Put back the members that a run which ended early has taken out of an array that is not the
    /// lab's.
    fn put_back(&mut self) -> Result<(), Refusal> {
        let restore = std::mem::take(&mut self.to_restore);
        if restore.is_empty() {
            return Ok(());
        }
        self.commands.taking_away(|| {
            let mut done = Ok(());
            for argv in &restore {
                let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
                let why = "as the plan says, although the run ended early";
                let ran = self.commands.succeed(&argv, why).map(|_| ());
                done = done.and(ran);
            }
            done
        })
    }

    fn array_of(&self, point: &Point) -> Option<&Array> {
        let target = point.targets.first()?;
        self.plan.arrays.iter().find(|array| array.target_path() == target.path)
    }

    fn has(&self, point: &Point) -> bool {
        point.targets.iter().all(|target| self.known.contains_key(&point.id(target)))
    }

    /// Write a measurement down and count it.
    fn keep(&mut self, measured: Measurement) -> Result<(), Refusal> {
        self.run.dir.append(&Record::Measurement(Box::new(measured.clone())))?;
        self.known.insert(measured.id.clone(), measured);
        self.summary.measured += 1;
        Ok(())
    }

    fn command(&self, argv: &[String], why: &str) -> Result<(), Refusal> {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        Live::new(self.run.evidence).succeed(&words, why).map(|_| ())
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

/// A measurement in one line, as whoever waits is told.
fn told(measured: &Measurement, mark: &impl std::fmt::Display) -> String {
    let rate = units::rate(measured.rate(), measured.workload.unit());
    format!("{}: {rate} {mark}", measured.target)
}

/// A time as records have it.
fn whole_seconds(unix_s: f64) -> u64 {
    format!("{unix_s:.0}").parse().unwrap_or(0)
}

fn is_block_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|facts| facts.file_type().is_block_device())
}
