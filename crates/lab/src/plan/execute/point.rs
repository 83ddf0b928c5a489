//! One point: what rules say before it, the load with everything that is watched meanwhile, and its
//! records. If a figure is above what the raw drives gave, they may have been measured in a worse
//! moment than the array: they are measured once more.
//!
//! What must stay true: with several targets at once, CPU time is given to none of them; only raw
//! loads that read are repeated, for the array stands on the same drives; both raw runs are kept; a
//! figure that is still above is INVALID, and one that is not says that the machine drifted.

use super::super::ceilings::RawRuns;
use super::super::file::Kind;
use super::super::findings;
use super::super::points::{Point, SECOND_FILL, Target};
use super::super::progress::Progress;
use super::Session;
use crate::Refusal;
use crate::fio::measure::{Figures, figures};
use crate::fio::run::{FioOrder, FioRan, run as run_fio};
use crate::fio::{Job, escaped};
use crate::lint::machine::Away;
use crate::lint::subject::{Intent, Subject};
use crate::lint::{Remark, lint};
use crate::meter::kernel_name;
use crate::metrics::plausible::{CEILING_SLACK, Ceiling};
use crate::order::distinct;
use crate::record::{ArrayCondition, Measurement};
use crate::rules;
use crate::units;
use crate::validity::{Finding, Mark, Severity};
use crate::watch::Watched;
use crate::watch::second::Live;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Share by which an upper layer may be above the layer below before it cannot be the drift of a
/// machine.
const DRIFT_BELIEVED: f64 = 1.05;

