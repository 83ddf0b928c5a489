//! Notifications: try whether they arrive, and how each way to the operators is doing.

use crate::Call;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Send one message by each configured way and wait for what comes of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotifyTest {}

impl Call for NotifyTest {
    const PATH: &'static str = "/v1/notify/test";
    type Answer = NotifyTested;
}

/// What came of a test. Empty if no way is configured.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NotifyTested {
    /// Each way.
    pub ways: Vec<NotifyOutcome>,
}

/// What came of a test of one way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NotifyOutcome {
    /// `run`, `mail` or `url`.
    pub way: String,
    /// The program, the addresses, or the URL.
    pub target: String,
    /// Why it did not arrive; left out if it did.
    #[serde(default)]
    pub error: Option<String>,
}

/// How one way to the operators is doing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NotifyStatus {
    /// `run`, `mail` or `url`.
    pub way: String,
    /// The program, the addresses, or the URL.
    pub target: String,
    /// Messages delivered.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Events that were told only by their number: there were too many, or a delivery was given up.
    pub summed_up: u64,
    /// Messages that wait.
    pub waiting: u64,
    /// Why the last attempt failed; left out if it did not.
    #[serde(default)]
    pub error: Option<String>,
}

/// The history of events on disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct HistoryStatus {
    /// Its folder.
    pub folder: String,
    /// Bytes that it takes.
    pub bytes: u64,
    /// The most that it takes.
    pub limit_bytes: u64,
    /// Events written by this daemon.
    pub written: u64,
    /// Events that are missing in it.
    pub missed: u64,
    /// Why events cannot be written now; left out if they can.
    #[serde(default)]
    pub error: Option<String>,
}
