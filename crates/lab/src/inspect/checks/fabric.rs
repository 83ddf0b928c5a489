//! PCIe, NUMA, SAS, controllers, queues and interrupts.

use super::{Facts, Found, silent, some_of};
use crate::inspect::server::{Drive, DriveKind, Expander, PciDevice, Phy, PhyErrors, Server};
use crate::inspect::topology::flow::usable;
use crate::inspect::topology::{Link, Place};
use crate::metrics::bandwidth::PcieLink;
use std::collections::{BTreeMap, BTreeSet};

/// Every storage and network link runs as fast and as wide as both its ends can.
pub fn link_negotiated(facts: &Facts<'_>) -> Found {
    let pci = &facts.server.pci;
    let judged: Vec<(&PciDevice, PcieLink, PcieLink)> = pci
        .values()
        .filter(|it| it.is_storage() || it.is_network())
        .filter_map(|it| Some((it, it.negotiated?, possible(pci, it)?)))
        .collect();
    if judged.is_empty() {
        let has_some = pci.values().any(|it| it.is_storage() && it.chain.len() > 1);
        return match has_some {
            true => Found::cannot_tell(
                "no device tells its link",
                "run as root; a guest sees no links of its host",
            ),
            false if pci.is_empty() => {
                Found::cannot_tell("no PCI devices in /sys/bus/pci", "inspect the host")
            }
            false => Found::cannot_tell(
                "no storage or network device has a link of its own here",
                "in a guest, inspect the host",
            ),
        };
    }
    // A drive with two ports has half of its lanes at each: that is dual_port.width.
    let is_half = |it: &(&PciDevice, PcieLink, PcieLink)| {
        let is_its =
            |drive: &&Drive| drive.attachments.iter().any(|way| way.controller == it.0.address);
        let is_shared =
            facts.server.drives.iter().filter(is_its).any(|it| it.is_shared == Some(true));
        is_shared && it.1.mega_transfers == it.2.mega_transfers && it.1.lanes * 2 == it.2.lanes
    };
    let slow = |it: &&(&PciDevice, PcieLink, PcieLink)| it.1.raw() < it.2.raw() && !is_half(it);
    let slow: Vec<_> = judged.iter().filter(slow).collect();
    match slow.first() {
        None => Found::pass("pcie", format!("{} links at full speed and width", judged.len())),
        Some((_, runs, could)) => Found::fail(
            some_of(slow.iter().map(|it| it.0.address.as_str())),
            format!(
                "{} of {} links below what both ends can: {runs} of {could}",
                slow.len(),
                judged.len()
            ),
            "reseat the card or cable and train again; look for AER errors; \
             check slot and bifurcation in the firmware's setup",
        ),
    }
}

/// What both ends of a device's link can.
fn possible(pci: &BTreeMap<String, PciDevice>, device: &PciDevice) -> Option<PcieLink> {
    let own = device.capable?;
    let parent =
        device.chain.iter().rev().nth(1).and_then(|it| pci.get(it)).and_then(|it| it.capable);
    let Some(parent) = parent else { return Some(own) };
    Some(PcieLink {
        mega_transfers: own.mega_transfers.min(parent.mega_transfers),
        lanes: own.lanes.min(parent.lanes),
    })
}

/// Each socket has about as many drives.
pub fn numa_balanced(facts: &Facts<'_>) -> Found {
    let server = facts.server;
    let sockets = server.cpu.sockets();
    if sockets.len() < 2 {
        return match sockets.len() {
            0 => Found::cannot_tell("lscpu told nothing of sockets", "install util-linux"),
            _ => Found::not_applicable("one socket"),
        };
    }
    let mut count: BTreeMap<u64, u64> = sockets.iter().map(|socket| (*socket, 0)).collect();
    for drive in &server.drives {
        match server.socket_of(drive.node) {
            Some(socket) => *count.entry(socket).or_default() += 1,
            None => {
                return Found::cannot_tell(
                    format!(
                        "{}: the firmware does not say on which NUMA node its controller is",
                        drive.name
                    ),
                    "switch NUMA affinity on in the firmware's setup, or update it",
                );
            }
        }
    }
    let list: Vec<String> =
        count.iter().map(|(socket, drives)| format!("socket {socket}: {drives} drives")).collect();
    balance(&count.values().copied().collect::<Vec<_>>(), "sockets", list.join(", "))
}

