//! What is watched while a run measures: CPU time and stacks, drives and links, and the server as
//! it was before.
//!
//! What must stay true: the server is looked at before the first load; watching never keeps a
//! measurement from being made, and what could not be watched is a check that cannot tell.

use crate::cpu::CpuAccount;
use crate::cpu::around::{Around, Going};
use crate::fio::measure::Figures;
use crate::host_cpu::HostCpu;
use crate::inspect::Inspection;
use crate::inspect::diagram::Measured;
use crate::inspect::models::Library;
use crate::inspect::server::Server;
use crate::inspect::topology::Given;
use crate::meter::{Meter, PathLoad, Reading};
use crate::record::{Check, CpuCost, Measurement, Record, ResourceTable};
use crate::refusal::Refusal;
use crate::source::Source;
use crate::store::RunDir;
use crate::validity::{Finding, Outcome, Severity};
use std::cell::RefCell;
use std::time::Duration;

/// What one program that is asked about the server may take.
const LOOK_LIMIT: Duration = Duration::from_secs(20);

/// Watches a run.
#[derive(Debug)]
pub struct Watch {
    inspection: Inspection,
    meter: Meter,
    around: Option<Around>,
    fullest: RefCell<Option<PathLoad>>,
}

/// A measurement that is being watched.
#[derive(Debug)]
pub struct Watching {
    going: Option<Going>,
    cpu: HostCpu,
    drives: Reading,
}

/// What was seen.
#[derive(Debug)]
pub struct Watched {
    /// CPU time of the machine.
    pub cpu: CpuCost,
    /// What drives and links carried.
    pub path: Option<PathLoad>,
    /// Whose CPU time it was, if stacks were taken.
    pub account: Option<CpuAccount>,
}

impl Watch {
    /// Look at the server and write down what it is, unless the run has that already. `stacks`:
    /// take them.
    ///
    /// # Errors
    /// If a record or the diagram cannot be written.
    pub fn new(dir: &RunDir, stacks: bool) -> Result<Watch, Refusal> {
        Watch::with_models(dir, stacks, &Library::default())
    }

    /// The same with what `models` say of the drives.
    ///
    /// # Errors
    /// If a record, the diagram or the drawing of the machine cannot be written.
    pub fn with_models(dir: &RunDir, stacks: bool, models: &Library) -> Result<Watch, Refusal> {
        let source = Source::live(LOOK_LIMIT);
        let server = Server::read(&source);
        let given = Given { models: models.clone(), ..Given::default() };
        let inspection = Inspection::of(server, None, given);
        keep_topology(dir, &source)?;
        let known = dir.read()?.records;
        if !known.iter().any(|record| matches!(record, Record::Resources(_))) {
            dir.append(&Record::Resources(ResourceTable { rows: inspection.resources.clone() }))?;
            for check in &inspection.checks {
                dir.append(&Record::Check(check.clone()))?;
            }
            dir.append(&Record::Check(idle()?))?;
        }
        let around = if stacks { Some(Around::new()?) } else { None };
        let meter = Meter::of(&inspection);
        let watch = Watch { inspection, meter, around, fullest: RefCell::default() };
        watch.draw(dir)?;
        Ok(watch)
    }

    /// Begin; stacks are taken if `stacks` says so and this machine lets us.
    ///
    /// # Errors
    /// If /proc/stat cannot be read.
    pub fn begin(&self, dir: &RunDir, id: &str, stacks: bool) -> Result<Watching, Refusal> {
        let around = self.around.as_ref().filter(|_| stacks);
        let going = around.and_then(|around| around.begin(dir.path(), id));
        Ok(Watching { going, cpu: HostCpu::now()?, drives: self.meter.now() })
    }

