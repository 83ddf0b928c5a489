//! From counts to the account of a machine's CPU: shares with errors, contexts, useful work against
//! overhead, cores.
//!
//! What must stay true: every share is of cores x time (F1); a group names its file's version; the
//! sampling source and its bias stand in the account; counts that cannot be in the unit they are
//! said to be in are refused.

use super::groups::{Group, Groups, WorkKind};
use super::tally::{Context, Counts, EngineCounts};
use crate::Refusal;
use crate::metrics::per_work::PerWork;
use crate::metrics::share::{Share, Unit, Window};
use crate::metrics::spread::Spread;
use crate::order::one_of;
use crate::rules;
use crate::validity::{Finding, Severity};
use ahash::RandomState;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Rows of the tables of threads and of plateaus.
const ROWS: usize = 12;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CpuAccount {
    /// Measurement it belongs to, or what was asked for: a command, `whole machine`, a file.
    pub of: String,
    pub sampling: Sampling,
    pub busy: Share,
    /// Threads that the client pattern names.
    pub client: Share,
    /// Stacks that poll for completions in the kernel: consumed whether or not something completes.
    pub polling: Share,
    /// Engines that were seen, largest first.
    pub groups: Vec<GroupAccount>,
    /// All cores, from the samples; `None` if the samples do not say where they were taken.
    pub spread: Option<Spread>,
    /// Busy percent of each core, from the samples.
    #[serde(default)]
    pub core_percents: Vec<f64>,
    /// Busy share of the machine over the same time by `/proc/stat`, live only.
    pub stat_share: Option<f64>,
    /// Processes and kernel threads that cause the load, largest first.
    pub threads: Vec<Row>,
    /// Widest leaf frames of all: the plateaus of the flame graph.
    pub plateaus: Vec<Row>,
    /// CPU time for each I/O, when a load generator was run.
    pub per_work: Option<PerWork>,
    pub profiler: Option<ProfilerCost>,
    /// Pictures, by zoom: `whole`, `client`, or the group's name -> file.
    #[serde(default)]
    pub flame_graphs: BTreeMap<String, String>,
    #[serde(default)]
    pub findings: Vec<Finding>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sampling {
    /// `cpu-clock`, `cycles`, or `unknown` for folded files.
    pub source: String,
    /// What that source gets wrong, one sentence.
    pub bias: String,
    pub window: Window,
    pub unit: Unit,
    /// Sum of the counts, idle ones too.
    pub total: u64,
    pub unread_lines: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GroupAccount {
    pub name: String,
    pub version: u32,
    pub share: Share,
    /// Where it ran. A context without work is not here.
    pub contexts: BTreeMap<Context, Share>,
    pub work: Vec<WorkAccount>,
    /// Parity, reconstruction, checksums: what the user pays for.
    pub useful: Share,
    pub overhead: Share,
    pub polling: Share,
    /// What no expression of the group tells apart.
    pub unsorted: Share,
    pub spread: Option<Spread>,
    pub plateaus: Vec<Row>,
}

/// One kind of work, by its name in the group file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WorkAccount {
    pub name: String,
    pub kind: WorkKind,
    pub share: Share,
}

/// A row of a table: a thread or a frame.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    pub share: Share,
    pub cores: f64,
}

/// CPU time of the sampling program itself, in seconds and as a share of the machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProfilerCost {
    pub own_cpu_s: f64,
    pub own_share: f64,
}

/// What a source of samples gets wrong.
fn bias_of(source: &str) -> &'static str {
    match source {
        it if it.contains("cpu-clock") || it.contains("task-clock") => {
            "software clock: work done with interrupts off is charged to what switches them on \
             again (often _raw_spin_unlock_irqrestore), and idle cores are sampled less"
        }
        "unknown" => "the file does not say by which event it was sampled",
        _ => {
            "hardware counter: an idle or halted core gives no samples, \
             and counts follow the core's clock"
        }
    }
}

/// What the counts were taken from.
#[derive(Clone, PartialEq, Debug)]
pub struct Taken<'a> {
    pub of: &'a str,
    /// Event, or `unknown`.
    pub source: &'a str,
    pub window: Window,
    /// The unit that was said, if one was.
    pub unit: Option<Unit>,
    /// Points by which a core must stand out.
    pub spike_points: f64,
}

impl CpuAccount {
    pub fn of(counts: &Counts, groups: &Groups, taken: &Taken<'_>) -> Result<CpuAccount, Refusal> {
        let window = taken.window;
        if !window.is_sound() {
            let Window { cores, hz, seconds } = window;
            let what = format!("{cores} cores, {hz} Hz, {seconds} s are nothing to divide by");
            return Err(Refusal::cannot_run("cpu.window_empty", what)
                .hint("give --cores, --hz and --seconds above 0"));
        }
        if counts.total == 0 {
            let what =
                format!("{}: no samples in it ({} lines not understood)", taken.of, counts.unread);
            return Err(
                Refusal::cannot_run("cpu.no_samples", what).hint("nothing can be said about CPU")
            );
        }
        let scale =
            Scale { window, unit: unit_of(counts.total, taken)?, points: taken.spike_points };
        let engines = counts.engines.iter().zip(&groups.all).filter(|(it, _)| it.total() > 0);
        let mut seen: Vec<GroupAccount> =
            engines.map(|(engine, group)| scale.group(engine, group)).collect();
        seen.sort_by(|a, b| b.share.share.total_cmp(&a.share.share));
        let core_percents = scale.cores(&counts.cores);
        Ok(CpuAccount {
            of: taken.of.to_owned(),
            sampling: Sampling {
                source: taken.source.to_owned(),
                bias: bias_of(taken.source).to_owned(),
                window,
                unit: scale.unit,
                total: counts.total,
                unread_lines: counts.unread,
            },
            busy: scale.share(counts.total.saturating_sub(counts.idle)),
            client: scale.share(counts.client),
            polling: scale.share(counts.polling),
            groups: seen,
            spread: Spread::of(&core_percents, taken.spike_points),
            core_percents,
            stat_share: None,
            threads: scale.rows(&counts.threads),
            plateaus: scale.rows(&counts.leaves),
            per_work: None,
            profiler: None,
            flame_graphs: BTreeMap::new(),
            findings: findings(counts, &scale, taken),
        })
    }
}

