//! Measuring the points one by one.
//!
//! What must stay true: a point's records are on disk before the next one begins; what the run directory has already is
//! not measured again; the first thing that fails ends the run, with everything before it kept.

use super::ceilings::RawRuns;
use super::file::{Array, Kind};
use super::findings;
use super::made::{self, Made, Rebuilding};
use super::points::{Expanded, Group, Point, Target};
use super::progress::Progress;
use crate::Refusal;
use crate::adapter::commands::{Commands, Live};
use crate::evidence::Evidence;
use crate::fio::hosts;
use crate::fio::measure::{Figures, figures};
use crate::fio::run::{FioOrder, FioRan, run as run_fio};
use crate::lint::machine::Machine;
use crate::lint::subject::{Intent, Subject};
use crate::lint::{Remark, lint};
use crate::metrics::plausible::Ceiling;
use crate::metrics::steady;
use crate::purge;
use crate::record::{BaselinePoint, Check, Measurement, Record};
use crate::store::RunDir;
use crate::units;
use crate::validity::{Finding, Mark, Outcome, Severity};
use crate::watch::Watch;
use crate::write_cache::Caches;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const SYSFS: &str = "/sys";

/// What a run needs.
pub struct Run<'a> {
    /// Where records go.
    pub dir: &'a RunDir,
    /// What is watched meanwhile.
    pub watch: &'a Watch,
    /// Where commands are written down.
    pub evidence: &'a Evidence,
    /// What rules look at.
    pub machine: &'a dyn Machine,
    /// Serials and paths that may be destroyed.
    pub named: &'a [String],
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
    /// Checks that failed.
    pub failed: usize,
}

struct Session<'a> {
    run: &'a Run<'a>,
    plan: &'a Expanded,
    commands: &'a Live<'a>,
    made: Option<Made<'a>>,
    baselines: BTreeSet<String>,
    known: BTreeMap<String, Measurement>,
    checked: BTreeSet<(String, String)>,
    commanded: BTreeSet<Vec<String>>,
    caches: Caches,
    /// Drives that were purged and not filled since.
    purged: BTreeSet<String>,
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
            Record::Cpu(_) | Record::Trace(_) | Record::Resources(_) => {}
        }
    }
    let commands = Live::new(run.evidence);
    let mut session = Session {
        run,
        plan,
        commands: &commands,
        made: None,
        baselines,
        known,
        checked,
        commanded: BTreeSet::new(),
        caches: Caches::open(run.dir.path(), Path::new(SYSFS))?,
        purged: BTreeSet::new(),
        summary: Summary::default(),
    };
    // What an earlier lab left switched when it was killed.
    session.restore_caches()?;
    session.look_at_hosts()?;
    let measured = plan.groups.iter().try_for_each(|group| session.group(group, progress));
    let gone = session.take_away();
    let restored = session.restore_caches();
    measured.and(gone).and(restored)?;
    progress.finish();
    let ids = plan.points().flat_map(|point| point.targets.iter().map(|target| point.id(target)));
    let all = ids.filter_map(|id| session.known.get(&id));
    session.summary.invalid =
        all.filter(|measured| Mark::of(&measured.findings) == Mark::Invalid).count();
    Ok(session.summary)
}

