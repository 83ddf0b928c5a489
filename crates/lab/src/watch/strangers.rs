//! CPU time and I/O of programs that are neither the load nor the engine, while a point is
//! measured.
//!
//! Own are the lab with all its descendants, and programs whose names a function group claims.
//! Kernel threads are nobody's: whose work they do, stacks tell. A process hands its CPU time to
//! its parent when it ends, so the sum over all strangers misses none that came and went.
//!
//! What must stay true: a stranger's time is never an engine's; above the limit a figure is
//! INVALID, and the reason names who it was; what /proc does not show counts for nothing.

use crate::cpu::groups::Groups;
use crate::metrics::latency::to_f64;
use crate::record::CpuCost;
use crate::rules;
use crate::units;
use crate::validity::{Finding, Severity};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// /proc counts CPU time in hundredths of a second.
const TICKS_PER_S: f64 = 100.0;
/// Share of all cores from which a stranger is worth a note.
const NOTED: f64 = 0.02;
/// Share of all cores that strangers may use, unless the user says another one.
pub const SHARE_MAX: f64 = 0.10;
/// Share of all cores that a hypervisor may take.
const STOLEN_MAX: f64 = 0.05;
/// Share of what the load moved that a stranger may move on the same device.
const MOVED_MAX: f64 = 0.02;
/// Bytes that nobody minds: a look at a signature.
const MOVED_FREE: u64 = 1 << 20;

#[derive(Clone, PartialEq, Eq, Debug)]
struct Process {
    parent: u32,
    name: String,
    /// CPU time of its own and of children that it waited for.
    ticks: u64,
    started: u64,
}

#[derive(Clone, Debug)]
pub struct Own {
    pid: u32,
    claimed: regex::RegexSet,
}

impl Own {
    /// The lab, its descendants, and the threads that `groups` claim.
    pub fn new(groups: &Groups) -> Own {
        let patterns = groups.all.iter().flat_map(|group| group.thread_patterns());
        // A group's expressions were read before.
        let claimed = regex::RegexSet::new(patterns).unwrap_or_default();
        Own { pid: std::process::id(), claimed }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Look {
    processes: BTreeMap<u32, Process>,
    own: BTreeSet<u32>,
}

impl Look {
    pub fn now(own: &Own) -> Look {
        let pids = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        let pids = pids.filter_map(|item| item.file_name().to_str()?.parse::<u32>().ok());
        let one =
            |pid| Some((pid, process(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?));
        Look::of(pids.filter_map(one).collect(), own)
    }

    fn of(processes: BTreeMap<u32, Process>, own: &Own) -> Look {
        let is_own = |pid: &u32| {
            let line = std::iter::successors(Some(*pid), |pid| Some(processes.get(pid)?.parent));
            let mut line = line.take(processes.len() + 1).take_while(|pid| *pid != 0);
            line.any(|pid| pid == own.pid || pid == 2)
                || processes.get(pid).is_some_and(|it| own.claimed.is_match(&it.name))
        };
        let own = processes.keys().filter(|pid| is_own(pid)).copied().collect();
        Look { processes, own }
    }

    /// CPU seconds of strangers until `later`, and of whom, most first.
    pub fn until(&self, later: &Look) -> (f64, Vec<(String, f64)>) {
        let mut names: BTreeMap<&str, f64> = BTreeMap::new();
        let mut add = |pid: &u32, ticks: f64| {
            let stranger = later.processes.get(pid).filter(|_| !later.own.contains(pid));
            if let Some(stranger) = stranger {
                *names.entry(&stranger.name).or_default() += ticks;
            }
        };
        for (pid, process) in &later.processes {
            let before = self.processes.get(pid).filter(|it| it.started == process.started);
            let before = before.map_or(0, |it| it.ticks);
            add(pid, to_f64(process.ticks.saturating_sub(before)));
        }
        // What ended had used some of its time before: its parent has all of it now.
        let is_gone = |(pid, process): &(&u32, &Process)| {
            later.processes.get(pid).is_none_or(|it| it.started != process.started)
        };
        for (_, gone) in self.processes.iter().filter(is_gone) {
            add(&gone.parent, -to_f64(gone.ticks));
        }
        let mut names: Vec<(String, f64)> = names
            .into_iter()
            .filter(|it| it.1 > 0.0)
            .map(|(name, ticks)| (name.into(), ticks / TICKS_PER_S))
            .collect();
        names.sort_by(|one, other| other.1.total_cmp(&one.1));
        (names.iter().map(|it| it.1).sum(), names)
    }

    fn strangers(&self) -> impl Iterator<Item = (&u32, &Process)> {
        self.processes.iter().filter(|(pid, _)| !self.own.contains(pid))
    }
}

/// `12 (a name) S 1 ...`: the name may hold anything, so the last bracket ends it.
fn process(stat: &str) -> Option<Process> {
    let (head, rest) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let words: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    // Numbered from the state: 11 to 14 are utime, stime, cutime, cstime.
    let ticks = (11..15).map(number).sum::<Option<u64>>()?;
    Some(Process { parent: u32::try_from(number(1)?).ok()?, name, ticks, started: number(19)? })
}

/// What strangers moved on devices that are measured: looked at again and again meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    /// `/dev` names and mount points that count.
    places: Vec<PathBuf>,
    /// Of each program that has one open: its name, bytes at first, bytes now.
    seen: BTreeMap<u32, (String, u64, u64)>,
}

impl Moved {
    /// On `devices`, and on file systems that lie on them.
    pub fn on(devices: &[PathBuf]) -> Moved {
        let real = devices.iter().filter_map(|path| fs::canonicalize(path).ok());
        let mut places: Vec<PathBuf> = real.filter(|path| path.starts_with("/dev")).collect();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mounted = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let device = fs::canonicalize(words.next()?).ok()?;
            places.contains(&device).then(|| words.next().map(PathBuf::from))?
        });
        let mounted: Vec<PathBuf> = mounted.filter(|place| place != Path::new("/")).collect();
        places.extend(mounted);
        Moved { places, seen: BTreeMap::new() }
    }

