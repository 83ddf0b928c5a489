//! Events: what happened, one line each, with names that stay.
//!
//! What must stay true: a name is `noun.verb_past` and never changes its meaning; the sequence
//! number rises by one with each event, so that a reader can tell when it missed some.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Recent events, one JSON object a line; ends with the newest.
pub const EVENTS_PATH: &str = "/v1/events";
/// The same, and then each further event as it happens.
pub const FOLLOW_PATH: &str = "/v1/events/follow";

/// One event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Rises by one with each event of this daemon.
    pub sequence: u64,
    /// Wall clock, in milliseconds since 1970. For people; nothing is decided by it.
    pub unix_ms: u64,
    /// For example `member.failed`.
    pub name: String,
    /// The array it is about.
    #[serde(default)]
    pub array: Option<String>,
    /// What is known about it; names carry their units.
    #[serde(default)]
    pub fields: BTreeMap<String, String>,
}