impl Session<'_> {
    fn group(&mut self, group: &Group, progress: &mut Progress) -> Result<(), Refusal> {
        self.purge(group)?;
        let wanted = group.points.iter().any(|point| !self.has(point));
        let mut rebuilding = None;
        if wanted {
            if let Some((drive, on)) = &group.cache {
                self.caches.set(self.commands, drive, *on)?;
            }
            rebuilding = self.prepare(group)?;
            for argv in &group.before {
                // Each takes one more member out: those of the group before have been run.
                if self.commanded.insert(argv.clone()) {
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
        if wanted {
            for argv in &group.after {
                self.command(argv, "as the plan says, after measuring")?;
            }
        }
        if let Some(rebuilding) = rebuilding {
            self.conclude_rebuild(group, rebuilding)?;
        }
        self.keep_baselines(group)?;
        self.conclude(group)
    }

    /// The array that a group needs, in the condition that it needs; raw drives need that there is none.
    fn prepare(&mut self, group: &Group) -> Result<Option<Rebuilding>, Refusal> {
        let Some(array) = made::needed(&self.plan.arrays, group) else {
            return self.take_away().map(|()| None);
        };
        if self.made.as_ref().is_none_or(|made| !made.serves(array, group.out)) {
            self.take_away()?;
            let dir = self.run.dir.path();
            self.made = Some(Made::make(array, self.run.evidence, self.commands, dir)?);
        }
        let Some(made) = &mut self.made else { return Ok(None) };
        made.degrade(group.out)?;
        group.is_rebuild.then(|| made.rebuild()).transpose()
    }

    /// Purge the drives that a group wants purged, each once in a run.
    fn purge(&mut self, group: &Group) -> Result<(), Refusal> {
        for (drive, method) in &group.purge {
            let name = drive.display().to_string();
            self.purged.insert(name.clone());
            if self.checked.contains(&("drive.purged".to_owned(), name)) {
                continue;
            }
            let live = Live::patient(self.run.evidence);
            let plan = purge::plan(&live, drive, *method, Path::new(SYSFS))?;
            let check = purge::purge(&live, self.run.machine, drive, &plan)?;
            self.checked.insert((check.name.clone(), check.target.clone()));
            self.run.dir.append(&Record::Check(check))?;
        }
        Ok(())
    }

    fn restore_caches(&mut self) -> Result<(), Refusal> {
        for check in self.caches.restore()? {
            self.summary.failed += usize::from(check.outcome == Outcome::Fail);
            self.run.dir.append(&Record::Check(check))?;
        }
        Ok(())
    }

    fn take_away(&mut self) -> Result<(), Refusal> {
        self.made.take().map_or(Ok(()), |made| made.take_away(self.commands))
    }

    /// F19, once the rebuild has ended.
    fn conclude_rebuild(&mut self, group: &Group, rebuilding: Rebuilding) -> Result<(), Refusal> {
        let Some(made) = &self.made else { return Ok(()) };
        let seconds = made.await_rebuilt(rebuilding)?;
        let during = group.points.first().and_then(|point| {
            let target = point.targets.first()?;
            self.known.get(&point.id(target))
        });
        let check = findings::rebuild(
            made.name(),
            (made.member_bytes(), seconds),
            during,
            self.known.values(),
        );
        self.run.dir.append(&Record::Check(check))
    }

    /// BASELINE of each point of the group, once.
    fn keep_baselines(&mut self, group: &Group) -> Result<(), Refusal> {
        for point in &group.points {
            let array = self.array_of(point);
            let raw = array.and_then(|it| RawRuns::of(it, &self.plan.drives, self.known.values()));
            let baseline = raw.and_then(|it| it.baseline(&point.workload, point.condition));
            let Some(baseline) = baseline else { continue };
            if self.baselines.insert(baseline_key(&baseline)) {
                self.run.dir.append(&Record::Baseline(baseline))?;
            }
        }
        Ok(())
    }

    fn array_of(&self, point: &Point) -> Option<&Array> {
        let target = point.targets.first()?;
        self.plan.arrays.iter().find(|array| array.target_path() == target.path)
    }

    /// The point as it is run: an array that the lab made has its place now.
    fn placed(&self, point: &Point) -> Point {
        let mut point = point.clone();
        let made = self.array_of(&point).filter(|array| array.is_made()).and(self.made.as_ref());
        if let Some(made) = made {
            point.jobs.set("filename", &made.path().to_string_lossy().replace(':', "\\:"));
            for target in &mut point.targets {
                target.engine = made.identity().clone();
            }
        }
        point
    }

    fn has(&self, point: &Point) -> bool {
        point.targets.iter().all(|target| self.known.contains_key(&point.id(target)))
    }

    /// Whether the rounds before this one have reached steady state.
    fn is_steady_before(&self, point: &Point) -> bool {
        point.until_steady
            && point
                .targets
                .iter()
                .all(|target| steady::reached(&self.rates(&point.series(target))).is_some())
    }

    /// Rates of a series, round by round.
    fn rates(&self, series: &str) -> Vec<f64> {
        let rounds = self
            .known
            .values()
            .filter(|measured| measured.id.rsplit_once('#').is_some_and(|(own, _)| own == series));
        let mut rounds: Vec<&Measurement> = rounds.collect();
        rounds.sort_by_key(|measured| measured.round);
        rounds.iter().map(|measured| measured.rate()).collect()
    }

    fn command(&self, argv: &[String], why: &str) -> Result<(), Refusal> {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        Live::new(self.run.evidence).succeed(&words, why).map(|_| ())
    }

    fn point(
        &mut self,
        point: &Point,
        rebuilding: Option<Rebuilding>,
        progress: &mut Progress,
    ) -> Result<(), Refusal> {
        let point = &self.placed(point);
        let names: Vec<String> =
            point.targets.iter().map(|target| target.path.display().to_string()).collect();
        let what = format!("{} {} on {}", point.kind.name(), point.workload.name, names.join(", "));
        progress.begin(&what);
        let before_remarks = self.lint_before(point);
        let order = FioOrder {
            jobs: point.jobs.clone(),
            why: what,
            expected_s: point.expected_s,
            log_bandwidth: point.kind != Kind::Precondition,
            hosts: self.plan.hosts.clone(),
        };
        let id = point.targets.first().map_or_else(String::new, |target| point.id(target));
        let stacks = point.round == 0 && point.targets.len() == 1 && point.is_of_array();
        let watching = self.run.watch.begin(self.run.dir, &id, stacks)?;
        let work = || run_fio(self.run.evidence, &order);
        let (ran, ended_s) = match (rebuilding, &self.made) {
            (Some(rebuilding), Some(made)) => made.meanwhile(rebuilding, work)?,
            _ => (work()?, None),
        };
        let client = self.client(&ran);
        let mut watched = Some(self.run.watch.end(watching, &client)?);
        let raw = self.array_of(point);
        let raw = raw.and_then(|it| RawRuns::of(it, &self.plan.drives, self.known.values()));
        let ceilings = raw.map_or_else(Vec::new, |it| it.ceilings(&point.workload));
        let after_remarks = lint_after(point, &ran, self.run.machine, ceilings);
        let elsewhere =
            if self.plan.hosts.is_empty() { Vec::new() } else { hosts::judged(&ran.result) };
        let mut said = Vec::new();
        for target in &point.targets {
            let mut measured = measurement(point, target, &ran);
            measured.findings = of_target(&before_remarks, &after_remarks, target);
            measured.findings.extend(ended_s.map(findings::rebuild_ended));
            measured.findings.extend(elsewhere.clone());
            // With several targets the time is all of theirs together: it belongs to none of them.
            if point.targets.len() == 1 {
                watched.take().map_or(Ok(()), |seen| seen.keep(&mut measured, self.run.dir))?;
            } else {
                measured.path = watched.as_ref().and_then(|seen| seen.path.clone());
            }
            let rate = units::rate(measured.rate(), measured.workload.unit());
            said.push(format!("{}: {rate} {}", target.path.display(), marked(&measured.findings)));
            self.run.dir.append(&Record::Measurement(Box::new(measured.clone())))?;
            self.known.insert(measured.id.clone(), measured);
            self.summary.measured += 1;
        }
        progress.end(point.expected_s, Some(&said.join("; ")));
        Ok(())
    }

    /// What the load generator says of its own time here; on other hosts it costs this machine nothing.
    fn client(&self, ran: &FioRan) -> Figures {
        match self.plan.hosts.is_empty() {
            true => figures(&ran.result, |_| true),
            false => Figures::default(),
        }
    }

    /// Versions and clocks of the hosts, once in a session.
    fn look_at_hosts(&self) -> Result<(), Refusal> {
        if self.plan.hosts.is_empty() {
            return Ok(());
        }
        let checks = hosts::look(self.run.evidence, &self.plan.hosts)?;
        checks.into_iter().try_for_each(|check| self.run.dir.append(&Record::Check(check)))
    }

    fn lint_before(&self, point: &Point) -> Vec<Remark> {
        let filled = |target: &Target| {
            !self.purged.contains(&target.path.display().to_string())
                && self.known.values().any(|measured| {
                    measured.stage == Kind::Precondition.name()
                        && measured.target == target.path.display().to_string()
                })
        };
        let intent = Intent {
            stress: matches!(point.kind, Kind::RawAll | Kind::ArraysAll),
            stripe_bytes: None,
            preconditioned: point.kind == Kind::Precondition || point.targets.iter().all(filled),
            environment_recorded: true,
            named: self.run.named.to_vec(),
            ..Intent::default()
        };
        let subject = Subject { jobs: point.jobs.jobs(), result: None, intent };
        let mut remarks = lint(&subject, self.run.machine);
        match point.kind {
            // It ends by itself on purpose.
            Kind::Precondition => {
                remarks.retain(|remark| !["L03", "L04", "L15"].contains(&remark.rule))
            }
            // A rebuild goes on on purpose.
            Kind::Rebuild => remarks.retain(|remark| remark.rule != "L23"),
            // Writes without a guarantee are in the matrix on purpose.
            Kind::WriteCache => remarks.retain(|remark| !["L15", "L19"].contains(&remark.rule)),
            // Places and caches are looked for on purpose.
            Kind::Zone | Kind::Cliff | Kind::WorkingSet => {
                remarks.retain(|remark| !["L04", "L15", "L22"].contains(&remark.rule))
            }
            _ => {}
        }
        // Whoever may write was asked before the run began (guard).
        remarks.retain(|remark| remark.rule != "L18");
        remarks
    }

    /// What the points of a group show together.
    fn conclude(&mut self, group: &Group) -> Result<(), Refusal> {
        let mut checks: Vec<Check> = Vec::new();
        let mut zones: BTreeMap<String, Vec<(u32, f64)>> = BTreeMap::new();
        for point in &group.points {
            let measured: Vec<Measurement> = point
                .targets
                .iter()
                .filter_map(|target| self.known.get(&point.id(target)).cloned())
                .collect();
            match point.kind {
                Kind::RawAll if !measured.is_empty() => {
                    checks.push(findings::slow_members(&measured))
                }
                Kind::Cliff => checks.extend(measured.iter().map(findings::cliff_of)),
                Kind::Precondition => {
                    self.purged.retain(|drive| measured.iter().all(|one| one.target != *drive));
                    checks.extend(measured.iter().map(filled));
                }
                Kind::Zone => {
                    for one in &measured {
                        let place =
                            one.workload.name.rsplit('-').next().and_then(|text| text.parse().ok());
                        zones
                            .entry(one.target.clone())
                            .or_default()
                            .push((place.unwrap_or(0), one.read.bytes_per_s));
                    }
                }
                _ => {}
            }
            if point.until_steady && point.round == 0 {
                let series = point.targets.iter().map(|target| point.series(target));
                checks.extend(
                    series.map(|series| findings::steadiness(&series, &self.rates(&series))),
                );
            }
        }
        checks.extend(zones.iter().map(|(drive, places)| findings::zones(drive, places)));
        for check in checks {
            self.summary.failed += usize::from(check.outcome == Outcome::Fail);
            if self.checked.insert((check.name.clone(), check.target.clone())) {
                self.run.dir.append(&Record::Check(check))?;
            }
        }
        Ok(())
    }
}

fn baseline_key(point: &BaselinePoint) -> String {
    format!("{} {}", point.workload, point.condition)
}

/// The record of a preconditioning.
fn filled(measured: &Measurement) -> Check {
    let bytes = units::bytes(crate::metrics::latency::to_f64(measured.write.bytes));
    let rate = units::bytes_per_s(measured.write.bytes_per_s);
    Check {
        name: "drive.preconditioned".to_owned(),
        target: measured.target.clone(),
        outcome: Outcome::Pass,
        found: format!("written whole twice by sequential 1 MiB writes: {bytes} at {rate}"),
        next: None,
    }
}

fn measurement(point: &Point, target: &Target, ran: &FioRan) -> Measurement {
    let Figures { mut read, mut write, .. } =
        figures(&ran.result, |job| job.name.starts_with(&target.prefix));
    if point.targets.len() == 1 {
        [read.latency_series, write.latency_series] = ran.series.latency();
        [read.p99_series, write.p99_series] = ran.series.p99();
        read.series = ran.series.read.iter().map(|(at_ms, rate)| (*at_ms, *rate)).collect();
        write.series = ran.series.write.iter().map(|(at_ms, rate)| (*at_ms, *rate)).collect();
    }
    let mut engine = target.engine.clone();
    engine.kernel =
        std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    Measurement {
        id: point.id(target),
        stage: point.kind.name().to_owned(),
        round: point.round,
        target: target.path.display().to_string(),
        engine,
        condition: point.condition,
        workload: point.workload.clone(),
        read,
        write,
        cpu: None,
        path: None,
        hosts: hosts::figures(&ran.result, |job| job.name.starts_with(&target.prefix)),
        findings: Vec::new(),
        argv: ran.ran.entry.argv.clone(),
        evidence: Some(ran.ran.entry.n),
        began_unix_s: format!("{:.0}", ran.ran.entry.began_unix_s).parse().unwrap_or(0),
    }
}

/// What the result itself shows: errors, short I/Os, a depth that was not kept.
fn lint_after(
    point: &Point,
    ran: &FioRan,
    machine: &dyn Machine,
    ceilings: Vec<Ceiling>,
) -> Vec<Remark> {
    let has_ceiling = !ceilings.is_empty();
    let intent = Intent { environment_recorded: true, ceilings, ..Intent::default() };
    let subject = Subject { jobs: ran.result.as_jobs(), result: Some(ran.result.clone()), intent };
    let mut remarks = lint(&subject, machine);
    remarks.retain(|remark| {
        matches!(remark.rule, "L14" | "L28") || (has_ceiling && remark.rule == "L29")
    });
    if point.kind == Kind::Precondition {
        // Its rate is no figure: what counts is that everything was written, and errors have ended the run by now.
        remarks.clear();
    }
    remarks
}

/// The mark with the rules behind it, and the reason for the worst.
fn marked(findings: &[Finding]) -> String {
    let mark = Mark::of(findings);
    let mut rules: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.severity > Severity::Info)
        .map(|finding| finding.rule.as_str())
        .collect();
    rules.sort_unstable();
    rules.dedup();
    match findings.iter().find(|finding| finding.severity == Severity::Error) {
        Some(worst) => format!("{mark} ({}: {})", worst.rule, worst.reason),
        None if rules.is_empty() => mark.to_string(),
        None => format!("{mark} ({})", rules.join(", ")),
    }
}

/// The findings on one target, each rule once; what could not be told is a note.
fn of_target(before: &[Remark], after: &[Remark], target: &Target) -> Vec<Finding> {
    let own = |remark: &&Remark| remark.job.starts_with(&target.prefix);
    let mut findings: Vec<Finding> = Vec::new();
    for remark in before.iter().chain(after).filter(own) {
        let finding = Finding {
            severity: if remark.cannot_tell { Severity::Info } else { remark.severity },
            ..remark.finding()
        };
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings
}
