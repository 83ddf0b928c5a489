//! Trying memory and processors: what they carry, beside what the modules' data say.
//!
//! - crew: threads bound to CPUs that do rounds of work together
//!
//! Each node's memory is written first by threads on that node, so that it lies there, and is
//! larger than the caches several times over. Reading is a comparison of its two halves, copying is
//! one half over the other: both are the C library's own loops, which are made for each processor,
//! and so do not depend on how the lab was built. The score does.
//!
//! What must stay true: nothing but memory of this process is touched; at most half of what is
//! available is taken; what could not be tried is said; no figure without its rounds. Not here:
//! whether a figure is good (`checks::speeds`).

mod crew;

use super::server::{Cpu, Server};
use crate::metrics::bandwidth::Rate;
use crate::metrics::latency::to_f64;
use crate::source::Source;
use crate::source::speeds::{Across, NodeSpeeds, Rounds, Speeds};
use crate::units;
use crew::{Crew, Memory};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What is to be done on one node.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Task {
    node: u64,
    socket: Option<u64>,
    cpus: Vec<u64>,
    cache_bytes: Option<u64>,
}

/// What is to be done, known before it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    tasks: Vec<Task>,
    /// Memory of each node that is used.
    buffer_bytes: u64,
    why_not: Option<String>,
}

/// How long one thing is tried, at most, once there are enough rounds.
const TIME: Duration = Duration::from_millis(600);
/// For the scores.
const SCORE_TIME: Duration = Duration::from_millis(250);
/// Caches are passed so many times over, so that they hold nothing when a round begins anew.
const CACHES: u64 = 4;
/// Fewer than so many times the cache says nothing about memory.
const CACHES_MIN: u64 = 2;
/// Enough for rounds that take milliseconds; the assumption where the kernel tells no cache.
const BUFFER_BYTES_MIN: u64 = 512 << 20;
/// With fewer cores, both threads of a core work: one may not be able to ask for enough.
const CORES_FEW: usize = 4;

/// Try this machine, after saying on stderr what is going to happen. `source` keeps what came of
/// it.
pub fn live(source: &Source, server: &Server) -> Speeds {
    let free = server.software.memory_bytes.map(|it| it.0);
    let plan = Plan::of(source, &server.cpu, free);
    eprintln!("{}", plan.sentence());
    let speeds = plan.run();
    source.keep_speeds(speeds.clone());
    speeds
}

impl Plan {
    /// What would be done on these processors. `available_bytes` is what memory is free.
    pub fn of(source: &Source, cpu: &Cpu, available_bytes: Option<u64>) -> Plan {
        let tasks: Vec<Task> = nodes(cpu)
            .into_iter()
            .map(|(node, cpus)| Task {
                node,
                socket: cpu.threads.iter().find(|it| cpus.contains(&it.cpu)).map(|it| it.socket),
                cache_bytes: cache(source, &cpus),
                cpus,
            })
            .collect();
        let cache = tasks.iter().filter_map(|it| it.cache_bytes).max().unwrap_or(0);
        let wanted = cache.saturating_mul(CACHES).max(BUFFER_BYTES_MIN);
        let count = u64::try_from(tasks.len()).unwrap_or(1).max(1);
        let allowed = available_bytes.map(|bytes| bytes / 2 / count);
        let buffer_bytes = wanted.min(allowed.unwrap_or(0));
        let size = |bytes: u64| units::bytes(to_f64(bytes));
        let why_not = if tasks.is_empty() {
            Some("neither lscpu nor /sys tell which CPUs there are".to_owned())
        } else if allowed.is_none() {
            Some("/proc/meminfo does not tell how much memory is free".to_owned())
        } else if buffer_bytes < wanted.min(cache.saturating_mul(CACHES_MIN).max(64 << 20)) {
            Some(format!(
                "{} of memory a node may be taken, half of what is free; \
                 against {} of cache it would say nothing of memory",
                size(buffer_bytes),
                size(cache)
            ))
        } else {
            None
        };
        Plan { tasks, buffer_bytes, why_not }
    }

    /// What is going to be done, in a sentence, or why nothing is.
    pub fn sentence(&self) -> String {
        if let Some(why) = &self.why_not {
            return format!("memory and processors are not tried: {why}");
        }
        let threads: Vec<String> = self
            .tasks
            .iter()
            .map(|it| format!("node {} with {} threads", it.node, it.cpus.len()))
            .collect();
        let sockets = self.sockets().len();
        let pairs = sockets * sockets.saturating_sub(1);
        let across = if pairs > 0 { ", all at once, then from socket to socket" } else { "" };
        let count = to_f64(u64::try_from(self.tasks.len()).unwrap_or(0));
        let parts = 2.5 * count + 1.5 * to_f64(u64::try_from(pairs).unwrap_or(0));
        format!(
            "trying memory and processors, about {parts:.0} s at full load: \
             {} of memory a node, read and copied by {}{across}; then arithmetic in registers. \
             Other work on this machine will feel it, and spoils the figures.",
            units::bytes(to_f64(self.buffer_bytes)),
            threads.join(", ")
        )
    }

    fn sockets(&self) -> BTreeSet<u64> {
        self.tasks.iter().filter_map(|task| task.socket).collect()
    }

