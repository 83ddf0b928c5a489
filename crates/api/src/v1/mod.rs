//! Version 1, one file for each noun.
//!
//! - array: create, assemble, stop; the state of an array
//! - policy: what an array promises, by name (its level is `layout`'s)
//! - domain: failure domains, and what the loss of one costs
//! - risk: what the stripes of a pool survive, in one line
//! - member: fail, replace, re-add; the state of a member
//! - spare: pools of devices that wait for a slot
//! - growth: more members for a declustered array
//! - job: rebuild, resync and scrub; pause, resume, cancel
//! - export: NBD listeners and attached volumes
//! - event: what happened, with stable names; severity: how much that matters
//! - notify: telling the operators, and the history of events
//! - check: one verdict for monitoring
//! - latency: how long requests took
//! - status: all of the above at one moment, with pools, workers and limits

pub mod array;
pub mod check;
pub mod domain;
pub mod event;
pub mod export;
pub mod growth;
pub mod job;
pub mod latency;
pub mod member;
pub mod notify;
pub mod policy;
mod risk;
pub mod severity;
pub mod spare;
pub mod status;
pub mod tuning;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The answer to a change. Commands can be repeated: when there was nothing to do, `changed` is
/// false.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// Whether anything is different now.
    pub changed: bool,
    /// What was done, or why nothing was, for people.
    pub message: String,
    /// The device that is used, if it is not the one that was named: the partition on a drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

impl Done {
    /// Something changed.
    pub fn changed(message: impl Into<String>) -> Done {
        Done { changed: true, message: message.into(), device: None }
    }

    /// It was so already.
    pub fn unchanged(message: impl Into<String>) -> Done {
        Done { changed: false, message: message.into(), device: None }
    }
}

#[cfg(test)]
mod tests;
