//! Accounts of this machine: stacks around one measurement of a run, or while a load runs, with the
//! kernel's own figures beside the samples.
//!
//! What must stay true: samples and `/proc/stat` cover the same time; a measurement is made whether
//! or not stacks can be taken, and why they could not be taken is said once; what was sampled is
//! kept when the load fails; without `--to` nothing stays behind.

use super::account::{CpuAccount, ProfilerCost, Taken};
use super::files::How;
use super::flame::{self, Zoom};
use super::groups::Groups;
use super::load::{Load, generator_ns_per_io};
use super::perf::{self, Sampled, Sampler};
use super::tally::Counts;
use crate::fio::measure::Figures;
use crate::host_cpu::HostCpu;
use crate::metrics::per_work::PerWork;
use crate::metrics::share::{Unit, Window};
use crate::metrics::spread::SPIKE_POINTS;
use crate::rules;
use crate::validity::Finding;
use crate::watch::second::Live;
use crate::watch::strangers::{self, Own};
use crate::watch::ticker::{Seen, Ticker};
use crate::{AtPath, Refusal};
use regex::Regex;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Samples a second on each core: off every round frequency, so that nothing periodic hides.
const HZ: f64 = 99.0;
const FOLDER: &str = "stacks";

#[derive(Debug)]
pub struct Plan<'a> {
    pub load: &'a Load,
    pub hz: f64,
    pub how: How<'a>,
    /// Where everything is kept; `None`: nowhere.
    pub out: Option<&'a Path>,
    /// Points by which a core must stand out.
    pub spike_points: f64,
    /// Share of all cores that strangers may use.
    pub strangers_max: f64,
}

/// Takes stacks around measurements.
#[derive(Debug)]
pub struct Around {
    groups: Groups,
    client: Regex,
    trouble: RefCell<Option<Refusal>>,
}

#[derive(Debug)]
pub struct Going {
    sampler: Sampler,
    dir: PathBuf,
    folder: String,
    of: String,
}

impl Around {
    /// With the function groups that ship; fio is the client.
    ///
    /// # Errors
    /// The groups that ship are unsound, which is a fault of the lab.
    pub fn new() -> Result<Around, Refusal> {
        let client = Regex::new("^fio").map_err(|error| {
            Refusal::cannot_run("cpu.client_malformed", error.to_string())
                .hint("a fault of the lab")
        })?;
        Ok(Around { groups: Groups::shipped()?, client, trouble: RefCell::default() })
    }

    /// Why stacks could not be taken, if they could not.
    pub fn trouble(&self) -> Option<Refusal> {
        self.trouble.borrow().clone()
    }

    /// Begin; `None` if stacks cannot be taken here, now or before.
    pub fn begin(&self, run_dir: &Path, of: &str) -> Option<Going> {
        if self.trouble.borrow().is_some() {
            return None;
        }
        let folder = format!("{FOLDER}/{}", file_name(of));
        let dir = run_dir.join(&folder);
        let begun = || {
            std::fs::create_dir_all(&dir).at(&dir, "")?;
            let mut sampler = Sampler::start(&dir.join("perf.data"), HZ)?;
            sampler.begin().map(|()| sampler)
        };
        let sampler = self.kept(begun())?;
        Some(Going { sampler, dir, folder, of: of.to_owned() })
    }

    pub fn end(&self, going: Going) -> Option<CpuAccount> {
        self.kept(self.account(going))
    }

    fn account(&self, going: Going) -> Result<CpuAccount, Refusal> {
        let Going { sampler, dir, folder, of } = going;
        let sampled = sampler.end()?;
        let how = How { groups: &self.groups, client: &self.client, keep_stacks: true };
        let (mut account, counts) = account_of(&dir, how, &of, (HZ, SPIKE_POINTS), sampled)?;
        let drawn = pictures(&dir, &counts, &self.groups, &account)?;
        account.flame_graphs =
            drawn.into_iter().map(|(zoom, file)| (zoom, format!("{folder}/{file}"))).collect();
        // Large, and of no use on another machine; the folded stacks say the same.
        let data = dir.join("perf.data");
        std::fs::remove_file(&data).at(&data, "")?;
        Ok(account)
    }

