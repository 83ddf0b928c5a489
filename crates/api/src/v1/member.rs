//! Members: take one out, put another in its place, take one back; and how one is doing.

use super::{Done, latency::Latency};
use crate::Call;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Take a member out of service. Nothing is written to its device any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// The array's name.
    pub array: String,
    /// The member, by slot number, path or serial.
    pub member: String,
}

impl Call for Fail {
    const PATH: &'static str = "/v1/members/fail";
    type Answer = Done;
}

/// Replace the device of a slot. If the old device still works, Ashlar copies it to the new one.
/// The old device serves until the copy is complete. Otherwise Ashlar rebuilds the new device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replace {
    /// The array's name.
    pub array: String,
    /// The member to replace, by slot number, path or serial.
    pub member: String,
    /// The new device's path.
    pub device: String,
    /// Overwrite a foreign signature on it.
    #[serde(default)]
    pub destroy: bool,
    /// Bytes that the new device writes whole or not at all, at multiples of them, even when power
    /// fails: a power of two of at least 4 KiB. With the policy log, Ashlar trusts this from the
    /// next start on. Default: nothing is stated.
    #[serde(default)]
    pub atomic_write_bytes: Option<u32>,
    /// Check everything, write nothing, tell what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

impl Call for Replace {
    const PATH: &'static str = "/v1/members/replace";
    type Answer = Done;
}

/// Return a member to its array. Ashlar rebuilds only the regions that changed while it was away.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReAdd {
    /// The array's name.
    pub array: String,
    /// The device's path.
    pub device: String,
}

impl Call for ReAdd {
    const PATH: &'static str = "/v1/members/re-add";
    type Answer = Done;
}

/// Erase the RAID metadata of devices that no array needs. Refused for devices in use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wipe {
    /// Paths of the devices.
    pub devices: Vec<String>,
    /// Of these, paths of devices that an array which does not run may still need.
    #[serde(default)]
    pub destroy: Vec<String>,
    /// Check everything and write nothing; the answer says what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

impl Call for Wipe {
    const PATH: &'static str = "/v1/devices/wipe";
    type Answer = Done;
}

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// Read and written.
    InSync,
    /// Written; what is not rebuilt yet comes from the others.
    Rebuilding,
    /// Working, and being copied to its replacement.
    Replacing,
    /// Not used any more; the other members do not say so yet.
    Failing,
    /// Not used: failed by an error or by hand, or not there.
    Out,
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MemberState::InSync => "in sync",
            MemberState::Rebuilding => "rebuilding",
            MemberState::Replacing => "replacing",
            MemberState::Failing => "FAILING",
            MemberState::Out => "OUT",
        })
    }
}

/// Commands that a member is slow at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SlowCommands {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
}

impl fmt::Display for SlowCommands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SlowCommands::Reads => "reads",
            SlowCommands::Writes => "writes",
        })
    }
}

/// A member that answers much more slowly than its peers: means of a few seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Slow {
    /// Of which commands.
    pub commands: SlowCommands,
    /// How long they take on the member, microseconds.
    pub own_us: u64,
    /// How long they take on its peers, in their median, microseconds.
    pub peers_us: u64,
    /// For how long it has been so, at least.
    pub seconds: u64,
}

/// A device that is not in service any more, as far as it is known. After a start without it only
/// its serial is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LastDevice {
    /// Its path; empty if it is not known.
    #[serde(default)]
    pub path: String,
    /// Its serial.
    #[serde(default)]
    pub serial: Option<String>,
    /// What it calls itself.
    #[serde(default)]
    pub model: Option<String>,
}

/// One slot at one moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemberStatus {
    /// Number of the slot.
    pub slot: u16,
    /// Path of the device; empty when it is missing.
    pub path: String,
    /// Path of the device that is being filled to replace it.
    #[serde(default)]
    pub replacement: Option<String>,
    /// The device's serial, if it has one.
    #[serde(default)]
    pub serial: Option<String>,
    /// What the device calls itself.
    #[serde(default)]
    pub model: Option<String>,
    /// The device that filled the slot last, if none does now: the drive to pull.
    #[serde(default)]
    pub last_device: Option<LastDevice>,
    /// What the slot holds.
    pub state: MemberState,
    /// Size of the device in bytes.
    pub device_bytes: u64,
    /// Single blocks that are written to it are logged by their parity alone: it was stated that
    /// the device writes a block whole, it has no volatile cache, and it has been in service since
    /// the array started.
    #[serde(default)]
    pub parity_only_log: bool,
    /// Bytes that its device, or the one that is being filled for the slot, was stated to write
    /// whole or not at all.
    #[serde(default)]
    pub atomic_write_bytes: Option<u32>,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes and flushes that failed.
    pub write_errors: u64,
    /// Blocks that could not be read, were reconstructed and written back.
    pub repaired_blocks: u64,
    /// Blocks that were not what had been written, found by their checksums.
    #[serde(default)]
    pub checksum_mismatches: u64,
    /// Blocks that the parities of a scrub pointed at. Without checksums that is an inference.
    #[serde(default)]
    pub located_mismatches: u64,
    /// Reads that were answered by the others because they took longer than the read deadline.
    pub slow_reads: u64,
    /// How long its device, or the one that is being filled to replace it, has not answered, in
    /// milliseconds.
    #[serde(default)]
    pub silent_ms: u64,
    /// How much slower than its peers the device is; left out unless it is judged slow.
    #[serde(default)]
    pub slow: Option<Slow>,
    /// Operations in flight now.
    pub in_flight: u64,
    /// The most that were in flight at once since assembly.
    #[serde(default)]
    pub in_flight_max: u64,
    /// Reads done.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes done.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Time that reads took.
    pub read_latency: Latency,
    /// Time that writes took.
    pub write_latency: Latency,
}
