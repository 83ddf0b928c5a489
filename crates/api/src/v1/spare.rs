//! Spares: devices that wait for a slot, in pools that arrays share.

use super::Done;
use super::member::{Bay, DriveHealth};
use crate::Call;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Add a spare to a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpareAdd {
    /// Name of the pool; arrays take from the default one.
    #[serde(default = "default_pool")]
    pub pool: String,
    /// The device's path.
    pub device: String,
    /// Overwrite a foreign signature on it.
    #[serde(default)]
    pub destroy: bool,
    /// Bytes that the device writes whole or not at all, at multiples of them, even when power
    /// fails: a power of two of at least 4 KiB. Arrays with the policy log trust this from the next
    /// start after it became a member. Default: nothing is stated.
    #[serde(default)]
    pub atomic_write_bytes: Option<u32>,
    /// Use a whole drive as it is. Default: a drive gets a partition first, so that other programs
    /// see that it is taken; a drive that has nothing but such a partition stands for it.
    #[serde(default)]
    pub whole: bool,
    /// Check everything, write nothing, tell what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

impl Call for SpareAdd {
    const PATH: &'static str = "/v1/spares/add";
    type Answer = Done;
}

/// The pool that arrays take from.
pub fn default_pool() -> String {
    "spares".to_owned()
}

/// Remove a spare from its pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpareRemove {
    /// The device's path.
    pub device: String,
}

impl Call for SpareRemove {
    const PATH: &'static str = "/v1/spares/remove";
    type Answer = Done;
}

/// One pool at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SparePool {
    /// Name of the pool.
    pub name: String,
    /// Devices that wait.
    pub spares: Vec<Spare>,
}

/// A device that waits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Spare {
    /// Its path.
    pub path: String,
    /// Its serial, if it has one.
    #[serde(default)]
    pub serial: Option<String>,
    /// Where it is plugged in.
    #[serde(default)]
    pub bay: Bay,
    /// What the drive says of its health; left out if nobody asked it, or it is no drive.
    #[serde(default)]
    pub health: Option<DriveHealth>,
    /// Its size in bytes.
    pub device_bytes: u64,
    /// Bytes that it was stated to write whole or not at all.
    #[serde(default)]
    pub atomic_write_bytes: Option<u32>,
}
