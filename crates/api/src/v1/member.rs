//! Members: take one out, put another in its place, take one back; and how one is doing.

use super::event::one_line;
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
    /// Take the device although it is in another failure domain, and the loss of that domain could
    /// then lose data.
    #[serde(default)]
    pub other_domain: bool,
    /// Use a whole drive as it is. Default: a drive gets a partition first, so that other programs
    /// see that it is taken; a drive that has nothing but such a partition stands for it.
    #[serde(default)]
    pub whole: bool,
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

/// Switch on the light of a slot's bay, so that somebody finds the drive to pull, or switch it off.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Locate {
    /// The array's name.
    pub array: String,
    /// The member, by slot number, path or serial.
    pub member: String,
    /// Switch the light off.
    #[serde(default)]
    pub off: bool,
}

impl Call for Locate {
    const PATH: &'static str = "/v1/members/locate";
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

/// Where a drive is, or was, plugged in.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Bay {
    /// Name of the disk in `/dev/disk/by-path`.
    #[serde(default)]
    pub by_path: Option<String>,
    /// The enclosure: its id, or the kernel's name for it.
    #[serde(default)]
    pub enclosure: Option<String>,
    /// The bay, as the enclosure calls it.
    #[serde(default)]
    pub name: Option<String>,
    /// The NUMA node that the drive hangs on; none on a machine with one node.
    #[serde(default)]
    pub node: Option<u32>,
}

impl Bay {
    /// In words; `None` if nothing is known.
    pub fn words(&self) -> Option<String> {
        let bay = self.enclosure.as_ref().zip(self.name.as_ref());
        let bay = bay.map(|(enclosure, bay)| format!("enclosure {enclosure}, bay {bay}"));
        let node = self.node.map(|node| format!("node {node}"));
        let words: Vec<String> = bay.into_iter().chain(self.by_path.clone()).chain(node).collect();
        (!words.is_empty()).then(|| one_line(&words.join(", ")))
    }
}

/// What a drive says of its own health.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct DriveHealth {
    /// The program that asked the drive.
    pub source: String,
    /// How long ago, in seconds.
    pub age_seconds: u64,
    /// Why nothing is known; the rest is left out then.
    #[serde(default)]
    pub error: Option<String>,
    /// False: the drive says that it is failing.
    #[serde(default)]
    pub passed: Option<bool>,
    /// Its temperature, in degrees Celsius.
    #[serde(default)]
    pub temperature_c: Option<i64>,
    /// What is too hot: what the drive says, or else the configuration.
    #[serde(default)]
    pub temperature_limit_c: Option<i64>,
    /// Media errors so far. ATA: reallocated, pending and uncorrectable sectors; SCSI: grown
    /// defects and uncorrected errors; NVMe: its own count.
    #[serde(default)]
    pub media_errors: Option<u64>,
    /// How much of its rated life is used; may exceed 100.
    #[serde(default)]
    pub worn_percent: Option<u64>,
    /// Spare blocks that are left.
    #[serde(default)]
    pub spare_percent: Option<u64>,
    /// What the drive calls too few.
    #[serde(default)]
    pub spare_threshold_percent: Option<u64>,
    /// Hours in operation.
    #[serde(default)]
    pub power_on_hours: Option<u64>,
}

/// From this part of its rated life on, a drive counts as worn.
pub const WORN_PERCENT: u64 = 90;

/// Something about a drive that somebody should see to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Concern {
    /// The drive says that it is failing.
    Failing,
    /// It has fewer spare blocks than its maker wants.
    SpareLow,
    /// Its rated life is nearly used.
    Worn,
    /// It is too hot.
    Hot,
}

impl DriveHealth {
    /// What somebody should see to, worst first.
    pub fn concerns(&self) -> Vec<Concern> {
        let is_above =
            |value: Option<i64>, limit: Option<i64>| value.zip(limit).is_some_and(|(v, l)| v >= l);
        let is_spare_low = self
            .spare_percent
            .zip(self.spare_threshold_percent)
            .is_some_and(|(spare, threshold)| spare < threshold);
        let found = [
            (Concern::Failing, self.passed == Some(false)),
            (Concern::SpareLow, is_spare_low),
            (Concern::Worn, self.worn_percent.is_some_and(|worn| worn >= WORN_PERCENT)),
            (Concern::Hot, is_above(self.temperature_c, self.temperature_limit_c)),
        ];
        found.into_iter().filter(|(_, is_so)| *is_so).map(|(concern, _)| concern).collect()
    }

    /// A concern in words, with its figures.
    pub fn words(&self, concern: Concern) -> String {
        let or_none = |value: Option<u64>| value.unwrap_or_default();
        match concern {
            Concern::Failing => "says that it is failing".to_owned(),
            Concern::SpareLow => format!(
                "has {} % of its spare blocks left, its maker wants {} %",
                or_none(self.spare_percent),
                or_none(self.spare_threshold_percent)
            ),
            Concern::Worn => {
                format!("has used {} % of its rated life", or_none(self.worn_percent))
            }
            Concern::Hot => format!("has {} °C", self.temperature_c.unwrap_or_default()),
        }
    }

    /// The figures in one line, for tables.
    pub fn figures(&self) -> String {
        let percent = |value: Option<u64>, what: &str| value.map(|it| format!("{what} {it} %"));
        let figures = [
            self.passed.map(|passed| if passed { "passed" } else { "FAILING" }.to_owned()),
            self.temperature_c.map(|it| format!("{it} °C")),
            self.media_errors.map(|it| format!("media errors {it}")),
            percent(self.worn_percent, "worn"),
            percent(self.spare_percent, "spare"),
        ];
        match &self.error {
            Some(error) => one_line(error),
            None => figures.into_iter().flatten().collect::<Vec<_>>().join(", "),
        }
    }
}

/// A device that is not in service any more, as far as it is known. The members know what is cut
/// to 64 bytes or less, also after a restart and on another host.
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
    /// Where it was plugged in.
    #[serde(default)]
    pub bay: Bay,
    /// The host where it was so, if that is another one: path and bay are those of that host.
    #[serde(default)]
    pub host: Option<String>,
}

impl LastDevice {
    /// Its path, and the host if that is another one; `None` if it is not known.
    pub fn place(&self) -> Option<String> {
        let host = self.host.as_ref().map_or(String::new(), |host| format!(" on host {host}"));
        (!self.path.is_empty()).then(|| format!("{}{host}", self.path))
    }
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
    /// Where the device is plugged in.
    #[serde(default)]
    pub bay: Bay,
    /// What the drive says of its health; left out if nobody asked it, or it is no drive.
    #[serde(default)]
    pub health: Option<DriveHealth>,
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
    /// With a parity-only log: the kernel hands these blocks to the device as commands that the
    /// device reports to write whole (`RWF_ATOMIC`). Otherwise the statement alone vouches for it.
    #[serde(default)]
    pub atomic_writes: bool,
    /// Bytes that its device, or the one that is being filled for the slot, was stated to write
    /// whole or not at all.
    #[serde(default)]
    pub atomic_write_bytes: Option<u32>,
    /// Reads that failed, since the device joined or the array started, whichever was later; so
    /// are the other faults.
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

impl MemberStatus {
    /// What its device did wrong, as far as it is known. A block is repaired only where something
    /// was wrong, which may be counted nowhere else.
    #[must_use]
    pub fn faults(&self) -> u64 {
        let counted = self.read_errors
            + self.write_errors
            + self.checksum_mismatches
            + self.located_mismatches;
        counted.max(self.repaired_blocks)
    }
}