    pub fn look(&mut self, look: &Look) {
        if self.places.is_empty() {
            return;
        }
        for (pid, process) in look.strangers() {
            let is_known = self.seen.contains_key(pid);
            let Some(bytes) = moved(*pid).filter(|bytes| is_known || *bytes > 0) else { continue };
            if is_known || self.has_open(*pid) {
                let first = (process.name.clone(), bytes, bytes);
                self.seen.entry(*pid).or_insert(first).2 = bytes;
            }
        }
    }

    fn has_open(&self, pid: u32) -> bool {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        let mut names = files.filter_map(Result::ok).filter_map(|it| fs::read_link(it.path()).ok());
        names.any(|name| self.places.iter().any(|place| name.starts_with(place)))
    }

    /// A16, if somebody moved more than a small part of the `bytes` that the load moved.
    pub fn finding(&self, bytes: u64) -> Option<Finding> {
        let grown =
            self.seen.iter().map(|(pid, (name, first, now))| (pid, name, now - first.min(now)));
        let (pid, name, most) = grown.max_by_key(|it| it.2)?;
        let is_much = most > MOVED_FREE && to_f64(most) > to_f64(bytes) * MOVED_MAX;
        is_much.then(|| {
            let reason = format!(
                "{name} (process {pid}) moved {} on the measured devices meanwhile",
                units::bytes(to_f64(most))
            );
            rules::of("A16").finding(reason)
        })
    }
}

/// Bytes that a program asked of storage, if that may be read.
fn moved(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let number =
        |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    Some(number("read_bytes:").unwrap_or(0_u64) + number("write_bytes:").unwrap_or(0_u64))
}

/// A16 of a raw device that did more than the load asked of it.
pub fn more_than(target: &str, carried: f64, asked: f64) -> Option<Finding> {
    const SLACK: f64 = 1.25;
    (carried > asked * SLACK + 1e6).then(|| {
        let reason = format!(
            "{target} carried {}, and the load asked for {}: somebody else uses it",
            units::bytes_per_s(carried),
            units::bytes_per_s(asked)
        );
        rules::of("A16").finding(reason).but("find out who uses it: iotop, or lsof on the device")
    })
}