    fn kept<T>(&self, result: Result<T, Refusal>) -> Option<T> {
        result.map_err(|refusal| *self.trouble.borrow_mut() = Some(refusal)).ok()
    }
}

/// A measurement's id as one name of a folder.
fn file_name(of: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    of.chars().map(plain).collect::<String>().trim_matches(['-', '.']).to_owned()
}

fn account_of(
    dir: &Path,
    how: How<'_>,
    of: &str,
    (hz, spike_points): (f64, f64),
    sampled: Sampled,
) -> Result<(CpuAccount, Counts), Refusal> {
    let read = perf::read(&dir.join("perf.data"), how)?;
    let cores = HostCpu::now()?.cores();
    let taken = Taken {
        of,
        source: read.event.as_deref().unwrap_or("unknown"),
        window: Window { cores, hz, seconds: sampled.seconds },
        unit: Some(Unit::Samples),
        spike_points,
    };
    let mut account = CpuAccount::of(&read.counts, how.groups, &taken)?;
    let own_share = sampled.own_cpu_s / (f64::from(cores) * sampled.seconds);
    account.profiler = Some(ProfilerCost { own_cpu_s: sampled.own_cpu_s, own_share });
    Ok((account, read.counts))
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
        let path = out.map_or_else(scratch, Path::to_owned);
        std::fs::create_dir_all(&path).at(&path, "choose a directory that you may write to")?;
        Ok(Folder { path, is_kept: out.is_some() })
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
    // perf first: when it cannot run, no load is started for nothing.
    let mut sampler = Sampler::start(&dir.join("perf.data"), plan.hz)?;
    let own = Own::new(plan.how.groups);
    let before = HostCpu::now()?;
    sampler.begin()?;
    let ticker = Ticker::begin(&own, &[], Live::default());
    let ran = plan.load.run(dir);
    let seen = ticker.end();
    let after = HostCpu::now()?;
    let sampled = sampler.end()?;
    let work = ran?;
    let rates = (plan.hz, plan.spike_points);
    let (mut account, counts) = account_of(dir, plan.how, &plan.load.name(), rates, sampled)?;
    account.stat_share = before.until(&after).share();
    account.per_work = work.as_ref().and_then(|work| per_work(&seen, work, generator));
    account.findings.extend(work.as_ref().and_then(|work| client_misses(&account, work)));
    if !matches!(plan.load, Load::Wait(_)) {
        account.findings.extend(foreign(&seen, plan.strangers_max));
    }
    if plan.out.is_some() {
        account.flame_graphs = pictures(dir, &counts, plan.how.groups, &account)?;
    }
    Ok(account)
}

/// What strangers and the hypervisor took of the machine meanwhile.
fn foreign(seen: &Seen, share_max: f64) -> Vec<Finding> {
    let none = Figures::default();
    let whole = seen.measured(&none).map(|ends| crate::watch::cost(seen, ends, &none));
    whole.map_or_else(Vec::new, |cost| strangers::findings(&cost, &seen.strangers.1, share_max))
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
) -> Result<BTreeMap<String, String>, Refusal> {
    let mut drawn = BTreeMap::new();
    let Some(stacks) = &counts.stacks else { return Ok(drawn) };
    let whole = flame::folded(stacks, Zoom::Whole);
    flame::write_folded(&dir.join("stacks.folded"), &whole, account.sampling.unit.word())?;
    let engines = groups.all.iter().enumerate().map(|(at, it)| (it.name.as_str(), Zoom::Group(at)));
    for (name, zoom) in
        [("whole", Zoom::Whole), ("client", Zoom::Client)].into_iter().chain(engines)
    {
        let (file, title) = (format!("flame-{name}.svg"), format!("{}: {name}", account.of));
        let Window { cores, hz, seconds } = account.sampling.window;
        let source = &account.sampling.source;
        let subtitle = format!("{source}, {hz} Hz, {cores} cores, {seconds:.1} s");
        if flame::draw(&dir.join(&file), &flame::folded(stacks, zoom), &title, &subtitle)? {
            drawn.insert(name.to_owned(), file);
        }
    }
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn an_id_becomes_one_name_that_stays_in_its_folder() {
        assert_eq!(file_name("compare/ashlar/2 out/rr-4k#0"), "compare-ashlar-2-out-rr-4k-0");
        assert_eq!(file_name("../../x"), "x");
    }
}
