//! SPDK's bdevperf on a drive or an array, in the place of fio.
//!
//! What must stay true: what it was told to open is evidence like its output; its figures get the
//! ceilings that fio's get; that it polls, and that engine and load share its process, stands on
//! every figure.

use super::super::made;
use super::super::points::Point;
use super::super::progress::Progress;
use super::point::of_target;
use super::{Session, told, whole_seconds};
use crate::Refusal;
use crate::adapter::bdevperf::{Perf, command};
use crate::evidence::{Exit, Order, Ran};
use crate::fio::measure::Figures;
use crate::metrics::latency::to_f64;
use crate::metrics::plausible::{ceiling_finding, little_finding};
use crate::record::{Direction, Measurement};
use crate::validity::{Finding, Mark, Severity};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What it may take beyond its time: its memory is laid out before it.
const MARGIN: Duration = Duration::from_secs(300);
/// Rules about how fio is told something: bdevperf is told otherwise.
const OF_FIO: [&str; 9] = ["L01", "L02", "L09", "L11", "L12", "L13", "L14", "L15", "L27"];

impl Session<'_> {
    /// Measure one point and write it down.
    pub(super) fn bdevperf(
        &mut self,
        point: &Point,
        progress: &mut Progress,
    ) -> Result<(), Refusal> {
        let point = &self.placed(point);
        let Some(target) = point.targets.first() else { return Ok(()) };
        let name = target.path.display().to_string();
        let what = format!("{} {} on {name}", point.kind.name(), point.workload.name);
        progress.begin(&what);
        let mut before = self.lint_before(point);
        before.retain(|remark| !OF_FIO.contains(&remark.rule));
        let stacks = point.round == 0 && point.is_of_array();
        let watching = self.run.watch.begin(self.run.dir, &point.id(target), stacks)?;
        let (perf, ran) = self.loaded(point, &what)?;
        // Of its time nobody can say how much was the load generator's: it is all in one process.
        let watched = self.run.watch.end(watching, &Figures::default())?;
        let mut measured = measurement(point, &perf, &ran);
        measured.findings = of_target(&before, &[], target);
        measured.findings.push(polls(point.workload.jobs));
        measured.findings.extend((perf.failed_per_s > 0.0).then(|| failed(perf.failed_per_s)));
        let load = &point.workload;
        let mean = perf.latency_mean_ns;
        measured.findings.extend(little_finding(load.jobs, load.depth, perf.iops, mean));
        let above = ceiling_finding(measured.bytes_per_s(), &self.ceilings(point).0);
        measured.findings.extend(above.map(|it| Finding { rule: "L29".to_owned(), ..it }));
        watched.keep(&mut measured, self.run.dir)?;
        let said = told(&measured, &Mark::of(&measured.findings));
        self.keep(measured)?;
        progress.end(point.expected_s, Some(&said));
        Ok(())
    }

    /// Start it, and read what it printed.
    fn loaded(&self, point: &Point, why: &str) -> Result<(Perf, Ran), Refusal> {
        let config = made::seen(&self.plan.arrays, point).config(&point.workload).to_string();
        let seconds = seconds(point);
        let order = Order::new(command(&point.workload, seconds), why)
            .limit(Duration::from_secs(seconds) + MARGIN);
        let file = |place: &Path| -> PathBuf { place.with_extension("json") };
        let prepare = |place: &Path| {
            std::fs::write(file(place), config)?;
            Ok(vec![file(place).to_string_lossy().into_owned()])
        };
        let ran = self.run.evidence.run_with(&order, prepare, |place, _| vec![file(place)])?;
        match &ran.entry.exit {
            Exit::Code(0) => {}
            Exit::Interrupted => {
                return Err(Refusal::new(
                    "run.interrupted",
                    "interrupted; what was measured is kept",
                    "go on with --resume",
                ));
            }
            other => {
                let said = format!("bdevperf ended with {other} ({why}): {}", ran.complaint());
                let hint = "its outputs are kept under evidence/; \
                            SPDK wants huge pages (scripts/setup.sh)";
                return Err(Refusal::cannot_run("bdevperf.failed", said, hint));
            }
        }
        let told = ran.stdout()?;
        Ok((Perf::parse(&String::from_utf8_lossy(&told))?, ran))
    }
}

/// How long it is to load, whole seconds.
pub(in crate::plan) fn seconds(point: &Point) -> u64 {
    let jobs = point.jobs.jobs();
    let asked = jobs.first().and_then(|job| job.seconds("runtime")).unwrap_or(1.0);
    Duration::try_from_secs_f64(asked).map_or(1, |time| time.as_secs().max(1))
}

fn measurement(point: &Point, perf: &Perf, ran: &Ran) -> Measurement {
    let target = &point.targets[0];
    let all = perf.direction(to_f64(seconds(point)));
    let none = Direction::default;
    let (read, write) = match point.workload.mix.trim_start_matches("rand") {
        "read" => (all, none()),
        "write" => (none(), all),
        // It prints both together: they are parted as they were asked for.
        _ => {
            let reads = f64::from(point.workload.read_percent.unwrap_or(50)) / 100.0;
            (part(perf, reads, point), part(perf, 1.0 - reads, point))
        }
    };
    Measurement {
        read,
        write,
        argv: ran.entry.argv.clone(),
        evidence: Some(ran.entry.n),
        began_unix_s: whole_seconds(ran.entry.began_unix_s),
        ..point.blank(target)
    }
}

fn part(perf: &Perf, share: f64, point: &Point) -> Direction {
    let own = Perf { iops: perf.iops * share, mib_per_s: perf.mib_per_s * share, ..perf.clone() };
    own.direction(to_f64(seconds(point)))
}

fn polls(cores: u32) -> Finding {
    Finding {
        rule: "A14".to_owned(),
        severity: Severity::Warning,
        reason: format!(
            "by bdevperf: {cores} polling core(s), busy whatever they do, \
             with load and engine in one process; means only, no percentiles"
        ),
        correction: None,
    }
}

fn failed(per_s: f64) -> Finding {
    Finding {
        rule: "L28".to_owned(),
        severity: Severity::Error,
        reason: format!("{per_s:.2} I/Os a second failed"),
        correction: Some("its output is kept under evidence/".to_owned()),
    }
}
