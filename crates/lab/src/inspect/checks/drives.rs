//! Caches, sectors, partitions, firmware, health, other hosts.

use super::{Answer, Facts, blind_for, fail, not_applicable, pass, silent, some_of};
use crate::inspect::models::Entry;
use crate::inspect::server::drives::whole;
use crate::inspect::server::{Drive, DriveKind};
use crate::record::Check;
use std::collections::{BTreeMap, BTreeSet};

/// The drives, if there are any.
pub(super) fn some<'a>(facts: &Facts<'a>) -> Result<&'a [Drive], Check> {
    let none = || blind_for("no drives found in /sys/block").but(VISIBLE);
    Some(facts.server.drives.as_slice()).filter(|it| !it.is_empty()).ok_or_else(none)
}

const VISIBLE: &str = "are they visible to this host?";

/// Each drive with what it says; if one says nothing, nothing can be told.
pub(super) fn each<'a, T>(
    facts: &Facts<'a>,
    value: impl Fn(&'a Drive) -> Option<T>,
) -> Result<Vec<(&'a str, T)>, Check> {
    let drives = some(facts)?;
    let said = drives.iter().filter_map(|it| Some((it.name.as_str(), value(it)?)));
    let said: Vec<(&str, T)> = said.collect();
    let silent = drives.len() - said.len();
    match silent {
        0 => Ok(said),
        _ => Err(blind_for(format!("{silent} of {} drives did not say", drives.len()))),
    }
}

fn names<'a>(drives: &[&'a Drive]) -> impl Iterator<Item = &'a str> {
    drives.iter().map(|it| it.name.as_str())
}

pub fn health(facts: &Facts<'_>) -> Answer {
    let drives = some(facts)?;
    let bad: Vec<&Drive> = drives.iter().filter(|it| it.is_healthy == Some(false)).collect();
    if !bad.is_empty() {
        let found = format!("{} drives say of themselves that they are failing", bad.len());
        return Ok(fail(found).about(names(&bad)));
    }
    if drives.iter().all(|it| it.kind == DriveKind::Virtual) {
        return Ok(not_applicable("a guest's disks have no health of their own"));
    }
    let all = each(facts, |it| it.is_healthy).map_err(|it| because(facts, it, "smartctl"))?;
    Ok(pass(format!("{} drives pass their own health check", all.len())))
}

/// Cannot tell, with what a program said.
fn because(facts: &Facts<'_>, mut found: Check, tool: &str) -> Check {
    found.found = format!("{}: {}", found.found, silent(facts, tool));
    found
}

pub fn second_host(facts: &Facts<'_>) -> Answer {
    let (server, drives) = (facts.server, some(facts)?);
    let has = |kind| drives.iter().any(|it| it.kind == kind);
    let (has_sas, has_nvme) = (has(DriveKind::Sas), has(DriveKind::Nvme));
    let expanders = server.expanders.iter();
    let foreign =
        expanders.filter(|it| it.foreign_initiators.as_ref().is_some_and(|it| !it.is_empty()));
    let foreign: Vec<&str> = foreign.map(|it| it.name.as_str()).collect();
    if !foreign.is_empty() {
        let found =
            "another host's controller is on the same expander, so it may use the same drives";
        return Ok(fail(found).about(foreign));
    }
    let shared: Vec<&Drive> = whole(drives)
        .into_iter()
        .map(|drive| drive[0])
        .filter(|it| it.is_shared == Some(true) && it.attachments.len() < 2)
        .collect();
    if !shared.is_empty() {
        let found = "NVMe drives have a second port that this host does not use";
        return Ok(fail(format!("{} {found}", shared.len())).about(names(&shared)));
    }
    if server.expanders.iter().any(|it| it.foreign_initiators.is_none())
        || (has_sas && server.expanders.is_empty())
    {
        let found = blind_for("nobody could ask who else is on the fabric");
        return Err(because(facts, found, "smp_discover").but("install smp_utils, run as root"));
    }
    if drives.iter().any(|it| it.kind == DriveKind::Nvme && it.is_shared.is_none()) {
        let found = blind_for("drives did not say whether they have two ports");
        return Err(because(facts, found, "nvme_id_ctrl").but("install nvme-cli, run as root"));
    }
    Ok(match has_sas || has_nvme {
        true => pass("no other initiator on the expanders, no unused second port"),
        false => not_applicable("no drives with two ports"),
    })
}

pub fn port_width(facts: &Facts<'_>) -> Answer {
    let drives = whole(some(facts)?).into_iter().map(|drive| drive[0]);
    let all: Vec<&Drive> = drives.filter(|it| it.kind == DriveKind::Nvme).collect();
    if all.is_empty() {
        return Ok(not_applicable("no NVMe drives"));
    }
    if let Some(drive) = all.iter().find(|it| it.is_shared.is_none()) {
        let found = format!("{} did not say whether it has two ports", drive.name);
        return Err(because(facts, blind_for(found), "nvme_id_ctrl"));
    }
    let shared: Vec<&&Drive> = all.iter().filter(|it| it.is_shared == Some(true)).collect();
    let mut half = Vec::new();
    for drive in &shared {
        let links = drive.attachments.iter();
        let links = links.map(|way| facts.server.pci.get(&way.controller)?.negotiated);
        let links: Vec<_> = links.collect::<Option<_>>().ok_or_else(|| {
            blind_for(format!("{} does not tell the width of its ports", drive.name))
        })?;
        if let [link] = links.as_slice()
            && link.lanes < 4
        {
            half.push((drive.name.as_str(), *link));
        }
    }
    let two = format!("{} NVMe drives with two ports", shared.len());
    Ok(match half.first() {
        None if shared.is_empty() => pass(format!("{} NVMe drives have one port", all.len())),
        None => pass(format!("{two}: both are used, or the one is wide")),
        Some((_, link)) => fail(format!(
            "{} drives with two ports are used by one of them, {link}: {} of what they could",
            half.len(),
            link.raw()
        ))
        .about(half.iter().map(|it| it.0)),
    })
}

