//! What is watched while a run measures: CPU time and stacks, drives and links, and the server as
//! it was before.
//!
//! - second: each second while the load runs, shown and kept
//! - strangers: CPU time and I/O of programs that are neither the load nor the engine
//! - ticker: looks again and again, so that the time the load measured can be cut out
//!
//! What must stay true: the server is looked at before the first load; watching never keeps a
//! measurement from being made, and what could not be watched is a check that cannot tell.

pub mod second;
pub mod strangers;
pub mod ticker;

use self::second::Live;
use self::strangers::Own;
use self::ticker::{Tick, Ticker};
use crate::cpu::CpuAccount;
use crate::cpu::groups::Groups;
use crate::cpu::live::{Around, Going};
use crate::fio::measure::Figures;
use crate::host_cpu::HostCpu;
use crate::inspect::Inspection;
use crate::inspect::diagram::Measured;
use crate::inspect::models::Library;
use crate::inspect::server::Server;
use crate::inspect::topology::Given;
use crate::meter::{Meter, PathLoad};
use crate::record::{Check, CpuCost, Measurement, Record, ResourceTable};
use crate::refusal::{AtPath, Refusal};
use crate::rules;
use crate::source::Source;
use crate::store::RunDir;
use crate::validity::Finding;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What one program that is asked about the server may take.
const LOOK_LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Watch {
    inspection: Inspection,
    meter: Meter,
    around: Option<Around>,
    own: Own,
    strangers_max: f64,
    fullest: RefCell<Option<PathLoad>>,
}

#[derive(Debug)]
pub struct Watching {
    going: Option<Going>,
    ticker: Ticker,
    devices: Vec<PathBuf>,
}

#[derive(Debug)]
pub struct Watched {
    pub cpu: CpuCost,
    pub path: Option<PathLoad>,
    /// Whose CPU time it was, if stacks were taken.
    pub account: Option<CpuAccount>,
    pub findings: Vec<Finding>,
    /// Bytes a second of each device that is measured.
    pub carried: BTreeMap<PathBuf, f64>,
}

impl Watch {
    /// `strangers` may use so many percent of all cores; `models` tell of the drives.
    pub fn new(
        dir: &RunDir,
        stacks: bool,
        strangers: f64,
        models: &Library,
    ) -> Result<Watch, Refusal> {
        let source = Source::live(LOOK_LIMIT);
        let given = Given { models: models.clone(), ..Given::default() };
        let inspection = Inspection::of(Server::read(&source), None, given);
        let known = dir.read()?.records;
        if !known.iter().any(|record| matches!(record, Record::Resources(_))) {
            dir.append(&Record::Resources(ResourceTable { rows: inspection.resources.clone() }))?;
            for check in &inspection.checks {
                dir.append(&Record::Check(check.clone()))?;
            }
            dir.append(&Record::Check(idle()?))?;
        }
        let watch = Watch {
            meter: Meter::of(&inspection),
            inspection,
            around: if stacks { Some(Around::new()?) } else { None },
            own: Own::new(&Groups::shipped()?),
            strangers_max: strangers / 100.0,
            fullest: RefCell::default(),
        };
        watch.draw(dir)?;
        Ok(watch)
    }

    /// Begin to measure `devices`, and tell `live`; stacks are taken if `stacks` says so and this
    /// machine lets us.
    pub fn begin(&self, dir: &RunDir, live: Live, stacks: bool, devices: Vec<PathBuf>) -> Watching {
        let around = self.around.as_ref().filter(|_| stacks);
        let going = around.and_then(|around| around.begin(dir.path(), &live.of));
        let live = Live { file: Some(dir.path().join(second::FILE)), ..live };
        Watching { going, ticker: Ticker::begin(&self.own, &devices, live), devices }
    }

