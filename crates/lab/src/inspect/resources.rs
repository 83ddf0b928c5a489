//! The USE checklist: utilisation, saturation and errors of every resource, filled in as far as
//! they are known.
//!
//! What must stay true: a cell that nobody filled is None and is shown as empty, so that it is
//! missed.

use super::server::drives::whole;
use super::server::network::Network;
use super::server::{DriveKind, PhyErrors, Server};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Row {
    pub resource: String,
    pub utilisation: Option<String>,
    pub saturation: Option<String>,
    pub errors: Option<String>,
}

pub fn table(server: &Server, before: Option<&Server>) -> Vec<Row> {
    let software = &server.software;
    let waits = |name: &str| {
        software.pressure.get(name).map(|share| format!("{share:.1} % of a minute waited"))
    };
    let threads = server.cpu.threads.len();
    let row = |resource: &str, utilisation, saturation, errors| Row {
        resource: resource.to_owned(),
        utilisation,
        saturation,
        errors,
    };
    let load = software
        .load
        .filter(|_| threads > 0)
        .map(|load| format!("load {load:.2} on {threads} CPUs"));
    let memory = software.memory.as_ref().filter(|it| it.total > 0).map(|it| {
        let used = u128::from(it.total.saturating_sub(it.available)) * 100 / u128::from(it.total);
        format!("{used} % of {:.1} GiB", it.total as f64 / f64::from(1 << 30))
    });
    let memory_errors = software.memory_errors.map(|(ce, ue)| format!("{ce} corrected, {ue} not"));
    let mut rows = vec![
        row("processors", load, waits("cpu"), None),
        row("memory, space", memory, waits("memory"), memory_errors),
        row("memory, bandwidth", None, None, None),
    ];
    if server.cpu.sockets().len() > 1 {
        rows.push(row("link between sockets", None, None, None));
    }
    for controller in &server.controllers {
        let is_drive = |kind| matches!(kind, DriveKind::Nvme | DriveKind::Virtual);
        let mut own = server
            .drives
            .iter()
            .filter(|it| it.attachments.iter().any(|way| way.controller == controller.address));
        if !own.any(|it| is_drive(it.kind)) {
            rows.push(row(
                &format!("controller {}", controller.address.trim_start_matches("0000:")),
                None,
                None,
                None,
            ));
        }
    }
    if let Some(errors) = phys(server, before) {
        rows.push(row("SAS phys", None, None, Some(errors)));
    }
    rows.push(drives(server, waits("io")));
    for network in &server.networks {
        let rate = network.rate.map(|rate| format!("? of {rate}"));
        let errors = troubles(network, before);
        rows.push(row(&format!("network {}", network.name), rate, None, errors));
    }
    rows
}

/// What an interface counted, and by how much that grew. A counter that fell was set back.
fn troubles(network: &Network, before: Option<&Server>) -> Option<String> {
    let now = network.troubles?;
    let before = before.and_then(|it| it.networks.iter().find(|it| it.name == network.name));
    Some(match before.and_then(|it| it.troubles) {
        None => format!("{now} since it was made, growth ?"),
        Some(before) => {
            let grown = now.checked_sub(before).unwrap_or(now);
            format!("{now} since it was made, {grown} between captures")
        }
    })
}

fn drives(server: &Server, saturation: Option<String>) -> Row {
    let in_flight: Option<Vec<u64>> = server.drives.iter().map(|it| it.in_flight).collect();
    let in_flight = in_flight.map(|all| all.into_iter().fold(0, u64::saturating_add));
    let bad = server.drives.iter().filter(|it| it.is_healthy == Some(false)).count();
    let asked = server.drives.iter().filter(|it| it.is_healthy.is_some()).count();
    Row {
        resource: match whole(&server.drives).len() {
            0 if server.is_partial => "drives: ?".to_owned(),
            count => format!("drives: {count}"),
        },
        utilisation: in_flight
            .filter(|_| !server.drives.is_empty())
            .map(|count| format!("{count} I/Os in flight")),
        saturation,
        errors: (asked > 0).then(|| format!("{bad} failing of {asked} asked")),
    }
}

fn phys(server: &Server, before: Option<&Server>) -> Option<String> {
    let counted = |server: &Server| -> BTreeMap<String, PhyErrors> {
        server.phys.iter().filter_map(|it| Some((it.name.clone(), it.errors?))).collect()
    };
    let now = counted(server);
    if now.is_empty() {
        return None;
    }
    let bad = now.values().filter(|it| it.sum() > 0).count();
    // The other kinds count the same disturbances again.
    let sum: u64 = now.values().map(|it| it.invalid_dwords).fold(0, u64::saturating_add);
    let since = format!("{sum} invalid dwords since reset, errors on {bad} of {} phys", now.len());
    let Some(before) = before.map(counted) else {
        return Some(format!("{since}, growth ?"));
    };
    let grown =
        now.iter().filter_map(|(name, errors)| Some(errors.since(*before.get(name)?).sum()));
    let grown = grown.fold(0, u64::saturating_add);
    Some(format!("{since}, {grown} errors of all kinds between captures"))
}