/// A15 and A17: what is to be said of CPU time that strangers and the hypervisor took. `share_max`
/// of all cores is the most that they may.
pub fn findings(cost: &CpuCost, who: &[(String, f64)], share_max: f64) -> Vec<Finding> {
    let all_s = cost.wall_s * f64::from(cost.cores);
    if all_s <= 0.0 {
        return Vec::new();
    }
    let names: Vec<&str> = who.iter().take(3).map(|it| it.0.as_str()).collect();
    let strangers = format!("other programs ({}) used", names.join(", "));
    let stolen_max = share_max * STOLEN_MAX / SHARE_MAX;
    let told = [
        ("A15", cost.foreign_s / all_s, share_max, strangers.as_str()),
        ("A17", cost.stolen_s / all_s, stolen_max, "the hypervisor took"),
    ];
    let judge = |(rule, share, most, who): (&str, f64, f64, &str)| {
        let (rule, reason) = (rules::of(rule), units::percent(share));
        let reason = format!("{who} {reason} of all cores meanwhile");
        match share > most {
            true => rule.finding(format!("{reason}, more than {}", units::percent(most))),
            false => rule.finding_as(Severity::Warning, reason),
        }
    };
    told.into_iter().filter(|it| it.1 > NOTED).map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::{Look, Moved, Own, Process, findings, more_than, process};
    use crate::record::CpuCost;
    use crate::validity::{Mark, Severity};
    use std::collections::BTreeMap;

    const LAB: u32 = 100;

    fn look(rows: &[(u32, u32, &str, u64)]) -> Look {
        let one = |(pid, parent, name, ticks): &(u32, u32, &str, u64)| {
            let name = (*name).to_owned();
            (*pid, Process { parent: *parent, name, ticks: *ticks, started: 1 })
        };
        let claimed = regex::RegexSet::new(["^ashlar"]).expect("sound");
        Look::of(rows.iter().map(one).collect::<BTreeMap<_, _>>(), &Own { pid: LAB, claimed })
    }

    #[test]
    fn the_lab_its_children_kernel_threads_and_engines_are_no_strangers() {
        let rows = |ticks| {
            look(&[
                (1, 0, "init", 0),
                (2, 0, "kthreadd", ticks),
                (7, 2, "md0_raid6", ticks),
                (50, 1, "ashlar", ticks),
                (LAB, 1, "lab", ticks),
                (101, LAB, "fio", ticks),
                (102, 101, "fio", ticks),
                (60, 1, "make", ticks),
            ])
        };
        let (seconds, who) = rows(0).until(&rows(250));
        assert_eq!((seconds, who), (2.5, vec![("make".to_owned(), 2.5)]));
    }

    /// A compiler is a hundred short programs: each hands its time to the one that waited for it.
    #[test]
    fn programs_that_came_and_went_are_counted_once_by_their_parent() {
        let before = look(&[(LAB, 1, "lab", 0), (60, 1, "make", 40), (61, 60, "cc1", 30)]);
        // cc1 used 70 ticks more, ended, and two more came and went: 90 ticks.
        let after = look(&[(LAB, 1, "lab", 9), (60, 1, "make", 40 + 100 + 90)]);
        assert_eq!(before.until(&after), (1.6, vec![("make".to_owned(), 1.6)]));
        // Another program under an old number has used nothing before.
        let mut again = look(&[(61, 60, "new", 20)]);
        again.processes.get_mut(&61).expect("there").started = 2;
        assert_eq!(before.until(&again).1, [("new".to_owned(), 0.2)]);
    }

    #[test]
    fn a_stranger_above_the_limit_makes_the_figure_invalid_and_steal_does() {
        let base = CpuCost { cores: 2, wall_s: 10.0, ..CpuCost::default() };
        let cost = |foreign_s, stolen_s| CpuCost { foreign_s, stolen_s, ..base.clone() };
        let who = [("rustc".to_owned(), 4.0)];
        let judged = |cost: &CpuCost| findings(cost, &who, super::SHARE_MAX);
        assert_eq!(judged(&cost(0.3, 0.3)), []);
        assert_eq!(Mark::of(&judged(&cost(1.0, 0.0))), Mark::ValidWithNotes);
        let found = judged(&cost(9.6, 0.0));
        assert_eq!((found[0].rule.as_str(), found[0].severity), ("A15", Severity::Error));
        assert!(found[0].reason.contains("(rustc) used 48.0 % of all cores"), "{found:?}");
        assert_eq!(judged(&cost(0.0, 1.2))[0].rule, "A17");
        assert_eq!(Mark::of(&findings(&cost(9.6, 9.6), &who, 1.0)), Mark::ValidWithNotes);
    }

    #[test]
    fn a_device_that_carried_more_than_was_asked_or_a_stranger_that_moved_much_is_seen() {
        assert!(more_than("/dev/sdb", 110e6, 100e6).is_none());
        let found = more_than("/dev/sdb", 300e6, 100e6).expect("seen");
        assert_eq!((found.rule.as_str(), found.severity), ("A16", Severity::Error));
        let mut moved = Moved::default();
        moved.seen.insert(9, ("dd".into(), 5 << 20, 105 << 20));
        let found = moved.finding(1 << 30).expect("a tenth of the load");
        assert!(found.reason.contains("dd (process 9) moved 105 MB"), "{}", found.reason);
        assert_eq!(moved.finding(100 << 30), None);
        // A name may hold brackets and spaces.
        let read = process("12 (a) (b) c) S 4 1 1 0 -1 0 0 0 0 0 3 4 5 6 20 0 1 0 77 0");
        let name = "a) (b) c".to_owned();
        assert_eq!(read, Some(Process { parent: 4, name, ticks: 18, started: 77 }));
        assert_eq!(process("12 (cut"), None);
    }
}
