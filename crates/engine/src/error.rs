//! Refusals of the control side: one clear line each, nothing changed.
//!
//! Failures on the data path are `volume::VolumeError` (small, `Copy`). Errors here may allocate,
//! because an operator reads them.

use std::fmt;

/// A command that was refused, with what to do next. Nothing was changed unless the text says so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Stable code for programs, for example `member.too_small`.
    pub code: &'static str,
    /// What happened, to what, and what is still safe: one line.
    pub what: String,
    /// What to do next: one line.
    pub next: String,
}

impl Refusal {
    /// A refusal with its stable code, what happened, and what to do next.
    pub fn new(code: &'static str, what: impl Into<String>, next: impl Into<String>) -> Self {
        Refusal { code, what: what.into(), next: next.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.next)
    }
}

impl std::error::Error for Refusal {}
