//! PCIe, NUMA, controllers, enclosures, queues, interrupts, and phys of SAS with their errors.

use super::drives::{each, some};
use super::{Answer, Facts, blind, blind_for, fail, judge, not_applicable, pass, silent, some_of};
use crate::inspect::server::{Drive, DriveKind, PciDevice, PhyErrors, Server};
use crate::inspect::topology::Place;
use crate::inspect::topology::flow::usable;
use crate::metrics::bandwidth::{PcieLink, Rate};
use crate::record::Check;
use itertools::Itertools;
use std::collections::{BTreeMap, BTreeSet};

pub fn link_negotiated(facts: &Facts<'_>) -> Answer {
    let pci = &facts.server.pci;
    let judged: Vec<(&str, PcieLink, PcieLink)> = pci
        .values()
        .filter(|it| it.is_storage() || it.is_network())
        .filter_map(|it| Some((it.address.as_str(), it.negotiated?, possible(pci, it)?)))
        .collect();
    if judged.is_empty() {
        let has_some = pci.values().any(|it| it.is_storage() && it.chain.len() > 1);
        return Err(match has_some {
            true => blind(),
            false if pci.is_empty() => blind_for("no PCI devices in /sys/bus/pci"),
            false => blind_for("no storage or network device has a link of its own here"),
        });
    }
    // A drive with two ports has half of its lanes at each: that is dual_port.width.
    let shared = facts.server.drives.iter().filter(|it| it.is_shared == Some(true));
    let shared: BTreeSet<&str> =
        shared.flat_map(|it| &it.attachments).map(|way| way.controller.as_str()).collect();
    let is_half = |(address, runs, could): &(&str, PcieLink, PcieLink)| {
        let is_halved =
            runs.mega_transfers == could.mega_transfers && runs.lanes * 2 == could.lanes;
        is_halved && shared.contains(address)
    };
    let slow: Vec<_> = judged.iter().filter(|it| it.1.raw() < it.2.raw() && !is_half(it)).collect();
    let (all, count) = (judged.len(), slow.len());
    Ok(match slow.first() {
        None => pass(format!("{all} links at full speed and width")),
        Some((_, runs, could)) => {
            fail(format!("{count} of {all} links below what both ends can: {runs} of {could}"))
                .about(slow.iter().map(|it| it.0))
        }
    })
}

/// What both ends of a device's link can.
fn possible(pci: &BTreeMap<String, PciDevice>, device: &PciDevice) -> Option<PcieLink> {
    let own = device.capable?;
    let parent = device.chain.iter().rev().nth(1).and_then(|it| pci.get(it)?.capable);
    let parent = parent.unwrap_or(own);
    Some(PcieLink {
        mega_transfers: own.mega_transfers.min(parent.mega_transfers),
        lanes: own.lanes.min(parent.lanes),
    })
}

pub fn numa_balanced(facts: &Facts<'_>) -> Answer {
    let server = facts.server;
    let sockets = server.cpu.sockets();
    match sockets.len() {
        0 => return Ok(blind()),
        1 => return Ok(not_applicable("one socket")),
        _ => {}
    }
    let mut count: BTreeMap<u64, u64> = sockets.iter().map(|socket| (*socket, 0)).collect();
    for drive in &server.drives {
        let why = "the firmware does not say on which NUMA node its controller is";
        let socket = server.socket_of(drive.node).ok_or_else(|| {
            blind_for(format!("{}: {why}", drive.name))
                .but("switch NUMA affinity on in the firmware's setup, or update it")
        })?;
        *count.entry(socket).or_default() += 1;
    }
    let told = |(socket, drives): (&u64, &u64)| format!("socket {socket}: {drives} drives");
    let list = count.iter().map(told).join(", ");
    Ok(judge(is_balanced(count.values()), list))
}

pub fn controllers_balanced(facts: &Facts<'_>) -> Answer {
    let sas = some(facts)?.iter().filter(|it| it.kind == DriveKind::Sas);
    let mut count: BTreeMap<&str, u64> = BTreeMap::new();
    for way in sas.flat_map(|it| &it.attachments) {
        *count.entry(way.controller.trim_start_matches("0000:")).or_default() += 1;
    }
    if count.len() < 2 {
        return Ok(not_applicable("fewer than two SAS controllers"));
    }
    let list = count.iter().map(|(name, drives)| format!("{name}: {drives}")).join(", ");
    Ok(judge(is_balanced(count.values()), format!("drives on {}", list)))
}