    /// End; `client` is what the load generator says about itself.
    pub fn end(&self, watching: Watching, client: &Figures) -> Result<Watched, Refusal> {
        let Watching { going, ticker, devices } = watching;
        let seen = ticker.end();
        let Some((from, to)) = seen.measured(client) else {
            // Says why not.
            return Err(HostCpu::now().err().unwrap_or_else(|| {
                Refusal::cannot_run("watch.blind", "/proc/stat was not there").hint("mount /proc")
            }));
        };
        let cpu = cost(&seen, (from, to), client);
        let path = self.meter.between(&from.drives, &to.drives);
        self.keep_fullest(path.as_ref());
        let mut findings = strangers::findings(&cpu, &seen.strangers.1, self.strangers_max);
        findings.extend(seen.moved.finding(client.read.bytes + client.write.bytes));
        let rate = |device: PathBuf| Some((device.clone(), from.drives.rate(&to.drives, &device)?));
        let carried = devices.into_iter().filter_map(rate).collect();
        let account = going.zip(self.around.as_ref()).and_then(|(going, around)| around.end(going));
        Ok(Watched { cpu, path, account, findings, carried })
    }

    fn keep_fullest(&self, path: Option<&PathLoad>) {
        let flow = |path: &PathLoad| path.links.iter().map(|link| link.bytes_per_s).sum::<f64>();
        let mut fullest = self.fullest.borrow_mut();
        if let Some(path) = path
            && fullest.as_ref().is_none_or(|before| flow(before) < flow(path))
        {
            *fullest = Some(path.clone());
        }
    }

    /// Draw what was measured into the bottleneck diagram, and say what could not be watched.
    pub fn conclude(&self, dir: &RunDir) -> Result<(), Refusal> {
        if let Some(trouble) = self.around.as_ref().and_then(Around::trouble) {
            let said = "no stacks, so no function groups and no flame graphs";
            let check = rules::of("cpu.stacks")
                .blind("whole machine", format!("{said}: {}", trouble.message));
            dir.append(&Record::Check(check.but(trouble.hint)))?;
        }
        self.draw(dir)
    }

    fn draw(&self, dir: &RunDir) -> Result<(), Refusal> {
        let flow = self.fullest.borrow().as_ref().map_or_else(Measured::new, PathLoad::measured);
        let path = dir.path().join("bottleneck.svg");
        std::fs::write(&path, self.inspection.svg(&flow))
            .at(&path, "what was measured is still there")
    }
}

/// Whether the machine is idle before the first load: what others do is in every figure.
fn idle() -> Result<Check, Refusal> {
    let before = HostCpu::now()?;
    std::thread::park_timeout(LOOKED);
    let seen = before.until(&HostCpu::now()?);
    let busy = seen.per_core.iter().sum::<f64>() / f64::from(seen.cores.max(1));
    let said = format!("{} of all cores busy before the first load", crate::units::percent(busy));
    Ok(rules::of("machine.idle").judge(busy <= BUSY_MAX, "whole machine", said))
}

/// How long the machine is looked at before the first load.
const LOOKED: Duration = Duration::from_millis(500);
/// Share of all cores that may be busy without a load.
const BUSY_MAX: f64 = 0.10;

/// CPU time between two looks: of strangers their part by time, and busy without it.
pub fn cost(seen: &ticker::Seen, (from, to): (&Tick, &Tick), client: &Figures) -> CpuCost {
    let all_s = seen.whole_s();
    let mut cost = from.cpu.until(&to.cpu);
    let part = |seconds: f64, of: f64| if of > 0.0 { seconds / of * cost.wall_s } else { 0.0 };
    let foreign_s = part(seen.strangers.0, all_s).min(cost.busy_s);
    let client_s = part(client.client_s, client.measured_s);
    cost.busy_s -= foreign_s;
    CpuCost { client_s, foreign_s, ..cost }
}

impl Watched {
    /// A16, if the raw device `target` did more than the load that moved `asked` bytes a second.
    pub fn more_than(&self, target: &Path, asked: f64) -> Option<Finding> {
        let carried = self.carried.get(target)?;
        strangers::more_than(&target.display().to_string(), *carried, asked)
    }

    /// Put CPU time into `measurement`, and the account, if there is one, into the run.
    pub fn keep(&mut self, measurement: &mut Measurement, dir: &RunDir) -> Result<(), Refusal> {
        measurement.cpu = Some(self.cpu.clone());
        let Some(mut account) = self.account.take() else { return Ok(()) };
        account.of.clone_from(&measurement.id);
        let own = account.profiler.as_ref().map_or(0.0, |cost| cost.own_share);
        measurement.findings.push(rules::of("A07").finding(format!(
            "stacks were taken meanwhile; the sampler itself took {} of the machine",
            crate::units::percent(own)
        )));
        dir.append(&Record::Cpu(Box::new(account)))
    }
}
