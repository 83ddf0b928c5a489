//! The checks of a server: each looks at the model and says what it found, or why it could not
//! look. `rules/rules.toml` says what each is about, what it needs, and what to do next.
//!
//! - host: governor, SMT, memory, background work, limits
//! - fabric: PCIe, NUMA, controllers, enclosures, queues, interrupts, phys of SAS
//! - drives: caches, sectors, partitions, firmware, health, other hosts
//!
//! What must stay true: a check has one name for ever; what was not read cannot tell, it never
//! passes; what nobody asked is never said to be absent; a sentence has its units.

mod drives;
mod fabric;
mod host;

use super::models::ModelLine;
use super::server::Server;
use super::topology::Topology;
use super::topology::flow::Flow;
use crate::record::Check;
use crate::rules;
use crate::validity::Outcome;
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub server: &'a Server,
    /// The same server before the load, if there is a capture of it.
    pub before: Option<&'a Server>,
    pub topology: &'a Topology,
    pub read: &'a Flow,
    /// All drives in a rebuild.
    pub rebuild: &'a Flow,
    pub models: &'a [ModelLine],
}

/// What a check found; what it leaves open, its rule says. `Err` is what ends a check early.
type Answer = Result<Check, Check>;

fn with(outcome: Outcome, found: impl Into<String>) -> Check {
    let (name, target, found) = (String::new(), String::new(), found.into());
    Check { name, target, outcome, found, next: None }
}

fn pass(found: impl Into<String>) -> Check {
    with(Outcome::Pass, found)
}

fn fail(found: impl Into<String>) -> Check {
    with(Outcome::Fail, found)
}

/// The same sentence, whether it passes or fails.
fn judge(passes: bool, found: impl Into<String>) -> Check {
    if passes { pass(found) } else { fail(found) }
}

/// What it cannot do without is missing.
fn blind() -> Check {
    blind_for("")
}

fn blind_for(found: impl Into<String>) -> Check {
    with(Outcome::CannotTell, found)
}

fn not_applicable(found: impl Into<String>) -> Check {
    with(Outcome::NotApplicable, found)
}

impl Check {
    /// With the names of what it is about.
    fn about<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Check {
        self.target = some_of(names);
        self
    }
}

type Look = fn(&Facts<'_>) -> Answer;

const LOOKS: [(&str, Look); 29] = [
    ("memory.channels_populated", host::channels_populated),
    ("memory.sockets_balanced", host::sockets_balanced),
    ("memory.bandwidth_for_rebuild", host::bandwidth_for_rebuild),
    ("memory.speed_configured", host::speed_configured),
    ("memory.space", host::memory_space),
    ("memory.errors", host::memory_errors),
    ("cpu.governor", host::governor),
    ("cpu.smt_recorded", host::smt_recorded),
    ("pcie.link_negotiated", fabric::link_negotiated),
    ("numa.drives_balanced", fabric::numa_balanced),
    ("controller.drives_balanced", fabric::controllers_balanced),
    ("controller.oversubscribed", fabric::oversubscribed),
    ("sas.link_negotiated", fabric::negotiated),
    ("sas.phy_errors_growing", fabric::errors_growing),
    ("enclosure.elements", fabric::enclosure_elements),
    ("queues.count", fabric::queue_count),
    ("irq.spread", fabric::irq_spread),
    ("drive.health", drives::health),
    ("dual_port.second_host", drives::second_host),
    ("dual_port.width", drives::port_width),
    ("drive.partition_aligned", drives::partition_aligned),
    ("drive.sector_size", drives::sector_size),
    ("drive.firmware_uniform", drives::firmware_uniform),
    ("drive.figures_uniform", drives::figures_uniform),
    ("cache.volatile_write", drives::volatile_write),
    ("background.activity", host::background_activity),
    ("limits.aio_max_nr", host::aio_max_nr),
    ("limits.scheduler", host::scheduler),
    ("limits.request_size", host::request_size),
];

pub fn all(facts: &Facts<'_>) -> Vec<Check> {
    LOOKS.iter().map(|(name, look)| check(facts, name, *look)).collect()
}

fn check(facts: &Facts<'_>, name: &str, look: Look) -> Check {
    let rule = rules::of(name);
    let (Ok(mut it) | Err(mut it)) = look(facts);
    let is_open = matches!(it.outcome, Outcome::CannotTell | Outcome::NotApplicable);
    if is_open && facts.server.is_partial && !is_given(name, facts.server) {
        // The same for all, so that a page says it once.
        it = blind_for("not in what was given");
        it.next = Some("lab capture, on that server, asks for all of it".to_owned());
    }
    let next = match it.outcome {
        Outcome::Fail => Some(rule.next.clone()),
        Outcome::CannotTell => Some(rule.ask.clone()),
        Outcome::Pass | Outcome::NotApplicable => None,
    };
    let or = |own: String, other: &str| if own.is_empty() { other.to_owned() } else { own };
    Check {
        name: name.to_owned(),
        target: or(it.target, name.split('.').next().unwrap_or(name)),
        found: or(it.found, &rule.blind),
        next: it.next.or(next),
        ..it
    }
}

/// Whether what was given is about a check, so that its own words say what is missing.
fn is_given(check: &str, server: &Server) -> bool {
    match check.split('.').next() {
        _ if ["memory.errors", "memory.space"].contains(&check) => false,
        Some("memory") => server.memory.is_some(),
        Some("pcie") => !server.pci.is_empty(),
        Some("sas") => !server.phys.is_empty(),
        Some("enclosure") => !server.enclosures.is_empty(),
        _ => false,
    }
}

fn some_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    match names.len() {
        0..=4 => names.join(", "),
        more => format!("{} and {} more", names[..3].join(", "), more - 3),
    }
}

/// Why a program gave nothing, for a sentence.
fn silent(facts: &Facts<'_>, tool: &str) -> String {
    let mut silent = facts.server.silent_tools.iter();
    match silent.find(|(name, _)| name.starts_with(tool)) {
        Some((_, why)) => format!("{tool}: {why}"),
        None => format!("{tool} told nothing of it"),
    }
}
