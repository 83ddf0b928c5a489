//! Caches, sectors, partitions, firmware, health, other hosts.

use super::{Facts, Found, silent, some_of};
use crate::inspect::models::Entry;
use crate::inspect::server::drives::whole;
use crate::inspect::server::{Drive, DriveKind};
use std::collections::{BTreeMap, BTreeSet};

fn none_found(facts: &Facts<'_>) -> Option<Found> {
    let is_empty = facts.server.drives.is_empty();
    is_empty.then(|| {
        Found::cannot_tell("no drives found in /sys/block", "are they visible to this host?")
    })
}

/// The drives with something, each with its value; or the names of those that do not say.
fn each<'a, T>(
    facts: &Facts<'a>,
    value: impl Fn(&'a Drive) -> Option<T>,
) -> Result<Vec<(&'a str, T)>, Vec<&'a str>> {
    let drives = &facts.server.drives;
    let silent: Vec<&str> =
        drives.iter().filter(|it| value(it).is_none()).map(|it| it.name.as_str()).collect();
    match silent.is_empty() {
        true => Ok(drives.iter().filter_map(|it| Some((it.name.as_str(), value(it)?))).collect()),
        false => Err(silent),
    }
}

/// Every drive says that it is healthy.
pub fn health(facts: &Facts<'_>) -> Found {
    if let Some(found) = none_found(facts) {
        return found;
    }
    let drives = &facts.server.drives;
    let bad: Vec<&str> = drives
        .iter()
        .filter(|it| it.is_healthy == Some(false))
        .map(|it| it.name.as_str())
        .collect();
    if !bad.is_empty() {
        return Found::fail(
            some_of(bad.iter().copied()),
            format!("{} drives say of themselves that they are failing", bad.len()),
            "replace them before measuring",
        );
    }
    match each(facts, |it| it.is_healthy) {
        Ok(all) => {
            Found::pass("drives", format!("{} drives pass their own health check", all.len()))
        }
        Err(_) if drives.iter().all(|it| it.kind == DriveKind::Virtual) => {
            Found::not_applicable("a guest's disks have no health of their own")
        }
        Err(names) => Found::cannot_tell(
            format!(
                "{} of {} drives did not say: {}",
                names.len(),
                drives.len(),
                silent(facts, "smartctl")
            ),
            "install smartmontools 7 or newer, run as root",
        ),
    }
}

/// No other host sees these drives.
pub fn second_host(facts: &Facts<'_>) -> Found {
    let server = facts.server;
    let kinds: BTreeSet<&str> = server
        .drives
        .iter()
        .map(|it| match it.kind {
            DriveKind::Sas => "sas",
            DriveKind::Nvme => "nvme",
            DriveKind::Sata | DriveKind::Virtual | DriveKind::Other => "other",
        })
        .collect();
    if let Some(found) = none_found(facts) {
        return found;
    }
    let foreign: Vec<&str> = server
        .expanders
        .iter()
        .filter(|it| it.foreign_initiators.as_ref().is_some_and(|it| !it.is_empty()))
        .map(|it| it.name.as_str())
        .collect();
    let shared: Vec<&str> = whole(&server.drives)
        .into_iter()
        .map(|drive| drive[0])
        .filter(|it| it.is_shared == Some(true) && it.attachments.len() < 2)
        .map(|it| it.name.as_str())
        .collect();
    let next = "never write from two hosts; zone the drives to one of them with the vendor's tool, \
                or stop the other one";
    if !foreign.is_empty() {
        return Found::fail(
            some_of(foreign),
            "another host's controller is on the same expander, so it may use the same drives",
            next,
        );
    }
    if !shared.is_empty() {
        return Found::fail(
            some_of(shared.iter().copied()),
            format!("{} NVMe drives have a second port that this host does not use", shared.len()),
            next,
        );
    }
    let not_asked = server.expanders.iter().any(|it| it.foreign_initiators.is_none())
        || (kinds.contains("sas") && server.expanders.is_empty());
    if not_asked {
        return Found::cannot_tell(
            format!(
                "nobody could ask who else is on the fabric: {}",
                silent(facts, "smp_discover")
            ),
            "install smp_utils, run as root",
        );
    }
    if server.drives.iter().any(|it| it.kind == DriveKind::Nvme && it.is_shared.is_none()) {
        return Found::cannot_tell(
            format!(
                "drives did not say whether they have two ports: {}",
                silent(facts, "nvme_id_ctrl")
            ),
            "install nvme-cli, run as root",
        );
    }
    match kinds.contains("sas") || kinds.contains("nvme") {
        true => Found::pass("drives", "no other initiator on the expanders, no unused second port"),
        false => Found::not_applicable("no drives with two ports"),
    }
}

/// Ports of drives that have two have all their lanes, or both ports are used.
pub fn port_width(facts: &Facts<'_>) -> Found {
    let server = facts.server;
    let drives = whole(&server.drives).into_iter().map(|drive| drive[0]);
    let all: Vec<&Drive> = drives.filter(|it| it.kind == DriveKind::Nvme).collect();
    if all.is_empty() {
        return none_found(facts).unwrap_or_else(|| Found::not_applicable("no NVMe drives"));
    }
    if let Some(drive) = all.iter().find(|it| it.is_shared.is_none()) {
        return Found::cannot_tell(
            format!(
                "{} did not say whether it has two ports: {}",
                drive.name,
                silent(facts, "nvme_id_ctrl")
            ),
            "install nvme-cli, run as root",
        );
    }
    let mut half = Vec::new();
    let shared: Vec<&&Drive> = all.iter().filter(|it| it.is_shared == Some(true)).collect();
    for drive in &shared {
        let links = drive.attachments.iter().map(|way| server.pci.get(&way.controller)?.negotiated);
        let Some(links) = links.collect::<Option<Vec<_>>>() else {
            return Found::cannot_tell(
                format!("{} does not tell the width of its ports", drive.name),
                "run as root",
            );
        };
        if let ([link], true) = (links.as_slice(), links.iter().all(|link| link.lanes < 4)) {
            half.push((drive.name.as_str(), *link));
        }
    }
    match half.first() {
        None if shared.is_empty() => {
            Found::pass("drives", format!("{} NVMe drives have one port", all.len()))
        }
        None => Found::pass(
            "drives",
            format!(
                "{} NVMe drives with two ports: both are used, or the one is wide",
                shared.len()
            ),
        ),
        Some((_, link)) => Found::fail(
            some_of(half.iter().map(|it| it.0)),
            format!(
                "{} drives with two ports are used by one of them, {link}: {} of what they could",
                half.len(),
                link.raw()
            ),
            "use both ports, with a namespace of its own for each or with multipath; \
             or switch the drives to one port of four lanes",
        ),
    }
}

/// Partitions begin on multiples of 4096 bytes and of the physical block.
pub fn partition_aligned(facts: &Facts<'_>) -> Found {
    if let Some(found) = none_found(facts) {
        return found;
    }
    let (mut count, mut off) = (0_u64, Vec::new());
    for drive in &facts.server.drives {
        let Some((_, physical)) = drive.blocks else {
            if drive.partitions.is_empty() {
                continue;
            }
            return Found::cannot_tell(
                format!("{} does not tell its block size", drive.name),
                "look into /sys/block/*/queue",
            );
        };
        for (name, start) in &drive.partitions {
            count += 1;
            if start % physical.max(4_096) != 0 {
                off.push((name.as_str(), *start));
            }
        }
    }
    match off.first() {
        _ if count == 0 => Found::not_applicable("no partitions"),
        None => Found::pass("partitions", format!("{count} partitions begin on block boundaries")),
        Some((_, start)) => Found::fail(
            some_of(off.iter().map(|it| it.0)),
            format!(
                "{} of {count} partitions begin off the boundary, first at byte {start}",
                off.len()
            ),
            "make them anew from 1 MiB on: each small write is two otherwise",
        ),
    }
}

/// Logical and physical blocks are equal.
pub fn sector_size(facts: &Facts<'_>) -> Found {
    if let Some(found) = none_found(facts) {
        return found;
    }
    let blocks = match each(facts, |it| it.blocks) {
        Ok(blocks) => blocks,
        Err(names) => {
            return Found::cannot_tell(
                format!("{} drives do not tell their block sizes", names.len()),
                "look into /sys/block/*/queue",
            );
        }
    };
    let emulated: Vec<&str> = blocks.iter().filter(|it| it.1.0 < it.1.1).map(|it| it.0).collect();
    let (logical, physical) =
        blocks.iter().map(|it| it.1).find(|it| it.0 < it.1).unwrap_or_default();
    let sizes: BTreeSet<(u64, u64)> = blocks.iter().map(|it| it.1).collect();
    match (emulated.is_empty(), sizes.len()) {
        (true, 1) => {
            Found::pass("drives", format!("{} bytes on all {} drives", blocks[0].1.0, blocks.len()))
        }
        (true, _) => Found::fail(
            "drives",
            "drives have different block sizes",
            "an array takes the largest; format them alike",
        ),
        (false, _) => Found::fail(
            some_of(emulated.iter().copied()),
            format!(
                "{} of {} drives take {logical} bytes and write {physical} inside (512e): \
                 smaller writes read first",
                emulated.len(),
                blocks.len()
            ),
            "write multiples of 4096 bytes, or format to 4Kn if the drive can",
        ),
    }
}

/// Drives of one model have one firmware.
pub fn firmware_uniform(facts: &Facts<'_>) -> Found {
    if let Some(found) = none_found(facts) {
        return found;
    }
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for drive in facts.server.drives.iter().filter(|it| it.kind != DriveKind::Virtual) {
        let Some(firmware) = &drive.firmware else {
            return Found::cannot_tell(
                format!("{} does not tell its firmware", drive.name),
                "run as root; ask smartctl",
            );
        };
        versions.entry(&drive.model).or_default().insert(firmware);
    }
    let mixed = versions.iter().find(|it| it.1.len() > 1);
    match mixed {
        _ if versions.is_empty() => Found::not_applicable("a guest's disks have no firmware"),
        None => Found::pass(
            "drives",
            format!("one firmware on all drives of a model, models: {}", versions.len()),
        ),
        Some((model, firmware)) => Found::fail(
            *model,
            format!("{} firmware versions: {}", firmware.len(), some_of(firmware.iter().copied())),
            "bring them to one version, or measure each apart",
        ),
    }
}

/// Drives of one family that differ in capacity are stated to write at the same rate, within this.
const FIGURES_ALIKE: f64 = 0.9;

/// Drives of one family have the same figures: capacity changes them.
pub fn figures_uniform(facts: &Facts<'_>) -> Found {
    if let Some(found) = none_found(facts) {
        return found;
    }
    let lines = facts.models;
    if lines.is_empty() {
        return Found::not_applicable("a guest's disks have no model");
    }
    let mut families: BTreeMap<&str, Vec<(u64, &Entry)>> = BTreeMap::new();
    for line in lines {
        if let Some(entry) = line.known.entry() {
            let count = u64::try_from(line.drives.len()).unwrap_or(0);
            families.entry(&entry.family).or_default().push((count, entry));
        }
    }
    for (family, entries) in &families {
        let rate = |it: &&(u64, &Entry)| it.1.write().or(it.1.read());
        let least = entries.iter().min_by_key(rate);
        let most = entries.iter().max_by_key(rate);
        let Some(((few, slow), (_, fast))) = least.zip(most) else { continue };
        let Some((low, high)) = slow.write().or(slow.read()).zip(fast.write().or(fast.read()))
        else {
            continue;
        };
        if low.share_of(high) < FIGURES_ALIKE {
            return Found::fail(
                *family,
                format!(
                    "{few} of {} GB are stated to write {low}, those of {} GB {high}",
                    slow.figures.gigabytes, fast.figures.gigabytes
                ),
                "an array over both runs at the pace of the slower ones: use one capacity",
            );
        }
    }
    match lines.iter().find_map(|line| Some((line, line.known.why_not()?))) {
        Some((line, why)) => Found::cannot_tell(
            format!("{}: {why}", line.model),
            "add an entry from its data sheet: docs/lab/inspect.md shows how",
        ),
        None => Found::pass(
            "drives",
            format!("families of drives with one figure each: {}", families.len()),
        ),
    }
}

/// No drive acknowledges writes that a power cut would lose.
pub fn volatile_write(facts: &Facts<'_>) -> Found {
    if let Some(found) = none_found(facts) {
        return found;
    }
    let caches = match each(facts, |it| it.write_cache.as_deref()) {
        Ok(caches) => caches,
        Err(names) => {
            return Found::cannot_tell(
                format!("{} drives do not tell their write cache", names.len()),
                "look into /sys/block/*/queue/write_cache",
            );
        }
    };
    let on: Vec<&str> = caches.iter().filter(|it| it.1 == "write back").map(|it| it.0).collect();
    match on.len() {
        0 => Found::pass("drives", format!("write through on all {} drives", caches.len())),
        count => Found::fail(
            some_of(on),
            format!("{count} of {} drives have a volatile write cache switched on", caches.len()),
            "print it beside every write result; measure with fsync or sync=1, \
             and once with the cache off",
        ),
    }
}
