//! The checks of a server: each looks at the model and says what it found, or why it could not
//! look.
//!
//! - processors: governor, SMT, memory
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

use super::models::ModelLine;
use super::server::Server;
use super::topology::Topology;
use super::topology::flow::Flow;
use crate::record::Check;
use crate::validity::Outcome;
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

/// What looks.
type Look = fn(&Facts<'_>) -> Found;

/// All checks, in the order in which they are told.
const LOOKS: [(&str, Look); 29] = [
    ("memory.channels_populated", processors::channels_populated),
    ("memory.sockets_balanced", processors::sockets_balanced),
    ("memory.bandwidth_for_rebuild", processors::bandwidth_for_rebuild),
    ("memory.speed_configured", processors::speed_configured),
    ("memory.space", software::memory_space),
    ("memory.errors", processors::memory_errors),
    ("cpu.governor", processors::governor),
    ("cpu.smt_recorded", processors::smt_recorded),
    ("pcie.link_negotiated", fabric::link_negotiated),
    ("numa.drives_balanced", fabric::numa_balanced),
    ("controller.drives_balanced", fabric::controllers_balanced),
    ("controller.oversubscribed", fabric::oversubscribed),
    ("sas.link_negotiated", fabric::sas_negotiated),
    ("sas.phy_errors_growing", fabric::phy_errors_growing),
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
    ("background.activity", software::background_activity),
    ("limits.aio_max_nr", software::aio_max_nr),
    ("limits.scheduler", software::scheduler),
    ("limits.request_size", software::request_size),
];

/// Make every check.
pub fn all(facts: &Facts<'_>) -> Vec<Check> {
    let check = |(name, look): &(&str, Look)| {
        let found = look(facts);
        let is_told = !facts.server.is_partial || outputs::answer(name, facts.server);
        let Found { outcome, target, found, next } = match found.outcome {
            Outcome::CannotTell | Outcome::NotApplicable if !is_told => outputs::not_given(),
            _ => found,
        };
        Check { name: (*name).to_owned(), target, outcome, found, next }
    };
    LOOKS.iter().map(check).collect()
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
