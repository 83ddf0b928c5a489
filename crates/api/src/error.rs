//! How a refusal looks: a code for programs, a sentence for people, and how to go on.
//!
//! What must stay true: a code is `noun.what`, stable, and says the same thing for ever; the codes
//! of the engine pass through unchanged.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Codes of refusals that the engine never sees.
pub mod codes {
    /// The request makes no sense: unknown field, value out of range.
    pub const REQUEST_MALFORMED: &str = "request.malformed";
    /// There is no such path, or not with this method.
    pub const REQUEST_UNKNOWN: &str = "request.unknown";
    /// The caller may not use the control socket.
    pub const PEER_REFUSED: &str = "peer.refused";
    /// Nobody answers at the control socket.
    pub const DAEMON_UNREACHABLE: &str = "daemon.unreachable";
    /// The daemon stopped half-way, or speaks another version.
    pub const DAEMON_UNREADABLE: &str = "daemon.unreadable";
    /// No array of that name is running.
    pub const ARRAY_UNKNOWN: &str = "array.unknown";
    /// A program or file of this machine could not be used.
    pub const SYSTEM_FAULT: &str = "system.fault";
    /// Somebody uses it now.
    pub const EXPORT_BUSY: &str = "export.busy";
    /// It cannot be exported so.
    pub const EXPORT_IMPOSSIBLE: &str = "export.impossible";
}

/// A refused request. Nothing was changed unless `message` says so.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
pub struct ApiError {
    /// For programs: `noun.what`, for example `member.too_small`.
    pub code: String,
    /// What happened, to what, and what is still safe.
    pub message: String,
    /// What to do next; empty when there is nothing to say.
    #[serde(default)]
    pub hint: String,
}

impl ApiError {
    /// A refusal of `code` with its two sentences.
    pub fn new(code: &str, message: impl Into<String>, hint: impl Into<String>) -> ApiError {
        ApiError { code: code.to_owned(), message: message.into(), hint: hint.into() }
    }

    /// No array of this name is running.
    pub fn no_array(name: &str) -> ApiError {
        let hint = "see 'ashlar status' for those that are, and 'ashlar assemble' to start one";
        ApiError::new(codes::ARRAY_UNKNOWN, format!("no array '{name}' is running"), hint)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}