    /// Do it.
    pub fn run(&self) -> Speeds {
        let mut speeds = Speeds { build: build(), ..Speeds::default() };
        if let Some(why) = &self.why_not {
            speeds.not_tried.push(why.clone());
            return speeds;
        }
        let mut memory = Vec::new();
        for task in &self.tasks {
            match Memory::on(&task.cpus, self.buffer_bytes) {
                Ok(buffers) => memory.push((task, buffers)),
                Err(why) => speeds.not_tried.push(format!("node {}: {why}", task.node)),
            }
        }
        for (task, buffers) in &mut memory {
            let node = self.node(task, buffers, &mut speeds.not_tried);
            speeds.nodes.push(node);
        }
        if memory.len() > 1 {
            let all =
                memory.iter_mut().flat_map(|(task, it)| task.cpus.iter().copied().zip(it.parts()));
            keep(Crew::of(all).read(TIME), &mut speeds.together, &mut speeds.not_tried);
            self.across(&mut memory, &mut speeds);
        }
        speeds
    }

    fn node(&self, task: &Task, memory: &mut Memory, not_tried: &mut Vec<String>) -> NodeSpeeds {
        let mut node = NodeSpeeds {
            node: task.node,
            socket: task.socket,
            cpus: task.cpus.clone(),
            buffer_bytes: memory.bytes(),
            cache_bytes: task.cache_bytes,
            ..NodeSpeeds::default()
        };
        let cpus = || task.cpus.iter().copied();
        keep(Crew::of(cpus().zip(memory.parts())).read(TIME), &mut node.read, not_tried);
        keep(Crew::of(cpus().zip(memory.parts())).copy(TIME), &mut node.copy, not_tried);
        let mut score = |cpus: Vec<u64>| {
            let mut rounds = Rounds::default();
            keep(Crew::of(cpus.into_iter().zip(1_u64..)).score(SCORE_TIME), &mut rounds, not_tried);
            rounds.median().map(|rate| rate.0)
        };
        node.score_one = score(cpus().take(1).collect());
        node.score_all = score(task.cpus.clone());
        node
    }

    fn across(&self, memory: &mut [(&Task, Memory)], speeds: &mut Speeds) {
        let sockets = self.sockets();
        for memory_of in &sockets {
            for read_by in sockets.iter().filter(|it| *it != memory_of) {
                let cpus = self.tasks.iter().filter(|it| it.socket == Some(*read_by));
                let cpus: Vec<u64> = cpus.flat_map(|task| task.cpus.iter().copied()).collect();
                let own = memory.iter_mut().filter(|it| it.0.socket == Some(*memory_of));
                let parts = own.flat_map(|(_, it)| it.parts());
                let mut read = Rounds::default();
                keep(
                    Crew::of(cpus.into_iter().zip(parts)).read(TIME),
                    &mut read,
                    &mut speeds.not_tried,
                );
                speeds.across.push(Across { memory_of: *memory_of, read_by: *read_by, read });
            }
        }
    }
}

fn keep(done: Result<Vec<f64>, String>, rounds: &mut Rounds, not_tried: &mut Vec<String>) {
    match done {
        Ok(rates) => {
            *rounds = Rounds(rates.into_iter().map(Rate::nearest).collect());
        }
        Err(why) => not_tried.push(why),
    }
}

fn build() -> String {
    let kind = if cfg!(debug_assertions) { "debug" } else { "release" };
    format!("{} {kind}", env!("CARGO_PKG_VERSION"))
}

/// The CPUs that work on each node: one thread of each core, or all where there are few. Without
/// nodes, sockets are nodes.
fn nodes(cpu: &Cpu) -> BTreeMap<u64, Vec<u64>> {
    let mut all: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut cores: BTreeMap<u64, BTreeSet<(u64, u64)>> = BTreeMap::new();
    let node_of = |thread: &super::server::cpu::Thread| {
        let listed = cpu.nodes.iter().find(|(_, cpus)| cpus.contains(&thread.cpu));
        thread.node.or(listed.map(|it| *it.0)).unwrap_or(thread.socket)
    };
    let mut count: BTreeMap<u64, BTreeSet<(u64, u64)>> = BTreeMap::new();
    for thread in &cpu.threads {
        count.entry(node_of(thread)).or_default().insert((thread.socket, thread.core));
    }
    for thread in &cpu.threads {
        let node = node_of(thread);
        let is_first = cores.entry(node).or_default().insert((thread.socket, thread.core));
        if is_first || count.get(&node).is_some_and(|it| it.len() < CORES_FEW) {
            all.entry(node).or_default().push(thread.cpu);
        }
    }
    all
}

/// The last-level cache that these CPUs have together: each cache once.
fn cache(source: &Source, cpus: &[u64]) -> Option<u64> {
    let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
    for cpu in cpus {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
        let last = source.names(&folder).into_iter().rfind(|name| name.starts_with("index"))?;
        let shared = source.text(&format!("{folder}/{last}/shared_cpu_list"))?;
        let size = source.text(&format!("{folder}/{last}/size"))?;
        sizes.insert(shared, size.strip_suffix('K')?.parse::<u64>().ok()?.checked_mul(1_024)?);
    }
    (!sizes.is_empty()).then(|| sizes.values().fold(0, |sum: u64, it| sum.saturating_add(*it)))
}

#[cfg(test)]
mod tests;
