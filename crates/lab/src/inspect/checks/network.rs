//! Network interfaces: queues and who serves them, packets, places, and what was lost between two
//! looks.
//!
//! Fast interfaces are judged, those of 10 Gbit/s and more: a management port may be as it is.

use super::{Facts, Found, silent, some_of};
use crate::inspect::server::network::{Counts, Network, grown, interrupt_cpus, listed};
use crate::metrics::bandwidth::Rate;
use crate::metrics::latency::to_f64;
use crate::units;
use std::collections::{BTreeMap, BTreeSet};

/// What is judged: 10 Gbit/s.
const FAST: Rate = Rate::mega(1_250);
/// Retransmitted of sent: a network for storage loses next to nothing.
const RETRANSMITTED_MAX: f64 = 0.001;
/// Segments that must have been sent for a share of them to mean anything.
const SEGMENTS_MIN: u64 = 10_000;

/// The fast interfaces; or why there is nothing to judge.
fn fast<'a>(facts: &Facts<'a>) -> Result<Vec<&'a Network>, Found> {
    let all = &facts.server.networks;
    if all.is_empty() {
        return Err(match facts.server.pci.is_empty() {
            true => Found::cannot_tell("no PCI devices in /sys/bus/pci", "inspect the host"),
            false => Found::not_applicable("no network interface on a PCI device"),
        });
    }
    let fast: Vec<&Network> = all.iter().filter(|it| it.rate >= Some(FAST)).collect();
    if !fast.is_empty() {
        return Ok(fast);
    }
    Err(match all.iter().find(|it| it.rate.is_none()) {
        Some(it) => Found::cannot_tell(
            format!("{} does not say how fast it is: down, or a guest's", it.name),
            "bring its link up; in a guest, inspect the host",
        ),
        None => Found::not_applicable("no interface of 10 Gbit/s or more"),
    })
}

/// A fast interface for a sentence.
fn named(it: &Network) -> String {
    it.rate.map_or(it.name.clone(), |rate| format!("{} ({rate})", it.name))
}

/// More than one CPU receives: by several queues with their interrupts, or by RPS.
pub fn receive_spread(facts: &Facts<'_>) -> Found {
    let fast = match fast(facts) {
        Ok(_) if facts.server.cpu.threads.len() == 1 => return Found::not_applicable("one CPU"),
        Ok(fast) => fast,
        Err(found) => return found,
    };
    let server = facts.server;
    let mut said = Vec::new();
    for it in &fast {
        let by_rps: Option<BTreeSet<u64>> =
            it.receive_cpus.as_ref().map(|all| all.iter().flatten().copied().collect());
        if let Some(cpus) = by_rps.as_ref().filter(|cpus| cpus.len() > 1) {
            said.push(format!("{}: RPS over CPUs {}", it.name, listed(cpus)));
            continue;
        }
        let served = interrupt_cpus(&server.pci, &server.irqs, &it.address);
        match (it.receive_queues, served, by_rps) {
            (2.., Some(cpus), _) if cpus.len() > 1 => said.push(format!(
                "{}: {} queues, interrupts on CPUs {}",
                it.name,
                it.receive_queues,
                listed(&cpus)
            )),
            (2.., Some(cpus), _) => {
                return Found::fail(
                    it.name.clone(),
                    format!(
                        "{} queues of {}, and all interrupts on CPU {}",
                        it.receive_queues,
                        named(it),
                        listed(&cpus)
                    ),
                    "start irqbalance, or write /proc/irq/N/smp_affinity_list, \
                     one CPU of its own node for each queue",
                );
            }
            (1, _, Some(_)) => {
                return Found::fail(
                    it.name.clone(),
                    format!(
                        "1 receive queue of {} and RPS is off: one CPU does all receiving",
                        named(it)
                    ),
                    "ethtool -L NAME combined N if the hardware has more queues; \
                     else a mask of its node's CPUs into queues/rx-0/rps_cpus",
                );
            }
            _ => {
                return Found::cannot_tell(
                    format!("{} does not say who serves its receive queues", named(it)),
                    "look into /sys/class/net/NAME/queues and /proc/interrupts",
                );
            }
        }
    }
    Found::pass("network", said.join("; "))
}

