//! Sockets, cores, threads, NUMA nodes and governors: `lscpu -p`, and sysfs; or what plain `lscpu`
//! counts and lists, if there is nothing else.

use crate::source::Source;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Thread {
    pub cpu: u64,
    pub core: u64,
    pub socket: u64,
    pub node: Option<u64>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Cpu {
    pub model: Option<String>,
    pub threads: Vec<Thread>,
    pub nodes: BTreeMap<u64, BTreeSet<u64>>,
    /// Frequency governor -> how many CPUs have it; empty if the kernel sets no frequency.
    pub governors: BTreeMap<String, u64>,
    /// Simultaneous multithreading as the kernel says it: `on`, `off`, `notsupported`.
    pub smt: Option<String>,
    /// Whether siblings run.
    pub is_smt_active: Option<bool>,
}

impl Cpu {
    pub fn sockets(&self) -> BTreeSet<u64> {
        self.threads.iter().map(|thread| thread.socket).collect()
    }

    pub fn core_count(&self) -> usize {
        let cores: BTreeSet<_> = self.threads.iter().map(|it| (it.socket, it.core)).collect();
        cores.len()
    }

    pub fn threads_per_core(&self) -> BTreeMap<u64, u64> {
        let mut of_core: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for thread in &self.threads {
            *of_core.entry((thread.socket, thread.core)).or_default() += 1;
        }
        let mut counts = BTreeMap::new();
        for count in of_core.into_values() {
            *counts.entry(count).or_default() += 1;
        }
        counts
    }

    /// The socket that has this node's CPUs.
    pub fn socket_of_node(&self, node: u64) -> Option<u64> {
        let cpus = self.nodes.get(&node);
        let in_node =
            |it: &&Thread| it.node == Some(node) || cpus.is_some_and(|cpus| cpus.contains(&it.cpu));
        self.threads.iter().find(in_node).map(|thread| thread.socket)
    }
}

/// Ask for the processors. `lscpu` is what that program printed.
pub fn read(source: &Source, lscpu: &str) -> Cpu {
    let argv = ["lscpu", "-p=CPU,CORE,SOCKET,NODE"];
    let table = source.output("lscpu-p", &argv).unwrap_or_default();
    let mut cpu = Cpu { model: field(lscpu, "Model name"), ..Cpu::default() };
    cpu.threads = table.lines().filter_map(thread).collect();
    cpu.nodes = nodes(source);
    if cpu.nodes.is_empty() {
        cpu.nodes = node_lists(lscpu);
    }
    if cpu.threads.is_empty() {
        cpu.threads = counted(lscpu, &cpu.nodes).unwrap_or_default();
    }
    for thread in &cpu.threads {
        let folder = format!("/sys/devices/system/cpu/cpu{}/cpufreq", thread.cpu);
        if let Some(governor) = source.text(&format!("{folder}/scaling_governor")) {
            *cpu.governors.entry(governor).or_default() += 1;
        }
    }
    cpu.smt = source.text("/sys/devices/system/cpu/smt/control");
    cpu.is_smt_active = source.number("/sys/devices/system/cpu/smt/active").map(|it| it == 1);
    cpu
}

/// NUMA nodes with their CPUs, of sysfs.
pub fn nodes(source: &Source) -> BTreeMap<u64, BTreeSet<u64>> {
    let node = |name: String| {
        let cpus = source.text(&format!("/sys/devices/system/node/{name}/cpulist"));
        Some((name.strip_prefix("node")?.parse().ok()?, list(&cpus.unwrap_or_default())))
    };
    source.names("/sys/devices/system/node").into_iter().filter_map(node).collect()
}

fn thread(line: &str) -> Option<Thread> {
    let mut fields = line.split(',').map(|field| field.trim().parse::<u64>());
    let cpu = fields.next()?.ok()?;
    let (core, socket) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(Thread { cpu, core, socket, node: fields.next().and_then(Result::ok) })
}

/// `NUMA node0 CPU(s):  0-7,16-23`.
fn node_lists(lscpu: &str) -> BTreeMap<u64, BTreeSet<u64>> {
    let line = |line: &str| {
        let (id, cpus) = line.trim_start().strip_prefix("NUMA node")?.split_once(" CPU(s):")?;
        Some((id.parse().ok()?, list(cpus)))
    };
    lscpu.lines().filter_map(line).collect()
}

/// Threads as plain `lscpu` counts them; nodes belong to sockets in their order. None if its counts
/// do not agree.
fn counted(lscpu: &str, nodes: &BTreeMap<u64, BTreeSet<u64>>) -> Option<Vec<Thread>> {
    let number = |name: &str| field(lscpu, name)?.parse::<usize>().ok().filter(|it| *it > 0);
    let (each, sockets) = (number("Thread(s) per core")?, number("Socket(s)")?);
    let wanted = sockets.checked_mul(number("Core(s) per socket")?)?.checked_mul(each)?;
    let whole = || {
        let cpus = list(&field(lscpu, "On-line CPU(s) list").unwrap_or_default());
        BTreeMap::from([(0, cpus)])
    };
    let nodes = if nodes.is_empty() && sockets == 1 { &whole() } else { nodes };
    if nodes.values().map(BTreeSet::len).sum::<usize>() != wanted || nodes.len() % sockets != 0 {
        return None;
    }
    let mut threads = Vec::new();
    for (order, (node, cpus)) in nodes.iter().enumerate() {
        let socket = u64::try_from(order / (nodes.len() / sockets)).ok()?;
        for (at, cpu) in cpus.iter().enumerate() {
            // Siblings come after all first threads.
            let core = u64::try_from(at % (cpus.len() / each).max(1)).ok()?;
            let core = node.checked_mul(8_192)?.checked_add(core)?;
            threads.push(Thread { cpu: *cpu, core, socket, node: Some(*node) });
        }
    }
    Some(threads)
}

/// The value of `NAME:   value`.
pub fn field(text: &str, name: &str) -> Option<String> {
    let line =
        |line: &str| line.trim_start().strip_prefix(name)?.strip_prefix(':').map(str::to_owned);
    text.lines().find_map(line).map(|value| value.trim().to_owned())
}

/// A list of CPUs as the kernel prints it: `0-7,16-23`. What is not understood is left out.
pub fn list(text: &str) -> BTreeSet<u64> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
            // No kernel has more CPUs than this; a damaged capture may say so.
            cpus.extend(first..=last.min(first.saturating_add(8_192)));
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::list;

    #[test]
    fn cpu_lists_are_read_as_the_kernel_prints_them() {
        assert_eq!(list("0-3,8").into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 8]);
        assert!(list("").is_empty() && list("x-y").is_empty());
        assert!(list("0-18446744073709551615").len() < 10_000);
    }
}
