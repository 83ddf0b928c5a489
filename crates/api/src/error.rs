//! How a refusal looks: a code for programs, a sentence for people, and how to go on.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What kind of refusal; programs match on this.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The request makes no sense: unknown field, value out of range, devices that do not fit.
    BadRequest,
    /// No array, member, job or export of that name.
    NotFound,
    /// It clashes with what is there: name taken, device in use, already running.
    Conflict,
    /// It would destroy something, and was not told to.
    Refused,
    /// The array's state does not allow it now.
    NotPossible,
    /// A device or the system failed.
    Fault,
}

/// A refused request. Nothing was changed unless `message` says so.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub struct ApiError {
    /// For programs.
    pub code: ErrorCode,
    /// What happened, to what, and what is still safe.
    pub message: String,
    /// What to do next; empty when there is nothing to say.
    #[serde(default)]
    pub hint: String,
}

impl ApiError {
    /// A refusal of `code` with its two sentences.
    pub fn new(code: ErrorCode, message: impl Into<String>, hint: impl Into<String>) -> ApiError {
        ApiError { code, message: message.into(), hint: hint.into() }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}
