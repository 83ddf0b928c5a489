//! The USE checklist: utilisation, saturation and errors of every resource, filled in as far as
//! they are known.
//!
//! What must stay true: a cell that nobody filled is None and is shown as empty, so that it is
//! missed.

use super::server::drives::whole;
use super::server::{DriveKind, Server};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Row {
    pub resource: String,
    pub utilisation: Option<String>,
    pub saturation: Option<String>,
    pub errors: Option<String>,
}

type Cell = Option<String>;

fn row(resource: &str, utilisation: Cell, saturation: Cell, errors: Cell) -> Row {
    Row { resource: resource.to_owned(), utilisation, saturation, errors }
}

/// Every resource of a server; `before` is the same one earlier.
pub fn table(server: &Server, before: Option<&Server>) -> Vec<Row> {
    let software = &server.software;
    let waits = |name: &str| {
        software.pressure.get(name).map(|share| format!("{share:.1} % of a minute waited"))
    };
    let threads = server.cpu.threads.len();
    let load = software.load.filter(|_| threads > 0);
    let load = load.map(|load| format!("load {load:.2} on {threads} CPUs"));
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
    // An NVMe drive and a guest's disk are controllers themselves.
    let shared = server.drives.iter();
    let shared = shared.filter(|it| !matches!(it.kind, DriveKind::Nvme | DriveKind::Virtual));
    let shared: Vec<&String> =
        shared.flat_map(|it| &it.attachments).map(|way| &way.controller).collect();
    for controller in server.controllers.iter().filter(|it| shared.contains(it)) {
        let name = format!("controller {}", controller.trim_start_matches("0000:"));
        rows.push(row(&name, None, None, None));
    }
    let phys = phys(server, before);
    rows.extend(phys.map(|errors| row("SAS phys", None, None, Some(errors))));
    rows.push(drives(server, waits("io")));
    rows
}

fn drives(server: &Server, saturation: Cell) -> Row {
    let all = &server.drives;
    let mut in_flight = all.iter().map(|it| it.in_flight);
    let in_flight = in_flight.try_fold(0, |sum: u64, it| Some(sum.saturating_add(it?)));
    let in_flight = in_flight.filter(|_| !all.is_empty());
    let asked: Vec<bool> = all.iter().filter_map(|it| it.is_healthy).collect();
    let bad = asked.iter().filter(|is_healthy| !**is_healthy).count();
    let name = match whole(all).len() {
        0 if server.is_partial => "drives: ?".to_owned(),
        count => format!("drives: {count}"),
    };
    let told = in_flight.map(|count| format!("{count} I/Os in flight"));
    let errors = format!("{bad} failing of {} asked", asked.len());
    row(&name, told, saturation, Some(errors).filter(|_| !asked.is_empty()))
}

fn phys(server: &Server, before: Option<&Server>) -> Cell {
    let now = server.phy_errors();
    let bad = now.values().filter(|it| it.sum() > 0).count();
    // The other kinds count the same disturbances again.
    let sum: u64 = now.values().map(|it| it.invalid_dwords).fold(0, u64::saturating_add);
    let growth = before.map(Server::phy_errors).map_or("growth ?".to_owned(), |before| {
        let grown = now.iter().filter_map(|(name, it)| Some(it.since(*before.get(name)?).sum()));
        let grown = grown.fold(0, u64::saturating_add);
        format!("{grown} errors of all kinds between captures")
    });
    let since = format!("{sum} invalid dwords since reset, errors on {bad} of {} phys", now.len());
    (!now.is_empty()).then(|| format!("{since}, {growth}"))
}