    /// End; `client` is what the load generator says about itself.
    ///
    /// # Errors
    /// If /proc/stat cannot be read.
    pub fn end(&self, watching: Watching, client: &Figures) -> Result<Watched, Refusal> {
        let Watching { going, cpu, drives } = watching;
        let mut cpu = cpu.until(&HostCpu::now()?, client.client_s);
        cpu.client_system_s = client.client_system_s;
        let path = self.meter.between(&drives, &self.meter.now());
        let flow = |path: &PathLoad| path.links.iter().map(|link| link.bytes_per_s).sum::<f64>();
        if let Some(path) = &path {
            let mut fullest = self.fullest.borrow_mut();
            if fullest.as_ref().is_none_or(|before| flow(before) < flow(path)) {
                *fullest = Some(path.clone());
            }
        }
        let account = going.zip(self.around.as_ref()).and_then(|(going, around)| around.end(going));
        Ok(Watched { cpu, path, account })
    }

    /// Draw what was measured into the bottleneck diagram, and say what could not be watched.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn conclude(&self, dir: &RunDir) -> Result<(), Refusal> {
        if let Some(trouble) = self.around.as_ref().and_then(Around::trouble) {
            dir.append(&Record::Check(Check {
                name: "cpu.stacks".to_owned(),
                target: "whole machine".to_owned(),
                outcome: Outcome::CannotTell,
                found: format!(
                    "no stacks, so no function groups and no flame graphs: {}",
                    trouble.message
                ),
                next: Some(trouble.hint),
            }))?;
        }
        self.draw(dir)
    }

    fn draw(&self, dir: &RunDir) -> Result<(), Refusal> {
        let flow = self.fullest.borrow().as_ref().map_or_else(Measured::new, PathLoad::measured);
        let path = dir.path().join("bottleneck.svg");
        std::fs::write(&path, self.inspection.svg(&flow))
            .map_err(|error| Refusal::file(&path, &error, "what was measured is still there"))
    }
}

/// Name of the drawing of the machine in a run's directory, as `lstopo` makes it.
pub const TOPOLOGY: &str = "topology.txt";

/// Keep the drawing that lstopo makes (package hwloc), if it is there.
fn keep_topology(dir: &RunDir, source: &Source) -> Result<(), Refusal> {
    let path = dir.path().join(TOPOLOGY);
    let argv = ["lstopo-no-graphics", "--of", "ascii"];
    let Some(text) = source.output("lstopo-ascii", &argv).filter(|_| !path.exists()) else {
        return Ok(());
    };
    std::fs::write(&path, text)
        .map_err(|error| Refusal::file(&path, &error, "nothing was measured yet"))
}

/// Whether the machine is idle before the first load: what others do is in every figure.
fn idle() -> Result<Check, Refusal> {
    let before = HostCpu::now()?;
    let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: LOOKED_NS };
    let _elapsed = rustix::event::poll(&mut [], Some(&time));
    let seen = before.until(&HostCpu::now()?, 0.0);
    let busy = seen.per_core.iter().sum::<f64>() / f64::from(seen.cores.max(1));
    let is_idle = busy <= BUSY_MAX;
    Ok(Check {
        name: "machine.idle".to_owned(),
        target: "whole machine".to_owned(),
        outcome: if is_idle { Outcome::Pass } else { Outcome::Fail },
        found: format!("{} of all cores busy before the first load", crate::units::percent(busy)),
        next: (!is_idle).then(|| {
            "stop what else runs here: its time is in the CPU figures, \
             and it takes from the rates"
                .to_owned()
        }),
    })
}

/// How long the machine is looked at before the first load, nanoseconds.
const LOOKED_NS: i64 = 500_000_000;
/// Share of all cores that may be busy without a load.
const BUSY_MAX: f64 = 0.10;

impl Watched {
    /// Put what was seen into `measurement`, and the account, if there is one, into the run.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn keep(self, measurement: &mut Measurement, dir: &RunDir) -> Result<(), Refusal> {
        measurement.cpu = Some(self.cpu);
        measurement.path = self.path;
        let Some(mut account) = self.account else { return Ok(()) };
        account.of.clone_from(&measurement.id);
        let own = account.profiler.as_ref().map_or(0.0, |cost| cost.own_share);
        measurement.findings.push(Finding {
            rule: "A07".to_owned(),
            severity: Severity::Info,
            reason: format!(
                "stacks were taken meanwhile; the sampler itself took {} of the machine",
                crate::units::percent(own)
            ),
            correction: None,
        });
        dir.append(&Record::Cpu(Box::new(account)))
    }
}