/// Each controller has about as many drives.
pub fn controllers_balanced(facts: &Facts<'_>) -> Found {
    let mut count: BTreeMap<&str, u64> = BTreeMap::new();
    for drive in facts.server.drives.iter().filter(|it| it.kind == DriveKind::Sas) {
        for way in &drive.attachments {
            *count.entry(way.controller.trim_start_matches("0000:")).or_default() += 1;
        }
    }
    match count.len() {
        _ if facts.server.drives.is_empty() => {
            Found::cannot_tell("no drives found in /sys/block", "are they visible to this host?")
        }
        0 => Found::not_applicable("no SAS controllers"),
        1 => Found::not_applicable("one SAS controller"),
        _ => {
            let list: Vec<String> =
                count.iter().map(|(address, drives)| format!("{address}: {drives}")).collect();
            balance(
                &count.values().copied().collect::<Vec<_>>(),
                "controllers",
                format!("drives on {}", list.join(", ")),
            )
        }
    }
}

/// Within a quarter of each other.
fn balance(counts: &[u64], what: &str, list: String) -> Found {
    let (least, most) =
        (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
    if most * 4 <= least * 5 || most <= least + 1 {
        return Found::pass(what, list);
    }
    Found::fail(
        what,
        list,
        "move drives, or change the zoning with the vendor's tool; \
         the fullest one sets the pace of an array over all",
    )
}

/// No link between drives and sockets carries less than the drives behind it give.
pub fn oversubscribed(facts: &Facts<'_>) -> Found {
    let topology = facts.topology;
    let mut over = Vec::new();
    let mut most: Option<(f64, String)> = None;
    // No flow is led over the links between sockets.
    let is_socket =
        |at: Option<usize>| at.is_some_and(|at| topology.nodes[at].place == Place::Socket);
    let is_led = |link: &&Link| !(is_socket(link.from) && is_socket(link.to));
    let links = topology.links.iter().filter(|it| !it.is_media() && !it.is_memory());
    for link in links.filter(is_led) {
        let Some(from) = link.from.filter(|from| topology.nodes[*from].place != Place::Drives)
        else {
            continue;
        };
        let Some(capacity) = usable(link, 1) else { continue };
        let demand = crate::metrics::bandwidth::Rate(demand(facts, from));
        let share = demand.share_of(capacity);
        let tell = format!("{}: {demand} of {capacity}", topology.name(link));
        if share > 1.0 {
            over.push(tell);
        } else if most.as_ref().is_none_or(|(best, _)| share > *best) {
            most = Some((share, tell));
        }
    }
    let shared = topology
        .nodes
        .iter()
        .any(|it| matches!(it.place, Place::Controller | Place::Expander | Place::Switch));
    match (over.is_empty(), most) {
        (false, _) => Found::fail(
            "links",
            over.join("; "),
            "use fewer drives at once, spread them over more controllers, \
             or accept this as the ceiling",
        ),
        (true, Some((share, tell))) if share > 0.0 => {
            Found::pass("links", format!("fullest is {tell}"))
        }
        (true, _) if !shared && !facts.server.drives.is_empty() => {
            Found::not_applicable("every drive has a link of its own")
        }
        (true, _) => Found::cannot_tell(
            "no link tells what it carries, or no drive what it gives",
            "run as root; give --drive-rate",
        ),
    }
}

/// What all drives give whose way leads through a node.
fn demand(facts: &Facts<'_>, node: usize) -> u64 {
    let topology = facts.topology;
    let mut sum: u64 = 0;
    for link in topology.links.iter().filter(|it| it.to == Some(node)) {
        sum = sum.saturating_add(match link.from {
            None => link.capacity.map_or(0, |it| it.0),
            // Only upwards: sockets may have links to each other.
            Some(from) if topology.nodes[from].place < topology.nodes[node].place => {
                demand(facts, from)
            }
            Some(_) => 0,
        });
    }
    sum
}

/// Every attached phy runs at its best.
pub fn sas_negotiated(facts: &Facts<'_>) -> Found {
    let phys = &facts.server.phys;
    let both: Vec<(&Phy, u64, u64)> =
        phys.iter().filter_map(|it| Some((it, it.negotiated?, it.capable?))).collect();
    if both.is_empty() {
        return match has_sas(facts.server) {
            false => Found::not_applicable("no SAS"),
            true => Found::cannot_tell(
                "no phy tells its rates",
                "the driver has no SAS transport class; ask the vendor's tool",
            ),
        };
    }
    let slow: Vec<_> = both.iter().filter(|it| it.1 < it.2).collect();
    match slow.first() {
        None => Found::pass("sas", format!("{} phys at {} Gbit/s", both.len(), giga(both[0].1))),
        Some((_, runs, could)) => Found::fail(
            some_of(slow.iter().map(|it| it.0.name.as_str())),
            format!(
                "{} of {} phys at {} of {} Gbit/s",
                slow.len(),
                both.len(),
                giga(*runs),
                giga(*could)
            ),
            "reseat drive and cable; the drive may also be made for less",
        ),
    }
}

fn giga(mega_bits: u64) -> String {
    format!("{}.{}", mega_bits / 1_000, mega_bits % 1_000 / 100)
}

fn has_sas(server: &Server) -> bool {
    let is_sas = |it: &PciDevice| it.class >> 8 == 0x0107;
    server.drives.iter().any(|it| it.kind == DriveKind::Sas) || server.pci.values().any(is_sas)
}

/// No phy counts errors while it is watched. What it counted before proves nothing.
pub fn phy_errors_growing(facts: &Facts<'_>) -> Found {
    let counted: BTreeMap<&str, PhyErrors> =
        facts.server.phys.iter().filter_map(|it| Some((it.name.as_str(), it.errors?))).collect();
    if counted.is_empty() {
        return match has_sas(facts.server) {
            false => Found::not_applicable("no SAS"),
            true => Found::cannot_tell(
                "no phy's error counters could be read",
                "install smp_utils, run as root",
            ),
        };
    }
    let total: u64 = counted.values().map(|it| it.sum()).fold(0, u64::saturating_add);
    let changed = changes(facts.server);
    let before = facts.before.map(|server| {
        server
            .phys
            .iter()
            .filter_map(|it| Some((it.name.as_str(), it.errors?)))
            .collect::<BTreeMap<_, _>>()
    });
    let Some(before) = before.filter(|it| counted.keys().any(|name| it.contains_key(name))) else {
        if total == 0 {
            let said =
                format!("none of {} phys has counted an error since its reset", counted.len());
            return Found::pass("sas", said + &changed);
        }
        return Found::cannot_tell(
            format!("{}{changed}; growth needs two looks", since_reset(&counted)),
            "capture before and after a load, then: lab inspect --from AFTER --before BEFORE",
        );
    };
    let grown: Vec<(&str, u64)> = counted
        .iter()
        .filter_map(|(name, now)| Some((*name, now.since(*before.get(name)?).sum())))
        .filter(|it| it.1 > 0)
        .collect();
    match grown.iter().map(|it| it.1).fold(0, u64::saturating_add) {
        0 => Found::pass(
            "sas",
            format!(
                "{} phys counted no error between the two captures; {total} before",
                counted.len()
            ),
        ),
        sum => Found::fail(
            some_of(grown.iter().map(|it| it.0)),
            format!("{sum} more errors between the two captures on {} phys", grown.len()),
            "swap cable or slot of that phy and watch whether the errors stay with it",
        ),
    }
}

/// What phys have counted since their reset, by kind: an invalid dword is a disparity error, too.
fn since_reset(counted: &BTreeMap<&str, PhyErrors>) -> String {
    let bad: Vec<(&str, PhyErrors)> =
        counted.iter().filter(|it| it.1.sum() > 0).map(|(name, errors)| (*name, *errors)).collect();
    let all =
        |kind: fn(&PhyErrors) -> u64| bad.iter().map(|it| kind(&it.1)).fold(0, u64::saturating_add);
    let worst = bad.iter().max_by_key(|it| it.1.sum()).map_or("", |it| it.0);
    let verb = if bad.len() == 1 { "has" } else { "have" };
    format!(
        "{} of {} phys {verb} counted {} invalid dwords, {} disparity errors, {} losses of \
         synchronization, {} reset problems since their reset, most {worst}{}",
        bad.len(),
        counted.len(),
        all(|it| it.invalid_dwords),
        all(|it| it.disparity_errors),
        all(|it| it.sync_losses),
        all(|it| it.reset_problems),
        neighbours(bad.iter().map(|it| it.0))
    )
}

/// Phys that follow one another belong to one cable or port.
fn neighbours<'a>(names: impl Iterator<Item = &'a str>) -> &'static str {
    let place = |name: &'a str| {
        let (expander, number) = name.rsplit_once(':')?;
        Some((expander, number.parse::<u64>().ok()?))
    };
    let mut places: Vec<(&str, u64)> = names.filter_map(place).collect();
    places.sort_unstable();
    let follows = |pair: &[(&str, u64)]| pair[0].0 == pair[1].0 && pair[0].1 + 1 == pair[1].1;
    match places.len() > 1 && places.windows(2).all(follows) {
        true => "; they are neighbours: one cable or port",
        false => "",
    }
}

