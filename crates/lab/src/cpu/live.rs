//! A live account: sample the machine while a load runs, and put the kernel's own figures beside
//! the samples.
//!
//! What must stay true: samples and `/proc/stat` cover the same time; what was sampled is kept when
//! the load fails; without `--to` nothing stays behind.

use super::account::{self, CpuAccount, ProfilerCost};
use super::files::How;
use super::flame::{self, Zoom};
use super::groups::Groups;
use super::load::{Load, generator_ns_per_io};
use super::perf::{self, Sampler};
use super::tally::Counts;
use crate::fio::measure::Figures;
use crate::host_cpu::HostCpu;
use crate::metrics::per_work::PerWork;
use crate::metrics::share::{Unit, Window};
use crate::rules;
use crate::validity::Finding;
use crate::watch::second::Live;
use crate::watch::strangers::{self, Own};
use crate::watch::ticker::{Seen, Ticker};
use crate::{AtPath, Refusal};
use regex::Regex;
use std::path::{Path, PathBuf};

/// How to sample.
#[derive(Debug)]
pub struct Plan<'a> {
    pub load: &'a Load,
    /// Samples a second on each core.
    pub hz: f64,
    pub groups: &'a Groups,
    /// Names of the client's threads.
    pub client: &'a Regex,
    /// Where everything is kept; `None`: nowhere.
    pub out: Option<&'a Path>,
    /// Run the load without sampling too, to see what sampling costs.
    pub profiler_cost: bool,
    /// Points by which a core must stand out.
    pub spike_points: f64,
    /// Share of all cores that strangers may use.
    pub strangers_max: f64,
}

/// A folder for what is only needed meanwhile.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    is_kept: bool,
}

