//! What `inspect` prints: the verdict, what fails, what could not be looked at, the narrowest link,
//! the links, the resources.

use super::models::ModelLine;
use super::server::drives::whole;
use super::server::{Server, scsi};
use super::topology::flow::Flow;
use super::topology::{Place, Topology};
use super::{Inspection, Verdict, diagram};
use crate::record::Check;
use crate::rules;
use crate::validity::{Outcome, Severity};
use std::fmt::Write;

pub fn text(inspection: &Inspection, all: bool) -> String {
    let mut out = headline(inspection);
    out.push('\n');
    for check in &inspection.checks {
        let same = |it: &&Check| it.outcome == Outcome::CannotTell && it.found == check.found;
        let first = inspection.checks.iter().find(same);
        // Several that could not be made for one reason are told once.
        if first.is_some_and(|first| first.name != check.name) {
            continue;
        }
        if let Some(mark) = mark(check, all) {
            line(&mut out, mark, check);
            let also = inspection.checks.iter().filter(same).skip(1);
            let also: Vec<&str> = also.map(|it| it.name.as_str()).collect();
            if !also.is_empty() && check.outcome == Outcome::CannotTell {
                let _ = writeln!(out, "  {:<34} also: {}", "", also.join(", "));
            }
        }
    }
    let _ = writeln!(out, "\n{}", server_line(inspection));
    for sentence in sentences(inspection) {
        let _ = writeln!(out, "{sentence}");
    }
    for sentence in models(inspection) {
        let _ = writeln!(out, "{sentence}");
    }
    out.push('\n');
    out.push_str(&diagram::text::draw(inspection));
    for assumption in &inspection.topology.assumptions {
        let _ = writeln!(out, "  * {assumption}");
    }
    out.push('\n');
    resources(&mut out, inspection);
    out
}

pub fn headline(inspection: &Inspection) -> String {
    let count = |outcome: Outcome, severity: Severity| {
        let checks = inspection.checks.iter();
        checks.filter(|it| it.outcome == outcome && rules::of(&it.name).weight == severity).count()
    };
    let (error, note) = (Severity::Error, Severity::Warning);
    let unknown = count(Outcome::CannotTell, error) + count(Outcome::CannotTell, note);
    let notes = match count(Outcome::Fail, note) {
        0 => String::new(),
        1 => ", 1 note".to_owned(),
        notes => format!(", {notes} notes"),
    };
    let open = if unknown > 0 { format!(", {unknown} could not be made") } else { String::new() };
    let made = inspection.checks.iter().filter(|it| it.outcome == Outcome::Pass).count();
    match inspection.verdict {
        Verdict::Qualified => format!("QUALIFIED: {made} checks pass{notes}{open}\n"),
        Verdict::NotQualified => {
            let fails = count(Outcome::Fail, error);
            let verb = if fails == 1 { "check fails" } else { "checks fail" };
            format!("NOT QUALIFIED: {fails} {verb}{notes}{open}, {made} pass\n")
        }
        Verdict::Undecided => {
            let open = count(Outcome::CannotTell, error);
            format!(
                "CANNOT SAY: no check fails, but {open} that decide could not be made{notes}; \
                 {made} pass\n"
            )
        }
    }
}

fn mark(check: &Check, all: bool) -> Option<&'static str> {
    Some(match (check.outcome, rules::of(&check.name).weight) {
        (Outcome::Fail, Severity::Error) => "FAIL",
        (Outcome::Fail, _) => "note",
        (Outcome::CannotTell, _) => "?",
        (Outcome::Pass, _) if all => "pass",
        (Outcome::NotApplicable, _) if all => "n/a",
        (Outcome::Pass | Outcome::NotApplicable, _) => return None,
    })
}

fn line(out: &mut String, mark: &str, check: &Check) {
    let place = match check.outcome {
        // Which drives or phys; `memory` and the like stand in the check's name.
        Outcome::Fail if check.target.contains(|c: char| c.is_ascii_digit()) => {
            format!("{}: ", check.target)
        }
        Outcome::Fail | Outcome::Pass | Outcome::CannotTell | Outcome::NotApplicable => {
            String::new()
        }
    };
    let _ = writeln!(out, "  {mark:<4}  {:<28} {place}{}", check.name, check.found);
    if let (Outcome::Fail, Some(next)) = (check.outcome, &check.next) {
        let _ = writeln!(out, "  {:<34} -> {next}", "");
    }
}

fn server_line(inspection: &Inspection) -> String {
    let server = &inspection.server;
    let cpu = &server.cpu;
    let model = cpu.model.as_deref().unwrap_or("processor unknown");
    let place = server.hypervisor.as_ref().map_or(String::new(), |it| format!(", a guest of {it}"));
    format!(
        "{} x {model}: {}, {}, {}; {}; Linux {}{place}",
        told(cpu.sockets().len()),
        known(cpu.core_count(), "core"),
        known(cpu.threads.len(), "thread"),
        known(cpu.nodes.len(), "NUMA node"),
        drives_of(server),
        server.kernel.as_deref().unwrap_or("unknown"),
    )
}

