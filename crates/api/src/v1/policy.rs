//! Policies and switches by name, each with its promise.
//!
//! What must stay true: every name that is printed can be read back. A promise is written down
//! once, here.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// How an array stays consistent over a crash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Policy {
    /// The stripe intent log: every update is on its members twice, first in the log.
    Log,
    /// The write-intent bitmap: what was being written is resynced.
    Bitmap,
    /// Nothing is recorded.
    None,
}

impl Policy {
    /// Every policy with its name and what it promises, in words.
    pub const NAMES: [(Policy, &'static str, &'static str); 3] = [
        (Policy::Log, "log", "a crash harms no block that was not being written, degraded or not"),
        (
            Policy::Bitmap,
            "bitmap",
            "after a crash what was being written is resynced; a member lost too may cost more",
        ),
        (Policy::None, "none", "after a crash all that was ever written is resynced, if it can be"),
    ];

    /// What `bitmap` promises for a mirror, which has no write hole: no block needs another one to
    /// be right.
    pub const MIRROR_PROMISE: &str =
        "after a crash the copies are made equal; no block that was not being written is harmed";

    /// What the policy of this name promises; empty for names that are not known here.
    pub fn promise_of(name: &str) -> &'static str {
        Policy::NAMES.iter().find(|(_, known, _)| *known == name).map_or("", |(.., words)| words)
    }
}

impl JsonSchema for Policy {
    fn schema_name() -> Cow<'static, str> {
        "Policy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names = Policy::NAMES.map(|(_, name, _)| name);
        let promises = Policy::NAMES.map(|(_, name, promise)| format!("- `{name}`: {promise}"));
        let words =
            format!("How an array stays consistent over a crash.\n\n{}", promises.join("\n"));
        json_schema!({ "type": "string", "enum": names, "description": words })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Policy::NAMES.iter().find(|(policy, ..)| policy == self);
        f.pad(name.map_or("", |(_, name, _)| name))
    }
}

/// Something that is on or off.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// Neither on nor off.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is neither on nor off")]
pub struct NotASwitch(String);

impl FromStr for Switch {
    type Err = NotASwitch;

    fn from_str(text: &str) -> Result<Switch, NotASwitch> {
        match &*text.trim().to_ascii_lowercase() {
            "on" => Ok(Switch::On),
            "off" => Ok(Switch::Off),
            _ => Err(NotASwitch(text.to_owned())),
        }
    }
}

/// A policy that does not exist.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not a policy; write log, bitmap or none")]
pub struct UnknownPolicy(String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Policy, UnknownPolicy> {
        let lower = text.trim().to_ascii_lowercase();
        let found = Policy::NAMES.iter().find(|(_, name, _)| *name == lower);
        found.map(|(policy, ..)| *policy).ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

impl TryFrom<String> for Policy {
    type Error = UnknownPolicy;

    fn try_from(text: String) -> Result<Policy, UnknownPolicy> {
        text.parse()
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> String {
        policy.to_string()
    }
}