fn unit_of(total: u64, taken: &Taken<'_>) -> Result<Unit, Refusal> {
    let window = taken.window;
    let unit = match taken.unit {
        Some(unit) => window.holds(total, unit).then_some(unit),
        None => window.unit_of(total),
    };
    unit.ok_or_else(|| {
        let Window { cores, hz, seconds } = window;
        let (samples, ns) = (window.full(Unit::Samples), window.full(Unit::Nanoseconds));
        let what = format!(
            "{}: the counts sum to {total}, but {cores} cores x {hz} Hz x {seconds} s can give \
             {samples:.0} samples or {ns:.3e} ns",
            taken.of
        );
        let hint = "give the --cores, --hz and --seconds it was sampled with; \
                    counts weighted by their period are --unit ns";
        Refusal::cannot_run("cpu.counts_impossible", what).hint(hint)
    })
}

fn findings(counts: &Counts, scale: &Scale, taken: &Taken<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if scale.unit == Unit::Nanoseconds && taken.unit.is_none() {
        let reason = "the counts are nanoseconds, not samples: \
                      the program that folded them weighted each by its period; F1' was used";
        found.push(rules::of("F1").finding(reason));
    }
    if counts.unread > 0 {
        let reason =
            format!("{} lines were not understood and are missing from all shares", counts.unread);
        found.push(rules::of("A08").finding(reason));
    }
    if counts.polling > 0 {
        let reason = format!(
            "{:.1} % of the machine polls for completions: \
             consumed whether or not something completes",
            scale.share(counts.polling).share * 100.0
        );
        let next = "label this configuration as polling";
        found.push(rules::of("L20").finding_as(Severity::Info, reason).but(next));
    }
    found
}

struct Scale {
    window: Window,
    unit: Unit,
    points: f64,
}

impl Scale {
    fn share(&self, count: u64) -> Share {
        self.window.share(count, self.unit)
    }

    fn group(&self, counts: &EngineCounts, group: &Group) -> GroupAccount {
        let of_kind = |kind| self.share(counts.of_kind(&group.work, kind));
        let kinds = group.work.iter().map(|work| (work.name.as_str(), work.kind));
        let kinds = kinds.chain([("not told apart", WorkKind::Unsorted)]);
        // A kind that a group has of its own and from another file is one row.
        let mut sums: Vec<(&str, WorkKind, u64)> = Vec::new();
        for ((name, kind), count) in kinds.zip(&counts.work).filter(|(_, count)| **count > 0) {
            let sum = one_of(&mut sums, |it| (it.0, it.1) == (name, kind), || (name, kind, 0));
            sum.2 = sum.2.saturating_add(*count);
        }
        sums.sort_by_key(|(_, _, count)| std::cmp::Reverse(*count));
        let work = sums.into_iter().map(|(name, kind, count)| WorkAccount {
            name: name.to_owned(),
            kind,
            share: self.share(count),
        });
        let contexts = counts.contexts.iter().map(|(it, count)| (*it, self.share(*count)));
        GroupAccount {
            name: group.name.clone(),
            version: group.version,
            share: self.share(counts.total()),
            contexts: contexts.collect(),
            work: work.collect(),
            useful: of_kind(WorkKind::Useful),
            overhead: of_kind(WorkKind::Overhead),
            polling: of_kind(WorkKind::Polling),
            unsorted: of_kind(WorkKind::Unsorted),
            spread: Spread::of(&self.cores(&counts.cores), self.points),
            plateaus: self.rows(&counts.leaves),
        }
    }

    /// Percent of each core; cores that were never sampled were idle. Empty if the samples name no
    /// core.
    fn cores(&self, counts: &[u64]) -> Vec<f64> {
        let one = Window { cores: 1, ..self.window };
        let percent = |count: &u64| one.share(*count, self.unit).share * 100.0;
        let mut percents: Vec<f64> = counts.iter().map(percent).collect();
        let cores = usize::try_from(self.window.cores).unwrap_or(usize::MAX).min(1 << 16);
        if !percents.is_empty() && percents.len() < cores {
            percents.resize(cores, 0.0);
        }
        percents
    }

    fn rows(&self, counts: &HashMap<String, u64, RandomState>) -> Vec<Row> {
        let mut sorted: Vec<_> = counts.iter().collect();
        // By name where counts are equal: the same input gives the same table.
        sorted.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let row = |(name, count): (&String, &u64)| {
            let share = self.share(*count);
            Row { name: name.clone(), share, cores: share.share * f64::from(self.window.cores) }
        };
        sorted.into_iter().take(ROWS).map(row).collect()
    }
}