fn drives_of(server: &Server) -> String {
    if server.is_partial && server.drives.is_empty() {
        return "drives not in what was given".to_owned();
    }
    let drives = counted(whole(&server.drives).len(), "drive");
    format!("{drives} on {}", counted(server.controllers.len(), "controller"))
}

/// No server has none of them: nobody said how many.
fn told(count: usize) -> String {
    if count == 0 { "?".to_owned() } else { count.to_string() }
}

fn known(count: usize, name: &str) -> String {
    if count == 0 { format!("? {name}s") } else { counted(count, name) }
}

fn counted(count: usize, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

fn models(inspection: &Inspection) -> Vec<String> {
    let line = |it: &ModelLine| {
        let stated = match it.known.entry() {
            Some(entry) => entry.sentence(),
            None => it.known.why_not().unwrap_or_default(),
        };
        format!("{} x {}: {stated}.", it.drives.len(), it.model)
    };
    inspection.models.iter().map(line).collect()
}

/// What limits, in two sentences: reading, and a rebuild.
pub fn sentences(inspection: &Inspection) -> Vec<String> {
    let topology = &inspection.topology;
    if topology.drive_count == 0 {
        let is_partial = inspection.server.is_partial;
        let why = if is_partial { "No drives in what was given" } else { "No drives" };
        let listed = scsi::sentence(&inspection.server.listed).filter(|_| is_partial);
        return std::iter::once(format!("{why}, so nothing flows.")).chain(listed).collect();
    }
    if inspection.read.demand.0 == 0 {
        return vec![
            "Nobody says what the drives can give, so no link can be called the narrowest; \
             give --drive-rate."
                .to_owned(),
        ];
    }
    let drives = match topology.drive_count {
        1 => "1 drive".to_owned(),
        count => format!("all {count} drives"),
    };
    let read = format!("Reading {drives}: {}", limit(topology, &inspection.read));
    let passes = inspection.rebuild.passes;
    let crosses = if is_spread(topology) {
        " Not in this figure: what crosses between the sockets."
    } else {
        ""
    };
    let limit_of_rebuild = limit(topology, &inspection.rebuild);
    let rebuild = format!("A rebuild, {passes} passes over memory: {limit_of_rebuild}{crosses}");
    vec![read, rebuild]
}

/// Whether drives of several sockets give something: a stripe over all of them crosses.
fn is_spread(topology: &Topology) -> bool {
    let above = |link: &&super::topology::Link| {
        let to = link.to.map(|at| topology.nodes[at].place);
        let from = link.from.map(|at| topology.nodes[at].place);
        to == Some(Place::Socket) && from != Some(Place::Socket)
    };
    let sockets: std::collections::BTreeSet<_> =
        topology.links.iter().filter(above).map(|link| link.to).collect();
    sockets.len() > 1
}

fn limit(topology: &Topology, flow: &Flow) -> String {
    let (carried, demand) = (flow.carried, flow.demand);
    if flow.is_limited_by_drives() {
        let fullest = flow.fullest.map_or(String::new(), |at| {
            let link = &topology.links[at];
            let share = super::topology::flow::usable(link, flow.passes)
                .map_or(0.0, |capacity| flow.by_link[at].share_of(capacity) * 100.0);
            format!("; fullest link: {}, {share:.0} %", topology.name(link))
        });
        return format!("{carried}, the drives set the pace{fullest}.");
    }
    let links: Vec<_> = flow.narrowest.iter().map(|at| &topology.links[*at]).collect();
    let mut names: Vec<String> = links.iter().map(|link| topology.ends(link)).collect();
    let more = names.len().saturating_sub(2);
    names.truncate(2);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let mut standards: Vec<&str> = links.iter().map(|link| link.standard.as_str()).collect();
    standards.dedup();
    standards.truncate(2);
    let each = if links.len() > 1 { " each" } else { "" };
    let names = names.join(", ");
    format!("{carried} of {demand}; narrowest: {names}{more} ({}{each}).", standards.join("; "))
}

fn resources(out: &mut String, inspection: &Inspection) {
    let _ = writeln!(out, "  {:<24} {:<26} {:<26} errors", "resource", "utilisation", "saturation");
    for row in &inspection.resources {
        let cell = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "[empty]".to_owned());
        let _ = writeln!(
            out,
            "  {:<24} {:<26} {:<26} {}",
            row.resource,
            cell(&row.utilisation),
            cell(&row.saturation),
            cell(&row.errors)
        );
    }
}