/// Within a quarter of each other.
fn is_balanced<'a>(counts: impl Iterator<Item = &'a u64> + Clone) -> bool {
    let (least, most) = (counts.clone().min().unwrap_or(&0), counts.max().unwrap_or(&0));
    most * 4 <= least * 5 || *most <= least + 1
}

pub fn oversubscribed(facts: &Facts<'_>) -> Answer {
    let topology = facts.topology;
    let place = |at: Option<usize>| at.map(|at| topology.nodes[at].place);
    let mut loads = Vec::new();
    for link in topology.links.iter().filter(|it| !it.is_media() && !it.is_memory()) {
        // No flow is led over the links between sockets.
        let is_led =
            place(link.from) != Some(Place::Socket) || place(link.to) != Some(Place::Socket);
        let from = link.from.filter(|_| is_led && place(link.from) != Some(Place::Drives));
        let Some((from, capacity)) = from.zip(usable(link, 1)) else { continue };
        let demand = Rate(demand(facts, from));
        let told = format!("{}: {demand} of {capacity}", topology.name(link));
        loads.push((demand.share_of(capacity), told));
    }
    let over: Vec<&str> = loads.iter().filter(|it| it.0 > 1.0).map(|it| it.1.as_str()).collect();
    if !over.is_empty() {
        return Ok(fail(over.join("; ")));
    }
    let is_shared = |place| matches!(place, Place::Controller | Place::Expander | Place::Switch);
    let is_shared = topology.nodes.iter().any(|it| is_shared(it.place));
    let fullest = loads.iter().filter(|it| it.0 > 0.0);
    // Of equals the first.
    let fullest = fullest.reduce(|most, it| if it.0 > most.0 { it } else { most });
    Ok(match fullest {
        Some((_, told)) => pass(format!("fullest is {told}")),
        None if !is_shared && !facts.server.drives.is_empty() => {
            not_applicable("every drive has a link of its own")
        }
        None => blind(),
    })
}

/// What all drives give whose way leads through a node.
fn demand(facts: &Facts<'_>, node: usize) -> u64 {
    let nodes = &facts.topology.nodes;
    let into = facts.topology.links.iter().filter(|it| it.to == Some(node));
    let each = into.map(|link| match link.from {
        None => link.capacity.map_or(0, |it| it.0),
        // Only upwards: sockets may have links to each other.
        Some(from) if nodes[from].place < nodes[node].place => demand(facts, from),
        Some(_) => 0,
    });
    each.fold(0, u64::saturating_add)
}

pub fn queue_count(facts: &Facts<'_>) -> Answer {
    let cpus = facts.server.cpu.threads.len();
    let is_fast = |it: &Drive| it.is_rotational == Some(false) || it.kind == DriveKind::Virtual;
    let all = each(facts, |it| if is_fast(it) { it.queue_count.map(Some) } else { Some(None) })?;
    let fast: Vec<(&str, u64)> = all.into_iter().filter_map(|it| Some((it.0, it.1?))).collect();
    if fast.is_empty() || cpus < 2 {
        return Ok(not_applicable("spinning drives, or one CPU"));
    }
    let single: Vec<&str> = fast.iter().filter(|it| it.1 == 1).map(|it| it.0).collect();
    let most = fast.iter().map(|it| it.1).max().unwrap_or(0);
    Ok(match single.len() {
        0 => pass(format!("up to {most} queues a drive for {cpus} CPUs")),
        count => {
            fail(format!("{count} of {} drives have 1 hardware queue for {cpus} CPUs", fast.len()))
                .about(single)
        }
    })
}

pub fn enclosure_elements(facts: &Facts<'_>) -> Answer {
    let enclosures = &facts.server.enclosures;
    if enclosures.is_empty() {
        return Ok(not_applicable("no enclosure with a status of its own"));
    }
    let mut unwell = Vec::new();
    for it in enclosures {
        let own = it.unwell.as_ref();
        let own = own.ok_or_else(|| blind_for(silent(facts, "sg_ses")))?;
        unwell.extend(own.iter().map(|what| format!("{}: {what}", it.name)));
    }
    Ok(match unwell.is_empty() {
        true => pass(format!("{}, all elements well", enclosures.len())),
        false => fail(some_of(unwell.iter().map(String::as_str)))
            .about(enclosures.iter().map(|it| it.name.as_str())),
    })
}

