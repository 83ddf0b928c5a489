//! One point: what rules say before it, the load with everything that is watched meanwhile, and its
//! records.
//!
//! What must stay true: with several targets at once, CPU time is given to none of them.

use super::super::file::Kind;
use super::super::findings;
use super::super::made::Rebuilding;
use super::super::points::{Point, SECOND_FILL, Target};
use super::super::progress::Progress;
use super::{Session, told, whole_seconds};
use crate::Refusal;
use crate::fio::measure::{Figures, figures};
use crate::fio::run::{FioOrder, FioRan, run as run_fio};
use crate::lint::machine::Away;
use crate::lint::subject::{Intent, Subject};
use crate::lint::{Remark, lint};
use crate::meter::kernel_name;
use crate::metrics::plausible::Ceiling;
use crate::order::distinct;
use crate::record::Measurement;
use crate::rules;
use crate::validity::{Finding, Mark, Severity};
use crate::watch::Watched;
use crate::watch::second::Live;
use std::path::{Path, PathBuf};

impl Session<'_> {
    /// The point as it is run: an array that the lab made has its place now.
    pub(super) fn placed(&self, point: &Point) -> Point {
        let mut point = point.clone();
        let made = self.array_of(&point).filter(|array| array.is_made()).and(self.made.as_ref());
        if let Some(made) = made {
            point.jobs.set("filename", &made.path().to_string_lossy().replace(':', "\\:"));
            for target in &mut point.targets {
                target.engine = made.identity().clone();
            }
        }
        if let Some((files, devices)) = &self.loops {
            let settings = point.jobs.sections.iter_mut().flat_map(|section| &mut section.settings);
            for value in
                settings.filter(|it| it.key == "filename").filter_map(|it| it.value.as_mut())
            {
                let at = files
                    .iter()
                    .position(|file| file.to_string_lossy().replace(':', "\\:") == *value);
                if let Some(device) = at.and_then(|at| devices.paths.get(at)) {
                    *value = device.display().to_string();
                }
            }
        }
        // Raw drives that are measured again meanwhile are the drives, not the file.
        let is_through = point.condition == crate::record::ArrayCondition::FileSystem;
        if let Some(mounted) = self.mounted.as_ref().filter(|_| is_through) {
            point.jobs.set("filename", &mounted.file().to_string_lossy().replace(':', "\\:"));
        }
        point
    }

    pub(super) fn point(
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
            log_bandwidth: true,
        };
        let id = point.targets.first().map_or_else(String::new, |target| point.id(target));
        let stacks = point.round == 0 && point.targets.len() == 1 && point.is_of_array();
        let (of, drives, bar) = (id, self.drives_of(point), progress.lines());
        let live = Live { of, drives, bar, is_array: point.is_of_array(), file: None };
        let watching = self.run.watch.begin(self.run.dir, live, stacks, self.devices_of(point));
        let work = || run_fio(self.run.evidence, &order);
        let (ran, ended_s) = match (rebuilding, &self.made) {
            (Some(rebuilding), Some(made)) => made.meanwhile(rebuilding, work)?,
            _ => match work() {
                Err(refusal) if refusal.code == "fio.failed" && point.kind == Kind::Compare => {
                    return self.keep_failure(point, &refusal, progress);
                }
                ran => (ran?, None),
            },
        };
        let client = figures(&ran.result, |_| true);
        let mut watched = Some(self.run.watch.end(watching, &client)?);
        let strangers = watched.as_ref().map_or_else(Vec::new, |seen| seen.findings.clone());
        let (after_remarks, drift) = self.judged(point, &ran, progress)?;
        let mut said = Vec::new();
        for target in &point.targets {
            let mut measured = measurement(point, target, &ran);
            measured.findings = of_target(&before_remarks, &after_remarks, target);
            measured.findings.extend(drift.clone());
            measured.findings.extend(is_buffered(point).then(buffered));
            measured.findings.extend(ended_s.map(findings::rebuild_ended));
            measured.findings.extend(self.above_the_array(&measured));
            measured.findings.extend(strangers.clone());
            measured.findings.extend(shared(point, target, &measured, watched.as_ref()));
            // With several targets the time is all of theirs together: it belongs to none of them.
            if point.targets.len() == 1 {
                watched.take().map_or(Ok(()), |seen| seen.keep(&mut measured, self.run.dir))?;
            } else {
                measured.path = watched.as_ref().and_then(|seen| seen.path.clone());
            }
            said.push(told(&measured, &Mark::told(&measured.findings)));
            self.keep(measured)?;
        }
        progress.end(point.expected_s, Some(&said.join("; ")));
        Ok(())
    }

    /// An engine that answers with errors is a result, too: an invalid figure that says so.
    fn keep_failure(
        &mut self,
        point: &Point,
        refusal: &Refusal,
        progress: &mut Progress,
    ) -> Result<(), Refusal> {
        for target in &point.targets {
            let reason = format!("the load ended with an error: {}", refusal.message);
            let finding = rules::of("L28").finding(reason);
            self.keep(Measurement { findings: vec![finding], ..point.blank(target) })?;
        }
        progress.end(point.expected_s, Some(&format!("failed: {refusal}")));
        Ok(())
    }

    /// Devices that a point uses: its targets, and the members of an array below them.
    pub(super) fn devices_of(&self, point: &Point) -> Vec<PathBuf> {
        let jobs = point.jobs.jobs();
        let opened = jobs.iter().flat_map(crate::fio::Job::filenames).map(PathBuf::from);
        let array = self.array_of(point);
        let members = array.map_or_else(Vec::new, |array| match array.is_made() {
            true => array.members.clone(),
            false => self.plan.drives.clone(),
        });
        let mut devices: Vec<PathBuf> = opened.chain(members).collect();
        devices.sort();
        devices.dedup();
        devices
    }

    /// The drives that carry a point, as the kernel calls them: those below an array, not itself.
    fn drives_of(&self, point: &Point) -> Vec<String> {
        let jobs = point.jobs.jobs();
        let opened: Vec<String> = jobs.iter().flat_map(crate::fio::Job::filenames).collect();
        let all = self.devices_of(point);
        let is_below = |path: &&PathBuf| !opened.iter().any(|it| path.as_path() == Path::new(it));
        let below: Vec<&PathBuf> = all.iter().filter(is_below).collect();
        let carrying = if below.is_empty() { all.iter().collect() } else { below };
        // Members that are files are seen through their loop devices.
        let through = |path: &PathBuf| {
            let (files, devices) = self.loops.as_ref()?;
            devices.paths.get(files.iter().position(|file| file == path)?).cloned()
        };
        let name = |path: &PathBuf| kernel_name(&through(path).unwrap_or_else(|| path.clone()));
        carrying.into_iter().filter_map(name).collect()
    }

    pub(super) fn lint_before(&self, point: &Point) -> Vec<Remark> {
        let filled = |target: &Target| {
            self.known.values().any(|measured| {
                measured.workload.name == SECOND_FILL
                    && measured.target == target.path.display().to_string()
            })
        };
        let intent = Intent {
            stress: matches!(point.kind, Kind::RawAll | Kind::RawScale | Kind::ArraysAll),
            stripe_bytes: None,
            preconditioned: matches!(point.kind, Kind::Precondition | Kind::Compare)
                || point.targets.iter().all(filled),
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
}

/// A16 of a raw device whose load was as even as the time over which it is looked at.
fn shared(
    point: &Point,
    target: &Target,
    measured: &Measurement,
    seen: Option<&Watched>,
) -> Option<Finding> {
    let is_even = !matches!(point.kind, Kind::Precondition | Kind::Cliff);
    let is_raw = point.condition == crate::record::ArrayCondition::Raw && !is_buffered(point);
    seen.filter(|_| is_even && is_raw)?.more_than(&target.path, measured.bytes_per_s())
}

/// Whether a load goes through the page cache on purpose.
fn is_buffered(point: &Point) -> bool {
    point.jobs.jobs().iter().any(|job| job.get("direct").is_some() && !job.is_direct())
}

fn buffered() -> Finding {
    let reason = "buffered on purpose: memory answers first, \
                  and how many I/Os are in flight is the kernel's affair";
    let next = "set it beside the same load with direct I/O";
    rules::of("L01").finding_as(Severity::Warning, reason).but(next)
}

fn measurement(point: &Point, target: &Target, ran: &FioRan) -> Measurement {
    let own = figures(&ran.result, |job| job.name.starts_with(&target.prefix));
    let Figures { read, write, .. } = match point.targets.len() {
        1 => own.with_series(ran.series.clone()),
        _ => own.with_series_of(&ran.series, &numbers(point, target)),
    };
    let mut engine = target.engine.clone();
    engine.kernel =
        std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    Measurement {
        engine,
        read,
        write,
        argv: ran.ran.entry.argv.clone(),
        evidence: Some(ran.ran.entry.n),
        began_unix_s: whole_seconds(ran.ran.entry.began_unix_s),
        ..point.blank(target)
    }
}

/// Numbers of the jobs of one target, as fio counts them: from 1, copies of a job one after the
/// other.
pub(in crate::plan) fn numbers(point: &Point, target: &Target) -> Vec<u32> {
    let jobs = point.jobs.jobs();
    let copies = |job: &crate::fio::Job| usize::try_from(job.count("numjobs", 1)).unwrap_or(1);
    let names = jobs.iter().flat_map(|job| std::iter::repeat_n(job.name.as_str(), copies(job)));
    (1..).zip(names).filter(|(_, name)| name.starts_with(&target.prefix)).map(|it| it.0).collect()
}

/// What the result itself shows: errors, short I/Os, a depth that was not kept.
pub(super) fn lint_after(point: &Point, ran: &FioRan, ceilings: Vec<Ceiling>) -> Vec<Remark> {
    let has_ceiling = !ceilings.is_empty();
    let intent = Intent { environment_recorded: true, ceilings, ..Intent::default() };
    let subject = Subject { jobs: ran.result.as_jobs(), result: Some(ran.result.clone()), intent };
    // None of these rules looks at a device, which would take time.
    let mut remarks = lint(&subject, &Away);
    remarks.retain(|remark| {
        matches!(remark.rule, "L14" | "L28") || (has_ceiling && remark.rule == "L29")
    });
    if is_buffered(point) {
        // The kernel keeps the depth, not the load: that is said on the figure.
        remarks.retain(|remark| remark.rule != "L28" || !remark.reason.contains("in flight"));
    }
    if point.kind == Kind::Precondition {
        // Its rate is no figure: what counts is that everything was written, and errors have ended
        // the run by now.
        remarks.clear();
    }
    remarks
}

/// The findings on one target, each rule once; what could not be told is a note.
pub(super) fn of_target(before: &[Remark], after: &[Remark], target: &Target) -> Vec<Finding> {
    let own = |remark: &&Remark| remark.job.starts_with(&target.prefix);
    distinct(before.iter().chain(after).filter(own).map(|remark| Finding {
        severity: if remark.cannot_tell { Severity::Info } else { remark.severity },
        ..remark.finding()
    }))
}