/// CPUs send by queues of their own.
pub fn transmit_spread(facts: &Facts<'_>) -> Found {
    let fast = match fast(facts) {
        Ok(_) if facts.server.cpu.threads.len() == 1 => return Found::not_applicable("one CPU"),
        Ok(fast) => fast,
        Err(found) => return found,
    };
    let mut off = Vec::new();
    for it in &fast {
        let Some(masks) = &it.transmit_cpus else {
            return Found::cannot_tell(
                format!("{} does not say by which queues CPUs send", named(it)),
                "xps_cpus may be read by root only; look into /sys/class/net/NAME/queues",
            );
        };
        if masks.len() < 2 || masks.iter().all(BTreeSet::is_empty) {
            off.push((it.name.as_str(), masks.len()));
        }
    }
    match off.first() {
        None => Found::pass("network", format!("XPS on {} fast interfaces", fast.len())),
        Some((_, 1)) => Found::fail(
            some_of(off.iter().map(|it| it.0)),
            "1 transmit queue: all CPUs wait for its lock",
            "ethtool -L NAME combined N if the hardware has more",
        ),
        Some((_, queues)) => Found::fail(
            some_of(off.iter().map(|it| it.0)),
            format!(
                "{queues} transmit queues and XPS is off: a hash, not the CPU, picks the queue"
            ),
            "write masks into queues/tx-N/xps_cpus: each queue for the CPU that its interrupt goes \
             to",
        ),
    }
}

/// The hardware spreads what it receives over all its queues.
pub fn hash_uses_all_queues(facts: &Facts<'_>) -> Found {
    let fast = match fast(facts) {
        Ok(fast) => fast,
        Err(found) => return found,
    };
    let several: Vec<_> = fast.into_iter().filter(|it| it.receive_queues > 1).collect();
    if several.is_empty() {
        return Found::not_applicable("one receive queue");
    }
    for it in &several {
        match it.hashed_queues {
            None => {
                return Found::cannot_tell(
                    format!("{}: {}", it.name, silent(facts, "ethtool-x")),
                    "install ethtool, run as root",
                );
            }
            Some(queues) if queues < it.receive_queues => {
                return Found::fail(
                    it.name.clone(),
                    format!("RSS fills {queues} of {} queues of {}", it.receive_queues, named(it)),
                    "ethtool -X NAME equal N",
                );
            }
            Some(_) => {}
        }
    }
    Found::pass("network", format!("RSS fills all queues of {} interfaces", several.len()))
}

/// Links run at the speed that they are made for.
pub fn link_speed(facts: &Facts<'_>) -> Found {
    let fast = match fast(facts) {
        Ok(fast) => fast,
        Err(found) => return found,
    };
    let mut said = Vec::new();
    for it in fast {
        let Some((rate, capable)) = it.rate.zip(it.capable) else {
            return Found::cannot_tell(
                format!("{}: {}", it.name, silent(facts, &format!("ethtool-{}", it.name))),
                "install ethtool",
            );
        };
        if rate < capable {
            return Found::fail(
                it.name.clone(),
                format!("{} runs at {rate} and can {capable}", it.name),
                "look at cable, transceiver and the switch's port",
            );
        }
        said.push(format!("{} at {rate}", it.name));
    }
    Found::pass("network", format!("as fast as made for: {}", said.join(", ")))
}

/// Fast interfaces have one packet size.
pub fn packets_alike(facts: &Facts<'_>) -> Found {
    let fast = match fast(facts) {
        Ok(fast) => fast,
        Err(found) => return found,
    };
    let mut sizes: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for it in &fast {
        let Some(mtu) = it.mtu else {
            return Found::cannot_tell(
                format!("{} does not tell its MTU", it.name),
                "look with: ip link",
            );
        };
        sizes.entry(mtu).or_default().push(&it.name);
    }
    let list: Vec<String> =
        sizes.iter().map(|(mtu, names)| format!("MTU {mtu} on {}", names.join(", "))).collect();
    match sizes.len() {
        1 => Found::pass("network", format!("{}; the switch must take it, too", list.join("; "))),
        _ => Found::fail(
            "network",
            list.join("; "),
            "give links that serve the same clients one MTU, and try it end to end: \
             ping -M do -s MTU-28",
        ),
    }
}

