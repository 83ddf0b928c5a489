//! What `inspect` prints: the verdict, what fails, what could not be looked at, the narrowest link,
//! the links, the resources: `templates/inspect.txt`.

use super::server::Server;
use super::server::drives::whole;
use super::topology::flow::Flow;
use super::topology::{Place, Topology};
use super::{Inspection, Verdict, diagram};
use crate::record::Check;
use crate::rules;
use crate::validity::{Outcome, Severity};
use askama::Template;
use itertools::Itertools;

/// A check with its mark, and others that could not be made for the same reason.
type Told<'a> = (&'static str, &'a Check, Vec<&'a str>);

#[derive(Template)]
#[template(path = "inspect.txt")]
struct Page<'a> {
    headline: String,
    told: Vec<Told<'a>>,
    diagram: String,
    it: &'a Inspection,
}

/// The page; `all` shows passing checks too.
pub fn text(it: &Inspection, all: bool) -> String {
    let (headline, diagram) = (headline(it), diagram::text::draw(it));
    Page { headline, told: told(&it.checks, all), diagram, it }.to_string()
}

fn told(checks: &[Check], all: bool) -> Vec<Told<'_>> {
    let mut told: Vec<Told<'_>> = Vec::new();
    let reason = |it: &Check| (it.outcome == Outcome::CannotTell).then(|| it.found.clone());
    for check in checks {
        let own = reason(check);
        match told.iter_mut().find(|it| own.is_some() && reason(it.1) == own) {
            Some((.., also)) => also.push(&check.name),
            None => told.extend(mark(check, all).map(|mark| (mark, check, Vec::new()))),
        }
    }
    told
}

pub fn headline(inspection: &Inspection) -> String {
    let count = |outcome: Outcome, severity: Severity| {
        let checks = inspection.checks.iter();
        checks.filter(|it| it.outcome == outcome && rules::of(&it.name).weight == severity).count()
    };
    let (error, note) = (Severity::Error, Severity::Warning);
    let (fails, open) = (count(Outcome::Fail, error), count(Outcome::CannotTell, error));
    let notes = match count(Outcome::Fail, note) {
        0 => String::new(),
        notes => format!(", {}", counted(notes, "note")),
    };
    let unknown = match open + count(Outcome::CannotTell, note) {
        0 => String::new(),
        unknown => format!(", {unknown} could not be made"),
    };
    let made = inspection.checks.iter().filter(|it| it.outcome == Outcome::Pass).count();
    match inspection.verdict {
        Verdict::Qualified => format!("QUALIFIED: {made} checks pass{notes}{unknown}\n"),
        Verdict::NotQualified => {
            let verb = if fails == 1 { "check fails" } else { "checks fail" };
            format!("NOT QUALIFIED: {fails} {verb}{notes}{unknown}, {made} pass\n")
        }
        Verdict::Undecided => format!(
            "CANNOT SAY: no check fails, but {open} that decide could not be made{notes}; \
             {made} pass\n"
        ),
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

/// Whether its target says more than its name: which drives or phys.
fn names_places(check: &Check) -> bool {
    check.outcome == Outcome::Fail && check.target.contains(|c: char| c.is_ascii_digit())
}

fn next(check: &Check) -> Option<&String> {
    check.next.as_ref().filter(|_| check.outcome == Outcome::Fail)
}

fn cell(cell: &Option<String>) -> &str {
    cell.as_deref().unwrap_or("[empty]")
}

fn server_line(inspection: &Inspection) -> String {
    let server = &inspection.server;
    let cpu = &server.cpu;
    let model = cpu.model.as_deref().unwrap_or("processor unknown");
    let place = server.hypervisor.as_ref().map_or(String::new(), |it| format!(", a guest of {it}"));
    format!(
        "{} x {model}: {}, {}, {}; {}; Linux {}{place}",
        number(cpu.sockets().len()),
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
fn number(count: usize) -> String {
    if count == 0 { "?".to_owned() } else { count.to_string() }
}

fn known(count: usize, name: &str) -> String {
    if count == 0 { format!("? {name}s") } else { counted(count, name) }
}

fn counted(count: usize, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

/// What limits, in two sentences: reading, and a rebuild.
pub fn sentences(inspection: &Inspection) -> Vec<String> {
    let topology = &inspection.topology;
    if topology.drive_count == 0 {
        let is_partial = inspection.server.is_partial;
        let why = if is_partial { "No drives in what was given" } else { "No drives" };
        return vec![format!("{why}, so nothing flows.")];
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
    let names = links.iter().take(2).map(|link| topology.ends(link)).join(", ");
    let more = match links.len().saturating_sub(2) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let standards = links.iter().map(|link| &link.standard).dedup().take(2).join("; ");
    let each = if links.len() > 1 { " each" } else { "" };
    format!("{carried} of {demand}; narrowest: {names}{more} ({standards}{each}).")
}