pub fn partition_aligned(facts: &Facts<'_>) -> Answer {
    let (mut count, mut off) = (0_u64, Vec::new());
    for drive in some(facts)?.iter().filter(|it| !it.partitions.is_empty()) {
        let (_, physical) = drive
            .blocks
            .ok_or_else(|| blind_for(format!("{} does not tell its block size", drive.name)))?;
        for (name, start) in &drive.partitions {
            count += 1;
            if start % physical.max(4_096) != 0 {
                off.push((name.as_str(), *start));
            }
        }
    }
    Ok(match off.first() {
        _ if count == 0 => not_applicable("no partitions"),
        None => pass(format!("{count} partitions begin on block boundaries")),
        Some((_, start)) => fail(format!(
            "{} of {count} partitions begin off the boundary, first at byte {start}",
            off.len()
        ))
        .about(off.iter().map(|it| it.0)),
    })
}

pub fn sector_size(facts: &Facts<'_>) -> Answer {
    let blocks = each(facts, |it| it.blocks)?;
    let emulated: Vec<_> = blocks.iter().filter(|it| it.1.0 < it.1.1).collect();
    if let Some((_, (logical, physical))) = emulated.first() {
        let found = format!(
            "{} of {} drives take {logical} bytes and write {physical} inside (512e): \
             smaller writes read first",
            emulated.len(),
            blocks.len()
        );
        return Ok(fail(found).about(emulated.iter().map(|it| it.0)));
    }
    Ok(match blocks.windows(2).all(|pair| pair[0].1 == pair[1].1) {
        true => pass(format!("{} bytes on all {} drives", blocks[0].1.0, blocks.len())),
        false => fail("drives have different block sizes")
            .but("an array takes the largest; format them alike"),
    })
}

pub fn firmware_uniform(facts: &Facts<'_>) -> Answer {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for drive in some(facts)?.iter().filter(|it| it.kind != DriveKind::Virtual) {
        let silent = || blind_for(format!("{} does not tell its firmware", drive.name));
        let firmware = drive.firmware.as_deref().ok_or_else(silent)?;
        versions.entry(&drive.model).or_default().insert(firmware);
    }
    Ok(match versions.iter().find(|it| it.1.len() > 1) {
        _ if versions.is_empty() => not_applicable("a guest's disks have no firmware"),
        None => {
            let models = versions.len();
            pass(format!("one firmware on all drives of a model, models: {models}"))
        }
        Some((model, firmware)) => {
            let list = some_of(firmware.iter().copied());
            fail(format!("{} firmware versions: {list}", firmware.len())).about([*model])
        }
    })
}

/// Drives of one family that differ in capacity are stated to write at the same rate, within this.
const FIGURES_ALIKE: f64 = 0.9;

pub fn figures_uniform(facts: &Facts<'_>) -> Answer {
    some(facts)?;
    let lines = facts.models;
    if lines.is_empty() {
        return Ok(not_applicable("a guest's disks have no model"));
    }
    let mut families: BTreeMap<&str, Vec<(usize, &Entry)>> = BTreeMap::new();
    for line in lines {
        if let Ok(entry) = &line.known {
            families.entry(&entry.family).or_default().push((line.drives.len(), entry));
        }
    }
    for (family, entries) in &families {
        let rate = |it: &Entry| it.write().or(it.read());
        let least = entries.iter().min_by_key(|it| rate(it.1));
        let most = entries.iter().max_by_key(|it| rate(it.1));
        let Some(((few, slow), (_, fast))) = least.zip(most) else { continue };
        let Some((low, high)) = rate(slow).zip(rate(fast)) else { continue };
        if low.share_of(high) < FIGURES_ALIKE {
            let (small, large) = (slow.figures.gigabytes, fast.figures.gigabytes);
            let found = format!(
                "{few} of {small} GB are stated to write {low}, those of {large} GB {high}"
            );
            return Ok(fail(found).about([*family]));
        }
    }
    let unknown = lines.iter().find_map(|line| Some((&line.model, line.known.as_ref().err()?)));
    Ok(match unknown {
        Some((model, why)) => blind_for(format!("{model}: {why}")),
        None => pass(format!("families of drives with one figure each: {}", families.len())),
    })
}

pub fn volatile_write(facts: &Facts<'_>) -> Answer {
    let caches = each(facts, |it| it.write_cache.as_deref())?;
    let on: Vec<&str> = caches.iter().filter(|it| it.1 == "write back").map(|it| it.0).collect();
    let (all, count) = (caches.len(), on.len());
    Ok(match count {
        0 => pass(format!("write through on all {all} drives")),
        _ => fail(format!("{count} of {all} drives have a volatile write cache switched on"))
            .about(on),
    })
}