impl Folder {
    fn make(out: Option<&Path>) -> Result<Folder, Refusal> {
        let scratch =
            || std::env::temp_dir().join(format!("ashlar-lab-cpu-{}", std::process::id()));
        let folder =
            Folder { path: out.map_or_else(scratch, Path::to_owned), is_kept: out.is_some() };
        std::fs::create_dir_all(&folder.path)
            .at(&folder.path, "choose a directory that you may write to")?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

pub fn account(plan: &Plan<'_>) -> Result<CpuAccount, Refusal> {
    let folder = Folder::make(plan.out)?;
    let dir = folder.path.as_path();
    let generator = match plan.load {
        Load::Fio(job) => generator_ns_per_io(dir, job)?,
        _ => None,
    };
    let data = dir.join("perf.data");
    // perf first: when it cannot run, no load is started for nothing.
    let mut sampler = Sampler::start(&data, plan.hz)?;
    let without = match plan.profiler_cost {
        true => Some(unsampled(plan, dir)?),
        false => None,
    };
    let own = Own::new(plan.groups, Vec::new());
    let before = HostCpu::now()?;
    sampler.begin()?;
    let ticker = Ticker::begin(&own, &[], Live::default());
    let ran = plan.load.run(dir);
    let seen = ticker.end();
    let after = HostCpu::now()?;
    let sampled = sampler.end()?;
    let work = ran?;
    let how = How { groups: plan.groups, client: plan.client, keep_stacks: true };
    let read = perf::read(&data, how)?;
    let window = Window { cores: after.cores(), hz: plan.hz, seconds: sampled.seconds };
    let name = plan.load.name();
    let taken = account::Taken {
        of: &name,
        source: read.event.as_deref().unwrap_or("unknown"),
        window,
        unit: Some(Unit::Samples),
        spike_points: plan.spike_points,
    };
    let mut account = CpuAccount::of(&read.counts, plan.groups, &taken)?;
    account.stat_share = before.until(&after).share();
    account.profiler = Some(cost(&account, sampled, without, (&seen, work.as_ref())));
    account.per_work = work.as_ref().and_then(|work| per_work(&seen, work, generator));
    account.findings.extend(work.as_ref().and_then(|work| client_misses(&account, work)));
    if !matches!(plan.load, Load::Wait(_)) {
        account.findings.extend(foreign(&seen, plan.strangers_max));
    }
    if plan.out.is_some() {
        account.flame_graphs = pictures(dir, &read.counts, plan.groups, &account)?;
    }
    Ok(account)
}

/// What strangers and the hypervisor took of the machine meanwhile.
fn foreign(seen: &Seen, share_max: f64) -> Vec<Finding> {
    let none = Figures::default();
    let whole = seen.measured(&none).map(|ends| crate::watch::cost(seen, ends, &none));
    whole.map_or_else(Vec::new, |cost| strangers::findings(&cost, &seen.strangers.1, share_max))
}

/// The machine's busy share without sampling, and CPU time for each I/O, if it was fio.
type Unsampled = (Option<f64>, Option<f64>);

fn unsampled(plan: &Plan<'_>, dir: &Path) -> Result<Unsampled, Refusal> {
    let before = HostCpu::now()?;
    let ticker = Ticker::begin(&Own::new(plan.groups, Vec::new()), &[], Live::default());
    let ran = plan.load.run(dir);
    let seen = ticker.end();
    let work = ran?;
    Ok((before.until(&HostCpu::now()?).share(), ns_per_io(&seen, work.as_ref())))
}

fn cost(
    account: &CpuAccount,
    sampled: perf::Sampled,
    without: Option<Unsampled>,
    (seen, work): (&Seen, Option<&Figures>),
) -> ProfilerCost {
    let cores = f64::from(account.sampling.window.cores);
    ProfilerCost {
        own_cpu_s: sampled.own_cpu_s,
        own_share: sampled.own_cpu_s / (cores * sampled.seconds),
        ns_per_io: without.and_then(|it| it.1).zip(ns_per_io(seen, work)),
        busy_share: without.and_then(|it| it.0).zip(account.stat_share),
    }
}

fn ns_per_io(seen: &Seen, work: Option<&Figures>) -> Option<f64> {
    per_work(seen, work?, None)?.ns_per_io()
}

/// CPU time of the time in which the I/Os were counted, without that of strangers.
fn per_work(seen: &Seen, work: &Figures, generator_ns_per_io: Option<f64>) -> Option<PerWork> {
    let cost = crate::watch::cost(seen, seen.measured(work)?, work);
    (cost.wall_s > 0.0).then(|| PerWork {
        ios: work.read.ios + work.write.ios,
        bytes: work.read.bytes + work.write.bytes,
        busy_ns: cost.busy_s / cost.wall_s * work.measured_s * 1e9,
        generator_ns_per_io,
    })
}

/// What fio's own figures leave out.
fn client_misses(account: &CpuAccount, work: &Figures) -> Option<Finding> {
    let busy_s = account.busy.share * account.sampling.window.full(Unit::Nanoseconds) / 1e9;
    let own_s = work.client_s;
    let missed = (busy_s - own_s) / busy_s * 100.0;
    let rule = rules::of("A01");
    (missed > rule.limit()).then(|| {
        rule.finding(format!(
            "fio accounts for {own_s:.2} s of CPU and the machine for {busy_s:.2} s: \
             {missed:.0} % of it is not in fio's figures"
        ))
    })
}

/// Draw all zooms that show anything into `dir`, and write the folded stacks. By zoom, the file.
pub fn pictures(
    dir: &Path,
    counts: &Counts,
    groups: &Groups,
    account: &CpuAccount,
) -> Result<std::collections::BTreeMap<String, String>, Refusal> {
    let mut drawn = std::collections::BTreeMap::new();
    let Some(stacks) = &counts.stacks else { return Ok(drawn) };
    let whole = flame::folded(stacks, Zoom::Whole);
    flame::write_folded(&dir.join("stacks.folded"), &whole, account.sampling.unit.word())?;
    let mut zooms = vec![("whole".to_owned(), Zoom::Whole), ("client".to_owned(), Zoom::Client)];
    for (number, group) in groups.all.iter().enumerate() {
        zooms.push((group.name.clone(), Zoom::Group(number)));
    }
    let window = account.sampling.window;
    for (name, zoom) in zooms {
        let file = format!("flame-{name}.svg");
        let title = format!("{}: {name}", account.of);
        let subtitle = format!(
            "{}, {} Hz, {} cores, {:.1} s",
            account.sampling.source, window.hz, window.cores, window.seconds
        );
        if flame::draw(&dir.join(&file), &flame::folded(stacks, zoom), &title, &subtitle)? {
            drawn.insert(name, file);
        }
    }
    Ok(drawn)
}