/// How often expanders have seen their topology change.
fn changes(server: &Server) -> String {
    let told = |expander: &Expander| {
        let count = expander.change_count.filter(|count| *count > 1)?;
        Some(format!("; {} has seen its topology change {count} times", expander.name))
    };
    server.expanders.iter().filter_map(told).take(2).collect()
}

/// Fast drives have more than one hardware queue.
pub fn queue_count(facts: &Facts<'_>) -> Found {
    let cpus = facts.server.cpu.threads.len();
    let fast: Vec<_> = facts
        .server
        .drives
        .iter()
        .filter(|it| it.is_rotational == Some(false) || it.kind == DriveKind::Virtual)
        .collect();
    if fast.is_empty() || cpus < 2 {
        return match facts.server.drives.is_empty() {
            true => Found::cannot_tell(
                "no drives found in /sys/block",
                "are they visible to this host?",
            ),
            false => Found::not_applicable("spinning drives, or one CPU"),
        };
    }
    let known: Vec<_> =
        fast.iter().filter_map(|it| Some((it.name.as_str(), it.queue_count?))).collect();
    if known.len() < fast.len() {
        return Found::cannot_tell("/sys/block/*/mq is not there", "needs a blk-mq kernel");
    }
    let single: Vec<&str> = known.iter().filter(|it| it.1 == 1).map(|it| it.0).collect();
    let most = known.iter().map(|it| it.1).max().unwrap_or(0);
    match single.len() {
        0 => Found::pass("queues", format!("up to {most} queues a drive for {cpus} CPUs")),
        count => Found::fail(
            some_of(single),
            format!("{count} of {} drives have 1 hardware queue for {cpus} CPUs", fast.len()),
            "one CPU serves all their completions; for virtio set num-queues in the host, \
             else look at firmware and driver options",
        ),
    }
}