pub fn irq_spread(facts: &Facts<'_>) -> Answer {
    let server = facts.server;
    if server.cpu.threads.len() == 1 {
        return Ok(not_applicable("one CPU"));
    }
    let of = |address: &str| -> Vec<&BTreeSet<u64>> {
        let irqs = server.pci.get(address).map_or(&[][..], |it| &it.irqs);
        irqs.iter().filter_map(|irq| server.irqs.get(irq)).collect()
    };
    let all = server.controllers.iter().map(|it| (it.as_str(), of(it)));
    // One is for the configuration, one may be the only queue: nothing to spread.
    let several: Vec<_> = all.filter(|it| it.1.len() > 2).collect();
    if several.is_empty() {
        return Ok(blind());
    }
    let cpus = |sets: &[&BTreeSet<u64>]| {
        let all: BTreeSet<u64> = sets.iter().copied().flatten().copied().collect();
        all.len()
    };
    let piled: Vec<&str> = several.iter().filter(|it| cpus(&it.1) == 1).map(|it| it.0).collect();
    let all = several.len();
    Ok(match piled.len() {
        0 => pass(format!("{all} controllers spread theirs over several CPUs")),
        count => fail(format!("{count} of {all} controllers have all interrupts on one CPU"))
            .about(piled),
    })
}

/// Nothing was counted: there is no SAS, or it does not tell.
fn none(server: &Server) -> Check {
    let is_sas = |it: &PciDevice| it.class >> 8 == 0x0107;
    let has_sas =
        server.drives.iter().any(|it| it.kind == DriveKind::Sas) || server.pci.values().any(is_sas);
    if has_sas { blind() } else { not_applicable("no SAS") }
}

pub fn negotiated(facts: &Facts<'_>) -> Answer {
    let phys = facts.server.phys.iter();
    let both: Vec<(&str, u64, u64)> =
        phys.filter_map(|it| Some((it.name.as_str(), it.negotiated?, it.capable?))).collect();
    let giga = |mega_bits: u64| format!("{}.{}", mega_bits / 1_000, mega_bits % 1_000 / 100);
    let (_, rate, _) = both.first().ok_or_else(|| none(facts.server))?;
    let slow: Vec<_> = both.iter().filter(|it| it.1 < it.2).collect();
    let (all, count) = (both.len(), slow.len());
    Ok(match slow.first() {
        None => pass(format!("{all} phys at {} Gbit/s", giga(*rate))),
        Some((_, runs, could)) => {
            fail(format!("{count} of {all} phys at {} of {} Gbit/s", giga(*runs), giga(*could)))
                .about(slow.iter().map(|it| it.0))
        }
    })
}

/// What phys count, by name.
type Counted<'a> = BTreeMap<&'a str, PhyErrors>;

fn sum(all: impl Iterator<Item = u64>) -> u64 {
    all.fold(0, u64::saturating_add)
}

pub fn errors_growing(facts: &Facts<'_>) -> Answer {
    let now = facts.server.phy_errors();
    if now.is_empty() {
        return Ok(none(facts.server));
    }
    let total = sum(now.values().map(|it| it.sum()));
    let changed = changes(facts.server);
    let before = facts.before.map(Server::phy_errors).unwrap_or_default();
    if !now.keys().any(|name| before.contains_key(name)) {
        return Ok(match total {
            0 => pass(format!(
                "none of {} phys has counted an error since its reset{changed}",
                now.len()
            )),
            _ => {
                let found = format!("{}{changed}; growth needs two looks", since_reset(&now));
                blind_for(found).but(
                    "capture before and after a load, then: \
                     lab inspect --from AFTER --before BEFORE",
                )
            }
        });
    }
    let growth = |name: &str, now: &PhyErrors| Some(now.since(*before.get(name)?).sum());
    let since = now.iter().filter_map(|(name, now)| Some((*name, growth(name, now)?)));
    let grown: Vec<(&str, u64)> = since.filter(|it| it.1 > 0).collect();
    let (all, bad) = (now.len(), grown.len());
    Ok(match sum(grown.iter().map(|it| it.1)) {
        0 => pass(format!("{all} phys counted no error between the two captures; {total} before")),
        more => fail(format!("{more} more errors between the two captures on {bad} phys"))
            .about(grown.iter().map(|it| it.0)),
    })
}

/// What phys have counted since their reset, by kind: an invalid dword is a disparity error, too.
fn since_reset(counted: &Counted<'_>) -> String {
    let bad: Vec<_> = counted.iter().filter(|it| it.1.sum() > 0).collect();
    let all = |kind: fn(&PhyErrors) -> u64| sum(bad.iter().map(|it| kind(it.1)));
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
        neighbours(bad.iter().map(|it| *it.0))
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
    let changed = server.expanders.iter().filter_map(|it| Some((&it.name, it.change_count?)));
    let told = changed.filter(|(_, count)| *count > 1).take(2);
    told.map(|(name, count)| format!("; {name} has seen its topology change {count} times"))
        .collect()
}