/// Sockets with drives have a fast interface of their own.
pub fn near_drives(facts: &Facts<'_>) -> Found {
    let server = facts.server;
    let fast = match fast(facts) {
        Ok(_) if server.cpu.sockets().len() == 1 => return Found::not_applicable("one socket"),
        Ok(fast) => fast,
        Err(found) => return found,
    };
    let mut with_network = BTreeSet::new();
    for it in &fast {
        let Some(socket) = server.socket_of(it.node) else {
            return Found::cannot_tell(
                format!("the firmware does not say on which NUMA node {} is", it.name),
                "switch NUMA affinity on in the firmware's setup",
            );
        };
        with_network.insert(socket);
    }
    let mut far: BTreeMap<u64, u64> = BTreeMap::new();
    for drive in &server.drives {
        match server.socket_of(drive.node) {
            Some(socket) if !with_network.contains(&socket) => *far.entry(socket).or_default() += 1,
            Some(_) => {}
            None => {
                return Found::cannot_tell(
                    format!("the firmware does not say on which NUMA node {} is", drive.name),
                    "switch NUMA affinity on in the firmware's setup",
                );
            }
        }
    }
    match far.first_key_value() {
        None if server.drives.is_empty() => Found::not_applicable("no drives"),
        None => Found::pass("network", "each socket with drives has a fast interface"),
        Some((socket, drives)) => Found::fail(
            format!("socket {socket}"),
            format!(
                "{drives} drives on socket {socket}, which has no fast interface: \
                 what they serve crosses between the sockets"
            ),
            "move an interface there, or measure from both sockets and say which",
        ),
    }
}

/// No interface and no CPU lost packets while it was watched.
pub fn troubles_growing(facts: &Facts<'_>) -> Found {
    let all = &facts.server.networks;
    if all.is_empty() {
        return fast(facts).err().unwrap_or_else(|| Found::not_applicable("no network"));
    }
    let troubles = |networks: &[Network], counts: &Counts| -> Counts {
        let own = |it: &Network| -> Vec<(String, u64)> {
            it.troubles
                .iter()
                .map(|(name, count)| (format!("{} {name}", it.name), *count))
                .collect()
        };
        let dropped = counts.get_key_value("softnet.dropped");
        let dropped = dropped.map(|(name, count)| (name.clone(), *count));
        networks.iter().flat_map(own).chain(dropped).collect()
    };
    let now = troubles(all, &facts.server.protocols);
    let before = facts.before.map(|it| troubles(&it.networks, &it.protocols));
    let sum: u64 = now.values().fold(0, |sum, count| sum.saturating_add(*count));
    let Some(grown) = before.map(|before| grown(&now, &before)).filter(|it| !it.is_empty()) else {
        return Found::cannot_tell(
            format!(
                "{sum} errors and drops since the interfaces were made; growth needs two looks"
            ),
            "capture before and after a load, then: lab inspect --from AFTER --before BEFORE",
        );
    };
    let count = grown.len();
    let mut grown: Vec<(String, u64)> = grown.into_iter().filter(|it| it.1 > 0).collect();
    grown.sort_by_key(|it| std::cmp::Reverse(it.1));
    match grown.first() {
        None => Found::pass(
            "network",
            format!("none of {count} counters grew between the two captures"),
        ),
        Some(_) => {
            let list: Vec<String> =
                grown.iter().take(4).map(|(name, count)| format!("{name} by {count}")).collect();
            Found::fail(
                "network",
                format!("grew between the two captures: {}", list.join(", ")),
                "drops: more or larger rings (ethtool -G), more queues, flow control; \
                 errors: cable and transceiver",
            )
        }
    }
}

/// Next to nothing is sent twice.
pub fn retransmitted(facts: &Facts<'_>) -> Found {
    let now = &facts.server.protocols;
    if facts.server.networks.is_empty() {
        return fast(facts).err().unwrap_or_else(|| Found::not_applicable("no network"));
    }
    let grown = facts.before.map(|before| grown(now, &before.protocols)).unwrap_or_default();
    let both = grown.get("Tcp.RetransSegs").copied().zip(grown.get("Tcp.OutSegs").copied());
    let Some((again, sent)) = both else {
        return Found::cannot_tell(
            "growth needs two looks",
            "capture before and after a load over the network, then: \
             lab inspect --from AFTER --before BEFORE",
        );
    };
    if sent < SEGMENTS_MIN {
        return Found::cannot_tell(
            format!("{sent} TCP segments were sent between the two captures: too few to judge"),
            "capture around a load over the network",
        );
    }
    let timeouts =
        grown.get("TcpExt.TCPTimeouts").map_or(String::new(), |it| format!(", {it} timeouts"));
    let share = to_f64(again) / to_f64(sent);
    let found =
        format!("{again} of {sent} TCP segments sent again, {}{timeouts}", units::percent(share));
    match share <= RETRANSMITTED_MAX {
        true => Found::pass("network", found),
        false => Found::fail(
            "network",
            found,
            "look for drops at the switch, flow control, and MTU end to end; \
             each of them stalls an I/O for milliseconds",
        ),
    }
}
