//! One line of `evidence.jsonl`: a command, when, how it ended, and where its outputs lie.
//!
//! What must stay true: outputs are named relative to the run's directory, so that a run can be
//! moved and shared.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Its number within the run, from 1; unique, and in the order of starting.
    pub n: u64,
    pub why: String,
    /// Beginning, seconds since 1970, UTC.
    pub began_unix_s: f64,
    pub duration_s: f64,
    pub argv: Vec<String>,
    /// Environment that the lab set for it; the rest was inherited.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub exit: Exit,
    pub stdout: Kept,
    pub stderr: Kept,
    /// Files it read or wrote that belong to the evidence: job files, logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<Kept>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Path relative to the run's directory.
    pub file: String,
    pub bytes: u64,
    /// SHA-256 of the content, 64 hexadecimal digits.
    pub sha256: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself, with this exit code.
    Code(i32),
    /// By a signal that the lab did not send.
    Signal(i32),
    /// Ended by the lab after this many seconds.
    TimeLimit(u64),
    /// Ended by the lab because the lab was interrupted.
    Interrupted,
    NotStarted(String),
    /// The lab itself was killed or lost power while it ran; found when the run was opened again.
    Abandoned,
}

impl Exit {
    pub fn is_success(&self) -> bool {
        *self == Exit::Code(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(signal) => write!(f, "ended by signal {signal}"),
            Exit::TimeLimit(limit_s) => write!(f, "stopped after its time limit of {limit_s} s"),
            Exit::Interrupted => f.write_str("stopped because the lab was interrupted"),
            Exit::NotStarted(why) => write!(f, "could not be started: {why}"),
            Exit::Abandoned => f.write_str("cut off when the lab itself ended"),
        }
    }
}