/// No enclosure calls a fan, a power supply or a slot of its own unwell.
pub fn enclosure_elements(facts: &Facts<'_>) -> Found {
    let enclosures = &facts.server.enclosures;
    let told: Option<Vec<String>> = enclosures
        .iter()
        .map(|it| Some(it.unwell.clone()?.into_iter().map(|what| format!("{}: {what}", it.name))))
        .try_fold(Vec::new(), |mut all, more| {
            all.extend(more?);
            Some(all)
        });
    match told {
        _ if enclosures.is_empty() => {
            Found::not_applicable("no enclosure with a status of its own")
        }
        None => Found::cannot_tell(silent(facts, "sg_ses"), "run it as root, with sg3-utils"),
        Some(unwell) if unwell.is_empty() => {
            Found::pass("enclosures", format!("{}, all elements well", enclosures.len()))
        }
        Some(unwell) => Found::fail(
            some_of(enclosures.iter().map(|it| it.name.as_str())),
            some_of(unwell.iter().map(String::as_str)),
            "replace that part before anything is measured",
        ),
    }
}

/// Interrupts of controllers are not all served by one CPU.
pub fn irq_spread(facts: &Facts<'_>) -> Found {
    let server = facts.server;
    let of = |address: &str| -> Vec<&BTreeSet<u64>> {
        let irqs = server.pci.get(address).map(|it| it.irqs.clone()).unwrap_or_default();
        irqs.iter().filter_map(|irq| server.irqs.get(irq)).collect()
    };
    let with_several: Vec<(&str, Vec<&BTreeSet<u64>>)> = server
        .controllers
        .iter()
        .map(|it| (it.address.as_str(), of(&it.address)))
        // One is for the configuration, one may be the only queue: nothing to spread.
        .filter(|it| it.1.len() > 2)
        .collect();
    if server.cpu.threads.len() == 1 {
        return Found::not_applicable("one CPU");
    }
    if with_several.is_empty() {
        return Found::cannot_tell(
            "no controller shows several interrupts with their CPUs",
            "look into /proc/interrupts; guests often have one queue, and so one interrupt",
        );
    }
    let is_piled = |it: &&(&str, Vec<&BTreeSet<u64>>)| {
        let all: BTreeSet<u64> = it.1.iter().flat_map(|cpus| cpus.iter().copied()).collect();
        all.len() == 1
    };
    let piled: Vec<_> = with_several.iter().filter(is_piled).collect();
    match piled.len() {
        0 => Found::pass(
            "interrupts",
            format!("{} controllers spread theirs over several CPUs", with_several.len()),
        ),
        count => Found::fail(
            some_of(piled.iter().map(|it| it.0)),
            format!("{count} of {} controllers have all interrupts on one CPU", with_several.len()),
            "start irqbalance, or write /proc/irq/N/smp_affinity_list",
        ),
    }
}
