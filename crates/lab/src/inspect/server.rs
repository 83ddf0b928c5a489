//! The server as it is: what is in it and how it hangs together.
//!
//! - cpu: sockets, cores, threads, NUMA nodes, governors
//! - memory: modules, channels, speeds
//! - pci: devices, their links, the chain from the root to each
//! - drives: drives, controllers, and what stands between them
//! - sas: enclosures, expanders, ports, phys and their error counters
//! - software: limits, background work, pressure
//!
//! What must stay true: a fact that could not be read is None; nothing is filled in from what is
//! usual. Not here: whether any of it is good.

pub mod cpu;
pub mod drives;
pub mod memory;
pub mod pci;
pub mod sas;
pub mod software;

use crate::source::Source;
pub use cpu::Cpu;
pub use drives::{Attachment, Drive, DriveKind};
pub use memory::Memory;
pub use pci::PciDevice;
pub use sas::{Enclosure, Expander, Phy, PhyErrors};
use serde::Serialize;
pub use software::Software;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Server {
    pub kernel: Option<String>,
    /// What the hypervisor calls itself, in a guest.
    pub hypervisor: Option<String>,
    pub cpu: Cpu,
    /// Memory modules; None if the firmware's tables could not be read.
    pub memory: Option<Memory>,
    /// PCI devices by address.
    pub pci: BTreeMap<String, PciDevice>,
    /// PCI addresses of storage controllers that have drives; an NVMe drive is its own.
    pub controllers: Vec<String>,
    /// Whether only some outputs were given: what is missing here may be there.
    pub is_partial: bool,
    pub expanders: Vec<Expander>,
    pub enclosures: Vec<Enclosure>,
    pub phys: Vec<Phy>,
    pub drives: Vec<Drive>,
    /// Interrupts: number -> CPUs that serve it.
    pub irqs: BTreeMap<u64, BTreeSet<u64>>,
    pub software: Software,
    /// Programs that gave nothing, with the reason.
    pub silent_tools: BTreeMap<String, String>,
}

impl Server {
    pub fn read(source: &Source) -> Server {
        let lscpu = source.output("lscpu", &["lscpu"]).unwrap_or_default();
        let cpu = cpu::read(source, &lscpu);
        let pci = pci::read(source);
        let sas = sas::read(source);
        let (drives, controllers) = drives::read(source, &pci, &sas);
        let irqs = irqs(source);
        let mut server = Server {
            kernel: source.text("/proc/sys/kernel/osrelease"),
            hypervisor: cpu::field(&lscpu, "Hypervisor vendor"),
            memory: memory::read(source, cpu.sockets().len()),
            controllers,
            drives,
            is_partial: false,
            expanders: sas.expanders,
            enclosures: sas.enclosures,
            phys: sas.phys,
            software: software::read(source),
            silent_tools: BTreeMap::new(),
            cpu,
            pci,
            irqs,
        };
        for name in EXTRA_FILES {
            source.text(name);
        }
        for (name, argv) in EXTRA_RUNS {
            source.run(name, argv);
        }
        server.silent_tools = source.silent_tools();
        server
    }

    /// What phys count, by name.
    pub fn phy_errors(&self) -> BTreeMap<&str, PhyErrors> {
        self.phys.iter().filter_map(|it| Some((it.name.as_str(), it.errors?))).collect()
    }

    /// The socket a NUMA node belongs to; with one socket it is that one.
    pub fn socket_of(&self, node: Option<u64>) -> Option<u64> {
        let sockets = self.cpu.sockets();
        let only = || sockets.first().copied().filter(|_| sockets.len() == 1);
        node.and_then(|node| self.cpu.socket_of_node(node)).or_else(only)
    }
}

/// Evidence for people who read a capture; nothing here is judged.
/// The host's name is asked for so that `redact` knows what to take out.
const EXTRA_FILES: [&str; 5] = [
    "/proc/interrupts",
    "/proc/diskstats",
    "/proc/sys/kernel/hostname",
    "/proc/vmstat",
    "/proc/net/dev",
];

/// Likewise.
const EXTRA_RUNS: [(&str, &[&str]); 2] = [
    ("lsblk", &["lsblk", "-b", "-o", "NAME,TYPE,SIZE,ROTA,FSTYPE,MODEL,REV"]),
    ("lstopo", &["lstopo-no-graphics", "--of", "console"]),
];

fn irqs(source: &Source) -> BTreeMap<u64, BTreeSet<u64>> {
    let numbers = source.names("/proc/irq").into_iter().filter_map(|name| name.parse().ok());
    let cpus = |irq: u64| {
        let effective = source.text(&format!("/proc/irq/{irq}/effective_affinity_list"));
        let allowed = || source.text(&format!("/proc/irq/{irq}/smp_affinity_list"));
        let list = effective.filter(|list| !list.is_empty()).or_else(allowed)?;
        Some((irq, cpu::list(&list)))
    };
    numbers.filter_map(cpus).collect()
}
