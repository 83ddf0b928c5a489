//! Tunables of a running array.

use super::Done;
use crate::Call;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tunables by the names that they have in `[tuning]` of the configuration. What is left out stays
/// as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tuning {
    /// A member read that takes longer is reconstructed from the others; milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_deadline_ms: Option<u64>,
    /// A member on flash that answers nothing for so long is put out; milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_flash_ms: Option<u64>,
    /// The same for rotational drives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_rotational_ms: Option<u64>,
    /// The same for files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_file_ms: Option<u64>,
    /// What follows when a member is much slower than its peers: `warn`, `avoid` or `replace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_member: Option<String>,
    /// How many times as long as on its peers its commands take then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_times: Option<u32>,
    /// How long that must last, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_after_s: Option<u64>,
    /// How long a piece of a sequential stream may wait, in microseconds; 0 never waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge_wait_us: Option<u64>,
    /// Read errors after which a member is put out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_errors_max: Option<u64>,
    /// Client latency that background jobs try to leave alone, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_latency_target_ms: Option<u64>,
    /// Bytes a second that a background job moves whatever clients do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_floor: Option<u64>,
    /// How long writes wait for space behind the members, in seconds; 0: without end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space_wait_s: Option<u64>,
    /// Members are told what clients gave back, once that is safe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass_discards: Option<bool>,
    /// Bytes of client reads that begin in a second; 0: without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_rate_max: Option<u64>,
    /// Bytes of client writes that begin in a second; 0: without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_rate_max: Option<u64>,
    /// Client reads that begin in a second; 0: without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_iops_max: Option<u64>,
    /// Client writes that begin in a second; 0: without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_iops_max: Option<u64>,
}

/// Change tunables of a running array. The changes are remembered over a restart of the array, if
/// the daemon remembers anything.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetTuning {
    /// The array's name.
    pub array: String,
    /// What is to change.
    pub tuning: Tuning,
    /// The changes are in force until the array stops.
    #[serde(default)]
    pub not_remembered: bool,
    /// Forget first what was remembered; what is in force stays so until the array stops.
    #[serde(default)]
    pub forget: bool,
}

impl Call for SetTuning {
    const PATH: &'static str = "/v1/arrays/set";
    type Answer = Done;
}
