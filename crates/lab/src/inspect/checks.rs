//! The checks of a server: each looks at the model and says what it found, or why it could not
//! look.
//!
//! - processors: governor, SMT, memory
//! - speeds: what memory and processors did when they were tried
//! - fabric: PCIe, NUMA, SAS, controllers, queues, interrupts
//! - drives: caches, sectors, partitions, firmware, health, other hosts
//! - software: background work, limits
//! - outputs: what was not asked, if only some outputs were given
//!
//! What must stay true: a check has one name for ever; what was not read cannot tell, it never
//! passes; a sentence has its units. `Severity::Error` decides about the verdict,
//! `Severity::Warning` is a note beside it.

mod drives;
mod fabric;
mod outputs;
mod processors;
mod software;
mod speeds;

use super::models::ModelLine;
use super::server::Server;
use super::topology::Topology;
use super::topology::flow::Flow;
use crate::record::Check;
use crate::validity::{Outcome, Severity};
use std::collections::BTreeSet;

/// What checks look at.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The server.
    pub server: &'a Server,
    /// The same server before the load, if there is a capture of it.
    pub before: Option<&'a Server>,
    /// Its links.
    pub topology: &'a Topology,
    /// All drives read.
    pub read: &'a Flow,
    /// All drives in a rebuild.
    pub rebuild: &'a Flow,
    /// What makers state about the drives.
    pub models: &'a [ModelLine],
}

/// What a check found.
struct Found {
    outcome: Outcome,
    target: String,
    found: String,
    next: Option<String>,
}

impl Found {
    fn pass(target: impl Into<String>, found: impl Into<String>) -> Found {
        Found { outcome: Outcome::Pass, target: target.into(), found: found.into(), next: None }
    }

    fn fail(target: impl Into<String>, found: impl Into<String>, next: &str) -> Found {
        let next = Some(next.to_owned());
        Found { outcome: Outcome::Fail, target: target.into(), found: found.into(), next }
    }

    fn cannot_tell(found: impl Into<String>, next: impl Into<String>) -> Found {
        let (target, next) = ("server".to_owned(), Some(next.into()));
        Found { outcome: Outcome::CannotTell, target, found: found.into(), next }
    }

    fn not_applicable(found: impl Into<String>) -> Found {
        Found {
            outcome: Outcome::NotApplicable,
            target: "server".to_owned(),
            found: found.into(),
            next: None,
        }
    }
}

/// A check by name.
struct Rule {
    name: &'static str,
    severity: Severity,
    look: fn(&Facts<'_>) -> Found,
}

const fn must(name: &'static str, look: fn(&Facts<'_>) -> Found) -> Rule {
    Rule { name, severity: Severity::Error, look }
}

const fn note(name: &'static str, look: fn(&Facts<'_>) -> Found) -> Rule {
    Rule { name, severity: Severity::Warning, look }
}

/// All checks, in the order in which they are told.
const RULES: [Rule; 33] = [
    must("memory.channels_populated", processors::channels_populated),
    must("memory.sockets_balanced", processors::sockets_balanced),
    must("memory.bandwidth_for_rebuild", processors::bandwidth_for_rebuild),
    note("memory.speed_configured", processors::speed_configured),
    note("memory.bandwidth_measured", speeds::bandwidth_measured),
    note("memory.space", software::memory_space),
    note("memory.errors", processors::memory_errors),
    note("cpu.governor", processors::governor),
    note("cpu.smt_recorded", processors::smt_recorded),
    note("cpu.score_scales", speeds::score_scales),
    note("measured.nodes_alike", speeds::nodes_alike),
    note("measured.as_before", speeds::as_before),
    must("pcie.link_negotiated", fabric::link_negotiated),
    must("numa.drives_balanced", fabric::numa_balanced),
    must("controller.drives_balanced", fabric::controllers_balanced),
    must("controller.oversubscribed", fabric::oversubscribed),
    must("sas.link_negotiated", fabric::sas_negotiated),
    must("sas.phy_errors_growing", fabric::phy_errors_growing),
    note("enclosure.elements", fabric::enclosure_elements),
    note("queues.count", fabric::queue_count),
    note("irq.spread", fabric::irq_spread),
    must("drive.health", drives::health),
    must("dual_port.second_host", drives::second_host),
    note("dual_port.width", drives::port_width),
    must("drive.partition_aligned", drives::partition_aligned),
    note("drive.sector_size", drives::sector_size),
    note("drive.firmware_uniform", drives::firmware_uniform),
    note("drive.figures_uniform", drives::figures_uniform),
    note("cache.volatile_write", drives::volatile_write),
    note("background.activity", software::background_activity),
    note("limits.aio_max_nr", software::aio_max_nr),
    note("limits.scheduler", software::scheduler),
    note("limits.request_size", software::request_size),
];

/// Make every check.
pub fn all(facts: &Facts<'_>) -> Vec<Check> {
    let check = |rule: &Rule| {
        let found = (rule.look)(facts);
        let is_told = !facts.server.is_partial || outputs::answer(rule.name, facts.server);
        let Found { outcome, target, found, next } = match found.outcome {
            Outcome::CannotTell | Outcome::NotApplicable if !is_told => outputs::not_given(),
            _ => found,
        };
        Check { name: rule.name.to_owned(), target, outcome, found, next }
    };
    RULES.iter().map(check).collect()
}

/// How much a check weighs: `Error` decides about the verdict, `Warning` is a note. An unknown name
/// decides.
pub fn severity(name: &str) -> Severity {
    RULES.iter().find(|rule| rule.name == name).map_or(Severity::Error, |rule| rule.severity)
}

/// Names for a sentence: the first few, and how many more.
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
