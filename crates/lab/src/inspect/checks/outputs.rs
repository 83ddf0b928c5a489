//! Checks of a server of which only some outputs were given.
//!
//! What must stay true: what nobody asked is never said to be absent.

use super::Found;
use crate::inspect::server::Server;

/// Whether what was given is about a check, so that its own words say what is missing.
pub(super) fn answer(check: &str, server: &Server) -> bool {
    const ELSEWHERE: [&str; 3] = ["memory.bandwidth_measured", "memory.errors", "memory.space"];
    match check.split('.').next() {
        _ if ELSEWHERE.contains(&check) => false,
        Some("memory") => server.memory.is_some(),
        Some("pcie") => !server.pci.is_empty(),
        Some("sas") => !server.phys.is_empty(),
        Some("enclosure") => !server.enclosures.is_empty(),
        _ => false,
    }
}

/// The same for all, so that a page says it once.
pub(super) fn not_given() -> Found {
    Found::cannot_tell("not in what was given", "lab capture, on that server, asks for all of it")
}