impl Session<'_> {
    /// The point as it is run: an array that the lab made has its place now.
    fn placed(&self, point: &Point) -> Point {
        let mut point = point.clone();
        let is_made = self.array_of(&point).is_some_and(|array| array.is_made());
        if let Some(made) = self.made.as_ref().filter(|_| is_made) {
            point.jobs.set("filename", &escaped(&made.path));
            point.targets.iter_mut().for_each(|it| it.engine.clone_from(&made.identity));
        }
        let settings = point.jobs.sections.iter_mut().flat_map(|section| &mut section.settings);
        for value in settings.filter(|it| it.key == "filename").filter_map(|it| it.value.as_mut()) {
            if let Some(device) = self.loop_over(|file| escaped(file) == *value) {
                device.clone_into(value);
            }
        }
        // Raw drives that are measured again meanwhile are the drives, not the file.
        let is_through = point.condition == ArrayCondition::FileSystem;
        if let Some(mounted) = self.mounted.as_ref().filter(|_| is_through) {
            point.jobs.set("filename", &escaped(&mounted.file));
        }
        point
    }

    /// The loop device over a raw drive that is a file.
    fn loop_over(&self, is_it: impl Fn(&PathBuf) -> bool) -> Option<&String> {
        let (files, devices) = self.loops.as_ref()?;
        devices.paths.get(files.iter().position(is_it)?)
    }

    pub(super) fn point(
        &mut self,
        point: &Point,
        rebuilding: Option<Duration>,
        progress: &mut Progress,
    ) -> Result<(), Refusal> {
        let point = &self.placed(point);
        let names: Vec<String> =
            point.targets.iter().map(|it| it.path.display().to_string()).collect();
        let what = format!("{} {} on {}", point.kind.name(), point.workload.name, names.join(", "));
        progress.begin(&what);
        let before_remarks = self.lint_before(point);
        let (jobs, expected_s) = (point.jobs.clone(), point.expected_s);
        let order = FioOrder { jobs, why: what, expected_s, log_bandwidth: true };
        let live = Live {
            of: point.ids().into_iter().next().unwrap_or_default(),
            drives: self.drives_of(point),
            bar: progress.lines(),
            is_array: point.is_of_array(),
            file: None,
        };
        let stacks = point.round == 0 && point.targets.len() == 1 && point.is_of_array();
        let watching = self.run.watch.begin(self.run.dir, live, stacks, self.devices_of(point));
        let work = || run_fio(self.run.evidence, &order);
        let ran = match (rebuilding, &self.made) {
            (Some(began), Some(made)) => made.meanwhile(began, work),
            _ => work().map(|ran| (ran, None)),
        };
        let (ran, ended_s) = match ran {
            Err(refusal) if refusal.code == "fio.failed" && point.kind == Kind::Compare => {
                return self.keep_failure(point, &refusal, progress);
            }
            ran => ran?,
        };
        let mut seen = self.run.watch.end(watching, &figures(&ran.result, |_| true))?;
        let (after_remarks, drift) = self.judged(point, &ran, progress)?;
        let mut said = Vec::new();
        for target in &point.targets {
            let mut measured = measurement(point, target, &ran);
            measured.findings = of_target(&before_remarks, &after_remarks, target);
            measured.findings.extend(drift.clone());
            measured.findings.extend(is_buffered(point).then(buffered));
            measured.findings.extend(ended_s.map(findings::rebuild_ended));
            measured.findings.extend(self.above_the_array(&measured));
            measured.findings.extend(seen.findings.clone());
            measured.findings.extend(shared(point, target, &measured, &seen));
            measured.path = seen.path.clone();
            // With several targets the time is all of theirs together: it belongs to none of them.
            if point.targets.len() == 1 {
                seen.keep(&mut measured, self.run.dir)?;
            }
            let rate = units::rate(measured.rate(), measured.workload.unit());
            said.push(format!("{}: {rate} {}", measured.target, Mark::told(&measured.findings)));
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
    fn devices_of(&self, point: &Point) -> Vec<PathBuf> {
        let jobs = point.jobs.jobs();
        let opened = jobs.iter().flat_map(Job::filenames).map(PathBuf::from);
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
        let opened: Vec<String> = jobs.iter().flat_map(Job::filenames).collect();
        let (own, below): (Vec<PathBuf>, Vec<PathBuf>) = self
            .devices_of(point)
            .into_iter()
            .partition(|path| opened.iter().any(|it| path == Path::new(it)));
        let carrying = if below.is_empty() { own } else { below };
        // Members that are files are seen through their loop devices.
        let name = |path: &PathBuf| {
            kernel_name(self.loop_over(|file| file == path).map_or(path.as_path(), Path::new))
        };
        carrying.iter().filter_map(name).collect()
    }

    fn lint_before(&self, point: &Point) -> Vec<Remark> {
        let filled = |target: &Target| {
            let name = target.path.display().to_string();
            let is_fill = |it: &&Measurement| it.workload.name == SECOND_FILL && it.target == name;
            self.known.values().any(|it| is_fill(&it))
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
        let on_purpose: &[&str] = match point.kind {
            // It ends by itself.
            Kind::Precondition => &["L03", "L04", "L15"],
            // A rebuild goes on.
            Kind::Rebuild => &["L23"],
            // Places and caches are looked for.
            Kind::Zone | Kind::Cliff | Kind::WorkingSet => &["L04", "L15", "L22"],
            _ => &[],
        };
        let mut remarks = lint(&subject, self.run.machine);
        // Whoever may write was asked before the run began (guard).
        remarks.retain(|it| it.rule != "L18" && !on_purpose.contains(&it.rule));
        remarks
    }

    /// What rules say of a result, after the raw drives were given a second chance if it is above
    /// what they did.
    fn judged(
        &mut self,
        point: &Point,
        ran: &FioRan,
        progress: &mut Progress,
    ) -> Result<(Vec<Remark>, Option<Finding>), Refusal> {
        let judge = |ceiling: Option<Ceiling>| {
            let remarks = lint_after(point, ran, ceiling.into_iter().collect());
            let breaks = |it: &Remark| it.rule == "L29" && it.severity == Severity::Error;
            (remarks.iter().any(breaks), remarks)
        };
        let Some((ceiling, raw)) = self.ceiling(point) else { return Ok((judge(None).1, None)) };
        let first = ceiling.value;
        let (is_above, remarks) = judge(Some(ceiling));
        if !is_above || point.kind == Kind::Rebuild {
            return Ok((remarks, None));
        }
        let Some(again) = self.raw_again(&raw) else {
            return Ok((remarks, Some(not_repeated(&raw))));
        };
        progress.more(again.expected_s);
        progress.say("above what the raw drives gave: they are measured again");
        self.point(&again, None, progress)?;
        let (is_above, remarks) = judge(self.ceiling(point).map(|it| it.0));
        let second =
            again.ids().into_iter().filter_map(|id| self.known.get(&id)?.bytes_per_s().into());
        let drift = drifted(&raw, [first, second.sum()].map(units::bytes_per_s), is_above);
        Ok((remarks, Some(drift)))
    }

    /// What no figure of `point` can be above, and the raw load that showed it.
    fn ceiling(&self, point: &Point) -> Option<(Ceiling, String)> {
        let array = self.array_of(point).filter(|_| point.is_of_array())?;
        RawRuns::of(array, &self.plan.drives, self.known.values())?.ceiling(&point.workload)
    }

    /// What a figure through a file system gets that is above what the array did at the same load
    /// without one (F14).
    fn above_the_array(&self, measured: &Measurement) -> Option<Finding> {
        if measured.condition != ArrayCondition::FileSystem {
            return None;
        }
        let below = self.known.values().filter(|it| {
            it.condition == ArrayCondition::Healthy
                && it.target == measured.target
                && it.workload == measured.workload
                && Mark::of(&it.findings) != Mark::Invalid
        });
        let best = below.map(Measurement::rate).max_by(f64::total_cmp).filter(|it| *it > 0.0)?;
        above_layer_below(measured.rate() / best)
    }

    /// The raw run called `load` once more, as a further round; `None` if it writes or is not in
    /// the plan.
    fn raw_again(&self, load: &str) -> Option<Point> {
        let is_it = |point: &&Point| point.kind == Kind::RawAll && point.workload.name == load;
        let point = self.plan.points().find(is_it).filter(|point| !point.writes())?;
        let series: Vec<String> = point.targets.iter().map(|target| point.series(target)).collect();
        let rounds = self.known.values().filter_map(|measured| {
            let (own, _) = measured.id.rsplit_once('#')?;
            series.iter().any(|series| series == own).then_some(measured.round)
        });
        let planned = self.plan.points().filter(is_it).map(|point| point.round);
        let round = rounds.chain(planned).max().unwrap_or(0).saturating_add(1);
        Some(Point { round, ..point.clone() })
    }
}

/// A16 of a raw device whose load was as even as the time over which it is looked at.
fn shared(
    point: &Point,
    target: &Target,
    measured: &Measurement,
    seen: &Watched,
) -> Option<Finding> {
    let is_even = !matches!(point.kind, Kind::Precondition | Kind::Cliff);
    let is_raw = point.condition == ArrayCondition::Raw && !is_buffered(point);
    (is_even && is_raw).then(|| seen.more_than(&target.path, measured.bytes_per_s())).flatten()
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
        1 => own.with_series(&ran.series, None),
        _ => own.with_series(&ran.series, Some(&numbers(point, target))),
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
        began_unix_s: units::whole(ran.ran.entry.began_unix_s),
        ..point.blank(target)
    }
}

/// Numbers of the jobs of one target, as fio counts them: from 1, copies of a job one after the
/// other.
pub(in crate::plan) fn numbers(point: &Point, target: &Target) -> Vec<u32> {
    let jobs = point.jobs.jobs();
    let copies = |job: &Job| usize::try_from(job.count("numjobs", 1)).unwrap_or(1);
    let names = jobs.iter().flat_map(|job| std::iter::repeat_n(job.name.as_str(), copies(job)));
    (1..).zip(names).filter(|(_, name)| name.starts_with(&target.prefix)).map(|it| it.0).collect()
}

/// What the result itself shows: errors, short I/Os, a depth that was not kept.
fn lint_after(point: &Point, ran: &FioRan, ceilings: Vec<Ceiling>) -> Vec<Remark> {
    if point.kind == Kind::Precondition {
        // Its rate is no figure: what counts is that everything was written, and errors have ended
        // the run by now.
        return Vec::new();
    }
    let has_ceiling = !ceilings.is_empty();
    let intent = Intent { environment_recorded: true, ceilings, ..Intent::default() };
    let subject = Subject { jobs: ran.result.as_jobs(), result: Some(ran.result.clone()), intent };
    // None of these rules looks at a device, which would take time.
    let mut remarks = lint(&subject, &Away);
    let is_buffered = is_buffered(point);
    remarks.retain(|it| match it.rule {
        // The kernel keeps the depth of a buffered load: that is said on the figure.
        "L28" => !is_buffered || !it.reason.contains("in flight"),
        rule => rule == "L14" || (has_ceiling && rule == "L29"),
    });
    remarks
}

/// The findings on one target, each rule once; what could not be told is a note.
fn of_target(before: &[Remark], after: &[Remark], target: &Target) -> Vec<Finding> {
    let own = |remark: &&Remark| remark.job.starts_with(&target.prefix);
    distinct(before.iter().chain(after).filter(own).map(|remark| Finding {
        severity: if remark.cannot_tell { Severity::Info } else { remark.severity },
        ..remark.finding()
    }))
}

fn above_layer_below(share: f64) -> Option<Finding> {
    let severity = match share {
        share if share > DRIFT_BELIEVED => Severity::Error,
        share if share > CEILING_SLACK => Severity::Warning,
        _ => return None,
    };
    let reason = format!(
        "{} of what the array did at the same load without a file system: \
         a cache answers, or the machine drifted",
        units::percent(share)
    );
    let next = "a larger span, direct I/O, more rounds of both";
    Some(rules::of("F14").finding_as(severity, reason).but(next))
}

fn drifted(raw: &str, [was, now]: [String; 2], stays_above: bool) -> Finding {
    let (severity, reason, next) = match stays_above {
        false => (
            Severity::Warning,
            format!(
                "above what the raw run {raw} allowed before ({was}), but not above what it gave \
                 right after ({now}): the machine drifted; both raw runs are kept"
            ),
            "an idle machine, and more rounds of raw.all",
        ),
        true => (
            Severity::Info,
            format!(
                "the raw run {raw} was measured again right after it: {now}, {was} before; \
                 the figure stays above what they allow"
            ),
            "a span beyond every cache",
        ),
    };
    rules::of("F14").finding_as(severity, reason).but(next)
}

fn not_repeated(raw: &str) -> Finding {
    let reason = format!(
        "the raw run {raw} was not measured again, which would have overwritten the array: \
         whether the machine was slower then cannot be told"
    );
    let next = "several rounds of raw.all, on an idle machine";
    rules::of("F14").finding_as(Severity::Info, reason).but(next)
}

#[cfg(test)]
mod tests {
    use super::above_layer_below;
    use crate::validity::Severity;

    /// Seed 004: an upper layer at 63 GB/s on arrays that did 59.5 GB/s is INVALID.
    #[test]
    fn an_upper_layer_above_the_layer_below_is_noted_and_far_above_it_is_invalid() {
        let severity = |share| above_layer_below(share).map(|finding| finding.severity);
        assert_eq!(severity(1.01), None);
        assert_eq!(severity(1.03), Some(Severity::Warning));
        assert_eq!(severity(63.0 / 59.5), Some(Severity::Error));
    }
}
