//! How long things took: the figures that the status of arrays and of members has for each kind of
//! request.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long something took, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// Half of them were faster.
    pub us_p50: u64,
    /// 99 of 100 were faster.
    pub us_p99: u64,
    /// The slowest.
    pub us_max: u64,
    /// Sum of all.
    #[serde(default)]
    pub us_sum: u64,
    /// How many by power of two: entry 0 took less than 1 us, entry n less than 2^n us and at least
    /// half of that; the last entry has all that took longer, too.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub histogram: [u64; 28],
}

fn is_empty(histogram: &[u64; 28]) -> bool {
    histogram.iter().all(|count| *count == 0)
}
